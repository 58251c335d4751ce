package rpc

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/testkit"
	"perdure/partition/workers"
)

// callLease is the lease of the tasks below: no stall of the machine is as long, and no heartbeat of
// Outbound's own comes.
const callLease = time.Hour

// acquired is a session of the test's own, with a task that was acquired for it and is not begun.
func (n *outboundNode) acquired(ns, id, url string) (*outboundSession, workers.Delivery) {
	n.t.Helper()
	w := n.parts.Dispatcher().AttachOwn(workers.Spec{
		ID: "w-" + id, Namespace: ns, Functions: []string{functionOfHTTP}, LeaseMS: callLease.Milliseconds(), Capacity: 1,
	})
	n.t.Cleanup(w.Detach)
	n.submit(ns, id, url)
	d, ok := w.Next(n.t.Context())
	if !ok || d.Task == nil || d.Reserved.IsZero() {
		n.t.Fatalf("the worker got %+v", d)
	}
	return &outboundSession{ns: ns, worker: w, credit: 1}, d
}

// under is how many calls a session has under way.
func (n *outboundNode) under(s *outboundSession) int {
	n.out.mu.Lock()
	defer n.out.mu.Unlock()
	return s.under
}

// TestOutboundAsksForItsLease delivers a task late, or again by a new leader. The service is called once the
// partition has confirmed the lease, and not at all when the task has gone to another worker.
func TestOutboundAsksForItsLease(t *testing.T) {
	t.Parallel() // it waits most of the time
	n := newOutboundNode(t, callLease, time.Minute)
	var asked atomic.Int64
	var confirmed atomic.Pointer[time.Time]
	service := serve(t, func(http.ResponseWriter, *http.Request) {
		n.out.mu.Lock()
		defer n.out.mu.Unlock()
		for _, c := range n.out.calls {
			confirmed.Store(&c.confirmed)
		}
		asked.Add(1)
	})
	for _, c := range []struct {
		what     string
		reserved func(d time.Time) time.Time
		asks     bool
	}{
		{"in time", func(d time.Time) time.Time { return d }, false},
		{"of which nothing is known", func(time.Time) time.Time { return time.Time{} }, true},
		{"in its last part", func(d time.Time) time.Time { return d.Add(-callLease + callLease/16) }, true},
		{"after its lease", func(d time.Time) time.Time { return d.Add(-2 * callLease) }, true},
	} {
		s, d := n.acquired("ns", "ours "+c.what, service.URL)
		before := time.Now()
		d.Reserved = c.reserved(d.Reserved)
		asked.Store(0)
		n.out.begin(s, d)
		n.completes("ns", "ours "+c.what)
		if got := asked.Load(); got != 1 {
			t.Errorf("a task %s: %d calls", c.what, got)
		} else if at := *confirmed.Load(); c.asks == at.Before(before) {
			t.Errorf("a task %s, begun at %v, was called under a lease from %v", c.what, before, at)
		}
	}

	s, d := n.acquired("ns", "lost", service.URL)
	n.propose(&commandv1.Command{Namespace: "ns", Id: d.Token.Id, Kind: &commandv1.Command_Release{
		Release: &perdurev1.Release{Task: d.Token, DelayMs: callLease.Milliseconds()}}})
	asked.Store(0)
	d.Reserved = time.Time{}
	n.out.begin(s, d)
	eventually(t, "the task to be given up", func() bool { return n.under(s) == 0 }, func() string { return "it is under way" })
	if got := asked.Load(); got != 0 {
		t.Errorf("%d calls for a task that was another's", got)
	}
}

// TestOutboundEndsWithItsLease: a call under way ends when its lease was not confirmed for a whole lease, and
// continues while it is confirmed.
func TestOutboundEndsWithItsLease(t *testing.T) {
	t.Parallel() // it waits most of the time
	n := newOutboundNode(t, callLease, time.Minute)
	url, came, answer := heldCall(t)
	defer close(answer)
	s, d := n.acquired("ns", "x", url)
	n.out.begin(s, d)
	ended := await(t, "the call", came)
	confirmed := func(at time.Time) time.Time {
		n.out.mu.Lock()
		defer n.out.mu.Unlock()
		c := n.out.calls[callKey(d.Token)]
		if c == nil {
			t.Fatal("the call has ended")
		}
		if !at.IsZero() {
			c.confirmed = at
		}
		return c.confirmed
	}
	old := time.Now().Add(-callLease / 2)
	confirmed(old)
	n.out.beat()
	eventually(t, "the lease to be extended", func() bool { return confirmed(time.Time{}).After(old) }, func() string { return "it is not" })
	select {
	case <-ended:
		t.Error("a call was ended whose lease holds")
	default:
	}
	confirmed(time.Now().Add(-callLease - time.Second))
	n.out.beat()
	await(t, "the end of the call", ended)
}

// TestSinceEither: of the two clocks that a time.Time reads, the one on which more has passed counts.
func TestSinceEither(t *testing.T) {
	from := time.Now()
	for _, c := range []struct {
		what                  string
		wall, monotonic, want time.Duration
	}{
		{"both went on", time.Second, time.Second, time.Second},
		{"the machine was suspended", time.Minute, time.Second, time.Minute},
		{"the wall's clock was set back", -time.Minute, time.Second, time.Second},
	} {
		if got := sinceEither(from, testkit.Reading(t, from, c.wall, c.monotonic)); got != c.want {
			t.Errorf("%s: %v, want %v", c.what, got, c.want)
		}
	}
}
