package raftlogger

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"perdure/internal/clock"
	"perdure/internal/testkit"
)

// logged is a Logger in a bubble of virtual time, and what it has logged.
type logged struct {
	*Logger
	t    *testing.T
	text lockedText
	seen int
}

// inBubble runs a test with a Logger at a level, in virtual time.
func inBubble(t *testing.T, level slog.Level, test func(k *logged)) {
	synctest.Test(t, func(t *testing.T) {
		k := &logged{t: t}
		k.Logger = New(Options{
			Log:   slog.New(slog.NewTextHandler(&k.text, &slog.HandlerOptions{Level: level})),
			Clock: clock.System{},
			ServerOf: func(peer string) string {
				if peer == "10.0.0.2:7402" {
					return "n2-aa"
				}
				return peer
			},
			NodeOf: func(server string) string { return strings.TrimSuffix(server, "-aa") },
		})
		defer k.Close()
		test(k)
	})
}

func (k *logged) lines() []string {
	synctest.Wait()
	text := strings.TrimSpace(k.text.String())
	if text == "" {
		return nil
	}
	return strings.Split(text, "\n")
}

// lockedText is a buffer that a test reads while others may write.
type lockedText struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// expect fails unless the lines since the last call are these, each with all words between the bars.
func (k *logged) expect(lines ...string) {
	k.t.Helper()
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

var (
	deadPeer  = raft.Server{ID: "n2-aa", Address: "10.0.0.2:7402"}
	errHungUp = errors.New("dial tcp 10.0.0.2:7402: connect: connection refused")
)

// fail logs what a group's library says of a dead peer: five lines.
func fail(l hclog.Logger) {
	l.Error("failed to heartbeat to", "peer", deadPeer.Address, "backoff time", time.Second, "error", errHungUp)
	l.Error("failed to appendEntries to", "peer", deadPeer, "error", errHungUp)
	l.Error("failed to make requestVote RPC", "target", deadPeer, "error", errHungUp, "term", 3)
	l.Warn("failed to contact", "server-id", deadPeer.ID, "time", 2*time.Second)
	l.Error("failed to pipeline appendEntries", "peer", deadPeer, "error", errHungUp)
}

// TestDeadPeerIsReportedOnce: a dead peer is one line when it begins, one each minute, one when it ends, for
// all groups that report it.
func TestDeadPeerIsReportedOnce(t *testing.T) {
	inBubble(t, slog.LevelInfo, func(k *logged) {
		groups := []hclog.Logger{k.Named("raft-0"), k.Named("raft-1"), k.Named("directory")}
		k.PeerAnswered("n2-aa") // nothing is wrong
		for range 10 {
			for _, g := range groups {
				fail(g)
			}
		}
		k.expect("level=WARN|event=peer_unreachable|node=n2|server=n2-aa|library=raft-0|connection refused")
		testkit.Advance(reportEvery)
		k.expect("level=WARN|event=peer_unreachable|node=n2|for=1m0s|lines=149")
		fail(groups[1])
		testkit.Advance(reportEvery)
		k.expect("event=peer_unreachable|for=2m0s|lines=5")

		// It comes back, and one of its groups is not there yet: only a lasting answer counts.
		testkit.Advance(10 * time.Second)
		k.PeerAnswered("n2-aa")
		testkit.Advance(answersFor - time.Second)
		fail(groups[2])
		testkit.Advance(2 * time.Second)
		k.PeerAnswered("n3-bb")
		k.PeerAnswered("n2-aa")
		testkit.Advance(time.Second)
		k.PeerAnswered("n2-aa")
		k.expect()
		testkit.Advance(answersFor - time.Second)
		k.expect("level=INFO|event=peer_reachable|node=n2|after=2m14s|lines=160")
		if n := k.unreachable.Load(); n != 0 {
			t.Errorf("%d peers still count as unreachable", n)
		}

		// Another problem is another incident. It ends when no library tries the peer any more.
		fail(groups[0])
		k.expect("event=peer_unreachable|node=n2")
		testkit.Advance(reportEvery)
		k.expect("event=peer_unreachable|lines=4")
		testkit.Advance(reportEvery)
		k.expect("level=INFO|event=peer_untried|node=n2")
	})
}

// TestLinesOfLibraries: routine lines are silent, a line with an event has its name, and an unforeseen line appears as
// it is, the first time and then once a minute with a count.
func TestLinesOfLibraries(t *testing.T) {
	inBubble(t, slog.LevelInfo, func(k *logged) {
		l := k.Named("raft-3")
		l.Info("entering follower state")
		l.Warn("heartbeat timeout reached, starting election", "last-leader-id", "n2-aa")
		l.Warn("appendEntries rejected, sending older logs", "peer", deadPeer, "next", 1)
		l.Warn("failed to get previous log", "previous-index", 1, "last-index", 0, "error", "log not found")
		l.Error("failed to heartbeat to", "peer", deadPeer.Address, "backoff time", time.Second, "error", fmt.Errorf("a late answer: %w", raft.ErrLeadershipLost))
		l.Warn("failed to contact quorum of nodes, stepping down")
		k.expect("level=WARN|event=quorum_lost|library=raft-3")
		for range 7 {
			l.Warn("Election timeout reached, restarting election")
			l.Error("failed to append to logs", "error", "no space left on device")
		}
		k.expect("level=WARN|event=election_undecided", "level=ERROR|event=library|no space left")
		l.Warn("rejecting pre-vote request since our last index is greater", "candidate", "n2")
		k.expect("level=INFO|event=vote_refused|library=raft-3")
		testkit.Advance(reportEvery)
		counts := k.lines()[k.seen:]
		for _, line := range counts {
			if !strings.Contains(line, "repeated=6") || !strings.Contains(line, "event=election_undecided") && !strings.Contains(line, "no space left") {
				t.Errorf("%s", line)
			}
		}
		if len(counts) != 2 {
			t.Errorf("%d counts, want 2: %v", len(counts), counts)
		}
		k.seen += len(counts)
		testkit.Advance(reportEvery)
		k.expect()
		k.mu.Lock()
		n := len(k.open)
		k.mu.Unlock()
		if n != 0 {
			t.Errorf("%d incidents are open after a minute without a line", n)
		}
		l.Error("failed to append to logs", "error", "no space left on device")
		k.expect("level=ERROR|no space left")
	})
}

// TestDebugLosesNoLine: at debug level every line is there, in its own words.
func TestDebugLosesNoLine(t *testing.T) {
	inBubble(t, slog.LevelDebug, func(k *logged) {
		l := k.Named("raft-0")
		for range 3 {
			fail(l)
			l.Warn("appendEntries rejected, sending older logs", "peer", deadPeer, "next", 1)
			l.Debug("votes", "needed", 2)
		}
		text := strings.Join(k.lines(), "\n")
		for words, want := range map[string]int{
			`msg="failed to heartbeat to" event=library library=raft-0`: 3, `msg="failed to appendEntries to"`: 3, `msg="failed to contact"`: 3,
			`msg="failed to make requestVote RPC"`: 3, `msg="failed to pipeline appendEntries"`: 3, `msg="appendEntries rejected`: 3, "msg=votes": 3,
			"event=peer_unreachable": 1,
		} {
			if have := strings.Count(text, words); have != want {
				t.Errorf("%s: %d times, want %d", words, have, want)
			}
		}
	})
}

// TestClose: no goroutine outlives Close, which the bubble checks, and a line that comes later is logged.
func TestClose(t *testing.T) {
	inBubble(t, slog.LevelInfo, func(k *logged) {
		lib := k.Named("raft-0")
		fail(lib)
		lib.Error("failed to append to logs")
		k.Close()
		lib.Error("failed to take snapshot")
		k.expect("event=peer_unreachable", "failed to append to logs", "failed to take snapshot")
	})
}
