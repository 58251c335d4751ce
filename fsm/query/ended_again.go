package query

import (
	"bytes"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// Again finds executions that ended before a time, one pass after the other, in the same partition. What is deleted is mostly the
// oldest of its class, and a scan goes over deleted keys one by one until Pebble has compacted them. So a pass reads each class only
// up to the oldest execution that the pass before has left. It finds all that EndedExecutions finds but an execution which ended since
// the last whole pass and began before all others of its class, and the first one of a class: the next whole pass finds those.
//
// The zero value has made no pass. It is not safe for concurrent use. A search that has failed may be repeated from where it began.
type Again struct {
	// classes are those with executions that have ended, in the order of their keys.
	classes []endedClass
	// known: a whole pass has ended, and classes are all.
	known bool
}

// endedClass is what passes know of a class of a namespace.
type endedClass struct {
	// prefix begins the keys of the class. Nothing that could be found is after last.
	prefix, last []byte
	// seen is the last key that the pass in progress has read.
	seen []byte
}

// Begin begins a pass over the partition, a whole one if asked to, or if none has ended yet. The pass ends when the search returns no
// position to continue from.
func (a *Again) Begin(whole bool) Search {
	if whole || !a.known {
		a.classes, a.known = nil, false
		return a.all
	}
	return a.rest
}

// all is the Search of a whole pass.
func (a *Again) all(r state.Reader, from []byte, maxKeys, most int, before Before) (found []Ended, next []byte, err error) {
	known := len(a.classes)
	found, next, err = endedExecutions(r, from, maxKeys, most, before, func(key, jump []byte) {
		prefix := key[:len(keys.Strings(key, 1))+1]
		switch {
		case jump == nil:
		case bytes.HasPrefix(jump, prefix):
			key = jump
		default:
			return // nothing of this class can be found
		}
		n := len(a.classes)
		if n == 0 || !bytes.Equal(a.classes[n-1].prefix, prefix) {
			a.classes, n = append(a.classes, endedClass{prefix: bytes.Clone(prefix)}), n+1
		}
		a.classes[n-1].last = append(a.classes[n-1].last[:0], key...)
	})
	if err != nil {
		a.classes = a.classes[:known]
	}
	a.known = err == nil && next == nil
	return found, next, err
}

// rest is the Search of the other passes.
func (a *Again) rest(r state.Reader, from []byte, maxKeys, most int, before Before) (found []Ended, next []byte, err error) {
	x := executions{r: r, keys: maxKeys, most: most, before: before}
	for i := range a.classes {
		c := &a.classes[i]
		ns, class, err := keys.CutString(c.prefix[1:])
		if err != nil {
			return nil, nil, &state.CorruptError{What: "listing", Key: c.prefix, Detail: err.Error()}
		}
		ms, ok := before.Most(ns)
		if !ok {
			continue
		}
		lower, upper := keys.VisibilityOf(ns, keys.VisibilityClass(class[0]), ms-1, ""), append(bytes.Clone(c.last), 0)
		if bytes.Compare(from, lower) > 0 {
			lower = from
		} else {
			c.seen = nil
		}
		if bytes.Compare(lower, upper) >= 0 {
			continue // the pass is behind it, or nothing has been there for longer than it is kept
		}
		x.note = func(key, _ []byte) { c.seen = append(c.seen[:0], key...) }
		if next, err = x.within(lower, upper); err != nil || next != nil {
			return x.found, next, err
		}
		if c.seen == nil {
			c.seen = lower
		}
		c.last = append(c.last[:0], c.seen...)
	}
	return x.found, nil, nil
}
