package state

import (
	"errors"
	"math"
	"testing"

	"pgregory.net/rapid"

	"perdure/fsm/state/keys"
	"perdure/id"
)

func withMeta(name string, value []byte) *MemReader {
	r := NewMemReader()
	r.Apply([]Write{{Key: keys.MetaKey(name), Value: value}})
	return r
}

func TestMetaNumber(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.Uint64().Draw(t, "n")
		r := withMeta(MetaApplied, keys.AppendUint64(nil, n))
		if got, err := MetaNumber(r, MetaApplied); err != nil || got != n {
			t.Fatalf("%d is read as %d, %v", n, got, err)
		}
		if got, err := MetaNumber(r, MetaClock); err != nil || got != 0 {
			t.Fatalf("a value that was never written is %d, %v", got, err)
		}
	})
	var damage *CorruptError
	if _, err := MetaNumber(withMeta(MetaClock, make([]byte, 7)), MetaClock); !errors.As(err, &damage) {
		t.Errorf("seven bytes: %v", err)
	}
}

// A state of a newer program is refused by its level; every older one is accepted.
func TestCheckLevel(t *testing.T) {
	for level := range uint64(FeatureLevel + 3) {
		err := CheckLevel(withMeta(MetaFeature, keys.AppendUint64(nil, level)))
		var newer *LevelError
		if level <= FeatureLevel && err != nil {
			t.Errorf("level %d: %v", level, err)
		}
		if level > FeatureLevel && (!errors.As(err, &newer) || newer.Level != level || newer.Known != FeatureLevel) {
			t.Errorf("level %d: %v", level, err)
		}
	}
}

// Every id has one partition, that of its slot; partitions have runs of slots that differ by one slot at most.
func TestPartitionOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.Uint32Range(1, id.Slots).Draw(t, "count")
		ns, object := rapid.String().Draw(t, "namespace"), rapid.String().Draw(t, "id")
		p := PartitionOf(ns, object, count)
		if err := (Partition{Number: p, Count: count}).Check(); err != nil {
			t.Fatal(err)
		}
		first := func(p uint32) uint64 { return (uint64(p)*id.Slots + uint64(count) - 1) / uint64(count) }
		if slot := uint64(id.Slot(ns, object)); slot < first(p) || slot >= first(p+1) {
			t.Fatalf("slot %d of %d partitions is in %d, which has %d to %d", slot, count, p, first(p), first(p+1))
		}
	})
	if err := (Partition{Number: 3, Count: 3}).Check(); err == nil {
		t.Error("partition 3 of 3 is accepted")
	}
}

// The attempts of a node have different ids over all generations, and each is a child of the node's promise.
func TestAttemptIDs(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := rapid.Custom(func(t *rapid.T) *NodeRow {
			return &NodeRow{
				Child:      rapid.Uint32Range(1, math.MaxUint32).Draw(t, "child"),
				Generation: rapid.Uint32Range(0, MaxGeneration).Draw(t, "generation"),
				Attempt:    rapid.Uint32Range(1, AttemptsPerGeneration).Draw(t, "attempt"),
			}
		})
		a, b := draw.Draw(t, "a"), draw.Draw(t, "b")
		same := a.Child == b.Child && a.Generation == b.Generation && a.Attempt == b.Attempt
		if (a.AttemptID("run") == b.AttemptID("run")) != same {
			t.Fatalf("%+v and %+v: %s and %s", a, b, a.AttemptID("run"), b.AttemptID("run"))
		}
		h := &Header{ID: a.AttemptID("run"), ParentPromise: a.Promise("run")}
		if parent, ok := ParentOf(h.ID); !ok || parent != a.Promise("run") || !h.IsAttempt() {
			t.Fatalf("%s is no attempt of %s", h.ID, h.ParentPromise)
		}
	})
}
