package machine

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
)

// A commit repeated with its request id is answered as it was, and applied once: also within one entry, after
// other commands, and after a restart of the machine.
func TestCommitRepeated(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	cmd := w.commitCmd(v, "step a -> 1; child g; step b -> 2")
	res := w.apply(w.parts[0], &commandv1.Entry{Commands: []*commandv1.Command{cmd, proto.Clone(cmd).(*commandv1.Command)}})
	first, second := res.Replies[0].GetCommit(), res.Replies[1].GetCommit()
	if len(first.Entries) != 0 || first.NextSeq != 8 || first.NextChild != 3 {
		t.Errorf("answered %v", first)
	}
	// The repetition tells everything from known on: the worker may not know what was applied.
	if second == nil || len(second.Entries) != 7 || second.NextSeq != 8 || second.NextChild != 3 || second.State != acquired {
		t.Errorf("repeated: %v", second)
	}
	before := content(w.parts[0].state)
	w.do(cmd)
	w.open(w.parts[0])
	w.do(cmd)
	if after := content(w.parts[0].state); after != before {
		t.Errorf("a repetition has changed the state:\n%s", difference(before, after))
	}
	w.learn(v, cmd.GetCommit(), first)
	// The answer carries the entries that arrived meanwhile, too.
	w.do(signalCmd(nil, "e", "s", "x"))
	if got := w.do(cmd).GetCommit(); len(got.Entries) != 8 || got.NextSeq != 9 {
		t.Errorf("repeated after a signal: %v", got)
	}
	// A commit that ends the activation keeps its answer, whatever becomes of the execution.
	last := w.commitCmd(v, "await 1")
	for range 2 {
		if got := w.do(last).GetCommit(); got.State != suspended || got.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED || len(got.Entries) != 0 {
			t.Errorf("answered %v", got)
		}
	}
	w.commit(w.only("w2", "g"), "return r")
	if got := w.do(last).GetCommit(); got.State != suspended {
		t.Errorf("repeated after the resume: %v", got)
	}
	v = w.only("w3", "f")
	if got := w.do(last).GetCommit(); got.State != suspended {
		t.Errorf("repeated while another holds it: %v", got)
	}
	// Once another worker has committed, the old request is not known any more.
	end := w.commitCmd(v, "return done")
	w.do(end)
	w.refused(last, perdurev1.Reason_REASON_STALE_TASK)
	for range 2 {
		if got := w.do(end).GetCommit(); got.State != fulfilled || got.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED {
			t.Errorf("answered %v", got)
		}
	}
}

// A commit that left the task acquired gives no right to continue after the lease is lost.
func TestCommitRepeatedAfterLostLease(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	cmd := w.commitCmd(v, "step a")
	w.do(cmd)
	w.now += 20_000
	w.refused(cmd, perdurev1.Reason_REASON_STALE_TASK)
	w.only("w2", "f")
	w.refused(cmd, perdurev1.Reason_REASON_STALE_TASK)
}

// Entries that arrived meanwhile do not invalidate a commit; a different number of taken ids does.
func TestCommitGuard(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commit(v, "child g; sleep 100; step a")
	child := w.only("w2", "g")
	w.do(signalCmd(nil, "e", "s", "x"))
	w.commit(child, "return r")
	w.now += 500
	w.tick()
	cmd := w.commitCmd(v, "step b")
	for _, next := range []uint32{0, 2, 4, 1 << 31} {
		wrong := proto.Clone(cmd).(*commandv1.Command)
		wrong.GetCommit().NextChild = next
		if e := w.refused(wrong, perdurev1.Reason_REASON_RULE_BROKEN); e.Meta["rule"] != "next_child" {
			t.Errorf("next %d: %v", next, e)
		}
	}
	reply := w.do(cmd).GetCommit()
	var received []string
	for _, e := range reply.Entries {
		received = append(received, strings.Fields(showEvent(e.Event))[0])
	}
	if strings.Join(received, " ") != "InvokeStarted SignalDelivered InvokeCompleted TimerFired" {
		t.Errorf("received %v", received)
	}
	// One that claims to know more than there is gets nothing, and breaks nothing.
	more := w.commitCmd(v, "nothing")
	more.GetCommit().NextChild, more.GetCommit().KnownSeq = reply.NextChild, 1<<60
	if got := w.do(more).GetCommit(); len(got.Entries) != 0 {
		t.Errorf("received %v", got)
	}
}

