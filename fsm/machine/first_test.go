package machine

import (
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
	"perdure/journal"
)

// The first task of an execution comes with what its worker needs, as long as that is all in memory and small. Every
// world compares it with the state (checkEffects).
func TestFirstTask(t *testing.T) {
	start := func(w *world, input string) { w.do(startCmd(w.request(), "e", "f", input)) }
	for _, c := range []struct {
		name  string
		begin func(w *world)
		takes string
		want  bool
	}{
		{"at once", func(w *world) { start(w, "in") }, "f", true},
		{"no input", func(w *world) { start(w, "") }, "f", true},
		{"largest input", func(w *world) { start(w, strings.Repeat("x", firstBytes)) }, "f", true},
		{"larger input", func(w *world) { start(w, strings.Repeat("x", firstBytes+1)) }, "f", false},
		{"with a deadline", func(w *world) {
			cmd := startCmd(w.request(), "e", "f", "in")
			cmd.GetStart().TimeoutMs = 5000
			w.do(cmd)
		}, "f", true},
		{"child", func(w *world) { w.commit(w.begin("p", "p"), "child f input; await 0") }, "f", true},
		{"signalled before", func(w *world) {
			start(w, "in")
			w.do(signalCmd(w.request(), "e", "s", "x"))
		}, "f", false},
		{"cancelled before", func(w *world) {
			start(w, "in")
			w.do(cancelCmd("e", "why", 1000))
		}, "f", false},
		{"after a restart", func(w *world) {
			start(w, "in")
			w.open(w.parts[0])
		}, "f", false},
		{"given back", func(w *world) { w.do(releaseCmd(w.begin("e", "f").token, "", 0)) }, "f", false},
		{"after a wait", func(w *world) {
			w.commit(w.begin("e", "f"), "wait s")
			w.do(signalCmd(w.request(), "e", "s", "x"))
		}, "f", false},
		{"clean-up", func(w *world) {
			v := w.begin("e", "f")
			w.commit(v, "intent charge; cleanup 5000")
			w.do(cancelCmd("e", "why", 10))
			w.now += 10
			w.tick()
		}, state.FunctionCleanup + "f", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, 1)
			c.begin(w)
			g := grant("w2", 10, c.takes)
			res := w.apply(w.parts[0], &commandv1.Entry{Commands: []*commandv1.Command{assignCmd()}, Grants: []*commandv1.Grant{g}})
			if len(res.Effects.Assigned) != 1 {
				t.Fatalf("%d tasks are assigned, must be one", len(res.Effects.Assigned))
			}
			if got := res.Effects.Assigned[0].First != nil; got != c.want {
				t.Errorf("it comes with its start: %t, must be %t", got, c.want)
			}
		})
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
