package entity_test

import (
	"strconv"
	"testing"

	"perdure/entity"
)

// BenchmarkSignal is one operation of an entity: delivered, taken in a batch, committed.
func BenchmarkSignal(b *testing.B) {
	state, err := entity.New("counter", 1)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		add := entity.Signal{Origin: entity.Party{Kind: entity.PartyClient, ID: "bank"}, Entity: "counter", Request: strconv.Itoa(n), Operation: "add", Input: []byte("1")}
		if _, err := state.Deliver(0, add); err != nil {
			b.Fatal(err)
		}
		batch, ok := state.Batch(10, 1<<20)
		if !ok {
			b.Fatal("there is no batch")
		}
		if _, err := state.Commit(0, account(batch)); err != nil {
			b.Fatal(err)
		}
	}
}
