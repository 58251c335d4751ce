package partition

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
)

// watches wakes callers that wait for an object to change. A wake is a hint to read again: it may be
// spurious, and comes when leadership is lost. While no caller waits, an entry costs one atomic load.
//
//	waiting = number of watches in byKey <= maxWatches
//	bytes   = sum of their costs         <= maxWatchBytes
type watches struct {
	waiting atomic.Int64
	bytes   atomic.Int64

	mu    sync.Mutex
	byKey map[watchKey]map[*Watch]struct{}
}

// Bounds of the watches of a node, its own callers' and those of other nodes.
const (
	maxWatches    = 100_000
	maxWatchBytes = 64 << 20
	// watchCost is what a watch takes in addition to its key.
	watchCost = 256
	// watchRetry is when another node that was refused a watch asks again.
	watchRetry = 5 * time.Second
)

// watched is the kind of change that a watch waits for.
type watched uint8

const (
	settling watched = iota // of a promise, once
	changing                // of a graph run, again and again
)

type watchKey struct {
	what watched
	ref  state.Ref
}

// Watch is one wait. C gets a value when the awaited change may have happened; several changes before the
// caller receives are one value.
type Watch struct {
	C    chan struct{}
	key  watchKey
	from *watches
	stop func() // cancels the request to another node; may be nil
	// registered: the watch is in byKey. One that the bounds did not allow never gets a value.
	registered bool
}

func (x *Watch) cost() int64 {
	return int64(len(x.key.ref.Namespace)+len(x.key.ref.ID)) + watchCost
}

// add registers a watch if the bounds allow, and returns it in any case.
func (w *watches) add(what watched, ref state.Ref) *Watch {
	x := &Watch{C: make(chan struct{}, 1), key: watchKey{what, ref}, from: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.waiting.Load() >= maxWatches || w.bytes.Load()+x.cost() > maxWatchBytes {
		return x
	}
	x.registered = true
	w.bytes.Add(x.cost())
	if w.byKey == nil {
		w.byKey = map[watchKey]map[*Watch]struct{}{}
	}
	if w.byKey[x.key] == nil {
		w.byKey[x.key] = map[*Watch]struct{}{}
	}
	w.byKey[x.key][x] = struct{}{}
	w.waiting.Add(1)
	return x
}

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
	set := w.byKey[x.key]
	delete(set, x)
	if len(set) == 0 {
		delete(w.byKey, x.key)
	}
}

func (x *Watch) signal() {
	select {
	case x.C <- struct{}{}:
	default:
	}
}

// wake notifies the watches of these objects. It does not block.
func (w *watches) wake(what watched, refs []state.Ref) {
	if len(refs) == 0 || w.waiting.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ref := range refs {
		for x := range w.byKey[watchKey{what, ref}] {
			x.signal()
		}
	}
}

func (w *watches) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, set := range w.byKey {
		for x := range set {
			x.signal()
		}
	}
}

func refOf(namespace, id string) state.Ref { return state.Ref{Namespace: namespace, ID: id} }

// Watch returns a wait for a promise to be settled: register, then read, then wait, then register again. C
// also gets a value when no known leader can answer any more. A watch beyond the node's bounds may never get
// one: read again after a while in any case.
func (r *Router) Watch(namespace, id string) *Watch {
	w := r.watches.add(settling, refOf(namespace, id))
	r.askLeader(w, &commandv1.WatchRequest{})
	return w
}

// askLeader asks the partition's leader for the awaited change, unless this node leads it. It does not block.
// One answer, or its absence, is one value of the watch's channel.
func (r *Router) askLeader(w *Watch, ask *commandv1.WatchRequest) {
	ref := w.key.ref
	ask.Partition, ask.Namespace, ask.Id = r.Place(ref.Namespace, ref.ID), ref.Namespace, ref.ID
	ask.WaitMs = forwardTimeout.Milliseconds()
	local := r.slots[ask.Partition].Load()
	if local.serving() != nil {
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.stop = cancel
	addr, known := local.leaderElsewhere()
	go func() {
		defer cancel()
		err := r.forward(ctx, local, addr, known, func(ctx context.Context, _ *Replica, leader commandv1.PeersClient) error {
			_, err := leader.Watch(ctx, ask)
			return err
		})
		if err != nil {
			pause := routePauseMax
			if refused, is := api.FromStatus(err); is {
				pause = max(pause, time.Duration(refused.RetryAfterMS())*time.Millisecond)
			}
			c, stop := r.clock.After(pause)
			defer stop()
			select {
			case <-c:
			case <-local.newLeader():
			case <-ctx.Done():
			}
		}
		w.signal()
	}()
}
