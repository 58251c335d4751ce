package membership

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"perdure/internal/clock"
)

func TestLinesOfTheLibrary(t *testing.T) {
	for line, want := range map[string]lineKind{
		"[DEBUG] memberlist: Stream connection from=127.0.0.1:5":                                            lineRoutine,
		"[INFO] memberlist: Suspect x has failed, no acks received":                                         lineRoutine,
		"[ERR] memberlist: Decrypt packet failed: no installed keys from=1.2.3.4:5":                         lineRefusal,
		"[ERR] memberlist: discarding stream with unacceptable label \"\": from=1.2.3.4:5":                  lineRefusal,
		"[ERR] memberlist: failed to receive and remove the stream label header: EOF from=1.2.3.4:5":        lineRefusal,
		"[WARN] memberlist: Got invalid checksum for UDP packet: 1, 2":                                      lineRefusal,
		"[WARN] memberlist: Got ping for unexpected node 'x~1' from=1.2.3.4:5":                              lineRoutine,
		"[ERR] memberlist: Failed to send ack: closed from=1.2.3.4:5":                                       lineRoutine,
		"[ERR] memberlist: Push/Pull with x failed: EOF":                                                    lineRoutine,
		"[WARN] memberlist: ignoring alive message for 'x': membership: a node of another cluster":          lineReported,
		"[WARN] memberlist: Was able to connect to x over TCP but UDP probes failed, network misconfigured": lineTrouble,
		"[WARN] memberlist: Refuting a suspect message (from: x)":                                           lineTrouble,
		"words": lineTrouble,
	} {
		b := new(book)
		r := newReporter(slog.New(b), clock.System{})
		go r.run()
		if n, err := r.Write([]byte(line + "\n")); n != len(line)+1 || err != nil {
			t.Fatal(n, err)
		}
		r.event(slog.LevelInfo, "end", "end")
		eventually(t, "the lines to be written", func() (string, bool) { return b.String(), b.count("end") == 1 })
		r.close()
		got := lineReported
		for _, e := range b.events {
			switch {
			case e.name == "gossip_refused" && e.level == slog.LevelWarn:
				got = lineRefusal
			case e.name == "library" && e.level == slog.LevelWarn:
				got = lineTrouble
			case e.name == "library" && e.level == slog.LevelDebug:
				got = lineRoutine
			}
		}
		if got != want {
			t.Errorf("%q is of kind %d, want %d", line, got, want)
		}
	}
}

func TestLimiter(t *testing.T) {
	var l limiter
	now := time.Unix(1000, 0)
	for i := range 5 {
		if ok, _ := l.allow(now.Add(time.Duration(i) * time.Second)); ok != (i == 0) {
			t.Errorf("at second %d: %v", i, ok)
		}
	}
	if ok, skipped := l.allow(now.Add(quiet)); !ok || skipped != 4 {
		t.Errorf("after the pause: %v, %d skipped", ok, skipped)
	}
}

// stuck is a handler that blocks until it is released.
type stuck struct {
	*book
	release chan struct{}
}

func (s stuck) Handle(ctx context.Context, r slog.Record) error {
	<-s.release
	return s.book.Handle(ctx, r)
}

func (s stuck) WithAttrs([]slog.Attr) slog.Handler { return s }
func (s stuck) WithGroup(string) slog.Handler      { return s }

// A blocked log does not stop gossip; lost lines are counted.
func TestStuckLog(t *testing.T) {
	s := stuck{new(book), make(chan struct{})}
	a := start(t, "a", func(c *Config) { c.Logger = slog.New(s) })
	release := sync.OnceFunc(func() { close(s.release) })
	t.Cleanup(release) // before a is closed, which writes the log out
	b := start(t, "b", join(a))
	a.sees(t, "a-1", "b-1")
	for range 2 * reportQueue {
		a.report.event(slog.LevelInfo, "filler", "filler")
	}
	c := start(t, "c", join(b))
	a.sees(t, "a-1", "b-1", "c-1")
	c.sees(t, "a-1", "b-1", "c-1")
	release()
	eventually(t, "the loss to be counted", func() (string, bool) { return s.String(), s.count("log_dropped") > 0 })
}
