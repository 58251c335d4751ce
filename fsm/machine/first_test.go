package machine

import (
	"fmt"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/journal"
)

// A task comes with what its worker needs, as long as that is all in memory and small: the first one of an execution, and
// one after a wait, all of a short journal or what is new in a long one. Every world compares it with the state (checkEffects).
func TestFirstTask(t *testing.T) {
	start := func(w *world, input string) { w.do(startCmd(w.request(), "e", "f", input)) }
	for _, c := range []struct {
		name  string
		begin func(w *world)
		takes string
		// want is for a journal of which only what is new is in memory, short for one that is in memory from its start.
		want, short bool
	}{
		{"at once", func(w *world) { start(w, "in") }, "f", true, true},
		{"no input", func(w *world) { start(w, "") }, "f", true, true},
		{"largest input", func(w *world) { start(w, strings.Repeat("x", firstBytes)) }, "f", true, true},
		{"larger input", func(w *world) { start(w, strings.Repeat("x", firstBytes+1)) }, "f", false, false},
		{"with a deadline", func(w *world) {
			cmd := startCmd(w.request(), "e", "f", "in")
			cmd.GetStart().TimeoutMs = 5000
			w.do(cmd)
		}, "f", true, true},
		{"child", func(w *world) { w.commit(w.begin("p", "p"), "child f input; await 0") }, "f", true, true},
		{"signalled before", func(w *world) {
			start(w, "in")
			w.do(signalCmd(w.request(), "e", "s", "x"))
		}, "f", false, false},
		{"cancelled before", func(w *world) {
			start(w, "in")
			w.do(cancelCmd("e", "why", 1000))
		}, "f", false, false},
		{"after a restart", func(w *world) {
			start(w, "in")
			w.open(w.parts[0])
		}, "f", false, false},
		{"given back", func(w *world) { w.do(releaseCmd(w.begin("e", "f").token, "", 0)) }, "f", false, true},
		{"after a wait", func(w *world) {
			w.commit(w.begin("e", "f"), "wait s")
			w.do(signalCmd(w.request(), "e", "s", "x"))
		}, "f", true, true},
		{"after a timer", func(w *world) {
			w.commit(w.begin("e", "f"), "sleep 10; await 0")
			w.now += 10
			w.tick()
		}, "f", true, true},
		{"after a wait during which another signal came", func(w *world) {
			w.commit(w.begin("e", "f"), "wait s")
			w.do(signalCmd(w.request(), "e", "t", "x"))
			w.do(signalCmd(w.request(), "e", "s", "x"))
		}, "f", true, true},
		{"after a wait and a signal that was rolled back", func(w *world) {
			w.commit(w.begin("e", "f"), "wait s")
			w.commitRefused(w.begin("other", "o"), "signal e t another; return; step a", perdurev1.Reason_REASON_RULE_BROKEN, "")
			w.do(signalCmd(w.request(), "e", "s", "x"))
		}, "f", false, false},
		{"after a wait behind an expired timer", func(w *world) {
			w.commit(w.begin("e", "f"), "sleep 0; sleep 10; await 1")
			w.now += 10
			w.tick()
		}, "f", false, true},
		{"after a wait behind an expired timer, and a signal that was rolled back", func(w *world) {
			w.commit(w.begin("e", "f"), "sleep 0; sleep 10; await 1")
			w.commitRefused(w.begin("other", "o"), "signal e t another; return; step a", perdurev1.Reason_REASON_RULE_BROKEN, "")
			w.now += 10
			w.tick()
		}, "f", false, false},
		{"after a wait for a large signal", func(w *world) {
			w.commit(w.begin("e", "f"), "wait s")
			w.do(signalCmd(w.request(), "e", "s", strings.Repeat("x", waitedBytes)))
		}, "f", false, false},
		{"after a step and a wait", func(w *world) {
			w.commit(w.begin("e", "f"), "step a; wait s")
			w.do(signalCmd(w.request(), "e", "s", "x"))
		}, "f", true, true},
		{"after many steps and a wait", func(w *world) {
			v := w.begin("e", "f")
			w.commit(v, strings.Repeat("step a; ", state.InlineEvents/2)+"nothing")
			w.commit(v, "wait s")
			w.do(signalCmd(w.request(), "e", "s", "x"))
		}, "f", true, true},
		{"after a wait for a child", func(w *world) {
			w.commit(w.begin("e", "f"), "child c input; await 0")
			w.commit(w.only("w1", "c"), "return result")
		}, "f", true, true},
		{"after a wait for a child with a large input", func(w *world) {
			w.commit(w.begin("e", "f"), "child c "+strings.Repeat("x", waitedBytes)+"; await 0")
			w.commit(w.only("w1", "c"), "return result")
		}, "f", false, false},
		{"after a wait for children with large results", func(w *world) {
			w.commit(w.begin("e", "f"), "child c input; child d input; await 0 1")
			w.commit(w.only("w1", "c"), "return "+strings.Repeat("x", waitedBytes/2))
			w.commit(w.only("w1", "d"), "return "+strings.Repeat("x", waitedBytes/2))
		}, "f", false, false},
		{"after a wait and a restart", func(w *world) {
			w.commit(w.begin("e", "f"), "wait s")
			w.open(w.parts[0])
			w.do(signalCmd(w.request(), "e", "s", "x"))
		}, "f", false, true},
		{"clean-up", func(w *world) {
			v := w.begin("e", "f")
			w.commit(v, "intent charge; cleanup 5000")
			w.do(cancelCmd("e", "why", 10))
			w.now += 10
			w.tick()
		}, state.FunctionCleanup + "f", false, false},
	} {
		for _, level := range []uint64{state.LevelLeaves, state.LevelInline} {
			want := c.want
			if level == state.LevelInline {
				want = c.short
			}
			t.Run(fmt.Sprintf("%s at level %d", c.name, level), func(t *testing.T) {
				w := newWorldAt(t, level, 1)
				c.begin(w)
				g := grant("w2", 10, c.takes)
				res := w.apply(w.parts[0], &commandv1.Entry{Commands: []*commandv1.Command{assignCmd()}, Grants: []*commandv1.Grant{g}})
				if len(res.Effects.Assigned) != 1 {
					t.Fatalf("%d tasks are assigned, must be one", len(res.Effects.Assigned))
				}
				if got := res.Effects.Assigned[0].First != nil; got != want {
					t.Errorf("it comes without a read: %t, must be %t", got, want)
				}
			})
		}
	}
}

