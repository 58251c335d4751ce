package jepsen

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

// refused checks that a checker accepts what is true and names each doctored result.
func refused(t *testing.T, name string, wrong []string, want string) {
	t.Helper()
	text := strings.Join(wrong, "\n")
	if want == "" && text != "" {
		t.Errorf("%s: refused: %s", name, text)
	}
	if want != "" && !strings.Contains(text, want) {
		t.Errorf("%s: %q is not named in: %s", name, want, text)
	}
}

func TestScaleSignalsRefusesDoctoredResults(t *testing.T) {
	sent := []int{3, 2}
	good := []string{"0/0", "1/0", "0/1", "0/2", "1/1"}
	without := func(i int) []string { return slices.Delete(slices.Clone(good), i, i+1) }
	with := func(i int, word string) []string { return slices.Insert(slices.Clone(good), i, word) }
	for _, c := range []struct {
		name                string
		delivered, received []string
		result, want        string
	}{
		{"true", good, good, "", ""},
		{"one lost", without(2), without(2), "", "0/2, and 1 to 1 of that sender did not come"},
		{"last one lost", without(4), without(4), "", "sender 1: 2 signals were acknowledged"},
		{"one delivered twice", with(3, "0/1"), with(3, "0/1"), "", "for the second time"},
		{"two swapped", []string{"0/1", "1/0", "0/0", "0/2", "1/1"}, good, "", "did not come before it"},
		{"one not received", good, without(4), "", "sender 1"},
		{"received in another order", good, []string{"1/0", "0/0", "0/1", "0/2", "1/1"}, "", "in another order"},
		{"one that no client sent", with(5, "2/0"), with(5, "2/0"), "", "which no client sent"},
		{"another result", good, good, "x", "returned \"x\""},
	} {
		if c.result == "" {
			c.result = scaleDigest(c.received)
		}
		refused(t, c.name, CheckScaleSignals(sent, c.delivered, c.received, c.result), c.want)
	}
}

func TestScaleStepsRefusesDoctoredResults(t *testing.T) {
	for _, c := range []struct {
		name   string
		doctor func(proofs *[]string, records *[]StepRecord, result *string)
		want   string
	}{
		{"true", func(*[]string, *[]StepRecord, *string) {}, ""},
		{"a step lost from the journal", func(p *[]string, _ *[]StepRecord, _ *string) { *p = (*p)[:3] }, "3 steps are completed"},
		{"a step that did not run", func(_ *[]string, r *[]StepRecord, _ *string) { *r = (*r)[:3] }, "3 steps acted"},
		{"a step counted twice", func(p *[]string, _ *[]StepRecord, _ *string) { (*p)[2] = (*p)[1] }, "of an earlier one"},
		{"a step that acted after its acknowledgement", func(_ *[]string, r *[]StepRecord, _ *string) { (*r)[1].RunAfterAck = 1 }, "acted 1 times after"},
		{"a result that changed", func(_ *[]string, r *[]StepRecord, _ *string) { (*r)[1].Changed = []string{"z"} }, "and later"},
		{"another proof", func(_ *[]string, r *[]StepRecord, _ *string) { (*r)[1].Receipt = "z" }, "the journal has"},
		{"another result", func(_ *[]string, _ *[]StepRecord, result *string) { *result = "x" }, "returned \"x\""},
	} {
		proofs := []string{"a", "b", "c", "d"}
		var records []StepRecord
		for i, p := range proofs {
			records = append(records, StepRecord{Promise: fmt.Sprintf("x:%d", i), Runs: 1, Receipt: p})
		}
		result := scaleDigest(proofs)
		c.doctor(&proofs, &records, &result)
		refused(t, c.name, CheckScaleSteps(4, proofs, records, result), c.want)
	}
}

func TestScaleChildrenRefusesDoctoredResults(t *testing.T) {
	for _, c := range []struct {
		name   string
		doctor func(scheduled *[]string, completed *[]ScaleChild, result *string)
		want   string
	}{
		{"true", func(*[]string, *[]ScaleChild, *string) {}, ""},
		{"a child not started", func(s *[]string, _ *[]ScaleChild, _ *string) { *s = (*s)[:2] }, "2 children were started"},
		{"a result lost", func(_ *[]string, c *[]ScaleChild, _ *string) { *c = (*c)[:2] }, "its result is not there"},
		{"a result twice", func(_ *[]string, c *[]ScaleChild, _ *string) { *c = append(*c, (*c)[0]) }, "completed twice"},
		{"the result of another", func(_ *[]string, c *[]ScaleChild, _ *string) { (*c)[0].Result = (*c)[1].Result }, "has the result"},
		{"a child that was never started", func(_ *[]string, c *[]ScaleChild, _ *string) {
			*c = append(*c, ScaleChild{Promise: "p:9"})
		}, "never started"},
		{"another result", func(_ *[]string, _ *[]ScaleChild, result *string) { *result = "x" }, "returned \"x\""},
	} {
		var scheduled, words []string
		var completed []ScaleChild
		for i := range 3 {
			id := fmt.Sprintf("p:%d", i)
			scheduled, words = append(scheduled, id), append(words, scaleChildResult("p", i))
			completed = append([]ScaleChild{{id, words[i]}}, completed...) // they need not come in order
		}
		result := scaleDigest(words)
		c.doctor(&scheduled, &completed, &result)
		refused(t, c.name, CheckScaleChildren("p", 3, scheduled, completed, result), c.want)
	}
}

