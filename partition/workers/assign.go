package workers

import (
	"maps"
	"slices"
	"time"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/internal/credit"
)

// Reservation is the credit of one session that an entry has reserved. A later session of the same worker has
// credit of its own: tasks that this entry brings to the earlier session do not use it.
type Reservation struct {
	grant *commandv1.Grant
	s     *session
	// lead is whose entry it is; timestamp and at are the session's highest timestamp and the time when it was made.
	lead      Leadership
	timestamp uint64
	at        time.Time
	// entry is its number in the session's search; 0 when there was none.
	entry uint64
}

// Grants returns the grants that an entry carries for its reservations.
func Grants(reserved []Reservation) []*commandv1.Grant {
	var grants []*commandv1.Grant
	for _, b := range reserved {
		grants = append(grants, b.grant)
	}
	return grants
}

// alone is after how many reservations in a row for entries of one partition a session's credit is that partition's.
const alone = 4

// reservedBy counts a reservation for an entry of a partition.
func (s *session) reservedBy(partition uint32) {
	if s.reserver != partition {
		s.reserver, s.inRow = partition, 0
	}
	s.inRow++
}

// Bounds of the grants of one entry. More wait for the next one.
const (
	maxEntryGrants     = 64
	maxEntryGrantBytes = 16 << 10
)

// Reserve reserves credit for an entry of a partition: half of each session's free credit, so that other
// entries find some too; all of it if tasks wait for the worker and the last entries were of this partition alone. It
// begins with the workers that tasks wait for, and rotates over the workers.
//
// So a session whose credit is too small for its tasks uses it up, and then wants credit of other nodes. Halves would
// never use it up.
func (d *Dispatcher) Reserve(partition uint32) []Reservation {
	d.mu.Lock()
	defer d.mu.Unlock()
	led := d.led[partition]
	if led == nil || len(d.order) == 0 {
		return nil
	}
	var reserved []Reservation
	size := 0
	now := d.now()
	d.next++
	start := d.next
	take := func(waitedFor bool) {
		for i := range d.order {
			if len(reserved) == maxEntryGrants || size >= maxEntryGrantBytes {
				d.next = start + i - 1
				return
			}
			s := d.order[(start+i)%len(d.order)]
			free := s.share.Free()
			if free == 0 || s.silent(now) || len(led.pending) > 0 && led.wanted(s) != waitedFor {
				continue
			}
			n := (free + 1) / 2
			if s.reservedBy(partition); waitedFor && s.inRow > alone {
				n = free
			}
			n = s.share.Reserve(n)
			grant := &commandv1.Grant{
				Worker: s.ID, Namespace: s.Namespace, Functions: s.Functions, Digests: s.Digests, Credit: uint32(n), LeaseMs: s.LeaseMS,
			}
			size += len(s.ID) + len(s.Namespace) + 16
			for _, fn := range s.Functions {
				size += len(fn) + 2
			}
			for _, digest := range s.Digests {
				size += len(digest) + 2
			}
			reserved = append(reserved, Reservation{grant, s, led.lead, s.timestamp, now, s.entry()})
		}
	}
	if len(led.pending) > 0 {
		take(true)
	}
	take(false)
	return reserved
}

// Unreserve ends the reservations of an entry that did not happen.
func (d *Dispatcher) Unreserve(reserved []Reservation) {
	if len(reserved) == 0 {
		return
	}
	d.mu.Lock()
	defer d.finish()
	for _, b := range reserved {
		b.settled()
		b.s.share.Release(int(b.grant.Credit))
		b.s.freed()
		d.schedule(b.s)
	}
}