// A worker's commit must not contain the server's events.
func TestCommitRefused(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commit(v, "child g; intent s policy=attempts=2; signal x s y; step d")
	for _, c := range []struct{ ops, rule string }{
		{"done 0#1 -> mine", ""},
		{"started 0#1", ""},
		{"retrying 0#1 !io", ""},
		{"done 2#1 -> mine", ""},
		{"kind 0", "K15"},
		{"kind 99", "K15"},
		{"kind 259", "K15"}, // 3 in its lowest eight bits
		{"resumed", ""},
		{"cancelled why", "S-5"},
		{"return x; step y", ""},
		{"return x; return y", ""},
		{"done 1#2 -> early", "R8"},
		{"started 1#1", "R5"},
		{"done 3#1 -> again", "R8"},
		{"done 9#1 -> never scheduled", "SE-2"},
		{"submit 0 1", "JS-1"},
		{"retrying 1#1 !io; started 1#2; retrying 1#2 !io", "SE-5"},
		{"step x; done 7#1 -> y", "SE-2"},
	} {
		w.commitRefused(v, c.ops, perdurev1.Reason_REASON_RULE_BROKEN, c.rule)
	}
	for _, ev := range []*perdurev1.Event{
		{Kind: &perdurev1.Event_ExecutionStarted{ExecutionStarted: &perdurev1.ExecutionStarted{}}},
		{Kind: &perdurev1.Event_CancelRequested{CancelRequested: &perdurev1.CancelRequested{}}},
		{Kind: &perdurev1.Event_TimerFired{TimerFired: &perdurev1.TimerFired{PromiseId: "e:0"}}},
		{Kind: &perdurev1.Event_SignalDelivered{SignalDelivered: &perdurev1.SignalDelivered{}}},
		{Kind: &perdurev1.Event_SignalReceived{SignalReceived: &perdurev1.SignalReceived{}}},
		scheduled("e:7", perdurev1.InvokeKind_INVOKE_KIND_STEP, "gap", "", ""),
		scheduled("other:4", perdurev1.InvokeKind_INVOKE_KIND_STEP, "of another", "", ""),
	} {
		cmd := w.commitCmd(v, "nothing")
		cmd.GetCommit().Events = []*perdurev1.Event{invokeStarted("e:1", 9), ev}[1:]
		w.refused(cmd, perdurev1.Reason_REASON_RULE_BROKEN)
	}
	cmd := w.commitCmd(v, "nothing")
	cmd.GetCommit().Events = []*perdurev1.Event{{}}
	w.refused(cmd, perdurev1.Reason_REASON_BAD_REQUEST)
	w.commitRefused(v, "child", perdurev1.Reason_REASON_BAD_REQUEST, "")
	w.commitRefused(v, "child spread", perdurev1.Reason_REASON_BAD_REQUEST, "")
	w.commitRefused(v, "sleep -1", perdurev1.Reason_REASON_BAD_REQUEST, "")
	w.commitRefused(v, "sleep 9223372036854775807", perdurev1.Reason_REASON_BAD_REQUEST, "")
	w.commitRefused(v, "sleep 1152921504606846976", perdurev1.Reason_REASON_BAD_REQUEST, "")
	// After all that, giving the task back leaves the journal as it was, and the next commit stands.
	before := w.kinds("e")
	w.do(releaseCmd(v.token, "", 0))
	v = w.only("w1", "f")
	if after := w.kinds("e"); after != before || len(v.journal) != len(strings.Fields(before)) {
		t.Errorf("the journal has become %s, was %s", after, before)
	}
	w.commit(v, "retrying 1#1 !io at=5; started 1#2; done 1#2 !io:final; return x")
}

