package group

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
)

// Watches wakes callers that wait for an object to change. A wake is a hint to read again: it may be
// spurious, and comes when leadership is lost. While no caller waits, an entry costs one atomic load. The zero
// value is ready to use. All groups of a node share one.
//
//	waiting = number of watches in byKey <= maxWatches
//	bytes   = sum of their costs         <= maxWatchBytes
type Watches struct {
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

// Change is the kind of change that a watch waits for.
type Change uint8

const (
	Settled Change = iota // a promise, once
	Moved                 // a graph run, again and again
)

type watchKey struct {
	what Change
	ref  state.Ref
}

// Watch is one wait. C gets a value when the awaited change may have happened; several changes before the
// caller receives are one value.
type Watch struct {
	C    chan struct{}
	key  watchKey
	from *Watches
	stop func() // of OnStop; may be nil
	// registered: the watch is in byKey. One that the bounds did not allow never gets a value of its node's.
	registered bool
}

func (x *Watch) cost() int64 {
	return int64(len(x.key.ref.Namespace)+len(x.key.ref.ID)) + watchCost
}

// Add registers a watch of an object if the bounds allow, and returns it in any case. It does not block.
func (w *Watches) Add(what Change, namespace, id string) *Watch {
	x := &Watch{C: make(chan struct{}, 1), key: watchKey{what, state.Ref{Namespace: namespace, ID: id}}, from: w}
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

// Waiting returns how many watches are registered.
func (w *Watches) Waiting() int64 { return w.waiting.Load() }

// Object returns what the watch is of.
func (x *Watch) Object() state.Ref { return x.key.ref }

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
	set := w.byKey[x.key]
	delete(set, x)
	if len(set) == 0 {
		delete(w.byKey, x.key)
	}
}

// Wake gives C a value. It does not block.
func (x *Watch) Wake() {
	select {
	case x.C <- struct{}{}:
	default:
	}
}

// wake notifies the watches of these objects. It does not block.
func (w *Watches) wake(what Change, refs []state.Ref) {
	if len(refs) == 0 || w.waiting.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ref := range refs {
		for x := range w.byKey[watchKey{what, ref}] {
			x.Wake()
		}
	}
}

func (w *Watches) wakeAll() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, set := range w.byKey {
		for x := range set {
			x.Wake()
		}
	}
}

// errWatchesFull refuses another node's watch.
func errWatchesFull(partition uint32) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_OVERLOADED, "partition %d: this node has as many watches as there may be", partition).
		With("bound", "watches").WithRetryAfterMS(watchRetry.Milliseconds())
}

// maxPeerWatch bounds one Await; a node that still waits asks again.
const maxPeerWatch = time.Minute

// Await blocks until the object of another node's watch may have changed, as the leader of its partition: for
// in.WaitMs and maxPeerWatch at most, or until ctx ends. Errors: why this replica does not lead, OVERLOADED
// when the node has too many watches, ctx's.
func (r *reader) Await(ctx context.Context, in *commandv1.WatchRequest) error {
	if r.serving() == nil {
		return r.NotServing()
	}
	what, happened := Settled, r.promiseSettled
	if in.RunIncarnation != 0 {
		what, happened = Moved, r.runMoved
	}
	watch := r.watches.Add(what, in.Namespace, in.Id)
	defer watch.Stop()
	if !watch.registered {
		return errWatchesFull(in.Partition)
	}
	// The change may have happened after the waiting node's read and before the registration here.
	if happened(ctx, in) {
		return nil
	}
	over, stop := r.clock.After(min(time.Duration(in.WaitMs)*time.Millisecond, maxPeerWatch))
	defer stop()
	select {
	case <-watch.C:
	case <-over:
	case <-r.stopping:
		return r.NotServing()
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// promiseSettled reports whether a promise is settled by this node's state, and true if that cannot be read.
func (r *reader) promiseSettled(ctx context.Context, in *commandv1.WatchRequest) bool {
	reply, _, err := r.Query(ctx, Stale, &commandv1.Query{Namespace: in.Namespace, Id: in.Id,
		Kind: &commandv1.Query_Promise{Promise: &perdurev1.GetPromiseRequest{Namespace: in.Namespace, Id: in.Id}}})
	return err != nil || reply.GetPromise().GetPromise().GetState() != perdurev1.PromiseState_PROMISE_STATE_PENDING
}

// RunVersion is the version of a graph run: it changes whenever the run's status does.
type RunVersion struct {
	Incarnation, Events uint64
	Status              perdurev1.ExecutionStatus
}

// RunQuery asks for what RunVersionOf reads; it costs less than the status itself.
func RunQuery(namespace, id string) *commandv1.Query {
	return &commandv1.Query{Namespace: namespace, Id: id,
		Kind: &commandv1.Query_Describe{Describe: &perdurev1.DescribeRequest{Namespace: namespace, Id: id}}}
}

// RunVersionOf reads the answer of a RunQuery.
func RunVersionOf(reply *commandv1.QueryReply) RunVersion {
	e := reply.GetDescribe().GetExecution()
	return RunVersion{e.GetIncarnation(), e.GetJournalEvents(), e.GetStatus()}
}

// runMoved reports whether a run has moved beyond the version that the caller saw, by this node's state. It
// also reports true if the state cannot be read.
func (r *reader) runMoved(ctx context.Context, in *commandv1.WatchRequest) bool {
	reply, _, err := r.Query(ctx, Stale, RunQuery(in.Namespace, in.Id))
	if err != nil {
		return true
	}
	now := RunVersionOf(reply)
	return now.Incarnation != in.RunIncarnation || now.Events != in.RunVersion
}
