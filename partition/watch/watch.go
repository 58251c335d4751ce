// Package watch owns the watches of a node: callers that wait for a promise to settle or a graph run to change. It
// promises that a registered watch gets a value after each change that the node's leaders report, and that all
// watches together stay within two bounds. All of it is memory: a crash ends the waits, and callers read again.
//
// The caller's loop:
//
//	for {
//		w := set.Add(watch.Settled, namespace, id)
//		if settled := read(); settled {
//			w.Stop()
//			return
//		}
//		<-w.C // or a timeout: a watch beyond the bounds gets no value
//		w.Stop()
//	}
package watch

import (
	"sync"
	"sync/atomic"

	"perdure/fsm/state"
	"perdure/internal/callstream/async"
)

// Set wakes callers that wait for an object to change. A wake is a hint to read again: it may be
// spurious, and comes when leadership is lost. While no caller waits, an entry costs one atomic load. The zero
// value is ready to use. All groups of a node share one.
//
//	waiting = number of watches in byKey <= maxCount
//	bytes   = sum of their costs         <= maxBytes
type Set struct {
	waiting atomic.Int64
	bytes   atomic.Int64

	mu    sync.Mutex
	byKey map[key]*Watch // the first of a list
}

// Bounds of the watches of a node, its own callers' and those of other nodes.
const (
	maxCount = 100_000
	maxBytes = 64 << 20
	// overhead is what a watch takes in addition to its key.
	overhead = 256
)

// Change is the kind of change that a watch waits for.
type Change uint8

const (
	Settled Change = iota // a promise, once
	Moved                 // a graph run, again and again
)

type key struct {
	what Change
	ref  state.Ref
}

// Watch is one wait. C gets a value when the awaited change may have happened; several changes before the
// caller receives are one value. A watch of Notify has no C.
type Watch struct {
	C      chan struct{}
	notify async.Notifier
	// prev and next are the neighbours in byKey's list.
	prev, next *Watch

	key  key
	from *Set
	stop func() // of OnStop; may be nil
	// registered: the watch is in byKey. One that the bounds did not allow never gets a value of its node's.
	registered bool
}

func (x *Watch) cost() int64 {
	return int64(len(x.key.ref.Namespace)+len(x.key.ref.ID)) + overhead
}

// Add registers a watch of an object if the bounds allow, and returns it in any case. It does not block.
func (w *Set) Add(what Change, namespace, id string) *Watch {
	return w.add(&Watch{C: make(chan struct{}, 1), key: key{what, state.Ref{Namespace: namespace, ID: id}}, from: w})
}

// Notify is Add for a caller that does not receive: the watch notifies n, which must not use the set then.
func (w *Set) Notify(what Change, namespace, id string, n async.Notifier) *Watch {
	return w.add(&Watch{notify: n, key: key{what, state.Ref{Namespace: namespace, ID: id}}, from: w})
}

func (w *Set) add(x *Watch) *Watch {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting.Load() >= maxCount || w.bytes.Load()+x.cost() > maxBytes {
		return x
	}
	x.registered = true
	w.bytes.Add(x.cost())
	if w.byKey == nil {
		w.byKey = map[key]*Watch{}
	}
	if x.next = w.byKey[x.key]; x.next != nil {
		x.next.prev = x
	}
	w.byKey[x.key] = x
	w.waiting.Add(1)
	return x
}

// Waiting returns how many watches are registered.
func (w *Set) Waiting() int64 { return w.waiting.Load() }

// Object returns what the watch is of.
func (x *Watch) Object() state.Ref { return x.key.ref }

// Registered reports whether the bounds allowed the watch.
func (x *Watch) Registered() bool { return x.registered }

// OnStop has Stop call a function. The caller of Stop calls it first, once at most.
func (x *Watch) OnStop(stop func()) { x.stop = stop }

// Stop ends the wait. Every Watch must be stopped, once.
func (x *Watch) Stop() {
	if x.stop != nil {
		x.stop()
	}
	if !x.registered {
		return
	}
	w := x.from
	w.mu.Lock()
	defer w.mu.Unlock()
	w.waiting.Add(-1)
	w.bytes.Add(-x.cost())
	if x.next != nil {
		x.next.prev = x.prev
	}
	switch {
	case x.prev != nil:
		x.prev.next = x.next
	case x.next != nil:
		w.byKey[x.key] = x.next
	default:
		delete(w.byKey, x.key)
	}
	x.prev, x.next = nil, nil
}

// Wake gives C a value, or notifies. It does not block.
func (x *Watch) Wake() {
	if x.notify != nil {
		x.notify.Notify()
		return
	}
	select {
	case x.C <- struct{}{}:
	default:
	}
}

// Wake notifies the watches of these objects. It does not block.
func (w *Set) Wake(what Change, refs []state.Ref) {
	if len(refs) == 0 || w.waiting.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ref := range refs {
		for x := w.byKey[key{what, ref}]; x != nil; x = x.next {
			x.Wake()
		}
	}
}

// WakeAll notifies all watches. It does not block.
func (w *Set) WakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, x := range w.byKey {
		for ; x != nil; x = x.next {
			x.Wake()
		}
	}
}