// A refused command among others in one entry leaves nothing, and the others stand as if it had not been.
func TestRefusedAmongOthers(t *testing.T) {
	run := func(refused bool) (string, []string, uint64) {
		w := newWorld(t, 1)
		v := w.begin("e", "f")
		w.commit(v, "intent s policy=attempts=3; set")
		other := w.begin("other", "f")
		good := w.commitCmd(v, "step a -> 1; child g; submit 1 3; sleep 5")
		second := w.commitCmd(other, "wait s timeout=50")
		commands := []*commandv1.Command{good, second, signalCmd(w.request(), "other", "s", "x"), startCmd(w.request(), "third", "f", "in")}
		if refused {
			// Each of these goes far before it is refused.
			bad := w.commitCmd(v, "done 0#1 -> r; step z; child g; sleep 5; wait s timeout=7; step late")
			bad.GetCommit().NextChild = 2
			wrong := w.commitCmd(other, "child g; signal e s lost; spawn fourth f x; sleep 7; set; intent q; retrying 9#9 !io")
			missing := signalCmd(w.request(), "nobody", "s", "x")
			conflict := startCmd(w.request(), "e", "f", "another input")
			var mixed []*commandv1.Command
			for i, cmd := range commands {
				mixed = append(mixed, []*commandv1.Command{bad, wrong, missing, conflict}[i], cmd)
			}
			commands = append(mixed, startCmd(w.request(), "third", "g", "in"))
		}
		res := w.apply(w.parts[0], &commandv1.Entry{Commands: commands})
		var replies []string
		refusals := 0
		for _, r := range res.Replies {
			if wire.ReplyError(r) != nil {
				refusals++
				continue
			}
			replies = append(replies, strings.Join(showReply(r), " "))
		}
		if want := map[bool]int{true: 5}[refused]; refusals != want {
			t.Errorf("%d refusals, must be %d: %v", refusals, want, res.Replies)
		}
		return whole(w.parts[0].state), replies, w.parts[0].m.Checksum()
	}
	all, replies, sum := run(false)
	state2, replies2, sum2 := run(true)
	if all != state2 || sum != sum2 {
		t.Errorf("the refused commands have left something:\n%s", difference(all, state2))
	}
	if fmt.Sprint(replies) != fmt.Sprint(replies2) {
		t.Errorf("answered\n%v\nand without the refused ones\n%v", replies2, replies)
	}
}

// Join sets: results in the order they were first consumed in.
func TestJoinSet(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commit(v, "set; child g; child g; step s -> local; submit 0 1; submit 0 2; submit 0 3; taken 0 3 -> local; any 1,2")
	children := w.take("w2", 2, "g")
	w.commit(children[1], "return b")
	v = w.only("w1", "f")
	w.commitRefused(v, "taken 0 1 -> a", perdurev1.Reason_REASON_RULE_BROKEN, "JS-4")
	w.commitRefused(v, "taken 0 2 -> another result", perdurev1.Reason_REASON_RULE_BROKEN, "R16")
	w.commitRefused(v, "step x; submit 0 4", perdurev1.Reason_REASON_RULE_BROKEN, "JS-2")
	w.commit(v, "taken 0 2 -> b; await 1")
	w.commit(children[0], "fail app:sorry")
	v = w.only("w1", "f")
	w.commitRefused(v, "taken 0 2 -> b", perdurev1.Reason_REASON_RULE_BROKEN, "JS-5")
	w.commit(v, "taken 0 1 !app:sorry; return done")
}

// A wait for a join set is one entry with one callback, however many members there are, and ends with any of them.
func TestJoinSetWait(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	ops := "set"
	for n := 1; n <= 100; n++ {
		ops += fmt.Sprintf("; child g; submit 0 %d", n)
	}
	if got := w.commit(v, ops+"; next 0 1"); got.State != suspended {
		t.Fatalf("answered %v", got)
	}
	children := w.take("w2", 100, "g")
	taken := map[string]bool{}
	for _, k := range []int{57, 0, 99} {
		w.commit(children[k], "return r")
		v = w.only("w1", "f")
		n := strings.TrimPrefix(children[k].token.Id, "e:")
		taken[n] = true
		if got := w.commit(v, "next 0 2"); got.State != acquired {
			t.Fatalf("with the result of %s, it is answered %v", n, got)
		}
		if got := w.commit(v, "taken 0 "+n+" -> r; next 0 2"); got.State != suspended {
			t.Fatalf("answered %v", got)
		}
	}
	// All that are left end before the parent runs again. It takes their results without a wait between them.
	for k, c := range children {
		if k != 57 && k != 0 && k != 99 {
			w.commit(c, "return r")
		}
	}
	v = w.only("w1", "f")
	for n := 1; n <= 100; n++ {
		if !taken[strconv.Itoa(n)] {
			w.commit(v, fmt.Sprintf("taken 0 %d -> r", n))
		}
	}
	w.commit(v, "return done")
	entry, largest := 0, 0
	for _, e := range w.journal("e") {
		if e.GetEvent().GetExecutionAwaiting() != nil {
			entry++
			largest = max(largest, len(e.GetEvent().GetExecutionAwaiting().WaitingOn))
		}
	}
	if entry != 4 || largest != 1 {
		t.Errorf("%d waits, of %d members", entry, largest)
	}
}

