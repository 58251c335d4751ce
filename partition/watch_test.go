package partition

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/group"
	"perdure/partition/watch"
)

// notifyBound is below the wait of a watch that is not notified (forwardTimeout), and far above the time of a
// notification.
const notifyBound = 8 * time.Second

// signalsCmd submits a run that waits for signals s0, s1 and so on, in any order.
func signalsCmd(id string, signals int) *commandv1.Command {
	g := &perdurev1.Graph{}
	for n := range signals {
		name := fmt.Sprint("s", n)
		g.Nodes = append(g.Nodes, &perdurev1.GraphNode{Id: name, Kind: &perdurev1.GraphNode_Signal{Signal: &perdurev1.SignalNode{Name: name}}})
	}
	return &commandv1.Command{Namespace: ns, Id: id, Request: rid("submit " + id), Kind: &commandv1.Command_SubmitGraph{
		SubmitGraph: &perdurev1.SubmitGraphRequest{Id: id, Graph: g, Input: []byte("{}")}}}
}

func retryGraphCmd(id string) *commandv1.Command {
	return &commandv1.Command{Namespace: ns, Id: id, Request: rid("retry " + id), Kind: &commandv1.Command_RetryGraph{
		RetryGraph: &perdurev1.RetryGraphRequest{Id: id}}}
}

func runVersion(t *testing.T, r *Router, id string) group.RunVersion {
	t.Helper()
	return group.RunVersionOf(mustQuery(t, r, group.RunQuery(ns, id)))
}

// notified waits for a value of a watch.
func notified(t *testing.T, what string, w *watch.Watch) {
	t.Helper()
	select {
	case <-w.C:
	case <-time.After(notifyBound):
		t.Fatalf("%s: no notification within %v", what, notifyBound)
	}
}

// Each change of a run notifies its watches, several in a row once. It notifies no watch of another run, and
// none that waits for the run's end.
func TestRunWatch(t *testing.T) {
	n := newMemNode(t, 1)
	r := n.router
	must(t, r, signalsCmd("run", 5))
	must(t, r, signalsCmd("other", 5))
	seen := runVersion(t, r, "run")
	other, end := r.WatchRun(ns, "other"), n.shared.Watches.Add(watch.Settled, ns, "run")
	defer other.Stop()
	defer end.Stop()
	w := r.WatchRun(ns, "run")
	w.Follow(seen)
	for i := range 4 {
		must(t, r, signalCmd(fmt.Sprint("signal ", i), "run", fmt.Sprint("s", i), "1"))
	}
	notified(t, "four signals", w.Watch)
	if len(w.C) > 0 {
		t.Error("a watcher that was slow has a second notification")
	}
	if now := runVersion(t, r, "run"); now.Incarnation != seen.Incarnation || now.Events <= seen.Events {
		t.Errorf("it was %v and is %v", seen, now)
	}
	if len(other.C) > 0 || len(end.C) > 0 {
		t.Errorf("watches of another run (%d) and of the end (%d) were notified too", len(other.C), len(end.C))
	}
	must(t, r, terminateCmd("run"))
	notified(t, "the end, to a watch of changes", w.Watch)
	notified(t, "the end, to a watch of it", end)
	must(t, r, retryGraphCmd("run"))
	notified(t, "a retry", w.Watch)
	if now := runVersion(t, r, "run"); now.Incarnation == seen.Incarnation {
		t.Errorf("after a retry it is %v", now)
	}
	w.Stop()
	if got := n.shared.Watches.Waiting(); got != 2 {
		t.Errorf("%d wait, two should", got)
	}
}

// A node that does not lead asks the leader, and learns of a change between its read and its request.
func TestRunWatchElsewhere(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newClusterWith(t, 1, neverActs)
	lead := leaderOf(t, all, 0)
	must(t, lead.router, signalsCmd("run", 8))
	signal := 0
	send := func() {
		t.Helper()
		must(t, lead.router, signalCmd(fmt.Sprint("signal ", signal), "run", fmt.Sprint("s", signal), "1"))
		signal++
	}
	asked := func(m *member) func() bool {
		return func() bool { return m.shared.Watches.Waiting() > 0 }
	}
	for _, m := range all {
		if m == lead {
			continue
		}
		w := m.router.WatchRun(ns, "run")
		seen := runVersion(t, m.router, "run")
		send() // between reading and asking
		w.Follow(seen)
		notified(t, "a change before "+m.cfg.NodeID+" asked", w.Watch)
		w.Stop()

		w = m.router.WatchRun(ns, "run")
		w.Follow(runVersion(t, m.router, "run"))
		waitFor(t, "the leader to be asked", asked(lead), func() string { return "" })
		began := time.Now()
		send()
		notified(t, "a change after "+m.cfg.NodeID+" asked", w.Watch)
		t.Logf("%s was notified after %v", m.cfg.NodeID, time.Since(began))
		w.Stop()
		waitFor(t, "the leader to forget who has gone", func() bool { return lead.shared.Watches.Waiting() == 0 }, func() string { return "" })
	}
}

