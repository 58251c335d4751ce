package entity

import (
	"cmp"
	"slices"
)

// queueIndex finds entries of a long queue without reading all of it: an entity that is locked may have any number of
// lock requests waiting, and each message asks whether the holder has an operation among them. It is derived from the
// queue.
type queueIndex struct {
	// requests has the Seq of each section's lock request.
	requests map[Section]uint64
	// operations has the Seqs of each origin's operations, ascending.
	operations map[Party][]uint64
}

// queued returns the index of the queue, which it builds if need be; nil if the queue is short.
func (s *State) queued() *queueIndex {
	if s.index == nil && len(s.Queue) > indexFrom {
		s.index = &queueIndex{requests: map[Section]uint64{}, operations: map[Party][]uint64{}}
		for _, e := range s.Queue {
			s.index.add(e)
		}
	}
	return s.index
}

func (x *queueIndex) add(e Entry) {
	switch m := e.Message.(type) {
	case LockRequest:
		x.requests[m.Section] = e.Seq
	case operation:
		x.operations[m.From()] = append(x.operations[m.From()], e.Seq)
	}
}

func (x *queueIndex) remove(e Entry) {
	switch m := e.Message.(type) {
	case LockRequest:
		delete(x.requests, m.Section)
	case operation:
		of := x.operations[m.From()]
		if len(of) == 1 {
			delete(x.operations, m.From())
			return
		}
		if i, ok := slices.BinarySearch(of, e.Seq); i == 0 {
			x.operations[m.From()] = of[1:]
		} else if ok {
			x.operations[m.From()] = slices.Delete(of, i, i+1)
		}
	}
}

// at returns the position in the queue of the entry with a Seq.
func (s *State) at(seq uint64) int {
	i, _ := slices.BinarySearchFunc(s.Queue, seq, func(e Entry, seq uint64) int { return cmp.Compare(e.Seq, seq) })
	return i
}

// dequeue removes the entries of the queue at the given positions, which ascend.
func (s *State) dequeue(positions ...int) {
	if s.index != nil {
		for _, i := range positions {
			s.index.remove(s.Queue[i])
		}
	}
	if s.Queue = without(s.Queue, positions); len(s.Queue) == 0 {
		s.index = nil // an index keeps the memory of its greatest size
	}
}

// requestOf returns the position of the waiting lock request of a section, or -1.
func (s *State) requestOf(section Section) int {
	if x := s.queued(); x != nil {
		if seq, ok := x.requests[section]; ok {
			return s.at(seq)
		}
		return -1
	}
	return slices.IndexFunc(s.Queue, func(e Entry) bool {
		m, ok := e.Message.(LockRequest)
		return ok && m.Section == section
	})
}

// ofHolder yields the holder's operations in the queue of a locked entity, as eligible does. Its cost does not grow with
// what others have in the queue.
func (s *State) ofHolder(yield func(int, operation) bool) {
	x := s.queued()
	if x == nil {
		for i, e := range s.Queue {
			if o, ok := e.Message.(operation); ok && s.Lock.admits(e.Seq, o) && !yield(i, o) {
				return
			}
		}
		return
	}
	for _, seq := range x.operations[s.Lock.Section.Holder] {
		i := s.at(seq)
		if o := s.Queue[i].Message.(operation); s.Lock.admits(seq, o) && !yield(i, o) {
			return
		}
	}
}