// A wait that names a join set is for clusters that know the kind.
func TestJoinSetWaitLevel(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	for ops, want := range map[string]uint64{"set; child g; submit 0 1; next 0 1": state.LevelFunctions, "set; child g; submit 0 1; any 1": state.LevelFirst} {
		if level, ok := LevelOf(w.commitCmd(v, ops)); level != want || !ok {
			t.Errorf("%s: level %d, want %d", ops, level, want)
		}
	}
}

// The promise of a local step is what the journal says of it.
func TestStepPromise(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commit(v, "step a -> one; intent b policy=attempts=5; step c !app:no; random r; scheduled d")
	for _, c := range []struct{ id, want string }{
		{"e:0", `promise e:0 RESOLVED created=1000 settled=1000 "one"`},
		{"e:1", `promise e:1 PENDING created=1000`},
		{"e:2", `promise e:2 REJECTED created=1000 settled=1000 !app "no"`},
		{"e:4", `promise e:4 PENDING created=1000`},
	} {
		if got := showPromise(w.promise(c.id)); got != c.want {
			t.Errorf("%s, want %s", got, c.want)
		}
	}
	w.now = 2000
	w.commit(v, "retrying 1#1 !io; started 1#2; done 1#2 -> two")
	if got := showPromise(w.promise("e:1")); got != `promise e:1 RESOLVED created=1000 settled=2000 "two"` {
		t.Error(got)
	}
	for _, none := range []string{"e:3", "e:5", "e:0.0", "x:0", "none", "e:"} {
		reply := w.query(&commandv1.Query{Id: none, Kind: &commandv1.Query_Promise{Promise: &perdurev1.GetPromiseRequest{}}})
		if e := wire.QueryError(reply); e == nil || e.Reason != perdurev1.Reason_REASON_PROMISE_NOT_FOUND {
			t.Errorf("%s: %v", none, reply)
		}
	}
	w.refused(settlePromiseCmd("e:1", perdurev1.PromiseState_PROMISE_STATE_RESOLVED, ""), perdurev1.Reason_REASON_NOT_SETTLEABLE)
	w.refused(settlePromiseCmd("e:9", perdurev1.PromiseState_PROMISE_STATE_RESOLVED, ""), perdurev1.Reason_REASON_PROMISE_NOT_FOUND)
}

// The answer to a commit carries no more of the journal than a message should, whatever has arrived meanwhile: one
// without entries sends the worker to the journal. It reads no more than that, either.
func TestCommitAnswerIsBounded(t *testing.T) {
	w := newWorld(t, 1)
	w.unaudited, w.effectsUnchecked = true, true
	v := w.begin("e", "f")
	cmd := w.commitCmd(v, "step a -> 1")
	w.do(signalCmd(nil, "e", "s", strings.Repeat("x", 4<<20-100)))
	w.do(signalCmd(nil, "e", "s", "small"))
	if got := w.do(cmd).GetCommit(); len(got.Entries) != 2 || got.NextSeq != 6 || got.State != acquired {
		t.Errorf("answered %d entries, next %d, %v", len(got.Entries), got.NextSeq, got.State)
	}
	w.do(signalCmd(nil, "e", "s", strings.Repeat("x", 4<<20-100)))
	w.do(signalCmd(nil, "e", "s", strings.Repeat("x", 4<<20-100)))
	if got := w.do(cmd).GetCommit(); len(got.Entries) != 0 || got.NextSeq != 8 || got.NextChild != 1 || got.State != acquired {
		t.Errorf("with 12 MiB of signals it is answered %d entries, next %d, %v", len(got.Entries), got.NextSeq, got.State)
	}
}