// A node that becomes the leader between a watcher's read and its wait reports a change in between: it has
// applied that as a follower, and no other node is left to ask.
func TestRunWatchOfANewLeader(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newClusterWith(t, 1, neverActs)
	lead := leaderOf(t, all, 0)
	must(t, lead.router, signalsCmd("run", 2))
	target := all[0]
	if target == lead {
		target = all[1]
	}
	w := target.router.WatchRun(ns, "run")
	defer w.Stop()
	seen := runVersion(t, target.router, "run")
	must(t, lead.router, signalCmd("signal 0", "run", "s0", "1"))
	transfer(t, lead, 0, target.cfg.NodeID)
	waitFor(t, "the target leads", func() bool { return leads(target, 0) }, func() string { return fmt.Sprint(report{target.Node}.node()) })
	w.Follow(seen)
	notified(t, "a change before this node led", w.Watch)
}

// followRun watches a run as callers do, and shows each version it has seen.
func followRun(ctx context.Context, r *Router, id string, seen chan<- group.RunVersion) error {
	var last group.RunVersion
	for {
		w := r.WatchRun(ns, id)
		reply, _, err := r.Query(ctx, group.Linearizable, group.RunQuery(ns, id))
		if err != nil {
			w.Stop()
			return errors.Join(err, ctx.Err())
		}
		if now := group.RunVersionOf(reply); now != last {
			last = now
			seen <- now
		}
		w.Follow(last)
		select {
		case <-w.C:
		case <-ctx.Done():
		}
		w.Stop()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
}

// Watchers at every node see each change although the leadership moves: handed on, given up, and lost with
// its node.
func TestRunWatchAcrossLeaders(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newClusterWith(t, 1, neverActs)
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	lead := leaderOf(t, all, 0)
	must(t, lead.router, signalsCmd("run", 8))
	type watcher struct {
		at    *member
		seen  chan group.RunVersion
		ended chan error
	}
	var watchers []*watcher
	for _, m := range all {
		w := &watcher{m, make(chan group.RunVersion, 100), make(chan error, 1)}
		router := m.router
		go func() { w.ended <- followRun(ctx, router, "run", w.seen) }()
		watchers = append(watchers, w)
	}
	signal, slowest := 0, time.Duration(0)
	change := func(what string) {
		t.Helper()
		must(t, leaderOf(t, all, 0).router, signalCmd(fmt.Sprint("signal ", signal), "run", fmt.Sprint("s", signal), "1"))
		signal++
		began, want := time.Now(), runVersion(t, leaderOf(t, all, 0).router, "run")
		for _, w := range watchers {
			for over := time.After(notifyBound); ; {
				select {
				case got := <-w.seen:
					if got != want {
						continue
					}
				case <-over:
					t.Fatalf("%s: %s has not seen %v within %v", what, w.at.cfg.NodeID, want, notifyBound)
				}
				break
			}
		}
		slowest = max(slowest, time.Since(began))
	}
	change("before anything moves")
	for i := range 3 {
		from := leaderOf(t, all, 0)
		to := all[0]
		if from == to {
			to = all[1]
		}
		transfer(t, from, 0, to.cfg.NodeID)
		change(fmt.Sprint("after transfer ", i))
	}
	// The leader goes, with its watcher.
	gone := leaderOf(t, all, 0)
	for i, w := range watchers {
		if w.at == gone {
			watchers = append(watchers[:i:i], watchers[i+1:]...)
			break
		}
	}
	gone.stop(t)
	change("after the leader's node has stopped")
	t.Logf("the slowest was notified after %v", slowest)
	cancel()
	for _, w := range watchers {
		if err := <-w.ended; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", w.at.cfg.NodeID, err)
		}
	}
}
