package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
)

// places are where a child of "a" can be: in its partition, under a root id of its own, under an id of the
// parent's choice in another partition and in its own.
func (w *world) places() map[string]string {
	out := map[string]string{"near": "", "spread": " spread"}
	for i := 0; len(out) < 4; i++ {
		id := fmt.Sprintf("mine%d", i)
		place := "own id elsewhere"
		if w.at(id) == w.at("a") {
			place = "own id near"
		}
		if out[place] == "" {
			out[place] = " id=" + id
		}
	}
	return out
}

func newChildrenCmd(request []byte, event int) *commandv1.Command {
	cmd := restartCmd(request, "a", fromEvent, uint64(event))
	cmd.GetRestart().NewChildren = true
	return cmd
}

// A restart that starts children again, in the entry of the commit that starts them, of a signal to one, of
// another restart, and while the messages that start them are under way: the new incarnation has one child,
// which runs and whose result it gets.
func TestRestartNewChildrenInOneEntry(t *testing.T) {
	for place := range newWorld(t, 3).places() {
		for _, with := range []string{"commit", "commit and signal", "message under way", "all"} {
			t.Run(place+"/"+with, func(t *testing.T) {
				w := newWorld(t, 3)
				child := w.places()[place]
				v := w.begin("a", "f")
				w.commit(v, "step s -> x")
				at := w.at("a")
				entries := len(w.journal("a"))
				commands := []*commandv1.Command{w.commitCmd(v, "child g in"+child)}
				if with == "commit and signal" || with == "all" {
					commands = append(commands, signalCmd(w.request(), "a:1", "s", "early"))
				}
				if with == "message under way" {
					w.apply(at, &commandv1.Entry{Commands: commands})
					commands = nil
				}
				// The InvokeScheduled of the child is kept.
				commands = append(commands, newChildrenCmd(w.request(), entries+1))
				if with == "all" {
					commands = append(commands, signalCmd(w.request(), "a:1", "s", "late"), newChildrenCmd(w.request(), entries+1))
				}
				res := w.apply(at, &commandv1.Entry{Commands: commands})
				restarted := false
				for i, reply := range res.Replies {
					switch e := wire.ReplyError(reply); {
					case commands[i].GetRestart() == nil:
					case e == nil:
						restarted = true
					case e.Reason != perdurev1.Reason_REASON_TRY_LATER:
						t.Fatal(e)
					}
				}
				if !restarted {
					w.do(newChildrenCmd(w.request(), entries+1))
				}
				w.ship()
				w.tick()
				w.ship()
				next := w.only("w1", "f")
				if next.token.Incarnation == v.token.Incarnation {
					t.Fatal("there is no new incarnation")
				}
				w.commit(next, "await 1")
				current := 0
				for _, g := range w.take("w2", 10, "g") {
					p := w.at(g.token.Id)
					h, ok, err := state.ReadHeader(p.state, ns, g.token.Id)
					if err != nil || !ok {
						t.Fatal(err)
					}
					result := "late"
					if h.ParentIncarnation == next.token.Incarnation {
						current++
						result = "fine"
					}
					w.commit(g, "return "+result)
					w.ship()
				}
				if current != 1 {
					t.Errorf("the new incarnation has %d children", current)
				}
				if got := w.course("a"); !strings.HasSuffix(got, "completed resumed") {
					t.Fatalf("the journal is %s", got)
				}
				last := w.journal("a")
				for _, e := range last {
					if r := e.Event.GetInvokeCompleted(); r.GetPromiseId() == "a:1" && string(r.GetResult().GetValue()) != "fine" {
						t.Errorf("the child's result is %v", r.GetResult())
					}
				}
			})
		}
	}
}

// Results, retries and ends of the children of a former incarnation that come late, or again, do not reach
// the new one's.
func TestRestartNewChildrenLateResults(t *testing.T) {
	for place := range newWorld(t, 3).places() {
		for _, end := range []string{"return late", "fail app:no", "cancelled", "terminated"} {
			t.Run(place+"/"+end, func(t *testing.T) {
				w := newWorld(t, 3)
				v := w.begin("a", "f")
				w.commit(v, "step s -> x; child g in"+w.places()[place])
				w.ship()
				former := w.only("w2", "g")
				far := w.at(former.token.Id)
				switch end {
				case "cancelled":
					w.do(cancelCmd(former.token.Id, "why", 1000))
					w.commit(former, "cancelled why")
				case "terminated":
					w.do(terminateCmd(former.token.Id, "why"))
				default:
					w.commit(former, end)
				}
				// The result is under way when the restart comes, unless the child is in the parent's partition.
				var late *commandv1.Command
				for dst, p := range w.parts {
					if p == w.at("a") && p != far {
						late = w.deliverCmd(slices.Index(w.parts, far), dst, 100)
					}
				}
				n := 0
				for i, e := range w.journal("a") {
					if e.Event.GetInvokeScheduled() != nil {
						n = i + 1
					}
				}
				w.do(newChildrenCmd(w.request(), n))
				for range 2 {
					if late != nil {
						w.apply(w.at("a"), &commandv1.Entry{Commands: []*commandv1.Command{late, late}})
					}
					w.ship()
				}
				w.tick()
				next := w.only("w1", "f")
				if p := w.promise("a:1"); p.State != perdurev1.PromiseState_PROMISE_STATE_PENDING {
					t.Fatalf("the new incarnation's child is %v before it has run", p)
				}
				w.commit(next, "await 1")
				child := w.only("w3", "g")
				if child.token.Id == former.token.Id {
					w.refused(w.commitCmd(former, "return late"), perdurev1.Reason_REASON_STALE_TASK)
				}
				w.commit(child, "return fine")
				w.ship()
				last := w.journal("a")
				if r := last[len(last)-2].Event.GetInvokeCompleted(); r.GetPromiseId() != "a:1" || string(r.GetResult().GetValue()) != "fine" {
					t.Errorf("the child's result is %v", r)
				}
			})
		}
	}
}
