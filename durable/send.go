package durable

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
)

// Bounds of the messages that are sent together. One always fits.
const (
	maxBatch      = 256
	maxBatchBytes = 128 << 10
)

// outgoing are a session's messages to its node. Until begin each is sent by itself, then those together that wait.
type outgoing struct {
	sending sync.Mutex    // the stream's
	wake    chan struct{} // messages wait

	mu      sync.Mutex
	batches bool
	queue   []*perdurev1.WorkRequest
}

// begin has messages wait for the session's write.
func (o *outgoing) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.batches = true
}

// inBatches reports whether messages wait for the session's write.
func (o *outgoing) inBatches() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.batches
}

// enqueue queues a message; false if it is to be sent by itself.
func (o *outgoing) enqueue(m *perdurev1.WorkRequest) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.batches {
		return false
	}
	if o.queue = append(o.queue, m); len(o.queue) == 1 {
		select {
		case o.wake <- struct{}{}:
		default:
		}
	}
	return true
}

// take returns the messages that wait.
func (o *outgoing) take() []*perdurev1.WorkRequest {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.queue
	o.queue = nil
	return all
}

// send sends one message. A failure ends the session; the next one repeats unanswered calls. To a node that reads no
// batches it blocks at most until the session ends: a node that reads nothing answers no heartbeat either.
func (s *session) send(m *perdurev1.WorkRequest) {
	m.Timestamp = s.w.timestamp() // before it waits
	if !s.out.enqueue(m) {
		s.transmit(m)
	}
}

func (s *session) transmit(m *perdurev1.WorkRequest) {
	s.out.sending.Lock()
	defer s.out.sending.Unlock()
	if err := s.stream.Send(m); err != nil {
		s.cancel(fmt.Errorf("sending: %w", err))
	}
}

// write sends the messages that wait, until the session ends.
func (s *session) write(ctx context.Context) {
	for {
		select {
		case <-s.out.wake:
		case <-ctx.Done():
			return
		}
		runtime.Gosched() // activations that are about to commit come into the same message
		all := s.out.take()
		if credit := s.returnedCredit(); credit != nil {
			all = append(all, credit)
		}
		for len(all) > 0 {
			n := fitting(all)
			m := all[0]
			if n > 1 {
				m = &perdurev1.WorkRequest{Batch: all[:n]}
			}
			s.transmit(m)
			all = all[n:]
		}
	}
}

// fitting is how many of the first messages fit into one.
func fitting(all []*perdurev1.WorkRequest) int {
	for n, bytes := 0, 0; ; n++ {
		if n == min(len(all), maxBatch) {
			return n
		}
		if bytes += proto.Size(all[n]); n > 0 && bytes > maxBatchBytes {
			return n
		}
	}
}
