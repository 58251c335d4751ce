package workers

import (
	"maps"
	"slices"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/fsm/state"
	"perdure/internal/credit"
)

// workerKey names a worker process. Ids of different namespaces are independent: a worker must not end the
// session of another tenant's worker by using its id.
type workerKey struct{ namespace, id string }

// Spec is how a worker process introduces itself.
type Spec struct {
	// ID is unique to the process within its namespace, and the same over its reconnects.
	ID        string
	Namespace string
	Functions []string
	// Digests are the component digests whose executions it can run, besides those that are pinned to none; empty: all.
	Digests []string
	LeaseMS int64
	// Capacity is how many tasks it can take now.
	Capacity int
	// Held are tasks that the worker holds from an earlier stream: it is not sent them again.
	Held []*perdurev1.TaskToken
	// Timestamp is the worker's own, of its first message; see Worker.Heard.
	Timestamp uint64
	// Unheard is how long nothing has come from the worker.
	Unheard time.Duration
	// Signals: the worker gets the signals that come while it holds the task of their execution.
	Signals bool
	// MaxKept is how many waiting functions the worker keeps in memory at most; 0 if it does not say.
	MaxKept int
	// Splits: the worker splits its capacity over its sessions with every node itself, and Capacity is this
	// node's part.
	Splits bool
}

func (s *Spec) key() workerKey { return workerKey{s.Namespace, s.ID} }

// session is a worker at a node that assigns tasks to it. The dispatcher's lock guards it.
type session struct {
	Spec
	d *Dispatcher
	// since orders the streams of one worker.
	since int64
	// local is the worker's stream when that is at this node. Its ledger, or with Spec.Splits the worker's own, has
	// granted the share.
	local *Worker

	// share is the credit that is granted to this session; entries under way reserve parts of it.
	share credit.Share
	// The last inRow reservations of the share were for entries of the partition reserver.
	reserver uint32
	inRow    int
	// wanted: tasks for this worker wait and no credit is left.
	wanted               bool
	detached, superseded bool
	// timestamp is the highest that has come from the worker, heard when a message of it came last. A part of this node
	// (own) need not send any.
	timestamp uint64
	heard     time.Time
	own       bool
	// drained is closed once it has ended and no entry reserves its credit any more.
	drained chan struct{}

	// revoking: a revocation of up to revoked units of the share is not answered yet.
	revoking bool
	revoked  int
	// search is resend's; nil when that is over.
	search *search
	// Messages to send to the node of a worker of another node.
	queue []Delivery
	wake  chan struct{}
}

// Delivery is a message for a worker: a task that it holds now, or about one that it holds, the request to cancel it or a
// signal.
type Delivery struct {
	Token *perdurev1.TaskToken
	// Task is the task of the token, as its leader had it; nil for a cancel or a signal.
	Task       *perdurev1.Task
	Cancelling bool
	// Signal is a signal that has come for the task's execution; nil for none.
	Signal *perdurev1.SignalArrived
	// first, if not nil, makes the task without a read.
	first *machine.First
	// Notice is a message about credit or the cluster, for a worker that splits its capacity; then all else is zero.
	Notice *perdurev1.WorkResponse
	// splits: it is for a worker that splits its capacity.
	splits bool
	// again: the task may have been sent before, and has used no credit.
	again bool
	// Reserved is when the credit for the task was reserved, by this node's clock: before the task was acquired. It is
	// the zero time for a task that is sent again or comes from another node.
	Reserved time.Time
	// replica has the task, when this node leads its partition; lead is the leadership whose entry acquired it or
	// which sends it again. link has brought it otherwise, in the leader's term.
	replica Replica
	lead    Leadership
	link    *link
	term    uint64
	// size is what the message that has brought it took; 0 for a task of this node, which is read when it is taken.
	size int64
	// timestamp is the highest of the worker's that had come when its credit was reserved; 0 for a task sent again.
	timestamp uint64
}

// isTask reports whether the delivery is a task, which the worker holds from then on.
func (q *Delivery) isTask() bool { return !q.Cancelling && q.Signal == nil }

