package entity

import (
	"encoding/binary"
	"slices"

	"perdure/internal/canonical"
)

// AppendState appends the canonical encoding of s to b: the head ([AppendHead]), then the queue, the lane and
// the delayed signals.
func AppendState(b []byte, s *State) []byte {
	b = AppendHead(b, s)
	b = appendEntries(b, s.Queue)
	b = appendEntries(b, s.Lane)
	return appendEntries(b, s.Delayed)
}

// DecodeState is the inverse of [AppendState]. The result shares nothing with b. The error is a
// [*CorruptError].
func DecodeState(b []byte) (*State, error) {
	r := newReader("state", b)
	s := r.head()
	s.Queue = r.entries(compareQueued)
	s.Lane = r.entries(compareQueued)
	s.Delayed = r.entries(compareDelayed)
	if unscheduled := func(e Entry) bool { return e.dueAt() == 0 }; slices.ContainsFunc(s.Delayed, unscheduled) || slices.ContainsFunc(s.Lane, unscheduled) {
		r.Fail(r.Offset(), "what is delayed is not scheduled")
	}
	if err := r.End(); err != nil {
		return nil, err
	}
	return s, nil
}

// AppendHead appends the canonical encoding of s without its queue and its delayed signals, for a store
// that keeps each entry under a key of its own.
func AppendHead(b []byte, s *State) []byte {
	b = append(b, layout)
	b = canonical.AppendBytes(b, s.ID)
	b = binary.AppendUvarint(b, s.Incarnation)
	b = binary.AppendUvarint(b, s.Version)
	b = binary.AppendUvarint(b, s.NextSeq)
	b = canonical.AppendBool(b, s.Exists)
	if s.Exists {
		b = canonical.AppendBytes(b, s.Value)
	}
	b = canonical.AppendBool(b, s.Lock.Held())
	if s.Lock.Held() {
		b = appendSection(b, s.Lock.Section)
		b = binary.AppendUvarint(b, s.Lock.Until)
	}
	return b
}

// DecodeHead is the inverse of [AppendHead]: a state with empty queues. The result shares nothing with b.
// The error is a [*CorruptError].
func DecodeHead(b []byte) (*State, error) {
	r := newReader("head", b)
	s := r.head()
	if err := r.End(); err != nil {
		return nil, err
	}
	return s, nil
}

func (r *reader) head() *State {
	r.layout()
	s := &State{ID: ID(r.Text()), Incarnation: r.Uvarint(), Version: r.Uvarint(), NextSeq: r.Uvarint()}
	if s.Exists = r.Bool(); s.Exists {
		s.Value = r.Bytes()
	}
	if r.Bool() {
		s.Lock = Lock{Section: r.section(), Until: r.Uvarint()}
	}
	return s
}

// AppendEntry appends the canonical encoding of an entry of the queue or of the delayed signals to b.
func AppendEntry(b []byte, e Entry) []byte {
	return appendEntry(append(b, layout), e)
}

// DecodeEntry is the inverse of [AppendEntry]. The result shares nothing with b. The error is a
// [*CorruptError].
func DecodeEntry(b []byte) (Entry, error) {
	r := newReader("entry", b)
	r.layout()
	e := r.entry()
	if err := r.End(); err != nil {
		return Entry{}, err
	}
	return e, nil
}

func appendEntry(b []byte, e Entry) []byte {
	return appendMessage(binary.AppendUvarint(b, e.Seq), e.Message)
}

func appendEntries(b []byte, list []Entry) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, e := range list {
		b = appendEntry(b, e)
	}
	return b
}

func (r *reader) entry() Entry {
	seq, start := r.Uvarint(), r.Offset()
	e := Entry{Seq: seq, Message: r.message()}
	if !r.Failed() && !waits(e.Message) {
		r.Fail(start, "no queue holds this kind: "+e.Message.Kind().String())
	}
	return e
}

// waits reports whether a message is of a kind that a queue may hold.
func waits(m Message) bool {
	switch m.(type) {
	case Signal, Call, LockRequest:
		return true
	}
	return false
}

// minEntry is the least number of bytes of an entry: its number, the kind, and the seven bytes of a lock
// request whose texts are all empty.
const minEntry = 9

func (r *reader) entries(compare func(a, b Entry) int) []Entry {
	n := r.Count(minEntry)
	if n == 0 {
		return nil
	}
	list := make([]Entry, n)
	for i := range list {
		start := r.Offset()
		list[i] = r.entry()
		if r.Failed() {
			return nil
		}
		if i > 0 && compare(list[i-1], list[i]) >= 0 {
			r.Fail(start, "the entries are not in ascending order")
		}
	}
	return list
}
