package raftlogger

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"perdure/internal/clock"
)

const (
	// reportEvery is the interval of an incident's lines. An incident ends after one without a line of its library.
	reportEvery = time.Minute
	// answersFor is how long a peer must answer without failing before it counts as reachable: a process that
	// starts opens its groups one after the other.
	answersFor = 3 * time.Second
)

// Options configures a Logger.
type Options struct {
	Log   *slog.Logger
	Clock clock.Clock
	// ServerOf returns the server id of a peer given by server id or address, NodeOf the node id of a server. Both
	// return their argument if they do not know it. Nil is one that knows nothing.
	ServerOf, NodeOf func(string) string
}

// Logger logs for libraries. All methods are safe for concurrent use. It has one goroutine per open incident, none
// while there is no problem.
type Logger struct {
	opts Options
	stop chan struct{}
	wg   sync.WaitGroup

	mu     sync.Mutex
	closed bool
	open   map[string]*incident
	// unreachable counts the peers that do not answer.
	unreachable atomic.Int32
}

// An incident is one problem from its first line on. Logger.mu guards its fields.
type incident struct {
	began      time.Time
	lines      int       // in all
	unreported int       // since the last line that was logged
	answered   time.Time // since when the peer answers; zero if it does not
	signal     chan struct{}
}

// New returns a Logger. The caller closes it.
func New(opts Options) *Logger {
	same := func(s string) string { return s }
	if opts.ServerOf == nil {
		opts.ServerOf = same
	}
	if opts.NodeOf == nil {
		opts.NodeOf = same
	}
	return &Logger{opts: opts, stop: make(chan struct{}), open: map[string]*incident{}}
}

// Close ends all incidents without a line and waits for their goroutines. Lines that come later are logged as they are.
func (l *Logger) Close() {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.stop)
	}
	l.mu.Unlock()
	l.wg.Wait()
}

func (l *Logger) log(level slog.Level, msg string, args ...any) {
	l.opts.Log.Log(context.Background(), level, msg, args...)
}

// add counts a line. If the line begins an incident, add returns it, and the caller runs follow for it.
func (l *Logger) add(key string) (began *incident) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if in := l.open[key]; in != nil {
		in.lines++
		in.unreported++
		in.answered = time.Time{}
		return nil
	}
	in := &incident{began: l.opts.Clock.Now(), lines: 1, signal: make(chan struct{}, 1)}
	if !l.closed {
		l.open[key] = in
	}
	return in
}

// follow runs an incident's goroutine, unless the Logger is closed.
func (l *Logger) follow(run func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.wg.Go(run)
	}
}

// takeUnreported returns how many lines were not reported yet, and ends the incident if there were none.
func (l *Logger) takeUnreported(key string, in *incident) (lines int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines, in.unreported = in.unreported, 0
	if lines == 0 {
		delete(l.open, key)
	}
	return lines
}

// repeatable logs a line, and its repetitions once a minute as a number.
func (l *Logger) repeatable(key string, level slog.Level, msg string, args []any) {
	in := l.add(key)
	if in == nil {
		return
	}
	l.log(level, msg, args...)
	l.follow(func() {
		for l.wait(nil, reportEvery) {
			lines := l.takeUnreported(key, in)
			if lines == 0 {
				return
			}
			l.log(level, msg, append(args[:len(args):len(args)], "repeated", lines)...)
		}
	})
}

// wait waits for d or a signal; false when the Logger closes.
func (l *Logger) wait(signal <-chan struct{}, d time.Duration) bool {
	c, stop := l.opts.Clock.After(d)
	defer stop()
	select {
	case <-c:
	case <-signal:
	case <-l.stop:
		return false
	}
	return true
}

// peerKey begins the key of a peer's incident.
const peerKey = "peer "

// peerFailed notes that a peer did not answer a library.
func (l *Logger) peerFailed(peer, library, msg string, err any) {
	server := l.opts.ServerOf(peer)
	in := l.add(peerKey + server)
	if in == nil {
		return
	}
	about := []any{"event", "peer_unreachable", "node", l.opts.NodeOf(server), "server", server}
	first := append(about[:len(about):len(about)], "library", library, "first", msg)
	if err != nil {
		first = append(first, "error", err)
	}
	l.unreachable.Add(1)
	l.log(slog.LevelWarn, "peer unreachable", first...)
	l.follow(func() {
		defer l.unreachable.Add(-1)
		l.followPeer(server, in, about)
	})
}

// followPeer reports on a peer until it answers, no library tries it any more, or the Logger closes.
func (l *Logger) followPeer(server string, in *incident, about []any) {
	key := peerKey + server
	report := in.began.Add(reportEvery)
	for {
		l.mu.Lock()
		answered, now := in.answered, l.opts.Clock.Now()
		at := report
		if !answered.IsZero() {
			at = answered.Add(answersFor)
		}
		if !now.Before(at) && !answered.IsZero() {
			delete(l.open, key)
			lines := in.lines
			l.mu.Unlock()
			about[1] = "peer_reachable"
			l.log(slog.LevelInfo, "peer reachable again", append(about,
				"after", answered.Sub(in.began).Round(time.Millisecond), "lines", lines)...)
			return
		}
		l.mu.Unlock()
		if !now.Before(at) {
			lines := l.takeUnreported(key, in)
			if lines == 0 {
				about[1] = "peer_untried"
				l.log(slog.LevelInfo, "unreachable peer no longer tried", about...)
				return
			}
			l.log(slog.LevelWarn, "peer still unreachable", append(about[:len(about):len(about)],
				"for", now.Sub(in.began).Round(time.Second), "lines", lines)...)
			report = now.Add(reportEvery)
			continue
		}
		if !l.wait(in.signal, at.Sub(now)) {
			return
		}
	}
}

// PeerAnswered notes that a server has answered. The transport calls it for each answer, so it costs one atomic read
// while every peer answers.
func (l *Logger) PeerAnswered(server string) {
	if l.unreachable.Load() == 0 {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if in := l.open[peerKey+server]; in != nil && in.answered.IsZero() {
		in.answered = l.opts.Clock.Now()
		select {
		case in.signal <- struct{}{}:
		default:
		}
	}
}
