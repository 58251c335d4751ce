package machine

import (
	"bytes"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// applyTrim removes acknowledged messages from the outbox; none before the partition has entered the cut of the
// acknowledgement, because this partition's checkpoint must have the messages that the receiver's has not.
func applyTrim(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req := cmd.GetTrim()
	if !t.admits(req.Cut) {
		return nil, api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN, "an acknowledgement of cut %d by partition %d, partition %d is in cut %d",
			req.Cut, req.Destination, t.m.cfg.Partition, t.m.cut).With("rule", "cut")
	}
	lower := keys.OutboxPrefix(req.Destination, req.Epoch)
	front, err := state.OutboxFront(t, req.Destination)
	if err != nil {
		panic(state.Fault{Err: err})
	}
	if bytes.Compare(lower, front) < 0 {
		lower = front
	}
	upper := keys.OutboxOf(req.Destination, req.Epoch, req.Through+1)
	var trimmed [][]byte
	if bytes.Compare(lower, upper) >= 0 {
		return &commandv1.Reply{Kind: &commandv1.Reply_Trim{Trim: &commandv1.TrimReply{}}}, nil
	}
	size := uint64(0)
	t.scan(lower, upper, func(key, value []byte) bool {
		trimmed = append(trimmed, append([]byte(nil), key...))
		size += uint64(len(value))
		return true
	})
	for _, key := range trimmed {
		t.remove(key)
	}
	key := keys.Number(keys.Channel, req.Destination)
	if ch := t.channel(key); ch.Bytes > 0 && size > 0 {
		ch.Bytes -= min(size, ch.Bytes)
		t.put(key, ch.Encode())
	}
	return &commandv1.Reply{Kind: &commandv1.Reply_Trim{Trim: &commandv1.TrimReply{}}}, nil
}
