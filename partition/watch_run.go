package partition

import (
	"context"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
)

// RunVersion is what changes whenever the status of a graph run does.
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

// RunWatch waits for a graph run to change. Unlike a promise it changes again and again, so whoever is asked
// is told what was seen: a change between the reading and the asking is not missed.
type RunWatch struct {
	*Watch
	r *Router
}

// WatchRun waits for a graph run to change: register first, then read its RunVersion, then Follow it, then
// wait, then stop and register anew. Its channel also gets a value when nobody can say any more who would know, and
// every few seconds when this node does not lead the partition.
func (r *Router) WatchRun(namespace, id string) RunWatch {
	return RunWatch{r.watches.add(changing, refOf(namespace, id)), r}
}

// Follow has the channel get a value when the run is at another version than the one that was read. It does not
// block, and is called once.
func (w RunWatch) Follow(seen RunVersion) {
	w.r.askLeader(w.Watch, &commandv1.WatchRequest{RunIncarnation: seen.Incarnation, RunVersion: seen.Events})
}

// runMoved says whether a run that this node's state knows is beyond what was seen, or cannot be told.
func (r *Replica) runMoved(ctx context.Context, in *commandv1.WatchRequest) bool {
	reply, _, err := r.Query(ctx, Stale, RunQuery(in.Namespace, in.Id))
	if err != nil {
		return true
	}
	now := RunVersionOf(reply)
	return now.Incarnation != in.RunIncarnation || now.Events != in.RunVersion
}
