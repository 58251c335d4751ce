package machine

import (
	"fmt"
	"strings"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/graph"
)

// Why a node was skipped is shown: its own reason as one, the failure it was skipped for as a failure. A
// later incarnation of the run keeps both.
func TestGraphSkipReason(t *testing.T) {
	for _, wave := range []bool{false, true} {
		w := newWorld(t, 1)
		g := graphOf("a attempts=3; b skip; c; d; e after a,b,c")
		g.Wave = wave
		w.submit("run", g, "")
		w.end("run", "a", "fail app:first")
		w.pass(100)
		w.end("run", "a", "fail graph.skipped:nothing")
		w.end("run", "b", "fail app:broken")
		w.end("run", "c", "fail graph.skipped:")
		w.end("run", "d", "fail app:no")
		w.end("run", "e", "fail graph.skipped:"+strings.Repeat("é", 501))
		for generation := range 2 {
			for node, want := range map[string]string{"a": `"nothing" ""`, "b": `"" "app"`, "c": `"" ""`, "d": `"" "app"`,
				"e": fmt.Sprintf("%q %q", strings.Repeat("é", 500), "")} {
				if generation == 1 && node == "d" {
					continue // it is tried again
				}
				s := w.nodeOutcome("run", node).State
				if got := fmt.Sprintf("%q %q", s.SkipReason, s.Failure.GetType()); got != want || s.Kept != (generation == 1) {
					t.Errorf("wave %t, generation %d: %s was skipped for %s, must be for %s", wave, generation, node, got, want)
				}
			}
			if generation == 0 {
				w.do(retryCmd(w.request(), "run"))
			}
		}
	}
}

// A run whose outputs are too many bytes completes and says so; each output is there to be read. A node with
// an input from such a result fails, and says why.
func TestGraphResultTooLarge(t *testing.T) {
	w := newWorld(t, 1)
	w.submit("run", graphOf("s graph 0; t after s in x=s; u after s", graphOf("a; b")), "")
	large := `"` + strings.Repeat("x", graph.MaxResultBytes/2) + `"`
	w.end("run:0.0", "a", "return "+large)
	w.end("run:0.0", "b", "return "+large)
	size := int64(2*len(large) + len(`{"a":,"b":}`))
	s := w.graphStatus("run:0.0")
	if s.Phase != "completed" || s.TooLargeBytes != uint64(size) || !strings.Contains(s.Problem, graph.RuleResult) {
		t.Errorf("the part is %s, %d bytes: %q", s.Phase, s.TooLargeBytes, s.Problem)
	}
	if too, ok := graph.ParseTooLarge([]byte(w.result("run:0.0"))); !ok || too.Bytes != size {
		t.Errorf("the part has answered %.200s", w.result("run:0.0"))
	}
	for _, node := range []string{"a", "b"} {
		if got := w.nodeOutcome("run:0.0", node); string(got.Output) != large {
			t.Errorf("%s has %d bytes", node, len(got.Output))
		}
	}
	w.shows("run", "progressing; s completed; t failed !graph.input; u running")
	if f := w.nodeOutcome("run", "t").State.Failure; !strings.Contains(f.Message, graph.RuleResult) {
		t.Errorf("t failed: %v", f)
	}
	w.end("run", "u", "return 1")
	if s := w.graphStatus("run"); s.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED || s.TooLargeBytes != 0 {
		t.Errorf("the run is %v", s)
	}
}

// The status of a run shows the reason of its cancel, and that of a subgraph its parent.
func TestGraphStatusShowsReason(t *testing.T) {
	w := newWorld(t, 1)
	w.submit("run", graphOf("s graph 0", graphOf("a")), "")
	w.do(cancelCmd("run", "customer withdrew", 5000))
	if got := w.graphStatus("run").CancelReason; got != "customer withdrew" {
		t.Errorf("the run was cancelled for %q", got)
	}
	if s := w.graphStatus("run:0.0"); s.ParentId != "run" || s.CancelReason != "customer withdrew" {
		t.Errorf("the part of %q was cancelled for %q", s.ParentId, s.CancelReason)
	}
}
