package partition

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
)

// Commands that wait while the log is busy share entries, up to the bounds of one.
func TestCoalescing(t *testing.T) {
	n, disk := newGatedNode(t, 1)
	r := n.router.Replicas()[0]
	const many = 200
	stuck(t, n, disk, 0)
	before, entries := counted(t, r.metrics.Commands), counted(t, r.metrics.Entries)
	var wg sync.WaitGroup
	for k := range many {
		wg.Add(1)
		go func() {
			defer wg.Done()
			if _, err := r.Propose(bg(t), promiseCmd(fmt.Sprintf("p%d", k), 1<<40)); err != nil {
				t.Errorf("p%d: %v", k, err)
			}
		}()
	}
	queued(t, r, many)
	disk.open()
	wg.Wait()
	waitFor(t, "everything to be counted", func() bool { return counted(t, r.metrics.Commands) == before+many+maxInFlight }, func() string { return fmt.Sprint(counted(t, r.metrics.Commands)) })
	// One proposal was in the proposer's hand, the rest came in full entries.
	if got, most := counted(t, r.metrics.Entries)-entries-maxInFlight, many/maxEntryCommands+1; got > most {
		t.Errorf("%d commands took %d entries, at most %d are needed", many, got, most)
	}
}

// Large commands share an entry only up to its bytes, and one above them travels alone.
func TestCoalescingBytes(t *testing.T) {
	n, disk := newGatedNode(t, 1)
	r := n.router.Replicas()[0]
	stuck(t, n, disk, 0)
	entries := counted(t, r.metrics.Entries)
	var wg sync.WaitGroup
	for k := range 13 {
		size := 30 << 10
		if k == 5 {
			size = 200 << 10
		}
		p := &proposal{cmd: startCmd(fmt.Sprint("s", k), fmt.Sprint("large-", k), "f", strings.Repeat("x", size)), done: make(chan proposalResult, 1)}
		if err := r.enqueue(p); err != nil {
			t.Fatal(err)
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			if res := <-p.done; res.err != nil {
				t.Error(res.err)
			}
		}()
	}
	disk.open()
	wg.Wait()
	// 30 KiB fit three times until 64 KiB are reached: entries of three, and what the large one closes.
	got := counted(t, r.metrics.Entries) - entries - maxInFlight
	if got < 4 || got > 6 {
		t.Errorf("they took %d entries", got)
	}
}

// Within an entry and over entries, commands are applied and answered in the order they came.
func TestOrder(t *testing.T) {
	n, disk := newGatedNode(t, 1)
	r := n.router.Replicas()[0]
	must(t, n.Router(), startCmd("start", "x", "f", ""))
	stuck(t, n, disk, 0)
	var answered []int
	var mu sync.Mutex
	var wg sync.WaitGroup
	for k := range 150 {
		p := &proposal{cmd: signalCmd(fmt.Sprint("signal ", k), "x", "go", fmt.Sprint(k)), done: make(chan proposalResult, 1)}
		if err := r.enqueue(p); err != nil {
			t.Fatal(err)
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			res := <-p.done
			if res.err != nil || res.reply.GetSignal().GetDeliveryId() != uint64(k+1) {
				t.Errorf("signal %d: %v, %v", k, res.reply, res.err)
			}
			mu.Lock()
			answered = append(answered, k)
			mu.Unlock()
		}()
	}
	disk.open()
	wg.Wait()
	if len(answered) != 150 {
		t.Errorf("%d were answered", len(answered))
	}
	j := mustQuery(t, n.Router(), journalQuery("x")).GetJournal()
	k := 0
	for _, e := range j.Entries {
		if s := e.Event.GetSignalDelivered(); s != nil {
			if string(s.Payload.GetValue()) != fmt.Sprint(k) {
				t.Fatalf("delivery %d is %q", k+1, s.Payload.GetValue())
			}
			k++
		}
	}
	if k != 150 {
		t.Errorf("%d are in the journal", k)
	}
}

