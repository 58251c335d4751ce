package partition

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/fsm/state"
	"perdure/internal/credit"
)

// Dispatcher brings pending tasks to workers. A worker says how many tasks it has room for; that room
// travels with the entries of the partitions this node leads, so a task that becomes pending is
// acquired in the same apply when a worker has room for it. What the dispatcher knows is memory: room
// belongs to streams, and everything else is read from the state when a leadership begins.
//
// A worker has one stream, to any node (Worker), and a seat at every node: the seat uses the room that the
// worker's node has lent it, for the partitions that its own node leads.
type Dispatcher struct {
	mu sync.Mutex
	// node is set once the node has started.
	node *Node
	// workers are the streams of this node, seats those of the whole cluster, by worker.
	workers map[workerKey]*Worker
	seats   map[workerKey]*seat
	order   []*seat
	next    int
	led     map[uint32]*ledQueues
	// ebbing are seats that are over while entries under way still offer their room, by worker.
	ebbing map[workerKey][]*seat
	// returning are tasks on their way back to the queues: nobody is told of them.
	returning map[taskKey]bool
	// wanting counts the seats that have said so.
	wanting int
	// leads says how many partitions each server leads, members where the other servers are.
	leads   map[string]int
	members map[string]string
	changed chan struct{}
	// remote are the bytes of other nodes' tasks that wait for workers of this one; drained is closed, and another one
	// made, when they become fewer.
	remote  int64
	drained chan struct{}
	// onStarved is told of queues of the server's own functions.
	onStarved func(namespace, function string)
}

// ledQueues is what the dispatcher knows of a partition this node leads.
type ledQueues struct {
	r    *Replica
	life *leadership
	// pending are queues that may hold tasks nobody has been offered.
	pending map[state.Queue]bool
	// assigning: a command that only carries offers is under way.
	assigning bool
	// reminded are tasks that this leadership has told of again.
	reminded reminders
}

func newDispatcher() *Dispatcher {
	return &Dispatcher{workers: map[workerKey]*Worker{}, seats: map[workerKey]*seat{}, led: map[uint32]*ledQueues{},
		ebbing: map[workerKey][]*seat{}, returning: map[taskKey]bool{}, changed: make(chan struct{}, 1),
		drained: make(chan struct{})}
}

// workerKey names a worker process. Ids of different namespaces have nothing to do with each other: a worker
// must not end the session of another tenant's worker by taking its id.
type workerKey struct{ namespace, id string }

// WorkerSpec is how a worker process introduces itself.
type WorkerSpec struct {
	// ID is unique to the process within its namespace, and the same over its reconnects.
	ID        string
	Namespace string
	Functions []string
	LeaseMS   int64
	// Room is how many tasks it can take now.
	Room int
	// Held are tasks it knows that it holds, from an earlier stream: it is not told of them again.
	Held []*perdurev1.TaskToken
	// Timestamp is the worker's own, of its first message; see Worker.Heard.
	Timestamp uint64
	// Unheard is for how long nothing has come from the worker.
	Unheard time.Duration
}

func (s *WorkerSpec) key() workerKey { return workerKey{s.Namespace, s.ID} }

// seat is a worker's place among those that this node's partitions give tasks to. All of it is guarded by
// the dispatcher's lock.
type seat struct {
	WorkerSpec
	d *Dispatcher
	// since orders the streams of one worker.
	since int64
	// local is the worker's stream when that is at this node.
	local *Worker

	// share is the capacity of the worker that is granted to this seat; entries under way reserve parts of it.
	share credit.Share
	// wanted: tasks for this worker wait and no room is left.
	wanted               bool
	detached, superseded bool
	// timestamp is the highest that has come from the worker, heard when something came last. A part of this node
	// (own) need not say anything.
	timestamp uint64
	heard     time.Time
	own       bool
	// ebbed is closed once it is over and no entry offers its room any more.
	ebbed chan struct{}

	// revoking: up to revoked units of the share are asked back, which is not answered yet.
	revoking bool
	revoked  int
	// For a worker of another node: what is to be told.
	queue []Delivery
	wake  chan struct{}
}

