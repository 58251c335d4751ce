package recovery

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// The times most tests use: retry is the retry interval, ttl the lease, both in milliseconds.
const (
	retry = 100
	ttl   = 50
)

// The shows print every field that has a value, in one line, so that a difference is readable.

func showPromise(p Promise) string {
	var b strings.Builder
	fmt.Fprintf(&b, "promise %s#%d %s timeout=%d created=%d", p.ID, p.Incarnation, p.State, p.TimeoutAt, p.CreatedAt)
	if p.State.Settled() {
		fmt.Fprintf(&b, " settled=%d", p.SettledAt)
	}
	for _, f := range []struct {
		name, value string
	}{{"target", p.Target}, {"param", string(p.Param)}, {"value", string(p.Value)}} {
		if f.value != "" {
			fmt.Fprintf(&b, " %s=%s", f.name, f.value)
		}
	}
	if p.DelayUntil != 0 {
		fmt.Fprintf(&b, " delay=%d", p.DelayUntil)
	}
	if p.Timer {
		b.WriteString(" timer")
	}
	if p.External {
		b.WriteString(" external")
	}
	for _, t := range p.Tags {
		fmt.Fprintf(&b, " %s:%s", t.Key, t.Value)
	}
	return b.String()
}

func showTask(t Task) string {
	var b strings.Builder
	fmt.Fprintf(&b, "task %s#%d %s v%d target=%s", t.ID, t.Incarnation, t.State, t.Version, t.Target)
	if t.PID != "" || t.TTL != 0 || t.LeaseAt != 0 {
		fmt.Fprintf(&b, " pid=%s ttl=%d lease=%d", t.PID, t.TTL, t.LeaseAt)
	}
	if t.RetryAt != 0 {
		fmt.Fprintf(&b, " retry=%d", t.RetryAt)
	}
	if len(t.Resumes) > 0 {
		fmt.Fprintf(&b, " resumes=%s", strings.Join(t.Resumes, ","))
	}
	return b.String()
}

func showExecute(e Execute) string {
	return fmt.Sprintf("execute %s#%d v%d to %s", e.ID, e.Incarnation, e.Version, e.Target)
}

func showUnblock(u Unblock) string {
	return fmt.Sprintf("unblock %s: %s", u.Address, showPromise(u.Promise))
}

func showEffects(fx Effects) []string {
	var lines []string
	for _, e := range fx.Executes {
		lines = append(lines, showExecute(e))
	}
	for _, u := range fx.Unblocks {
		lines = append(lines, showUnblock(u))
	}
	return lines
}

// dump prints a whole state.
func dump(s *MemStore) string {
	var lines []string
	for p := range s.Promises() {
		lines = append(lines, showPromise(p))
	}
	for t := range s.Tasks() {
		lines = append(lines, showTask(t))
	}
	for awaited, awaiter := range s.AllCallbacks() {
		lines = append(lines, "callback "+awaited+" wakes "+awaiter)
	}
	for id, address := range s.AllListeners() {
		lines = append(lines, "listener "+id+" notifies "+address)
	}
	for id, at := range s.PromiseTimers() {
		lines = append(lines, fmt.Sprintf("timer %s at %d", id, at))
	}
	for t := range s.TaskTimers() {
		lines = append(lines, fmt.Sprintf("timer %s kind %d at %d", t.ID, t.Kind, t.At))
	}
	return strings.Join(lines, "\n") + "\n"
}

// world is a store with the checks that every step must pass.
type world struct {
	*testing.T
	s *MemStore
}

func newWorld(t *testing.T) *world { return &world{T: t, s: NewMemStore()} }

// ok demands that the operation before it succeeded and left a sound state.
func (w *world) ok(now int64, err error) {
	w.Helper()
	if err != nil {
		w.Fatalf("at %d: %v", now, err)
	}
	w.sound(now)
}

func (w *world) sound(now int64) {
	w.Helper()
	for _, v := range Invariants(w.s, now) {
		w.Errorf("at %d: %v", now, v)
	}
}

// refused demands that op is refused by the given rule and changes nothing.
func (w *world) refused(code Code, rule string, op func() error) *Error {
	w.Helper()
	before := dump(w.s)
	err := op()
	var e *Error
	switch {
	case !errors.As(err, &e):
		w.Fatalf("got error %v, want %s by rule %s", err, code, rule)
	case e.Code != code || e.Rule != rule:
		w.Fatalf("got %v, want %s by rule %s", e, code, rule)
	}
	if after := dump(w.s); after != before {
		w.Fatalf("%v, but the state changed:\n%s\nto\n%s", e, before, after)
	}
	return e
}

func (w *world) promise(id string) Promise {
	w.Helper()
	p, ok := w.s.Promise(id)
	if !ok {
		w.Fatalf("no promise %q", id)
	}
	return p
}

func (w *world) task(id string) Task {
	w.Helper()
	t, ok := w.s.Task(id)
	if !ok {
		w.Fatalf("no task %q", id)
	}
	return t
}

// is demands that a show is as given.
func (w *world) is(got, want string) {
	w.Helper()
	if got != want {
		w.Errorf("got  %s\nwant %s", got, want)
	}
}

func (w *world) effects(fx Effects, want ...string) {
	w.Helper()
	if got := showEffects(fx); !slices.Equal(got, want) {
		w.Errorf("got effects %q\nwant %q", got, want)
	}
}

// make creates a promise at time 0; with a target "w" if worked, else external.
func (w *world) make(id string, worked bool, timeoutAt int64) {
	w.Helper()
	req := CreateRequest{ID: id, Incarnation: 7, TimeoutAt: timeoutAt, External: !worked}
	if worked {
		req.Target = "w"
	}
	_, _, err := Create(w.s, 0, req, retry)
	w.ok(0, err)
}

// hold creates a promise with a task that process "p" holds at version 1 since time 0.
func (w *world) hold(id string, timeoutAt int64) TaskRef {
	w.Helper()
	c, err := CreateAcquired(w.s, 0, CreateRequest{ID: id, Incarnation: 7, TimeoutAt: timeoutAt, Target: "w"}, "p", ttl)
	w.ok(0, err)
	return c.Task.ref()
}

// sleep makes a held task wait for others since time 1.
func (w *world) sleep(id string, timeoutAt int64, awaited ...string) {
	w.Helper()
	ref := w.hold(id, timeoutAt)
	var refs []Ref
	for _, a := range awaited {
		refs = append(refs, Ref{ID: a})
	}
	got, err := Suspend(w.s, 1, ref, refs, false)
	w.ok(1, err)
	if got.Task.State != TaskSuspended {
		w.Fatalf("%s did not suspend: %v", id, got)
	}
}
