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

// defaultInheritLimit bounds the leases that one InheritLeases reads, unless the command sets less.
const defaultInheritLimit = 4096

// applyInheritLeases extends each running lease to its full time, counted from a new leader's clock. It walks
// the lease deadlines in order. A lease that it moves appears later in the same order, where it is read again
// and left unchanged. The command is idempotent.
func applyInheritLeases(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req := cmd.GetInheritLeases()
	limit := int(req.Limit)
	if limit <= 0 || limit > defaultInheritLimit {
		limit = defaultInheritLimit
	}
	lower, upper := keys.DeadlineBounds(keys.DeadlineLease, state.Never)
	if len(req.From) > 0 {
		if !bytes.HasPrefix(req.From, lower) || bytes.Compare(req.From, upper) >= 0 {
			return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "inherit leases: %x is no deadline of a lease", req.From)
		}
		lower = req.From
	}
	t.level = state.LevelLeases
	var held []state.Ref
	reply := &commandv1.InheritLeasesReply{}
	t.scan(lower, upper, func(key, _ []byte) bool {
		if len(held) == limit {
			reply.Next = append([]byte(nil), key...)
			return false
		}
		_, _, ns, objectID, err := keys.ParseDeadline(key)
		if err != nil {
			state.PanicCorrupt("deadline", key, err)
		}
		held = append(held, state.Ref{Namespace: ns, ID: objectID})
		return true
	})
	for _, d := range held {
		if recovery.InheritLease(t.store(d.Namespace), t.now, recovery.Ref{ID: d.ID}, req.NowMs) {
			reply.Extended++
		}
	}
	return &commandv1.Reply{Kind: &commandv1.Reply_InheritLeases{InheritLeases: reply}}, nil
}
