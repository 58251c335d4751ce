package machine

import (
	"fmt"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
)

// A signal repeated with its request id is the same signal: within one entry, later, after a restart.
func TestSignalRepeated(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	one, two := signalCmd(w.request(), "e", "s", "1"), signalCmd(w.request(), "e", "s", "2")
	res := w.apply(w.parts[0], &commandv1.Entry{Commands: []*commandv1.Command{one, two, one, two, one}})
	for i, want := range []uint64{1, 2, 1, 2, 1} {
		if got := res.Replies[i].GetSignal().GetDeliveryId(); got != want {
			t.Errorf("signal %d is delivery %d, must be %d", i, got, want)
		}
	}
	w.open(w.parts[0])
	w.commit(v, "return x")
	// Even after the end: it was accepted when it came.
	if got := w.do(one).GetSignal().DeliveryId; got != 1 {
		t.Errorf("delivery %d", got)
	}
	// A refusal is not stored: it changed nothing.
	late := signalCmd(w.request(), "later", "s", "3")
	w.refused(late, perdurev1.Reason_REASON_EXECUTION_NOT_FOUND)
	w.do(startCmd(w.request(), "later", "f", ""))
	if got := w.do(late).GetSignal().DeliveryId; got != 1 {
		t.Errorf("delivery %d", got)
	}
}

// An answer is evicted after a while; a later retry gets an unknown outcome and never runs again.
func TestExpiredReplies(t *testing.T) {
	w := newWorld(t, 1)
	w.now = 1_000_000
	w.begin("e", "f")
	aged := func(cmd *commandv1.Command, age int64) *commandv1.Command {
		cmd.Request.AgeMs = uint64(age)
		return cmd
	}
	old, oldAt := signalCmd(w.request(), "e", "s", "1"), w.now
	w.do(old)
	w.now += replyRetentionMS - 1
	w.do(tickCmd(0))
	if got := w.do(aged(old, w.now-oldAt)).GetSignal().DeliveryId; got != 1 {
		t.Errorf("delivery %d", got)
	}
	// A first attempt is never suspected, nor is a young retry of something unknown.
	w.do(signalCmd(w.request(), "e", "s", "2"))
	w.do(aged(signalCmd(w.request(), "e", "s", "3"), 20_000))
	w.do(aged(signalCmd(w.request(), "e", "s", "4"), 1<<62)) // nothing was ever forgotten
	w.now++
	w.do(tickCmd(0))
	if n := count(w.parts[0].state, []byte{byte(keys.Reply)}); n != 3 {
		t.Errorf("%d replies are stored, must be 3", n)
	}
	w.open(w.parts[0])
	e := w.refused(aged(old, w.now-oldAt), perdurev1.Reason_REASON_OUTCOME_UNKNOWN)
	if e.Meta["id"] != "e" {
		t.Errorf("%v", e)
	}
	// The caller's clock may be a little off.
	unknown := signalCmd(w.request(), "e", "s", "5")
	w.refused(aged(unknown, w.now-oldAt-clockSlackMS), perdurev1.Reason_REASON_OUTCOME_UNKNOWN)
	w.refused(aged(unknown, -1), perdurev1.Reason_REASON_OUTCOME_UNKNOWN)
	w.do(aged(unknown, w.now-oldAt-clockSlackMS-1))
	// Without a request id there is nothing to remember, and nothing to forget.
	before := count(w.parts[0].state, []byte{byte(keys.Reply)})
	w.do(signalCmd(nil, "e", "s", "6"))
	if n := count(w.parts[0].state, []byte{byte(keys.Reply)}); n != before {
		t.Errorf("%d replies are stored, there were %d", n, before)
	}
}

// There are never more answers than the bound says; the oldest go first.
func TestRepliesBounded(t *testing.T) {
	w := newWorld(t, 1, func(c *Config) { c.MaxReplies = 10 })
	w.unaudited = true
	w.begin("e", "f")
	var sent []*commandv1.Command
	for i := range 50 {
		w.now += 10_000
		w.do(heartbeatCmd("w1", w.views[viewKey{"w1", "e"}].token))
		cmd := signalCmd(w.request(), "e", "s", fmt.Sprint(i))
		w.do(cmd)
		sent = append(sent, cmd)
		if n := count(w.parts[0].state, []byte{byte(keys.Reply)}); n > 10 {
			t.Fatalf("%d replies after %d signals", n, i+1)
		}
	}
	w.audit(w.parts[0])
	for i, cmd := range sent {
		cmd.Request.AgeMs = uint64(50-i)*10_000 - 9_999
		if i < 40 {
			w.refused(cmd, perdurev1.Reason_REASON_OUTCOME_UNKNOWN)
		} else if got := w.do(cmd).GetSignal().DeliveryId; got != uint64(i+1) {
			t.Errorf("signal %d is delivery %d", i, got)
		}
	}
}

// More expired answers than one tick forgets are forgotten by the next ones.
func TestRepliesForgottenInSteps(t *testing.T) {
	w := newWorld(t, 1)
	w.unaudited = true
	w.begin("e", "f")
	entry := &commandv1.Entry{}
	for range 1200 {
		entry.Commands = append(entry.Commands, signalCmd(w.request(), "e", "s", ""))
	}
	w.apply(w.parts[0], entry)
	w.now += replyRetentionMS + 1
	for _, left := range []int{688, 176, 0, 0} {
		w.do(tickCmd(0))
		if n := count(w.parts[0].state, []byte{byte(keys.Reply)}); n != left {
			t.Errorf("%d replies are left, must be %d", n, left)
		}
	}
	w.audit(w.parts[0])
}

// A retry that the rules refuse is refused for good: its first attempt, which comes late, does not take
// effect after the caller got the refusal.
func TestRefusedRetryBindsTheFirstAttempt(t *testing.T) {
	w := newWorld(t, 1)
	w.do(startCmd(w.request(), "other", "f", ""))
	request := w.request()
	retry := signalCmd(request, "e", "go", "x")
	retry.Request.AgeMs = 1
	e := wire.ReplyError(w.one(retry))
	if e == nil || e.Reason != perdurev1.Reason_REASON_EXECUTION_NOT_FOUND {
		t.Fatalf("%v", e)
	}
	w.do(startCmd(w.request(), "e", "f", ""))
	before := w.describe("e").JournalEvents
	for range 2 {
		if late := wire.ReplyError(w.one(signalCmd(request, "e", "go", "x"))); late == nil || late.Reason != e.Reason || late.Message != e.Message {
			t.Errorf("the first attempt comes late: %v, its retry got %v", late, e)
		}
	}
	if got := w.describe("e").JournalEvents; got != before {
		t.Errorf("%d events, were %d", got, before)
	}
	// The refusal of a first attempt is not stored, since there was no earlier attempt.
	first := signalCmd(w.request(), "later", "go", "x")
	w.refused(first, perdurev1.Reason_REASON_EXECUTION_NOT_FOUND)
	w.do(startCmd(w.request(), "later", "f", ""))
	w.do(first)
}
