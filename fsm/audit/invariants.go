package audit

import (
	"bytes"
	"fmt"
	"iter"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/recovery"
)

const (
	// mostAwaited bounds how many awaiters and listeners of one object are checked after each command, so
	// that the cost does not grow with their number.
	mostAwaited = 64
	// mostWaits bounds Invariants.waits, in tasks.
	mostWaits = 4096
)

// touched is what a transaction has written, as far as the recovery protocol's invariants are about it.
type touched struct {
	ids   []state.Ref
	known map[state.Ref]bool
	// Each existing pair of the callback relation, each listener and each deadline.
	pairs     []touchedPair
	listeners []touchedPair
	timers    []touchedTimer
	// awaited are the pairs by awaiter; nil before the first use.
	awaited map[state.Ref][]string
}

type touchedPair struct{ ns, first, second string }

type touchedTimer struct {
	ns   string
	kind keys.DeadlineKind
	at   int64
	id   string
}

func (x *touched) add(ns, objectID string) {
	if ref := (state.Ref{Namespace: ns, ID: objectID}); !x.known[ref] {
		x.known[ref] = true
		x.ids = append(x.ids, ref)
	}
}

// note reads what one write is about. A key that cannot be read is a defect of the machine.
func (x *touched) note(key []byte, removed bool) error {
	parts := func(n int) (ns string, more []string, err error) {
		ns, rest, err := keys.CutString(key[1:])
		for range n {
			if err == nil {
				var part string
				part, rest, err = keys.CutString(rest)
				more = append(more, part)
			}
		}
		return ns, more, err
	}
	switch keys.Family(key[0]) {
	case keys.Promise, keys.Task:
		ns, more, err := parts(1)
		if err != nil {
			return err
		}
		x.add(ns, more[0])
		if owner, ok := state.ParentOf(more[0]); ok && keys.Family(key[0]) == keys.Promise {
			x.add(ns, owner) // which may await it without a callback
		}
	case keys.Callback, keys.AwaitedBy:
		ns, more, err := parts(2)
		if err != nil {
			return err
		}
		if keys.Family(key[0]) == keys.AwaitedBy {
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
		if !removed {
			x.listeners = append(x.listeners, touchedPair{ns, more[0], more[1]})
		}
	case keys.Notify:
		ns, more, err := parts(1)
		if err != nil {
			return err
		}
		x.add(ns, more[0])
	case keys.Deadline:
		kind, at, ns, objectID, err := keys.ParseDeadline(key)
		if err != nil {
			return err
		}
		x.add(ns, objectID)
		if !removed {
			x.timers = append(x.timers, touchedTimer{ns, kind, at, objectID})
		}
	}
	return nil
}

// InvariantError is a state that the rules say cannot be: a defect of this program. The replica stops.
type InvariantError struct {
	Namespace, ID, Rule, Detail string
}

// Error names the invariant and the object.
func (e *InvariantError) Error() string {
	return fmt.Sprintf("fsm: invariant %s broken by %q in namespace %q: %s", e.Rule, e.ID, e.Namespace, e.Detail)
}

// Invariants checks what each command has written, before it is stored, by the thirteen server invariants of the
// recovery protocol and by further invariants. The zero value is ready for use. It is not safe for concurrent use.
type Invariants struct {
	// waits is what each suspended task was last found to wait for: a cache.
	waits map[state.Ref]string
}

// Check checks every promise, task, callback, listener and deadline with a written key; removed says that the
// key was deleted. r is the state with the writes, now the machine's time. The error is an *InvariantError, a
// *CorruptError, or the storage's. The cost does not grow with the number of awaiters of an object.
func (v *Invariants) Check(r state.Reader, now int64, written iter.Seq2[[]byte, bool]) (err error) {
	defer state.Catch(&err)
	x := touched{known: map[state.Ref]bool{}}
	for key, removed := range written {
		if err := x.note(key, removed); err != nil {
			return &state.CorruptError{What: "key", Key: bytes.Clone(key), Detail: err.Error()}
		}
	}
	first := func(ns string, found []recovery.Violation) error {
		if len(found) == 0 {
			return nil
		}
		return &InvariantError{ns, found[0].ID, found[0].Name, found[0].Detail}
	}
	for _, ref := range x.ids {
		s := objects{from: r, ns: ref.Namespace, most: mostAwaited,
			awaits: func(awaiter string) []string {
				return v.awaits(r, &x, state.Ref{Namespace: ref.Namespace, ID: awaiter})
			}}
		if p, ok := s.Promise(ref.ID); ok {
			if err := first(ref.Namespace, recovery.CheckPromise(s, p)); err != nil {
				return err
			}
		}
		if task, ok := s.Task(ref.ID); ok {
			if err := first(ref.Namespace, recovery.CheckTask(s, task, now)); err != nil {
				return err
			}
		}
	}
	for _, p := range x.pairs {
		s := objects{from: r, ns: p.ns, most: mostAwaited}
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
		if err := first(l.ns, recovery.CheckListener(objects{from: r, ns: l.ns}, l.first, l.second)); err != nil {
			return err
		}
	}
	for _, d := range x.timers {
		s := objects{from: r, ns: d.ns}
		var found []recovery.Violation
		switch d.kind {
		case keys.DeadlinePromise:
			found = recovery.CheckPromiseTimer(s, d.id, d.at)
		case keys.DeadlineLease:
			found = recovery.CheckTaskTimer(s, recovery.TaskTimer{ID: d.id, Kind: recovery.LeaseTimer, At: d.at})
		case keys.DeadlineRetry:
			found = recovery.CheckTaskTimer(s, recovery.TaskTimer{ID: d.id, Kind: recovery.RetryTimer, At: d.at})
		}
		if err := first(d.ns, found); err != nil {
			return err
		}
	}
	return nil
}

// awaits lists the awaited promises of a task that the checked command can have changed: the existing pairs
// that it has touched and, if none of them is pending, any pending one, with a pair or without. A command that
// settles a promise touches all its pairs and the execution whose operation it is, so nothing else can have
// become wrong.
//
// A scan over all pairs would walk over the tombstones of deleted ones, with each child of a large
// execution again.
func (v *Invariants) awaits(r state.Reader, x *touched, awaiter state.Ref) []string {
	s := objects{from: r, ns: awaiter.Namespace}
	if x.awaited == nil {
		x.awaited = map[state.Ref][]string{}
		for _, p := range x.pairs {
			by := state.Ref{Namespace: p.ns, ID: p.second}
			x.awaited[by] = append(x.awaited[by], p.first)
		}
	}
	var out []string
	enough := false
	for _, awaited := range x.awaited[awaiter] {
		if s.HasAwaitedBy(awaiter.ID, awaited) {
			out = append(out, awaited)
			p, _ := s.Promise(awaited)
			enough = enough || p.State == recovery.PromisePending
		}
	}
	if enough {
		return out
	}
	found, ok := s.pendingOperation(awaiter.ID, v.waits[awaiter])
	if !ok {
		found, ok = s.pendingOperation(awaiter.ID, "")
	}
	if !ok {
		found, ok = v.pendingRow(s, awaiter)
	}
	if !ok {
		delete(v.waits, awaiter)
		return out
	}
	if v.waits == nil || len(v.waits) >= mostWaits {
		v.waits = map[state.Ref]string{}
	}
	v.waits[awaiter] = found
	return append(out, found)
}

// pendingRow returns a pending promise on which a task has a callback with a row.
func (v *Invariants) pendingRow(s objects, awaiter state.Ref) (found string, ok bool) {
	prefix := keys.Of(keys.AwaitedBy, awaiter.Namespace, awaiter.ID)
	search := func(lower, upper []byte) bool {
		state.Must{From: s.from}.Scan(lower, upper, func(key, _ []byte) bool {
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
	if last, ok := v.waits[awaiter]; ok {
		from = keys.Of(keys.AwaitedBy, awaiter.Namespace, awaiter.ID, last)
	}
	return found, search(from, keys.After(prefix)) || search(prefix, from)
}
