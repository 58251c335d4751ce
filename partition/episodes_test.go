package partition

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// talk is the logger that a library gets, with what a node wrote because of it.
type talk struct {
	t     *testing.T
	clock *handClock
	e     *episodes
	log   *logBuffer
	seen  int
}

func newTalk(t *testing.T, level slog.Level) *talk {
	k := &talk{t: t, clock: newHandClock(), log: &logBuffer{}}
	stop := make(chan struct{})
	t.Cleanup(func() { close(stop) })
	k.e = newEpisodes(slog.New(slog.NewTextHandler(k.log, &slog.HandlerOptions{Level: level})), k.clock, stop)
	k.e.serverOf = func(peer string) string {
		if peer == "10.0.0.2:7402" {
			return "n2-aa"
		}
		return peer
	}
	k.e.nodeOf = func(server string) string { return strings.TrimSuffix(server, "-aa") }
	return k
}

func (k *talk) lines() []string {
	all := strings.Split(strings.TrimSpace(k.log.String()), "\n")
	if all[0] == "" {
		return nil
	}
	return all
}

// writes waits for the next lines, each with all of the words of one argument, and for no other.
func (k *talk) writes(lines ...string) {
	k.t.Helper()
	waitFor(k.t, "the lines", func() bool { return len(k.lines()) >= k.seen+len(lines) }, k.log.String)
	fresh := k.lines()[k.seen:]
	if len(fresh) != len(lines) {
		k.t.Fatalf("%d lines instead of %d:\n%s", len(fresh), len(lines), strings.Join(fresh, "\n"))
	}
	for i, words := range lines {
		for _, w := range strings.Split(words, "|") {
			if !strings.Contains(fresh[i], w) {
				k.t.Errorf("%q is not in the line %s", w, fresh[i])
			}
		}
	}
	k.seen += len(fresh)
}

// waits lets time pass once somebody waits for just that long.
func (k *talk) waits(d time.Duration) {
	k.t.Helper()
	waitFor(k.t, "somebody to wait "+d.String(), func() bool { return k.clock.armed(d) }, k.log.String)
	k.clock.advance(d)
}

var (
	deadPeer  = raft.Server{ID: "n2-aa", Address: "10.0.0.2:7402"}
	errHungUp = errors.New("dial tcp 10.0.0.2:7402: connect: connection refused")
)

// die has a group's library say what it says of a dead peer: five lines.
func die(l hclog.Logger) {
	l.Error("failed to heartbeat to", "peer", deadPeer.Address, "backoff time", time.Second, "error", errHungUp)
	l.Error("failed to appendEntries to", "peer", deadPeer, "error", errHungUp)
	l.Error("failed to make requestVote RPC", "target", deadPeer, "error", errHungUp, "term", 3)
	l.Warn("failed to contact", "server-id", deadPeer.ID, "time", 2*time.Second)
	l.Error("failed to pipeline appendEntries", "peer", deadPeer, "error", errHungUp)
}

// A dead peer is one line when it begins, one each minute, one when it is over, whatever groups complain of it.
func TestDeadPeerIsToldOnce(t *testing.T) {
	k := newTalk(t, slog.LevelInfo)
	groups := []hclog.Logger{k.e.libraryLogger("raft-0"), k.e.libraryLogger("raft-1"), k.e.libraryLogger("directory")}
	k.e.heard("n2-aa") // all is well
	for range 10 {
		for _, g := range groups {
			die(g)
		}
	}
	k.writes("level=WARN|event=peer_unreachable|node=n2|server=n2-aa|library=raft-0|connection refused")
	k.waits(time.Minute)
	k.writes("level=WARN|event=peer_unreachable|node=n2|for=1m0s|lines=149")
	die(groups[1])
	k.waits(time.Minute)
	k.writes("event=peer_unreachable|for=2m0s|lines=5")

	// It comes back, and one of its groups is not there yet: only a lasting answer counts.
	k.clock.advance(10 * time.Second)
	k.e.heard("n2-aa")
	waitFor(t, "the answer to be waited for", func() bool { return k.clock.armed(answerSettles) }, k.log.String)
	k.clock.advance(answerSettles - time.Second)
	die(groups[2])
	k.clock.advance(2 * time.Second)
	// Each step waits for the one who looks, so that he does not set his timer by the time of before.
	waitFor(t, "the next line to be waited for", func() bool { return k.clock.armed(46 * time.Second) }, k.log.String)
	k.e.heard("n3-bb")
	k.e.heard("n2-aa")
	waitFor(t, "the answer to be waited for again", func() bool { return k.clock.armed(answerSettles) }, k.log.String)
	k.clock.advance(time.Second)
	k.e.heard("n2-aa")
	k.waits(answerSettles - time.Second)
	k.writes("level=INFO|event=peer_reachable|node=n2|after=2m14s|lines=160")
	waitFor(t, "no peer in trouble", func() bool { return k.e.peers.Load() == 0 }, k.log.String)

	// Another trouble is told anew. Nobody tries the peer any more: that is the end of it.
	die(groups[0])
	k.writes("event=peer_unreachable|node=n2")
	k.waits(time.Minute)
	k.writes("event=peer_unreachable|lines=4")
	k.waits(time.Minute)
	k.writes("level=INFO|event=peer_untried|node=n2")
}

