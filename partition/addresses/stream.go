package addresses

import (
	"errors"
	"slices"
	"unicode"
	"unicode/utf8"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
)

// Bounds of the streams and links of a node.
const (
	// maxName bounds the bytes of a group's name and of a process's id.
	maxName = 256
	// streamMessages and streamBytes bound what waits for one stream, linkMessages and linkBytes what waits for one other
	// node.
	streamMessages = 256
	streamBytes    = 8 << 20
	linkMessages   = 4096
	linkBytes      = 16 << 20
	// nodeBytes bounds what waits for all streams and links of the node.
	nodeBytes = 64 << 20
)

// Errors of Open.
var (
	ErrTooManyStreams = errors.New("the node has as many streams as it may")
	ErrDraining       = errors.New("the node is stopping")
	ErrName           = errors.New("a group and a process id have 1 to 256 bytes of text each, and a group has no slash")
)

// Stream is the stream of a client process at this node. Its methods are safe for concurrent use and do not block.
type Stream struct {
	d     *Dispatcher
	name  name
	since int64
	ready chan struct{}

	// The dispatcher's lock guards the rest. written are taken messages that are not Written yet.
	queue   []*Queued
	bytes   int64
	written []*Queued
	closed  bool
}

// Queued is a message for a stream.
type Queued struct {
	Message *commandv1.AddressMessage
	size    int64
	// number is not 0 for an unblock: from has sent it by this number, or a leadership of this node if from is nil.
	number uint64
	from   *link
}

// checkName checks the names of a group and of a process.
func checkName(group, pid string) error {
	for _, text := range []string{group, pid} {
		if text == "" || len(text) > maxName || !utf8.ValidString(text) {
			return ErrName
		}
		for _, r := range text {
			if unicode.IsControl(r) {
				return ErrName
			}
		}
	}
	for _, r := range group {
		if r == '/' {
			return ErrName
		}
	}
	return nil
}

// Open begins a stream of a process. It gets the messages for the process from now on, before any earlier stream of it.
// The leaders offer it what waits for its addresses. Errors: ErrName, ErrTooManyStreams, ErrDraining.
func (d *Dispatcher) Open(namespace, groupName, pid string) (*Stream, error) {
	if err := checkName(groupName, pid); err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case d.draining:
		return nil, ErrDraining
	case d.open >= d.env.MaxStreams:
		d.metrics.refused.Inc()
		return nil, ErrTooManyStreams
	}
	n := name{group{namespace, groupName}, pid}
	s := &Stream{d: d, name: n, since: d.env.Clock.Now().UnixMilli(), ready: make(chan struct{}, 1)}
	if list := d.streams[n]; len(list) > 0 {
		s.since = max(s.since, list[len(list)-1].since+1)
	}
	d.open++
	d.streams[n] = append(d.streams[n], s)
	d.table.add(n, "", s.since)
	d.announce(n)
	d.offerAll(n.group)
	return s, nil
}

// Close ends the stream. Its messages that were not written go back to their leaders. A second call does nothing.
func (s *Stream) Close() {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	d.open--
	list := slices.DeleteFunc(d.streams[s.name], func(other *Stream) bool { return other == s })
	if d.streams[s.name] = list; len(list) == 0 {
		delete(d.streams, s.name)
		d.table.remove(s.name, "")
	} else {
		d.table.add(s.name, "", list[len(list)-1].since)
	}
	d.announce(s.name)
	for _, q := range append(s.written, s.queue...) {
		d.settle(q, false)
	}
	s.queue, s.written = nil, nil
}

// Ready has a value when messages may wait.
func (s *Stream) Ready() <-chan struct{} { return s.ready }

// Done is closed when the node drains: the stream gets no further messages.
func (s *Stream) Done() <-chan struct{} { return s.d.drained }

// Take returns the messages that wait. Written reports each.
func (s *Stream) Take() []*Queued {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	taken := s.queue
	s.written = append(s.written, taken...)
	s.queue = nil
	return taken
}

// Written reports whether a taken message was written to the client.
func (s *Stream) Written(q *Queued, ok bool) {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if i := slices.Index(s.written, q); i >= 0 {
		s.written = slices.Delete(s.written, i, i+1)
		s.bytes -= q.size
		d.settle(q, ok)
	}
}

// put queues a message; false if there is no space. Of the executes of one task only the last is queued. The lock is
// held.
func (s *Stream) put(q *Queued) bool {
	d := s.d
	if e := q.Message.GetExecute(); e != nil {
		for _, other := range s.queue {
			if x := other.Message.GetExecute(); x != nil && x.Id == e.Id && other.Message.Namespace == q.Message.Namespace {
				x.Version = max(x.Version, e.Version)
				return true
			}
		}
	}
	q.size = sizeOf(q.Message)
	if len(s.queue)+len(s.written) >= streamMessages || s.bytes+q.size > streamBytes || d.bytes+q.size > nodeBytes {
		return false
	}
	s.queue = append(s.queue, q)
	s.bytes += q.size
	d.bytes += q.size
	signal(s.ready)
	return true
}

// sizeOf is what a queued message counts.
func sizeOf(m proto.Message) int64 { return int64(proto.Size(m)) + 128 }

// settle ends a queued message: it frees its bytes, and an unblock is reported to its leader. The lock is held.
func (d *Dispatcher) settle(q *Queued, ok bool) {
	d.bytes -= q.size
	d.metrics.ended(q.Message, ok)
	switch {
	case q.number == 0:
	case q.from == nil:
		d.landed(q.number, ok)
	default:
		q.from.report(q.number, ok)
	}
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
