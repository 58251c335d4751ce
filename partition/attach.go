package partition

import (
	"context"
	"slices"
	"time"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/recovery"
)

// Worker is this node's end of one worker stream. Its room is lent out over legs: one to this node's own
// partitions, one to each other node of the cluster. The sum of what the legs have and what is queued here
// is what the worker has announced and not used; it is never more.
type Worker struct {
	WorkerSpec
	d     *Dispatcher
	since int64
	// ctx ends with the stream.
	ctx  context.Context
	stop context.CancelFunc

	// Guarded by the dispatcher's lock. The first leg is the one to this node.
	legs   []*leg
	queue  []Delivery
	wake   chan struct{}
	over   bool
	uneven bool
	// owed is room that is lent although tasks which nobody lent room for have used it up. When that room
	// is used by others, the worker has got more than it had room for, and owes nothing.
	owed []*bool
	// known are the tasks the worker knows that it holds, or will: the last of each execution.
	known map[machine.Ref]taskLife
	turn  int
	// remote are the bytes of the queued tasks that other nodes have sent.
	//
	//	remote = sum of queue[i].size
	remote int64
	// resting: a timer will look at the room again.
	resting bool
}

// taskLife is which life of an execution's task.
type taskLife struct{ incarnation, version uint64 }

func lifeOf(t *perdurev1.TaskToken) (machine.Ref, taskLife) {
	return machine.Ref{Namespace: t.Namespace, ID: t.Id}, taskLife{t.Incarnation, t.Version}
}

// Attach registers a worker's stream. An earlier stream of the same process is over, at whatever node; this
// one is over when a later one comes. Every Worker must be detached.
func (d *Dispatcher) Attach(spec WorkerSpec) *Worker {
	d.mu.Lock()
	defer d.finish()
	w := d.newWorker(spec)
	d.workers[spec.key()] = w
	w.follow()
	return w
}

// newWorker makes a worker with a seat at this node, and no legs to others.
func (d *Dispatcher) newWorker(spec WorkerSpec) *Worker {
	w := &Worker{WorkerSpec: spec, d: d, wake: make(chan struct{}, 1), known: map[machine.Ref]taskLife{}}
	w.ctx, w.stop = context.WithCancel(context.Background())
	for _, t := range spec.Held {
		w.learn(t)
	}
	if d.node != nil {
		w.since = d.node.clock.Now().UnixMilli()
	}
	if old := d.seats[spec.key()]; old != nil {
		w.since = max(w.since, old.since+1)
	}
	local := &leg{w: w}
	w.legs = []*leg{local}
	local.seat = d.sit(spec, w.since, w)
	return w
}

// Detach ends the stream. Tasks that were assigned and not yet told to the worker go to others at once;
// those it was told of stay its own until their leases end.
func (w *Worker) Detach() {
	w.d.mu.Lock()
	defer w.d.finish()
	w.d.drop(w.legs[0].seat)
}

// Heard says that a message of the worker has come, and the worker's own timestamp in it; 0 if it has none. Of a
// worker that is not heard from for half its lease no room is offered. Tasks carry the highest timestamp that the
// leader had before it acquired them (Task.acquired_after).
func (w *Worker) Heard(timestamp uint64) {
	w.d.mu.Lock()
	defer w.d.finish()
	if w.over {
		return
	}
	own := w.legs[0].seat
	own.hear(timestamp)
	for _, l := range w.legs[1:] {
		l.hear(own.heard)
	}
}

// end is called when the stream's seat here is gone. What a later stream of the same worker will be told is
// left to it. What other nodes have given and the worker was not sent goes back to them.
func (w *Worker) end(superseded bool) {
	if w.over {
		return
	}
	w.over = true
	w.stop()
	if w.d.workers[w.key()] == w {
		delete(w.d.workers, w.key())
	}
	if !superseded {
		w.d.giveBack(w.queue)
	}
	w.queue = nil
	w.took(w.remote)
	w.poke()
}

// Bounds of the tasks of other nodes that wait here, in bytes of their messages. They come with a page of their journal,
// while a task of this node waits as its token. What is beyond waits at its leader, as a token as well.
const (
	// workerTaskBytes bounds those of one worker, nodeTaskBytes those of all; each worker may have one in any case.
	// A stream looks before it receives, so one more of each other node may come.
	workerTaskBytes = 4 << 20
	nodeTaskBytes   = 64 << 20
)