// attach begins a worker's session instead of an earlier stream's, and sends the worker the tasks that it
// holds by the state. It returns nil if a later stream of the worker has a session.
func (d *Dispatcher) attach(spec Spec, since int64, local *Worker) *session {
	if old := d.sessions[spec.key()]; old != nil {
		if old.since > since {
			return nil
		}
		old.superseded = old.since < since
		d.drop(old)
	}
	s := &session{Spec: spec, d: d, since: since, local: local, timestamp: spec.Timestamp, heard: d.now().Add(-spec.Unheard),
		wake: make(chan struct{}, 1), drained: make(chan struct{})}
	if local == nil || spec.Splits {
		s.share.Grant(spec.Capacity)
	}
	d.sessions[spec.key()] = s
	d.order = append(d.order, s)
	var leaderships []Leadership
	for _, led := range d.led {
		leaderships = append(leaderships, led.lead)
	}
	if len(leaderships) > 0 {
		former := slices.Clone(d.draining[s.key()])
		s.search = &search{fresh: map[credit.Task]bool{}, inFlight: map[uint64]bool{}, changed: make(chan struct{})}
		d.spawn(func() { d.resend(s, leaderships, former) })
	}
	return s
}

// search tells the tasks that a session's own entries bring while resend scans the state, which holds them too, from
// those that an earlier session may have been sent. The dispatcher's lock guards it.
type search struct {
	// fresh are the tasks of the session's entries that were applied.
	fresh map[credit.Task]bool
	// inFlight are the numbers, up to last, of the entries that have reserved credit of the session and may be applied.
	inFlight map[uint64]bool
	last     uint64
	// changed is closed when inFlight loses a number.
	changed chan struct{}
}

// entry returns the number of an entry that reserves credit; 0 when no search is under way.
func (s *session) entry() uint64 {
	if s.search == nil {
		return 0
	}
	s.search.last++
	s.search.inFlight[s.search.last] = true
	return s.search.last
}

// settled records that the entry of a reservation was applied, or did not happen.
func (b *Reservation) settled() {
	if f := b.s.search; f != nil && f.inFlight[b.entry] {
		delete(f.inFlight, b.entry)
		close(f.changed)
		f.changed = make(chan struct{})
	}
}

// awaitEntries blocks until every entry is settled that is in flight now; false when the node stops.
func (d *Dispatcher) awaitEntries(f *search) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	last := f.last
	for {
		changed, waits := f.changed, false
		for n := range f.inFlight {
			waits = waits || n <= last
		}
		if !waits {
			return true
		}
		d.mu.Unlock()
		select {
		case <-changed:
		case <-d.ctx.Done():
		}
		d.mu.Lock()
		if d.ctx.Err() != nil {
			return false
		}
	}
}

// resend sends a session the tasks that its worker holds by the state: they may never have been sent. Tasks
// that entries in flight bring to the worker's earlier sessions are returned first. Tasks that entries bring to this
// session are not sent again: they could not be returned then.
func (d *Dispatcher) resend(s *session, leaderships []Leadership, former []*session) {
	d.mu.Lock()
	found := s.search
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		s.search = nil
		d.mu.Unlock()
	}()
	for _, f := range former {
		select {
		case <-f.drained:
		case <-d.ctx.Done():
			return
		}
	}
	for _, lead := range leaderships {
		d.mu.Lock()
		returning := maps.Clone(d.returning)
		d.mu.Unlock()
		var tokens []*perdurev1.TaskToken
		r := lead.Replica()
		if err := r.EachHeld(func(a machine.Assignment) {
			if a.Worker == s.ID && a.Token.Namespace == s.Namespace && !returning[creditTask(a.Token)] {
				tokens = append(tokens, a.Token)
			}
		}); err != nil {
			continue // the replica stops or has halted, and the next leader sends the tasks again
		}
		if len(tokens) == 0 {
			continue
		}
		if !d.awaitEntries(found) {
			return
		}
		d.mu.Lock()
		led := d.led[r.ID()]
		if led == nil || led.lead != lead {
			d.mu.Unlock()
			continue // the next leader sends the tasks again
		}
		for _, token := range tokens {
			if found.fresh[creditTask(token)] {
				continue
			}
			if !d.returning[creditTask(token)] {
				led.resent.add(creditTask(token))
			}
			s.deliver(Delivery{Token: token, again: true, replica: r, lead: lead})
		}
		d.finish()
	}
}