func TestScaleJoinSetRefusesDoctoredResults(t *testing.T) {
	whole := func() (JoinCourse, string) {
		c := JoinCourse{Results: map[string]string{}, Consumed: map[string]string{}, Completed: []string{"p:2", "p:0", "p:1"}, Taken: []string{"p:2", "p:0", "p:1"}}
		for n := range 3 {
			id := fmt.Sprintf("p:%d", n)
			c.Scheduled = append(c.Scheduled, id)
			c.Results[id], c.Consumed[id] = scaleChildResult("p", n), scaleChildResult("p", n)
		}
		return c, scaleDigest([]string{c.Consumed["p:2"], c.Consumed["p:0"], c.Consumed["p:1"]})
	}
	for _, c := range []struct {
		name   string
		doctor func(c *JoinCourse, result *string)
		want   string
	}{
		{"true", func(*JoinCourse, *string) {}, ""},
		{"a member not taken", func(c *JoinCourse, _ *string) { c.Taken = c.Taken[:2] }, "2 taken"},
		{"taken out of order", func(c *JoinCourse, _ *string) { c.Taken = []string{"p:0", "p:2", "p:1"} }, "order in which they completed"},
		{"another result taken", func(c *JoinCourse, _ *string) { c.Consumed["p:1"] = "x" }, `and "x" was taken`},
		{"another order at replay", func(c *JoinCourse, result *string) {
			*result = scaleDigest([]string{c.Consumed["p:0"], c.Consumed["p:2"], c.Consumed["p:1"]})
		}, "the replayed function returned"},
	} {
		course, result := whole()
		c.doctor(&course, &result)
		refused(t, c.name, CheckScaleJoinSet("p", 3, course, result), c.want)
	}
}

// A step that takes longer and longer is seen.
func TestStepLatencies(t *testing.T) {
	even, growing := make([]int64, 2000), make([]int64, 2000)
	for i := 1; i < len(even); i++ {
		even[i], growing[i] = even[i-1]+3, growing[i-1]+3+int64(i)/500
	}
	if _, ratio := stepLatencies(even); ratio != 1 {
		t.Errorf("even steps: %.2f", ratio)
	}
	if _, ratio := stepLatencies(growing); ratio <= maxSlowdown {
		t.Errorf("growing steps: %.2f", ratio)
	}
	if tenths, _ := stepLatencies(even[:999]); tenths != nil {
		t.Errorf("of few steps: %v", tenths)
	}
}

func TestScaleTimersRefusesDoctoredResults(t *testing.T) {
	const timedout, pending = perdurev1.PromiseState_PROMISE_STATE_REJECTED_TIMEDOUT, perdurev1.PromiseState_PROMISE_STATE_PENDING
	for _, c := range []struct {
		name   string
		doctor func(timers []ScaleTimer) []ScaleTimer
		want   string
	}{
		{"true", func(t []ScaleTimer) []ScaleTimer { return t }, ""},
		{"one never set", func(t []ScaleTimer) []ScaleTimer { return t[:3] }, "3 timers were set"},
		{"a promise still pending", func(t []ScaleTimer) []ScaleTimer { t[0].State = pending; return t }, "has expired and is"},
		{"a promise settled early", func(t []ScaleTimer) []ScaleTimer { t[0].SettledMs--; return t }, "timed out 1 ms early"},
		{"a client answered early", func(t []ScaleTimer) []ScaleTimer { t[1].HeardMs -= 200; return t }, "was answered 197 ms before its deadline"},
		{"a sleeper that did not wake", func(t []ScaleTimer) []ScaleTimer { t[2].FiredMs = nil; return t }, "fired 0 times"},
		{"a sleeper that woke twice", func(t []ScaleTimer) []ScaleTimer { t[2].FiredMs = []int64{1001, 1002}; return t }, "fired 2 times"},
		{"a sleeper that woke early", func(t []ScaleTimer) []ScaleTimer { t[2].FiredMs = []int64{999}; return t }, "fired 1 ms early"},
		{"one twice", func(t []ScaleTimer) []ScaleTimer { t[3].ID = t[2].ID; return t }, "is there twice"},
	} {
		timers := c.doctor([]ScaleTimer{
			{ID: "a", DueMs: 1000, State: timedout, SettledMs: 1000},
			{ID: "b", DueMs: 1000, State: timedout, SettledMs: 1000, HeardMs: 1003},
			{ID: "c", DueMs: 1000, Sleeper: true, FiredMs: []int64{1007}},
			{ID: "d", DueMs: 1000, Sleeper: true, FiredMs: []int64{1000}},
		})
		wrong, late := CheckScaleTimers(4, timers)
		refused(t, c.name, wrong, c.want)
		if c.want == "" && !slices.Equal(late, []int64{3, 7, 0}) {
			t.Errorf("late by %v", late)
		}
	}
}
