package query

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// failing fails after some keys.
type failing struct {
	state.Reader
	left int
}

var errRead = errors.New("cannot read")

func (r *failing) Scan(lower, upper []byte, fn func(key, value []byte) bool) (err error) {
	return errors.Join(r.Reader.Scan(lower, upper, func(key, value []byte) bool {
		if r.left == 0 {
			err = errRead
			return false
		}
		r.left--
		return fn(key, value)
	}), err)
}

// pass runs a pass in pieces, and deletes some of what it finds between them, as a retention does. Some pieces
// fail and are read again.
func pass(rt *rapid.T, r *state.MemReader, search Search, before Before, remove func(Ended)) (got []string) {
	var from []byte
	for range 1000 {
		maxKeys, most := rapid.IntRange(1, 9).Draw(rt, "keys"), rapid.IntRange(1, 4).Draw(rt, "most")
		left := rapid.IntRange(0, 12).Draw(rt, "read before a failure")
		found, next, err := search(&failing{r, left}, from, maxKeys, most, before)
		if errors.Is(err, errRead) {
			found, next, err = search(r, from, maxKeys, most, before)
		}
		if err != nil {
			rt.Fatal(err)
		}
		for _, e := range found {
			got = append(got, e.Namespace+"/"+e.ID)
			remove(e)
		}
		if from = next; from == nil {
			slices.Sort(got)
			return got
		}
	}
	rt.Fatalf("the pass does not end; at %x", from)
	return nil
}

// Passes one after the other find what whole ones find, while executions end in the order in which they began, and some that are found
// are kept, whatever is kept meanwhile for a longer or shorter time. A whole pass finds the others.
func TestAgain(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		r, listed, now := state.NewMemReader(), map[string][]byte{}, int64(0)
		a := &Again{}
		end := func(created int64, classes ...keys.VisibilityClass) {
			ns, function := rapid.SampledFrom([]string{"a", "b"}).Draw(rt, "ns"), rapid.SampledFrom([]string{"f", "g"}).Draw(rt, "function")
			objectID := fmt.Sprintf("e%d", len(listed))
			key := keys.VisibilityOf(ns, rapid.SampledFrom(classes).Draw(rt, "class"), created, objectID)
			listed[ns+"/"+objectID] = key
			r.Apply([]state.Write{{Key: key, Value: state.ListingClosed(&state.Header{Function: function, ClosedMS: now})}})
		}
		for _, ns := range []string{"a", "b"} { // each class is known
			for _, class := range []keys.VisibilityClass{keys.Completed, keys.Failed} {
				r.Apply([]state.Write{{Key: keys.VisibilityOf(ns, class, 1<<40, "kept"), Value: state.ListingClosed(&state.Header{Function: "h", ClosedMS: 1 << 40})}})
			}
		}
		before := cutoffs{"a/f": 1, "a/g": 1, "b/f": 1}
		for n := range rapid.IntRange(1, 8).Draw(rt, "passes") {
			late := false
			for range rapid.IntRange(0, 9).Draw(rt, "executions") {
				now++
				created := now
				if late = late || rapid.IntRange(0, 9).Draw(rt, "late") == 0; late {
					created = rapid.Int64Range(1, now).Draw(rt, "created")
				}
				end(created, keys.Completed, keys.Failed)
			}
			for _, scope := range []string{"a/f", "a/g", "b/f"} {
				before[scope] = rapid.Int64Range(1, now+1).Draw(rt, scope)
			}
			want := pass(rt, r, EndedExecutions, before, func(Ended) {})
			whole := n == 0 || late || rapid.IntRange(0, 3).Draw(rt, "whole") == 0
			got := pass(rt, r, a.Begin(whole), before, func(e Ended) {
				if rapid.IntRange(0, 4).Draw(rt, "keep") > 0 {
					r.Apply([]state.Write{{Key: listed[e.Namespace+"/"+e.ID]}})
				}
			})
			if !slices.Equal(got, want) {
				rt.Fatalf("pass %d found %q, want %q", n, got, want)
			}
		}
	})
}

// ranges notes the ranges that are scanned.
type ranges struct {
	state.Reader
	scanned [][2]string
}

func (r *ranges) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	r.scanned = append(r.scanned, [2]string{string(lower), string(upper)})
	return r.Reader.Scan(lower, upper, fn)
}

// A pass after another reads no range in which everything was deleted before, and one that was not read to its end counts for nothing.
func TestAgainLeavesOutWhatWasDeleted(t *testing.T) {
	mem, a, before := state.NewMemReader(), &Again{}, cutoffs{"a/f": 50}
	key := func(n int64) []byte { return keys.VisibilityOf("a", keys.Completed, n, "e") }
	for n := range int64(100) {
		mem.Apply([]state.Write{{Key: key(n), Value: state.ListingClosed(&state.Header{Function: "f", ClosedMS: n})}})
	}
	r := &ranges{Reader: mem}
	all := func(search Search) (found []Ended) {
		r.scanned = nil
		found, next, err := search(r, nil, 1000, 1000, before)
		if err != nil || next != nil {
			t.Fatal(next, err)
		}
		for _, e := range found {
			mem.Apply([]state.Write{{Key: key(e.EndedMS)}})
		}
		return found
	}
	if found, next, err := a.Begin(false)(r, nil, 1000, 7, before); len(found) != 7 || next == nil || err != nil {
		t.Fatal(len(found), next, err)
	}
	if got := all(a.Begin(false)); len(got) != 50 {
		t.Fatalf("the first whole pass found %d, want 50", len(got))
	}
	before["a/f"] = 60
	if got := all(a.Begin(false)); len(got) != 10 {
		t.Fatalf("the next pass found %d, want 10", len(got))
	}
	before["a/f"] = 70
	if got := all(a.Begin(false)); len(got) != 10 {
		t.Fatalf("the third pass found %d, want 10", len(got))
	}
	for _, of := range r.scanned {
		// The third may read what was there at the second, and not what the first deleted.
		if of[1] > string(key(49)) {
			t.Fatalf("the third pass has read from %x to %x", of[0], of[1])
		}
	}
}
