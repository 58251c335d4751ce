package group

import (
	"context"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/partition/addresses"
)

// tellAddresses sends the executes and unblocks of an entry. It does not block.
func (l *leadership) tellAddresses(fx *machine.Effects) {
	if executes, unblocks := addresses.OfEntry(fx); len(executes) > 0 || len(unblocks) > 0 {
		l.r.addresses.Applied(l, executes, unblocks)
	}
}

// Partition implements addresses.Leadership.
func (l *leadership) Partition() uint32 { return l.r.id }

// applied reads the applied state.
func (l *leadership) applied(q *commandv1.Query) (*commandv1.QueryReply, error) {
	reply, _, err := l.r.store.Query(q)
	return reply, err
}

// Promise implements addresses.Leadership.
func (l *leadership) Promise(_ context.Context, namespace, id string) (*perdurev1.Promise, error) {
	return addresses.State(l.applied).Promise(namespace, id)
}

// Messages implements addresses.Leadership.
func (l *leadership) Messages(_ context.Context, of addresses.Selection) (addresses.Page, error) {
	return addresses.State(l.applied).Messages(of)
}

// HTTPAddresses implements addresses.Leadership.
func (l *leadership) HTTPAddresses(_ context.Context, most int) (out []addresses.Address, err error) {
	err = l.r.store.View(func(r state.Reader) (err error) {
		out, err = addresses.HTTPAddresses(r, most)
		return err
	})
	return out, err
}

// Delivered implements addresses.Leadership.
func (l *leadership) Delivered(ctx context.Context, unblocks []addresses.Unblock) error {
	reply, err := l.r.commands.proposeUnder(ctx, l, addresses.Forget(unblocks))
	if err != nil {
		return err
	}
	if refused := wire.ReplyError(reply); refused != nil {
		return refused
	}
	return nil
}
