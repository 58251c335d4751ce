package partition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	"perdure/partition/raftgroup"
)

// Bounds of handing a leadership on.
const (
	// handPatience bounds one transfer, until the new leader serves.
	handPatience = 10 * time.Second
	// handPause is between two looks whether it does, handOverPause before what could not be handed on is
	// tried again.
	handPause     = 5 * time.Millisecond
	handOverPause = 50 * time.Millisecond
	// handOverBound bounds what a node that stops does for its leaderships, and handOverAsk how long the
	// others may take to say whether they can take them.
	handOverBound = 2 * time.Second
	handOverAsk   = 500 * time.Millisecond
	// maxHeirLag is how many entries a server may lack that is to lead: the group refuses writes until it
	// has them.
	maxHeirLag = 256
	// handAgain is how long a group is not handed to a server again to which it could not be handed. In the
	// library a transfer that is given up leaves something behind for the goroutine that replicates to that
	// server; if a second one finds it there, and the leadership is lost before it is gone, then the group
	// refuses writes whenever this process leads it again. By then it is gone.
	handAgain = time.Minute
)

// Transfer implements Peers.
func (s *peerService) Transfer(ctx context.Context, in *commandv1.TransferRequest) (*commandv1.TransferReply, error) {
	to := in.To
	if to == "" && in.From != "" && in.From != s.n.identity.ServerID {
		to = s.n.identity.NodeID // it was handed on already: this server, if it leads, keeps it
	}
	leader, err := s.n.Transfer(ctx, in.Partition, to)
	if err != nil {
		return nil, err
	}
	return &commandv1.TransferReply{Leader: leader}, nil
}

// Transfer hands a partition that this node leads to another node, or to the best placed one if toNode is
// empty, and answers the server id of the leader when it serves. Leaderships are not moved on from there
// for a while (operatorsWill), whoever is preferred; handing a partition to the node that leads it already
// does that alone. It blocks for handPatience at most, and what it has begun goes on when ctx ends: who asked from
// elsewhere may learn of the new leader first, and leave. Errors are *api.Error: NOT_LEADER with a hint if this
// node does not lead it, NODE_NOT_FOUND or PARTITION_NOT_FOUND for an unknown partition or node, TRY_LATER if the other node cannot take
// it now.
func (n *Node) Transfer(ctx context.Context, partition uint32, toNode string) (leader string, err error) {
	r, err := n.router.Replica(partition)
	if err != nil {
		return "", err
	}
	var to *commandv1.DirectoryMember
	if toNode != "" {
		if to, err = n.memberNamed(toNode); err != nil {
			return "", err
		}
	}
	if r.serving() == nil {
		return "", r.notServing()
	}
	if to != nil && to.ServerId == n.identity.ServerID {
		n.balancer.keep(partition)
		return to.ServerId, nil
	}
	g, ok := n.group(partition)
	if !ok {
		return "", r.notServing()
	}
	heirs := n.heirs(ctx, []group{g})[partition]
	if to != nil {
		heirs = only(heirs, to)
	}
	if len(heirs) == 0 {
		who := "no other node"
		if to != nil {
			who = "node " + toNode
		}
		return "", errTryLater(partition, who+" can take the leadership now: unreachable, halted, or too far behind")
	}
	if err := ctx.Err(); err != nil {
		return "", errTryLater(partition, "nothing was begun: "+err.Error())
	}
	life, cancel := context.WithTimeout(n.lifetime, handPatience)
	defer cancel()
	var last error
	for _, heir := range heirs {
		err := n.handTo(life, g, heir)
		if err == nil {
			return n.handedOn(life, r)
		}
		last = fmt.Errorf("the leadership could not be handed to node %s: %w", heir.NodeId, err)
	}
	return "", errTryLater(partition, last.Error())
}

func only(members []*commandv1.DirectoryMember, m *commandv1.DirectoryMember) []*commandv1.DirectoryMember {
	for _, have := range members {
		if have.ServerId == m.ServerId {
			return []*commandv1.DirectoryMember{have}
		}
	}
	return nil
}

// handedOn waits until a partition's new leader serves, and has it keep the partition.
func (n *Node) handedOn(ctx context.Context, r *Replica) (leader string, err error) {
	for {
		if r.raft.State() == raft.Leader {
			return "", errTryLater(r.id, "the leadership has come back to this node")
		}
		if k := r.known.Load(); k != nil && k.server != "" && k.addr != r.address {
			client, err := n.peers.Client(k.addr)
			if err == nil {
				if _, err = client.Transfer(ctx, &commandv1.TransferRequest{Partition: r.id, To: n.cluster.NodeOf(string(k.server))}); err == nil {
					return string(k.server), nil
				}
			}
		}
		if !n.pause(ctx, handPause) {
			return "", errTryLater(r.id, "the leadership was handed on, and the new leader does not serve yet")
		}
	}
}

