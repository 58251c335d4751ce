package workers

import (
	"context"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/credit"
)

// Worker is this node's end of one worker stream. A ledger splits the worker's capacity over its session at
// this node and over links, one to each other node of the cluster. A worker that splits its capacity itself
// (Spec.Splits) has neither.
type Worker struct {
	Spec
	d     *Dispatcher
	since int64
	// ctx ends with the stream.
	ctx  context.Context
	stop context.CancelFunc

	// Guarded by the dispatcher's lock.
	ledger  *credit.Ledger // nil with Spec.Splits
	session *session
	links   []*link
	queue   []Delivery
	wake    chan struct{}
	over    bool
	// remote are the bytes of the queued tasks that other nodes have sent.
	//
	//	remote = sum of queue[i].size
	remote int64
	// split is the state of a worker that splits its capacity itself.
	split split
	// kept are the functions that the worker keeps in memory.
	kept kept
}

// Attach registers a worker's stream. It ends an earlier stream of the same process, at any node; a later one
// ends this. The caller must detach each Worker.
func (d *Dispatcher) Attach(spec Spec) *Worker {
	d.mu.Lock()
	defer d.finish()
	w := d.newWorker(spec, false)
	d.workers[spec.key()] = w
	if !spec.Splits {
		w.follow()
	}
	return w
}

// newWorker makes a worker with a session at this node, and no links to others. A part of this node (own)
// never counts as silent.
func (d *Dispatcher) newWorker(spec Spec, own bool) *Worker {
	w := &Worker{Spec: spec, d: d, wake: make(chan struct{}, 1)}
	w.ctx, w.stop = context.WithCancel(d.ctx)
	held := make([]credit.Task, len(spec.Held))
	for k, t := range spec.Held {
		held[k] = creditTask(t)
	}
	cfg := credit.Config{SilentAfter: int64(spec.silentAfter()), Rest: int64(linkRest)}
	if own {
		cfg.SilentAfter = 0
	}
	if spec.Splits {
		w.split = split{held: credit.HeldBy(held...)}
	} else {
		w.ledger = credit.New(cfg, d.now().UnixNano(), held...)
	}
	w.since = d.now().UnixMilli()
	if old := d.sessions[spec.key()]; old != nil {
		w.since = max(w.since, old.since+1)
	}
	w.session = d.attach(spec, w.since, w)
	w.session.own = own
	w.step(credit.LinkOpened{Link: credit.Home, Leads: d.leadsHere(), Of: 1})
	w.step(credit.Announced{N: spec.Capacity})
	return w
}

// step applies an event to the ledger and performs its actions. The caller holds the dispatcher's lock.
func (w *Worker) step(e credit.Event) {
	if w.over || w.ledger == nil {
		return
	}
	for _, a := range w.ledger.Step(w.d.now().UnixNano(), e) {
		switch a := a.(type) {
		case credit.Grant:
			if a.Link == credit.Home {
				w.session.grant(a.N)
			} else if l := w.link(a.Link); l != nil {
				l.give += a.N
				l.signal()
			}
		case credit.Revoke:
			if a.Link == credit.Home {
				w.session.revoke(a.N)
			} else if l := w.link(a.Link); l != nil {
				l.ask = a.N
				l.signal()
			}
		case credit.Wake:
			w.tick(time.Unix(0, a.At))
		}
	}
}

// tick applies a Tick to the ledger.
func (w *Worker) tick(at time.Time) {
	c, stop := w.d.env.Clock.After(at.Sub(w.d.now()))
	w.d.spawn(func() {
		defer stop()
		select {
		case <-c:
		case <-w.ctx.Done():
			return
		}
		w.d.mu.Lock()
		w.step(credit.Tick{})
		w.d.finish()
	})
}

func (w *Worker) link(name credit.Link) *link {
	for _, l := range w.links {
		if l.name() == name {
			return l
		}
	}
	return nil
}

func creditTask(t *perdurev1.TaskToken) credit.Task {
	return credit.Task{Namespace: t.Namespace, ID: t.Id, Incarnation: t.Incarnation, Version: t.Version}
}

// Detach ends the stream. Tasks that were assigned and not sent go to other workers at once; the worker holds
// those that it was sent until their leases end.
func (w *Worker) Detach() {
	w.d.mu.Lock()
	defer w.d.finish()
	w.d.drop(w.session)
}

// Heard records a message of the worker and the worker's own timestamp in it; 0 if it has none. A worker that
// is not heard from for half its lease gets no credit. Tasks carry the highest timestamp that the leader had
// before it acquired them (Task.acquired_after).
func (w *Worker) Heard(timestamp uint64) {
	w.d.mu.Lock()
	defer w.d.finish()
	if w.over {
		return
	}
	w.session.hear(timestamp)
	for _, l := range w.links {
		l.hear(w.session.heard)
	}
	w.step(credit.Heard{})
}

// end is called when the stream's session here has ended. A later stream of the same worker gets the tasks
// that this one was not sent. Without one, they return to the nodes that assigned them.
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
		w.d.returnUnsent(w.queue)
	}
	w.queue = nil
	w.took(w.remote)
	w.signal()
}

// Bounds of the queued tasks of other nodes, in bytes of their messages. Such a task comes with a page of its
// journal, while a task of this node waits as its token. Tasks beyond the bounds wait at their leader, as
// tokens as well.
const (
	// WorkerTaskBytes bounds those of one worker, nodeTaskBytes those of all; each worker may have one in any
	// case. A stream checks before it receives, so one more of each other node may come.
	WorkerTaskBytes = 4 << 20
	nodeTaskBytes   = 64 << 20
)

