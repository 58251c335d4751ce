package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/recovery"
)

const resolved = perdurev1.PromiseState_PROMISE_STATE_RESOLVED

// A client settles a promise that a function has made, once; the function is resumed by its value. No other
// promise of an operation is a client's to settle.
func TestNewPromise(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.commit(v, "promise; sleep 100; promise timeout=50; all 0,2")
	reply := w.apply(w.at("e"), &commandv1.Entry{Commands: []*commandv1.Command{settlePromiseCmd("e:1", resolved, "x")}}).Replies[0]
	if err := wire.ReplyError(reply); err == nil || err.Reason != perdurev1.Reason_REASON_NOT_SETTLEABLE {
		t.Errorf("a timer was settled: %v", reply)
	}
	for _, text := range []string{"x", "y"} {
		if got := w.do(settlePromiseCmd("e:0", resolved, text)).GetPromise().GetPromise(); string(got.GetValue().GetValue()) != "x" {
			t.Errorf("settled with %q: %v", text, got)
		}
	}
	if got := w.sendResult("e", 0); got != `"x"` {
		t.Errorf("the journal says %s", got)
	}
	w.pass(50)
	if got := w.sendResult("e", 2); got == "" || got[:8] != "!timeout" {
		t.Errorf("a promise that was not settled: the journal says %s", got)
	}
	w.commit(w.only("w1", "f"), "return x")
}

// A token that a former incarnation gave away settles nothing: the promise that has its id now is another
// one. A promise that a restart keeps has the tokens of both.
func TestTokenOfFormerIncarnation(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	settle := func(incarnation uint64, text string) *commandv1.Command {
		cmd := settlePromiseCmd("e:0", resolved, text)
		cmd.GetSettlePromise().Incarnation = incarnation
		return cmd
	}
	first := v.token.Incarnation
	w.commit(v, "promise; sleep 100")
	w.do(restartCmd(w.request(), "e", fromEvent, 3)) // keeps the promise
	v = w.only("w1", "f")
	second := v.token.Incarnation
	for _, incarnation := range []uint64{first, second} {
		if got := w.do(settle(incarnation, "x")).GetPromise().GetPromise(); string(got.GetValue().GetValue()) != "x" {
			t.Errorf("the token of incarnation %d: %v", incarnation, got)
		}
	}
	w.commit(v, "continue again")
	v = w.only("w1", "f")
	w.commit(v, "promise")
	for _, incarnation := range []uint64{first, second} {
		reply := w.apply(w.at("e"), &commandv1.Entry{Commands: []*commandv1.Command{settle(incarnation, "late")}}).Replies[0]
		if err := wire.ReplyError(reply); err == nil || err.Reason != perdurev1.Reason_REASON_PROMISE_NOT_FOUND {
			t.Errorf("the token of former incarnation %d: %v", incarnation, reply)
		}
		query := &commandv1.Query{Id: "e:0", Kind: &commandv1.Query_Promise{Promise: &perdurev1.GetPromiseRequest{Incarnation: incarnation}}}
		if reply := w.query(query); reply.GetPromise() != nil {
			t.Errorf("the token of former incarnation %d reads %v", incarnation, reply)
		}
	}
	if got := w.promise("e:0").State; got != perdurev1.PromiseState_PROMISE_STATE_PENDING {
		t.Fatalf("the new promise is %v", got)
	}
	w.do(settle(v.token.Incarnation, "y"))
	if got := w.sendResult("e", 0); got != `"y"` {
		t.Errorf("the journal says %s", got)
	}
}

