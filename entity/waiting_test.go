package entity

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

// A long backlog refuses a waiting operation's repetition as a short one does, whatever came, ran, fell due
// or was withdrawn before; and what ran may come again. The lists' former slices keep their entries.
func TestRequestsOfLongBacklog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, err := New("e", 1)
		if err != nil {
			t.Fatal(err)
		}
		const requests = 60
		indexed := false
		pick := func(n int, what string) int { return rapid.IntRange(0, n-1).Draw(t, what) }
		holder := Party{PartyExecution, "x", 7}
		now := int64(0)
		for range 150 {
			queue, delayed := s.Queue, s.Delayed
			former := [2][]Entry{slices.Clone(queue), slices.Clone(delayed)}
			switch choice := pick(20, "choice"); choice {
			case 0:
				now += int64(pick(6, "time"))
				s.Tick(now)
			case 1:
				_, _ = s.Deliver(now, LockRequest{Section: Section{holder, fmt.Sprint("s", pick(3, "section"))}, Set: []ID{"e"}})
			case 2:
				section := Section{holder, fmt.Sprint("s", pick(3, "section"))}
				if s.Lock.Section == section {
					_, _ = s.Deliver(now, Unlock{section, "e"})
				} else {
					_, _ = s.Deliver(now, Withdraw{Section: section, Set: []ID{"e"}})
				}
			case 3:
				if b, ok := s.Batch(1+pick(4, "most"), 1<<20); ok {
					c := Commit{Incarnation: b.Incarnation, Version: b.Version, Lane: b.Lane}
					for _, o := range b.Operations {
						c.Results = append(c.Results, Result{Request: o.Request})
					}
					if _, err := s.Commit(now, c); err != nil {
						t.Fatal(err)
					}
				}
			default:
				m := Signal{Origin: Party{PartyClient, fmt.Sprint("c", pick(2, "client")), 0}, Entity: "e", Request: fmt.Sprint("r", pick(requests, "request")), Operation: "o"}
				if choice > 15 {
					m.DueAt = now + int64(pick(9, "delay"))
				}
				waits := slices.ContainsFunc(slices.Concat(s.Queue, s.Lane, s.Delayed), func(e Entry) bool {
					o, ok := e.Message.(operation)
					return ok && o.From() == m.Origin && o.request() == m.Request
				})
				if _, err := s.Deliver(now, m); (err != nil) != waits {
					t.Fatalf("%v waits: %t, and it is answered %v", m, waits, err)
				}
			}
			indexed = indexed || s.waiting != nil
			if !slices.Equal(numbersOf(queue), numbersOf(former[0])) || !slices.Equal(numbersOf(delayed), numbersOf(former[1])) {
				t.Fatal("a list was changed in place")
			}
			for _, v := range s.Invariants() {
				t.Fatal(v)
			}
		}
		if !indexed {
			t.Fatal("the backlog was never long")
		}
	})
}

func numbersOf(list []Entry) (out []uint64) {
	for _, e := range list {
		out = append(out, e.Seq)
	}
	return out
}
