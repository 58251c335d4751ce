package machine

import (
	"bytes"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/recovery"
)

// defaultInheritLimit is how many leases one InheritLeases looks at, unless it says less.
const defaultInheritLimit = 4096

// applyInheritLeases gives the leases that run their full time from a leader's clock on. It goes through the
// deadlines of leases in their order; those that it moves come later in the same order, where they are looked at
// once more and left alone. It is idempotent.
func applyInheritLeases(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req := cmd.GetInheritLeases()
	limit := int(req.Limit)
	if limit <= 0 || limit > defaultInheritLimit {
		limit = defaultInheritLimit
	}
	lower, upper := keys.DeadlineBounds(keys.DueLease, state.Never)
	if len(req.From) > 0 {
		if !bytes.HasPrefix(req.From, lower) || bytes.Compare(req.From, upper) >= 0 {
			return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "inherit leases: %x is no deadline of a lease", req.From)
		}
		lower = req.From
	}
	t.level = state.LevelLeases
	var due []state.Ref
	reply := &commandv1.InheritLeasesReply{}
	t.scan(lower, upper, func(key, _ []byte) bool {
		if len(due) == limit {
			reply.Next = append([]byte(nil), key...)
			return false
		}
		_, _, ns, objectID, err := keys.ParseDeadline(key)
		if err != nil {
			state.PanicCorrupt("deadline", key, err)
		}
		due = append(due, state.Ref{Namespace: ns, ID: objectID})
		return true
	})
	for _, d := range due {
		if recovery.InheritLease(t.store(d.Namespace), t.now, recovery.Ref{ID: d.ID}, req.NowMs) {
			reply.Extended++
		}
	}
	return &commandv1.Reply{Kind: &commandv1.Reply_InheritLeases{InheritLeases: reply}}, nil
}
