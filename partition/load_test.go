package partition

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/group"
	"perdure/partition/workers"
)

// A load uses a node as clients do, and keeps everything that was acknowledged as a fact to be checked later,
// on this node or on one started after a power loss.
type load struct {
	name string
	r    *Router
	d    *workers.Dispatcher
	seed uint64
	// gate is called before each request; it may hold the load back.
	gate func()

	ctx    context.Context
	cancel context.CancelFunc
	wg     sync.WaitGroup
	count  atomic.Int64

	mu    sync.Mutex
	facts []fact
	// ended are problems: answers that must never be given.
	problems []string
	parked   []string
	known    []string
}

// fact is an answer that a caller got; check reads it again.
type fact struct {
	kind  string
	what  string
	check func(ctx context.Context, r *Router) error
}

func newLoad(name string, n *Node, seed uint64, gate func()) *load {
	l := &load{name: name, r: n.Router(), d: n.Dispatcher(), seed: seed, gate: gate}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	if l.gate == nil {
		l.gate = func() {}
	}
	return l
}

// run starts the load; stop ends it.
func (l *load) run() {
	for i, role := range []func(*rand.Rand){l.starts, l.starts, l.promises, l.signals, l.steers, l.worker, l.worker, l.worker} {
		rng := rand.New(rand.NewPCG(l.seed, uint64(i)))
		l.wg.Add(1)
		go func() {
			defer l.wg.Done()
			role(rng)
		}()
	}
}

func (l *load) stop() {
	l.cancel()
	l.wg.Wait()
}

// acknowledged is a copy of the facts so far.
func (l *load) acknowledged() []fact {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.facts)
}

func (l *load) wrong() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.problems)
}

func (l *load) ack(kind, what string, check func(context.Context, *Router) error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.facts = append(l.facts, fact{kind, what, check})
	l.count.Add(1)
}

func (l *load) problem(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.problems = append(l.problems, fmt.Sprintf(format, args...))
}

func (l *load) fresh(rng *rand.Rand, what string) string {
	return fmt.Sprintf("%s.%s.%x", l.name, what, rng.Uint64())
}

// propose answers nil when the load is over or the outcome is not an acknowledgement. Of the refusals only
// those are wrong that no race between users explains.
func (l *load) propose(cmd *commandv1.Command) *commandv1.Reply {
	l.gate()
	reply, err := l.r.Propose(l.ctx, cmd)
	if err == nil {
		return reply
	}
	switch reasonOf(err) {
	case perdurev1.Reason_REASON_STALE_TASK, perdurev1.Reason_REASON_ALREADY_FINISHED, perdurev1.Reason_REASON_OUTCOME_UNKNOWN,
		perdurev1.Reason_REASON_NOT_LEADER, perdurev1.Reason_REASON_TRY_LATER, perdurev1.Reason_REASON_SHUTTING_DOWN,
		perdurev1.Reason_REASON_OVERLOADED:
	default:
		l.problem("%v: %v", cmd, err)
	}
	return nil
}

// remember keeps an id for others to use, at most a few of them.
func remember(list *[]string, id string, rng *rand.Rand) {
	if len(*list) < 200 {
		*list = append(*list, id)
		return
	}
	(*list)[rng.IntN(len(*list))] = id
}

func (l *load) pick(list *[]string, rng *rand.Rand) (string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(*list) == 0 {
		return "", false
	}
	return (*list)[rng.IntN(len(*list))], true
}

var functions = []string{"quick", "quick", "steps", "nap", "park", "park", "fan"}

func (l *load) starts(rng *rand.Rand) {
	for l.ctx.Err() == nil {
		fn := functions[rng.IntN(len(functions))]
		id := l.fresh(rng, fn)
		input := strings.Repeat("i", rng.IntN(300))
		cmd := startCmd("start of "+id, id, fn, input)
		reply := l.propose(cmd).GetStart()
		if reply == nil {
			continue
		}
		l.ack("start", id, func(ctx context.Context, r *Router) error {
			q, _, err := r.Query(ctx, group.Linearizable, describeQuery(id))
			if err != nil {
				return err
			}
			e := q.GetDescribe().Execution
			if e.Incarnation != reply.Incarnation || e.Function != fn {
				return fmt.Errorf("it is %v, was started as incarnation %d", e, reply.Incarnation)
			}
			return nil
		})
		if rng.IntN(10) == 0 {
			again := l.propose(cmd).GetStart()
			if again != nil && (again.Incarnation != reply.Incarnation || !again.Created) {
				l.problem("the start of %s, repeated: %v, then %v", id, reply, again)
			}
		}
		l.mu.Lock()
		remember(&l.known, id, rng)
		if fn == "park" {
			remember(&l.parked, id, rng)
		}
		l.mu.Unlock()
	}
}