// What a First has of a wait is as of the acquisition: a worker that lacks other entries, or has them all, gets its task by a
// read, and what comes later is not in it.
func TestTaskAfterWait(t *testing.T) {
	for _, c := range []struct {
		level uint64
		want  map[uint64]int
	}{
		{state.LevelLeaves, map[uint64]int{0: 0, 1: 4, 2: 3, 4: 1, 5: 0, 6: 0}},
		{state.LevelInline, map[uint64]int{0: 5, 1: 4, 2: 3, 4: 1, 5: 0, 6: 0}},
	} {
		taskAfterWait(t, c.level, c.want)
	}
}

func taskAfterWait(t *testing.T, level uint64, entries map[uint64]int) {
	w := newWorldAt(t, level, 1)
	w.commit(w.begin("e", "f"), "sleep 10; await 0")
	w.now += 10
	w.tick()
	res := w.apply(w.parts[0], &commandv1.Entry{Commands: []*commandv1.Command{assignCmd()}, Grants: []*commandv1.Grant{grant("w2", 1, "f")}})
	first, token := res.Effects.Assigned[0].First, res.Effects.Assigned[0].Token
	w.do(signalCmd(w.request(), "e", "s", "x"))
	for from, want := range entries {
		task := first.Task(token, from)
		if got := len(task.GetEntries()); got != want || task != nil && (task.NextSeq != 5 || task.Entries[0].Seq != from) {
			t.Errorf("at level %d from %d: %v", level, from, task)
		}
	}
}

// A First has its input for itself: the entry that it came in is used again.
func TestFirstTaskKeepsItsInput(t *testing.T) {
	input := []byte("input")
	kept, ok := mayKeep(journal.ExecutionStarted{Input: input})
	copy(input, "other") // its entry's memory has another use now
	if got := string(kept.(journal.ExecutionStarted).Input); !ok || got != "input" {
		t.Errorf("its input is %q", got)
	}
}

// So do the entries since a wait.
func TestAfterWaitKeepsItsPayloads(t *testing.T) {
	payload := []byte("payload")
	w := &waited{from: 1}
	for i, ev := range []journal.Event{journal.InvokeScheduled{Input: payload}, journal.InvokeRetrying{Error: payload}, journal.InvokeCompleted{Result: payload}} {
		w = w.add(journal.Entry{Seq: uint64(1 + i), Event: ev})
	}
	copy(payload, "another")
	for i, got := range [][]byte{w.entries[0].Event.(journal.InvokeScheduled).Input, w.entries[1].Event.(journal.InvokeRetrying).Error,
		w.entries[2].Event.(journal.InvokeCompleted).Result} {
		if string(got) != "payload" {
			t.Errorf("entry %d has %q", 1+i, got)
		}
	}
	if over := w.add(journal.Entry{Seq: 4, Event: journal.InvokeCompleted{Result: make([]byte, waitedBytes)}}); over != nil || w.size() < 3*len(payload) {
		t.Errorf("%d bytes are kept; with more than fit: %v", w.size(), over)
	}
}
