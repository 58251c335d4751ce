package partition

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	"perdure/internal/clock"
	"perdure/partition/transport"
)

// Bounds of one succession. Together they end long before the time-outs that act when a host vanishes.
const (
	// probeBound is how long a process may take to say that it is there, probeShare how long its answer is
	// good for the other groups that it led, and probeTries how often one is asked that dies meanwhile, or
	// does not answer (this process may have been held up).
	probeBound = 200 * time.Millisecond
	probeShare = 5 * time.Millisecond
	probeTries = 3
	// surveyBound is how long the other survivors may take to say how much of the log they have.
	surveyBound = 100 * time.Millisecond
	// yieldMin to yieldMax is how long a survivor waits for the election of another before it stands
	// itself, and before it tries again.
	yieldMin = 150 * time.Millisecond
	yieldMax = 250 * time.Millisecond
	// standTries bounds how often one server stands for one succession; then the time-outs decide.
	standTries = 5
	// leaderPoll is how often it is looked whether there is a leader.
	leaderPoll = 5 * time.Millisecond
)

// failover has a group elect a leader as soon as the process of its leader is gone. It is told of broken
// connections, makes sure that they mean what they seem to mean, and has the best placed survivor stand. An
// election that was not needed does no harm but costs a moment of service.
type failover struct {
	n *Node
	// on is set when every group is there; what breaks before is left to the time-outs.
	on     atomic.Bool
	looked atomic.Pointer[looked]

	mu   sync.Mutex
	rand *rand.Rand
	// busy are the groups whose leader is looked after: true if another of its connections broke since.
	busy   map[uint32]bool
	probes map[string]*probing
}

// probing is a question to one address.
type probing struct {
	done chan struct{}
	said finding
}

// finding is what is known of a process.
type finding int

const (
	unclear finding = iota // it did not answer in time, or cannot be reached
	alive
	gone // nobody listens there, or another server does
)

func newFailover(n *Node) (*failover, error) {
	chance, err := clock.NewRand(n.cfg.Rand)
	if err != nil {
		return nil, err
	}
	return &failover{n: n, rand: chance, busy: map[uint32]bool{}, probes: map[string]*probing{}}, nil
}

// group is this node's member of one Raft group, the directory's too.
type group struct {
	number    uint32
	raft      *raft.Raft
	transport interface {
		Stand(server raft.ServerID, addr raft.ServerAddress) error
		StepBack(server raft.ServerID, addr raft.ServerAddress, term uint64) error
	}
}

// group is this node's member of a group; false for one that has halted or is not there.
func (n *Node) group(number uint32) (g group, ok bool) {
	if number == directoryGroup {
		return group{number, n.cluster.Raft(), n.cluster.Transport()}, true
	}
	r, err := n.router.Replica(number)
	if err != nil || r.raft == nil || r.halted() != nil {
		return g, false
	}
	g = group{number: number, raft: r.raft}
	switch t := r.transport.(type) {
	case *countingTransport:
		g.transport = t
	case *transport.RaftTransport:
		g.transport = t
	default:
		return g, false
	}
	return g, true
}

// leader is whom this node takes for the leader, empty if it knows none.
func (g group) leader() string {
	_, id := g.raft.LeaderWithID()
	return string(id)
}

// lost is told of every connection of a group that this node did not end itself. It does not block.
func (f *failover) lost(peer transport.Peer) {
	if !f.on.Load() {
		return
	}
	g, ok := f.n.group(peer.Group)
	if !ok || g.leader() != peer.ServerID || peer.ServerID == f.n.identity.ServerID {
		return
	}
	if f.take(g.number) {
		go f.lookAfter(g, peer.ServerID, func() { f.look(f.n.lifetime, g, peer) })
	}
}

// take has the caller look after a group's leader; false if somebody does, who looks again then.
func (f *failover) take(group uint32) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, is := f.busy[group]
	f.busy[group] = is
	return !is
}

// lookAfter finds out what became of a leader, again as long as connections to it break meanwhile.
func (f *failover) lookAfter(g group, leader string, look func()) {
	for {
		if g.leader() == leader {
			look()
		}
		f.mu.Lock()
		if !f.busy[g.number] {
			delete(f.busy, g.number)
			f.mu.Unlock()
			return
		}
		f.busy[g.number] = false
		f.mu.Unlock()
	}
}

