package group

import (
	"errors"
	"slices"
	"testing"

	"perdure/partition/stable"
)

// A server stores no term and no vote before its log is synced. A failed sync does not make Raft panic: the log is then
// closed for all else.
func TestSyncedTerms(t *testing.T) {
	var calls []uint64
	below := stable.NewMemory().Group(1)
	terms := syncedTerms{below, func(index uint64) error {
		if v, _ := below.GetUint64([]byte("term")); v != 0 {
			t.Error("the term was stored before the log was synced")
		}
		if v, _ := below.Get([]byte("vote")); v != nil {
			t.Error("the vote was stored before the log was synced")
		}
		calls = append(calls, index)
		return errors.New("disk")
	}}
	if err := terms.Set([]byte("vote"), []byte("n1")); err != nil {
		t.Error(err)
	}
	below = stable.NewMemory().Group(2)
	terms.StableStore = below
	if err := terms.SetUint64([]byte("term"), 7); err != nil {
		t.Error(err)
	}
	if !slices.Equal(calls, []uint64{^uint64(0), ^uint64(0)}) {
		t.Errorf("the log was awaited up to %v", calls)
	}
	if v, err := below.GetUint64([]byte("term")); v != 7 {
		t.Errorf("the term is %d, %v", v, err)
	}
}
