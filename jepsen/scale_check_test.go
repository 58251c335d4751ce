package jepsen

import (
	"fmt"
	"math"
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

func TestScaleHeapRefusesGrowth(t *testing.T) {
	flat := func(name string, from, step int64) ScaleHeap {
		h := ScaleHeap{Name: name}
		for i := range int64(10) {
			h.Tenths = append(h.Tenths, from+i*step)
		}
		return h
	}
	const events = 60_000
	for _, c := range []struct {
		name string
		heap ScaleHeap
		want string
	}{
		{"true", flat("w1", 1_000_000, 20_000), ""},
		{"a node that keeps a state of each operation", flat("n1", 10_000_000, 160_000), ""},
		{"a worker that keeps each result", flat("w2", 1_700_000, 590_000), "heap of w2 grew from 2.3 MB at the second tenth to 7.0 MB"},
		{"a node that keeps each entry", flat("n2", 10_000_000, 2_000_000), "heap of n2 grew"},
		{"a worker that ended", ScaleHeap{Name: "w1", Tenths: []int64{1}}, "was read 1 times"},
	} {
		refused(t, c.name, CheckScaleHeap([]ScaleHeap{c.heap}, events), c.want)
	}
}

// The heap in use is read without the stores' memtables and block caches, of which a profile has a sample.
func TestHeapInProfile(t *testing.T) {
	const profile = `heap profile: 2: 16781312 [9: 50000000] @ heap/1048576
1: 16777216 [3: 50331648] @ 0x1 0x2
#	0x1	github.com/cockroachdb/pebble/v2/internal/manual.New+0x1	manual.go:1
#	0x2	github.com/cockroachdb/pebble/v2.(*DB).newMemTable+0x1	open.go:2

4: 2097152 [4: 2097152] @ 0x3
#	0x3	github.com/cockroachdb/pebble/v2/internal/manual.New+0x1	manual.go:1

1: 4096 [6: 24576] @ 0x5
#	0x5	perdure/journal.(*State).take+0x1	child.go:1

# runtime.MemStats
# HeapAlloc = 30000000
# HeapSys = 90000000
`
	// The sampler takes an object of 16 MiB surely, and one of 512 KiB with a probability of 1-1/e.
	got, err := heapIn(strings.NewReader(profile))
	want := 30_000_000 - 16_777_216 - 2_097_152/0.6321205588
	if err != nil || math.Abs(float64(got)-want) > 2 {
		t.Errorf("%d, %v, want %.0f", got, err, want)
	}
	if _, err := heapIn(strings.NewReader(profile[:300])); err == nil {
		t.Error("a profile that ends early is read")
	}
}
