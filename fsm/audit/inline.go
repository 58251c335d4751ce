package audit

import (
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/journal"
	"perdure/recovery"
)

// inline checks an execution whose header has its task and its journal, and perhaps its promise: nothing of them has a row of its own.
func (a *auditor) inline(ns string, h state.Header) {
	var entries []journal.Entry
	for i, value := range h.InlineEntries() {
		seq := uint64(i)
		e, err := journal.DecodeEntry(value)
		switch {
		case err != nil:
			a.damaged(ns, h.ID, keys.JournalEntry(ns, h.ID, h.Incarnation, seq), err.Error())
			e = journal.Entry{Seq: seq}
		case e.Seq != seq:
			a.violation(Violation{Rule: RuleMisplaced, Namespace: ns, ID: h.ID, Seq: seq, HasSeq: true, Detail: "its place inline is another's"})
		}
		entries = append(entries, e)
	}
	a.report.Events += uint64(len(entries))
	a.report.Tasks++
	if a.Has(keys.Of(keys.Task, ns, h.ID)) {
		a.found(ns, h.ID, RuleHeader, "its header has the task, and so has a row")
	}
	prefix := keys.JournalPrefix(ns, h.ID, h.Incarnation)
	a.Scan(prefix, keys.After(prefix), func(_, _ []byte) bool {
		a.found(ns, h.ID, RuleHeader, "its header has the journal, and there are rows of it")
		return false
	})
	if p, ok := h.InlinePromise(); ok {
		a.report.Promises++
		if a.Has(keys.Of(keys.Promise, ns, h.ID)) {
			a.found(ns, h.ID, RuleHeader, "its header has the promise, and so has a row")
		}
		a.promiseItself(ns, p)
	}
	task, _ := h.InlineTask()
	a.broken(ns, recovery.CheckTask(objects{from: a.From, ns: ns}, task, a.report.ClockMS))
	a.execution(ns, h, entries)
}
