package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/query"
	"perdure/fsm/state"
)

// search reads all pages of a search for promises, or of a snapshot, and returns each promise, and how many pages were empty.
func (w *world) search(p *part, limit uint32, budget int, snapshot bool) (all []string, empty int) {
	w.t.Helper()
	cursor, pages := "", 0
	for {
		q := &commandv1.Query{Namespace: ns, Kind: &commandv1.Query_Promises{Promises: &perdurev1.SearchPromisesRequest{Limit: limit, Cursor: cursor}}}
		if snapshot {
			q.Kind = &commandv1.Query_Snapshot{Snapshot: &commandv1.SnapshotQuery{Limit: limit, Cursor: []byte(cursor)}}
		}
		x := &query.Read{Must: state.Must{From: p.state}, ClockMS: w.now, Query: q, ListBudget: budget}
		reply, err := x.Answer()
		if err != nil {
			w.t.Fatalf("%v", err)
		}
		found, next := reply.GetPromises().GetPromises(), reply.GetPromises().GetCursor()
		if snapshot {
			found, next = reply.GetSnapshot().GetPromises(), string(reply.GetSnapshot().GetCursor())
		}
		for _, promise := range found {
			all = append(all, promise.String())
		}
		if len(found) == 0 {
			empty++
		}
		if pages++; len(found) > int(limit) || pages > 10_000 {
			w.t.Fatalf("page %d has %d promises", pages, len(found))
		}
		if next == "" {
			return all, empty
		}
		if next <= cursor {
			w.t.Fatalf("after %q follows %q", cursor, next)
		}
		cursor = next
	}
}

// A search for promises, and a snapshot, find those that are inline in headers in their order among the others, page by page: the test
// compares with a state at the feature level below.
func TestPromisesInline(t *testing.T) {
	var said [2][]string
	for i, level := range []uint64{state.LevelInline, state.LevelPromise} {
		w := newWorldAt(t, level, 1)
		w.unaudited, w.effectsUnchecked = true, true
		for n := range 300 {
			id := fmt.Sprintf("%03d", n*389%1000) // in another order than they are made in
			switch {
			case n%7 == 0:
				w.do(createPromiseCmd(id, 50_000))
			case n%7 == 1 && n < 150:
				w.begin(id, "f") // open
			case n%7 == 2 && n < 100:
				v := w.begin(id, "f")
				w.commit(v, "child g x; return x")
				w.commit(w.only("w2", "g"), "return 1")
			case n%7 != 1:
				w.commit(w.begin(id, "f"), "return "+id)
			}
		}
		p := w.parts[0]
		for _, snapshot := range []bool{false, true} {
			whole, _ := w.search(p, 1000, query.ListBudget, snapshot)
			said[i] = append(said[i], whole...)
			for _, limit := range []uint32{1, 10, 1000} {
				for _, budget := range []int{1, 100, query.ListBudget} {
					if got, _ := w.search(p, limit, budget, snapshot); !slices.Equal(got, whole) {
						t.Errorf("level %d, snapshot %t, pages of %d, budget %d: %d promises, not %d", level, snapshot, limit, budget, len(got), len(whole))
					}
				}
			}
		}
		// Nothing but ended executions.
		empty := newWorldAt(t, level, 1)
		empty.unaudited, empty.effectsUnchecked = true, true
		for n := range 150 {
			empty.commit(empty.begin(fmt.Sprintf("a%03d", n), "f"), "return x")
		}
		if got, _ := empty.search(empty.parts[0], 1000, 1, false); len(got) != 150 {
			t.Errorf("level %d: %d promises, must be 150", level, len(got))
		}
	}
	if len(said[0]) < 500 || !slices.Equal(said[0], said[1]) {
		t.Errorf("in rows %d:\n%.2000s\ninline %d:\n%.2000s", len(said[0]), strings.Join(said[0], "\n"), len(said[1]), strings.Join(said[1], "\n"))
	}
}