// mayTake reports whether another task of another node may be received. The dispatcher's lock is held.
func (w *Worker) mayTake() bool {
	return w.remote == 0 || w.remote < workerTaskBytes && w.d.remote < nodeTaskBytes
}

// took gives back the bytes of tasks that left the queue, and wakes the streams that wait for them. The dispatcher's
// lock is held.
func (w *Worker) took(bytes int64) {
	if bytes == 0 {
		return
	}
	w.remote -= bytes
	w.d.remote -= bytes
	close(w.d.drained)
	w.d.drained = make(chan struct{})
}

// taskBytes are the bytes of other nodes' tasks that wait here.
func (d *Dispatcher) taskBytes() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.remote
}

func (w *Worker) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// AddRoom says that the worker can take n more tasks.
func (w *Worker) AddRoom(n int) {
	if n <= 0 {
		return
	}
	w.d.mu.Lock()
	defer w.d.finish()
	w.place(n)
}

// Finished says that the worker does not hold these tasks any more.
func (w *Worker) Finished(tokens ...*perdurev1.TaskToken) {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	for _, t := range tokens {
		w.forget(t)
	}
}

// Next waits for something to tell the worker. It answers false when the stream is over: detached, or
// ctx has ended.
func (w *Worker) Next(ctx context.Context) (Delivery, bool) {
	for {
		w.d.mu.Lock()
		if w.over {
			w.d.mu.Unlock()
			return Delivery{}, false
		}
		if len(w.queue) > 0 {
			next := w.queue[0]
			w.queue[0] = Delivery{} // the queue's array holds no task that was taken
			w.queue = w.queue[1:]
			w.took(next.size)
			w.d.mu.Unlock()
			if next.Cancelling || next.Task != nil {
				return next, true
			}
			var err error
			if next.Task, err = next.replica.task(ctx, next.Token); err == nil {
				next.Task.AcquiredAfter = next.timestamp
				return next, true
			}
			// Over already (terminated, timed out), or the replica stops. The worker never held it.
			w.untold(next)
			continue
		}
		w.d.mu.Unlock()
		select {
		case <-w.wake:
		case <-ctx.Done():
			return Delivery{}, false
		}
	}
}

// untold takes back what a task has used up that the worker will not be told of.
func (w *Worker) untold(q Delivery) {
	w.d.mu.Lock()
	defer w.d.finish()
	w.forget(q.Token)
	w.owed = slices.DeleteFunc(w.owed, func(o *bool) bool { return o == q.took })
	if *q.took {
		w.place(1)
	}
}

func (w *Worker) learn(t *perdurev1.TaskToken) {
	ref, life := lifeOf(t)
	w.known[ref] = life
}

func (w *Worker) forget(t *perdurev1.TaskToken) {
	if w.knows(t) {
		ref, _ := lifeOf(t)
		delete(w.known, ref)
	}
}

func (w *Worker) knows(t *perdurev1.TaskToken) bool {
	ref, life := lifeOf(t)
	known, ok := w.known[ref]
	return ok && known == life
}

// arrive queues what a leg has brought. A task that is told twice, because it was assigned just when its
// leader changed or a stream began, is queued once.
func (w *Worker) arrive(q Delivery) {
	switch {
	case w.over:
		w.d.giveBack([]Delivery{q})
		return
	case q.Cancelling:
	case w.knows(q.Token):
		if !q.again {
			w.place(1) // it has used up room twice
		}
		return
	default:
		w.learn(q.Token)
		q.took = new(bool)
		w.forgive()
		*q.took = !q.again || w.legs[0].seat.withdraw(1) == 1
		if !*q.took && len(w.owed) < w.lent() {
			w.owed = append(w.owed, q.took)
			w.d.unevenly(w)
		}
	}
	w.queue = append(w.queue, q)
	w.remote += q.size
	w.d.remote += q.size
	w.poke()
}

// forgive drops what is owed of room that is not lent any more.
func (w *Worker) forgive() { w.owed = w.owed[:min(len(w.owed), w.lent())] }

