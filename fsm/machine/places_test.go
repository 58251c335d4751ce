package machine

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// Whatever places are put, removed and scanned in whatever order, a scan of a queue gives those that are below.
func TestQueuesAreAsBelow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		below := state.NewMemReader()
		c := newReadCache(below, 1<<20)
		function := func() string { return rapid.SampledFrom([]string{"f", "g", "fg"}).Draw(t, "function") }
		order := func() int64 { return rapid.Int64Range(0, 30).Draw(t, "order") }
		for range rapid.IntRange(50, 150).Draw(t, "operations") {
			switch rapid.IntRange(0, 3).Draw(t, "operation") {
			case 0: // many at once, so that not all are kept
				fn, at := function(), order()
				for n := range rapid.SampledFrom([]int{1, mostPlaces - 1, mostPlaces, mostPlaces + 1}).Draw(t, "places") {
					w := &write{key: keys.ReadyOf("ns", fn, at, fmt.Sprintf("e-%03d", n)), value: fmt.Appendf(nil, "%d", at)}
					below.Apply([]state.Write{{Key: w.key, Value: w.value}})
					c.written(w)
				}
			case 1:
				w := &write{key: keys.ReadyOf("ns", function(), order(), fmt.Sprintf("e-%03d", rapid.IntRange(0, mostPlaces).Draw(t, "id"))), removed: true}
				below.Apply([]state.Write{{Key: w.key}})
				c.written(w)
			default:
				queue := keys.Of(keys.Ready, "ns", function())
				lower, upper := keys.AppendUint64(slices.Clone(queue), uint64(order())), keys.After(queue)
				if rapid.Bool().Draw(t, "not to its end") {
					upper = keys.AppendUint64(slices.Clone(queue), uint64(order()))
				}
				most := rapid.SampledFrom([]int{1, 5, mostPlaces, 1000}).Draw(t, "most")
				scan := func(r state.Reader) (out []string) {
					if err := r.Scan(lower, upper, func(key, value []byte) bool {
						out = append(out, fmt.Sprintf("%q %q", key, value))
						return len(out) < most
					}); err != nil {
						t.Fatal(err)
					}
					return out
				}
				if got, want := scan(c), scan(below); !slices.Equal(got, want) {
					t.Fatalf("from %q to %q there are\n%v, must be\n%v", lower, upper, got, want)
				}
			}
			if len(c.queues) > mostQueues {
				t.Fatalf("%d queues are kept", len(c.queues))
			}
		}
	})
}

// The cache keeps a bounded number of queues.
func TestQueuesAreBounded(t *testing.T) {
	c := newReadCache(state.NewMemReader(), 1<<20)
	for n := range 2 * mostQueues {
		queue := keys.Of(keys.Ready, "ns", fmt.Sprint("f", n))
		if err := c.Scan(keys.AppendUint64(slices.Clone(queue), 0), keys.After(queue), func(_, _ []byte) bool { return true }); err != nil {
			t.Fatal(err)
		}
	}
	if len(c.queues) > mostQueues {
		t.Errorf("%d queues are kept", len(c.queues))
	}
}
