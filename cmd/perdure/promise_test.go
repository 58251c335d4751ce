package main

import (
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

func TestPromise(t *testing.T) {
	s := shop()
	s.promises["late"] = &perdurev1.Promise{Namespace: "default", Id: "late", State: perdurev1.PromiseState_PROMISE_STATE_REJECTED_TIMEDOUT,
		CreatedAtMs: at(2 * time.Hour), TimeoutAtMs: at(time.Hour), SettledAtMs: at(time.Hour)}
	sh := &shell{addr: s.serve(t)}
	sh.story(t, "promise",
		`promise create approval-7 --timeout 24h --param '{"order": 42}' --tag team=billing`,
		"promise create approval-8 --timeout 1500ms --json",
		"promise get approval-7 --json",
		"# Waiting for a promise that stays pending: exit 5.",
		"promise get approval-7 --wait 20ms",
		"# Settling is once. The same again is well; another value is a conflict.",
		"promise resolve approval-7 --value true",
		"promise resolve approval-7 --value true --json",
		"promise resolve approval-7 --value false",
		"promise reject approval-7",
		"promise cancel approval-7 --json",
		"promise get approval-7 --wait 1m",
		`promise reject approval-8 --type declined --message 'not this time' --details '{"by": "ann"}'`,
		"promise get approval-8 --json",
		"promise create approval-9 --timeout 1h --namespace acme",
		"promise cancel approval-9 --reason withdrawn --namespace acme",
		"promise get late",
		"promise get late --json",
		"# The promise of an execution is not settled from outside.",
		"promise resolve order-42 --value 1",
		"promise get missing",
		"promise create approval-10",
		"promise create approval-10 --timeout 0s",
		"promise create",
		"promise",
		"promise forget approval-7",
		"promise resolve approval-7 --value maybe",
		"promise get approval-7 --wait -1s",
	)
}

func TestPromiseGetWaits(t *testing.T) {
	s := shop()
	s.promises["p"] = &perdurev1.Promise{Namespace: "default", Id: "p", State: perdurev1.PromiseState_PROMISE_STATE_PENDING, CreatedAtMs: at(0), TimeoutAtMs: at(-time.Hour)}
	sh := &shell{addr: s.serve(t)}
	printed := make(chan string, 1)
	go func() {
		stdout, stderr, _ := sh.run("promise", "get", "p", "--wait", "1m", "--json")
		printed <- stdout + stderr
	}()
	select {
	case <-s.asked:
	case <-time.After(deadline):
		t.Fatal("no call waits for the promise")
	}
	s.mu.Lock()
	s.promises["p"].State, s.promises["p"].Value, s.promises["p"].SettledAtMs = perdurev1.PromiseState_PROMISE_STATE_RESOLVED, valueOf([]byte("1")), at(0)
	s.mu.Unlock()
	close(s.finished)
	select {
	case got := <-printed:
		want := `{"namespace":"default","id":"p","state":"resolved","param":null,"value":{"value":1},"tags":{},"timeout_at_ms":1795179600000,"created_at_ms":1795176000000,"settled_at_ms":1795176000000}` + "\n"
		if got != want {
			t.Errorf("printed %s, want %s", got, want)
		}
	case <-time.After(deadline):
		t.Fatal("the promise is not printed")
	}
}
