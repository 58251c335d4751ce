package rpc

import (
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
)

// sentTo is a worker's stream that keeps what is sent.
type sentTo struct {
	grpc.ServerStream
	sent []*perdurev1.WorkResponse
}

func (s *sentTo) Send(m *perdurev1.WorkResponse) error {
	s.sent = append(s.sent, proto.CloneOf(m))
	return nil
}

func (s *sentTo) Recv() (*perdurev1.WorkRequest, error) { panic("not used") }

// TestSendAll: messages go in their order, together to a worker that reads batches, and in messages of bounded size.
func TestSendAll(t *testing.T) {
	t.Parallel()
	large := &perdurev1.WorkResponse{CallId: 4, Kind: &perdurev1.WorkResponse_Journal{Journal: &perdurev1.JournalPage{
		Entries: []*perdurev1.JournalEntry{{Event: &perdurev1.Event{Kind: &perdurev1.Event_ExecutionCompleted{
			ExecutionCompleted: &perdurev1.ExecutionCompleted{Result: make([]byte, maxBatchBytes)}}}}}}}}
	var all []*perdurev1.WorkResponse
	for n := range uint64(4) {
		all = append(all, &perdurev1.WorkResponse{CallId: n})
	}
	all = append(all, large)
	for n := range uint64(maxBatch + 1) {
		all = append(all, &perdurev1.WorkResponse{CallId: 5 + n})
	}
	for _, c := range []struct {
		batches bool
		sizes   []int
	}{{false, slices.Repeat([]int{1}, len(all))}, {true, []int{4, 1, maxBatch, 1}}} {
		to := &sentTo{}
		w := &session{stream: to, batches: c.batches}
		if err := w.sendAll(all); err != nil {
			t.Fatal(err)
		}
		var sizes []int
		next := uint64(0)
		for _, m := range to.sent {
			parts := m.Batch
			if len(parts) == 0 {
				parts = []*perdurev1.WorkResponse{m}
			}
			sizes = append(sizes, len(parts))
			for _, part := range parts {
				if part.CallId != next {
					t.Errorf("message %d came when %d was due", part.CallId, next)
				}
				next++
			}
		}
		if !slices.Equal(sizes, c.sizes) {
			t.Errorf("batches: %t: messages of %v, want %v", c.batches, sizes, c.sizes)
		}
	}
}

// TestBatchIsReleasedOnce: messages that came together share their bytes, which are given back when all are done.
func TestBatchIsReleasedOnce(t *testing.T) {
	t.Parallel()
	released := 0
	parts := releasedTogether(3, func() { released++ })
	for n := range 3 {
		if released != 0 {
			t.Errorf("released when %d of three were done", n)
		}
		parts()
	}
	if released != 1 {
		t.Errorf("released %d times", released)
	}
}
