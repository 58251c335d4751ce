package group

import (
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/query"
	"perdure/fsm/state"
)

// shipper carries the outbox of a partition to the other partitions, in order, and trims what they have
// acknowledged. Shipping a message again is harmless: the inbox's high-water skips it.
type shipper struct {
	l      *leadership
	done   chan struct{}
	wakeup chan struct{}

	// under are the goroutines that serve and trim. run joins them.
	under sync.WaitGroup

	mu      sync.Mutex
	pending map[uint32]bool
	busy    map[uint32]bool
	// acked is up to where each destination has applied this leadership's shipments. trimming are the
	// destinations whose trim runs.
	acked map[uint32]state.Channel
	// ackedIn is the cut of the destination at its last acknowledgement.
	ackedIn  map[uint32]uint64
	trimming map[uint32]bool
	// full are the entities of each destination whose backlogs are full; a destination with none has no map.
	full map[uint32]map[state.Ref]bool
	// since is when messages for a destination began to wait, or when some were last delivered.
	since map[uint32]time.Time
	// bytes are those of the outbox of each destination when it was last shipped or trimmed.
	bytes map[uint32]uint64
}

// Bounds of one shipment. One message always travels, however large; it is far below peers.MaxMessage. The node's
// shipments above shipSmall share shipNodeBytes.
const (
	shipMessages  = 256
	shipBytes     = 1 << 20
	shipSmall     = 64 << 10
	shipNodeBytes = 64 << 20
	shipPause     = 50 * time.Millisecond
	shipMaxPause  = 2 * time.Second
	// trimPause gathers acknowledgements, so that a busy channel's shipments share a trim.
	trimPause = 100 * time.Millisecond
)

// shipment is how much the next shipment to a destination may carry. It halves when one fails, since too large a one
// may be why, and doubles when one arrives:
//
//	1 <= messages <= shipMessages, shipSmall <= bytes <= shipBytes
type shipment struct{ messages, bytes int }

func newShipment() shipment { return shipment{shipMessages, shipBytes} }

// failed follows a shipment of so many messages and bytes that did not arrive, or is not known to have.
func (s *shipment) failed(messages, bytes int) {
	s.messages = max(min(s.messages, messages)/2, 1)
	s.bytes = max(min(s.bytes, bytes)/2, shipSmall)
}

// arrived follows a shipment that was acknowledged.
func (s *shipment) arrived() {
	s.messages = min(2*s.messages, shipMessages)
	s.bytes = min(2*s.bytes, shipBytes)
}

func newShipper(l *leadership) *shipper {
	return &shipper{l: l, done: make(chan struct{}), wakeup: make(chan struct{}, 1), pending: map[uint32]bool{}, busy: map[uint32]bool{},
		acked: map[uint32]state.Channel{}, ackedIn: map[uint32]uint64{}, trimming: map[uint32]bool{}, full: map[uint32]map[state.Ref]bool{}, since: map[uint32]time.Time{}, bytes: map[uint32]uint64{}}
}

// wake signals that the outbox has messages for these partitions. It does not block.
func (s *shipper) wake(destinations []uint32) {
	if len(destinations) == 0 {
		return
	}
	s.mu.Lock()
	for _, d := range destinations {
		s.pending[d] = true
		if _, waiting := s.since[d]; !waiting {
			s.since[d] = s.l.r.clock.Now()
		}
	}
	s.mu.Unlock()
	select {
	case s.wakeup <- struct{}{}:
	default:
	}
}

// take returns the destinations that have messages and no running serve, and marks them busy: the caller
// serves each.
func (s *shipper) take() []uint32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []uint32
	for d := range s.pending {
		if !s.busy[d] {
			out = append(out, d)
			s.busy[d] = true
			delete(s.pending, d)
		}
	}
	return out
}

// run serves each destination in a goroutine of its own, so a destination without a leader delays no other
// one. It returns when the leadership has ended and all of them have.
func (s *shipper) run() {
	defer close(s.done)
	defer s.under.Wait()
	for {
		select {
		case <-s.l.ctx.Done():
			return
		case <-s.wakeup:
		}
		for _, destination := range s.take() {
			s.under.Go(func() { s.serve(destination) })
		}
	}
}

// serve ships to one destination until it has everything.
func (s *shipper) serve(destination uint32) {
	r, pause, size := s.l.r, shipPause, newShipment()
	for s.l.ctx.Err() == nil {
		err := s.ship(destination, &size)
		if err == nil {
			if s.rest(destination) {
				return
			}
			pause = shipPause
			continue
		}
		if s.l.ctx.Err() != nil {
			return
		}
		if !api.Is(err, perdurev1.Reason_REASON_DISK_FULL) { // the disk's guard logs it
			r.log.Warn("messages could not be delivered yet", "event", "ship_failed", "partition", r.id, "to", destination, "error", err)
		}
		c, stop := r.clock.After(pause)
		select {
		case <-c:
		case <-s.l.ctx.Done():
		}
		stop()
		pause = min(2*pause, shipMaxPause)
	}
}

