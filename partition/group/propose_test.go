package group

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/partition/admission"
	"perdure/partition/grouptest"
	"perdure/partition/quota"
	"perdure/partition/stable"
	"perdure/partition/workers"
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
	disk.Release()
	wg.Wait()
	waitFor(t, "everything to be counted", func() bool { return counted(t, r.metrics.Commands) == before+many+maxInFlight }, func() string { return fmt.Sprint(counted(t, r.metrics.Commands)) })
	// They came in full entries.
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
		p := enqueued(t, r, startCmd(fmt.Sprint("s", k), fmt.Sprint("large-", k), "f", strings.Repeat("x", size)))
		wg.Add(1)
		go func() {
			defer wg.Done()
			if res := p.wait(); res.err != nil {
				t.Error(res.err)
			}
		}()
	}
	disk.Release()
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
		p := enqueued(t, r, signalCmd(fmt.Sprint("signal ", k), "x", "go", fmt.Sprint(k)))
		wg.Add(1)
		go func() {
			defer wg.Done()
			res := p.wait()
			if res.err != nil || res.reply.GetSignal().GetDeliveryId() != uint64(k+1) {
				t.Errorf("signal %d: %v, %v", k, res.reply, res.err)
			}
			mu.Lock()
			answered = append(answered, k)
			mu.Unlock()
		}()
	}
	disk.Release()
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
		{signalCmd("3", "absent", "go", ""), perdurev1.Reason_REASON_EXECUTION_NOT_FOUND},
		{promiseCmd("p", 1<<40), 0},
		{startCmd("4", "p", "f", ""), perdurev1.Reason_REASON_ID_CONFLICT},
		{signalCmd("5", "a", "go", "payload"), 0},
		{settleCmd("a", "no"), perdurev1.Reason_REASON_NOT_SETTLEABLE},
		{settleCmd("p", "yes"), 0},
	}
	entries := counted(t, r.metrics.Entries)
	var all []*waiter
	for _, c := range cmds {
		p := enqueued(t, r, c.cmd)
		all = append(all, p)
	}
	disk.Release()
	for i, p := range all {
		res := p.wait()
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
	n, disk := newGatedNode(t, 1, func(c *config) { c.MaxPending = most })
	r := n.router.Replicas()[0]
	stuck(t, n, disk, 0)
	type outcome struct {
		id  string
		err error
	}
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
	disk.Release()
	for range most {
		if o := <-done; o.err != nil {
			t.Errorf("%s waited, and then: %v", o.id, o.err)
		}
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

// A caller that stops waiting for a command that the log may have does not know the outcome. A retry with the
// same request id returns it, and does nothing twice. A command that the log never got is surely not applied.
func TestCancelledCallerAsksAgain(t *testing.T) {
	n, disk := newGatedNode(t, 1)
	r, replica := n.Router(), n.router.Replicas()[0]
	must(t, r, startCmd("start", "x", "f", ""))
	disk.Hold()
	cancelled := func(cmd *commandv1.Command, until func() bool) error {
		ctx, cancel := context.WithCancel(context.Background())
		answer := make(chan error, 1)
		go func() {
			_, err := r.Propose(ctx, cmd)
			answer <- err
		}()
		waitFor(t, "the command to be where it must be", until, func() string { return fmt.Sprint(len(replica.slots), replica.pending.len()) })
		cancel()
		return <-answer
	}
	cmds := []*commandv1.Command{signalCmd("signal", "x", "go", "payload"), startCmd("start y", "y", "f", "in")}
	for k, cmd := range cmds {
		if err := cancelled(cmd, func() bool { return len(replica.slots) == k+1 }); reasonOf(err) != perdurev1.Reason_REASON_OUTCOME_UNKNOWN {
			t.Fatalf("%v: %v", cmd, err)
		}
	}
	held := n.shared.Admission.Held()
	if err := cancelled(promiseCmd("late", 1<<40), func() bool { return replica.pending.len() == 1 }); reasonOf(err) != perdurev1.Reason_REASON_TRY_LATER {
		t.Errorf("what was never proposed: %v", err)
	}
	if got := n.shared.Admission.Held(); replica.pending.len() != 0 || got != held {
		t.Errorf("%d commands wait, and %d bytes are reserved, not %d", replica.pending.len(), got, held)
	}
	if got := counted(t, replica.metrics.GivenUp); got != 1 {
		t.Errorf("%d were given up", got)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if _, err := r.Propose(ctx, promiseCmd("late", 1000)); reasonOf(err) != perdurev1.Reason_REASON_TRY_LATER {
		t.Errorf("a deadline: %v", err)
	}
	disk.Release()
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
	if _, _, err := r.Query(bg(t), Linearizable, promiseQuery("late")); reasonOf(err) != perdurev1.Reason_REASON_PROMISE_NOT_FOUND {
		t.Errorf("what was surely not applied is there: %v", err)
	}
	waitFor(t, "nothing to be reserved", func() bool { return n.shared.Admission.Held() == 0 }, func() string { return fmt.Sprint(n.shared.Admission.Held()) })
}

// A request that is queued or in flight is joined: the log gets it once, each caller gets a reply of its own, and
// the end of one caller's context is not the other's.
func TestRequestIsJoined(t *testing.T) {
	n, disk := newGatedNode(t, 1)
	r := n.router.Replicas()[0]
	must(t, n.Router(), startCmd("start", "x", "f", ""))
	stuck(t, n, disk, 0)
	before, base := counted(t, r.metrics.Commands), n.shared.Admission.HeldBy(0)
	type outcome struct {
		reply *commandv1.Reply
		err   error
	}
	ask := func(ctx context.Context, cmd *commandv1.Command) chan outcome {
		got := make(chan outcome, 1)
		go func() {
			reply, err := r.Propose(ctx, cmd)
			got <- outcome{reply, err}
		}()
		return got
	}
	ctx, cancel := context.WithCancel(context.Background())
	first := ask(ctx, signalCmd("signal", "x", "go", "payload"))
	queued(t, r, 1)
	var others []chan outcome
	for k := range 3 {
		again := signalCmd("signal", "x", "go", "payload")
		again.Request.AgeMs = uint64(1000 * k)
		others = append(others, ask(bg(t), again))
		waitFor(t, "the request to be joined", func() bool { return counted(t, r.metrics.Joined) == k+1 }, func() string { return "" })
	}
	if got, want := n.shared.Admission.HeldBy(0)-base, 4*admission.Cost(signalCmd("signal", "x", "go", "payload")); got < want {
		t.Errorf("four copies reserve %d bytes, at least %d are held", got, want)
	}
	// The same id with other content is no attempt of the same request.
	other := ask(bg(t), signalCmd("signal", "x", "go", "something else"))
	queued(t, r, 2)
	cancel()
	if o := <-first; reasonOf(o.err) != perdurev1.Reason_REASON_OUTCOME_UNKNOWN {
		t.Errorf("the first caller left, others wait for its request: %v, %v", o.reply, o.err)
	}
	disk.Release()
	seen := map[*commandv1.Reply]bool{}
	for _, c := range others {
		o := <-c
		if o.err != nil || o.reply.GetSignal().DeliveryId != 1 || seen[o.reply] {
			t.Errorf("a caller that joined got %v, %v", o.reply, o.err)
		}
		seen[o.reply] = true
	}
	if o := <-other; o.err != nil {
		t.Errorf("the other content: %v", o.err)
	}
	waitFor(t, "nothing to be reserved", func() bool { return n.shared.Admission.Held() == 0 }, func() string { return fmt.Sprint(n.shared.Admission.Held()) })
	if got := counted(t, r.metrics.Commands) - before - maxInFlight; got != 2 {
		t.Errorf("the log got %d commands, not the signal and the other content", got)
	}
	if e := mustQuery(t, n.Router(), describeQuery("x")).GetDescribe().Execution; e.JournalEvents != 2 {
		t.Errorf("the journal has %d entries", e.JournalEvents)
	}
}

// Commands are refused by their bytes, with a hint when to come again. Commands that finish work are still
// admitted, until their own share is used.
func TestOverloadedByBytes(t *testing.T) {
	limits := admission.Limits{PartitionBytes: 400 << 10, NamespaceBytes: 800 << 10, NodeBytes: 1 << 20}
	n, disk := newGatedNode(t, 1, func(c *config) { c.Limits = limits })
	r := n.router.Replicas()[0]
	stuck(t, n, disk, 0)
	payload := strings.Repeat("x", 60<<10)
	var waiting []*waiter
	refused := func(cmd *commandv1.Command) error {
		w, err := r.enqueue(cmd)
		if err == nil {
			waiting = append(waiting, w)
		}
		return err
	}
	var err error
	for k := 0; err == nil; k++ {
		if k > 10 {
			t.Fatal("starts of 600 KiB are admitted to a partition of 400 KiB")
		}
		err = refused(startCmd(fmt.Sprint("s", k), fmt.Sprint("e", k), "f", payload))
	}
	var e *api.Error
	if !errors.As(err, &e) || e.Reason != perdurev1.Reason_REASON_OVERLOADED || e.Meta["bound"] != "partition" || e.RetryAfterMS() < admission.RetryAfterMin.Milliseconds() {
		t.Fatalf("refused with %v, %v", err, e.Meta)
	}
	if got := len(waiting); got != 3 {
		t.Errorf("%d starts were admitted to half of 400 KiB", got)
	}
	// Commands that finish work find their share free.
	for k := range 3 {
		if err := refused(settleCmd(fmt.Sprint("p", k), payload)); err != nil {
			t.Errorf("settlement %d: %v", k, err)
		}
	}
	if err := refused(settleCmd("p", payload)); reasonOf(err) != perdurev1.Reason_REASON_OVERLOADED {
		t.Errorf("beyond the whole bound: %v", err)
	}
	if held := n.shared.Admission.HeldBy(0); held > limits.PartitionBytes {
		t.Errorf("%d bytes are held", held)
	}
	disk.Release()
	for _, w := range waiting {
		if res := w.wait(); res.err != nil {
			t.Error(res.err)
		}
	}
	must(t, n.Router(), startCmd("again", "again", "f", payload))
}

// A command sent to the wrong partition is refused by name; nothing is applied there.
func TestWrongPartition(t *testing.T) {
	n := newMemNode(t, 2)
	id := idIn(n.Router(), 0, "x")
	if _, err := n.Router().Replicas()[1].Propose(bg(t), startCmd("s", id, "f", "")); reasonOf(err) != perdurev1.Reason_REASON_TRY_LATER {
		t.Errorf("%v", err)
	}
	must(t, n.Router(), startCmd("s", id, "f", ""))
}

// committed is the future of an entry that is applied.
type committed struct {
	raft.ApplyFuture
	res *machine.Result
}

func (c committed) Error() error  { return nil }
func (c committed) Response() any { return c.res }

// notifier is notified by a function.
type notifier func()

func (n notifier) Notify() { n() }

// A caller that comes back with its next command before the proposer hears that its entry has landed counts once: else
// its command would wait for a second one, and nobody is there to send it.
func TestCallerBackAtOnceCountsOnce(t *testing.T) {
	clock := grouptest.NewHandClock()
	n := startNode(t, clockedConfig(clock, vfs.NewMem(), stable.NewMemory()))
	served := n.router.all[0]
	// Its proposer's loop does not run: it is as late as can be.
	r := proposer{core: &served.core, pending: newPending(10, served.pending.admission, served.bulk), perform: func(*machine.Effects, []workers.Reservation) {}}
	add := func(id string) *proposal {
		p, _, ok := r.pending.add(promiseCmd(id, 1), served.serving(), admission.Reservation{}, quota.Charge{})
		if !ok {
			t.Fatal("refused")
		}
		return p
	}
	p := add("first")
	p.notify = append(p.notify, notifier(func() {
		clock.Advance(time.Second)
		add("second")
	}))
	var pace pacer
	pace.launch(small, 1)
	l := r.land(&flight{proposals: r.pending.take(), lane: small, started: clock.Now(), future: committed{res: &machine.Result{Replies: []*commandv1.Reply{{}}}}})
	pace.land(clock.Now(), l)
	if d := pace.next(clock.Now()); !r.pending.await(d.small, served.serving()) {
		t.Errorf("the second command of a lone caller waits for %d commands", d.small)
	}
}
