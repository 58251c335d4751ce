package query

import (
	"bytes"
	"errors"
	"math"
	"strings"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/recovery"
)

// Ended is an execution of no other one that has ended, or a settled promise of no execution, whose Function is "".
type Ended struct {
	Namespace, ID, Function string
	EndedMS                 int64
	// Class and CreatedMS are where the listing has an execution.
	Class     keys.VisibilityClass
	CreatedMS int64
}

// Before says before what time something has ended for long enough: by the function of an execution, or for all of a namespace at
// most. ok is false if nothing has.
type Before interface {
	Of(namespace, function string) (ms int64, ok bool)
	Most(namespace string) (ms int64, ok bool)
}

// Search finds what has ended: EndedExecutions or EndedPromises. It reads at most maxKeys keys and finds at most most, from a
// position on; next is where to continue, nil at the end.
type Search func(r state.Reader, from []byte, maxKeys, most int, before Before) (found []Ended, next []byte, err error)

// EndedExecutions finds executions that ended before a time. It reads at most maxKeys keys of the listing and finds at most
// most, from a position on; next is where to continue, nil at the end. It skips what began too late to have ended before.
func EndedExecutions(r state.Reader, from []byte, maxKeys, most int, before Before) (found []Ended, next []byte, err error) {
	return endedExecutions(r, from, maxKeys, most, before, func(key, jump []byte) {})
}

// endedExecutions is EndedExecutions, which calls note with each key that it reads, and with the key to which it jumps from there, or
// nil.
func endedExecutions(r state.Reader, from []byte, maxKeys, most int, before Before, note func(key, jump []byte)) (found []Ended, next []byte, err error) {
	x := executions{r: r, keys: maxKeys, most: most, before: before, note: note}
	family := []byte{byte(keys.Visibility)}
	if len(from) == 0 {
		from = family
	}
	next, err = x.within(from, keys.After(family))
	return x.found, next, err
}

// executions is a search for executions that have ended.
type executions struct {
	r state.Reader
	// keys and most are how many keys the search may read, and how many executions it may find altogether.
	keys, most int
	before     Before
	note       func(key, jump []byte)
	found      []Ended
}

// within searches a range; next is where to continue, nil at its end.
func (x *executions) within(lower, upper []byte) (next []byte, err error) {
	for lower != nil && bytes.Compare(lower, upper) < 0 {
		var bad error
		var jump []byte
		full := false
		err := x.r.Scan(lower, upper, func(key, value []byte) bool {
			if full = x.keys == 0 || len(x.found) >= x.most; full {
				jump = bytes.Clone(key)
				return false
			}
			x.keys--
			var e Ended
			if e, jump, bad = listed(key, value, x.before); bad != nil {
				return false
			}
			if x.note(key, jump); jump != nil {
				return false
			}
			if ms, ok := x.before.Of(e.Namespace, e.Function); ok && e.EndedMS < ms && e.ID != "" {
				x.found = append(x.found, e)
			}
			return true
		})
		if err = errors.Join(err, bad); err != nil || full {
			return jump, err
		}
		lower = jump
	}
	return nil, nil
}

// everything is a Before that skips what is open and the namespaces that wants refuses, and nothing else.
type everything func(namespace string) bool

func (wants everything) Of(ns, _ string) (int64, bool) { return math.MaxInt64, wants(ns) }
func (wants everything) Most(ns string) (int64, bool)  { return math.MaxInt64, wants(ns) }

// Visit calls visit for all that has ended, in the namespaces that wants accepts. It reads at most maxKeys keys from a position on;
// next is where to continue, nil at the end.
func (find Search) Visit(r state.Reader, from []byte, maxKeys int, wants func(namespace string) bool, visit func(Ended)) (next []byte, err error) {
	found, next, err := find(r, from, maxKeys, maxKeys, everything(wants))
	for _, e := range found {
		visit(e)
	}
	return next, err
}

// EndedPromises finds settled promises of no execution likewise, as of the partition's clock. It skips those of clients that
// another promise still needs; of a tree whose promises are all settled, each pass finds those with nothing below them.
func EndedPromises(r state.Reader, from []byte, maxKeys, most int, before Before) (found []Ended, next []byte, err error) {
	family := []byte{byte(keys.Promise)}
	lower := family
	if len(from) > 0 {
		lower = from
	}
	now, err := state.MetaNumber(r, state.MetaClock)
	if err != nil {
		return nil, nil, err
	}
	var bad error
	err = r.Scan(lower, keys.After(family), func(key, value []byte) bool {
		if maxKeys <= 0 || len(found) >= most {
			next = bytes.Clone(key)
			return false
		}
		maxKeys--
		p, err := recovery.DecodePromise(value)
		var ns string
		if err == nil {
			ns, _, err = keys.CutString(key[1:])
		}
		if err != nil {
			bad = &state.CorruptError{What: "promise", Key: bytes.Clone(key), Detail: err.Error()}
			return false
		}
		client := state.OfClient(p)
		if !client && (p.Target != "" || state.OfGraph(p) || strings.IndexByte(p.ID, ':') >= 0) {
			return true // of an execution or an entity
		}
		p = p.At(int64(now)) // nothing has settled one whose deadline nobody waits for
		ms, ok := before.Of(ns, "")
		if !ok || !p.State.Settled() || p.SettledAt >= ms {
			return true
		}
		if client {
			var reads int
			if ok, reads, bad = leavesNothing(r, ns, p.ID, int64(now)); bad != nil {
				return false
			}
			maxKeys -= reads
		}
		if ok {
			found = append(found, Ended{Namespace: ns, ID: p.ID, EndedMS: p.SettledAt})
		}
		return true
	})
	return found, next, errors.Join(err, bad)
}

// listed reads an entry of the listing; it is without an id for an execution that is part of another. jump, if not nil, is
// the key from which on the next can be that ended before.
func listed(key, value []byte, before Before) (e Ended, jump []byte, err error) {
	corrupt := func(err error) error {
		return &state.CorruptError{What: "listing", Key: bytes.Clone(key), Detail: err.Error()}
	}
	ns, rest, err := keys.CutString(key[1:])
	if err != nil || len(rest) == 0 {
		return Ended{}, nil, corrupt(errors.New("no namespace"))
	}
	class := keys.VisibilityClass(rest[0])
	most, ok := before.Most(ns)
	switch {
	case !ok:
		return Ended{}, keys.After(keys.Of(keys.Visibility, ns)), nil
	case class == keys.Open:
		return Ended{}, keys.After(keys.VisibilityPrefix(ns, keys.Open)), nil
	}
	createdMS, objectID, err := keys.ParseVisibility(key, keys.VisibilityPrefix(ns, class))
	if err != nil {
		return Ended{}, nil, corrupt(err)
	}
	if createdMS >= most {
		return Ended{}, keys.VisibilityOf(ns, class, most-1, ""), nil
	}
	end, err := state.ReadListingClosed(value)
	if err != nil {
		return Ended{}, nil, corrupt(err)
	}
	e = Ended{Namespace: ns, Function: end.Function, EndedMS: end.ClosedMS, Class: class, CreatedMS: createdMS}
	if strings.IndexByte(objectID, ':') < 0 {
		e.ID = objectID
	}
	return e, nil, nil
}
