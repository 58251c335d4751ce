package partition

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/internal/callstream/async"
	"perdure/partition/group"
	"perdure/partition/refusal"
)

// Router sends commands and reads to the leader of the partition that owns an id, on whichever node it is. It
// looks for the leader again while every attempt was surely not applied, or the command is repeatable. It
// gives up at the caller's deadline, after routeTimeout, and when it has known no leader for leaderlessTimeout.
type Router struct {
	slots []atomic.Pointer[group.Replica]
	// local is this node's replica of a partition, as the router needs it.
	local func(partition uint32) localReplica
	// others returns the peer addresses of the other members, for a partition whose leader this node does not
	// know.
	others func() []string
	// client returns the Peers service of the node at an address.
	client func(addr string) (commandv1.PeersClient, error)
	shared *group.Shared
	clock  Clock
}

// localReplica is what a router needs of this node's replica of a partition: *Replica.
type localReplica interface {
	Propose(ctx context.Context, cmd *commandv1.Command) (*commandv1.Reply, error)
	Begin(cmd *commandv1.Command, n async.Notifier) (group.Begun, error)
	ReadSettled(q *commandv1.Query) (reply *commandv1.QueryReply, index uint64, found group.Finding)
	Query(ctx context.Context, level group.Level, q *commandv1.Query) (*commandv1.QueryReply, uint64, error)
	Await(ctx context.Context, q *commandv1.Query, wait time.Duration) (*commandv1.QueryReply, uint64, error)
	// Serving, or Establishing, reports whether requests go to this node's replica. NotServing says why they do
	// not.
	Serving() bool
	Establishing() bool
	NotServing() *api.Error
	Halted() error
	Stopping() <-chan struct{}
	// LeaderElsewhere is the other node that requests go to.
	LeaderElsewhere() (l group.Leader, ok bool)
	// LeaderChanged and ServingChanged are closed at the next change: it is worth another attempt at once.
	LeaderChanged() <-chan struct{}
	ServingChanged() <-chan struct{}
}

// newRouter makes a router over this node's replicas, which the caller puts into slots.
func newRouter(partitions uint32, shared *group.Shared, c Clock) *Router {
	r := &Router{slots: make([]atomic.Pointer[group.Replica], partitions), shared: shared, clock: c}
	r.local = func(p uint32) localReplica { return r.slots[p].Load() }
	return r
}

// Bounds of one search for a leader.
const (
	routeTimeout      = 15 * time.Second
	leaderlessTimeout = 5 * time.Second
	routePauseMin     = 5 * time.Millisecond
	routePauseMax     = 200 * time.Millisecond
	forwardTimeout    = 10 * time.Second
	// slowestPeer is the lowest transfer rate, in bytes per second, assumed of a peer: a command may take its
	// size / slowestPeer longer.
	slowestPeer = 1 << 20
)

// transferTime returns the time that is added to a command's limit for its size in bytes.
func transferTime(bytes int) time.Duration {
	return time.Duration(bytes) * time.Second / slowestPeer
}

// Partitions returns how many partitions the cluster has.
func (r *Router) Partitions() uint32 { return uint32(len(r.slots)) }

// PartitionOf returns the partition that owns an id.
func (r *Router) PartitionOf(namespace, id string) uint32 {
	return state.PartitionOf(namespace, id, uint32(len(r.slots)))
}

// Of returns this node's replica of the partition that owns an id.
func (r *Router) Of(namespace, id string) *group.Replica {
	return r.slots[r.PartitionOf(namespace, id)].Load()
}

// Replica returns this node's replica of a partition; an *api.Error, PARTITION_NOT_FOUND, if there is no such
// partition.
func (r *Router) Replica(partition uint32) (*group.Replica, error) {
	if err := r.check(partition); err != nil {
		return nil, err
	}
	return r.slots[partition].Load(), nil
}

// check refuses a partition that there is not.
func (r *Router) check(partition uint32) error {
	if partition < uint32(len(r.slots)) {
		return nil
	}
	return api.Errorf(perdurev1.Reason_REASON_PARTITION_NOT_FOUND, "there is no partition %d: the cluster has %d, from 0 on", partition, len(r.slots))
}

// Replicas lists this node's replicas, by partition.
func (r *Router) Replicas() []*group.Replica {
	out := make([]*group.Replica, len(r.slots))
	for i := range r.slots {
		out[i] = r.slots[i].Load()
	}
	return out
}

// Propose puts a command about an id into its partition's log; see Deliver.
func (r *Router) Propose(ctx context.Context, cmd *commandv1.Command) (*commandv1.Reply, error) {
	return r.Deliver(ctx, r.PartitionOf(cmd.Namespace, cmd.Id), cmd)
}

// Deliver puts a command into a partition's log, on whichever node leads it, and waits for its reply.
// Errors are *api.Error; see Replica.Propose.
func (r *Router) Deliver(ctx context.Context, partition uint32, cmd *commandv1.Command) (*commandv1.Reply, error) {
	return r.deliver(ctx, partition, cmd, r.clock.Now(), nil)
}

