package election

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/hashicorp/raft"

	"perdure/internal/clock"
	"perdure/partition/transport"
)

// Bounds of one failover. Together they end long before the library's timeouts act.
const (
	// probeTimeout bounds the answer of a process. probeShared is how long that answer counts for the other
	// groups that the process led. probeTries bounds the probes of a process that dies meanwhile or does not
	// answer: this process may have been delayed itself.
	probeTimeout = 200 * time.Millisecond
	probeShared  = 5 * time.Millisecond
	probeTries   = 3
	// surveyTimeout bounds the other voters' answers.
	surveyTimeout = 100 * time.Millisecond
	// A server waits from campaignPauseMin to campaignPauseMax for another one's election before it campaigns or
	// retries.
	campaignPauseMin = 150 * time.Millisecond
	campaignPauseMax = 250 * time.Millisecond
	// campaignTries bounds the campaigns of one server in one failover; after them the timeouts decide.
	campaignTries = 5
	// leaderPoll is the interval of checks for a new leader.
	leaderPoll = 5 * time.Millisecond
)

// Failover replaces lost leaders. All methods are safe for concurrent use.
type Failover struct {
	Options
	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	// enabled is set when every group is open; connections that break before are left to the timeouts.
	enabled atomic.Bool
	scanned atomic.Pointer[scan]

	mu     sync.Mutex
	closed bool
	// checks are the groups whose leader is being checked: true if another connection to it broke since.
	checks map[uint32]bool
	probes map[string]*probe
}

// probe is one liveness request to an address.
type probe struct {
	done   chan struct{}
	result Liveness
}

// Liveness is the result of a probe.
type Liveness int

const (
	Unknown Liveness = iota // it did not answer in time, or cannot be reached
	Alive
	Gone // no process listens at its address, or another server does
)

// NewFailover returns a Failover that does nothing until Start and ends with lifetime. The caller closes it.
func NewFailover(lifetime context.Context, opts Options) *Failover {
	f := &Failover{Options: opts, checks: map[uint32]bool{}, probes: map[string]*probe{}}
	f.ctx, f.cancel = context.WithCancel(lifetime)
	return f
}

// Start enables the Failover and begins to check the liveness of leaders.
func (f *Failover) Start() {
	f.Enable(true)
	f.run(f.checkLiveness)
}

// Enable begins or ends the replacement of leaders whose connections break.
func (f *Failover) Enable(on bool) { f.enabled.Store(on) }

// Close ends every check and waits for its goroutine. A request to campaign that is under way takes the transport's
// timeout at most.
func (f *Failover) Close() {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.cancel()
	f.wg.Wait()
}

// run starts a goroutine that Close joins; false if the Failover is closed.
func (f *Failover) run(fn func()) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.wg.Go(fn)
	return true
}

// Checking is the number of groups whose leader is being checked.
func (f *Failover) Checking() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.checks)
}

// ConnectionLost notes that a connection of a group broke that this node did not end itself. It does not block.
func (f *Failover) ConnectionLost(group uint32, server, addr string) {
	if !f.enabled.Load() || server == f.Server {
		return
	}
	g, ok := f.Env.Group(group)
	if !ok {
		return
	}
	if leader, _ := g.Leader(); leader == server {
		f.check(g, server, func() { f.checkProcess(g, server, addr) })
	}
}

// check runs a check of a group's leader, again for as long as connections to it break meanwhile, unless one runs.
func (f *Failover) check(g Group, leader string, once func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, runs := f.checks[g.ID()]; runs {
		f.checks[g.ID()] = true
		return
	}
	if f.closed {
		return
	}
	f.checks[g.ID()] = false
	f.wg.Go(func() {
		for {
			if now, _ := g.Leader(); now == leader {
				once()
			}
			f.mu.Lock()
			if !f.checks[g.ID()] {
				delete(f.checks, g.ID())
				f.mu.Unlock()
				return
			}
			f.checks[g.ID()] = false
			f.mu.Unlock()
		}
	})
}

