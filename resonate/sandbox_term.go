package resonate

import (
	"context"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/partition/addresses"
)

// term is a sandbox from one reset to the next. The sandbox's lock guards it. To the dispatcher of messages it is a
// leadership: one that a reset has ended answers what it had, and its messages go nowhere.
type term struct {
	s       *Sandbox
	state   *state.MemReader
	machine *machine.Machine
	index   uint64
	// bytes are those that clients' commands have written.
	bytes int64
}

func newTerm(s *Sandbox) (*term, error) {
	t := &term{s: s, state: state.NewMemReader()}
	var err error
	if t.machine, err = machine.New(machine.Config{Partitions: 1, CheckInvariants: true}, t.state); err != nil {
		return nil, err
	}
	_, err = t.apply(0, &commandv1.Command{Kind: &commandv1.Command_RaiseLevel{RaiseLevel: &commandv1.RaiseLevel{Level: state.FeatureLevel}}})
	return t, err
}

// apply applies an entry, and has its messages sent.
func (t *term) apply(at int64, cmds ...*commandv1.Command) ([]*commandv1.Reply, error) {
	t.index++
	res, err := t.machine.Apply(t.index, &commandv1.Entry{TimeMs: at, ClientRetryMs: t.s.opts.Retry.Milliseconds(), Commands: cmds})
	if err != nil {
		return nil, brokenError(err)
	}
	if len(cmds) > 0 && cmds[0].GetTick() == nil {
		t.bytes += int64(t.machine.WriteBytes())
	}
	t.state.Apply(t.machine.Writes())
	t.machine.Committed()
	executes, unblocks := addresses.OfEntry(&res.Effects)
	t.s.streams.Applied(t, executes, unblocks)
	return res.Replies, nil
}

// ask answers a query.
func (t *term) ask(q *commandv1.Query) (*commandv1.QueryReply, error) {
	return query.Answer(t.state, 0, q)
}

// Partition implements addresses.Leadership.
func (t *term) Partition() uint32 { return 0 }

// Promise implements addresses.Leadership.
func (t *term) Promise(_ context.Context, namespace, id string) (*perdurev1.Promise, error) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return addresses.State(t.ask).Promise(namespace, id)
}

// Messages implements addresses.Leadership.
func (t *term) Messages(_ context.Context, of addresses.Selection) (addresses.Page, error) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return addresses.State(t.ask).Messages(of)
}

// HTTPAddresses implements addresses.Leadership.
func (t *term) HTTPAddresses(_ context.Context, most int) ([]addresses.Address, error) {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	return addresses.HTTPAddresses(t.state, most)
}

// Delivered implements addresses.Leadership.
func (t *term) Delivered(_ context.Context, unblocks []addresses.Unblock) error {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	_, err := t.apply(0, addresses.Forget(unblocks))
	return err
}
