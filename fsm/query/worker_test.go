package query

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/recovery"
)

// Each queue with pending tasks for workers is listed once, however many tasks it has and whatever its names.
func TestReadyQueues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringOfN(rapid.SampledFrom([]rune{0, 1, 'a', 'b', 0xff}), 0, 3, -1)
		r := state.NewMemReader()
		var want []state.Queue
		function := rapid.StringOfN(rapid.SampledFrom([]rune{1, 'a', 'b', 0xff}), 0, 3, -1)
		for i := range rapid.IntRange(0, 12).Draw(t, "tasks") {
			q := state.Queue{Namespace: name.Draw(t, "namespace"), Function: function.Draw(t, "function"), Digest: name.Draw(t, "digest")}
			r.Apply([]state.Write{{Key: keys.ReadyOf(q.Namespace, q.Target(), rapid.Int64Range(0, 9).Draw(t, "order"), fmt.Sprint(i)), Value: []byte{}}})
			if _, client := state.AddressOf(q.Target()); !client && !slices.Contains(want, q) {
				want = append(want, q)
			}
		}
		got, err := ReadyQueues(r)
		slices.SortFunc(want, func(a, b state.Queue) int {
			return strings.Compare(string(keys.Of(keys.Ready, a.Namespace, a.Target())), string(keys.Of(keys.Ready, b.Namespace, b.Target())))
		})
		if err != nil || !slices.Equal(got, want) {
			t.Fatalf("%q, %v, must be %q", got, err, want)
		}
	})
	r := state.NewMemReader()
	r.Apply([]state.Write{{Key: []byte{byte(keys.Ready), 'x'}, Value: []byte{}}})
	var damage *state.CorruptError
	if _, err := ReadyQueues(r); !errors.As(err, &damage) {
		t.Errorf("a damaged key: %v", err)
	}
}

// The tasks that are held are those with a lease in the index that are acquired: an index entry may outlast its lease.
func TestEachHeld(t *testing.T) {
	r := state.NewMemReader()
	put := func(id string, s recovery.TaskState, leased bool) {
		task := recovery.Task{ID: id, State: s, PID: "w"}
		r.Apply([]state.Write{{Key: keys.Of(keys.Task, "ns", id), Value: recovery.AppendTask(nil, task)}})
		if leased {
			r.Apply([]state.Write{{Key: keys.DeadlineOf(keys.DeadlineLease, 5, "ns", id), Value: []byte{}}})
		}
	}
	if any, err := Leased(r); any || err != nil {
		t.Errorf("an empty state has leases: %t, %v", any, err)
	}
	put("held", recovery.TaskAcquired, true)
	put("ended", recovery.TaskFulfilled, true)
	put("pending", recovery.TaskPending, false)
	var got []string
	if err := EachHeld(r, func(ns string, task recovery.Task) { got = append(got, ns+"/"+task.ID) }); err != nil || !slices.Equal(got, []string{"ns/held"}) {
		t.Errorf("held: %v, %v", got, err)
	}
	if any, err := Leased(r); !any || err != nil {
		t.Errorf("a state with leases has none: %t, %v", any, err)
	}
}
