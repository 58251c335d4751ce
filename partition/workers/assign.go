package workers

import (
	"slices"
	"time"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/machine"
	"perdure/fsm/state"
	"perdure/internal/credit"
)

// Reservation is the credit of one session that an entry has reserved. A later session of the same worker has credit of
// its own: what the entry brings its predecessor does not use it.
type Reservation struct {
	offer *commandv1.Offer
	s     *session
	// lead is whose entry it is; timestamp and at are the session's highest timestamp and the time when it was made.
	lead      Leadership
	timestamp uint64
	at        time.Time
}

// Grants is what an entry carries of its reservations.
func Grants(reserved []Reservation) []*commandv1.Offer {
	var offers []*commandv1.Offer
	for _, b := range reserved {
		offers = append(offers, b.offer)
	}
	return offers
}

// Bounds of the grants of one entry. More wait for the next one.
const (
	maxEntryGrants     = 64
	maxEntryGrantBytes = 16 << 10
)

// Reserve reserves credit for an entry of a partition: half of what each session has free, so that other entries find some
// too; first of the workers that tasks wait for, and of the workers in turn.
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
			n := s.share.Reserve((free + 1) / 2)
			offer := &commandv1.Offer{
				Worker: s.ID, Namespace: s.Namespace, Functions: s.Functions, Room: uint32(n), LeaseMs: s.LeaseMS,
			}
			size += len(s.ID) + len(s.Namespace) + 16
			for _, fn := range s.Functions {
				size += len(fn) + 2
			}
			reserved = append(reserved, Reservation{offer, s, led.lead, s.timestamp, now})
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
		b.s.share.Release(int(b.offer.Room))
		b.s.freed()
		d.schedule(b.s)
	}
}

// Applied acts on what an entry of a partition did for workers. That a task is assigned is a fact, so it is sent even when
// the leadership is over that proposed the entry. lead is the present one, or nil.
func (d *Dispatcher) Applied(r Replica, lead Leadership, fx *machine.Effects, reserved []Reservation) {
	if len(reserved) == 0 && len(fx.Ready) == 0 && len(fx.Assigned) == 0 && len(fx.Cancelling) == 0 {
		return
	}
	d.mu.Lock()
	defer d.finish()
	led := d.led[r.ID()]
	if led != nil && led.lead != lead {
		led = nil
	}
	offered := map[workerKey]Reservation{}
	for _, b := range reserved {
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
	// What all of them use is taken before the first is delivered: that may have credit revoked.
	for _, a := range fx.Assigned {
		if b, ok := offered[workerKey{a.Token.Namespace, a.Worker}]; ok {
			b.s.share.Use()
		}
	}
	for _, a := range fx.Assigned {
		// What is not of this entry's grants is sent by the next leader, or its lease ends.
		if b, ok := offered[workerKey{a.Token.Namespace, a.Worker}]; ok {
			b.s.deliver(Delivery{Token: a.Token, replica: r, lead: b.lead, timestamp: b.timestamp, Reserved: b.at})
		}
	}
	for _, b := range reserved {
		b.s.freed()
	}
	for _, a := range fx.Cancelling {
		if s := d.sessions[workerKey{a.Token.Namespace, a.Worker}]; s != nil {
			s.deliver(Delivery{Token: a.Token, Cancelling: true, replica: r, lead: lead})
		}
	}
}

// settle has grants proposed where credit and waiting tasks meet, and notes which sessions want credit.
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
	if len(starved) == 0 && d.wanting == 0 {
		return
	}
	for _, s := range d.order {
		d.schedule(s)
	}
	for _, s := range d.order {
		d.want(s, starved)
	}
}

// want notes whether a session wants credit: tasks wait for its worker that no session here has credit for. It still
// does while credit that it was granted is on its way into an entry.
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
		d.wanting++
	} else {
		d.wanting--
	}
	if s.local != nil {
		s.local.step(credit.Wants{Link: credit.Home, Wants: now})
	} else {
		s.signal()
	}
}

// schedule has a command proposed that only carries grants, for each partition with queues that the worker can empty.
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
		// It leads no more, or is full: the next leader finds the queues, and entries under way carry grants.
		d.mu.Unlock()
		return
	}
	d.finish()
}
