package state

import (
	"bytes"

	"perdure/fsm/state/keys"
	"perdure/recovery"
)

// ReadHeader reads the header of an execution. ok is false if there is none. The error is of the storage, or a
// *CorruptError.
func ReadHeader(r Reader, ns, objectID string) (h Header, ok bool, err error) {
	return readHeader(r, nil, ns, objectID)
}

func readHeader(r Reader, space []byte, ns, objectID string) (Header, bool, error) {
	return read(r, "execution header", keys.Append(space, keys.Header, ns, objectID), objectID, DecodeHeader, func(v Header) string { return v.ID })
}

// ReadPromise reads a promise as it is stored, which may be inline in the header of its execution. ok is false if there is none. Errors
// are those of ReadHeader.
func ReadPromise(r Reader, ns, objectID string) (p recovery.Promise, ok bool, err error) {
	return readPromise(r, nil, ns, objectID)
}

func readPromise(r Reader, space []byte, ns, objectID string) (recovery.Promise, bool, error) {
	p, ok, err := read(r, "promise", keys.Append(space, keys.Promise, ns, objectID), objectID, recovery.DecodePromise, func(v recovery.Promise) string { return v.ID })
	if ok || err != nil || !MayInlinePromise(objectID) {
		return p, ok, err
	}
	h, _, err := readHeader(r, space, ns, objectID)
	if err != nil {
		return p, false, err
	}
	p, ok = h.InlinePromise()
	return p, ok, nil
}

// ReadTask reads a task, which may be inline in the header of its execution. ok is false if there is none. Errors are those of ReadHeader.
func ReadTask(r Reader, ns, objectID string) (t recovery.Task, ok bool, err error) {
	return readTask(r, nil, ns, objectID)
}

func readTask(r Reader, space []byte, ns, objectID string) (recovery.Task, bool, error) {
	t, ok, err := read(r, "task", keys.Append(space, keys.Task, ns, objectID), objectID, recovery.DecodeTask, func(v recovery.Task) string { return v.ID })
	if ok || err != nil {
		return t, ok, err
	}
	h, _, err := readHeader(r, space, ns, objectID)
	if err != nil {
		return t, false, err
	}
	t, ok = h.InlineTask()
	return t, ok, nil
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
		return none, false, &CorruptError{What: what, Key: bytes.Clone(key), Detail: err.Error()}
	}
	return v, true, nil
}
