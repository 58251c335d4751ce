package cluster

import (
	"context"
	"errors"
	"slices"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/directory"
	"perdure/partition/identity"
	"perdure/partition/refusal"
)

// How a member checks that it has not been replaced.
const (
	// CheckEvery is how often a member that may be replaced asks. checkCalm is how often it asks after an
	// answer that it was not.
	CheckEvery = time.Second
	checkCalm  = 5 * time.Second
	// answerTimeout bounds one answer, roundTimeout one round of questions.
	answerTimeout = time.Second
	roundTimeout  = 3 * time.Second
)

// Checked is closed once this server knows that it is a member, or has asked every server it knows of and got
// no answer: within a few seconds of Run. A server that was replaced has halted before, if it reached the
// directory's leader.
func (m *Member) Checked() <-chan struct{} { return m.checked }

// watchMembership checks that this server is still a member, whenever it may have been replaced, until the
// node stops.
func (m *Member) watchMembership() {
	for wait := time.Duration(0); m.pause(m.Lifetime, wait); {
		wait = CheckEvery
		if m.mayBeReplaced() {
			shown := m.askForDirectory(m.Lifetime)
			if m.Lifetime.Err() != nil || m.HaltIfReplaced(shown) {
				return
			}
			if _, sure := directory.Holds(shown, m.self.ServerID); sure {
				wait = checkCalm
			}
		}
		m.once.Do(func() { close(m.checked) })
	}
}

// mayBeReplaced reports whether this server may have been replaced. It may be if its directory has no leader
// (no server sends anything to one that is in no group), if the directory does not list it (which may only be
// behind), or if gossip names another server of its node. Each is a reason to ask, never to halt.
func (m *Member) mayBeReplaced() bool {
	if _, listed := directory.Holds(m.Directory(), m.self.ServerID); !listed || m.leaderAddr() == "" {
		return true
	}
	return slices.ContainsFunc(m.Gossip(), func(h Hint) bool { return h.NodeID == m.self.NodeID && h.ServerID != m.self.ServerID })
}

// HaltIfReplaced halts this server, and returns true, if a directory proves that another one has replaced it.
//
// Two rules keep an old directory from halting a server. Only the directory's leader shows its directory,
// after it has confirmed that it leads and applied what was decided before its term; a member that is behind
// answers NOT_LEADER. And if a server shows an old directory nevertheless, its epoch is too low: see
// directory.Successor.
func (m *Member) HaltIfReplaced(shown *commandv1.Directory) bool {
	if shown == nil || shown.ClusterId != m.self.ClusterID {
		return false
	}
	known, self := m.Directory().GetEpoch(), m.Identity.Identity()
	to := directory.Successor(shown, self.NodeID, self.ServerID, self.Since, known)
	if to == nil {
		if _, listed := directory.Holds(shown, self.ServerID); !listed {
			m.Log.Warn("older directory does not list this server", "event", "directory_old",
				"epoch", shown.Epoch, "known_epoch", known, "since", self.Since)
		}
		return false
	}
	self.Successor = &identity.Successor{ServerID: to.ServerId, PeerAddr: to.PeerAddr, Epoch: shown.Epoch}
	why := self.Replaced(m.DataDir)
	m.replaced.Store(&why)
	if err := m.Identity.Update(func(id *identity.Identity) { id.Successor = self.Successor }); err != nil {
		m.Log.Warn("cannot record the replacement of this server", "event", "identity_not_written", "error", err)
	}
	m.Env.Halt(why)
	return true
}

