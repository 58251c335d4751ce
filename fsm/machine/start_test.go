package machine

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
)

// The id is the idempotency key: any number of starts by any clients give one execution.
func TestStartTwice(t *testing.T) {
	w := newWorld(t, 1)
	first, other := w.request(), w.request()
	res := w.apply(w.parts[0], &commandv1.Entry{Commands: []*commandv1.Command{
		startCmd(first, "a", "f", "in"), startCmd(first, "a", "f", "in"), startCmd(other, "a", "f", "in"),
		startCmd(other, "a", "f", "else"), startCmd(other, "a", "g", "in"),
	}})
	for i, want := range []string{
		"started a@1 created=true RUNNING", "started a@1 created=true RUNNING", "started a@1 created=false RUNNING",
		`refused: execution "a" was started before with another input (ID_CONFLICT)`,
		`refused: execution "a" was started before with function f, not g (ID_CONFLICT)`,
	} {
		if got := strings.Join(showReply(res.Replies[i]), " "); got != want {
			t.Errorf("start %d: %s, want %s", i, got, want)
		}
	}
	// The answer to a repetition is that of the execution as it is by then.
	w.commit(w.only("w1", "f"), "return done")
	if got := w.do(startCmd(first, "a", "f", "in")).GetStart(); !got.Created || got.Incarnation != 1 || got.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED {
		t.Errorf("repeated start after the end: %v", got)
	}
	if got := w.do(startCmd(nil, "a", "f", "in")).GetStart(); got.Created {
		t.Errorf("a start without a request id counts as the first: %v", got)
	}
}

// Without a request id the answer cannot say which start was the first.
func TestStartWithoutRequest(t *testing.T) {
	w := newWorld(t, 1)
	for i := range 3 {
		if got := w.do(startCmd(nil, "a", "f", "")).GetStart().Created; got != (i == 0) {
			t.Errorf("start %d: created %v", i, got)
		}
	}
}

func TestStartRefused(t *testing.T) {
	w := newWorld(t, 1)
	w.do(createPromiseCmd("p", 60_000))
	unknown := startCmd(w.request(), "a", "f", "")
	unknown.GetStart().AllowUnknownFunction = false
	w.refused(unknown, perdurev1.Reason_REASON_FUNCTION_UNKNOWN)
	w.do(registerCmd("f", "g", "f"))
	w.do(unknown)
	w.refused(startCmd(w.request(), "p", "f", ""), perdurev1.Reason_REASON_ID_CONFLICT)
	w.refused(startCmd(w.request(), "b", "", ""), perdurev1.Reason_REASON_BAD_REQUEST)
	// A client cannot start an execution under the id of an operation.
	for _, bad := range []string{"a:0", "a:", "x:1.2", "nul\x00"} {
		w.refused(startCmd(w.request(), bad, "f", ""), perdurev1.Reason_REASON_BAD_ID)
	}
	w.refused(createPromiseCmd("a:0", 1000), perdurev1.Reason_REASON_BAD_ID)
	w.refused(createPromiseCmd("b:3.4", 1000), perdurev1.Reason_REASON_BAD_ID)
	w.do(createPromiseCmd("b:is-no-child", 1000))
}

// An execution keeps the tags of its start, by a client or a parent, and shows them in order.
func TestTags(t *testing.T) {
	w := newWorld(t, 3)
	tags := map[string]string{"z": "1", "a": "2", "m": ""}
	start := startCmd(w.request(), "e", "f", "")
	start.GetStart().Tags, start.GetStart().ComponentDigest = tags, "digest"
	w.do(start)
	v := w.only("w1", "f")
	cmd := w.commitCmd(v, "child g; child g spread; spawn detached g")
	for i, o := range cmd.GetCommit().Children {
		o.Tags = map[string]string{"child": fmt.Sprint(i)}
	}
	cmd.GetCommit().Sends[0].GetStart().Tags = tags
	w.do(cmd)
	w.ship()
	for i := range w.parts {
		w.open(w.parts[i])
	}
	seen := 0
	for _, v := range w.take("w2", 5, "g") {
		e := w.describe(v.token.Id)
		task := w.query(&commandv1.Query{Id: v.token.Id, Kind: &commandv1.Query_Task{Task: &commandv1.TaskQuery{
			Incarnation: v.token.Incarnation, Version: v.token.Version}}}).GetTask()
		digest := v.journal[0].Event.GetExecutionStarted().ComponentDigest
		switch {
		case !maps.Equal(task.Tags, e.Tags) || e.ComponentDigest != digest:
			t.Errorf("task %v, execution %v", task, e)
		case v.token.Id == "detached" && maps.Equal(e.Tags, tags) && digest == "",
			v.token.Id == "e:0" && e.Tags["child"] == "0" && digest == "digest",
			e.Tags["child"] == "1" && digest == "digest" && len(v.token.Id) == 64:
			seen++
		default:
			t.Errorf("%v", e)
		}
	}
	if got := w.describe("e").Tags; !maps.Equal(got, tags) || seen != 3 {
		t.Errorf("tags %v, %d others", got, seen)
	}
	p := takeCensus(w.at("e").state).promises["e"]
	if len(p.Tags) != 3 || p.Tags[0].Key != "a" || p.Tags[2].Key != "z" {
		t.Errorf("kept as %v", p.Tags)
	}
}

// A command for an id of another partition is refused, not applied.
func TestMisplaced(t *testing.T) {
	w := newWorld(t, 3)
	cmd := startCmd(w.request(), "a", "f", "")
	wrong := w.parts[(state.PartitionOf(ns, "a", 3)+1)%3]
	before := content(wrong.state)
	res := w.apply(wrong, &commandv1.Entry{Commands: []*commandv1.Command{cmd}})
	if e := wire.ReplyError(res.Replies[0]); e == nil || e.Reason != perdurev1.Reason_REASON_TRY_LATER || content(wrong.state) != before {
		t.Errorf("answered %v", e)
	}
	counts := make([]int, 3)
	for _, objectID := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o", "p"} {
		if state.PartitionOf(ns, objectID, 3) != state.PartitionOf(ns, objectID+":4.5", 3) {
			t.Errorf("%s and its children live apart", objectID)
		}
		counts[state.PartitionOf(ns, objectID, 3)]++
	}
	if counts[0] == 0 || counts[1] == 0 || counts[2] == 0 {
		t.Errorf("placed %v", counts)
	}
}

// A commit and what else a worker does names its execution; an entry at or below the last is skipped.
func TestAppliedOnce(t *testing.T) {
	w := newWorld(t, 1)
	w.do(startCmd(w.request(), "a", "f", ""))
	m := w.parts[0].m
	if res, err := m.Apply(m.Applied(), &commandv1.Entry{Commands: []*commandv1.Command{startCmd(nil, "b", "f", "")}}); res != nil || err != nil {
		t.Errorf("an entry that was applied already: %v, %v", res, err)
	}
	if len(m.Writes()) != 0 {
		t.Error("a skipped entry has written")
	}
	// Gaps are not the machine's business: Raft has entries of its own.
	w.parts[0].index += 5
	w.do(startCmd(w.request(), "b", "f", ""))
	if m.Applied() != 7 || w.describe("b").Incarnation != 7 {
		t.Errorf("applied %d, incarnation %d", m.Applied(), w.describe("b").Incarnation)
	}
	// The clock never runs backwards.
	w.now = 500
	w.do(startCmd(w.request(), "c", "f", ""))
	if m.Clock() != 1000 || w.describe("c").CreatedMs != 1000 {
		t.Errorf("the clock is %d, c was created at %d", m.Clock(), w.describe("c").CreatedMs)
	}
}
