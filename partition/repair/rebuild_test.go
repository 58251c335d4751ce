package repair

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/clock"
	"perdure/partition/refusal"
)

// fixedClock shows the time that a test sets.
type fixedClock struct {
	clock.System
	now time.Time
}

// Now implements clock.Clock.
func (c *fixedClock) Now() time.Time { return c.now }

// TestFailuresLoggedOnce: a command that is repeated for as long as there is hope fills no log.
func TestFailuresLoggedOnce(t *testing.T) {
	var logged strings.Builder
	wall := &fixedClock{now: time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)}
	b := NewRebuilder(Options{Log: slog.New(slog.NewTextHandler(&logged, nil)), Clock: wall})
	lines := func(what string) int { return strings.Count(logged.String(), what) }
	later := fmt.Errorf("its leadership could not be handed on: %w", refusal.TryLater(1, "no member can take it now"))
	for range 4 {
		b.logFailure(1, later, false)
		b.logFailure(1, errors.New("no space left"), false)
	}
	if lines("level=WARN") != 1 || lines("level=ERROR") != 1 {
		t.Fatalf("of two reasons, four times each, was logged:\n%s", logged.String())
	}
	b.logFailure(2, later, true) // of another partition, and that replica is down now
	if lines("level=WARN") != 1 || lines("level=ERROR") != 2 {
		t.Errorf("of another partition was logged:\n%s", logged.String())
	}
	wall.now = wall.now.Add(repeatWithin + time.Second)
	b.logFailure(1, later, false)
	if lines("level=WARN") != 2 {
		t.Errorf("later was logged:\n%s", logged.String())
	}
}

// oneReplica is a node with one replica.
type oneReplica struct {
	Env
	halted error
}

func (o *oneReplica) Replica(uint32) Replica { return fakeReplica{halted: o.halted} }

// fakeReplica has halted for a reason, or has not.
type fakeReplica struct {
	Replica
	halted error
}

func (r fakeReplica) Halted() error { return r.halted }

// TestForget: a former replica is deleted only while the present one works and is not being rebuilt, and only the one
// that is named.
func TestForget(t *testing.T) {
	fs := vfs.NewMem()
	const name, other = "kept-0001-20260102T030405.000", "kept-0002-20260102T030405.000"
	for _, dir := range []string{name, other} {
		if err := fs.MkdirAll("data/"+dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	q, err := OpenQuarantine(fs, "data")
	if err != nil {
		t.Fatal(err)
	}
	env := &oneReplica{}
	b := NewRebuilder(Options{Env: env, Quarantine: q, NodeID: "n1", Log: slog.New(slog.DiscardHandler)})
	refused := func(what string, want perdurev1.Reason, forget string) {
		t.Helper()
		var e *api.Error
		if _, err := b.Forget(1, forget); !errors.As(err, &e) || e.Reason != want || len(q.List()) != 2 {
			t.Errorf("%s: %v, %d are left", what, err, len(q.List()))
		}
	}
	refused("another partition's", perdurev1.Reason_REASON_BAD_REQUEST, other)
	refused("a path", perdurev1.Reason_REASON_BAD_REQUEST, name+"/../state-0001")
	b.running[1] = true
	refused("during a rebuild", perdurev1.Reason_REASON_TRY_LATER, "")
	delete(b.running, 1)
	env.halted = errors.New("damaged")
	refused("while halted", perdurev1.Reason_REASON_MEMBERSHIP_REFUSED, name)
	env.halted = nil
	if r, err := b.Forget(1, name); err != nil || len(r.Forgotten) != 1 || len(q.List()) != 1 {
		t.Errorf("%v, %v", r, err)
	}
}