// Applied delivers an entry's assignments to workers and settles its reservations. An assigned task is a
// fact, so Applied sends it even if the leadership that proposed the entry is over. lead is the present
// leadership, or nil.
func (d *Dispatcher) Applied(r Replica, lead Leadership, fx *machine.Effects, reserved []Reservation) {
	if len(reserved) == 0 && len(fx.Ready) == 0 && len(fx.Assigned) == 0 && len(fx.Cancelling) == 0 && len(fx.Arrived) == 0 {
		return
	}
	d.mu.Lock()
	defer d.finish()
	led := d.led[r.ID()]
	if led != nil && led.lead != lead {
		led = nil
	}
	granted := map[workerKey]Reservation{}
	for _, b := range reserved {
		granted[b.s.key()] = b
		b.s.share.Release(int(b.grant.Credit))
		if led != nil {
			// fx.Ready lists the queues among these that still hold tasks.
			maps.DeleteFunc(led.pending, func(q state.Queue, _ bool) bool { return b.s.serves(q) })
		}
	}
	if led != nil {
		for _, q := range fx.Ready {
			led.pending[q] = true
		}
	}
	// Take the credit of all tasks before the first delivery, which may have credit revoked.
	for _, a := range fx.Assigned {
		if b, ok := granted[workerKey{a.Token.Namespace, a.Worker}]; ok {
			b.s.share.Use()
		}
	}
	for _, a := range fx.Assigned {
		// The next leader sends a task that is not of this entry's grants, or its lease ends.
		if b, ok := granted[workerKey{a.Token.Namespace, a.Worker}]; ok {
			if b.s.search != nil {
				b.s.search.fresh[creditTask(a.Token)] = true
			}
			b.s.deliver(Delivery{Token: a.Token, first: a.First, replica: r, lead: b.lead, timestamp: b.timestamp, Reserved: b.at})
		}
	}
	for _, b := range reserved {
		b.settled()
		b.s.freed()
	}
	for _, a := range fx.Cancelling {
		if s := d.sessions[workerKey{a.Token.Namespace, a.Worker}]; s != nil {
			s.deliver(Delivery{Token: a.Token, Cancelling: true, replica: r, lead: lead})
		}
	}
	for _, a := range fx.Arrived {
		d.arrived(a)
	}
}

// maxSignalQueue is how many deliveries may wait for a worker that still gets a signal. A signal is a hint, and one that is not
// delivered is in the journal.
const maxSignalQueue = 4096

// arrived delivers a signal to the worker that holds the execution's task, if its stream is at this node.
func (d *Dispatcher) arrived(a machine.SignalArrival) {
	s := d.sessions[workerKey{a.Token.Namespace, a.Worker}]
	if s == nil || !s.Signals || s.local == nil || s.detached || len(s.local.queue) >= maxSignalQueue {
		return
	}
	s.deliver(Delivery{Token: a.Token, Signal: &perdurev1.SignalArrived{
		Task: a.Token, Name: a.Name, Payload: wire.EncodeOutcome(a.Payload), DeliveryId: a.DeliveryID}})
}

// settle schedules grants for sessions with free credit and waiting tasks, and notes which sessions want
// credit.
func (d *Dispatcher) settle() {
	starved := map[state.Queue]bool{}
	now := d.now()
	for _, led := range d.led {
		for q := range led.pending {
			if _, seen := starved[q]; !seen {
				starved[q] = !slices.ContainsFunc(d.order, func(s *session) bool { return s.share.Granted() > 0 && s.serves(q) && !s.silent(now) })
				if starved[q] {
					d.notifyStarved(q)
				}
			}
		}
	}
	if len(starved) == 0 && d.sessionsWanting == 0 {
		return
	}
	for _, s := range d.order {
		d.schedule(s)
	}
	for _, s := range d.order {
		d.want(s, starved)
	}
}

// want notes whether a session wants credit: tasks wait for its worker, and no session here has credit for
// them. It still wants credit while the granted credit is on its way into an entry.
func (d *Dispatcher) want(s *session, starved map[state.Queue]bool) {
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
		d.sessionsWanting++
	} else {
		d.sessionsWanting--
	}
	switch {
	case s.local == nil:
		s.signal()
	case s.Splits:
		s.local.signal()
	default:
		s.local.step(credit.Wants{Link: credit.Home, Wants: now})
	}
}

// schedule proposes a command that only carries grants, for each partition with queues that the worker can
// empty. It does not block.
func (d *Dispatcher) schedule(s *session) {
	if s.detached || s.share.Free() == 0 || s.silent(d.now()) {
		return
	}
	for _, led := range d.led {
		if led.assigning || !led.wanted(s) {
			continue
		}
		led.assigning = true
		d.spawn(func() { d.assign(led) })
	}
}

func (l *ledPartition) wanted(s *session) bool {
	for q := range l.pending {
		if s.serves(q) {
			return true
		}
	}
	return false
}

// assign proposes a command that only carries grants.
func (d *Dispatcher) assign(led *ledPartition) {
	r := led.lead.Replica()
	ctx, cancel := r.Context()
	defer cancel()
	_, err := r.Propose(ctx, &commandv1.Command{Kind: &commandv1.Command_Assign{Assign: &commandv1.Assign{}}})
	d.mu.Lock()
	led.assigning = false
	if err != nil {
		// This node does not lead any more, or its queue is full: the next leader finds the queues, and
		// entries in flight carry grants.
		d.mu.Unlock()
		return
	}
	d.finish()
}
