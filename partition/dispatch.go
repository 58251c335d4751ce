package partition

import (
	"context"
	"slices"
	"sync"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
)

// Dispatcher brings pending tasks to workers. A worker says how many tasks it has room for; that room
// travels with the entries of the partitions this node leads, so a task that becomes pending is
// acquired in the same apply when a worker has room for it. What the dispatcher knows is memory: room
// belongs to streams, and everything else is read from the state when a leadership begins.
type Dispatcher struct {
	mu      sync.Mutex
	workers map[string]*Worker
	order   []*Worker
	next    int
	led     map[uint32]*ledQueues
}

// ledQueues is what the dispatcher knows of a partition this node leads.
type ledQueues struct {
	r    *Replica
	life *leadership
	// pending are queues that may hold tasks nobody has been offered.
	pending map[machine.Queue]bool
	// assigning: a command that only carries offers is under way.
	assigning bool
}

func newDispatcher() *Dispatcher {
	return &Dispatcher{workers: map[string]*Worker{}, led: map[uint32]*ledQueues{}}
}

// WorkerSpec is how a worker process introduces itself.
type WorkerSpec struct {
	// ID is unique to the process and the same over its reconnects.
	ID        string
	Namespace string
	Functions []string
	LeaseMS   int64
	// Room is how many tasks it can take now.
	Room int
}

// Worker is the server's end of one worker stream.
type Worker struct {
	WorkerSpec
	d *Dispatcher

	// Guarded by the dispatcher's lock.
	room, reserved int
	queue          []Delivery
	// resent are tasks that Resend has queued: what assigned them may be heard of later.
	resent   map[taskKey]bool
	wake     chan struct{}
	detached bool
}

// taskKey is a TaskToken as a map key.
type taskKey struct {
	namespace, id        string
	incarnation, version uint64
}

func keyOf(t *perdurev1.TaskToken) taskKey {
	return taskKey{t.Namespace, t.Id, t.Incarnation, t.Version}
}

// Delivery is something to be told to a worker: a task that is its own now, or that one it holds was
// asked to cancel.
type Delivery struct {
	Token      *perdurev1.TaskToken
	Cancelling bool
	// again: it may have been told before.
	again   bool
	replica *Replica
}

// booking is the room that an entry has taken of one stream. A later stream of the same process has room
// of its own: what the entry brings its predecessor is not within it.
type booking struct {
	offer *commandv1.Offer
	w     *Worker
}

// offersOf is what an entry carries of its bookings.
func offersOf(room []booking) []*commandv1.Offer {
	var offers []*commandv1.Offer
	for _, b := range room {
		offers = append(offers, b.offer)
	}
	return offers
}

// Attach registers a worker's stream. An earlier stream of the same process is over.
func (d *Dispatcher) Attach(spec WorkerSpec) *Worker {
	w := &Worker{WorkerSpec: spec, d: d, room: max(spec.Room, 0), wake: make(chan struct{}, 1)}
	d.mu.Lock()
	if old := d.workers[spec.ID]; old != nil {
		d.drop(old)
	}
	d.workers[spec.ID] = w
	d.order = append(d.order, w)
	d.kick(w)
	d.mu.Unlock()
	return w
}

// Detach ends the stream. Tasks that were assigned and not yet told to the worker go to others at once;
// those it was told of stay its own until their leases end.
func (w *Worker) Detach() {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	w.d.drop(w)
}

func (d *Dispatcher) drop(w *Worker) {
	if w.detached {
		return
	}
	w.detached = true
	if d.workers[w.ID] == w {
		delete(d.workers, w.ID)
	}
	d.order = slices.DeleteFunc(d.order, func(x *Worker) bool { return x == w })
	for _, q := range w.queue {
		if !q.Cancelling && !q.again {
			q.replica.giveBack(q.Token)
		}
	}
	w.queue = nil
	w.poke()
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
	defer w.d.mu.Unlock()
	w.room += n
	w.d.kick(w)
}

// Next waits for something to tell the worker. It answers false when the stream is over: detached, or
// ctx has ended.
func (w *Worker) Next(ctx context.Context) (Delivery, bool) {
	for {
		w.d.mu.Lock()
		if w.detached {
			w.d.mu.Unlock()
			return Delivery{}, false
		}
		if len(w.queue) > 0 {
			next := w.queue[0]
			w.queue = w.queue[1:]
			w.d.mu.Unlock()
			return next, true
		}
		w.d.mu.Unlock()
		select {
		case <-w.wake:
		case <-ctx.Done():
			return Delivery{}, false
		}
	}
}

// Resend queues tasks for the worker again, because it does not know that it holds them. They take its
// room like any other. It is called before the first Next: what was assigned since Attach is in the queue
// still, and is not told twice.
func (w *Worker) Resend(r *Replica, tokens []*perdurev1.TaskToken) {
	w.d.mu.Lock()
	defer w.d.mu.Unlock()
	if w.detached {
		return
	}
	queued := map[taskKey]bool{}
	for _, q := range w.queue {
		queued[keyOf(q.Token)] = queued[keyOf(q.Token)] || !q.Cancelling
	}
	if w.resent == nil {
		w.resent = map[taskKey]bool{}
	}
	for _, token := range tokens {
		if queued[keyOf(token)] {
			continue
		}
		w.resent[keyOf(token)] = true
		w.queue = append(w.queue, Delivery{Token: token, replica: r})
		w.room = max(w.room-1, 0)
	}
	w.poke()
}

