package journal

import "unsafe"

// Undo is the memory of one transaction at a time, of any journal: the previous head, the previous lengths of the lists,
// and the old value of every changed element, in order. The zero value is ready for use.
type Undo struct {
	head       head
	children   int
	signals    int
	oldChild   []oldChild
	oldSignals []oldSignal
}

type oldChild struct {
	n     uint32
	child child
}

type oldSignal struct {
	i      int
	signal signal
}

func (u *Undo) saveChild(n uint32, c child) {
	if int(n) < u.children {
		u.oldChild = append(u.oldChild, oldChild{n, c})
	}
}

func (u *Undo) saveSignal(i int, q signal) {
	if i < u.signals {
		u.oldSignals = append(u.oldSignals, oldSignal{i: i, signal: q})
	}
}

// Begin opens a transaction: Commit keeps all following appends, Rollback undoes them all. The cost depends
// on their number, not on the journal's length. Begin panics if a transaction is open already.
func (s *State) Begin() { s.BeginWith(&Undo{}) }

// BeginWith is Begin in memory that the caller uses again after Commit or Rollback, and not before.
func (s *State) BeginWith(u *Undo) {
	if s.undo != nil {
		panic("journal: Begin inside a transaction")
	}
	clear(u.oldSignals)
	*u = Undo{head: s.head, children: len(s.children), signals: len(s.signals), oldChild: u.oldChild[:0], oldSignals: u.oldSignals[:0]}
	s.undo = u
}

// Commit keeps all appends since Begin. Without a transaction it does nothing.
func (s *State) Commit() { s.undo = nil }

// Rollback undoes all appends since Begin. Without a transaction it does nothing, so it can be deferred.
func (s *State) Rollback() {
	u := s.undo
	if u == nil {
		return
	}
	s.undo = nil
	s.head = u.head
	clear(s.children[u.children:])
	s.children = s.children[:u.children]
	for i := len(u.oldChild) - 1; i >= 0; i-- {
		s.children[u.oldChild[i].n] = u.oldChild[i].child
	}
	for _, q := range s.signals[u.signals:] {
		delete(s.signalIndex, q.name)
	}
	clear(s.signals[u.signals:])
	s.signals = s.signals[:u.signals]
	for i := len(u.oldSignals) - 1; i >= 0; i-- {
		s.signals[u.oldSignals[i].i] = u.oldSignals[i].signal
	}
}

// Clone returns an independent copy, at a cost that grows with the journal; an open transaction is not
// part of it. To try some appends, Begin and Rollback are cheaper.
func (s *State) Clone() *State {
	c := *s
	c.undo = nil
	c.children = append([]child(nil), s.children...)
	c.signals, c.signalIndex = nil, nil
	if len(s.signals) > 0 {
		c.signals = make([]signal, len(s.signals))
		c.signalIndex = make(map[string]int, len(s.signals))
		for i, q := range s.signals {
			q.buffered = append([]unconsumed(nil), q.buffered...)
			c.signals[i] = q
			c.signalIndex[q.name] = i
		}
	}
	return &c
}

// Size estimates the memory that the state holds, in bytes, for a cache's accounting. It takes constant time.
func (s *State) Size() int {
	return int(unsafe.Sizeof(*s)) + len(s.eid) + s.heldBytes +
		cap(s.children)*int(unsafe.Sizeof(child{})) +
		len(s.waitOn)*(int(unsafe.Sizeof(s.eid))+len(s.eid)+8)
}
