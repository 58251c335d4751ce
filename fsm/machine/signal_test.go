package machine

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/journal"
)

// Signals are buffered, and handed out first in, first out, by name.
func TestSignalsInOrder(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	for i, name := range []string{"a", "b", "a", "a", "b"} {
		got := w.do(signalCmd(w.request(), "e", name, fmt.Sprint(i))).GetSignal().DeliveryId
		if want := map[int]uint64{0: 1, 1: 1, 2: 2, 3: 3, 4: 2}[i]; got != want {
			t.Errorf("signal %d is delivery %d of %s, want %d", i, got, name, want)
		}
	}
	var got []string
	for _, name := range []string{"b", "a", "a", "b", "a"} {
		reply := w.commit(v, "wait "+name)
		last := reply.Entries[len(reply.Entries)-1].Event.GetSignalReceived()
		got = append(got, last.GetName()+string(last.GetPayload().GetValue()))
	}
	if fmt.Sprint(got) != "[b1 a0 a2 b4 a3]" {
		t.Errorf("received %v", got)
	}
	if got := w.commit(v, "wait a"); got.State != suspended {
		t.Errorf("answered %v", got)
	}
	// Another name does not wake it, its own does; what follows is buffered.
	w.do(signalCmd(w.request(), "e", "b", "x"))
	if w.describe("e").Task.State != "suspended" {
		t.Error("woken by another signal")
	}
	w.do(signalCmd(w.request(), "e", "a", "y"))
	w.do(signalCmd(w.request(), "e", "a", "z"))
	v = w.only("w1", "f")
	if got := w.commit(v, "wait b; nothing"); got.State != acquired {
		t.Errorf("answered %v", got)
	}
	if got := w.commit(v, "wait a"); string(got.Entries[0].Event.GetSignalReceived().Payload.GetValue()) != "z" {
		t.Errorf("answered %v", got)
	}
}

// A wait with a deadline ends with a typed time-out, in one apply.
func TestSignalTimesOut(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commit(v, "wait s timeout=4000")
	w.now = 4999
	w.tick()
	if w.describe("e").Task.State != "suspended" {
		t.Error("woken before the deadline")
	}
	w.now = 5000
	res := w.apply(w.parts[0], &commandv1.Entry{Commands: []*commandv1.Command{tickCmd(0)}})
	if got := w.kinds("e"); got != "ExecutionStarted ExecutionAwaiting SignalDelivered SignalReceived ExecutionResumed" || res.Replies[0].GetTick().Done != 1 {
		t.Errorf("the journal is %s after %v", got, res.Replies)
	}
	entries := w.journal("e")
	delivered, received := entries[2].Event.GetSignalDelivered(), entries[3].Event.GetSignalReceived()
	if delivered.DeliveryId != 1 || received.DeliveryId != 1 || received.PromiseId != "e:0" || received.Payload.GetFailure().GetType() != state.FailureTimeout {
		t.Errorf("received %v", received)
	}
	// A real signal that comes later is the next delivery.
	if got := w.do(signalCmd(nil, "e", "s", "late")).GetSignal().DeliveryId; got != 2 {
		t.Errorf("delivery %d", got)
	}
	v = w.only("w1", "f")
	if got := w.commit(v, "wait s timeout=10"); string(got.Entries[0].Event.GetSignalReceived().Payload.GetValue()) != "late" {
		t.Errorf("answered %v", got)
	}
}

// A signal that comes when the deadline has come, but no tick yet, is too late for the wait, and is not
// lost.
func TestSignalPastDeadline(t *testing.T) {
	for _, at := range []int64{4999, 5000, 9000} {
		for _, remote := range []bool{false, true} {
			w := newWorld(t, 2)
			v := w.begin("e", "f")
			w.commit(v, "wait s timeout=4000")
			w.now = at
			if remote {
				other := w.begin(apart(w, "e"), "g")
				w.commit(other, "signal e s hello")
				w.ship()
			} else {
				w.do(signalCmd(w.request(), "e", "s", "hello"))
			}
			want := "ExecutionStarted ExecutionAwaiting SignalDelivered SignalReceived ExecutionResumed"
			outcome := `"hello"`
			if at >= 5000 {
				want += " SignalDelivered"
				outcome = `!timeout "no signal \"s\" came before the deadline"`
			}
			if got := w.kinds("e"); got != want {
				t.Errorf("at %d: the journal is %s, must be %s", at, got, want)
			}
			if got := showOutcome(w.journal("e")[3].Event.GetSignalReceived().Payload); got != outcome {
				t.Errorf("at %d: received %s, must be %s", at, got, outcome)
			}
			w.tick()
			w.commit(w.only("w1", "f"), "return x")
		}
	}
}