// serves reports whether a worker can run what a queue holds.
func (w *Worker) serves(q machine.Queue) bool {
	return w.Namespace == q.Namespace && slices.Contains(w.Functions, q.Function)
}

// reserve takes room for an entry of a partition: half of what each worker has, so that other
// partitions find some too, and the workers in turn.
func (d *Dispatcher) reserve(partition uint32) []booking {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.led[partition] == nil || len(d.order) == 0 {
		return nil
	}
	var room []booking
	d.next++
	for i := range d.order {
		w := d.order[(d.next+i)%len(d.order)]
		free := w.room - w.reserved
		if free <= 0 {
			continue
		}
		n := (free + 1) / 2
		w.reserved += n
		room = append(room, booking{&commandv1.Offer{
			Worker: w.ID, Namespace: w.Namespace, Functions: w.Functions, Room: uint32(n), LeaseMs: w.LeaseMS,
		}, w})
	}
	return room
}

// unreserve returns the room of an entry that did not happen.
func (d *Dispatcher) unreserve(room []booking) {
	if len(room) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, b := range room {
		b.w.reserved -= int(b.offer.Room)
		d.kick(b.w)
	}
}

// applied takes in what an entry of a partition did for workers. That a task is assigned is a fact, so it
// is told even when the life is over that proposed it; what the queues hold is then known better.
func (d *Dispatcher) applied(life *leadership, fx *machine.Effects, room []booking) {
	if len(room) == 0 && len(fx.Ready) == 0 && len(fx.Assigned) == 0 && len(fx.Cancelling) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	r := life.r
	led := d.led[r.id]
	if led != nil && led.life != life {
		led = nil
	}
	offered := map[string]*Worker{}
	for _, b := range room {
		offered[b.w.ID] = b.w
		taken, told := 0, 0
		for _, a := range fx.Assigned {
			if a.Worker == b.w.ID {
				taken++
				if b.w.resent[keyOf(a.Token)] {
					told++
				}
			}
		}
		if led != nil && taken < int(b.offer.Room) {
			// It had room to spare: its queues are empty.
			for _, fn := range b.offer.Functions {
				delete(led.pending, machine.Queue{Namespace: b.offer.Namespace, Function: fn})
			}
		}
		b.w.reserved -= int(b.offer.Room)
		b.w.room = max(b.w.room-(taken-told), 0)
	}
	if led != nil {
		for _, q := range fx.Ready {
			led.pending[q] = true
		}
	}
	for _, a := range fx.Assigned {
		if w := offered[a.Worker]; w != nil && !w.detached {
			if w.resent[keyOf(a.Token)] {
				continue
			}
			w.queue = append(w.queue, Delivery{Token: a.Token, replica: r})
			w.poke()
		} else {
			r.giveBack(a.Token)
		}
	}
	for _, a := range fx.Cancelling {
		if w := d.workers[a.Worker]; w != nil {
			w.queue = append(w.queue, Delivery{Token: a.Token, Cancelling: true, replica: r})
			w.poke()
		}
	}
	for _, w := range d.order {
		d.kick(w)
	}
}

// kick has offers-only commands proposed for partitions whose queues a worker with room can empty.
func (d *Dispatcher) kick(w *Worker) {
	if w.detached || w.room-w.reserved <= 0 {
		return
	}
	for _, led := range d.led {
		if led.assigning || !led.wanted(w) {
			continue
		}
		led.assigning = true
		go d.assign(led)
	}
}

func (l *ledQueues) wanted(w *Worker) bool {
	for q := range l.pending {
		if w.serves(q) {
			return true
		}
	}
	return false
}

// assign proposes one offers-only command.
func (d *Dispatcher) assign(led *ledQueues) {
	ctx, cancel := led.r.lifetime()
	defer cancel()
	_, err := led.r.Propose(ctx, &commandv1.Command{Kind: &commandv1.Command_Assign{Assign: &commandv1.Assign{}}})
	d.mu.Lock()
	defer d.mu.Unlock()
	led.assigning = false
	if err != nil {
		// Not leading any more, or full: whoever leads finds the queues, and entries under way carry
		// offers.
		return
	}
	for _, w := range d.order {
		d.kick(w)
	}
}

// established begins to dispatch for a partition this node has come to lead.
func (d *Dispatcher) established(life *leadership, queues []machine.Queue, held []machine.Assignment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := life.r
	led := &ledQueues{r: r, life: life, pending: map[machine.Queue]bool{}}
	for _, q := range queues {
		led.pending[q] = true
	}
	d.led[r.id] = led
	for _, a := range held {
		// The worker may not have been told by the former leader; if it was, it ignores this.
		if w := d.workers[a.Worker]; w != nil {
			w.queue = append(w.queue, Delivery{Token: a.Token, again: true, replica: r})
			w.poke()
		}
	}
}

// serving is called when a partition that was established has begun to serve.
func (d *Dispatcher) serving() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.order {
		d.kick(w)
	}
}

// revoked ends dispatching for a partition.
func (d *Dispatcher) revoked(life *leadership) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if led := d.led[life.r.id]; led != nil && led.life == life {
		delete(d.led, life.r.id)
	}
}

// Attached reports whether a worker process has a stream here.
func (d *Dispatcher) Attached(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.workers[id] != nil
}

// Workers is how many streams are attached.
func (d *Dispatcher) Workers() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.workers)
}
