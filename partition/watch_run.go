package partition

import (
	"context"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
)

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

// RunWatch waits for a graph run to change. A run changes many times, so the request carries the version that
// the caller has read: a change between the read and the request is not missed.
type RunWatch struct {
	*Watch
	r *Router
}

// WatchRun returns a wait for a graph run to change: register, read its RunVersion, Follow it, wait, then
// stop and register again. C also gets a value when no known leader can answer any more, and every few
// seconds while this node does not lead the partition.
func (r *Router) WatchRun(namespace, id string) RunWatch {
	return RunWatch{r.watches.add(changing, refOf(namespace, id)), r}
}

// Follow has C get a value when the run is at another version than seen. It does not block; call it once.
func (w RunWatch) Follow(seen RunVersion) {
	w.r.askLeader(w.Watch, &commandv1.WatchRequest{RunIncarnation: seen.Incarnation, RunVersion: seen.Events})
}

// runMoved reports whether a run has moved beyond the version that the caller saw, by this node's state. It
// also reports true if the state cannot be read.
func (r *Replica) runMoved(ctx context.Context, in *commandv1.WatchRequest) bool {
	reply, _, err := r.Query(ctx, Stale, RunQuery(in.Namespace, in.Id))
	if err != nil {
		return true
	}
	now := RunVersionOf(reply)
	return now.Incarnation != in.RunIncarnation || now.Events != in.RunVersion
}