// apart is an id that lives in another partition.
func apart(w *world, objectID string) string {
	for i := 0; ; i++ {
		if other := fmt.Sprintf("far-%d", i); w.at(other) != w.at(objectID) {
			return other
		}
	}
}

func TestSignalRefused(t *testing.T) {
	w := newWorld(t, 1)
	w.refused(signalCmd(w.request(), "e", "s", ""), perdurev1.Reason_REASON_EXECUTION_NOT_FOUND)
	v := w.begin("e", "f")
	w.do(createPromiseCmd("p", 1000))
	w.refused(signalCmd(w.request(), "p", "s", ""), perdurev1.Reason_REASON_EXECUTION_NOT_FOUND)
	w.commit(v, "return x")
	w.refused(signalCmd(w.request(), "e", "s", ""), perdurev1.Reason_REASON_ALREADY_FINISHED)
	for _, cmd := range []*commandv1.Command{cancelCmd("none", "", 0), terminateCmd("none", "")} {
		w.refused(cmd, perdurev1.Reason_REASON_EXECUTION_NOT_FOUND)
	}
}

// A client cannot settle the promise of a signal wait; the promise ends with its execution.
func TestAbandonedSignalWait(t *testing.T) {
	for _, how := range []string{"cancel", "terminate", "deadline"} {
		w := newWorld(t, 1)
		start := startCmd(w.request(), "e", "f", "")
		start.GetStart().TimeoutMs = 5000
		w.do(start)
		v := w.only("w1", "f")
		w.commit(v, "wait s")
		w.refused(settlePromiseCmd("e:0", perdurev1.PromiseState_PROMISE_STATE_RESOLVED, "mine"), perdurev1.Reason_REASON_NOT_SETTLEABLE)
		if got := w.promise("e:0"); got.State != perdurev1.PromiseState_PROMISE_STATE_PENDING || got.TimeoutAtMs != 0 {
			t.Errorf("%s: %v", how, got)
		}
		switch how {
		case "cancel":
			w.do(cancelCmd("e", "", 0))
		case "terminate":
			w.do(terminateCmd("e", ""))
		case "deadline":
			w.now = 7000
			w.tick()
		}
		if got := w.promise("e:0"); got.State != perdurev1.PromiseState_PROMISE_STATE_REJECTED_CANCELED {
			t.Errorf("%s: %v", how, got)
		}
		if how == "cancel" {
			w.do(signalCmd(nil, "e", "s", "fact"))
			if !strings.HasSuffix(w.kinds("e"), "CancelRequested SignalDelivered") {
				t.Errorf("the journal is %s", w.kinds("e"))
			}
		}
	}
}

// The sender of one-way operations continues at once. One completes when the target's partition answers, if
// its sender is still open then.
func TestOneWay(t *testing.T) {
	for _, far := range []bool{false, true} {
		w := newWorld(t, 2)
		target, fresh := "near", "near-fresh"
		v := w.begin("e", "f")
		for i := 0; w.at(fresh) != w.at("e") || w.at(target) != w.at("e"); i++ {
			target, fresh = fmt.Sprint("near", i), fmt.Sprint("fresh", i)
		}
		if far {
			target = apart(w, "e")
			fresh = apart(w, "e") + "-fresh"
			for i := 0; w.at(fresh) == w.at("e"); i++ {
				fresh = fmt.Sprint("fresh", i)
			}
		}
		w.do(startCmd(w.request(), target, "g", "in"))
		nobody := "nobody-" + target
		for i := 0; w.at(nobody) != w.at(target); i++ {
			nobody = fmt.Sprint("nobody-", i)
		}
		w.commit(v, "signal "+target+" s one; spawn "+fresh+" h input; signal "+target+" s two; signal "+nobody+" s x; spawn "+target+" h input; return done")
		if far {
			if got := w.kinds(target); got != "ExecutionStarted" {
				t.Errorf("it came by no message: %s", got)
			}
			w.ship()
		}
		begun, done := " InvokeScheduled InvokeStarted", " InvokeCompleted"
		send := begun
		if !far {
			send += done
		}
		want := "ExecutionStarted" + strings.Repeat(send, 5) + " ExecutionCompleted"
		if got := w.kinds("e"); got != want {
			t.Errorf("far %v: the journal is %s", far, got)
		}
		if got := w.kinds(target); got != "ExecutionStarted SignalDelivered SignalDelivered" {
			t.Errorf("far %v: the target's is %s", far, got)
		}
		if got := w.journal(target)[1].Event.GetSignalDelivered().Payload.GetValue(); string(got) != "one" {
			t.Errorf("far %v: first %q", far, got)
		}
		if got := w.describe(fresh); got.Function != "h" || got.ParentId != "" {
			t.Errorf("far %v: started %v", far, got)
		}
		w.ship()
	}
}

