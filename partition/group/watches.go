package group

import (
	"context"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/watch"
)

// watchRetry is when another node that was refused a watch asks again.
const watchRetry = 5 * time.Second

// errWatchesFull refuses another node's watch.
func errWatchesFull(partition uint32) *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_OVERLOADED, "partition %d: this node has all the watches that its bounds allow", partition).
		With("bound", "watches").WithRetryAfterMS(watchRetry.Milliseconds())
}

// maxPeerWatch bounds one AwaitChange; a node that still waits asks again.
const maxPeerWatch = time.Minute

// AwaitChange blocks until the object of another node's watch may have changed, as the leader of its partition: for
// in.WaitMs and maxPeerWatch at most, or until ctx ends. Errors: why this replica does not lead, OVERLOADED
// when the node has too many watches, ctx's.
func (r *reader) AwaitChange(ctx context.Context, in *commandv1.WatchRequest) error {
	if r.serving() == nil {
		return r.NotServing()
	}
	what, happened := watch.Settled, r.promiseSettled
	if in.RunIncarnation != 0 {
		what, happened = watch.Moved, r.runMoved
	}
	w := r.watches.Add(what, in.Namespace, in.Id)
	defer w.Stop()
	if !w.Registered() {
		return errWatchesFull(in.Partition)
	}
	// The change may have happened after the waiting node's read and before the registration here.
	if happened(ctx, in) {
		return nil
	}
	over, stop := r.clock.After(min(time.Duration(in.WaitMs)*time.Millisecond, maxPeerWatch))
	defer stop()
	select {
	case <-w.C:
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
