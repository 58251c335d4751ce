package group

import (
	"sync"
	"testing"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm"
	"perdure/fsm/machine"
)

// A leadership that has already read the state still gets the effects of entries applied while it begins.
func TestEffectsWhileALeadershipBegins(t *testing.T) {
	n := newMemNode(t, 2)
	r, d := n.router.Replicas()[0], n.Dispatcher()
	w := d.Attach(spec("w", 1, "f"))
	defer w.Detach()
	must(t, n.router, promiseCmd(idIn(n.router, 0, "due"), 1<<45)) // so that there is a deadline to be read
	r.serving().revoke()
	// A queue of the other partition holds the dispatcher up.
	must(t, n.router, callCmd(idIn(n.router, 1, "g"), "a"))
	held, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	go d.OnStarved(func(string, string) {
		once.Do(func() { close(held) })
		<-release
	})
	<-held
	l := r.startLeadership()
	defer l.revoke()
	waitFor(t, "it to have read the state", func() bool { return l.timer.next.Load() != 0 }, func() string { return "" })
	id := idIn(n.router, 0, "x")
	b, err := fsm.EncodeEntry(&commandv1.Entry{TimeMs: r.clock.Now().UnixMilli(), Commands: []*commandv1.Command{startCmd("s", id, "f", "")}})
	if err != nil {
		t.Fatal(err)
	}
	future := r.raft.Apply(b, waitLimit)
	if err := future.Error(); err != nil {
		t.Fatal(err)
	}
	go r.leader.perform(&future.Response().(*machine.Result).Effects, nil)
	waitFor(t, "the effects to find no leadership", func() bool { return r.unclaimed.Load() > 0 }, func() string { return "" })
	close(release)
	if token := deliver(t, w); token.Id != id {
		t.Errorf("received %v", token)
	}
}
