package query

import (
	"strings"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/recovery"
)

// leavesNothing reports whether a settled promise of a client can be deleted without a trace in another one: everything above
// it is settled or absent, and nothing is below it. reads is how many keys that took.
//
// A worker that executes a promise again takes the promises below it for steps that it has done. It would repeat a step that
// is gone, and a new promise of an id that is gone would inherit the steps that are left.
func leavesNothing(r state.Reader, ns, objectID string, now int64) (ok bool, reads int, err error) {
	below := keys.Of(keys.Promise, ns, objectID+joint(objectID))
	below = below[:len(below)-2] // without the string's terminator: every id with this prefix
	reads, ok = 1, true
	if err := r.Scan(below, keys.After(below), func(_, _ []byte) bool {
		ok = false
		return false
	}); err != nil {
		return false, reads, err
	}
	for above := parent(objectID); ok && above != ""; above = parent(above) {
		reads++
		key := keys.Of(keys.Promise, ns, above)
		value, there, err := r.Get(key)
		switch {
		case err != nil:
			return false, reads, err
		case !there:
			continue
		}
		p, err := recovery.DecodePromise(value)
		if err != nil {
			return false, reads, &state.CorruptError{What: "promise", Key: key, Detail: err.Error()}
		}
		ok = p.At(now).State.Settled()
	}
	return ok, reads, nil
}

// joint is what separates an id of a client from the ids directly below it.
func joint(objectID string) string {
	if strings.Contains(objectID, ":") {
		return "."
	}
	return ":"
}

// parent is the id directly above one of a client: a:1 of a:1.0, and a of a:1; "" of a.
func parent(objectID string) string {
	origin := strings.IndexByte(objectID, ':')
	if origin < 0 {
		return ""
	}
	return objectID[:max(origin, strings.LastIndexByte(objectID, '.'))]
}
