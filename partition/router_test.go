package partition

import (
	"context"
	"testing"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
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
		err := n.router.route(ctx, 0, true, func(context.Context, *Replica, commandv1.PeersClient) error {
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
	err := n.router.route(t.Context(), 0, true, func(context.Context, *Replica, commandv1.PeersClient) error {
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
	if err := n.admission.admit(reserved); err != nil {
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
