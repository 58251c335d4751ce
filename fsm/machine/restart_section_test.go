package machine

import (
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
)

// Only what ends a section is named unlock without input: the journal alone says where a section ends.
func TestOnlyUnlockIsNamedUnlock(t *testing.T) {
	w := bank(t, 1)
	v := w.begin("run", "f")
	w.commit(v, "lock acc@1; await 0")
	v = w.resumed(v)
	named := func(text, function, input string) *commandv1.Command {
		cmd := w.commitCmd(v, text)
		scheduled := cmd.GetCommit().Events[0].GetInvokeScheduled()
		scheduled.FunctionName, scheduled.Input = function, []byte(input)
		return cmd
	}
	for _, cmd := range []*commandv1.Command{
		named("etell acc@2 add 1", "unlock", ""), named("signal other s x", "unlock", ""), named("unlock", "leave", ""), named("unlock", "unlock", "acc@1"),
	} {
		w.refused(cmd, perdurev1.Reason_REASON_BAD_REQUEST)
	}
	w.do(named("etell acc@2 add 1", "unlock", "acc@2"))
}

// A restart that would keep the beginning of a critical section and not its end is refused and says where the section
// begins: the new incarnation would not hold the locks. Before and behind the section it is possible.
func TestRestartInsideSection(t *testing.T) {
	w := bank(t, 3)
	v := w.begin("run", "f")
	w.commit(v, "step s -> 1; lock acc@1,acc@2; await 1")
	w.ship()
	v = w.resumed(v)
	w.commit(v, "ecall acc@1 add 4; await 2")
	w.ship()
	w.runEntities()
	w.ship()
	v = w.resumed(v)
	inside := uint64(len(w.journal("run")))
	w.commit(v, "unlock; step after -> 2; fail it broke")
	w.ship()
	begins := uint64(0)
	for i, e := range w.journal("run") {
		if e.Event.GetInvokeScheduled().GetPromiseId() == "run:1" {
			begins = uint64(i)
		}
	}
	for event := begins + 1; event <= inside; event++ {
		e := w.refused(restartCmd(w.request(), "run", fromEvent, event), perdurev1.Reason_REASON_RULE_BROKEN)
		if e.Meta["rule"] != ruleRestart || !strings.Contains(e.Message, "inside the critical section that begins with entry 4") || begins != 4 {
			t.Fatalf("from event %d: %v, the section begins with %d", event, e, begins)
		}
	}
	if r := w.do(restartCmd(w.request(), "run", fromFailure, 0)).GetRestart(); r.KeptEvents <= inside {
		t.Fatalf("from its failure it keeps %d events, the section ends behind %d", r.KeptEvents, inside)
	}
	if r := w.do(restartCmd(w.request(), "run", fromEvent, begins)).GetRestart(); r.KeptEvents != begins {
		t.Fatalf("from before its section it keeps %d events", r.KeptEvents)
	}
	v = w.only("w1", "f")
	w.commit(v, "lock acc@1,acc@2; await 1")
	w.ship()
	w.resumed(v)
	if e := w.entity("acc@1"); e.Lock.GetHolder() != "run" || string(e.Value) != "4" {
		t.Fatalf("the section of the new incarnation: %v", e)
	}
}
