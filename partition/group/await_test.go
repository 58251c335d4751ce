package group

import (
	"context"
	"testing"
	"time"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
)

// awaiting is an Await under way.
type awaiting struct {
	reply *commandv1.QueryReply
	err   error
	done  chan error
}

func awaitIn(t *testing.T, r *Replica, q *commandv1.Query, wait time.Duration) *awaiting {
	t.Helper()
	a := &awaiting{done: make(chan error, 1)}
	ctx := bg(t)
	go func() {
		a.reply, _, a.err = r.Await(ctx, q, wait)
		a.done <- a.err
	}()
	return a
}

// watched waits until an Await has registered its watch.
func watched(t *testing.T, n *node) {
	t.Helper()
	waitFor(t, "a watch", func() bool { return n.shared.Watches.Waiting() == 1 }, func() string { return "" })
}

// resultOf asks for the result of an incarnation.
func resultOf(id string, incarnation uint64) *commandv1.Query {
	return &commandv1.Query{Namespace: ns, Id: id, Kind: &commandv1.Query_Result{
		Result: &perdurev1.ResultRequest{Namespace: ns, Id: id, Incarnation: incarnation}}}
}

// TestAwaitOfAnIncarnation: the result of an incarnation is answered when it comes, and later, without a
// confirmation of leadership: nothing changes it any more.
func TestAwaitOfAnIncarnation(t *testing.T) {
	n := newMemNode(t, 1)
	r := n.router.Replicas()[0]
	incarnation := must(t, n.Router(), startCmd("start", "e", "f", "1")).GetStart().Incarnation
	h := holdRounds(t, r)
	a := awaitIn(t, r, resultOf("e", incarnation), time.Hour)
	watched(t, n)
	must(t, n.Router(), terminateCmd("e"))
	if err := answered(t, a.done); err != nil || !a.reply.GetResult().Done || a.reply.GetResult().Incarnation != incarnation {
		t.Errorf("%v, %v", a.reply, err)
	}
	if err := answered(t, awaitIn(t, r, resultOf("e", incarnation), 0).done); err != nil {
		t.Error(err)
	}
	if n.shared.Watches.Waiting() != 0 {
		t.Errorf("%d watches are left", n.shared.Watches.Waiting())
	}
	// An incarnation that this node does not know of may be another leader's. Its result is not that of an earlier one.
	a = awaitIn(t, r, resultOf("e", incarnation+1), 0)
	h.next(t, a.done)
	h.proceed <- struct{}{}
	if err := answered(t, a.done); err != nil || Settled(a.reply) {
		t.Errorf("%v, %v, want none yet", a.reply, err)
	}
	a = awaitIn(t, r, resultOf("e", incarnation+1), time.Hour)
	h.next(t, a.done)
	again := startCmd("start again", "e", "f", "1")
	again.GetStart().Reuse = perdurev1.Reuse_REUSE_ALWAYS
	next := must(t, n.Router(), again).GetStart().Incarnation
	h.proceed <- struct{}{}
	watched(t, n)
	must(t, n.Router(), terminateCmd("e"))
	if err := answered(t, a.done); err != nil || a.reply.GetResult().Incarnation != next || next <= incarnation {
		t.Errorf("%v, %v, want the result of %d", a.reply, err, next)
	}
}

// TestAwaitIsConfirmed: every other answer of Await is confirmed after it began, the last one of a wait too; one whose
// leadership ends before is refused.
func TestAwaitIsConfirmed(t *testing.T) {
	n := newMemNode(t, 1)
	r := n.router.Replicas()[0]
	must(t, n.Router(), startCmd("start", "e", "f", "1"))
	must(t, n.Router(), startCmd("start 2", "ended", "f", "1"))
	must(t, n.Router(), terminateCmd("ended"))
	must(t, n.Router(), promiseCmd("p", 1<<40))
	h := holdRounds(t, r)
	for what, q := range map[string]*commandv1.Query{
		"a result": resultOf("ended", 0), "one that there is not": resultOf("nothing", 0),
		"a promise at the end of a wait": promiseQuery("p"), "a result at the end of a wait": resultOf("e", 0)} {
		wait := time.Hour
		if q.Id == "p" || q.Id == "e" {
			wait = 0
		}
		a := awaitIn(t, r, q, wait)
		h.next(t, a.done)
		h.proceed <- struct{}{}
		if err := answered(t, a.done); (err != nil) != (q.Id == "nothing") {
			t.Errorf("%s: %v", what, err)
		}
		a = awaitIn(t, r, q, wait)
		h.next(t, a.done)
		l := r.lead.Swap(nil)
		h.proceed <- struct{}{}
		if err := answered(t, a.done); reasonOf(err) != perdurev1.Reason_REASON_NOT_LEADER {
			t.Errorf("%s, when the leadership is over: %v", what, err)
		}
		r.lead.Store(l)
	}
	for what, end := range map[string]func(){
		"e": func() { must(t, n.Router(), terminateCmd("e")) },
		"p": func() { must(t, n.Router(), settleCmd("p", "1")) }} {
		q := promiseQuery("p")
		if what == "e" {
			q = resultOf("e", 0)
		}
		a := awaitIn(t, r, q, time.Hour)
		watched(t, n)
		end()
		h.next(t, a.done)
		h.proceed <- struct{}{}
		if err := answered(t, a.done); err != nil || !Settled(a.reply) {
			t.Errorf("%s: %v, %v", what, a.reply, err)
		}
	}
}