func (f *failover) look(ctx context.Context, g group, leader transport.Peer) {
	addr := leader.Addr
	for range probeTries {
		switch f.probe(ctx, addr, leader.ServerID, probeBound) {
		case unclear:
		case gone:
			f.n.log.Warn("the process that led a group is gone", "event", "leader_process_gone", "group", groupName(g.number),
				"node", f.n.cluster.NodeOf(leader.ServerID), "server", leader.ServerID, "addr", addr)
			f.succeed(ctx, g, leader.ServerID, false, never)
			return
		case alive:
			// Either Raft has dropped a connection in passing, or the process was started again already.
			st, err := f.statusAt(ctx, addr, g.number, probeBound)
			if err == nil {
				if st.State == raft.Leader.String() {
					f.n.log.Info("a connection of a group's leader broke; the leader is there", "event", "leader_connection_broke",
						"group", groupName(g.number), "node", f.n.cluster.NodeOf(leader.ServerID), "addr", addr)
				} else if st.Leader == "" || st.Leader == leader.ServerID {
					f.succeed(ctx, g, leader.ServerID, true, never)
				}
				return
			}
		}
		if !f.n.pause(ctx, yieldMin/probeTries) {
			return
		}
	}
}

// probe asks whether a server is still there, once for all who want to know at the same time.
func (f *failover) probe(ctx context.Context, addr, server string, bound time.Duration) finding {
	key := addr + " " + server + " " + bound.String()
	f.mu.Lock()
	p := f.probes[key]
	if p == nil {
		p = &probing{done: make(chan struct{})}
		f.probes[key] = p
		go func() {
			p.said = f.ask(ctx, addr, server, bound)
			close(p.done)
			if p.said == gone {
				f.n.pause(ctx, probeShare)
			}
			f.mu.Lock()
			delete(f.probes, key)
			f.mu.Unlock()
		}()
	}
	f.mu.Unlock()
	<-p.done
	return p.said
}

// ask asks until the answer is clear, within a bound. A process that dies may still accept a connection.
func (f *failover) ask(ctx context.Context, addr, server string, bound time.Duration) finding {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for {
		there, err := f.n.mux.Probe(ctx, addr)
		var refused *transport.RefusedError
		switch {
		case err == nil && there == server:
			return alive
		case err == nil:
			return gone // another server has the address
		case errors.Is(err, syscall.ECONNREFUSED):
			return gone // the host answers for a port nobody listens on
		case errors.As(err, &refused) && refused.Code == transport.CodeForeignCluster:
			return gone
		case errors.Is(err, transport.ErrClosed), ctx.Err() != nil:
			return unclear
		}
		if !f.n.pause(ctx, probeShare) {
			return unclear
		}
	}
}

// statusAt asks the node at an address how its member of a group is.
func (f *failover) statusAt(ctx context.Context, addr string, number uint32, bound time.Duration) (*commandv1.ReplicaStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	client, err := f.n.peers.Client(addr)
	if err != nil {
		return nil, err
	}
	in := &commandv1.StatusRequest{}
	if number != directoryGroup {
		in.Partition = &number
	}
	st, err := client.Status(ctx, in)
	switch {
	case err != nil:
		return nil, err
	case number == directoryGroup && st.Directory != nil:
		return st.Directory, nil
	case number != directoryGroup && len(st.Replicas) == 1:
		return st.Replicas[0], nil
	}
	return nil, errTryLater(number, "the node at "+addr+" has no member of the group")
}

// succeed has the best placed survivor stand for the succession of a leader that is lost, until there is
// another one. A leader that is alive and has given up may have handed its place to somebody: so its
// followers wait first. It ends when back says that the leader has turned up again.
func (f *failover) succeed(ctx context.Context, g group, lost string, wait bool, back func() bool) {
	for try := range standTries {
		if wait && !f.yield(ctx, g, lost) || back() {
			return
		}
		wait = true
		others, silent, votes := f.survey(ctx, g, lost, surveyBound)
		if !votes || succeeded(g, lost) {
			return
		}
		me := f.survivor(g)
		best := me
		for _, o := range others {
			if o.state == raft.Leader.String() || o.state == raft.Candidate.String() && try == 0 {
				best = survivor{} // it is on its way
				break
			}
			if o.before(best.place) {
				best = o
			}
		}
		// Two that do not hear each other in time (a busy machine) must not both stand at once: then neither
		// has a majority. The one with the lower id goes first.
		if try == 0 && best == me && slices.Min(append(silent, me.server)) != me.server {
			continue
		}
		// Another one that is better placed stands by itself, unless it has not seen what this server has.
		if best == me || best.server != "" && try > 0 {
			f.stand(g, best, lost, try)
		}
	}
	f.yield(ctx, g, lost)
}

// never is of a leader whose process is gone: what comes up at its address leads nothing.
func never() bool { return false }