// Each line of a library has its place: routine is silent, what has an event is told under it, and what nobody
// foresaw comes through as it is, the first time and then once a minute with a count.
func TestLinesOfLibraries(t *testing.T) {
	k := newTalk(t, slog.LevelInfo)
	l := k.e.libraryLogger("raft-3")
	l.Info("entering follower state")
	l.Warn("heartbeat timeout reached, starting election", "last-leader-id", "n2-aa")
	l.Warn("appendEntries rejected, sending older logs", "peer", deadPeer, "next", 1)
	l.Warn("failed to get previous log", "previous-index", 1, "last-index", 0, "error", "log not found")
	l.Warn("failed to contact quorum of nodes, stepping down")
	k.writes("level=WARN|event=quorum_lost|library=raft-3")
	for range 7 {
		l.Warn("Election timeout reached, restarting election")
		l.Error("failed to append to logs", "error", "no space left on device")
	}
	k.writes("level=WARN|event=election_undecided", "level=ERROR|event=library|no space left")
	l.Warn("rejecting pre-vote request since our last index is greater", "candidate", "n2")
	k.writes("level=INFO|event=vote_refused|library=raft-3")
	waitFor(t, "all to wait", func() bool { return len(k.clock.timers()) == 4 }, k.log.String)
	k.clock.advance(time.Minute)
	waitFor(t, "two counts", func() bool { return len(k.lines()) == k.seen+2 }, k.log.String)
	for _, line := range k.lines()[k.seen:] {
		if !strings.Contains(line, "repeated=6") || !strings.Contains(line, "event=election_undecided") && !strings.Contains(line, "no space left") {
			t.Errorf("%s", line)
		}
	}
	k.seen += 2
	waitFor(t, "those that go on to wait", func() bool { return len(k.clock.timers()) == 2 }, k.log.String)
	k.clock.advance(time.Minute)
	waitFor(t, "nothing to wait", func() bool { return len(k.clock.timers()) == 0 }, k.log.String)
	k.writes()
	l.Error("failed to append to logs", "error", "no space left on device")
	k.writes("level=ERROR|no space left")
}

// At debug level every line is there, in its own words.
func TestDebugLosesNoLine(t *testing.T) {
	k := newTalk(t, slog.LevelDebug)
	l := k.e.libraryLogger("raft-0")
	for range 3 {
		die(l)
		l.Warn("appendEntries rejected, sending older logs", "peer", deadPeer, "next", 1)
		l.Debug("votes", "needed", 2)
	}
	text := k.log.String()
	for words, want := range map[string]int{
		`msg="failed to heartbeat to" event=library library=raft-0`: 3, `msg="failed to appendEntries to"`: 3, `msg="failed to contact"`: 3,
		`msg="failed to make requestVote RPC"`: 3, `msg="failed to pipeline appendEntries"`: 3, `msg="appendEntries rejected`: 3, "msg=votes": 3,
		"event=peer_unreachable": 1,
	} {
		if have := strings.Count(text, words); have != want {
			t.Errorf("%s: %d times, want %d", words, have, want)
		}
	}
}

// A dead peer of a real cluster is told in a few lines, and its return.
func TestDeadMemberInTheLog(t *testing.T) {
	logs := map[string]*logBuffer{}
	// Nobody is late enough for a leader to complain of a peer that lives.
	all := newClusterWith(t, 2, neverActs, func(cfg *Config) {
		logs[cfg.NodeID] = &logBuffer{}
		cfg.Logger = slog.New(slog.NewTextHandler(logs[cfg.NodeID], nil))
	})
	equalReplicas(t, all, 0)
	gone := all[2]
	gone.stop(t)
	told := func(event string) int {
		return strings.Count(logs[all[0].cfg.NodeID].String(), event) + strings.Count(logs[all[1].cfg.NodeID].String(), event)
	}
	waitFor(t, "the dead peer to be told", func() bool { return told("event=peer_unreachable node=n3") > 0 }, func() string { return "" })
	gone.start(t)
	waitFor(t, "its return to be told", func() bool { return told("event=peer_reachable node=n3") > 0 }, func() string { return "" })
	if n := told("event=peer_unreachable"); n > 4 {
		t.Errorf("%d lines of one dead peer on two nodes", n)
	}
	if n := told("level=ERROR"); n > 0 {
		t.Errorf("%d errors because a node was stopped", n)
	}
}