// The answer to a commit carries a signal that the execution sends to itself.
func TestSignalToItself(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	reply := w.commit(v, "signal e s hello; spawn e f x; step a")
	if got := strings.Join(showEntries(reply.Entries), "\n"); strings.Count(got, "\n") != 4 || !strings.Contains(got, "SignalDelivered s 1") {
		t.Errorf("received\n%s", got)
	}
	if got := w.commit(v, "wait s"); len(got.Entries) != 1 || got.State != acquired {
		t.Errorf("answered %v", got)
	}
	w.commit(v, "return x")
}

func TestOneWayRefused(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commitRefused(v, "spawn a:0 f x", perdurev1.Reason_REASON_BAD_ID, "root_without_colon")
	w.commitRefused(v, "spawn a", perdurev1.Reason_REASON_BAD_REQUEST, "")
	w.commitRefused(v, "signal", perdurev1.Reason_REASON_BAD_ID, "id_not_empty")
	w.commitRefused(v, "kind 4", perdurev1.Reason_REASON_BAD_REQUEST, "")
	cmd := w.commitCmd(v, "signal x s y")
	cmd.GetCommit().Sends[0].What = nil
	w.refused(cmd, perdurev1.Reason_REASON_BAD_REQUEST)
	w.commit(v, "return x")
}

// A signal that brings a start: it starts what is not there, goes to what is open whatever its input, and
// starts an ended execution again only if its reuse says so. It is one change, and its repetition the same
// answer.
func TestSignalWithStart(t *testing.T) {
	w := newWorld(t, 1)
	with := func(function, input string, reuse perdurev1.Reuse) *commandv1.Command {
		cmd := signalCmd(w.request(), "e", "go", input)
		cmd.GetSignal().Start = &perdurev1.StartRequest{Function: function, Input: []byte(input), Reuse: reuse, AllowUnknownFunction: true}
		return cmd
	}
	if level, _ := LevelOf(with("f", "", 0)); level != state.LevelFunctions {
		t.Errorf("it needs level %d", level)
	}
	w.refused(with("", "1", 0), perdurev1.Reason_REASON_BAD_REQUEST)
	first := with("f", "1", 0)
	for range 2 {
		if got := w.do(first).GetSignal(); !got.Started || got.DeliveryId != 1 {
			t.Fatalf("answered %v", got)
		}
	}
	if got := w.do(with("f", "2", 0)).GetSignal(); got.Started || got.DeliveryId != 2 {
		t.Errorf("the second is answered %v", got)
	}
	w.refused(with("g", "3", perdurev1.Reuse_REUSE_ALWAYS), perdurev1.Reason_REASON_ID_CONFLICT)
	if got := w.kinds("e"); got != "ExecutionStarted SignalDelivered SignalDelivered" {
		t.Errorf("the journal is %s", got)
	}
	w.commit(w.only("w1", "f"), "return r")
	w.refused(with("f", "4", 0), perdurev1.Reason_REASON_ALREADY_FINISHED)
	w.refused(with("f", "4", perdurev1.Reuse_REUSE_IF_FAILED), perdurev1.Reason_REASON_ALREADY_FINISHED)
	if got := w.do(with("f", "5", perdurev1.Reuse_REUSE_ALWAYS)).GetSignal(); !got.Started || got.DeliveryId != 1 {
		t.Errorf("a new incarnation is answered %v", got)
	}
	w.refused(signalCmd(w.request(), "nobody", "go", ""), perdurev1.Reason_REASON_EXECUTION_NOT_FOUND)
}

