package machine

import (
	"fmt"
	"testing"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
)

// An execution's tasks go to one worker while it has credit, and otherwise to another at once. Below the feature level
// the first grant gets them.
func TestPreferredWorker(t *testing.T) {
	const executions, rounds = 40, 3
	for _, level := range []uint64{state.LevelFunctions, state.LevelFunctions - 1} {
		w := newWorldAt(t, level, 1)
		for i := range executions {
			w.do(startCmd(w.request(), fmt.Sprint("e", i), "f", ""))
		}
		// round assigns all tasks and returns them to the queue.
		round := func(grants ...*commandv1.Grant) map[string]string {
			t.Helper()
			res := w.apply(w.parts[0], &commandv1.Entry{Grants: grants})
			if len(res.Effects.Assigned) != executions {
				t.Fatalf("%d tasks were assigned, not %d", len(res.Effects.Assigned), executions)
			}
			got := map[string]string{}
			for _, a := range res.Effects.Assigned {
				got[a.Token.Id] = a.Worker
				w.do(releaseCmd(a.Token, "", 0))
			}
			return got
		}
		first := round(grant("w1", executions, "f"), grant("other", executions, "g"), grant("w2", executions, "f"))
		share := map[string]int{}
		for _, worker := range first {
			share[worker]++
		}
		if level < state.LevelFunctions {
			if share["w1"] != executions {
				t.Errorf("below the level: %v", share)
			}
			continue
		}
		if share["w1"] < executions/4 || share["w2"] < executions/4 {
			t.Errorf("the workers' shares are %v", share)
		}
		for n := range rounds {
			grants := []*commandv1.Grant{grant("w1", executions, "f"), grant("w2", executions, "f")}
			if n%2 == 0 {
				grants[0], grants[1] = grants[1], grants[0]
			}
			if n == 2 {
				grants = append(grants, grant("w3", 0, "f"))
			}
			for id, worker := range round(grants...) {
				if worker != first[id] {
					t.Errorf("round %d: %s went to %s, before to %s", n, id, worker, first[id])
				}
			}
		}
		const few = 7
		moved := 0
		for id, worker := range round(grant("w1", few, "f"), grant("w2", executions-few, "f")) {
			if worker != first[id] {
				moved++
			}
			if worker == "w1" {
				share["few"]++
			}
		}
		if share["few"] != few || moved != share["w1"]-few {
			t.Errorf("w1 got %d of its %d with a credit of %d, and %d moved", share["few"], share["w1"], few, moved)
		}
	}
}
