package entity

import (
	"iter"
	"slices"
)

// State is one entity: its value, what waits for it, and its lock (durable functions semantics, section
// 4.4: the component E with queue q and execution state x). There is no busy state: an operation is under
// way while a worker has a batch, and the entity knows nothing of it until the commit (section 5.1). Its
// methods change it in place; none is safe for concurrent use. The fields are for reading and storing. An element of a
// list never changes: a caller that keeps a list's former slice can compare the two.
type State struct {
	ID ID
	// Incarnation distinguishes this record from earlier ones of the same id; at least 1.
	Incarnation uint64
	// Version counts the commits.
	Version uint64
	// Exists reports whether the entity has a value; the source's default () is having none.
	Exists bool
	Value  []byte
	// Lock is held by at most one critical section.
	Lock Lock
	// NextSeq is the number that the next entry gets; at least 1.
	NextSeq uint64
	// Queue holds the operations and lock requests that wait, in the order of their Seq.
	Queue []Entry
	// Lane holds the scheduled signals whose time has come, by their Seq, at most LaneLength of them. They do not wait
	// behind the queue: batches of both alternate while there are operations in both.
	Lane []Entry
	// Delayed holds the signals whose scheduled time is still to come, by DueAt and then Seq.
	Delayed []Entry
	// waiting indexes the operations in the three lists; nil while there are few. It is derived from them.
	waiting map[requestKey]bool
	// index is that of a long queue; see queued.
	index *queueIndex
}

// LaneLength bounds State.Lane. Signals whose time comes while it is full stay delayed until a commit shortens it.
const LaneLength = 64

// Entry is one thing that waits at an entity.
type Entry struct {
	// Seq is unique within the record and rises in the order of arrival. A scheduled signal gets a new
	// one when it enters the lane.
	Seq uint64
	// Message is a [Signal], a [Call] or a [LockRequest].
	Message Message
}

// Bytes counts the bytes of an operation that waits: its name and its input. A lock request has none.
func (e Entry) Bytes() int {
	o, ok := e.Message.(operation)
	if !ok {
		return 0
	}
	work := o.work()
	return len(work.Name) + len(work.Input)
}

func (e Entry) dueAt() int64 {
	if m, ok := e.Message.(Signal); ok {
		return m.DueAt
	}
	return 0
}

// New returns the state of a new entity: no value, no queue, no lock (section 4.4.1: AutoStart). The
// incarnation must be at least 1 and greater than that of every earlier record of the id, for example the
// index of the log entry that brings the first message.
func New(id ID, incarnation uint64) (*State, error) {
	refused := Error{Code: Invalid, Op: "new", Entity: id}
	switch {
	case id == "":
		refused.Rule, refused.Detail = RuleID, "an entity has an id"
	case incarnation == 0:
		refused.Rule, refused.Detail = RuleIncarnation, "it counts from 1"
	default:
		return &State{ID: id, Incarnation: incarnation, NextSeq: 1}, nil
	}
	return nil, &refused
}

// Clone returns a copy that shares only what is never modified in place: messages and values.
func (s *State) Clone() *State {
	c := *s
	c.Queue = slices.Clone(s.Queue)
	c.Lane = slices.Clone(s.Lane)
	c.Delayed = slices.Clone(s.Delayed)
	c.waiting, c.index = nil, nil
	return &c
}

// Collectable reports whether nothing distinguishes the entity from a new one: no value, nothing that
// waits, no lock (section 4.4.1: Collect). Its record may then be dropped, in the same transaction that
// made it so or later.
func (s *State) Collectable() bool {
	return !s.Exists && len(s.Queue) == 0 && len(s.Lane) == 0 && len(s.Delayed) == 0 && !s.Lock.Held()
}

// Deliver handles a message for this entity. It first runs the expirations at now, as [State.Tick] does. It
// returns the messages to send, in order: the next step of a withdrawal, of a lock request, or of both. A
// lock request that is repeated while the first one waits or holds the lock changes nothing here, as does an
// unlock of what is not locked.
//
// The error is an [*Error]; the state is then unchanged. Deliver sends no reply to a refused [Call]: the
// caller answers it with a failed one, or its origin would wait for ever.
func (s *State) Deliver(now int64, m Message) ([]Message, error) {
	if rule, detail := m.fault(); rule != "" {
		return nil, refuse("deliver", m, Invalid, rule, detail)
	}
	a, ok := m.(arrival)
	if !ok || m.To() != s.ID.party() {
		return nil, refuse("deliver", m, Invalid, RuleAddress, m.Kind().String()+" for "+m.To().String()+" reached "+s.ID.party().String())
	}
	if code, rule, detail := a.refusal(s); rule != "" {
		return nil, refuse("deliver", m, code, rule, detail)
	}
	s.Tick(now)
	return a.arrive(s, now), nil
}

// refuse makes the error of a message.
func refuse(op string, m Message, code Code, rule, detail string) error {
	e := m.subject()
	e.Code, e.Op, e.Rule, e.Detail = code, op, rule, detail
	return &e
}

// refuseTwin refuses an operation that waits here already.
func (s *State) refuseTwin(m operation) (Code, string, string) {
	if s.waitsFor(m) {
		return Conflict, RuleRequestOnce, "an operation of this origin and request is waiting"
	}
	return 0, "", ""
}

func (s *State) enqueue(m Message) {
	e := Entry{Seq: s.NextSeq, Message: m}
	s.Queue = append(s.Queue, e)
	s.NextSeq++
	if s.index != nil {
		s.index.add(e)
	}
	s.joined(m)
}

// eligible yields the index and the message of each operation of one list that may run now, in the order in which
// they must run. Of the lane these are all while the entity is not locked. Of the queue, unlocked, these are the
// operations in front of the first lock request; locked, those of the holder, at any position. New arrivals only go
// behind them, and only a commit removes them. So a commit needs to compare only the version and its own operations.
func (s *State) eligible(lane bool) iter.Seq2[int, operation] {
	return func(yield func(int, operation) bool) {
		if lane {
			for i, e := range s.Lane {
				if s.Lock.Held() || !yield(i, e.Message.(operation)) {
					return
				}
			}
			return
		}
		if s.Lock.Held() {
			s.ofHolder(yield)
			return
		}
		for i, e := range s.Queue {
			o, ok := e.Message.(operation)
			if !ok || !yield(i, o) {
				return
			}
		}
	}
}

// Runnable reports whether an operation may run now: the entity needs a worker.
func (s *State) Runnable() bool {
	return s.may(false) || s.may(true)
}

// may reports whether an operation of one list may run now.
func (s *State) may(lane bool) bool {
	for range s.eligible(lane) {
		return true
	}
	return false
}
