package group

import (
	"context"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/partition/addresses"
)

// tellAddresses sends the executes and unblocks of an entry. It does not block.
func (l *leadership) tellAddresses(fx *machine.Effects) {
	if len(fx.Executed) == 0 && len(fx.Unblocked) == 0 {
		return
	}
	executes := make([]addresses.Execute, len(fx.Executed))
	for i, e := range fx.Executed {
		executes[i] = addresses.Execute{Namespace: e.Namespace, ID: e.ID, Address: e.Address, Version: e.Version}
	}
	unblocks := make([]addresses.Unblock, len(fx.Unblocked))
	for i, u := range fx.Unblocked {
		unblocks[i] = addresses.Unblock{Namespace: u.Namespace, ID: u.ID, Address: u.Address}
	}
	l.r.addresses.Applied(l, executes, unblocks)
}

// Partition implements addresses.Leadership.
func (l *leadership) Partition() uint32 { return l.r.id }

// ask reads the applied state: what it shows is sent again or found over later if it is not the newest.
func (l *leadership) ask(q *commandv1.Query) (*commandv1.QueryReply, error) {
	reply, _, err := l.r.store.Query(q)
	if err != nil {
		return nil, err
	}
	if refused := wire.QueryError(reply); refused != nil {
		return nil, refused
	}
	return reply, nil
}

// Promise implements addresses.Leadership.
func (l *leadership) Promise(_ context.Context, namespace, id string) (*perdurev1.Promise, error) {
	reply, err := l.ask(&commandv1.Query{Namespace: namespace, Id: id, Kind: &commandv1.Query_Promise{Promise: &perdurev1.GetPromiseRequest{}}})
	if err != nil {
		return nil, err
	}
	return reply.GetPromise().GetPromise(), nil
}

// Messages implements addresses.Leadership.
func (l *leadership) Messages(_ context.Context, of addresses.Selection) (page addresses.Page, err error) {
	reply, err := l.ask(&commandv1.Query{Namespace: of.Namespace, Kind: &commandv1.Query_Messages{Messages: &commandv1.MessagesQuery{
		Address: of.Address.Address, Below: true, Limit: uint32(of.Most), ExecuteCursor: of.Executes, UnblockCursor: of.Unblocks}}})
	if err != nil {
		return page, err
	}
	m := reply.GetMessages()
	for _, e := range m.GetExecutes() {
		page.Executes = append(page.Executes, addresses.Execute{Namespace: of.Namespace, ID: e.Id, Address: e.Address, Version: e.Version})
	}
	for _, u := range m.GetUnblocks() {
		page.Unblocks = append(page.Unblocks, addresses.Unblock{Namespace: of.Namespace, ID: u.GetPromise().GetId(), Address: u.Address})
	}
	page.NextExecutes, page.NextUnblocks = m.GetExecuteCursor(), m.GetUnblockCursor()
	return page, nil
}

// HTTPAddresses implements addresses.Leadership.
func (l *leadership) HTTPAddresses(_ context.Context, most int) (out []addresses.Address, err error) {
	err = l.r.store.View(func(r state.Reader) error {
		return query.UnblockAddresses(r, "http", most, func(namespace, address string) {
			out = append(out, addresses.Address{Namespace: namespace, Address: address})
		})
	})
	return out, err
}

// Delivered implements addresses.Leadership.
func (l *leadership) Delivered(ctx context.Context, unblocks []addresses.Unblock) error {
	cmd := &commandv1.UnblocksDelivered{}
	for _, u := range unblocks {
		cmd.Unblocks = append(cmd.Unblocks, &commandv1.UnblockRef{Namespace: u.Namespace, Id: u.ID, Address: u.Address})
	}
	reply, err := l.r.commands.proposeUnder(ctx, l, &commandv1.Command{Kind: &commandv1.Command_UnblocksDelivered{UnblocksDelivered: cmd}})
	if err != nil {
		return err
	}
	if refused := wire.ReplyError(reply); refused != nil {
		return refused
	}
	return nil
}
