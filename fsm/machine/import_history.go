package machine

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/histories"
	"perdure/fsm/state"
	"perdure/id"
)

// ruleHistoryClock: nothing of an imported history is after the partition's time.
const ruleHistoryClock = "history_clock"

// applyImportHistory stores an execution that has ended elsewhere, with all that is below it, under this entry's index as
// its incarnation: the whole tree or nothing. Nothing of it runs, waits or is notified. It is idempotent by its content: an
// id that has the same history is answered as such.
//
// The proposer has audited the tree (histories.Check). The machine does not: the rules of audits differ between versions, and
// replicas of two versions must decide alike.
func applyImportHistory(t *txn, cmd *commandv1.Command) (*commandv1.Reply, *api.Error) {
	req, ns := cmd.GetImportHistory(), cmd.Namespace
	if err := id.ValidateRoot(req.Id); err != nil {
		return nil, badID(ns, err)
	}
	rows, err := histories.Rows(ns, req.Id, req.Records, t.index)
	if err != nil {
		return nil, histories.Refusal(ns, req.Id, err)
	}
	if latest := histories.Latest(req.Records); latest > t.now {
		return nil, api.Errorf(perdurev1.Reason_REASON_RULE_BROKEN, "history of %q: it has the time %d, and it is %d here", req.Id, latest, t.now).
			With("namespace", ns).With("id", req.Id).With("rule", ruleHistoryClock)
	}
	if h, ok := t.headerOf(ns, req.Id); ok && h.Purge != "" {
		return nil, beingPurged(&execution{ns: ns, h: h})
	}
	existed, err := histories.Stored(state.Must{From: t}, ns, req.Id, req.Records)
	if err != nil {
		return nil, histories.Refusal(ns, req.Id, err)
	}
	if !existed {
		t.level = max(t.level, state.LevelFunctions)
		for _, row := range rows {
			t.put(row.Key, row.Value)
		}
		for _, rec := range req.Records {
			if p := rec.GetPromise(); p != nil {
				t.fx.Settled = append(t.fx.Settled, state.Ref{Namespace: ns, ID: p.Id})
			}
		}
		t.forgetLast() // they may say that there is none
	}
	return &commandv1.Reply{Kind: &commandv1.Reply_ImportHistory{ImportHistory: &perdurev1.ImportHistoryResponse{Existed: existed}}}, nil
}
