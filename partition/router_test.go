package partition

import (
	"context"
	"testing"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/refusal"
)

// TestUnknownOutcomeStays: the refusal of a later attempt does not replace the unknown outcome of an earlier
// one, unless the machine itself refuses, which it never does after it has applied the request.
func TestUnknownOutcomeStays(t *testing.T) {
	n, _ := newGatedNode(t, 1)
	const (
		unknown  = perdurev1.Reason_REASON_OUTCOME_UNKNOWN
		later    = perdurev1.Reason_REASON_TRY_LATER
		stopping = perdurev1.Reason_REASON_SHUTTING_DOWN
	)
	for _, c := range []struct {
		answers []perdurev1.Reason
		want    perdurev1.Reason
	}{
		{[]perdurev1.Reason{perdurev1.Reason_REASON_OVERLOADED}, perdurev1.Reason_REASON_OVERLOADED},
		{[]perdurev1.Reason{unknown, perdurev1.Reason_REASON_OVERLOADED}, unknown},
		{[]perdurev1.Reason{later, unknown, later, perdurev1.Reason_REASON_OVERLOADED}, unknown},
		{[]perdurev1.Reason{unknown, perdurev1.Reason_REASON_CORRUPT}, unknown},
		{[]perdurev1.Reason{perdurev1.Reason_REASON_CORRUPT}, perdurev1.Reason_REASON_CORRUPT},
		{[]perdurev1.Reason{unknown, perdurev1.Reason_REASON_UNAUTHENTICATED}, unknown},
		{[]perdurev1.Reason{unknown, perdurev1.Reason_REASON_PERMISSION_DENIED}, unknown},
		{[]perdurev1.Reason{unknown, perdurev1.Reason_REASON_NODE_NOT_FOUND}, unknown},
		{[]perdurev1.Reason{unknown, perdurev1.Reason_REASON_PARTITION_NOT_FOUND}, unknown},
		{[]perdurev1.Reason{unknown, stopping}, unknown}, // and then the caller's time is up
		{[]perdurev1.Reason{unknown, later}, unknown},
		{[]perdurev1.Reason{unknown, perdurev1.Reason_REASON_NOT_LEADER}, unknown},
		{[]perdurev1.Reason{stopping}, stopping},
		{[]perdurev1.Reason{unknown, perdurev1.Reason_REASON_ID_CONFLICT}, perdurev1.Reason_REASON_ID_CONFLICT},
		{[]perdurev1.Reason{unknown, perdurev1.Reason_REASON_EXECUTION_NOT_FOUND}, perdurev1.Reason_REASON_EXECUTION_NOT_FOUND},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		k := 0
		err := n.router.route(ctx, 0, true, func(context.Context, localReplica, commandv1.PeersClient) error {
			reason := c.answers[k]
			if k++; k == len(c.answers) {
				switch reason {
				case stopping, later, perdurev1.Reason_REASON_NOT_LEADER:
					cancel() // it would try on
				}
			}
			return api.Errorf(reason, "as the script says")
		})
		cancel()
		if got := reasonOf(err); got != c.want {
			t.Errorf("%v: %v, must be %v", c.answers, got, c.want)
		}
	}
	// The node itself stops between two attempts.
	err := n.router.route(t.Context(), 0, true, func(context.Context, localReplica, commandv1.PeersClient) error {
		closeNode(t, n)
		return api.Errorf(unknown, "as the script says")
	})
	if got := reasonOf(err); got != unknown {
		t.Errorf("the node stops: %v, must be %v", got, unknown)
	}
}

// TestNoProposalOutlivesItsLeadership: what was queued under one leadership is not proposed under the next.
func TestNoProposalOutlivesItsLeadership(t *testing.T) {
	n, _ := newGatedNode(t, 1)
	r := n.router.Replicas()[0]
	present := enqueued(t, r, promiseCmd("present", 1<<40))
	cmd := promiseCmd("former", 1<<40)
	reserved := reservationOf(0, cmd)
	if err := n.shared.Admission.admit(reserved); err != nil {
		t.Fatal(err)
	}
	former, _, _ := r.pending.add(cmd, &leadership{r: r}, reserved)
	if res := present.wait(); res.err != nil {
		t.Errorf("the present one: %v", res.err)
	}
	<-former.done
	if err := former.result.err; err == nil || err.Reason != perdurev1.Reason_REASON_TRY_LATER {
		t.Errorf("the former one: %v", err)
	}
	if _, _, err := r.Query(t.Context(), Linearizable, promiseQuery("former")); reasonOf(err) != perdurev1.Reason_REASON_PROMISE_NOT_FOUND {
		t.Errorf("it was applied: %v", err)
	}
}

// pausedClock is a clock whose timers never fire.
type pausedClock struct{ Clock }

func (pausedClock) After(time.Duration) (<-chan time.Time, func()) { return nil, func() {} }

// changing is a replica that serves, and whose changes a test reports.
type changing struct {
	localReplica
	leader, serving chan struct{}
}

func (changing) Serving() bool                     { return true }
func (changing) Stopping() <-chan struct{}         { return nil }
func (c changing) LeaderChanged() <-chan struct{}  { return c.leader }
func (c changing) ServingChanged() <-chan struct{} { return c.serving }

// TestRouterWakesWithTheLeader: a request that was refused tries again when its partition is served, and when another
// leader is known, not when its pause is over.
func TestRouterWakesWithTheLeader(t *testing.T) {
	for name, change := range map[string]func(c changing){
		"serves":         func(c changing) { close(c.serving) },
		"another leader": func(c changing) { close(c.leader) },
	} {
		c := changing{leader: make(chan struct{}), serving: make(chan struct{})}
		r := newRouter(1, NewShared(SystemClock{}, Limits{}), pausedClock{SystemClock{}})
		r.local = func(uint32) localReplica { return c }
		tries := 0
		done := make(chan error, 1)
		tried := make(chan struct{}, 1)
		go func() {
			done <- r.route(t.Context(), 0, true, func(context.Context, localReplica, commandv1.PeersClient) error {
				if tries++; tries == 1 {
					tried <- struct{}{}
					return refusal.TryLater(0, "not yet")
				}
				return nil
			})
		}()
		<-tried
		change(c)
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