// mayTake reports whether another task of another node may be received. The dispatcher's lock is held.
func (w *Worker) mayTake() bool {
	return w.remote == 0 || w.remote < WorkerTaskBytes && w.d.remote < nodeTaskBytes
}

// took releases the bytes of tasks that left the queue, and wakes the streams that wait for them. The caller
// holds the dispatcher's lock.
func (w *Worker) took(bytes int64) {
	if bytes == 0 {
		return
	}
	w.remote -= bytes
	w.d.remote -= bytes
	close(w.d.spaceFreed)
	w.d.spaceFreed = make(chan struct{})
}

// TaskBytes are the bytes of other nodes' tasks that wait here.
func (d *Dispatcher) TaskBytes() int64 {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.remote
}

func (w *Worker) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// AddCapacity announces that the worker can take n more tasks.
func (w *Worker) AddCapacity(n int) {
	if n <= 0 {
		return
	}
	w.d.mu.Lock()
	defer w.d.finish()
	if w.Splits {
		w.session.grant(n)
		return
	}
	w.step(credit.Announced{N: n})
}

// Finished records that the worker does not hold these tasks any more.
func (w *Worker) Finished(tokens ...*perdurev1.TaskToken) {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	for _, t := range tokens {
		w.split.held.Remove(creditTask(t))
		w.step(credit.Finished{Task: creditTask(t)})
	}
}

// Next blocks until the next delivery. It returns false when the stream is over: detached, or ctx has ended.
func (w *Worker) Next(ctx context.Context) (Delivery, bool) {
	for {
		next, found, over := w.take(ctx)
		if found || over {
			return next, found
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return Delivery{}, false
		}
	}
}

// More returns the next delivery if there is one. It reads the state, and does not block otherwise.
func (w *Worker) More(ctx context.Context) (Delivery, bool) {
	next, found, _ := w.take(ctx)
	return next, found
}

// take returns the first delivery that is not void; over reports that none follows.
func (w *Worker) take(ctx context.Context) (next Delivery, found, over bool) {
	for {
		w.d.mu.Lock()
		if w.over {
			w.d.mu.Unlock()
			return Delivery{}, false, true
		}
		if notice, ok := w.notice(); ok {
			w.d.mu.Unlock()
			return notice, true, false
		}
		if len(w.queue) == 0 {
			w.d.mu.Unlock()
			return Delivery{}, false, false
		}
		next := w.queue[0]
		w.queue[0] = Delivery{} // the queue's array holds no task that was taken
		w.queue = w.queue[1:]
		w.took(next.size)
		w.d.mu.Unlock()
		if !next.isTask() {
			return next, true, false
		}
		err := next.resolve(ctx, w.fromSeq(next.Token))
		w.settled(next, err == nil)
		if err == nil {
			return next, true, false
		}
		// It is over already (terminated, timed out), or the replica stops.
	}
}

// resolve reads the task of the token, if it is a task of this node, with the journal from an entry on.
func (q *Delivery) resolve(ctx context.Context, fromSeq uint64) (err error) {
	if q.Task != nil {
		return nil
	}
	if q.Task, err = q.read(ctx, fromSeq); err == nil {
		q.Task.AcquiredAfter, q.Task.Again = q.timestamp, q.again && q.splits
	}
	return err
}

// read returns the task of a delivery of this node. A task that comes without a read may be over when it is sent: the
// worker's first commit is then refused, as one is whose task ends just after it was sent.
func (q *Delivery) read(ctx context.Context, fromSeq uint64) (*perdurev1.Task, error) {
	if q.first != nil {
		if task := q.first.Task(q.Token, fromSeq); task != nil {
			return task, nil
		}
	}
	return q.replica.Task(ctx, q.Token, fromSeq)
}

// settled records in the ledger whether a task that has left the queue is sent to the worker.
func (w *Worker) settled(q Delivery, sent bool) {
	w.d.mu.Lock()
	defer w.d.finish()
	if w.Splits {
		w.undelivered(q, sent)
		return
	}
	if sent {
		w.step(credit.Begun{Task: creditTask(q.Token)})
	} else {
		w.step(credit.Undelivered{Task: creditTask(q.Token)})
	}
}

// arrive queues a delivery. A task that comes twice, because its leader changed or a stream began just when
// it was assigned, is queued once.
func (w *Worker) arrive(q Delivery) {
	if w.over {
		w.d.returnUnsent([]Delivery{q})
		return
	}
	if q.isTask() {
		task := creditTask(q.Token)
		known := w.holds(task)
		if w.Splits {
			q.splits = true
			w.hold(task)
		} else if q.again {
			w.step(credit.Resent{Task: task})
		} else {
			w.step(credit.Assigned{Link: q.link.name(), Task: task})
		}
		if known {
			return
		}
	}
	w.queue = append(w.queue, q)
	w.remote += q.size
	w.d.remote += q.size
	w.signal()
}

// Queued returns how many deliveries wait for Next.
func (w *Worker) Queued() int {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	return len(w.queue)
}

// Capacity returns how many more tasks the worker can be sent, with those that are queued.
func (w *Worker) Capacity() int {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	if w.Splits {
		return w.session.share.Granted() + len(w.queue)
	}
	return w.ledger.Announced() - w.ledger.Overcommitted() + len(w.queue)
}
