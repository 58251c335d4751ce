package histories

import (
	"fmt"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/journal"
)

// Rows are the rows of a tree in a namespace, all in one incarnation, with its listing. Its checks are those that every
// version of this program makes alike: replicas decide by them. The error is an *Error.
func Rows(ns, tree string, records []*perdurev1.HistoryRecord, incarnation uint64) (rows []state.Write, err error) {
	seen, executions := map[string]bool{}, map[string]bool{}
	for _, rec := range records {
		objectID := IDOf(rec)
		if !Within(tree, objectID) {
			return nil, &Error{objectID, RuleTree, fmt.Sprintf("is no part of %q", tree)}
		}
		more, err := rowsOf(ns, tree, rec, incarnation)
		if err != nil {
			return nil, err
		}
		for _, row := range more {
			if seen[string(row.Key)] {
				return nil, &Error{objectID, RuleTree, "has two records of one " + keys.NameOf(row.Key)}
			}
			seen[string(row.Key)] = true
		}
		rows = append(rows, more...)
		if e := rec.GetExecution(); e != nil {
			h, err := header(tree, e, incarnation)
			if err != nil {
				return nil, err
			}
			executions[objectID] = true
			rows = append(rows, listing(ns, h))
		}
	}
	if !executions[tree] {
		return nil, &Error{tree, RuleTree, "has no record of the execution itself"}
	}
	for _, rec := range records {
		if objectID := IDOf(rec); rec.GetPromise() == nil && !executions[objectID] {
			return nil, &Error{objectID, RuleTree, "has records, and none of the execution itself"}
		}
	}
	return rows, nil
}

// listing is the row that lists an execution that has ended.
func listing(ns string, h state.Header) state.Write {
	class := keys.Completed
	switch h.Status {
	case journal.StatusFailed:
		class = keys.Failed
	case journal.StatusCancelled:
		class = keys.Cancelled
	}
	return state.Write{Key: keys.VisibilityOf(ns, class, h.CreatedMS, h.ID), Value: state.ListingClosed(&h)}
}

// Latest is the latest time in the records of a tree, in milliseconds since the Unix epoch.
func Latest(records []*perdurev1.HistoryRecord) (ms int64) {
	for _, rec := range records {
		e, p, n := rec.GetExecution(), rec.GetPromise(), rec.GetNode()
		ms = max(ms, e.GetCreatedMs(), e.GetClosedMs(), p.GetCreatedMs(), p.GetSettledMs(), rec.GetEvent().GetEntry().GetTimeMs(), n.GetStartedMs(), n.GetEndedMs())
	}
	return ms
}

// Check checks a tree by all rules of an audit, as a state of its own. What passes leaves a state that has it without a
// violation. Versions of this program may differ in the rules of audits, so no replica asks this: the proposer of an
// import does. The error is an *Error.
func Check(tree string, records []*perdurev1.HistoryRecord) error {
	const ns, incarnation = "history", 1
	rows, err := Rows(ns, tree, records, incarnation)
	if err != nil {
		return err
	}
	latest := Latest(records)
	own := func(name string, n uint64) state.Write {
		return state.Write{Key: keys.MetaKey(name), Value: keys.AppendUint64(nil, n)}
	}
	mem := state.NewMemReader()
	mem.Apply(rows)
	mem.Apply([]state.Write{own(state.MetaApplied, incarnation), own(state.MetaClock, uint64(latest)), own(state.MetaFeature, state.FeatureLevel)})
	a, err := audit.New(state.Partition{Number: 0, Count: 1}, 1)
	if err == nil {
		_, err = a.Continue(mem, latest, nil)
	}
	if err != nil {
		return &Error{tree, audit.RuleDamaged, err.Error()}
	}
	if report := a.Report(); len(report.Violations) > 0 {
		v := report.Violations[0]
		return &Error{v.ID, v.Rule, v.Detail}
	}
	return nil
}