// TestAwaitReadsAgain: what was read before another leadership began may be of a former leader, and is read again under
// the one that was confirmed. So is the absence of an id, under any.
func TestAwaitReadsAgain(t *testing.T) {
	n := newMemNode(t, 1)
	r := n.router.Replicas()[0]
	must(t, n.Router(), startCmd("start", "e", "f", "1"))
	must(t, n.Router(), terminateCmd("e"))
	must(t, n.Router(), promiseCmd("p", 1<<40))
	h := holdRounds(t, r)
	// held is an Await that has read, and waits for the round after the one of another read, which is under way.
	held := func(q *commandv1.Query) (other <-chan error, a *awaiting) {
		read := make(chan error, 1)
		go func() {
			_, _, err := r.Query(bg(t), Linearizable, promiseQuery("p"))
			read <- err
		}()
		h.next(t, read)
		a = awaitIn(t, r, q, 0)
		waitFor(t, "the wait for a round", func() bool {
			r.confirms.mu.Lock()
			defer r.confirms.mu.Unlock()
			return len(r.confirms.waiting) == 1
		}, func() string { return "" })
		return read, a
	}
	goOn := func(other <-chan error, a *awaiting) {
		h.proceed <- struct{}{}
		_ = answered(t, other) // refused or not, by the leadership that it was asked under
		h.next(t, a.done)
		h.proceed <- struct{}{}
		if err := answered(t, a.done); err != nil {
			t.Error(err)
		}
	}
	startAgain := func() {
		cmd := startCmd("start again", "e", "f", "1")
		cmd.GetStart().Reuse = perdurev1.Reuse_REUSE_ALWAYS
		must(t, n.Router(), cmd)
	}

	other, a := held(resultOf("e", 0))
	startAgain()
	l := r.lead.Load()
	next := &leadership{r: l.r, term: l.term, ctx: l.ctx, cancel: l.cancel, timer: l.timer, ship: l.ship, done: l.done}
	r.lead.Store(next)
	goOn(other, a)
	r.lead.Store(l)
	if Settled(a.reply) {
		t.Errorf("%v was read before the leadership under which it is answered", a.reply)
	}

	other, a = held(resultOf("nothing", 0))
	must(t, n.Router(), startCmd("start 2", "nothing", "f", "1"))
	goOn(other, a)
	if a.reply == nil || Settled(a.reply) {
		t.Errorf("%v, want one without a result", a.reply)
	}
}

// TestAwaitEndsWithTheLeadership: a wait ends at once when another node leads, when the node stops, and at its deadline.
func TestAwaitEndsWithTheLeadership(t *testing.T) {
	n := newMemNode(t, 1)
	r := n.router.Replicas()[0]
	must(t, n.Router(), promiseCmd("p", 1<<40))
	a := awaitIn(t, r, promiseQuery("p"), time.Hour)
	watched(t, n)
	l := r.lead.Swap(nil)
	r.watches.WakeAll()
	if err := answered(t, a.done); err == nil {
		t.Error("an answer came although the leadership was over")
	}
	r.lead.Store(l)
	ctx, cancel := context.WithCancel(bg(t))
	go func() {
		_, _, err := r.Await(ctx, promiseQuery("p"), time.Hour)
		a.done <- err
	}()
	watched(t, n)
	cancel()
	if err := answered(t, a.done); err == nil {
		t.Error("an answer came after its caller had gone")
	}
	a = awaitIn(t, r, promiseQuery("p"), time.Hour)
	watched(t, n)
	closeNode(t, n)
	if err := answered(t, a.done); reasonOf(err) != perdurev1.Reason_REASON_SHUTTING_DOWN && reasonOf(err) != perdurev1.Reason_REASON_NOT_LEADER {
		t.Error(err)
	}
}

// TestReadSettled: a state answers what cannot change, and says what is pending only while this node leads.
func TestReadSettled(t *testing.T) {
	n := newMemNode(t, 1)
	r := n.router.Replicas()[0]
	incarnation := must(t, n.Router(), startCmd("start", "e", "f", "1")).GetStart().Incarnation
	finds := func(what string, want Finding, q *commandv1.Query) {
		t.Helper()
		reply, index, found := r.ReadSettled(q)
		if found != want || (found == Final) != reply.GetResult().GetDone() || found != Unclear && index == 0 {
			t.Errorf("%s: %v at %d, found %d, want %d", what, reply, index, found, want)
		}
	}
	finds("an open execution", Pending, resultOf("e", incarnation))
	finds("a later incarnation", Unclear, resultOf("e", incarnation+1))
	finds("nothing", Unclear, resultOf("nothing", 1))
	l := r.lead.Swap(nil)
	finds("an open execution without leadership", Unclear, resultOf("e", incarnation))
	r.lead.Store(l)
	must(t, n.Router(), terminateCmd("e"))
	finds("what has ended", Final, resultOf("e", incarnation))
	finds("what may start again", Unclear, resultOf("e", 0))
	l = r.lead.Swap(nil)
	finds("what has ended, without leadership", Final, resultOf("e", incarnation))
	r.lead.Store(l)
}
