package machine

import (
	"fmt"
	"strings"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state/keys"
)

// A tick that has found nothing up to a time still finds what is made due at that very time.
func TestDeadlineBeforeTheSearch(t *testing.T) {
	w := newWorld(t, 1)
	w.do(tickCmd(0))
	if from := w.parts[0].m.deadlines[keys.DeadlineGraph]; from != w.now+1 {
		t.Fatalf("at %d ticks look from %d on", w.now, from)
	}
	var text strings.Builder
	for i := range startsAtOnce + 2 {
		fmt.Fprintf(&text, "n%d; ", i)
	}
	w.submit("run", graphOf(text.String()), "")
	if from := w.parts[0].m.deadlines[keys.DeadlineGraph]; from != w.now {
		t.Fatalf("the run goes on at %d, ticks look from %d on", w.now, from)
	}
	w.do(tickCmd(0))
	for _, n := range w.graphStatus("run").Nodes {
		if n.Status != perdurev1.NodeStatus_NODE_STATUS_RUNNING {
			t.Fatalf("after a tick %v", n)
		}
	}
}