// drop ends a session. Tasks that its worker was not sent go to other workers at once.
func (d *Dispatcher) drop(s *session) {
	if s.detached {
		return
	}
	s.detached = true
	if s.wanted {
		s.wanted = false
		d.sessionsWanting--
	}
	if d.sessions[s.key()] == s {
		delete(d.sessions, s.key())
	}
	d.order = slices.DeleteFunc(d.order, func(x *session) bool { return x == s })
	d.returnUnsent(s.queue)
	s.queue = nil
	d.draining[s.key()] = append(d.draining[s.key()], s)
	s.freed()
	s.signal()
	if s.local != nil {
		s.local.end(s.superseded)
	}
}

func (s *session) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// deliver has a delivery sent to the session's worker.
func (s *session) deliver(q Delivery) {
	switch {
	case q.again && s.d.returning[creditTask(q.Token)]:
	case s.detached:
		s.d.returnUnsent([]Delivery{q})
	case s.local != nil:
		s.local.arrive(q)
	default:
		s.queue = append(s.queue, q)
		s.signal()
	}
}

// silentAfter is the divisor of a lease after which a worker that sends nothing counts as silent. A healthy
// one sends a heartbeat in each third.
const silentAfter = 2

// silent reports whether a worker has sent nothing for half its lease. It may hang, or be cut off: it gets no
// credit until the next message from it.
func (s *session) silent(now time.Time) bool {
	return !s.own && now.Sub(s.heard) > s.silentAfter()
}

// silentAfter returns the time after which the worker counts as silent.
func (s *Spec) silentAfter() time.Duration {
	return time.Duration(s.LeaseMS) * time.Millisecond / silentAfter
}

// hear records a message that the worker made, with its timestamp.
func (s *session) hear(timestamp uint64) {
	now := s.d.now()
	silent := s.silent(now)
	s.timestamp, s.heard = max(s.timestamp, timestamp), now
	if silent {
		s.d.schedule(s)
	}
}

// grant adds to the share of a session.
func (s *session) grant(n int) {
	if n <= 0 || s.detached {
		return
	}
	s.share.Grant(n)
	s.d.schedule(s)
}

// revoke asks for up to n units of the share.
func (s *session) revoke(n int) {
	s.revoking, s.revoked = true, n
	s.answer()
}

// mayAnswer reports whether a revocation can be answered: there is credit that no entry has reserved, or none at all.
func (s *session) mayAnswer() bool {
	return s.revoking && (s.share.Free() > 0 || s.share.Granted() == 0)
}

// giveUp returns how much of the share the answer to a revocation returns.
func (s *session) giveUp() int {
	s.revoking = false
	return s.share.Withdraw(s.revoked)
}

// answer answers a revocation if it can be answered. A worker of another node gets the answer by pull, one that splits
// its own capacity by Next.
func (s *session) answer() {
	switch {
	case !s.mayAnswer():
	case s.local == nil:
		s.signal()
	case s.Splits:
		s.local.signal()
	default:
		s.local.step(credit.Returned{Link: credit.Home, N: s.giveUp()})
	}
}

// serves reports whether a worker can run the tasks of a queue.
func (s *session) serves(q state.Queue) bool {
	return s.Namespace == q.Namespace && slices.Contains(s.Functions, q.Function) &&
		(q.Digest == "" || len(s.Digests) == 0 || slices.Contains(s.Digests, q.Digest))
}

// freed handles the end of a reservation: a revocation, or the next session of the worker, may wait for it.
func (s *session) freed() {
	if s.detached {
		if s.share.Free() == s.share.Granted() {
			close(s.drained)
			left := slices.DeleteFunc(s.d.draining[s.key()], func(x *session) bool { return x == s })
			if s.d.draining[s.key()] = left; len(left) == 0 {
				delete(s.d.draining, s.key())
			}
		}
		return
	}
	s.answer()
}