// askForDirectory asks every server that this one knows of for the directory, until the leader answers; nil
// if it does not. It asks the servers of its own log too: a server that was away may remember no other.
func (m *Member) askForDirectory(ctx context.Context) *commandv1.Directory {
	ctx, cancel := context.WithTimeout(ctx, roundTimeout)
	defer cancel()
	addrs := m.Others()
	if future := m.raft.GetConfiguration(); future.Error() == nil {
		for _, s := range future.Configuration().Servers {
			addrs = append(addrs, m.AddressOf(string(s.ID)), string(s.Address))
		}
	}
	for _, h := range m.Gossip() {
		addrs = append(addrs, h.PeerAddr)
	}
	tried := map[string]bool{"": true, m.port.Addr().String(): true, m.port.ListenAddr().String(): true}
	for len(addrs) > 0 && ctx.Err() == nil {
		addr := addrs[0]
		addrs = addrs[1:]
		if tried[addr] {
			continue
		}
		tried[addr] = true
		dir, err := m.directoryAt(ctx, addr)
		if err == nil {
			return dir
		}
		if leader, _ := refusal.Elsewhere(err); leader != "" {
			addrs = append([]string{leader}, addrs...)
		}
	}
	return nil
}

func (m *Member) directoryAt(ctx context.Context, addr string) (*commandv1.Directory, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	client, err := m.Env.Peer(addr)
	if err != nil {
		return nil, err
	}
	reply, err := client.ShowDirectory(ctx, &commandv1.ShowDirectoryRequest{})
	return reply.GetDirectory(), err
}

// MayAnswer returns why this server must not answer from its state without asking another one, or nil. It may
// have been replaced while it was away.
//
// After a start, a member's directory is applied only as far as a leader of its group has since said. So a
// directory that lists this server comes from a leader that took it for a member, in this run of the process.
// A server that leads a partition (leads) was elected by members.
func (m *Member) MayAnswer(leads bool) error {
	if why := m.replaced.Load(); why != nil {
		return *why
	}
	if leads || m.self.Alone() {
		return nil
	}
	if _, listed := directory.Holds(m.Directory(), m.self.ServerID); !listed {
		return errors.New("this server does not know yet whether it is still a member of its cluster: no leader has confirmed it since its start")
	}
	return nil
}

// noteFormer notes the servers that a change of the directory removes.
func (m *Member) noteFormer(was, is *commandv1.Directory) {
	for _, o := range was.GetMembers() {
		if _, still := directory.Holds(is, o.ServerId); !still {
			m.former.Store(o.ServerId, true)
		}
	}
}

// Removed reports whether a server was a member and is none any more: the groups refuse it. One
// that this node has never heard of is not removed: it may be a new member of which this node's directory, which
// arrives over these very connections, does not know yet.
func (m *Member) Removed(server string) bool {
	_, is := m.former.Load(server)
	return is
}

// IsMember reports whether a server is a member by this node's directory; without a directory every server counts as
// one. The peer port asks; it does not block.
func (m *Member) IsMember(server string) bool {
	if m.self.Alone() {
		return server == m.self.ServerID
	}
	dir := m.Directory()
	_, is := directory.Holds(dir, server)
	return is || dir == nil
}

// refusedEvery is how often refused calls of one server are logged, maxWarned how many servers are remembered for that:
// strangers may call themselves whatever they like.
const (
	refusedEvery = 10 * time.Second
	maxWarned    = 64
)

// MayCall says why a server may not call this node's Peers service, or nil. Without a directory every server may:
// this node then leads nothing, and cannot know which servers have joined since it was last here.
func (m *Member) MayCall(server string) error {
	dir := m.Directory()
	if _, listed := directory.Holds(dir, server); listed || dir == nil {
		return nil
	}
	err := api.Errorf(perdurev1.Reason_REASON_MEMBERSHIP_REFUSED, "server %q is not a member of cluster %s according to the directory of node %s (epoch %d)",
		server, m.self.ClusterID, m.self.NodeID, dir.Epoch).With("server", server)
	now := m.Clock.Now()
	m.mu.Lock()
	last := m.warned[server]
	warn := last.IsZero() || now.Sub(last) >= refusedEvery
	if warn {
		if m.warned == nil || len(m.warned) >= maxWarned {
			m.warned = map[string]time.Time{}
		}
		m.warned[server] = now
	}
	m.mu.Unlock()
	if warn {
		m.Log.Warn("refused calls of a server", "event", "call_refused", "server", server, "removed", m.Removed(server), "reason", err.Message)
	}
	return err
}