// A promise that a function has made with a secret is settled by its token alone, also after a restart that keeps it.
func TestPromiseSecret(t *testing.T) {
	const secret = "0123456789abcdef"
	w := newWorld(t, 1)
	v := w.begin("e", "f")
	w.refused(w.commitCmd(v, "promise secret=short"), perdurev1.Reason_REASON_BAD_REQUEST)
	w.commit(v, "promise secret="+secret+"; promise; sleep 100")
	settle := func(objectID, token string) *commandv1.Command {
		cmd := settlePromiseCmd(objectID, resolved, "x")
		cmd.GetSettlePromise().Secret = []byte(token)
		return cmd
	}
	for range 2 {
		for _, token := range []string{"", "0123456789abcdeg", secret[1:], secret + "0"} {
			w.refused(settle("e:0", token), perdurev1.Reason_REASON_NOT_SETTLEABLE)
		}
		w.do(restartCmd(w.request(), "e", fromEvent, 5)) // keeps the promises
		w.tick()
	}
	for value := range w.promise("e:0").Tags {
		if strings.Contains(value, secret) || strings.Contains(w.promise("e:0").Tags[value], secret) {
			t.Errorf("a reader sees the secret: %v", w.promise("e:0").Tags)
		}
	}
	for _, plant := range []func(p *recovery.Promise){
		func(p *recovery.Promise) { p.Tags = state.NewPromiseTags(nil) },
		func(p *recovery.Promise) { p.Tags = state.NewPromiseTags([]byte("another secret..")) },
	} {
		s := &plot{t: t, state: w.parts[0].state.Clone(), cfg: w.parts[0].cfg}
		s.promise("e:0", plant)
		if found := audited(t, s.state, s.cfg); !slices.ContainsFunc(found, func(v audit.Violation) bool { return v.Rule == audit.RuleOperation }) {
			t.Errorf("a promise with another secret is not found: %s", lines(found))
		}
	}
	w.do(settle("e:0", secret))
	w.do(settle("e:1", "")) // as one of a former worker
	for n := range uint32(2) {
		if got := w.sendResult("e", n); got != `"x"` {
			t.Errorf("operation %d: the journal says %s", n, got)
		}
	}
}

// An execution has the value of any promise by its id: one that is settled, one that is settled later, an
// execution's, and none; in its own partition and in the other one. An answer that comes after the asker's
// end changes nothing.
func TestAwaitPromise(t *testing.T) {
	for _, far := range []bool{false, true} {
		p := newPipe(t)
		place := p.far
		if !far {
			place = func(prefix string) string { return near(p.world, p.parts[p.src], prefix) }
		}
		nobody, settled, later, run := place("nobody"), place("settled"), place("later"), place("run")
		for _, id := range []string{settled, later} {
			p.do(createPromiseCmd(id, 5000))
		}
		p.do(settlePromiseCmd(settled, resolved, "early"))
		target := p.begin(run, "g")
		p.commit(p.sender, fmt.Sprintf("value %s; value %s; value %s; value %s; value %s; all 0,1,2,3", nobody, settled, later, run, later))
		p.ship()
		for n, want := range []string{fmt.Sprintf("!target_not_found %q", fmt.Sprintf("no promise %q in namespace %q", nobody, ns)), `"early"`, "", ""} {
			if got := p.sendResult("e", uint32(n)); got != want {
				t.Errorf("far %v: operation %d: the journal says %s, must be %s", far, n, got, want)
			}
		}
		p.do(settlePromiseCmd(later, resolved, "late"))
		p.commit(target, "return done")
		p.ship()
		for n, want := range map[uint32]string{2: `"late"`, 3: `"done"`, 4: `"late"`} {
			if got := p.sendResult("e", n); got != want {
				t.Errorf("far %v: operation %d: the journal says %s, must be %s", far, n, got, want)
			}
		}
		last := place("last")
		p.do(createPromiseCmd(last, 5000))
		p.commit(p.only("w1", "f"), "value "+last+"; return x")
		p.ship()
		p.do(settlePromiseCmd(last, resolved, "nobody listens"))
		p.ship()
		if got := p.sendResult("e", 5); got != "" {
			t.Errorf("far %v: after the end the journal says %s", far, got)
		}
	}
}