// heirs are the members that could take each group over now, in an order that spreads the groups.
func (n *Node) heirs(ctx context.Context, groups []group) map[uint32][]*commandv1.DirectoryMember {
	var others []*commandv1.DirectoryMember
	for _, m := range n.cluster.Members() {
		if m.ServerId != n.identity.ServerID {
			others = append(others, m)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, handOverAsk)
	defer cancel()
	said, _ := n.askAll(ctx, others) // who does not answer is no heir
	out := map[uint32][]*commandv1.DirectoryMember{}
	for _, g := range groups {
		for i := range others {
			i = (i + int(g.number)) % len(others) // also of groups that are handed on one by one
			if n.ableHeir(g, said[i]) {
				out[g.number] = append(out[g.number], others[i])
			}
		}
	}
	return out
}

// ableHeir judges by what a node says of itself whether it could lead a group that this node leads.
func (n *Node) ableHeir(g group, said *commandv1.NodeStatus) bool {
	if said == nil {
		return false
	}
	st := said.Directory
	if g.number != directoryGroup {
		if int(g.number) >= len(said.Replicas) {
			return false
		}
		st = said.Replicas[g.number]
	}
	return st != nil && st.Halted == "" && !st.Rebuilding && st.State == raft.Follower.String() &&
		st.Leader == n.identity.ServerID && st.LastIndex+maxHeirLag >= g.raft.LastIndex() &&
		(g.number == directoryGroup || st.Applied+maxHeirLag >= n.stateIndex(g.number))
}

// stateIndex is the last command in a partition's state here. Raft's own entries do not count.
func (n *Node) stateIndex(p uint32) uint64 {
	if r := n.router.slots[p].Load(); r.store != nil {
		return r.store.Present().Index
	}
	return 0
}

// transfers remembers the transfers that went wrong.
type transfers struct {
	mu     sync.Mutex
	failed map[failedTransfer]time.Time
}

type failedTransfer struct {
	group  uint32
	server string
}

var errHandAgain = errors.New("it could not be handed to that server a short while ago")

// handTo hands a group that this node leads to a member, and returns when this node does not lead any more.
func (n *Node) handTo(ctx context.Context, g group, to *commandv1.DirectoryMember) error {
	key := failedTransfer{g.number, to.ServerId}
	t := &n.transfers
	t.mu.Lock()
	again := t.failed[key]
	t.mu.Unlock()
	if n.clock.Now().Before(again) {
		return errHandAgain
	}
	began := n.clock.Now()
	err := raftgroup.Await(g.raft.LeadershipTransferToServer(raft.ServerID(to.ServerId), raft.ServerAddress(n.cluster.AddressOf(to.ServerId))), ctx.Done(), n.done)
	switch {
	case err == nil:
		n.log.Info("leadership handed on", "event", "leadership_handed_on", "group", groupName(g.number), "to", to.NodeId, "took", n.clock.Now().Sub(began))
	case errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrEnqueueTimeout), errors.Is(err, raft.ErrLeadershipTransferInProgress):
	default:
		t.mu.Lock()
		if t.failed == nil {
			t.failed = map[failedTransfer]time.Time{}
		}
		t.failed[key] = n.clock.Now().Add(handAgain)
		t.mu.Unlock()
		n.log.Warn("leadership could not be handed on", "event", "leadership_not_handed_on", "group", groupName(g.number), "to", to.NodeId, "error", err)
	}
	return err
}

// failedLately says that a group could not be handed on within handAgain.
func (t *transfers) failedLately(g uint32, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for key, until := range t.failed {
		if key.group == g && now.Before(until) {
			return true
		}
	}
	return false
}

// HandOver hands on everything that this node leads, as far as others can take it, within 2 s. It is for a
// node that is about to stop; Close does it too.
func (n *Node) HandOver(ctx context.Context) { n.handOver(ctx) }

// handOver hands on everything that this node leads, before it stops. It serves meanwhile. It ends when
// nothing is left, nobody can take it, or handOverBound is over.
func (n *Node) handOver(ctx context.Context) {
	if n.identity.Alone() {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, handOverBound)
	defer cancel()
	n.balancer.stop(ctx)
	for ctx.Err() == nil {
		led := n.led()
		if len(led) == 0 {
			return
		}
		heirs := n.heirs(ctx, led)
		if len(heirs) == 0 {
			return
		}
		var wg sync.WaitGroup
		for _, g := range led {
			wg.Go(func() {
				for _, m := range heirs[g.number] {
					if n.handTo(ctx, g, m) == nil {
						return
					}
				}
			})
		}
		wg.Wait()
		if len(n.led()) > 0 && !n.pause(ctx, handOverPause) {
			return
		}
	}
}

// led are the groups this node leads.
func (n *Node) led() []group {
	var out []group
	for p := range uint32(len(n.router.slots)) {
		if g, ok := n.group(p); ok && g.raft.State() == raft.Leader {
			out = append(out, g)
		}
	}
	if g, ok := n.group(directoryGroup); ok && g.raft.State() == raft.Leader {
		out = append(out, g)
	}
	return out
}

func (n *Node) pause(ctx context.Context, d time.Duration) bool {
	c, stop := n.clock.After(d)
	defer stop()
	select {
	case <-c:
		return true
	case <-ctx.Done():
		return false
	}
}

// StuckTransferError says that a group has refused writes for far longer than a transfer of its leadership
// takes, and will go on refusing them while this process leads it: a known fault of the Raft library, which
// only a new process ends. The node halts; another one leads its groups at once, and it is healthy when it
// is started again.
type StuckTransferError struct {
	Partition uint32
	Since     time.Duration
}

func (e *StuckTransferError) Error() string {
	return fmt.Sprintf("partition %d: a transfer of its leadership has not ended for %v, and it refuses writes meanwhile: this process must be started again", e.Partition, e.Since)
}
