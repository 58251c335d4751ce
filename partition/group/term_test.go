package group

import (
	"testing"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/quota"
)

// TestNoProposalOutlivesItsLeadership: what was queued under one leadership is not proposed under the next.
func TestNoProposalOutlivesItsLeadership(t *testing.T) {
	n, _ := newGatedNode(t, 1)
	r := n.router.Replicas()[0]
	present := enqueued(t, r, promiseCmd("present", 1<<40))
	cmd := promiseCmd("former", 1<<40)
	reserved, err := n.shared.Admission.Reserve(0, cmd)
	if err != nil {
		t.Fatal(err)
	}
	former, _, _ := r.pending.add(cmd, &leadership{r: &r.leader}, reserved, quota.Charge{})
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