// Delivery is something to be told to a worker: a task that is its own now, or that one it holds was
// asked to cancel.
type Delivery struct {
	Token *perdurev1.TaskToken
	// Task is what the token stands for, as its leader had it; nil for a cancel.
	Task       *perdurev1.Task
	Cancelling bool
	// again: it may have been told before, and has used up no room of its seat.
	again bool
	// Reserved is when the room for the task was taken, by this node's clock: before the task was acquired. It is
	// the zero time for a task that is told again or comes from another node.
	Reserved time.Time
	// replica has the task, when this node leads its partition; lead is the leadership whose entry acquired it or
	// which tells of it again. leg has brought it otherwise, in the leader's term.
	replica *Replica
	lead    *leadership
	leg     *leg
	term    uint64
	// size is what the message that has brought it took; 0 for a task of this node, which is read when it is taken.
	size int64
	// timestamp is the highest of the worker's that had come when its room was taken; 0 for a task told again.
	timestamp uint64
}

// booking is the room that an entry has taken of one stream. A later stream of the same process has room
// of its own: what the entry brings its predecessor is not within it.
type booking struct {
	offer *commandv1.Offer
	s     *seat
	// lead is whose entry it is; timestamp and at are the seat's highest timestamp and the time when it was made.
	lead      *leadership
	timestamp uint64
	at        time.Time
}

// offersOf is what an entry carries of its bookings.
func offersOf(room []booking) []*commandv1.Offer {
	var offers []*commandv1.Offer
	for _, b := range room {
		offers = append(offers, b.offer)
	}
	return offers
}

// finish carries out what a change of room or queues has made due, and gives the lock back.
func (d *Dispatcher) finish() {
	d.settle()
	d.mu.Unlock()
}

// sit gives a worker a seat in place of an earlier stream's, and tells it what it holds by the state. It
// answers nil when a later stream of the worker has one.
func (d *Dispatcher) sit(spec WorkerSpec, since int64, local *Worker) *seat {
	if old := d.seats[spec.key()]; old != nil {
		if old.since > since {
			return nil
		}
		old.superseded = old.since < since
		d.drop(old)
	}
	s := &seat{WorkerSpec: spec, d: d, since: since, local: local, timestamp: spec.Timestamp, heard: d.now().Add(-spec.Unheard), wake: make(chan struct{}, 1), ebbed: make(chan struct{})}
	if local == nil {
		s.share.Grant(spec.Room)
	}
	d.seats[spec.key()] = s
	d.order = append(d.order, s)
	var lives []*leadership
	for _, led := range d.led {
		lives = append(lives, led.life)
	}
	if len(lives) > 0 {
		go d.remind(s, lives, slices.Clone(d.ebbing[s.key()]))
	}
	return s
}

// remind tells a seat of the tasks its worker holds by the state: it may never have been told. What comes to
// the worker's earlier seats still is returned first.
func (d *Dispatcher) remind(s *seat, lives []*leadership, former []*seat) {
	for _, f := range former {
		<-f.ebbed
	}
	for _, life := range lives {
		d.mu.Lock()
		returning := maps.Clone(d.returning)
		d.mu.Unlock()
		var tokens []*perdurev1.TaskToken
		if err := life.r.held(func(a machine.Assignment) {
			if a.Worker == s.ID && a.Token.Namespace == s.Namespace && !returning[keyOf(a.Token)] {
				tokens = append(tokens, a.Token)
			}
		}); err != nil {
			continue // the replica stops or has halted, and whoever leads next tells everybody
		}
		if len(tokens) == 0 {
			continue
		}
		d.mu.Lock()
		led := d.led[life.r.id]
		if led == nil || led.life != life {
			d.mu.Unlock()
			continue // whoever leads next tells everybody
		}
		for _, token := range tokens {
			if !d.returning[keyOf(token)] {
				led.reminded.add(keyOf(token))
			}
			s.deliver(Delivery{Token: token, again: true, replica: life.r, lead: life})
		}
		d.finish()
	}
}

