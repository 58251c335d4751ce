package entity

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A long queue is answered as a short one: the positions of lock requests, and what a locked entity may run, are those
// that a reading of the whole queue finds.
func TestIndexOfLongQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := New("e", 1)
		if err != nil {
			t.Fatal(err)
		}
		pick := func(n int, what string) int { return rapid.IntRange(0, n-1).Draw(t, what) }
		holder := func(i int) Party { return Party{PartyExecution, fmt.Sprint("x", i), 1} }
		section := func(i int) Section { return Section{holder(i), fmt.Sprint("x", i, ":0")} }
		const holders = 40
		sent, indexed := 0, false
		for range 120 {
			who := pick(holders, "who")
			switch pick(8, "choice") {
			case 0, 1, 2:
				_, _ = s.Deliver(0, LockRequest{Section: section(who), Set: []ID{"e"}})
			case 3, 4:
				sent++
				m := Call{Origin: holder(who), Entity: "e", Request: fmt.Sprint("r", sent), Operation: "o"}
				if s.Lock.Held() && pick(3, "of the holder") > 0 {
					m.Origin, m.Section = s.Lock.Section.Holder, s.Lock.Section.ID
				}
				_, _ = s.Deliver(0, m)
			case 5:
				if s.Lock.Section == section(who) {
					_, _ = s.Deliver(0, Unlock{section(who), "e"})
				} else {
					_, _ = s.Deliver(0, Withdraw{Section: section(who), Set: []ID{"e"}})
				}
			case 6:
				if s.Lock.Held() && pick(3, "released") == 0 {
					_, _ = s.Deliver(0, Unlock{s.Lock.Section, "e"})
				}
			default:
				if b, ok := s.Batch(1+pick(3, "most"), 1<<20); ok {
					c := Commit{Incarnation: b.Incarnation, Version: b.Version, Lane: b.Lane}
					for _, o := range b.Operations {
						c.Results = append(c.Results, Result{Request: o.Request})
					}
					if _, err := s.Commit(0, c); err != nil {
						t.Fatal(err)
					}
				}
			}
			indexed = indexed || s.index != nil
			for i := range holders {
				at := slices.IndexFunc(s.Queue, func(e Entry) bool {
					m, ok := e.Message.(LockRequest)
					return ok && m.Section == section(i)
				})
				if got := s.requestOf(section(i)); got != at {
					t.Fatalf("the request of %v is at %d, found at %d", section(i), at, got)
				}
			}
			if !s.Lock.Held() {
				continue
			}
			var want, got []int
			for i, e := range s.Queue {
				if o, ok := e.Message.(operation); ok && s.Lock.admits(e.Seq, o) {
					want = append(want, i)
				}
			}
			for i, o := range s.eligible(false) {
				if got = append(got, i); o.request() != s.Queue[i].Message.(operation).request() {
					t.Fatalf("%v is not at %d", o, i)
				}
			}
			if !slices.Equal(got, want) {
				t.Fatalf("the holder may run what is at %v, found %v", want, got)
			}
		}
		if !indexed {
			t.Skip("the queue was never long")
		}
	})
}
