package audit

import (
	"math"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/journal"
	"perdure/recovery"
)

// inHeader checks an execution whose header has its journal. That of an ended one also has its task, and perhaps its promise: nothing of
// them has a row of its own.
func (a *auditor) inHeader(ns string, h state.Header) {
	var entries []journal.Entry
	a.Entries(ns, &h, 0, math.MaxUint64, func(key, value []byte) bool {
		seq := uint64(len(entries))
		e, err := journal.DecodeEntry(value)
		switch {
		case err != nil:
			a.damaged(ns, h.ID, key, err.Error())
			e = journal.Entry{Seq: seq}
		case e.Seq != seq:
			a.violation(Violation{Rule: RuleMisplaced, Namespace: ns, ID: h.ID, Seq: seq, HasSeq: true, Detail: "its place inline is another's"})
		}
		entries = append(entries, e)
		return true
	})
	a.report.Events += uint64(len(entries))
	prefix := keys.JournalPrefix(ns, h.ID, h.Incarnation)
	a.Scan(prefix, keys.After(prefix), func(_, _ []byte) bool {
		a.found(ns, h.ID, RuleHeader, "its header has the journal, and there are rows of it")
		return false
	})
	if h.Inline != "" {
		a.inline(ns, h)
	}
	a.execution(ns, h, entries)
}

// inline checks what else an ended execution has in its header.
func (a *auditor) inline(ns string, h state.Header) {
	a.report.Tasks++
	if a.Has(keys.Of(keys.Task, ns, h.ID)) {
		a.found(ns, h.ID, RuleHeader, "its header has the task, and so has a row")
	}
	if p, ok := h.InlinePromise(); ok {
		a.report.Promises++
		if a.Has(keys.Of(keys.Promise, ns, h.ID)) {
			a.found(ns, h.ID, RuleHeader, "its header has the promise, and so has a row")
		}
		a.promiseItself(ns, p)
	}
	task, _ := h.InlineTask()
	a.broken(ns, recovery.CheckTask(objects{from: a.From, ns: ns}, task, a.report.ClockMS))
}