// Signals of functions that reach nobody are counted where the target would be, a client's are not.
func TestUndeliveredCounted(t *testing.T) {
	w := newWorld(t, 1)
	w.do(startCmd(w.request(), "done", "g", "x"))
	w.commit(w.only("w2", "g"), "return r")
	v := w.begin("e", "f")
	cmd := w.commitCmd(v, "signal nobody s x; signal done s x; signal e s x; return r")
	res := w.apply(w.at("e"), &commandv1.Entry{Commands: []*commandv1.Command{cmd, signalCmd(w.request(), "nobody", "s", "x")}})
	if res.Effects.Undelivered != 2 {
		t.Errorf("%d signals are counted as undelivered, must be 2", res.Effects.Undelivered)
	}
}

// A worker that knows of a signal receives it in a commit that goes on behind it: the oldest of the name, with its payload, once.
func TestSignalReceivedInACommit(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commitRefused(v, "receive a 1 x", perdurev1.Reason_REASON_RULE_BROKEN, journal.RuleReceivedRequiresDelivered)
	for _, payload := range []string{"x", "y"} {
		w.do(signalCmd(w.request(), "e", "a", payload))
	}
	w.commitRefused(v, "receive a 2 y", perdurev1.Reason_REASON_RULE_BROKEN, journal.RuleSignalFIFO)
	w.commitRefused(v, "receive a 1 y", perdurev1.Reason_REASON_RULE_BROKEN, journal.RuleReceivedRequiresDelivered)
	w.commitRefused(v, "receive b 1 x", perdurev1.Reason_REASON_RULE_BROKEN, journal.RuleReceivedRequiresDelivered)
	if got := w.commit(v, "receive a 1 x; step s -> 1; receive a 2 y; wait a"); got.State != suspended {
		t.Fatalf("answered %v", got)
	}
	if got := w.kinds("e"); got != "ExecutionStarted SignalDelivered SignalDelivered SignalReceived InvokeScheduled InvokeStarted InvokeCompleted SignalReceived ExecutionAwaiting" {
		t.Errorf("the journal is %s", got)
	}
	w.do(signalCmd(w.request(), "e", "a", "z"))
	v = w.only("w1", "f")
	w.commitRefused(v, "receive a 3 z", perdurev1.Reason_REASON_RULE_BROKEN, journal.RuleSignalConsumedOnce)
	w.commit(v, "return done")

	// Once cancelling has begun it is not recorded, as all that would begin.
	v = w.begin("c", "f")
	w.do(signalCmd(w.request(), "c", "a", "x"))
	w.do(cancelCmd("c", "enough", 1000))
	w.commit(v, "receive a 1 x; return done")
	if got := w.kinds("c"); got != "ExecutionStarted SignalDelivered CancelRequested ExecutionCancelled" {
		t.Errorf("the journal is %s", got)
	}

	// A former machine does not know it.
	w = newWorldAt(t, state.LevelFunctions-1, 1)
	v = w.begin("e", "f")
	w.do(signalCmd(w.request(), "e", "a", "x"))
	w.commitRefused(v, "receive a 1 x", perdurev1.Reason_REASON_FEATURE_LEVEL, "")
}

// The leader is told of a signal for the worker that holds the execution's task, and of no other.
func TestSignalIsAnnounced(t *testing.T) {
	w := newWorld(t, 1)
	send := func(name, payload string) []SignalArrival {
		return w.apply(w.parts[0], &commandv1.Entry{Commands: []*commandv1.Command{signalCmd(w.request(), "e", name, payload)}}).Effects.Arrived
	}
	w.do(startCmd(w.request(), "e", "f", "in"))
	if got := send("a", "early"); len(got) != 0 {
		t.Errorf("announced %v, and no worker has the task", got)
	}
	v := w.only("w1", "f")
	got := send("a", "x")
	if len(got) != 1 || got[0].Worker != "w1" || !proto.Equal(got[0].Token, v.token) || got[0].Name != "a" || got[0].DeliveryID != 2 ||
		string(wire.EncodeOutcome(got[0].Payload).GetValue()) != "x" {
		t.Errorf("announced %v", got)
	}
	if got := send("a", strings.Repeat("x", firstBytes)); len(got) != 0 {
		t.Errorf("announced %d bytes", len(got[0].Payload))
	}
	w.commit(v, "wait b")
	if got := send("a", "y"); len(got) != 0 {
		t.Errorf("announced %v to a worker that has given the task back", got)
	}
	if got := send("b", "z"); len(got) != 0 {
		t.Errorf("announced %v, which ends the wait", got)
	}
	w = newWorldAt(t, state.LevelFunctions-1, 1)
	w.begin("e", "f")
	if got := send("a", "x"); len(got) != 0 {
		t.Errorf("announced %v below the level", got)
	}
}
