package machine

import (
	"perdure/fsm/keys"
	"perdure/recovery"
)

const (
	// mostAwaited bounds how many awaiters and listeners of one object are looked at after each command, so that the
	// cost of a check does not grow with how many wait.
	mostAwaited = 64
	// mostWaits bounds Machine.waits, in tasks.
	mostWaits = 4096
)

// touched is what a transaction has written, as far as the recovery protocol's invariants are about it.
type touched struct {
	ids   []Ref
	known map[Ref]bool
	// Each pair of the callback relation, and each listener and deadline that is there now.
	pairs     []touchedPair
	listeners []touchedPair
	timers    []touchedTimer
	// awaited are the pairs by awaiter; nil until somebody asks.
	awaited map[Ref][]string
}

type touchedPair struct{ ns, first, second string }

type touchedTimer struct {
	ns   string
	kind keys.DeadlineKind
	at   int64
	id   string
}

func (x *touched) add(ns, objectID string) {
	if ref := (Ref{ns, objectID}); !x.known[ref] {
		x.known[ref] = true
		x.ids = append(x.ids, ref)
	}
}

// note reads what one write is about. A key that cannot be read is a defect of the machine.
func (x *touched) note(w *write) error {
	parts := func(n int) (ns string, more []string, err error) {
		ns, rest, err := keys.CutString(w.key[1:])
		for range n {
			if err == nil {
				var part string
				part, rest, err = keys.CutString(rest)
				more = append(more, part)
			}
		}
		return ns, more, err
	}
	switch keys.Family(w.key[0]) {
	case keys.Promise, keys.Task:
		ns, more, err := parts(1)
		if err != nil {
			return err
		}
		x.add(ns, more[0])
	case keys.Callback, keys.AwaitedBy:
		ns, more, err := parts(2)
		if err != nil {
			return err
		}
		if keys.Family(w.key[0]) == keys.AwaitedBy {
			more[0], more[1] = more[1], more[0]
		}
		x.add(ns, more[0])
		x.add(ns, more[1])
		x.pairs = append(x.pairs, touchedPair{ns, more[0], more[1]})
	case keys.Listener:
		ns, more, err := parts(2)
		if err != nil {
			return err
		}
		x.add(ns, more[0])
		if !w.removed {
			x.listeners = append(x.listeners, touchedPair{ns, more[0], more[1]})
		}
	case keys.Deadline:
		kind, at, ns, objectID, err := keys.ParseDeadline(w.key)
		if err != nil {
			return err
		}
		x.add(ns, objectID)
		if !w.removed {
			x.timers = append(x.timers, touchedTimer{ns, kind, at, objectID})
		}
	}
	return nil
}

// awaits lists what a task awaits, as far as a command that is to be judged can have changed it: the pairs that it has
// touched and that are there, and, if none of them is pending, one that is. The command that settles a promise touches
// all pairs of it, so no other pair can have become wrong. Which pending one is listed does not matter to the check.
//
// A scan over all pairs would walk over the remains of those that are gone, with each child of a large execution again.
func (t *txn) awaits(a *auditor, x *touched, ns, awaiter string) []string {
	ref := Ref{ns, awaiter}
	s := objects{a: a, ns: ns}
	if x.awaited == nil {
		x.awaited = map[Ref][]string{}
		for _, p := range x.pairs {
			by := Ref{p.ns, p.second}
			x.awaited[by] = append(x.awaited[by], p.first)
		}
	}
	var out []string
	enough := false
	for _, awaited := range x.awaited[ref] {
		if s.HasAwaitedBy(awaiter, awaited) {
			out = append(out, awaited)
			p, _ := s.Promise(awaited)
			enough = enough || p.State == recovery.PromisePending
		}
	}
	if enough {
		return out
	}
	prefix := keys.Of(keys.AwaitedBy, ns, awaiter)
	found := ""
	search := func(lower, upper []byte) bool {
		a.scan(lower, upper, func(key, _ []byte) bool {
			if awaited, _, err := keys.CutString(key[len(prefix):]); err == nil {
				if p, ok := s.Promise(awaited); ok && p.State == recovery.PromisePending {
					found = awaited
				}
			}
			return found == ""
		})
		return found != ""
	}
	from := prefix
	if last, ok := t.m.waits[ref]; ok {
		from = keys.Of(keys.AwaitedBy, ns, awaiter, last)
	}
	if !search(from, keys.After(prefix)) && !search(prefix, from) {
		delete(t.m.waits, ref)
		return out
	}
	if len(t.m.waits) >= mostWaits {
		clear(t.m.waits)
	}
	t.m.waits[ref] = found
	return append(out, found)
}

// checkTouched judges every promise, task, callback, listener and deadline that the transaction has written by all
// thirteen server invariants of the recovery protocol, and by what must hold besides.
func (t *txn) checkTouched() error {
	x := touched{known: map[Ref]bool{}}
	for _, w := range t.log {
		if w.void {
			continue
		}
		if err := x.note(w); err != nil {
			corrupt("key", w.key, err)
		}
	}
	if len(x.ids) == 0 {
		return nil
	}
	a := &auditor{r: t, cfg: t.m.cfg}
	first := func(ns string, found []recovery.Violation) error {
		if len(found) == 0 {
			return nil
		}
		return &InvariantError{ns, found[0].ID, found[0].Name, found[0].Detail}
	}
	for _, ref := range x.ids {
		s := objects{a: a, ns: ref.Namespace, most: mostAwaited,
			awaits: func(awaiter string) []string { return t.awaits(a, &x, ref.Namespace, awaiter) }}
		if p, ok := t.store(ref.Namespace).Promise(ref.ID); ok {
			if err := first(ref.Namespace, recovery.CheckPromise(s, p)); err != nil {
				return err
			}
		}
		if task, ok := t.store(ref.Namespace).Task(ref.ID); ok {
			if err := first(ref.Namespace, recovery.CheckTask(s, task, t.now)); err != nil {
				return err
			}
		}
	}
	for _, p := range x.pairs {
		s := objects{a: a, ns: p.ns, most: mostAwaited}
		var found []recovery.Violation
		if s.HasCallback(p.first, p.second) {
			found = recovery.CheckCallback(s, p.first, p.second)
		}
		if s.HasAwaitedBy(p.second, p.first) {
			found = append(found, recovery.CheckAwaitedBy(s, p.second, p.first)...)
		}
		if err := first(p.ns, found); err != nil {
			return err
		}
	}
	for _, l := range x.listeners {
		if err := first(l.ns, recovery.CheckListener(objects{a: a, ns: l.ns}, l.first, l.second)); err != nil {
			return err
		}
	}
	for _, d := range x.timers {
		s := objects{a: a, ns: d.ns}
		var found []recovery.Violation
		switch d.kind {
		case keys.DuePromise:
			found = recovery.CheckPromiseTimer(s, d.id, d.at)
		case keys.DueLease:
			found = recovery.CheckTaskTimer(s, recovery.TaskTimer{ID: d.id, Kind: recovery.LeaseTimer, At: d.at})
		case keys.DueRetry:
			found = recovery.CheckTaskTimer(s, recovery.TaskTimer{ID: d.id, Kind: recovery.RetryTimer, At: d.at})
		}
		if err := first(d.ns, found); err != nil {
			return err
		}
	}
	return nil
}