// A refused command in an entry leaves the others alone.
func TestRefusedBesideAccepted(t *testing.T) {
	n, disk := newGatedNode(t, 1)
	r := n.router.Replicas()[0]
	stuck(t, n, disk, 0)
	cmds := []struct {
		cmd  *commandv1.Command
		want perdurev1.Reason
	}{
		{startCmd("1", "a", "f", "in"), 0},
		{startCmd("2", "a", "f", "another input"), perdurev1.Reason_REASON_ID_CONFLICT},
		{signalCmd("3", "nobody", "go", ""), perdurev1.Reason_REASON_EXECUTION_NOT_FOUND},
		{promiseCmd("p", 1<<40), 0},
		{startCmd("4", "p", "f", ""), perdurev1.Reason_REASON_ID_CONFLICT},
		{signalCmd("5", "a", "go", "payload"), 0},
		{settleCmd("a", "no"), perdurev1.Reason_REASON_NOT_SETTLEABLE},
		{settleCmd("p", "yes"), 0},
	}
	entries := counted(t, r.metrics.Entries)
	var all []*proposal
	for _, c := range cmds {
		p := &proposal{cmd: c.cmd, done: make(chan proposalResult, 1)}
		if err := r.enqueue(p); err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
	disk.open()
	for i, p := range all {
		res := <-p.done
		var refused *api.Error
		if e := res.reply.GetError(); e != nil {
			refused = api.Errorf(e.Reason, "%s", e.Message)
		}
		if res.err != nil || (refused == nil) != (cmds[i].want == 0) || refused != nil && refused.Reason != cmds[i].want {
			t.Errorf("%v: %v, %v; want %v", cmds[i].cmd, res.reply, res.err, cmds[i].want)
		}
	}
	if got := counted(t, r.metrics.Entries) - entries - maxInFlight; got > 2 {
		t.Errorf("they were in %d entries", got)
	}
	if p := mustQuery(t, n.Router(), promiseQuery("p")).GetPromise().Promise; string(p.Value.GetValue()) != "yes" {
		t.Errorf("the promise is %v", p)
	}
	if e := mustQuery(t, n.Router(), describeQuery("a")).GetDescribe().Execution; e.JournalEvents != 2 {
		t.Errorf("the execution is %v", e)
	}
}

// When too many wait, more are refused at once, and surely not applied.
func TestOverloaded(t *testing.T) {
	const most = 8
	n, disk := newGatedNode(t, 1, func(c *Config) { c.MaxPendingCommands = most })
	r := n.router.Replicas()[0]
	stuck(t, n, disk, 0)
	type outcome struct {
		id  string
		err error
	}
	hand := &proposal{cmd: promiseCmd("hand", 1<<40), done: make(chan proposalResult, 1)}
	if err := r.enqueue(hand); err != nil {
		t.Fatal(err)
	}
	waitFor(t, "one to be in the proposer's hand", func() bool { return len(r.queue) == 0 }, func() string { return "" })
	done := make(chan outcome, 100)
	for k := range 100 {
		go func() {
			id := fmt.Sprint("p", k)
			_, err := r.Propose(bg(t), promiseCmd(id, 1<<40))
			done <- outcome{id, err}
		}()
	}
	var refused []string
	for range 100 - most {
		o := <-done
		if reasonOf(o.err) != perdurev1.Reason_REASON_OVERLOADED {
			t.Fatalf("%s: %v", o.id, o.err)
		}
		refused = append(refused, o.id)
	}
	if got := counted(t, r.metrics.Sheds); got != len(refused) {
		t.Errorf("%d were refused, %d counted", len(refused), got)
	}
	disk.open()
	for range most {
		if o := <-done; o.err != nil {
			t.Errorf("%s waited, and then: %v", o.id, o.err)
		}
	}
	if res := <-hand.done; res.err != nil {
		t.Errorf("the one in the hand: %v", res.err)
	}
	for _, id := range refused {
		_, _, err := r.Query(bg(t), Linearizable, promiseQuery(id))
		if reasonOf(err) != perdurev1.Reason_REASON_PROMISE_NOT_FOUND {
			t.Errorf("%s was refused and is there: %v", id, err)
		}
	}
	// It is over when they are through.
	must(t, n.Router(), promiseCmd("later", 1<<40))
}

// A caller that stops waiting does not know; asking again with the same request id tells it, and does
// nothing twice.
func TestCancelledCallerAsksAgain(t *testing.T) {
	n, disk := newGatedNode(t, 1)
	r := n.Router()
	must(t, r, startCmd("start", "x", "f", ""))
	stuck(t, n, disk, 0)
	cmds := []*commandv1.Command{signalCmd("signal", "x", "go", "payload"), startCmd("start y", "y", "f", "in")}
	for _, cmd := range cmds {
		ctx, cancel := context.WithCancel(context.Background())
		answer := make(chan error, 1)
		go func() {
			_, err := r.Propose(ctx, cmd)
			answer <- err
		}()
		queued(t, n.router.Replicas()[0], 1)
		cancel()
		if err := <-answer; reasonOf(err) != perdurev1.Reason_REASON_OUTCOME_UNKNOWN {
			t.Fatalf("%v: %v", cmd, err)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, err := r.Propose(ctx, promiseCmd("late", 1000)); reasonOf(err) != perdurev1.Reason_REASON_OUTCOME_UNKNOWN {
		t.Errorf("a deadline: %v", err)
	}
	disk.open()
	var first []*commandv1.Reply
	for _, cmd := range cmds {
		first = append(first, must(t, r, cmd))
	}
	for i, cmd := range cmds {
		again := must(t, r, cmd)
		if again.String() != first[i].String() {
			t.Errorf("%v: %v, then %v", cmd, first[i], again)
		}
	}
	if got := first[0].GetSignal().DeliveryId; got != 1 {
		t.Errorf("the signal is delivery %d", got)
	}
	if !first[1].GetStart().Created {
		t.Errorf("the start says %v", first[1])
	}
	if e := mustQuery(t, r, describeQuery("x")).GetDescribe().Execution; e.JournalEvents != 2 {
		t.Errorf("the journal has %d entries", e.JournalEvents)
	}
}

// A command sent to the wrong partition is told so; nothing is applied there.
func TestWrongPartition(t *testing.T) {
	n := newMemNode(t, 2)
	id := idIn(n.Router(), 0, "x")
	if _, err := n.Router().Replicas()[1].Propose(bg(t), startCmd("s", id, "f", "")); reasonOf(err) != perdurev1.Reason_REASON_TRY_LATER {
		t.Errorf("%v", err)
	}
	if _, err := n.Router().Deliver(bg(t), 2, tickCmd()); err == nil || reasonOf(err) != perdurev1.Reason_REASON_NO_SUCH_PLACE {
		t.Errorf("%v", err)
	}
	must(t, n.Router(), startCmd("s", id, "f", ""))
}

// Every error of a proposal is one of the interface's.
func TestErrorsAreTyped(t *testing.T) {
	n := newMemNode(t, 1)
	_, err := n.Router().Propose(bg(t), signalCmd("s", "nobody", "go", ""))
	var e *api.Error
	if !errors.As(err, &e) || e.Reason != perdurev1.Reason_REASON_EXECUTION_NOT_FOUND || e.Meta["id"] != "nobody" {
		t.Errorf("%v", err)
	}
}
