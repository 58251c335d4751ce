package machine

import (
	"errors"
	"slices"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/recovery"
)

// maxWoken bounds the stuck executions that one command announces again.
const maxWoken = 256

// queued changes the length of a queue.
func (m *Machine) queued(q state.Queue, by int) {
	n := m.ready[q] + by
	if n == 0 {
		delete(m.ready, q)
	} else {
		m.ready[q] = n
	}
	if q.Digest == "" {
		return
	}
	fn := state.Queue{Namespace: q.Namespace, Function: q.Function}
	list := m.pinned[fn]
	at, found := slices.BinarySearch(list, q.Digest)
	switch {
	case found == (n != 0):
	case n != 0:
		m.pinned[fn] = slices.Insert(list, at, q.Digest)
	case len(list) == 1:
		delete(m.pinned, fn)
	default:
		m.pinned[fn] = slices.Delete(list, at, at+1)
	}
}

// readDigests reads the functions' digests, and counts the stuck executions.
func (m *Machine) readDigests(below state.Reader) error {
	var bad error
	err := below.Scan([]byte{byte(keys.Function)}, []byte{byte(keys.Function) + 1}, func(key, value []byte) bool {
		if len(value) == 0 {
			return true
		}
		ns, rest, err := keys.CutString(key[1:])
		if err == nil {
			var fn string
			if fn, _, err = keys.CutString(rest); err == nil {
				m.digests[state.Queue{Namespace: ns, Function: fn}], err = state.DecodeDigests(append([]byte(nil), value...))
			}
		}
		if err != nil {
			bad = &state.CorruptError{What: "digests of a function", Key: append([]byte(nil), key...), Detail: err.Error()}
		}
		return err == nil
	})
	if err = errors.Join(err, bad); err != nil {
		return err
	}
	return below.Scan([]byte{byte(keys.Stuck)}, []byte{byte(keys.Stuck) + 1}, func(_, _ []byte) bool {
		m.stuck++
		return true
	})
}

// Stuck is how many executions wait for code that fits their journals.
func (m *Machine) Stuck() int { return m.stuck }

// queuesOf lists the queues whose tasks a grant's worker can run: of each function the one that is pinned to
// no digest, and those of the worker's digests, or all if it states none.
func (t *txn) queuesOf(o *commandv1.Grant) []state.Queue {
	out := make([]state.Queue, 0, len(o.Functions)*(1+len(o.Digests)))
	for _, fn := range o.Functions {
		q := state.Queue{Namespace: o.Namespace, Function: fn}
		out = append(out, q)
		digests := o.Digests
		if len(digests) == 0 {
			digests = t.m.pinned[q]
		}
		for _, digest := range digests {
			q.Digest = digest
			out = append(out, q)
		}
	}
	return out
}

// digest is what a new execution of a function is pinned to: its caller's digest if workers of that have the
// function, or if no worker of any digest has it, else the function's current one.
func (t *txn) digest(ns, function, callers string) string {
	switch {
	case t.m.feature < state.LevelFunctions:
		return callers
	case !state.Pinned(function):
		return ""
	}
	known := t.m.digests[state.Queue{Namespace: ns, Function: function}]
	if len(known) == 0 || callers != "" && known.Knows(callers) {
		return callers
	}
	return known.Current()
}

// pinnedTarget is the queue of an execution's tasks.
func (t *txn) pinnedTarget(function, digest string) string {
	if t.m.feature < state.LevelFunctions || !state.Pinned(function) {
		return function
	}
	return state.Target(function, digest)
}

// stick takes an execution out of service whose journal some code does not fit.
func (t *txn) stick(ex *execution, code string) error {
	task, err := recovery.Halt(t.store(ex.ns), t.now, recovery.Ref{ID: ex.h.ID, Incarnation: ex.h.Incarnation})
	if err != nil {
		return err
	}
	t.put(stuckKey(ex.ns, task), []byte(code))
	t.stuck++
	return nil
}

// unstick removes a task from the stuck ones that is halted no more.
func (t *txn) unstick(ns string, task recovery.Task) {
	if key := stuckKey(ns, task); t.has(key) {
		t.remove(key)
		t.stuck--
	}
}

func (t *txn) has(key []byte) bool {
	_, ok := t.get(key)
	return ok
}

func stuckKey(ns string, task recovery.Task) []byte {
	return keys.Of(keys.Stuck, ns, state.QueueOf(ns, task.Target).Function, task.ID)
}

// wakeStuck announces stuck executions of a function again, except those that this very code does not fit. It
// returns how many, at most limit.
func (t *txn) wakeStuck(ns, function, code string, limit int) int {
	prefix := keys.Of(keys.Stuck, ns, function)
	var ids []string
	t.scan(prefix, keys.After(prefix), func(key, value []byte) bool {
		if len(ids) == limit {
			return false
		}
		if string(value) != code {
			objectID, _, err := keys.CutString(key[len(prefix):])
			if err != nil {
				state.PanicCorrupt("stuck execution", key, err)
			}
			ids = append(ids, objectID)
		}
		return true
	})
	for _, objectID := range ids {
		t.unhalt(ns, objectID)
	}
	return len(ids)
}

// unhalt puts a stuck execution back into service.
func (t *txn) unhalt(ns, objectID string) {
	t.runExpirations(ns, objectID)
	if task, ok := t.store(ns).Task(objectID); !ok || task.State != recovery.TaskHalted {
		return // its deadline has passed
	}
	_, fx, err := recovery.Continue(t.store(ns), t.now, recovery.Ref{ID: objectID}, retryMS)
	if err != nil {
		panic(state.Fault{Err: err})
	}
	t.effects(ns, fx)
}
