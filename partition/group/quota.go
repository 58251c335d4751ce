package group

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
	"perdure/partition/quota"
)

// charge charges a command to its namespace's quotas, or refuses it.
func (r *proposer) charge(cmd *commandv1.Command) (quota.Charge, *api.Error) {
	if r.env.Admit == nil {
		return quota.Charge{}, nil
	}
	return r.env.Admit(cmd, func() bool { return r.exists(cmd) })
}

// exists reports whether a command's execution is open, or has ended and a start of the id would return it: a caller that repeats
// its start gets the answer however much its namespace uses.
func (r *proposer) exists(cmd *commandv1.Command) (there bool) {
	if r.store.Free(cmd.Namespace, cmd.Id) {
		return false
	}
	_ = r.store.Peek(func(s state.Reader) error {
		h, ok, err := state.ReadHeader(s, cmd.Namespace, cmd.Id)
		there = ok && (!h.Status.Terminal() || cmd.GetStart() != nil && cmd.GetStart().Reuse == 0 || cmd.GetSubmitGraph() != nil)
		return err
	})
	return there
}