func (l *load) promises(rng *rand.Rand) {
	for l.ctx.Err() == nil {
		id := l.fresh(rng, "promise")
		timeout := int64(600_000)
		if rng.IntN(4) == 0 {
			timeout = 1 + rng.Int64N(40)
		}
		made := l.propose(promiseCmd(id, timeout)).GetPromise()
		if made == nil {
			continue
		}
		l.ackPromise("promise made", made.Promise)
		if rng.IntN(3) == 0 {
			continue
		}
		if settled := l.propose(settleCmd(id, "value of "+id)).GetPromise(); settled != nil {
			if settled.Promise.State == perdurev1.PromiseState_PROMISE_STATE_PENDING {
				l.problem("settled and pending: %v", settled)
			}
			l.ackPromise("promise settled", settled.Promise)
		}
	}
}

// ackPromise: once settled, a promise stays as it is; once made, it is there.
func (l *load) ackPromise(kind string, answered *perdurev1.Promise) {
	l.ack(kind, answered.Id, func(ctx context.Context, r *Router) error {
		q, _, err := r.Query(ctx, group.Linearizable, promiseQuery(answered.Id))
		if err != nil {
			return err
		}
		p := q.GetPromise().Promise
		if answered.State != perdurev1.PromiseState_PROMISE_STATE_PENDING &&
			(p.State != answered.State || string(p.Value.GetValue()) != string(answered.Value.GetValue()) || p.SettledAtMs != answered.SettledAtMs) {
			return fmt.Errorf("it is %v, was answered as %v", p, answered)
		}
		if p.CreatedAtMs != answered.CreatedAtMs || p.TimeoutAtMs != answered.TimeoutAtMs || string(p.Param) != string(answered.Param) {
			return fmt.Errorf("it is %v, was answered as %v", p, answered)
		}
		return nil
	})
}

func (l *load) signals(rng *rand.Rand) {
	for n := 0; l.ctx.Err() == nil; n++ {
		id, ok := l.pick(&l.parked, rng)
		if !ok {
			// Nothing to signal yet: a promise keeps the loop from spinning.
			l.propose(promiseCmd(l.fresh(rng, "idle"), 1000))
			continue
		}
		payload := fmt.Sprintf("payload %d of %s", n, l.name)
		reply := l.propose(signalCmd(fmt.Sprintf("signal %s %d", l.name, n), id, "go", payload)).GetSignal()
		if reply == nil {
			continue
		}
		l.ack("signal", fmt.Sprintf("%s number %d", id, reply.DeliveryId), func(ctx context.Context, r *Router) error {
			return inJournal(ctx, r, id, func(ev *perdurev1.Event) bool {
				s := ev.GetSignalDelivered()
				return s != nil && s.Name == "go" && s.DeliveryId == reply.DeliveryId && string(s.Payload.GetValue()) == payload
			})
		})
	}
}

// inJournal looks for an event in a journal.
func inJournal(ctx context.Context, r *Router, id string, is func(*perdurev1.Event) bool) error {
	q, _, err := r.Query(ctx, group.Linearizable, journalQuery(id))
	if err != nil {
		return err
	}
	page := q.GetJournal()
	for _, e := range page.Entries {
		if is(e.Event) {
			return nil
		}
	}
	return fmt.Errorf("not in the journal, which has %d entries", page.NextSeq)
}

// steers cancels and terminates now and then, and proposes ticks by hand.
func (l *load) steers(rng *rand.Rand) {
	for l.ctx.Err() == nil {
		l.gate()
		if _, err := l.r.Deliver(l.ctx, uint32(rng.IntN(int(l.r.Partitions()))), tickCmd()); err != nil {
			continue
		}
		id, ok := l.pick(&l.known, rng)
		if !ok {
			continue
		}
		var status perdurev1.ExecutionStatus
		switch rng.IntN(4) {
		case 0:
			reply := l.propose(cancelCmd(id, 20)).GetCancel()
			if reply == nil {
				continue
			}
			status = reply.Status
		case 1:
			reply := l.propose(terminateCmd(id)).GetTerminate()
			if reply == nil {
				continue
			}
			status = reply.Status
		default:
			continue
		}
		l.ack("cancel", id, func(ctx context.Context, r *Router) error {
			q, _, err := r.Query(ctx, group.Linearizable, describeQuery(id))
			if err != nil {
				return err
			}
			if now := q.GetDescribe().Execution.Status; now < status {
				return fmt.Errorf("it is %v, was answered as %v", now, status)
			}
			return nil
		})
	}
}

// worker serves all functions over streams that end and begin again.
func (l *load) worker(rng *rand.Rand) {
	id := l.fresh(rng, "worker")
	for l.ctx.Err() == nil {
		w := l.d.Attach(workers.Spec{ID: id, Namespace: ns, Functions: []string{"quick", "steps", "nap", "park", "fan"}, LeaseMS: 300, Capacity: 1 + rng.IntN(4)})
		for turns := 50 + rng.IntN(100); turns > 0; turns-- {
			next, ok := w.Next(l.ctx)
			if !ok {
				break
			}
			if next.Cancelling {
				continue
			}
			switch rng.IntN(20) {
			case 0: // forgotten: its lease runs out
			case 1:
				l.propose(releaseCmd(next.Token, "not now"))
			default:
				l.turn(rng, next.Token)
			}
			w.AddCapacity(1)
		}
		w.Detach()
	}
}

