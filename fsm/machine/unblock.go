package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/recovery"
)

// applyUnblocksDelivered removes unblocks that have reached their addresses.
func applyUnblocksDelivered(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	t.clientCommand()
	for _, u := range cmd.GetUnblocksDelivered().Unblocks {
		t.dropUnblock(u.Namespace, u.Id, u.Address)
	}
	return &commandv1.Reply{Kind: &commandv1.Reply_UnblocksDelivered{UnblocksDelivered: &commandv1.UnblocksDeliveredReply{}}}, nil
}

// unblock has an address told of a settled promise: at once by the leader, and until its delivery for at most
// state.MaxUnblockAgeMS. A client that waits for longer asks again, and the answer has the promise.
func (t *txn) unblock(ns, address string, p recovery.Promise) {
	t.dropUnblock(ns, p.ID, address)
	at := t.now + state.MaxUnblockAgeMS
	t.put(keys.Of(keys.Unblock, ns, address, p.ID), keys.AppendUint64(nil, uint64(at)))
	t.put(keys.DeadlineOf(keys.DeadlineUnblock, at, ns, state.UnblockID(p.ID, address)), []byte{})
	t.fx.expiration(at)
	t.fx.Unblocked = append(t.fx.Unblocked, Unblock{Namespace: ns, ID: p.ID, Address: address, Promise: p})
}

// dropUnblock removes an unblock, if there is one.
func (t *txn) dropUnblock(ns, objectID, address string) {
	key := keys.Of(keys.Unblock, ns, address, objectID)
	b, ok := t.get(key)
	if !ok {
		return
	}
	at, rest, err := keys.CutUint64(b)
	if err != nil || len(rest) > 0 {
		state.PanicCorrupt("unblock", key, err)
	}
	t.remove(key)
	t.remove(keys.DeadlineOf(keys.DeadlineUnblock, int64(at), ns, state.UnblockID(objectID, address)))
}

// expireUnblock gives up an unblock that was not delivered in time.
func (t *txn) expireUnblock(ns, unblockID string) {
	objectID, address := state.CutUnblockID(unblockID)
	t.dropUnblock(ns, objectID, address)
}
