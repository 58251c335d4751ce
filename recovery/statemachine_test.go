package recovery

import (
	"errors"
	"slices"
	"strings"
	"testing"
)

// The task state machine, every event in every state. The task is at version 2, r is among its resumes where
// it can have any. A cell is the state after, with version and resumes; "exec" if an Execute was returned; =
// if nothing changed and the event was accepted or ignored; else the refusal, after which nothing has changed
// either. "lapsed" is acquired with an expired lease; "dead" is any state except fulfilled, with a promise
// whose deadline has passed.
const stateTable = `
event              | none            | pending            | acquired           | lapsed             | suspended          | halted             | fulfilled | dead
create             | pending v0 exec | =                  | =                  | =                  | =                  | =                  | =         | =
create past        | fulfilled v0    | =                  | =                  | =                  | =                  | =                  | =         | =
create acquired    | acquired v1     | acquired v3        | conflict           | acquired v3        | conflict           | conflict           | =         | =
acquire            | not found       | acquired v3        | conflict           | acquired v3        | conflict           | conflict           | conflict  | conflict
acquire older      | not found       | conflict           | conflict           | conflict           | conflict           | conflict           | conflict  | conflict
acquire newer      | not found       | conflict           | conflict           | conflict           | conflict           | conflict           | conflict  | conflict
release            | not found       | conflict           | pending v2 r exec  | conflict           | conflict           | conflict           | conflict  | conflict
release older      | not found       | conflict           | conflict           | conflict           | conflict           | conflict           | conflict  | conflict
release delayed    | not found       | conflict           | pending v2 r       | conflict           | conflict           | conflict           | conflict  | conflict
fence              | not found       | conflict           | =                  | conflict           | conflict           | conflict           | conflict  | conflict
fence older        | not found       | conflict           | conflict           | conflict           | conflict           | conflict           | conflict  | conflict
heartbeat          | =               | =                  | acquired v2 r      | =                  | =                  | =                  | =         | =
heartbeat older    | =               | =                  | =                  | =                  | =                  | =                  | =         | =
heartbeat other    | =               | =                  | =                  | =                  | =                  | =                  | =         | =
suspend            | not found       | conflict           | suspended v2       | conflict           | conflict           | conflict           | conflict  | conflict
suspend older      | not found       | conflict           | conflict           | conflict           | conflict           | conflict           | conflict  | conflict
suspend on settled | not found       | conflict           | acquired v2        | conflict           | conflict           | conflict           | conflict  | conflict
fulfill            | not found       | conflict           | fulfilled v2       | conflict           | conflict           | conflict           | conflict  | conflict
fulfill older      | not found       | conflict           | conflict           | conflict           | conflict           | conflict           | conflict  | conflict
halt               | not found       | halted v2 r        | halted v2 r        | halted v2 r        | halted v2          | =                  | conflict  | conflict
continue           | not found       | conflict           | conflict           | conflict           | conflict           | pending v2 r exec  | conflict  | conflict
resume             | =               | pending v2 n,r     | acquired v2 n,r    | acquired v2 n,r    | pending v2 n exec  | halted v2 n,r      | =         | =
resume again       | =               | =                  | =                  | =                  | pending v2 r exec  | =                  | =         | =
settle             | not found       | fulfilled v2       | fulfilled v2       | fulfilled v2       | fulfilled v2       | fulfilled v2       | =         | =
deadline           | =               | =                  | =                  | =                  | =                  | =                  | =         | fulfilled v2
retry timer        | =               | pending v2 r exec  | =                  | =                  | =                  | =                  | =         | =
lease timer        | =               | =                  | =                  | pending v2 r exec  | =                  | =                  | =         | =
`

// The task's times: it is touched at 50, its lease (where it has run out) ended then, its retry is due
// then, and so is its deadline where it is dead.
const tableNow = 50

