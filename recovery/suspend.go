package recovery

import (
	"slices"
	"strings"
)

// Suspended is the answer to [Suspend].
type Suspended struct {
	// Task is suspended, or still acquired if Ready is not empty.
	Task Task
	// Ready are the settled ones of the awaited promises, ascending by id. If there are any, nothing was
	// registered and the worker continues under its lease.
	Ready []Promise
}

// Suspend puts an acquired task to sleep until one of the awaited promises settles: a callback is
// registered on each and the lease is given up. If one of them is settled already, no callback is
// registered and the task stays acquired. In both cases Resumes is cleared. Naming a promise twice is
// naming it once. Callbacks of earlier suspensions stay.
//
// With anyAwaited false only awaitable promises may be awaited ([Promise.Awaitable]).
//
// Errors: [Invalid] if nothing or the task itself is awaited; [NotFound], [Conflict] for the task;
// [Precondition] if an awaited promise is missing or not awaitable, [Conflict] if it is another
// incarnation.
func Suspend(s Store, now int64, ref TaskRef, awaited []Ref, anyAwaited bool) (Suspended, error) {
	const op = "suspend"
	if len(awaited) == 0 {
		return Suspended{}, invalid(op, ref.ID, RuleAwaitsSome, "")
	}
	for _, a := range awaited {
		switch a.ID {
		case "":
			return Suspended{}, invalid(op, ref.ID, RuleID, "the id of an awaited promise is empty")
		case ref.ID:
			return Suspended{}, invalid(op, ref.ID, RuleSelfAwait, "")
		}
	}
	t, _, err := guard(s, now, op, ref, TaskAcquired)
	if err != nil {
		return Suspended{}, err
	}
	ps := make([]Promise, 0, len(awaited))
	for _, a := range awaited {
		p, ok := s.Promise(a.ID)
		switch {
		case !ok:
			return Suspended{}, precondition(op, a.ID, RuleAwaited, "")
		case a.Incarnation != 0 && a.Incarnation != p.Incarnation:
			return Suspended{}, staleIncarnation(op, a.ID, p.Incarnation, a.Incarnation)
		case !anyAwaited && !p.Awaitable():
			return Suspended{}, precondition(op, a.ID, RuleExternal, "")
		}
		ps = append(ps, p.At(now))
	}
	slices.SortFunc(ps, func(a, b Promise) int { return strings.Compare(a.ID, b.ID) })
	ps = slices.CompactFunc(ps, func(a, b Promise) bool { return a.ID == b.ID })

	var ready []Promise
	for _, p := range ps {
		if p.State != PromisePending {
			ready = append(ready, p)
		}
	}
	if len(ready) > 0 {
		t.Resumes = nil
		s.PutTask(t)
		return Suspended{Task: t, Ready: ready}, nil
	}
	t = t.suspended()
	s.PutTask(t)
	for _, p := range ps {
		s.AddCallback(p.ID, t.ID)
	}
	return Suspended{Task: t}, nil
}
