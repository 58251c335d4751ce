package membership

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"perdure/internal/clock"
)

// reportQueue bounds the log lines that wait to be written. When it is full, further lines are dropped and
// counted: a blocked log must not stop gossip.
const reportQueue = 256

// quiet is the pause after a log line of a kind that any host can cause at will.
const quiet = 5 * time.Second

// reporter writes events to the logger on a goroutine of its own, for they arise under memberlist's lock.
type reporter struct {
	log     *slog.Logger
	clock   clock.Clock
	lines   chan line
	dropped atomic.Int64
	done    chan struct{}
	once    sync.Once

	refusals, trouble limiter
}

type line struct {
	level slog.Level
	text  string
	attrs []any
}

func newReporter(log *slog.Logger, c clock.Clock) *reporter {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &reporter{log: log, clock: c, lines: make(chan line, reportQueue), done: make(chan struct{})}
}

// run writes until close.
func (r *reporter) run() {
	for {
		select {
		case l := <-r.lines:
			r.write(l)
		case <-r.done:
			for {
				select {
				case l := <-r.lines:
					r.write(l)
				default:
					return
				}
			}
		}
	}
}

func (r *reporter) write(l line) {
	if n := r.dropped.Swap(0); n > 0 {
		r.log.Warn("gossip log lines dropped", "event", "log_dropped", "lines", n)
	}
	r.log.Log(context.Background(), l.level, l.text, l.attrs...)
}

// close lets run write what is queued and end. Later lines are lost.
func (r *reporter) close() { r.once.Do(func() { close(r.done) }) }

// event queues a line. It never blocks.
func (r *reporter) event(level slog.Level, event, text string, attrs ...any) {
	if !r.log.Enabled(context.Background(), level) {
		return
	}
	select {
	case r.lines <- line{level, text, append([]any{"event", event}, attrs...)}:
	default:
		r.dropped.Add(1)
	}
}

// refused reports something on the gossip port that was not accepted, at most once per quiet.
func (r *reporter) refused(reason string) {
	if ok, more := r.refusals.allow(r.clock.Now()); ok {
		r.event(slog.LevelWarn, "gossip_refused", "gossip packet refused", "reason", reason, "unreported", more)
	}
}

// limiter lets one of many through.
type limiter struct {
	mu      sync.Mutex
	next    time.Time
	skipped int
}

// allow reports whether to log now, and how many lines it has suppressed since the last one.
func (l *limiter) allow(now time.Time) (ok bool, skipped int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Before(l.next) {
		l.skipped++
		return false, 0
	}
	skipped, l.skipped, l.next = l.skipped, 0, now.Add(quiet)
	return true, skipped
}

// Write takes one line of memberlist's own log, which looks like "[WARN] memberlist: words from=addr".
func (r *reporter) Write(p []byte) (int, error) {
	level, words, found := strings.Cut(strings.TrimSpace(string(p)), " ")
	if !found {
		level, words = "[WARN]", strings.TrimSpace(string(p))
	}
	words = strings.TrimPrefix(words, "memberlist: ")
	switch kindOf(level, words) {
	case lineRefusal:
		r.refused(words)
	case lineTrouble:
		if ok, more := r.trouble.allow(r.clock.Now()); ok {
			r.event(slog.LevelWarn, "library", words, "library", "memberlist", "unreported", more)
			break
		}
		r.event(slog.LevelDebug, "library", words, "library", "memberlist")
	case lineRoutine:
		r.event(slog.LevelDebug, "library", words, "library", "memberlist")
	}
	return len(p), nil
}

type lineKind int

const (
	lineRoutine  lineKind = iota
	lineTrouble           // an operator should act
	lineRefusal           // something came in that was not accepted
	lineReported          // this package has reported it already
)

// reported are warnings and errors of memberlist about what this package reports itself.
var reported = []string{"ignoring alive message for"}

// routine are warnings and errors of memberlist that belong to every death and restart of a member.
var routine = []string{
	"Got ping for unexpected node", // asked for the instance that was at this address before
	"Push/Pull with",               // the member died; probing says so
	"Failed fallback TCP ping",
	"Failed to send",
	"Failed to forward",
	"Failed to push local state",
	"Refuting a dead message",
}

// refusals are warnings and errors about what came in, which do not say from where.
var refusals = []string{"Got invalid checksum", "cannot decode label", "remote state is larger"}

// kindOf sorts a line. memberlist ends what it says about an incoming message with its source.
func kindOf(level, words string) lineKind {
	starts := func(list []string) bool {
		for _, s := range list {
			if strings.HasPrefix(words, s) {
				return true
			}
		}
		return false
	}
	switch {
	case starts(reported):
		return lineReported
	case level == "[DEBUG]" || level == "[INFO]" || starts(routine):
		return lineRoutine
	case strings.Contains(words, " from=") || starts(refusals):
		return lineRefusal
	default:
		return lineTrouble
	}
}