var tableEvents = map[string]func(s *MemStore) (Effects, error){
	"create": func(s *MemStore) (Effects, error) {
		_, fx, err := Create(s, tableNow, CreateRequest{ID: "a", Incarnation: 7, TimeoutAt: 1000, Target: "w"}, retry)
		return fx, err
	},
	"create past": func(s *MemStore) (Effects, error) {
		_, fx, err := Create(s, tableNow, CreateRequest{ID: "a", Incarnation: 7, TimeoutAt: tableNow, Target: "w"}, retry)
		return fx, err
	},
	"create acquired": func(s *MemStore) (Effects, error) {
		_, err := CreateAcquired(s, tableNow, CreateRequest{ID: "a", Incarnation: 7, TimeoutAt: 1000, Target: "w"}, "q", ttl)
		return Effects{}, err
	},
	"acquire":            acquireAt(2),
	"acquire older":      acquireAt(1),
	"acquire newer":      acquireAt(3),
	"release":            releaseAt(2, 0),
	"release older":      releaseAt(1, 0),
	"release delayed":    releaseAt(2, 9),
	"fence":              fenceAt(2),
	"fence older":        fenceAt(1),
	"heartbeat":          heartbeatAt(2, "p"),
	"heartbeat older":    heartbeatAt(1, "p"),
	"heartbeat other":    heartbeatAt(2, "q"),
	"suspend":            suspendAt(2, "open"),
	"suspend older":      suspendAt(1, "open"),
	"suspend on settled": suspendAt(2, "done"),
	"fulfill":            fulfillAt(2),
	"fulfill older":      fulfillAt(1),
	"halt": func(s *MemStore) (Effects, error) {
		_, err := Halt(s, tableNow, Ref{ID: "a"})
		return Effects{}, err
	},
	"continue": func(s *MemStore) (Effects, error) {
		_, fx, err := Continue(s, tableNow, Ref{ID: "a"}, retry)
		return fx, err
	},
	"resume":       resumeBy("n"),
	"resume again": resumeBy("r"),
	"settle": func(s *MemStore) (Effects, error) {
		_, err := Settle(s, tableNow, Ref{ID: "a"}, PromiseRejected, nil)
		return Effects{}, err
	},
	"deadline": func(s *MemStore) (Effects, error) {
		TimeoutPromise(s, tableNow, Ref{ID: "a"})
		return Effects{}, nil
	},
	"retry timer": func(s *MemStore) (Effects, error) {
		_, fx := ExpireRetry(s, tableNow, Ref{ID: "a"}, retry)
		return fx, nil
	},
	"lease timer": func(s *MemStore) (Effects, error) {
		_, fx := ExpireLease(s, tableNow, Ref{ID: "a"}, retry)
		return fx, nil
	},
}

func acquireAt(version uint64) func(*MemStore) (Effects, error) {
	return func(s *MemStore) (Effects, error) {
		_, err := Acquire(s, tableNow, TaskRef{"a", 0, version}, "q", ttl)
		return Effects{}, err
	}
}

func releaseAt(version uint64, delay int64) func(*MemStore) (Effects, error) {
	return func(s *MemStore) (Effects, error) {
		_, fx, err := Release(s, tableNow, TaskRef{"a", 0, version}, delay, retry)
		return fx, err
	}
}

func fenceAt(version uint64) func(*MemStore) (Effects, error) {
	return func(s *MemStore) (Effects, error) {
		_, err := Fence(s, tableNow, TaskRef{"a", 0, version})
		return Effects{}, err
	}
}

func heartbeatAt(version uint64, pid string) func(*MemStore) (Effects, error) {
	return func(s *MemStore) (Effects, error) {
		Heartbeat(s, tableNow, pid, []TaskRef{{"a", 0, version}})
		return Effects{}, nil
	}
}

func suspendAt(version uint64, awaited string) func(*MemStore) (Effects, error) {
	return func(s *MemStore) (Effects, error) {
		_, err := Suspend(s, tableNow, TaskRef{"a", 0, version}, []Ref{{ID: "open"}, {ID: awaited}}, false)
		return Effects{}, err
	}
}

func fulfillAt(version uint64) func(*MemStore) (Effects, error) {
	return func(s *MemStore) (Effects, error) {
		_, err := Fulfill(s, tableNow, TaskRef{"a", 0, version}, PromiseResolved, nil)
		return Effects{}, err
	}
}

func resumeBy(by string) func(*MemStore) (Effects, error) {
	return func(s *MemStore) (Effects, error) {
		_, fx := Resume(s, tableNow, "a", by, retry)
		return fx, nil
	}
}

