package state

import (
	"perdure/fsm/state/keys"
	"perdure/recovery"
)

// ReadHeader reads the header of an execution. ok is false if there is none. The error is of the storage, or a
// *CorruptError.
func ReadHeader(r Reader, ns, objectID string) (h Header, ok bool, err error) {
	return read(r, "execution header", keys.Of(keys.Header, ns, objectID), objectID, DecodeHeader, func(h Header) string { return h.ID })
}

// ReadPromise reads a promise as it is stored. ok is false if there is none. Errors are those of ReadHeader.
func ReadPromise(r Reader, ns, objectID string) (p recovery.Promise, ok bool, err error) {
	return read(r, "promise", keys.Of(keys.Promise, ns, objectID), objectID, recovery.DecodePromise, func(p recovery.Promise) string { return p.ID })
}

// ReadTask reads a task. ok is false if there is none. Errors are those of ReadHeader.
func ReadTask(r Reader, ns, objectID string) (t recovery.Task, ok bool, err error) {
	return read(r, "task", keys.Of(keys.Task, ns, objectID), objectID, recovery.DecodeTask, func(t recovery.Task) string { return t.ID })
}

func read[T any](r Reader, what string, key []byte, objectID string, decode func([]byte) (T, error), idOf func(T) string) (v T, ok bool, err error) {
	b, ok, err := r.Get(key)
	if err != nil || !ok {
		return v, false, err
	}
	v, err = decode(b)
	if err == nil && idOf(v) != objectID {
		err = misplaced(idOf(v))
	}
	if err != nil {
		var none T
		return none, false, &CorruptError{What: what, Key: key, Detail: err.Error()}
	}
	return v, true, nil
}
