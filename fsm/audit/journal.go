package audit

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/journal"
)

// journalGroup is one journal while an audit reads it.
type journalGroup struct {
	open        bool
	ns, id      string
	incarnation uint64
	prefix      []byte
	entries     []journal.Entry
}

// continues reports whether a key belongs to the journal being read.
func (g *journalGroup) continues(key []byte) bool {
	return g.open && len(key) > len(g.prefix) && bytes.Equal(key[:len(g.prefix)], g.prefix)
}

// entry takes one journal entry; endGroup checks it with its whole journal.
func (a *auditor) entry(key, value []byte) {
	ns, more, rest, ok := a.parts(key, 1)
	if !ok {
		return
	}
	objectID := more[0]
	if len(rest) != 8+8 {
		a.damaged(ns, objectID, key, fmt.Sprintf("%d bytes behind the id, not 16", len(rest)))
		return
	}
	a.report.Events++
	incarnation, seq := binary.BigEndian.Uint64(rest), binary.BigEndian.Uint64(rest[8:])
	if g := &a.group; !g.open || g.ns != ns || g.id != objectID || g.incarnation != incarnation {
		a.endGroup()
		a.group = journalGroup{open: true, ns: ns, id: objectID, incarnation: incarnation, prefix: bytes.Clone(key[:len(key)-8])}
	}
	e, err := journal.DecodeEntry(value)
	switch {
	case err != nil:
		a.damaged(ns, objectID, key, err.Error())
		// Later entries keep their numbers; the rules report the missing event here as well.
		e = journal.Entry{Seq: seq}
	case e.Seq != seq:
		a.violation(Violation{Rule: RuleMisplaced, Namespace: ns, ID: objectID,
			Seq: seq, HasSeq: true, Detail: fmt.Sprintf("its key has entry %d", e.Seq)})
	}
	a.group.entries = append(a.group.entries, e)
}

// endGroup checks the journal that has been read, if there is one.
func (a *auditor) endGroup() {
	g := a.group
	a.group = journalGroup{}
	if !g.open {
		return
	}
	h, ok := a.storedHeader(g.ns, g.id)
	switch {
	case ok && h.Incarnation == g.incarnation:
		a.execution(g.ns, h, g.entries)
		return
	case ok && h.Kind == state.KindGraph && h.Generation > 0 && g.incarnation < h.Incarnation:
		// The journal of an earlier incarnation of a retried run: it has ended.
		if s := journal.StatusOf(g.entries); !s.Terminal() {
			a.found(g.ns, g.id, RuleOrphanJournal, "the journal of incarnation %d is %s, and the run was retried since", g.incarnation, s)
		}
	case a.ofPurged(g.ns, g.id, g.incarnation):
		return // a purge has deleted the first entries
	case a.swept(g.ns, g.id, h, ok):
		return // a sweep has deleted the first entries
	case ok:
		a.found(g.ns, g.id, RuleOrphanJournal, "a journal of incarnation %d, and the execution is incarnation %d", g.incarnation, h.Incarnation)
	case !a.Has(keys.Of(keys.Header, g.ns, g.id)):
		a.found(g.ns, g.id, RuleOrphanJournal, "a journal of %d entries, and no execution", len(g.entries))
	}
	a.journal(g.ns, g.id, g.entries)
}

// journal checks a journal by itself.
func (a *auditor) journal(ns, objectID string, entries []journal.Entry) {
	for _, v := range CheckJournal(objectID, entries) {
		v.Namespace = ns
		a.violation(v)
	}
	a.entries(ns, objectID, entries)
}

// CheckJournal checks one journal by every rule of the spec, with the retry bounds that this server reads
// from its policies. The violations name no namespace.
func CheckJournal(objectID string, entries []journal.Entry) []Violation {
	var out []Violation
	for _, v := range journal.Check(id.PromiseID(objectID), entries, journal.WithRetryBound(state.RetryBound)) {
		out = append(out, Violation{Rule: v.Rule, ID: objectID, Seq: v.Seq, HasSeq: true, Detail: v.Detail})
	}
	return out
}