// deliver is Deliver for a request that began then. Its first attempt may be under way here.
func (r *Router) deliver(ctx context.Context, partition uint32, cmd *commandv1.Command, began time.Time, first func(context.Context) (*commandv1.Reply, error)) (*commandv1.Reply, error) {
	var reply *commandv1.Reply
	tries := 0
	var begun func(context.Context) error
	if first != nil {
		tries++
		begun = func(ctx context.Context) (err error) {
			reply, err = first(ctx)
			return err
		}
	}
	err := r.routeFor(ctx, partition, repeatable(cmd), transferTime(proto.Size(cmd)), begun, func(ctx context.Context, local localReplica, leader commandv1.PeersClient) error {
		sent := cmd
		if tries++; tries > 1 && cmd.Request != nil {
			// A repeated request carries its age. The first attempt may still be on its way.
			sent = &commandv1.Command{Request: proto.CloneOf(cmd.Request), Namespace: cmd.Namespace, Id: cmd.Id, SlotEpoch: cmd.SlotEpoch, Kind: cmd.Kind}
			sent.Request.AgeMs += uint64(max(r.clock.Now().Sub(began).Milliseconds(), 1))
		}
		var err error
		if local != nil {
			reply, err = local.Propose(ctx, sent)
		} else {
			reply, err = r.proposeAt(ctx, leader, partition, sent)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return reply, nil
}

// proposeAt forwards a command to the node that leads a partition. It reserves the command's bytes meanwhile,
// so that all nodes together send a leader no more than their bounds.
func (r *Router) proposeAt(ctx context.Context, leader commandv1.PeersClient, partition uint32, cmd *commandv1.Command) (*commandv1.Reply, error) {
	release, err := r.shared.Admission.Forward(cmd)
	if err != nil {
		return nil, err
	}
	defer release()
	return leader.Propose(ctx, &commandv1.ProposeRequest{Partition: partition, Command: cmd})
}

// repeatable reports whether a command may be sent again although it may have been applied: a second
// application answers what the first one did, or changes nothing.
func repeatable(cmd *commandv1.Command) bool {
	if cmd.Request != nil {
		return true
	}
	switch cmd.Kind.(type) {
	case *commandv1.Command_Heartbeat, *commandv1.Command_Deliver, *commandv1.Command_Trim, *commandv1.Command_Tick,
		*commandv1.Command_RegisterFunctions, *commandv1.Command_Release, *commandv1.Command_Assign, *commandv1.Command_EnterCut,
		*commandv1.Command_Import, *commandv1.Command_ImportDone:
		return true
	}
	return false
}

// Query reads about an id, and returns the index that the answer reflects; see Read.
func (r *Router) Query(ctx context.Context, level group.Level, q *commandv1.Query) (*commandv1.QueryReply, uint64, error) {
	return r.Read(ctx, r.PartitionOf(q.Namespace, q.Id), level, q)
}

// Read reads a partition: linearizable from its leader, stale from this node's replica.
func (r *Router) Read(ctx context.Context, partition uint32, level group.Level, q *commandv1.Query) (reply *commandv1.QueryReply, index uint64, err error) {
	if level == group.Stale {
		local, err := r.Replica(partition)
		if err != nil {
			return nil, 0, err
		}
		if local.Halted() == nil || len(r.others()) == 0 {
			return local.Query(ctx, group.Stale, q)
		}
		// A halted replica answers no read; the leader's answer is fresher still.
	}
	err = r.route(ctx, partition, true, func(ctx context.Context, local localReplica, leader commandv1.PeersClient) error {
		if local != nil {
			reply, index, err = local.Query(ctx, group.Linearizable, q)
			return err
		}
		answer, err := leader.Query(ctx, &commandv1.PeerQuery{Partition: partition, Query: q})
		if err != nil {
			if _, ours := api.FromStatus(err); !ours {
				return refusal.TryLater(partition, "the leader was asked and did not answer: "+err.Error())
			}
			return err
		}
		reply, index = answer.Reply, answer.Index
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	return reply, index, nil
}

// route finds the leader of a partition and calls try with this node's replica, or with the service of the
// node that leads. again says that a second try is harmless. It blocks for routeTimeout at most, until a try
// ends the search or ctx ends.
func (r *Router) route(ctx context.Context, partition uint32, again bool, try func(context.Context, localReplica, commandv1.PeersClient) error) error {
	return r.routeFor(ctx, partition, again, 0, nil, try)
}

// routeFor is route with more time than usual. begun, unless nil, waits for an attempt that is under way.
func (r *Router) routeFor(ctx context.Context, partition uint32, again bool, longer time.Duration, begun func(context.Context) error, try func(context.Context, localReplica, commandv1.PeersClient) error) error {
	pause, guess, hint := routePauseMin, 0, ""
	deadline := r.clock.Now().Add(routeTimeout + longer)
	var tries attempts
	var leaderless time.Time // since when no attempt has had a leader to ask; zero if the last one had
	for {
		if err := r.check(partition); err != nil {
			return err
		}
		local := r.local(partition)
		var err error
		leader, serves := local.LeaderChanged(), local.ServingChanged()
		if begun != nil {
			err, begun = begun(ctx), nil
		} else if isClosed(local.Stopping()) {
			return tries.verdict(refusal.Stopping(partition))
		} else if local.Serving() || local.Establishing() {
			leaderless = time.Time{}
			err = try(ctx, local, nil)
		} else {
			to, known := local.LeaderElsewhere()
			if !known {
				to.Addr, hint = hint, ""
			}
			if to.Addr == "" && local.Halted() != nil {
				if others := r.others(); len(others) > 0 {
					to.Addr = others[guess%len(others)]
					guess++
				}
			}
			switch {
			case to.Addr != "":
				leaderless = time.Time{}
			case leaderless.IsZero():
				leaderless = r.clock.Now()
			}
			err = r.forwardFor(ctx, partition, to, longer, try)
		}
		if err == nil {
			return nil
		}
		e, ours := api.FromStatus(err)
		if !ours {
			e = refusal.Unknown(partition, "another node was asked and did not answer: "+err.Error())
		}
		switch e.Reason {
		case perdurev1.Reason_REASON_NOT_LEADER:
			hint = e.Meta["leader"]
		case perdurev1.Reason_REASON_TRY_LATER, perdurev1.Reason_REASON_SHUTTING_DOWN:
		case perdurev1.Reason_REASON_MEMBERSHIP_REFUSED:
			// The other node does not know this one as a member, or not yet.
		case perdurev1.Reason_REASON_OUTCOME_UNKNOWN:
			if !again || ctx.Err() != nil {
				return e
			}
			tries.unknown = e
		case perdurev1.Reason_REASON_CORRUPT:
			// The replica has halted; the other members' may serve.
			if len(r.others()) == 0 {
				return tries.verdict(e)
			}
		default:
			return tries.verdict(e)
		}
		if r.clock.Now().After(deadline) || ctx.Err() != nil {
			return tries.verdict(e)
		}
		if !leaderless.IsZero() && r.clock.Now().Sub(leaderless) >= leaderlessTimeout {
			return tries.verdict(refusal.NoLeader(partition, leaderlessTimeout))
		}
		// A change of the leader since before the attempt is worth another attempt at once.
		c, stop := r.clock.After(pause)
		pause = min(2*pause, routePauseMax)
		select {
		case <-c:
		case <-leader:
			pause = routePauseMin
		case <-serves:
			pause = routePauseMin
		case <-local.Stopping():
		case <-ctx.Done():
		}
		stop()
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// attempts combines the outcomes of one request's attempts.
type attempts struct {
	// unknown is the answer of an earlier attempt that may have been applied, or nil.
	unknown *api.Error
}

// verdict returns the error for the caller when the last attempt was refused with e. A refusal by the machine
// holds for the whole request: a machine that has applied an earlier attempt repeats its answer, and one that
// has not stores the refusal for every retry. Any other refusal proves that the last attempt was not applied,
// and nothing of earlier ones.
func (a *attempts) verdict(e *api.Error) *api.Error {
	if a.unknown == nil {
		return e
	}
	switch api.Code(e.Reason) {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.Aborted, codes.FailedPrecondition:
		if e.Reason != perdurev1.Reason_REASON_MEMBERSHIP_REFUSED && e.Reason != perdurev1.Reason_REASON_NODE_NOT_FOUND &&
			e.Reason != perdurev1.Reason_REASON_PARTITION_NOT_FOUND && e.Reason != perdurev1.Reason_REASON_FEATURE_LEVEL {
			return e
		}
	}
	return a.unknown
}

// forward calls try with the node that leads, until it answers, its leadership ends, or forwardTimeout is over.
func (r *Router) forward(ctx context.Context, partition uint32, to group.Leader, try func(context.Context, localReplica, commandv1.PeersClient) error) error {
	return r.forwardFor(ctx, partition, to, 0, try)
}

// forwardFor is forward with more time than usual.
func (r *Router) forwardFor(ctx context.Context, partition uint32, to group.Leader, longer time.Duration, try func(context.Context, localReplica, commandv1.PeersClient) error) error {
	if to.Addr == "" {
		return r.local(partition).NotServing()
	}
	client, err := r.client(to.Addr)
	if err != nil {
		return refusal.TryLater(partition, fmt.Sprintf("the leader at %s cannot be asked: %v", to.Addr, err))
	}
	ctx, cancel := context.WithTimeout(ctx, forwardTimeout+longer)
	defer cancel()
	if to.Known != nil {
		defer context.AfterFunc(to.Known, cancel)()
	}
	return try(ctx, nil, client)
}

// ByPartition groups task tokens by the partition that owns them.
func (r *Router) ByPartition(tokens []*perdurev1.TaskToken) map[uint32][]*perdurev1.TaskToken {
	out := map[uint32][]*perdurev1.TaskToken{}
	for _, t := range tokens {
		p := r.PartitionOf(t.Namespace, t.Id)
		out[p] = append(out[p], t)
	}
	return out
}
