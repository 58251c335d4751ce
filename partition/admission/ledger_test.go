package admission

import (
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestLedger: the commands that a ledger admits, step by step.
func TestLedger(t *testing.T) {
	limits := Limits{PartitionBytes: 100, NamespaceBytes: 140, NodeBytes: 200}
	begins := func(p int64, ns string, n int64) Reservation { return Reservation{p, ns, beginsWork, n} }
	finishes := func(p int64, ns string, n int64) Reservation { return Reservation{p, ns, finishesWork, n} }
	type step struct {
		take, back Reservation
		refused    string // the bound
	}
	for name, steps := range map[string][]step{
		"new work gets half of a partition": {
			{take: begins(1, "a", 50)}, {take: begins(1, "a", 1), refused: "partition"}, {take: finishes(1, "a", 50)},
			{take: finishes(1, "a", 1), refused: "partition"}, {back: begins(1, "a", 50)}, {take: begins(1, "b", 50)},
		},
		"one namespace leaves room for another": {
			{take: begins(1, "a", 40)}, {take: begins(2, "a", 30)}, {take: begins(3, "a", 1), refused: "namespace"}, {take: begins(3, "b", 30)},
		},
		"all partitions share the node": {
			{take: begins(1, "a", 50)}, {take: begins(2, "b", 50)}, {take: begins(3, "c", 1), refused: "node"},
			{take: finishes(3, "c", 100)}, {take: finishes(4, "d", 1), refused: "node"},
		},
		"forwarded commands have no partition": {
			{take: begins(noPartition, "a", 60)}, {take: begins(1, "a", 11), refused: "namespace"}, {take: begins(1, "b", 40)},
			{take: begins(noPartition, "b", 1), refused: "node"}, {back: begins(noPartition, "a", 60)}, {take: begins(noPartition, "b", 30)},
		},
		"messages between partitions are of no namespace": {
			{take: finishes(1, "", 100)}, {take: finishes(2, "", 100)}, {take: finishes(2, "", 1), refused: "partition"},
		},
		"finishing work may use all, and keeps new work out then": {
			{take: finishes(1, "a", 100)}, {take: begins(1, "a", 1), refused: "partition"},
		},
		"larger than any bound": {{take: begins(1, "a", 51), refused: "partition"}, {take: finishes(noPartition, "", 201), refused: "node"}},
	} {
		l := newLedger(limits)
		for i, s := range steps {
			if s.back.bytes != 0 {
				l.release(s.back)
				continue
			}
			over, ok := l.reserve(s.take)
			if ok != (s.refused == "") || over.bound != s.refused {
				t.Errorf("%s, step %d: admitted %v, refused by %q, want %q", name, i, ok, over.bound, s.refused)
			}
		}
	}
}

// After any reservations and releases, no bound is exceeded, a refusal changes nothing, new work never takes
// the share of commands that finish work, and nothing is left at the end.
func TestLedgerLaws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{
			PartitionBytes: rapid.Int64Range(0, 200).Draw(t, "partition"),
			NamespaceBytes: rapid.Int64Range(0, 200).Draw(t, "namespace"),
			NodeBytes:      rapid.Int64Range(0, 400).Draw(t, "node"),
		}
		l := newLedger(limits)
		var open []Reservation
		sum := func(of func(Reservation) bool) (n int64) {
			for _, r := range open {
				if of(r) {
					n += r.bytes
				}
			}
			return n
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			if len(open) > 0 && rapid.Bool().Draw(t, "release") {
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				l.release(open[i])
				open = append(open[:i], open[i+1:]...)
			} else {
				r := Reservation{
					partition: rapid.Int64Range(noPartition, 3).Draw(t, "at"),
					namespace: rapid.SampledFrom([]string{"", "a", "b"}).Draw(t, "ns"),
					class:     workClass(rapid.IntRange(0, int(workClasses)-1).Draw(t, "class")),
					bytes:     rapid.Int64Range(1, 120).Draw(t, "bytes"),
				}
				if over, ok := l.reserve(r); ok {
					open = append(open, r)
				} else if over.held+r.bytes <= over.limit && (r.class == finishesWork || over.limit-over.held >= r.bytes && over.limit/2 >= over.held+r.bytes) {
					t.Fatalf("%+v is refused although the %s's %d of %d bytes leave it space", r, over.bound, over.held, over.limit)
				}
			}
			check := func(what string, held, begun, limit int64) {
				if held < 0 || held > limit || begun > limit/2 {
					t.Fatalf("%s: %d held, %d of it new work, the bound is %d", what, held, begun, limit)
				}
			}
			all := func(Reservation) bool { return true }
			begun := func(r Reservation) bool { return r.class == beginsWork }
			if got := l.held(noPartition); got != sum(all) {
				t.Fatalf("the node holds %d, %d are open", got, sum(all))
			}
			check("node", l.held(noPartition), sum(begun), limits.NodeBytes)
			for p := int64(0); p <= 3; p++ {
				if got := l.held(p); got != sum(func(r Reservation) bool { return r.partition == p }) {
					t.Fatalf("partition %d holds %d", p, got)
				}
				check(fmt.Sprint("partition ", p), l.held(p), sum(func(r Reservation) bool { return r.partition == p && begun(r) }), limits.PartitionBytes)
			}
			for _, ns := range []string{"a", "b"} {
				of := func(r Reservation) bool { return r.namespace == ns }
				check("namespace "+ns, sum(of), sum(func(r Reservation) bool { return of(r) && begun(r) }), limits.NamespaceBytes)
				if a := l.namespaces[ns]; (a == nil) != (sum(of) == 0) {
					t.Fatalf("namespace %s: an account %v for %d bytes", ns, a, sum(of))
				}
			}
		}
		for _, r := range open {
			l.release(r)
		}
		if l.held(noPartition) != 0 || len(l.namespaces) != 0 {
			t.Fatalf("%d bytes and %d namespaces are left", l.held(noPartition), len(l.namespaces))
		}
	})
}

// Half of the least bound holds the largest command of a client, in either class.
func TestLargestCommandFits(t *testing.T) {
	const largest = 24<<20 + commandOverhead // what a client's message may be
	limits := Limits{MinLimitBytes, MinLimitBytes, MinLimitBytes}
	for class := range workClasses {
		l := newLedger(limits)
		if _, ok := l.reserve(Reservation{1, "a", beginsWork, MinLimitBytes / 2}); class == finishesWork && !ok {
			t.Fatal("half of the bound is not new work's")
		} else if class == beginsWork {
			l = newLedger(limits)
		}
		if over, ok := l.reserve(Reservation{1, "a", class, largest}); !ok {
			t.Errorf("class %d: refused by %+v", class, over)
		}
	}
}