// turn runs one task as far as it goes.
func (l *load) turn(rng *rand.Rand, token *perdurev1.TaskToken) {
	for l.ctx.Err() == nil {
		l.gate()
		q, _, err := l.r.Query(l.ctx, group.Linearizable, taskQuery(token))
		if err != nil {
			return // over already
		}
		task := q.GetTask()
		c := nextCommit(task)
		c.Task, c.KnownSeq = token, task.NextSeq
		reply := l.propose(commitCmd(fmt.Sprintf("commit of %s at %d: %x", token.Id, task.NextSeq, rng.Uint64()), c)).GetCommit()
		if reply == nil {
			return
		}
		l.ackCommit(token.Id, c, reply)
		if reply.State != perdurev1.TaskState_TASK_STATE_ACQUIRED {
			return
		}
	}
}

func (l *load) ackCommit(id string, c *perdurev1.Commit, reply *perdurev1.CommitReply) {
	l.ack("commit", fmt.Sprintf("%s up to %d", id, reply.NextSeq), func(ctx context.Context, r *Router) error {
		q, _, err := r.Query(ctx, group.Linearizable, journalQuery(id))
		if err != nil {
			return err
		}
		page := q.GetJournal()
		if page.NextSeq < reply.NextSeq {
			return fmt.Errorf("the journal has %d entries, the commit was answered with %d", page.NextSeq, reply.NextSeq)
		}
		res, _, err := r.Query(ctx, group.Linearizable, resultQuery(id))
		if err != nil {
			return err
		}
		if res.GetResult().Status < reply.Status && reply.State == perdurev1.TaskState_TASK_STATE_FULFILLED {
			return fmt.Errorf("it is %v, the commit was answered with %v", res.GetResult().Status, reply.Status)
		}
		last := c.Events[len(c.Events)-1].GetExecutionCompleted()
		if last == nil || reply.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED {
			return nil
		}
		if out := res.GetResult(); !out.Done || string(out.Outcome.GetValue()) != string(last.Result) {
			return fmt.Errorf("the result is %v, %q was committed", out, last.Result)
		}
		return nil
	})
}

// nextCommit is what a worker does next with a task, from its journal alone.
func nextCommit(task *perdurev1.Task) *perdurev1.Commit {
	id := task.Token.Id
	var next uint32
	var steps, children, timers, received int
	blocked := false
	for _, e := range task.Entries {
		switch k := e.Event.Kind.(type) {
		case *perdurev1.Event_InvokeScheduled:
			next++
			if k.InvokeScheduled.Kind == perdurev1.InvokeKind_INVOKE_KIND_STEP {
				steps++
			} else {
				children++
			}
		case *perdurev1.Event_TimerScheduled:
			next++
			timers++
		case *perdurev1.Event_ExecutionAwaiting:
			blocked = true
			if k.ExecutionAwaiting.Kind == perdurev1.AwaitKind_AWAIT_KIND_SIGNAL {
				next++
			}
		case *perdurev1.Event_ExecutionResumed:
			blocked = false
		case *perdurev1.Event_SignalReceived:
			received++
			if !blocked {
				next++
			}
		}
	}
	child := func(n uint32) string { return childID(id, next+n) }
	c := &perdurev1.Commit{NextChild: next}
	switch {
	case task.Function == "steps" && steps < 2:
		c.Events = stepEvents(child(0), "step", strings.Repeat("r", steps*400))
	case task.Function == "nap" && timers == 0:
		c.Events = []*perdurev1.Event{timerEvent(child(0), 15), awaitEvent(perdurev1.AwaitKind_AWAIT_KIND_SINGLE, "", child(0))}
	case task.Function == "park" && received == 0:
		c.Events = []*perdurev1.Event{awaitEvent(perdurev1.AwaitKind_AWAIT_KIND_SIGNAL, "go", child(0))}
	case task.Function == "fan" && children == 0:
		c.Events = []*perdurev1.Event{childEvent(child(0), "quick", "near"), childEvent(child(1), "quick", "far"),
			awaitEvent(perdurev1.AwaitKind_AWAIT_KIND_ALL, "", child(0), child(1))}
		c.Children = []*perdurev1.ChildOptions{{PromiseId: child(0)}, {PromiseId: child(1), Spread: true}}
	case task.Function == "quick" && steps == 0:
		c.Events = append(stepEvents(child(0), "step", "done"), returnEvent("result of "+id))
	default:
		c.Events = []*perdurev1.Event{returnEvent("result of " + id)}
	}
	return c
}
