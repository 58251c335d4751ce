package partition

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// episodeEvery is how often a trouble that goes on is told again, and after how long without a line it is over.
	episodeEvery = time.Minute
	// answerSettles is for how long a peer must answer, without failing, before that is told: a process that
	// starts opens its groups one after the other.
	answerSettles = 3 * time.Second
)

// episodes turns what libraries say again and again into events: one line when it begins, one each minute with
// the number of lines that it stands for, and for a peer one when it answers again. Nothing runs while
// there is no trouble.
type episodes struct {
	log   *slog.Logger
	clock Clock
	stop  <-chan struct{}
	// serverOf is the server id of a peer given by its server id or its address; nodeOf is the node id of a
	// server. Both may know less and give back what they got.
	serverOf, nodeOf func(string) string

	mu   sync.Mutex
	open map[string]*episode
	// peers counts the peers that do not answer.
	peers atomic.Int32
}

// An episode is one trouble from its first line on. Its fields are guarded by episodes.mu.
type episode struct {
	begun    time.Time
	lines    int       // in all
	untold   int       // since the last line that was written
	answered time.Time // since when the peer answers; zero if it does not
	poke     chan struct{}
}

func newEpisodes(log *slog.Logger, clock Clock, stop <-chan struct{}) *episodes {
	same := func(s string) string { return s }
	return &episodes{log: log, clock: clock, stop: stop, serverOf: same, nodeOf: same, open: map[string]*episode{}}
}

// say writes a line of the node's.
func (e *episodes) say(level slog.Level, msg string, args ...any) {
	e.log.Log(context.Background(), level, msg, args...)
}

// add counts a line of an episode; it answers the episode if the line has begun it.
func (e *episodes) add(key string) (begun *episode) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if ep := e.open[key]; ep != nil {
		ep.lines++
		ep.untold++
		ep.answered = time.Time{}
		return nil
	}
	ep := &episode{begun: e.clock.Now(), lines: 1, poke: make(chan struct{}, 1)}
	e.open[key] = ep
	return ep
}

// take answers how many lines were not told yet, and forgets the episode if there were none.
func (e *episodes) take(key string, ep *episode) (untold int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	untold, ep.untold = ep.untold, 0
	if untold == 0 {
		delete(e.open, key)
	}
	return untold
}

// repeatable writes a line, and what is repeated of it within a minute only as a number.
func (e *episodes) repeatable(key string, level slog.Level, msg string, args []any) {
	ep := e.add(key)
	if ep == nil {
		return
	}
	e.say(level, msg, args...)
	go func() {
		for e.wait(nil, episodeEvery) {
			untold := e.take(key, ep)
			if untold == 0 {
				return
			}
			e.say(level, msg, append(args[:len(args):len(args)], "repeated", untold)...)
		}
	}()
}

// wait waits for d, or until it is poked; false when the node stops.
func (e *episodes) wait(poke <-chan struct{}, d time.Duration) bool {
	c, stop := e.clock.After(d)
	defer stop()
	select {
	case <-c:
	case <-poke:
	case <-e.stop:
		return false
	}
	return true
}

// peerKey is the episode of a peer.
const peerKey = "peer "

// failed notes that a peer did not answer a library.
func (e *episodes) failed(peer, library, msg string, err any) {
	server := e.serverOf(peer)
	ep := e.add(peerKey + server)
	if ep == nil {
		return
	}
	e.peers.Add(1)
	who := []any{"event", "peer_unreachable", "node", e.nodeOf(server), "server", server}
	first := append(who[:len(who):len(who)], "library", library, "first", msg)
	if err != nil {
		first = append(first, "error", err)
	}
	e.say(slog.LevelWarn, "a peer does not answer; it is tried again", first...)
	go e.follow(server, ep, who)
}

// follow tells of a peer that does not answer until it does.
func (e *episodes) follow(server string, ep *episode, who []any) {
	defer e.peers.Add(-1)
	key := peerKey + server
	tell := ep.begun.Add(episodeEvery)
	for {
		e.mu.Lock()
		answered, now := ep.answered, e.clock.Now()
		due := tell
		if !answered.IsZero() {
			due = answered.Add(answerSettles)
		}
		if !now.Before(due) && !answered.IsZero() {
			delete(e.open, key)
			lines := ep.lines
			e.mu.Unlock()
			who[1] = "peer_reachable"
			e.say(slog.LevelInfo, "a peer answers again", append(who, "after", answered.Sub(ep.begun).Round(time.Millisecond), "lines", lines)...)
			return
		}
		e.mu.Unlock()
		if !now.Before(due) {
			untold := e.take(key, ep)
			if untold == 0 {
				who[1] = "peer_untried"
				e.say(slog.LevelInfo, "a peer that did not answer was not tried for a minute", who...)
				return
			}
			e.say(slog.LevelWarn, "a peer still does not answer", append(who[:len(who):len(who)],
				"for", now.Sub(ep.begun).Round(time.Second), "lines", untold)...)
			tell = now.Add(episodeEvery)
			continue
		}
		if !e.wait(ep.poke, due.Sub(now)) {
			return
		}
	}
}

// heard notes that a server has answered. It is called for each answer, so it costs nothing while there is no trouble.
func (e *episodes) heard(server string) {
	if e.peers.Load() == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if ep := e.open[peerKey+server]; ep != nil && ep.answered.IsZero() {
		ep.answered = e.clock.Now()
		select {
		case ep.poke <- struct{}{}:
		default:
		}
	}
}

// serverAt is the server id of a peer given by its server id or by its address, or else what was given.
func (n *Node) serverAt(peer string) string {
	peer, server, _ := strings.Cut(peer, "#")
	if server != "" {
		return server
	}
	for server, addr := range n.lookUp() {
		if addr == peer {
			return server
		}
	}
	return peer
}
