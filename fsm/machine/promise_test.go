package machine

import (
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state/keys"
)

const (
	resolve = perdurev1.PromiseState_PROMISE_STATE_RESOLVED
	reject  = perdurev1.PromiseState_PROMISE_STATE_REJECTED
	cancel  = perdurev1.PromiseState_PROMISE_STATE_REJECTED_CANCELED
)

// A standalone promise is made once and settled once.
func TestBarePromise(t *testing.T) {
	for _, c := range []struct {
		to   perdurev1.PromiseState
		want string
	}{
		{resolve, `promise p RESOLVED created=1000 timeout=6000 settled=2000 a=1 b=2 "v"`},
		{reject, `promise p REJECTED created=1000 timeout=6000 settled=2000 a=1 b=2 "v"`},
		{cancel, `promise p REJECTED_CANCELED created=1000 timeout=6000 settled=2000 a=1 b=2 "v"`},
	} {
		w := newWorld(t, 1)
		w.now = 1000
		first := w.do(createPromiseCmd("p", 5000)).GetPromise().Promise
		if string(first.Param) != "param" || showPromise(first) != "promise p PENDING created=1000 timeout=6000 a=1 b=2" {
			t.Errorf("made %v", first)
		}
		w.now = 2000
		if got := w.do(createPromiseCmd("p", 1)).GetPromise().Promise; showPromise(got) != showPromise(first) {
			t.Errorf("made again: %v", got)
		}
		for _, to := range []perdurev1.PromiseState{c.to, resolve, reject, cancel} {
			if got := showPromise(w.do(settlePromiseCmd("p", to, "v")).GetPromise().Promise); got != c.want {
				t.Errorf("settled to %v: %s, must be %s", to, got, c.want)
			}
			w.now++
		}
		w.now = 100_000
		w.tick()
		if got := showPromise(w.promise("p")); got != c.want {
			t.Errorf("after its deadline: %s", got)
		}
	}
}

// Its deadline settles it at the deadline, whether a tick, a read or a settlement comes first.
func TestPromiseDeadline(t *testing.T) {
	const want = "promise p REJECTED_TIMEDOUT created=1000 timeout=6000 settled=6000 a=1 b=2 !timeout \"timed out\""
	for _, how := range []string{"tick", "read", "settle", "create"} {
		w := newWorld(t, 1)
		w.do(createPromiseCmd("p", 5000))
		w.now = 5999
		if got := w.promise("p").State; got != perdurev1.PromiseState_PROMISE_STATE_PENDING {
			t.Errorf("%s: %v before its deadline", how, got)
		}
		w.now = 6000
		got := ""
		switch how {
		case "tick":
			w.tick()
			got = showPromise(w.promise("p"))
		case "read":
			if early := w.promise("p").State; early != perdurev1.PromiseState_PROMISE_STATE_PENDING {
				t.Errorf("a read shows %v, and no entry has brought the machine's clock to the deadline", early)
			}
			w.do(createPromiseCmd("other", 1)) // does not touch p
			got = showPromise(w.promise("p"))
		case "settle":
			got = showPromise(w.do(settlePromiseCmd("p", resolve, "late")).GetPromise().Promise)
		case "create":
			got = showPromise(w.do(createPromiseCmd("p", 1)).GetPromise().Promise)
		}
		if got != want {
			t.Errorf("%s: %s, must be %s", how, got, want)
		}
	}
}

func TestPromiseRefused(t *testing.T) {
	w := newWorld(t, 2)
	v := w.begin("e", "f")
	w.commit(v, "step a; sleep 10000; child g; child g spread; wait s")
	w.refused(settlePromiseCmd("none", resolve, ""), perdurev1.Reason_REASON_PROMISE_NOT_FOUND)
	for _, owned := range []string{"e", "e:1", "e:2", "e:3", "e:4"} {
		w.refused(settlePromiseCmd(owned, resolve, ""), perdurev1.Reason_REASON_NOT_SETTLEABLE)
	}
	w.do(createPromiseCmd("p", 1000))
	for _, to := range []perdurev1.PromiseState{0, 1, 5, 9, -1, 256 + 2} {
		w.refused(settlePromiseCmd("p", to, ""), perdurev1.Reason_REASON_BAD_REQUEST)
	}
	w.refused(createPromiseCmd("", 1000), perdurev1.Reason_REASON_BAD_REQUEST)
	// A failure as the value, and none at all.
	cmd := settlePromiseCmd("p", reject, "")
	cmd.GetSettlePromise().Value = failure("app:no")
	if got := showPromise(w.do(cmd).GetPromise().Promise); !strings.HasSuffix(got, `!app "no"`) {
		t.Errorf("settled: %s", got)
	}
	w.do(createPromiseCmd("q", 1000))
	cmd = settlePromiseCmd("q", resolve, "")
	cmd.GetSettlePromise().Value = nil
	if got := showPromise(w.do(cmd).GetPromise().Promise); !strings.HasSuffix(got, ` ""`) {
		t.Errorf("settled: %s", got)
	}
}

// One effect notifies each listener once, of the settlement only.
func TestListeners(t *testing.T) {
	w := newWorld(t, 1)
	w.do(createPromiseCmd("p", 5000))
	p := w.parts[0]
	p.m.txn.begin(p.m.applied)
	p.m.txn.store(ns).AddListener("p", "b")
	p.m.txn.store(ns).AddListener("p", "a")
	p.m.txn.store(ns).AddListener("p", "a")
	p.m.txn.commit(&Effects{})
	res := w.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{settlePromiseCmd("p", resolve, "v"), settlePromiseCmd("p", resolve, "v")}})
	if got := strings.Join(showEffects(res.Effects), ", "); got != "effect: settled p, effect: unblock p for a, effect: unblock p for b, effect: due at 121000" {
		t.Errorf("%s", got)
	}
	if n := count(p.state, keys.Of(keys.Listener, ns, "p")); n != 0 {
		t.Errorf("%d are still listening", n)
	}
}
