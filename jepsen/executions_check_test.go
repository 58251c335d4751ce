package jepsen

import (
	"slices"
	"strings"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

// aGoodRun is two executions of two steps each, the second with a repeated step and a client that got no
// answer to its start.
func aGoodRun() ([]Execution, []StepRecord) {
	const answered = "c|5|go!|6|delivered|target_not_found|delivered"
	return []Execution{
			{ID: "a", Called: 0, Acked: 1, Done: 5, Result: "a|1|2", Found: "a|1|2"},
			{ID: "b", Called: 0, Acked: 1, Done: 7, Result: "b|3|4", Found: "b|3|4"},
			{ID: "gone", Called: 2, Acked: -1, Done: -1, Found: Missing},
			{ID: "c", Acked: 1, Done: 9, Result: answered, Found: answered, Word: "go!", WordAcked: true, WordSent: 1, Words: 1,
				Box: "box", Sent: []int{1, 1}},
		}, []StepRecord{
			{Execution: "a", Promise: "a:0", Runs: 1, Receipt: "1"}, {Execution: "b", Promise: "b:0", Runs: 2, Receipt: "3"},
			{Execution: "a", Promise: "a:1", Runs: 1, Receipt: "2"}, {Execution: "b", Promise: "b:1", Runs: 1, Receipt: "4"},
			{Execution: "c", Promise: "c:0", Runs: 1, Receipt: "5"}, {Execution: "c", Promise: "c:3", Runs: 1, Receipt: "6"},
		}
}

func TestExecutionChecker(t *testing.T) {
	e, s := aGoodRun()
	if v := CheckExecutions(e, s, 2); !v.OK() || v.Started != 3 || v.Finished != 3 || v.Repeated != 1 || v.Delivered != 2 {
		t.Fatalf("a good run: %+v", v)
	}
	for _, c := range []struct {
		name  string
		plant func(e []Execution, s []StepRecord)
		what  string
	}{
		{"an acknowledged start is gone", func(e []Execution, _ []StepRecord) {
			e[2].Acked = 3
		}, "lost: gone "},
		{"an acknowledged result is gone", func(e []Execution, s []StepRecord) { e[0].Found = Missing }, "lost: a "},
		{"it never finishes", func(e []Execution, _ []StepRecord) { e[1].Done, e[1].Found = -1, NotFinished }, "lost: b "},
		{"not read back", func(e []Execution, _ []StepRecord) { e[1].Found = "" }, "lost: b "},
		{"the result changes", func(e []Execution, _ []StepRecord) { e[0].Result = "a|1|9" }, "wrong: a: the result was"},
		{"the result is not what the steps returned", func(e []Execution, _ []StepRecord) {
			e[0].Result, e[0].Found = "a|1|9", "a|1|9"
		}, "wrong: a: the result is"},
		{"a step runs again after it was acknowledged", func(_ []Execution, s []StepRecord) {
			s[0].Runs, s[0].RunAfterAck = 2, 1
		}, "ran again: a:0 "},
		{"a replay returns something else", func(_ []Execution, s []StepRecord) { s[2].Changed = []string{"7"} }, "wrong: a:1 returned"},
		{"a step too many", func(_ []Execution, s []StepRecord) { s[1].Execution = "a" }, "wrong: a has ended after 3 steps"},
		{"the end comes before a step is acknowledged", func(_ []Execution, s []StepRecord) { s[3].Receipt = "" }, "wrong: b:1 ran, was never acknowledged"},
		{"a step without an execution", func(e []Execution, _ []StepRecord) { e[0].ID = "other" }, "wrong: other"},
		{"the client gets the error", func(e []Execution, _ []StepRecord) { e[1].Err = "unavailable" }, "error: b: unavailable"},
		{"a signal is lost", func(e []Execution, _ []StepRecord) { e[3].Sent[1] = 0 }, "signal: c: signal 1 was delivered to box 0 times"},
		{"a signal is doubled", func(e []Execution, _ []StepRecord) { e[3].Sent[0] = 2 }, "signal: c: signal 0 was delivered to box 2 times"},
		{"a signal is doubled by one that has not ended", func(e []Execution, _ []StepRecord) {
			e[3].Found, e[3].Sent = NotFinished, []int{2, 0}
		}, "signal: c: signal 0"},
		{"a signal that was not read back", func(e []Execution, _ []StepRecord) { e[3].Sent[0] = -1 }, "signal: c: signal 0 was not read back"},
		{"an acknowledged signal is lost", func(e []Execution, _ []StepRecord) { e[3].Words = 0 }, "signal: c: the signal \"go!\""},
		{"an acknowledged signal is doubled", func(e []Execution, _ []StepRecord) { e[3].Words = 2 }, "signal: c: the signal \"go!\""},
		{"a signal that was surely not applied is delivered", func(e []Execution, _ []StepRecord) {
			e[3].WordAcked, e[3].WordSent = false, 0
		}, "signal: c: the signal \"go!\""},
		{"the result lacks the signal", func(e []Execution, _ []StepRecord) {
			e[3].Result, e[3].Found = "c|5||6", "c|5||6"
		}, "wrong: c: the result is"},
		{"a signal to a missing target is reported as delivered", func(e []Execution, _ []StepRecord) {
			e[3].Found = "c|5|go!|6|delivered|delivered|delivered"
			e[3].Result = e[3].Found
		}, "wrong: c: the result is"},
		{"the journal is wrong", func(e []Execution, _ []StepRecord) { e[1].Journal = "no end" }, "wrong: b: journal: no end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			e, s := aGoodRun()
			c.plant(e, s)
			v := CheckExecutions(e, s, 2)
			if all := v.Violations(); v.OK() || !slices.ContainsFunc(all, func(s string) bool { return strings.HasPrefix(s, c.what) }) {
				t.Errorf("ok is %v, violations %q, expected one that begins %q", v.OK(), all, c.what)
			}
		})
	}
}