// drop ends a seat. What it was not told of goes to others at once.
func (d *Dispatcher) drop(s *seat) {
	if s.detached {
		return
	}
	s.detached = true
	if s.wanted {
		s.wanted = false
		d.wanting--
	}
	if d.seats[s.key()] == s {
		delete(d.seats, s.key())
	}
	d.order = slices.DeleteFunc(d.order, func(x *seat) bool { return x == s })
	d.giveBack(s.queue)
	s.queue = nil
	d.ebbing[s.key()] = append(d.ebbing[s.key()], s)
	s.freed()
	s.poke()
	if s.local != nil {
		s.local.end(s.superseded)
	}
}

func (s *seat) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// deliver has a seat's worker told of something.
func (s *seat) deliver(q Delivery) {
	switch {
	case q.again && s.d.returning[keyOf(q.Token)]:
	case s.detached:
		s.d.giveBack([]Delivery{q})
	case s.local != nil:
		s.local.arrive(q)
	default:
		s.queue = append(s.queue, q)
		s.poke()
	}
}

// now is the time by the node's clock.
func (d *Dispatcher) now() time.Time {
	if d.node == nil {
		return SystemClock{}.Now()
	}
	return d.node.clock.Now()
}

// silentAfter is the part of a lease after which a worker that says nothing counts as silent. One that is well sends
// a heartbeat in each third.
const silentAfter = 2

// silent reports whether a worker has said nothing for half its lease. It may hang, or be cut off: its room is
// offered again when it is heard from.
func (s *seat) silent(now time.Time) bool {
	return !s.own && now.Sub(s.heard) > s.silentAfter()
}

// silentAfter is the time after which the worker counts as silent.
func (s *WorkerSpec) silentAfter() time.Duration {
	return time.Duration(s.LeaseMS) * time.Millisecond / silentAfter
}

// hear takes note of a message that the worker made, with its timestamp.
func (s *seat) hear(timestamp uint64) {
	now := s.d.now()
	silent := s.silent(now)
	s.timestamp, s.heard = max(s.timestamp, timestamp), now
	if silent {
		s.d.kick(s)
	}
}

// grant adds to the share of a seat.
func (s *seat) grant(n int) {
	if n <= 0 || s.detached {
		return
	}
	s.share.Grant(n)
	s.d.kick(s)
}

// revoke asks for up to n units of the share.
func (s *seat) revoke(n int) {
	s.revoking, s.revoked = true, n
	s.answer()
}

// mayAnswer reports whether a revocation can be answered: there is credit that no entry has reserved, or none at all.
func (s *seat) mayAnswer() bool {
	return s.revoking && (s.share.Free() > 0 || s.share.Granted() == 0)
}

// giveUp is how much of the share the answer to a revocation gives back.
func (s *seat) giveUp() int {
	s.revoking = false
	return s.share.Withdraw(s.revoked)
}

// answer answers a revocation if it can be answered. That of a worker of another node is pulled.
func (s *seat) answer() {
	switch {
	case !s.mayAnswer():
	case s.local == nil:
		s.poke()
	default:
		s.local.step(credit.Returned{Link: credit.Home, N: s.giveUp()})
	}
}

// serves reports whether a worker can run what a queue holds.
func (s *seat) serves(q state.Queue) bool {
	return s.Namespace == q.Namespace && slices.Contains(s.Functions, q.Function)
}

// What the offers of one entry may be: more than these wait for the next one.
const (
	maxEntryOffers     = 64
	maxEntryOfferBytes = 16 << 10
)

