package state

import (
	"perdure/entity"
	"perdure/recovery"
)

// Fault carries an error of the storage through rules whose interfaces have no error: it is panicked with, and Catch
// ends the panic.
type Fault struct{ Err error }

// Catch recovers a panic with a Fault and stores its error in err. It re-raises any other panic. Call it by
// defer.
func Catch(err *error) {
	switch p := recover().(type) {
	case nil:
	case Fault:
		*err = p.Err
	default:
		panic(p)
	}
}

// PanicCorrupt panics with a Fault of a *CorruptError.
func PanicCorrupt(what string, key []byte, err error) {
	panic(Fault{Err: &CorruptError{What: what, Key: append([]byte(nil), key...), Detail: err.Error()}})
}

// Must reads a state for rules whose interfaces have no error: every method panics with a Fault on an error, which
// Catch ends.
type Must struct {
	From Reader
	// Space is where the keys of headers, promises and tasks are made; nil allocates each. It is the caller's again
	// after the call.
	Space []byte
}

// Get is the value of a key.
func (m Must) Get(key []byte) ([]byte, bool) {
	v, ok, err := m.From.Get(key)
	if err != nil {
		panic(Fault{Err: err})
	}
	return v, ok
}

// Has reports whether the state has a key.
func (m Must) Has(key []byte) bool {
	_, ok := m.Get(key)
	return ok
}

// Scan is Reader.Scan. fn may panic with a Fault too; Scan re-raises it after the Reader has closed what it
// opened.
func (m Must) Scan(lower, upper []byte, fn func(key, value []byte) bool) {
	var met error
	err := m.From.Scan(lower, upper, func(key, value []byte) (more bool) { // false after a panic
		defer Catch(&met)
		return fn(key, value)
	})
	if met != nil {
		err = met
	}
	if err != nil {
		panic(Fault{Err: err})
	}
}

// Header reads the header of an execution.
func (m Must) Header(ns, objectID string) (Header, bool) {
	h, ok, err := readHeader(m.From, m.Space, ns, objectID)
	if err != nil {
		panic(Fault{Err: err})
	}
	return h, ok
}

// Promise reads a promise as it is stored.
func (m Must) Promise(ns, objectID string) (recovery.Promise, bool) {
	p, ok, err := readPromise(m.From, m.Space, ns, objectID)
	if err != nil {
		panic(Fault{Err: err})
	}
	return p, ok
}

// Task reads a task.
func (m Must) Task(ns, objectID string) (recovery.Task, bool) {
	t, ok, err := readTask(m.From, m.Space, ns, objectID)
	if err != nil {
		panic(Fault{Err: err})
	}
	return t, ok
}

// Entity reads an entity with at most so many entries of its queue; 0 reads all.
func (m Must) Entity(ns, entityID string, most int) (Entity, bool) {
	e, ok, err := ReadEntity(m.From, ns, entityID, most)
	if err != nil {
		panic(Fault{Err: err})
	}
	return e, ok
}

// Heartbeats reads the heartbeats of an incarnation's steps.
func (m Must) Heartbeats(ns, objectID string, incarnation uint64) []StepHeartbeat {
	steps, err := ReadHeartbeats(m.From, ns, objectID, incarnation)
	if err != nil {
		panic(Fault{Err: err})
	}
	return steps
}

// Holder reads an execution's critical section.
func (m Must) Holder(ns, objectID string, incarnation uint64) (*entity.Holder, bool) {
	h, ok, err := ReadHolder(m.From, ns, objectID, incarnation)
	if err != nil {
		panic(Fault{Err: err})
	}
	return h, ok
}
