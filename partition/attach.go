package partition

import (
	"context"
	"time"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/internal/credit"
	"perdure/recovery"
)

// Worker is this node's end of one worker stream. A ledger splits the worker's capacity over its seat at this node and
// over legs, one to each other node of the cluster.
type Worker struct {
	WorkerSpec
	d     *Dispatcher
	since int64
	// ctx ends with the stream.
	ctx  context.Context
	stop context.CancelFunc

	// Guarded by the dispatcher's lock.
	ledger *credit.Ledger
	seat   *seat
	legs   []*leg
	queue  []Delivery
	wake   chan struct{}
	over   bool
	// remote are the bytes of the queued tasks that other nodes have sent.
	//
	//	remote = sum of queue[i].size
	remote int64
}

// taskLife is which life of an execution's task.
type taskLife struct{ incarnation, version uint64 }

func lifeOf(t *perdurev1.TaskToken) (state.Ref, taskLife) {
	return state.Ref{Namespace: t.Namespace, ID: t.Id}, taskLife{t.Incarnation, t.Version}
}

// Attach registers a worker's stream. An earlier stream of the same process is over, at whatever node; this
// one is over when a later one comes. Every Worker must be detached.
func (d *Dispatcher) Attach(spec WorkerSpec) *Worker {
	d.mu.Lock()
	defer d.finish()
	w := d.newWorker(spec, false)
	d.workers[spec.key()] = w
	w.follow()
	return w
}

// newWorker makes a worker with a seat at this node, and no legs to others. A part of this node (own) is never silent.
func (d *Dispatcher) newWorker(spec WorkerSpec, own bool) *Worker {
	w := &Worker{WorkerSpec: spec, d: d, wake: make(chan struct{}, 1)}
	w.ctx, w.stop = context.WithCancel(context.Background())
	held := make([]credit.Task, len(spec.Held))
	for k, t := range spec.Held {
		held[k] = creditTask(t)
	}
	cfg := credit.Config{SilentAfter: int64(spec.silentAfter()), Rest: int64(legRest)}
	if own {
		cfg.SilentAfter = 0
	}
	w.ledger = credit.New(cfg, d.now().UnixNano(), held...)
	if d.node != nil {
		w.since = d.node.clock.Now().UnixMilli()
	}
	if old := d.seats[spec.key()]; old != nil {
		w.since = max(w.since, old.since+1)
	}
	w.seat = d.sit(spec, w.since, w)
	w.seat.own = own
	w.step(credit.LinkOpened{Link: credit.Home, Leads: d.leadsHere(), Of: 1})
	w.step(credit.Announced{N: spec.Room})
	return w
}

// step gives the ledger an event, and does what it says. The dispatcher's lock is held.
func (w *Worker) step(e credit.Event) {
	if w.over {
		return
	}
	for _, a := range w.ledger.Step(w.d.now().UnixNano(), e) {
		switch a := a.(type) {
		case credit.Grant:
			if a.Link == credit.Home {
				w.seat.grant(a.N)
			} else if l := w.leg(a.Link); l != nil {
				l.give += a.N
				l.poke()
			}
		case credit.Revoke:
			if a.Link == credit.Home {
				w.seat.revoke(a.N)
			} else if l := w.leg(a.Link); l != nil {
				l.ask = a.N
				l.poke()
			}
		case credit.Wake:
			w.tick(time.Unix(0, a.At))
		}
	}
}

// tick gives the ledger a Tick at a time.
func (w *Worker) tick(at time.Time) {
	if w.d.node == nil {
		return
	}
	c, stop := w.d.node.clock.After(at.Sub(w.d.now()))
	go func() {
		defer stop()
		select {
		case <-c:
		case <-w.ctx.Done():
			return
		}
		w.d.mu.Lock()
		w.step(credit.Tick{})
		w.d.finish()
	}()
}

func (w *Worker) leg(name credit.Link) *leg {
	for _, l := range w.legs {
		if l.name() == name {
			return l
		}
	}
	return nil
}

func creditTask(t *perdurev1.TaskToken) credit.Task {
	return credit.Task{Namespace: t.Namespace, ID: t.Id, Incarnation: t.Incarnation, Version: t.Version}
}

// Detach ends the stream. Tasks that were assigned and not yet told to the worker go to others at once;
// those it was told of stay its own until their leases end.
func (w *Worker) Detach() {
	w.d.mu.Lock()
	defer w.d.finish()
	w.d.drop(w.seat)
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
	w.seat.hear(timestamp)
	for _, l := range w.legs {
		l.hear(w.seat.heard)
	}
	w.step(credit.Heard{})
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
	w.step(credit.Announced{N: n})
}

// Finished says that the worker does not hold these tasks any more.
func (w *Worker) Finished(tokens ...*perdurev1.TaskToken) {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	for _, t := range tokens {
		w.step(credit.Finished{Task: creditTask(t)})
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
			if next.Cancelling {
				return next, true
			}
			err := next.resolve(ctx)
			w.settled(next, err == nil)
			if err == nil {
				return next, true
			}
			continue // it is over already (terminated, timed out), or the replica stops
		}
		w.d.mu.Unlock()
		select {
		case <-w.wake:
		case <-ctx.Done():
			return Delivery{}, false
		}
	}
}

// resolve reads what the token stands for, if the task is of this node.
func (q *Delivery) resolve(ctx context.Context) (err error) {
	if q.Task != nil {
		return nil
	}
	if q.Task, err = q.replica.task(ctx, q.Token); err == nil {
		q.Task.AcquiredAfter = q.timestamp
	}
	return err
}

// settled takes note of whether the worker is told of a task that has left the queue.
func (w *Worker) settled(q Delivery, told bool) {
	w.d.mu.Lock()
	defer w.d.finish()
	if told {
		w.step(credit.Begun{Task: creditTask(q.Token)})
	} else {
		w.step(credit.Undelivered{Task: creditTask(q.Token)})
	}
}

// arrive queues what has come. A task that is told twice, because it was assigned just when its leader changed or a
// stream began, is queued once.
func (w *Worker) arrive(q Delivery) {
	if w.over {
		w.d.giveBack([]Delivery{q})
		return
	}
	if !q.Cancelling {
		task := creditTask(q.Token)
		known := w.ledger.Holds(task)
		if q.again {
			w.step(credit.Reminded{Task: task})
		} else {
			w.step(credit.Assigned{Link: q.leg.name(), Task: task})
		}
		if known {
			return
		}
	}
	w.queue = append(w.queue, q)
	w.remote += q.size
	w.d.remote += q.size
	w.poke()
}

// held visits the tasks that workers hold by this replica's state.
func (r *Replica) held(visit func(machine.Assignment)) error {
	return r.store.View(func(state state.Reader) error {
		return query.EachHeld(state, func(ns string, task recovery.Task) {
			visit(machine.Assignment{Worker: task.PID, Function: task.Target, Token: wire.Token(ns, task)})
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