// reserve takes room for an entry of a partition: half of what each worker has, so that other
// entries find some too; first the workers that something waits for, and the workers in turn.
func (d *Dispatcher) reserve(partition uint32) []booking {
	d.mu.Lock()
	defer d.mu.Unlock()
	led := d.led[partition]
	if led == nil || len(d.order) == 0 {
		return nil
	}
	var room []booking
	size := 0
	now := d.now()
	d.next++
	start := d.next
	take := func(waitedFor bool) {
		for i := range d.order {
			if len(room) == maxEntryOffers || size >= maxEntryOfferBytes {
				d.next = start + i - 1
				return
			}
			s := d.order[(start+i)%len(d.order)]
			free := s.share.Free()
			if free == 0 || s.silent(now) || len(led.pending) > 0 && led.wanted(s) != waitedFor {
				continue
			}
			n := s.share.Reserve((free + 1) / 2)
			offer := &commandv1.Offer{
				Worker: s.ID, Namespace: s.Namespace, Functions: s.Functions, Room: uint32(n), LeaseMs: s.LeaseMS,
			}
			size += len(s.ID) + len(s.Namespace) + 16
			for _, fn := range s.Functions {
				size += len(fn) + 2
			}
			room = append(room, booking{offer, s, led.life, s.timestamp, now})
		}
	}
	if len(led.pending) > 0 {
		take(true)
	}
	take(false)
	return room
}

// unreserve returns the room of an entry that did not happen.
func (d *Dispatcher) unreserve(room []booking) {
	if len(room) == 0 {
		return
	}
	d.mu.Lock()
	defer d.finish()
	for _, b := range room {
		b.s.share.Release(int(b.offer.Room))
		b.s.freed()
		d.kick(b.s)
	}
}

// freed is called when room of a seat is no longer reserved: somebody may be waiting for it.
func (s *seat) freed() {
	if s.detached {
		if s.share.Free() == s.share.Granted() {
			close(s.ebbed)
			left := slices.DeleteFunc(s.d.ebbing[s.key()], func(x *seat) bool { return x == s })
			if s.d.ebbing[s.key()] = left; len(left) == 0 {
				delete(s.d.ebbing, s.key())
			}
		}
		return
	}
	s.answer()
}

// applied takes in what an entry of a partition did for workers. That a task is assigned is a fact, so it
// is told even when the life is over that proposed it. life is the one that goes on, or nil.
func (d *Dispatcher) applied(r *Replica, life *leadership, fx *machine.Effects, room []booking) {
	if len(room) == 0 && len(fx.Ready) == 0 && len(fx.Assigned) == 0 && len(fx.Cancelling) == 0 {
		return
	}
	d.mu.Lock()
	defer d.finish()
	led := d.led[r.id]
	if led != nil && led.life != life {
		led = nil
	}
	offered := map[workerKey]booking{}
	for _, b := range room {
		offered[b.s.key()] = b
		b.s.share.Release(int(b.offer.Room))
		if led != nil {
			// What these queues still hold is in Ready.
			for _, fn := range b.offer.Functions {
				delete(led.pending, state.Queue{Namespace: b.offer.Namespace, Function: fn})
			}
		}
	}
	if led != nil {
		for _, q := range fx.Ready {
			led.pending[q] = true
		}
	}
	// What all of them use is taken before the first is told: that may have credit revoked.
	for _, a := range fx.Assigned {
		if b, ok := offered[workerKey{a.Token.Namespace, a.Worker}]; ok {
			b.s.share.Use()
		}
	}
	for _, a := range fx.Assigned {
		// What is not of this entry's grants is told by the next leader, or its lease ends.
		if b, ok := offered[workerKey{a.Token.Namespace, a.Worker}]; ok {
			b.s.deliver(Delivery{Token: a.Token, replica: r, lead: b.lead, timestamp: b.timestamp, Reserved: b.at})
		}
	}
	for _, b := range room {
		b.s.freed()
	}
	for _, a := range fx.Cancelling {
		if s := d.seats[workerKey{a.Token.Namespace, a.Worker}]; s != nil {
			s.deliver(Delivery{Token: a.Token, Cancelling: true, replica: r, lead: life})
		}
	}
}

