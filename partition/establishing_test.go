package partition

import (
	"context"
	"testing"
	"time"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/refusal"
)

// TestRequestsAwaitTheElected: requests to an elected leader that does not serve yet wait for it and are not
// refused, so a failover costs callers no pauses between attempts.
func TestRequestsAwaitTheElected(t *testing.T) {
	n, _ := newGatedNode(t, 1)
	r := n.router.Replicas()[0]
	lead := r.lead.Swap(nil) // elected: Raft leads. It does not serve
	if !r.establishing() {
		t.Fatal("not establishing")
	}
	wrote, read := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := r.Propose(t.Context(), promiseCmd("p", 1<<40))
		wrote <- err
	}()
	go func() {
		_, _, err := r.Query(t.Context(), Linearizable, promiseQuery("none"))
		read <- err
	}()
	waitFor(t, "both to wait", func() bool {
		r.leads.mu.Lock()
		defer r.leads.mu.Unlock()
		return r.leads.next != nil
	}, func() string { return "" })
	select {
	case err := <-wrote:
		t.Fatalf("the write did not wait: %v", err)
	case err := <-read:
		t.Fatalf("the read did not wait: %v", err)
	default:
	}
	r.lead.Store(lead)
	r.notifyServing()
	if err := <-wrote; err != nil {
		t.Errorf("the write: %v", err)
	}
	if err := <-read; reasonOf(err) != perdurev1.Reason_REASON_PROMISE_NOT_FOUND {
		t.Errorf("the read: %v", err)
	}
	// A caller whose time is up waits no longer.
	r.lead.Store(nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Propose(ctx, promiseCmd("q", 1<<40)); reasonOf(err) != perdurev1.Reason_REASON_TRY_LATER {
		t.Errorf("%v", err)
	}
	r.lead.Store(lead)
}

// pausedClock is a clock whose timers never fire.
type pausedClock struct{ Clock }

func (pausedClock) After(time.Duration) (<-chan time.Time, func()) { return nil, func() {} }

// TestRouterWakesWithTheLeader: a request that was refused tries again when its partition is served, and when another
// leader is known, not when its pause is over.
func TestRouterWakesWithTheLeader(t *testing.T) {
	n, _ := newGatedNode(t, 1)
	r := n.router.Replicas()[0]
	n.router.clock = pausedClock{n.clock}
	for name, change := range map[string]func(){
		"serves":         r.notifyServing,
		"another leader": func() { r.setKnown("other", r.address) },
	} {
		tries := 0
		done := make(chan error, 1)
		tried := make(chan struct{}, 1)
		go func() {
			done <- n.router.route(t.Context(), 0, true, func(context.Context, *Replica, commandv1.PeersClient) error {
				if tries++; tries == 1 {
					tried <- struct{}{}
					return refusal.TryLater(0, "not yet")
				}
				return nil
			})
		}()
		<-tried
		change()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%s: the request waits for its pause", name)
		}
	}
}
