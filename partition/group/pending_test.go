package group

import (
	"testing"

	"perdure/internal/clock"
	"perdure/partition/admission"
	"perdure/partition/quota"
)

// Large commands do not keep small ones waiting, nor the other way round, and each lane is in order.
func TestLanesTakeTurns(t *testing.T) {
	pool := admission.New(admission.Limits{})
	q := newPending(1000, pool, newBulk(clock.System{}))
	add := func(bytes int) *proposal {
		cmd := promiseCmd("p", 1)
		cmd.GetCreatePromise().Param = make([]byte, bytes)
		reserved, err := pool.Reserve(0, cmd)
		if err != nil {
			t.Fatal(err)
		}
		p, _, ok := q.add(cmd, nil, reserved, quota.Charge{})
		if !ok {
			t.Fatal("refused")
		}
		return p
	}
	var heavy, light []*proposal
	for range 3 {
		heavy = append(heavy, add(maxEntryBytes+1))
	}
	for range 3 * maxEntryCommands {
		light = append(light, add(100))
	}
	for q.firstLarge() != nil {
		q.admit(q.firstLarge())
	}
	for turn := range 6 {
		batch := q.take()
		switch {
		case turn%2 == 0 && (len(batch) != 1 || batch[0] != heavy[turn/2]):
			t.Fatalf("entry %d holds %d commands, not large one %d", turn, len(batch), turn/2)
		case turn%2 == 1 && (len(batch) != maxEntryCommands || batch[0] != light[turn/2*maxEntryCommands]):
			t.Fatalf("entry %d holds %d commands", turn, len(batch))
		}
	}
	if q.len() != 0 || q.bytes != [lanes]int64{} || q.take() != nil {
		t.Errorf("%d are left, %v bytes", q.len(), q.bytes)
	}
}