// pay settles what is owed with n tasks' room that has come, and answers what is left.
func (w *Worker) pay(n int) int {
	for ; n > 0 && len(w.owed) > 0; n-- {
		*w.owed[0] = true
		w.owed = w.owed[1:]
	}
	return n
}

// lent is what all legs have and have not used, as far as it is known here.
func (w *Worker) lent() int {
	n := 0
	for _, l := range w.legs {
		n += l.credit()
	}
	return n
}

// place lends out n tasks' room that has come: to the legs that something waits for, in turn; otherwise to
// where least is, among the nodes that lead partitions.
func (w *Worker) place(n int) {
	if w.over {
		return
	}
	n = w.pay(n)
	w.turn++
	for n > 0 {
		var to *leg
		rivals, hungry := 0, false
		for i := range w.legs {
			l := w.legs[(w.turn+i)%len(w.legs)]
			switch {
			case l.hungry() && !hungry:
				to, rivals, hungry = l, 1, true
			case l.hungry() != hungry || !hungry && !l.leads():
			case hungry:
				rivals++
			case to == nil || l.credit() < to.credit():
				to = l
				rivals++
			default:
				rivals++
			}
		}
		if to == nil {
			to, rivals = w.legs[0], 1
		}
		k := (n + rivals - 1) / rivals
		to.lend(k)
		n -= k
	}
}

// balance brings room from legs that do not need it to those that something waits for. It only asks: at
// most one recall is under way for each leg, and no more than are needed.
func (w *Worker) balance() {
	if w.over || len(w.legs) == 1 {
		return
	}
	needy := w.needy()
	if needy == 0 {
		return
	}
	if own := w.legs[0]; !own.wants() {
		if n := own.seat.withdraw((own.seat.room - own.seat.reserved + 1) / 2); n > 0 {
			w.place(n)
			needy = w.needy()
		}
	}
	for _, l := range w.legs {
		if l.recalling {
			needy--
		}
	}
	now := w.d.node.clock.Now()
	for needy > 0 {
		var richest *leg
		wait := time.Duration(0)
		for _, l := range w.legs[1:] {
			if l.recalling || l.wants() || l.credit() == 0 {
				continue
			}
			if rest := l.rest.Sub(now); rest > 0 {
				wait = max(wait, rest)
				continue
			}
			if richest == nil || l.credit() > richest.credit() {
				richest = l
			}
		}
		if richest == nil {
			if wait > 0 {
				w.balanceIn(wait)
			}
			return
		}
		richest.recallRoom()
		needy--
	}
}

// needy is how many legs something waits for that have no room, and one more if the worker itself has got
// more than its room.
func (w *Worker) needy() int {
	n := min(len(w.owed), 1)
	for _, l := range w.legs {
		if l.hungry() {
			n++
		}
	}
	return n
}

func (w *Worker) balanceIn(wait time.Duration) {
	if w.resting {
		return
	}
	w.resting = true
	c, stop := w.d.node.clock.After(wait)
	go func() {
		defer stop()
		select {
		case <-c:
		case <-w.ctx.Done():
			return
		}
		w.d.mu.Lock()
		w.resting = false
		w.d.unevenly(w)
		w.d.finish()
	}()
}

// held visits the tasks that workers hold by this replica's state.
func (r *Replica) held(visit func(machine.Assignment)) error {
	return r.store.View(func(state machine.Reader) error {
		return machine.EachHeld(state, func(ns string, task recovery.Task) {
			visit(machine.Assignment{Worker: task.PID, Function: task.Target, Token: machine.Token(ns, task)})
		})
	})
}

// task is what a token stands for, by this replica's state. It is refused when the task is over.
func (r *Replica) task(ctx context.Context, token *perdurev1.TaskToken) (*perdurev1.Task, error) {
	reply, _, err := r.Query(ctx, Stale, &commandv1.Query{Namespace: token.Namespace, Id: token.Id,
		Kind: &commandv1.Query_Task{Task: &commandv1.TaskQuery{Incarnation: token.Incarnation, Version: token.Version}}})
	if err != nil {
		return nil, err
	}
	return reply.GetTask(), nil
}

func releaseOf(token *perdurev1.TaskToken) *commandv1.Command {
	return &commandv1.Command{Namespace: token.Namespace, Id: token.Id, Kind: &commandv1.Command_Release{
		Release: &perdurev1.Release{Task: token}}}
}