// stand has a server stand. One that stood in vain begins a new term.
func (f *failover) stand(g group, who survivor, lost string, try int) {
	f.n.log.Info("standing for election", "event", "standing", "group", groupName(g.number), "node", f.n.cluster.NodeOf(who.server),
		"instead_of", f.n.cluster.NodeOf(lost), "term", who.term+1, "try", try+1)
	server, addr := raft.ServerID(who.server), raft.ServerAddress(who.addr)
	var err error
	if who.state == raft.Candidate.String() {
		err = g.transport.StepBack(server, addr, who.term)
	}
	if err == nil && !succeeded(g, lost) {
		err = g.transport.Stand(server, addr)
	}
	if err != nil && f.n.lifetime.Err() == nil {
		f.n.log.Warn("a server could not be made to stand for election", "event", "standing_failed", "group", groupName(g.number),
			"node", f.n.cluster.NodeOf(who.server), "error", err)
	}
}

// succeeded says that a group has a leader again, as far as this node knows.
func succeeded(g group, lost string) bool {
	id := g.leader()
	return g.raft.State() == raft.Leader || id != "" && id != lost
}

// yieldTime is a random time between yieldMin and yieldMax.
func (f *failover) yieldTime() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return yieldMin + time.Duration(f.rand.Int64N(int64(yieldMax-yieldMin)))
}

// yield waits for a leader; false if there is one, or the node stops.
func (f *failover) yield(ctx context.Context, g group, lost string) bool {
	until := f.n.clock.Now().Add(f.yieldTime())
	for f.n.clock.Now().Before(until) {
		if succeeded(g, lost) || !f.n.pause(ctx, leaderPoll) {
			return false
		}
	}
	return !succeeded(g, lost)
}

// place is how much of the log a server has. A later term counts for more than more entries.
type place struct {
	server              string
	lastTerm, lastIndex uint64
}

// before says that p should stand rather than o. Equals are told apart by their ids, so that one of them
// stands first.
func (p place) before(o place) bool {
	switch {
	case p.lastTerm != o.lastTerm:
		return p.lastTerm > o.lastTerm
	case p.lastIndex != o.lastIndex:
		return p.lastIndex > o.lastIndex
	default:
		return p.server < o.server
	}
}

// survivor is a voter that answers, and how its member of a group is.
type survivor struct {
	place
	addr, state, leader string
	term                uint64
	contact             time.Duration // since it heard from a leader
}

func survivorOf(server, addr string, st *commandv1.ReplicaStatus) survivor {
	return survivor{place{server, st.LastTerm, st.LastIndex}, addr, st.State, st.Leader, st.Term,
		time.Duration(st.ContactMs) * time.Millisecond}
}

// survivor is this server.
func (f *failover) survivor(g group) survivor {
	return survivorOf(f.n.identity.ServerID, f.n.mux.Addr().String(), raftStatus(g.raft))
}

// survey asks the other voters how they are, and says whether this server is one. Who has halted is left out,
// who does not answer within bound is silent.
func (f *failover) survey(ctx context.Context, g group, lost string, bound time.Duration) (others []survivor, silent []string, votes bool) {
	future := g.raft.GetConfiguration()
	if future.Error() != nil {
		return nil, nil, false
	}
	servers := future.Configuration().Servers
	answers, asked := make(chan survivor, len(servers)), 0
	for _, s := range servers {
		server := string(s.ID)
		switch {
		case s.Suffrage != raft.Voter || server == lost:
		case server == f.n.identity.ServerID:
			votes = true
		default:
			asked++
			addr := f.n.cluster.AddressOf(server)
			if addr == "" {
				addr = string(s.Address)
			}
			go func() {
				st, err := f.statusAt(ctx, addr, g.number, bound)
				switch {
				case err != nil:
					answers <- survivor{place: place{server: server}}
				case st.Halted != "" || st.State == raft.Shutdown.String():
					answers <- survivor{}
				default:
					answers <- survivorOf(server, addr, st)
				}
			}()
		}
	}
	for range asked {
		switch s := <-answers; {
		case s.server == "":
		case s.addr == "":
			silent = append(silent, s.server)
		default:
			others = append(others, s)
		}
	}
	return others, silent, votes
}

// begin has this node lead a group that it has just made, without waiting for the time-out that is meant for
// a leader that vanished.
func (n *Node) begin(number uint32) {
	g, ok := n.group(number)
	if !ok || g.leader() != "" {
		return
	}
	if err := g.transport.Stand(raft.ServerID(n.identity.ServerID), ""); err != nil && n.lifetime.Err() == nil {
		n.log.Warn("this server could not stand for election", "event", "standing_failed", "group", groupName(number), "error", err)
	}
}

// groupName is what logs call a group.
func groupName(number uint32) any {
	if number == directoryGroup {
		return "directory"
	}
	return number
}