// inState returns a store whose task a is in the state of a column. It goes there by the operations.
func inState(t *testing.T, state string, timeoutAt int64) *MemStore {
	w := newWorld(t)
	w.make("open", false, 1000)
	w.make("done", false, 1000)
	_, err := Settle(w.s, 0, Ref{ID: "done"}, PromiseResolved, nil)
	w.ok(0, err)
	if state == "none" {
		return w.s
	}
	ref := w.hold("a", timeoutAt)
	_, _, err = Release(w.s, 0, ref, 0, retry)
	w.ok(0, err)
	lease := int64(ttl * 10)
	if state == "lapsed" {
		lease = tableNow
	}
	h, err := Acquire(w.s, 0, ref, "p", lease)
	w.ok(0, err)
	ref = h.Task.ref()
	switch state {
	case "pending":
		_, _, err = Release(w.s, 0, ref, tableNow, retry)
	case "acquired", "lapsed":
	case "suspended":
		_, err = Suspend(w.s, 0, ref, []Ref{{ID: "open"}}, false)
	case "halted":
		_, err = Halt(w.s, 0, Ref{ID: "a"})
	case "fulfilled":
		var st Settlement
		st, err = Fulfill(w.s, 0, ref, PromiseResolved, []byte("v"))
		Propagate(w.s, 0, st, retry)
	default:
		t.Fatalf("no state %q", state)
	}
	w.ok(0, err)
	if state != "suspended" {
		Resume(w.s, 0, "a", "r", retry)
	}
	return w.s
}

func TestStateMachine(t *testing.T) {
	var rows [][]string
	for line := range strings.Lines(strings.TrimSpace(stateTable)) {
		cells := strings.Split(line, "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	head, rows := rows[0], rows[1:]
	if len(rows) != len(tableEvents) {
		t.Errorf("%d rows for %d events", len(rows), len(tableEvents))
	}
	ran := 0
	for _, row := range rows {
		event, ok := tableEvents[row[0]]
		if !ok {
			t.Fatalf("no event %q", row[0])
		}
		for i, want := range row {
			if i == 0 {
				continue
			}
			states, timeoutAt := []string{head[i]}, int64(1000)
			if head[i] == "dead" {
				states, timeoutAt = []string{"pending", "acquired", "lapsed", "suspended", "halted"}, tableNow
			}
			for _, state := range states {
				t.Run(row[0]+"/"+head[i]+"/"+state, func(t *testing.T) {
					if got := runCell(t, inState(t, state, timeoutAt), event); got != want {
						t.Errorf("got %q, want %q", got, want)
					}
				})
				ran++
			}
		}
	}
	if want := len(tableEvents) * (len(head) - 2 + 5); ran != want {
		t.Errorf("ran %d cells of %d", ran, want)
	}
}

func runCell(t *testing.T, s *MemStore, event func(*MemStore) (Effects, error)) string {
	t.Helper()
	before := dump(s)
	fx, err := event(s)
	var refusal *Error
	switch {
	case err != nil && !errors.As(err, &refusal):
		t.Fatalf("untyped error %v", err)
	case err != nil && dump(s) != before:
		t.Fatalf("%v, and the state changed", err)
	case err != nil:
		return refusal.Code.String()
	case dump(s) == before:
		if !fx.Empty() {
			t.Errorf("nothing changed, effects %v", fx)
		}
		return "="
	}
	for _, v := range Invariants(s, tableNow) {
		t.Error(v)
	}
	task, _ := s.Task("a")
	words := []string{task.State.String(), "v" + string(rune('0'+task.Version))}
	if len(task.Resumes) > 0 {
		words = append(words, strings.Join(task.Resumes, ","))
	}
	if len(fx.Executes) > 0 {
		words = append(words, "exec")
		if want := []Execute{task.execute()}; !slices.Equal(fx.Executes, want) {
			t.Errorf("executes %v, want %v", fx.Executes, want)
		}
	}
	if len(fx.Unblocks) > 0 {
		t.Errorf("unblocks %v", fx.Unblocks)
	}
	return strings.Join(words, " ")
}