// settle has offers proposed where room and waiting tasks meet, and notes which seats want room.
func (d *Dispatcher) settle() {
	starved := map[state.Queue]bool{}
	now := d.now()
	for _, led := range d.led {
		for q := range led.pending {
			if _, seen := starved[q]; !seen {
				starved[q] = !slices.ContainsFunc(d.order, func(s *seat) bool { return s.share.Granted() > 0 && s.serves(q) && !s.silent(now) })
				if starved[q] {
					d.tellStarved(q)
				}
			}
		}
	}
	if len(starved) == 0 && d.wanting == 0 {
		return
	}
	for _, s := range d.order {
		d.kick(s)
	}
	for _, s := range d.order {
		d.want(s, starved)
	}
}

// want says whether a seat wants room: something waits for it that no seat here has room for. What it has
// said holds while room that it was given then is on its way into an entry.
func (d *Dispatcher) want(s *seat, starved map[state.Queue]bool) {
	now := false
	for _, led := range d.led {
		for q := range led.pending {
			switch {
			case now || !s.serves(q):
			case s.share.Granted() == 0:
				now = s.wanted || starved[q]
			case s.share.Free() < s.share.Granted() || led.assigning:
				now = s.wanted
			}
		}
	}
	if now == s.wanted {
		return
	}
	s.wanted = now
	if now {
		d.wanting++
	} else {
		d.wanting--
	}
	if s.local != nil {
		s.local.step(credit.Wants{Link: credit.Home, Wants: now})
	} else {
		s.poke()
	}
}

// kick has offers-only commands proposed for partitions whose queues a worker with room can empty.
func (d *Dispatcher) kick(s *seat) {
	if s.detached || s.share.Free() == 0 || s.silent(d.now()) {
		return
	}
	for _, led := range d.led {
		if led.assigning || !led.wanted(s) {
			continue
		}
		led.assigning = true
		go d.assign(led)
	}
}

func (l *ledQueues) wanted(s *seat) bool {
	for q := range l.pending {
		if s.serves(q) {
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
	led.assigning = false
	if err != nil {
		// Not leading any more, or full: whoever leads finds the queues, and entries under way carry
		// offers.
		d.mu.Unlock()
		return
	}
	d.finish()
}

// established begins to dispatch for a partition this node has come to lead.
func (d *Dispatcher) established(life *leadership, queues []state.Queue, held []machine.Assignment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := life.r
	led := &ledQueues{r: r, life: life, pending: map[state.Queue]bool{}}
	for _, q := range queues {
		led.pending[q] = true
	}
	if former := d.led[r.id]; former != nil && former.life == life {
		// It has loaded again, and has learned of some since.
		for q := range former.pending {
			led.pending[q] = true
		}
		led.reminded = former.reminded
	}
	d.led[r.id] = led
	for _, a := range held {
		// The worker may not have been told by the former leader.
		if s := d.seats[workerKey{a.Token.Namespace, a.Worker}]; s != nil {
			led.reminded.add(keyOf(a.Token))
			s.deliver(Delivery{Token: a.Token, again: true, replica: r, lead: life})
		}
	}
}

// serving is called when a partition that was established has begun to serve.
func (d *Dispatcher) serving() {
	d.mu.Lock()
	d.finish()
}

// revoked ends dispatching for a partition.
func (d *Dispatcher) revoked(life *leadership) {
	d.mu.Lock()
	defer d.finish()
	if led := d.led[life.r.id]; led != nil && led.life == life {
		delete(d.led, life.r.id)
	}
}

// giveBackPatience bounds the way back of tasks.
const giveBackPatience = 10 * time.Second

// giveBack returns tasks that a worker was surely never sent: no message about them was written. It does not block;
// what cannot be returned waits for the end of its lease.
//
// Nobody else may have sent such a task either, or a worker could begin what has gone to another one. A later leader
// would, since its state says who holds the task, and so would this one to a later stream of the worker. So a task
// is returned only in the term in which it was acquired, by the dispatcher of that term's leader, which tells of it
// again neither before (reminded) nor while it returns it (returning). What another leader has assigned goes back
// to that one.
func (d *Dispatcher) giveBack(queue []Delivery) {
	queue = slices.DeleteFunc(slices.Clone(queue), func(q Delivery) bool {
		if q.replica == nil {
			return q.Cancelling || q.again || q.leg == nil || q.term == 0
		}
		return q.Cancelling || q.again || !d.mayReturn(q)
	})
	if len(queue) == 0 || d.node == nil {
		return
	}
	for _, q := range queue {
		if q.replica != nil {
			d.returning[keyOf(q.Token)] = true
		}
	}
	go d.release(d.node, queue)
}

// mayReturn reports whether a task may still be returned that this node has assigned: the leadership that did so
// goes on, and has not told of it again.
func (d *Dispatcher) mayReturn(q Delivery) bool {
	led := d.led[q.replica.id]
	return led != nil && led.life == q.lead && !led.reminded.has(keyOf(q.Token))
}

// returned returns a task that a worker of another node was never sent, and that was acquired in a term of this
// node's replica.
func (d *Dispatcher) returned(ctx context.Context, r *Replica, term uint64, release *commandv1.Command) (*commandv1.Reply, error) {
	q := Delivery{Token: release.GetRelease().GetTask(), replica: r, lead: r.serving()}
	if q.Token == nil || q.lead == nil || q.lead.term != term {
		return nil, r.notServing()
	}
	d.mu.Lock()
	may := d.mayReturn(q)
	if may {
		d.returning[keyOf(q.Token)] = true
	}
	d.mu.Unlock()
	if !may {
		return nil, r.notServing()
	}
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.returning, keyOf(q.Token))
	}()
	return r.proposeUnder(ctx, q.lead, release)
}