// checkProcess replaces a leader whose connection broke if its process is gone or does not lead any more.
func (f *Failover) checkProcess(g Group, leader, addr string) {
	for range probeTries {
		switch f.Probe(addr, leader, probeTimeout) {
		case Unknown:
		case Gone:
			f.Log.Warn("leader process ended", "event", "leader_process_gone", "group", GroupName(g.ID()),
				"node", f.Env.NodeOf(leader), "server", leader, "addr", addr)
			f.Replace(f.ctx, g, leader, false, never)
			return
		case Alive:
			// Raft closed a connection on its own, or the process was started again already.
			ctx, cancel := context.WithTimeout(f.ctx, probeTimeout)
			st, err := f.Env.StatusAt(ctx, addr, g.ID())
			cancel()
			if err == nil {
				if st.State == raft.Leader.String() {
					f.Log.Info("leader connection broke", "event", "leader_connection_broke",
						"group", GroupName(g.ID()), "node", f.Env.NodeOf(leader), "addr", addr)
				} else if st.Leader == "" || st.Leader == leader {
					f.Replace(f.ctx, g, leader, true, never)
				}
				return
			}
		}
		if !clock.Wait(f.ctx, f.Clock, campaignPauseMin/probeTries) {
			return
		}
	}
}

// Probe asks whether a server answers at an address, once for all callers at the same time. It blocks until the answer
// is clear, for timeout at most.
func (f *Failover) Probe(addr, server string, timeout time.Duration) Liveness {
	key := addr + " " + server + " " + timeout.String()
	f.mu.Lock()
	p := f.probes[key]
	if p == nil {
		if f.closed {
			f.mu.Unlock()
			return Unknown
		}
		p = &probe{done: make(chan struct{})}
		f.probes[key] = p
		f.wg.Go(func() {
			p.result = f.ask(addr, server, timeout)
			close(p.done)
			if p.result == Gone {
				clock.Wait(f.ctx, f.Clock, probeShared)
			}
			f.mu.Lock()
			delete(f.probes, key)
			f.mu.Unlock()
		})
	}
	f.mu.Unlock()
	<-p.done
	return p.result
}

// ask probes until the answer is clear. A process that dies may still accept a connection.
func (f *Failover) ask(addr, server string, timeout time.Duration) Liveness {
	ctx, cancel := context.WithTimeout(f.ctx, timeout)
	defer cancel()
	for {
		answers, err := f.Env.Probe(ctx, addr)
		var refused *transport.RefusedError
		switch {
		case err == nil && answers == server:
			return Alive
		case err == nil:
			return Gone // another server has the address
		case errors.Is(err, syscall.ECONNREFUSED):
			return Gone // the host answers for a port without a listener
		case errors.As(err, &refused) && refused.Code == transport.CodeForeignCluster:
			return Gone
		case errors.Is(err, transport.ErrClosed), ctx.Err() != nil:
			return Unknown
		}
		if !clock.Wait(ctx, f.Clock, probeShared) {
			return Unknown
		}
	}
}

// never is the returned function for a leader whose process is gone: a new process at its address leads
// nothing.
func never() bool { return false }

// Replace has the preferred candidate campaign until the group has another leader than the lost one. With pause it
// waits first: a leader that is alive and stepped down may have transferred its leadership. It ends when returned
// reports that the leader is heard again. It blocks for up to campaignTries pauses.
func (f *Failover) Replace(ctx context.Context, g Group, lost string, pause bool, returned func() bool) {
	for try := range campaignTries {
		if pause && !f.awaitLeader(ctx, g, lost) || returned() {
			return
		}
		pause = true
		s := f.survey(ctx, g, lost, surveyTimeout)
		if !s.votes || hasLeader(g, lost) {
			return
		}
		me := candidateOf(f.Server, f.Addr, g.Status())
		if c, campaign := preferred(me, s.others, s.unreachable, try); campaign {
			f.campaign(g, c, lost, try)
		}
	}
	f.awaitLeader(ctx, g, lost)
}

