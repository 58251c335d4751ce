package partition

import (
	"sync"

	"perdure/fsm/machine"
)

// watches wakes those who wait for a promise to be settled. A wake is a hint to read again; it may come
// for nothing, and comes when leadership is lost.
type watches struct {
	mu    sync.Mutex
	byRef map[machine.Ref]map[*Watch]struct{}
}

// Watch is one wait. C gets a value when the promise may have been settled.
type Watch struct {
	C    chan struct{}
	ref  machine.Ref
	from *watches
	stop func() // ends the asking of another node; may be nil
}

func (w *watches) add(ref machine.Ref) *Watch {
	x := &Watch{C: make(chan struct{}, 1), ref: ref, from: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.byRef == nil {
		w.byRef = map[machine.Ref]map[*Watch]struct{}{}
	}
	if w.byRef[ref] == nil {
		w.byRef[ref] = map[*Watch]struct{}{}
	}
	w.byRef[ref][x] = struct{}{}
	return x
}

// Stop ends the wait. Every Watch must be stopped.
func (x *Watch) Stop() {
	if x.stop != nil {
		x.stop()
	}
	w := x.from
	w.mu.Lock()
	defer w.mu.Unlock()
	if set := w.byRef[x.ref]; set != nil {
		delete(set, x)
		if len(set) == 0 {
			delete(w.byRef, x.ref)
		}
	}
}

func (x *Watch) poke() {
	select {
	case x.C <- struct{}{}:
	default:
	}
}

func (w *watches) wake(ref machine.Ref) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for x := range w.byRef[ref] {
		x.poke()
	}
}

func (w *watches) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, set := range w.byRef {
		for x := range set {
			x.poke()
		}
	}
}

func refOf(namespace, id string) machine.Ref { return machine.Ref{Namespace: namespace, ID: id} }