// rest ends the work on a destination, unless something came meanwhile.
func (s *shipper) rest(destination uint32) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending[destination] {
		delete(s.pending, destination)
		return false
	}
	delete(s.busy, destination)
	return true
}

// ship delivers everything the outbox holds for a destination beyond what it has acknowledged.
func (s *shipper) ship(destination uint32, size *shipment) error {
	for s.l.ctx.Err() == nil {
		if more, err := s.shipOnce(destination, size); err != nil || !more {
			return err
		}
	}
	return nil
}

// shipOnce delivers one shipment. more is false if the outbox holds nothing that the destination has not acknowledged.
func (s *shipper) shipOnce(destination uint32, size *shipment) (more bool, err error) {
	r := s.l.r
	s.mu.Lock()
	after := s.acked[destination]
	s.mu.Unlock()
	var msgs []*commandv1.Message
	var epoch uint64
	if err := r.store.Peek(func(state state.Reader) error {
		var err error
		epoch, msgs, err = query.Outgoing(state, destination, after, size.messages, size.bytes)
		return err
	}); err != nil {
		return false, err
	}
	s.measure(destination)
	if len(msgs) == 0 {
		s.progress(destination, true)
		return false, nil
	}
	cmd := &commandv1.Command{Kind: &commandv1.Command_Deliver{Deliver: &commandv1.Deliver{Source: r.id, Epoch: epoch, Messages: msgs}}}
	bytes := proto.Size(cmd)
	if share := min(bytes, shipNodeBytes); share > shipSmall {
		if err := r.shipping.Acquire(s.l.ctx, int64(share)); err != nil {
			return false, err
		}
		defer r.shipping.Release(int64(share))
	}
	reply, err := r.env.Deliver(s.l.ctx, destination, cmd)
	if err != nil {
		size.failed(len(msgs), bytes)
		return false, fmt.Errorf("%d messages, %d bytes: %w", len(msgs), bytes, err)
	}
	size.arrived()
	r.metrics.Shipped.Add(float64(len(msgs)))
	s.progress(destination, false)
	s.noteFull(destination, reply.GetDeliver().GetFull())
	through := state.Channel{Epoch: epoch, Last: reply.GetDeliver().GetThrough()}
	s.acknowledged(destination, through, reply.GetDeliver().GetCut())
	return true, nil
}

// acknowledged notes what a destination has applied, in which cut. It has the outbox trimmed by a goroutine of its own: the next
// shipment does not wait for that.
func (s *shipper) acknowledged(destination uint32, through state.Channel, in uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have := s.acked[destination]; through.Epoch == have.Epoch && through.Last <= have.Last {
		return
	}
	s.acked[destination], s.ackedIn[destination] = through, in
	if !s.trimming[destination] {
		s.trimming[destination] = true
		s.under.Go(func() { s.trim(destination) })
	}
}

// trim removes the acknowledged messages for a destination from the outbox, until it has removed them all. The partition
// enters the cut of the acknowledgement first: see package cut.
func (s *shipper) trim(destination uint32) {
	r, pause := s.l.r, trimPause
	var trimmed state.Channel
	for {
		c, stop := r.clock.After(pause)
		select {
		case <-c:
		case <-s.l.ctx.Done():
			stop()
			return
		}
		s.mu.Lock()
		through, in := s.acked[destination], s.ackedIn[destination]
		if through == trimmed {
			s.trimming[destination] = false
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
		err := r.commands.enterCut(s.l.ctx, in)
		if err == nil {
			_, err = r.commands.Propose(s.l.ctx, &commandv1.Command{Kind: &commandv1.Command_Trim{
				Trim: &commandv1.Trim{Destination: destination, Epoch: through.Epoch, Through: through.Last, Cut: in}}})
		}
		if err != nil {
			pause = min(2*pause, shipMaxPause) // what a trim leaves, a later one removes
			continue
		}
		trimmed, pause = through, trimPause
		s.measure(destination)
	}
}

// measure notes how many bytes the outbox for a destination has.
func (s *shipper) measure(destination uint32) {
	_ = s.l.r.store.Peek(func(r state.Reader) error { // what cannot be read keeps its figure
		ch, err := query.Sent(r, destination)
		if err == nil {
			s.mu.Lock()
			s.bytes[destination] = ch.Bytes
			s.mu.Unlock()
		}
		return err
	})
}

// outbox is how many bytes wait for the destination that has the most.
func (s *shipper) outbox() (most uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.bytes {
		most = max(most, n)
	}
	return most
}

// progress notes that messages were delivered, or that the outbox held none when it was read.
func (s *shipper) progress(destination uint32, empty bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if empty && !s.pending[destination] {
		delete(s.since, destination)
	} else {
		s.since[destination] = s.l.r.clock.Now()
	}
}

// stalled is for how long messages for some destination have waited without progress, the longest; 0 when
// none wait.
func (s *shipper) stalled() (longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, since := range s.since {
		longest = max(longest, s.l.r.clock.Now().Sub(since))
	}
	return longest
}