// campaign has a candidate campaign. One whose last campaign failed first concedes, and begins a new term.
func (f *Failover) campaign(g Group, c candidate, lost string, try int) {
	f.Log.Info("campaign started", "event", "campaign_started", "group", GroupName(g.ID()), "node", f.Env.NodeOf(c.server),
		"lost", f.Env.NodeOf(lost), "term", c.term+1, "try", try+1)
	var err error
	if c.state == raft.Candidate.String() {
		err = g.Concede(c.server, c.addr, c.term)
	}
	if err == nil && !hasLeader(g, lost) {
		err = g.Campaign(c.server, c.addr)
	}
	if err != nil && f.ctx.Err() == nil {
		f.Log.Warn("cannot campaign", "event", "campaign_failed", "group", GroupName(g.ID()), "node", f.Env.NodeOf(c.server), "error", err)
	}
}

// Begin has this server campaign for a group that it has just made, without waiting for the election timeout.
func (f *Failover) Begin(group uint32) {
	g, ok := f.Env.Group(group)
	if !ok {
		return
	}
	if leader, _ := g.Leader(); leader != "" {
		return
	}
	if err := g.Campaign(f.Server, ""); err != nil && f.ctx.Err() == nil {
		f.Log.Warn("cannot campaign", "event", "campaign_failed", "group", GroupName(group), "node", f.Node, "error", err)
	}
}

// hasLeader reports whether this node knows another leader of a group than the lost one.
func hasLeader(g Group, lost string) bool {
	id, _ := g.Leader()
	return g.State() == raft.Leader || id != "" && id != lost
}

// awaitLeader blocks until the group has a leader, a pause is over, or ctx ends. It returns true only after the pause.
func (f *Failover) awaitLeader(ctx context.Context, g Group, lost string) bool {
	f.mu.Lock()
	until := f.Clock.Now().Add(campaignPauseMin + time.Duration(f.Rand.Int64N(int64(campaignPauseMax-campaignPauseMin))))
	f.mu.Unlock()
	for f.Clock.Now().Before(until) {
		if hasLeader(g, lost) || !clock.Wait(ctx, f.Clock, leaderPoll) {
			return false
		}
	}
	return !hasLeader(g, lost)
}

// survey is the answers of a group's voters.
type survey struct {
	voters int
	votes  bool // this server is one of them
	others []candidate
	// unreachable did not answer in time. A halted voter is in neither list.
	unreachable []string
}

// survey asks the other voters but the lost leader. It blocks for timeout at most.
func (f *Failover) survey(ctx context.Context, g Group, lost string, timeout time.Duration) (out survey) {
	servers, err := g.Servers()
	if err != nil {
		return out
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answers, asked := make(chan candidate, len(servers)), 0
	for _, s := range servers {
		if s.Suffrage != raft.Voter {
			continue
		}
		out.voters++
		server := string(s.ID)
		switch server {
		case lost:
		case f.Server:
			out.votes = true
		default:
			addr := f.Env.AddrOf(server)
			if addr == "" {
				addr = string(s.Address)
			}
			if f.run(func() {
				st, err := f.Env.StatusAt(ctx, addr, g.ID())
				switch {
				case err != nil:
					answers <- candidate{position: position{server: server}}
				case st.Halted != "" || st.State == raft.Shutdown.String():
					answers <- candidate{}
				default:
					answers <- candidateOf(server, addr, st)
				}
			}) {
				asked++
			}
		}
	}
	for range asked {
		switch c := <-answers; {
		case c.server == "":
		case c.addr == "":
			out.unreachable = append(out.unreachable, c.server)
		default:
			out.others = append(out.others, c)
		}
	}
	return out
}
