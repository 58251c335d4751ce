package group

import (
	"context"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

// TestRequestsAwaitTheElected: requests to an elected leader that does not serve yet wait for it and are not
// refused, so a failover costs callers no pauses between attempts.
func TestRequestsAwaitTheElected(t *testing.T) {
	n, _ := newGatedNode(t, 1)
	r := n.router.Replicas()[0]
	lead := r.lead.Swap(nil) // elected: Raft leads. It does not serve
	if !r.Establishing() {
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