// reminders are the tasks that a leadership has told of again. It remembers maxReminded of them; when there were
// more, it counts every task as told again.
type reminders struct {
	tasks map[taskKey]struct{}
	all   bool
}

const maxReminded = 65_536

func (m *reminders) add(k taskKey) {
	switch {
	case m.all:
	case len(m.tasks) >= maxReminded:
		m.tasks, m.all = nil, true
	default:
		if m.tasks == nil {
			m.tasks = map[taskKey]struct{}{}
		}
		m.tasks[k] = struct{}{}
	}
}

func (m *reminders) has(k taskKey) bool {
	_, told := m.tasks[k]
	return told || m.all
}

// returners is how many tasks are returned beside each other.
const returners = 16

func (d *Dispatcher) release(n *Node, queue []Delivery) {
	ctx, cancel := context.WithTimeout(n.lifetime, giveBackPatience)
	defer cancel()
	slots := make(chan struct{}, returners)
	var all sync.WaitGroup
	for _, q := range queue {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			if q.replica == nil {
				n.returnTo(ctx, q)
				return
			}
			_, _ = q.replica.proposeUnder(ctx, q.lead, releaseOf(q.Token)) // or the lease ends the wait
			d.mu.Lock()
			defer d.mu.Unlock()
			delete(d.returning, keyOf(q.Token))
		})
	}
	all.Wait()
}

// returnTo returns a task to the leader that has assigned it. If that fails, its lease ends the wait.
func (n *Node) returnTo(ctx context.Context, q Delivery) {
	client, err := n.peers.Client(n.cluster.AddressOf(q.leg.server))
	if err != nil {
		return
	}
	_, _ = client.Propose(ctx, &commandv1.ProposeRequest{Partition: n.router.Place(q.Token.Namespace, q.Token.Id),
		Command: releaseOf(q.Token), ReturnedInTerm: q.term})
}

// taskKey is a TaskToken as a map key.
type taskKey struct {
	ref  state.Ref
	life taskLife
}

func keyOf(t *perdurev1.TaskToken) taskKey {
	ref, life := lifeOf(t)
	return taskKey{ref, life}
}

// Attached reports whether a worker process has a stream at this node.
func (d *Dispatcher) Attached(namespace, id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.workers[workerKey{namespace, id}] != nil
}

// Workers is how many streams are attached to this node.
func (d *Dispatcher) Workers() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.workers)
}
