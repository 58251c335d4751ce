package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/cut"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// applyEnterCut has the partition enter a cut at the end of the entry, so that the state behind the entry is the
// partition's checkpoint whatever else the entry holds. The command is idempotent: a cut is entered once.
func applyEnterCut(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	now, entered := t.m.entering, false
	if now == 0 { // else the entry has one already: who wants another repeats the command
		if now, entered = cut.Enter(t.m.cut, cut.Number(cmd.GetEnterCut().Cut)); entered {
			t.m.entering = now
		}
	}
	return &commandv1.Reply{Kind: &commandv1.Reply_EnterCut{EnterCut: &commandv1.EnterCutReply{Cut: uint64(now), Entered: entered}}}, nil
}

// enterCut ends an entry: the partition is in the cut that a command of the entry has entered.
func (m *Machine) enterCut(index uint64, res *Result) error {
	if m.entering == 0 {
		return nil
	}
	m.cut, m.entering = m.entering, 0
	m.txn.begin(index)
	m.txn.level = state.LevelFunctions
	m.txn.put(keys.MetaKey(state.MetaCut), keys.AppendUint64(nil, uint64(m.cut)))
	res.Cut = uint64(m.cut)
	return m.txn.commitChecked(&res.Effects)
}

// admits reports whether the partition may apply what was sent in a cut.
func (t *txn) admits(sent uint64) bool { return cut.Admits(t.m.cut, cut.Number(sent)) }