// journal makes entries of events, numbered from 1.
func journal(events ...*perdurev1.Event) []*perdurev1.JournalEntry {
	var out []*perdurev1.JournalEntry
	for i, e := range events {
		out = append(out, &perdurev1.JournalEntry{Seq: uint64(i + 1), TimeMs: int64(i + 1), Event: e})
	}
	return out
}

func TestCheckJournal(t *testing.T) {
	scheduled := func(p string) *perdurev1.Event {
		return &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{PromiseId: p}}}
	}
	attempt := func(p string, n uint32) *perdurev1.Event {
		return &perdurev1.Event{Kind: &perdurev1.Event_InvokeStarted{InvokeStarted: &perdurev1.InvokeStarted{PromiseId: p, Attempt: n}}}
	}
	completed := func(p string) *perdurev1.Event {
		return &perdurev1.Event{Kind: &perdurev1.Event_InvokeCompleted{InvokeCompleted: &perdurev1.InvokeCompleted{PromiseId: p}}}
	}
	timer := func(ms int64, fires int64) *perdurev1.Event {
		return &perdurev1.Event{Kind: &perdurev1.Event_TimerScheduled{TimerScheduled: &perdurev1.TimerScheduled{PromiseId: "a:0", DurationMs: ms, FireAtMs: fires}}}
	}
	fired := &perdurev1.Event{Kind: &perdurev1.Event_TimerFired{TimerFired: &perdurev1.TimerFired{PromiseId: "a:0"}}}
	end := &perdurev1.Event{Kind: &perdurev1.Event_ExecutionCompleted{ExecutionCompleted: &perdurev1.ExecutionCompleted{}}}
	hole := journal(scheduled("a:0"), completed("a:0"), end)
	hole[1].Seq, hole[2].Seq = 3, 4
	for _, c := range []struct {
		name    string
		entries []*perdurev1.JournalEntry
		want    string
	}{
		{"good", journal(scheduled("a:0"), attempt("a:0", 1), attempt("a:0", 2), completed("a:0"), end), ""},
		{"a hole", hole, "entry 3 follows entry 1"},
		{"completed twice", journal(scheduled("a:0"), completed("a:0"), completed("a:0"), end), "completed a:0, for the second time"},
		{"scheduled twice", journal(scheduled("a:0"), scheduled("a:0"), completed("a:0"), end), "scheduled a:0, for the second time"},
		{"begun twice", journal(scheduled("a:0"), attempt("a:0", 1), attempt("a:0", 1), completed("a:0"), end), "attempt 1 of a:0, for the second time"},
		{"a timer", journal(timer(1, 2), fired, end), ""},
		{"fired twice", journal(timer(1, 2), fired, fired, end), "fired a:0, for the second time"},
		{"fired early", journal(timer(5, 6), fired, end), "timer a:0 fired 4 ms early"},
		{"expires early", journal(timer(5, 3), end), "expires 2 ms after"},
		{"never fired", journal(timer(1, 2), end), "a:0 has not fired"},
		{"not completed", journal(scheduled("a:0"), end), "a:0 was scheduled and has not completed"},
		{"after the end", journal(end, scheduled("a:0")), "comes after the end"},
		{"no end", journal(scheduled("a:0"), completed("a:0")), "no end"},
		{"empty", nil, "no end"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := CheckJournal(c.entries); got != c.want && (c.want == "" || !strings.Contains(got, c.want)) {
				t.Errorf("%q, expected %q", got, c.want)
			}
		})
	}
}
