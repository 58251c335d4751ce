package jepsen

import (
	"testing"
	"time"
)

// TestLateReads plants reads that began after their promise's settle was acknowledged, and others.
func TestLateReads(t *testing.T) {
	old, other := &Node{process: process{Name: "n1"}}, &Node{process: process{Name: "n2"}}
	const closed, settledAt, opened = time.Second, 2 * time.Second, 3 * time.Second
	done := settled("late", "resolved done")
	for _, c := range []struct {
		name               string
		at                 *Node
		from, to           time.Duration
		seen               RegisterState
		risk, tried, wrong int
	}{
		{"a read at the old leader sees it", old, settledAt + 1, opened + 1, done, 1, 1, 0},
		{"it does not", old, settledAt + 1, opened + 1, pending("late"), 1, 1, 1},
		{"one that began before the settle may", old, settledAt - 2, opened + 1, pending("late"), 1, 1, 0},
		{"one after the way opened may not", old, opened + 1, opened + 2, pending("late"), 0, 0, 1},
		{"nor one at another node", other, settledAt + 1, opened + 1, pending("late"), 0, 0, 1},
		{"the promise is gone", old, settledAt + 1, opened + 1, absent, 1, 1, 1},
		{"it holds another value", old, settledAt + 1, opened + 1, settled("late", "resolved other"), 1, 1, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			ops := []RegisterOp{
				{ID: "p", Kind: RegisterCreate, Value: "late", Called: 0, Answered: 1, Seen: pending("late")},
				{ID: "p", Kind: RegisterSettle, Value: "resolved done", Called: 2, Answered: settledAt, Seen: done},
			}
			read := RegisterOp{ID: "p", Kind: RegisterGet, Called: c.from, Answered: c.to, Seen: c.seen}
			r := &lateRound{old: old, closed: closed, history: append(ops, read), acked: map[string]time.Duration{"p": settledAt},
				reads: []lateRead{{read, c.at}}}
			var report LateReport
			var elected []time.Duration
			report.add(r, opened, &elected)
			if report.AtRisk != c.risk || report.Tried != c.tried || len(report.Violations) != c.wrong {
				t.Errorf("%d at risk, %d tried, violations %q", report.AtRisk, report.Tried, report.Violations)
			}
			if len(elected) != 1 || elected[0] != settledAt-closed {
				t.Errorf("the first settle took %v", elected)
			}
		})
	}
	var report LateReport
	var elected []time.Duration
	if report.add(&lateRound{old: old, closed: closed, acked: map[string]time.Duration{"p": closed + 1}}, opened, &elected); len(elected) != 0 {
		t.Errorf("a settle that no election stood in the way of was one by another leader after %v", elected)
	}
}
