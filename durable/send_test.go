package durable

import (
	"context"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
)

// sentTo is a stream to a node that passes on what is sent.
type sentTo struct {
	grpc.ClientStream
	sent chan *perdurev1.WorkRequest
}

func (s *sentTo) Send(m *perdurev1.WorkRequest) error {
	s.sent <- proto.CloneOf(m)
	return nil
}

func (s *sentTo) Recv() (*perdurev1.WorkResponse, error) { panic("not used") }

// TestOutgoing: messages go one by one until the node says that it reads batches, then those together that wait, in
// their order and in messages of bounded size.
func TestOutgoing(t *testing.T) {
	to := &sentTo{sent: make(chan *perdurev1.WorkRequest, 1000)}
	s := &session{w: &Worker{clock: newFakeClock(), timestamps: newTimestamps(time.Second)}, stream: to, out: outgoing{wake: make(chan struct{}, 1)}}
	next := uint64(0)
	send := func(bytes int) {
		s.send(&perdurev1.WorkRequest{CallId: next, Kind: &perdurev1.WorkRequest_Commit{Commit: &perdurev1.Commit{
			Request: &perdurev1.RequestID{Id: make([]byte, bytes)}}}})
		next++
	}
	for range 3 {
		send(1)
	}
	if len(to.sent) != 3 {
		t.Fatalf("%d of three messages were sent before the node has said that it reads batches", len(to.sent))
	}
	s.out.begin()
	for range 4 {
		send(1)
	}
	send(maxBatchBytes)
	for range maxBatch + 1 {
		send(1)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.write(ctx)
	}()
	var sizes []int
	for came := uint64(0); came < next; {
		var m *perdurev1.WorkRequest
		select {
		case m = <-to.sent:
		case <-time.After(testTimeout):
			t.Fatalf("%d of %d messages were sent", came, next)
		}
		parts := m.Batch
		if len(parts) == 0 {
			parts = []*perdurev1.WorkRequest{m}
		}
		sizes = append(sizes, len(parts))
		for _, part := range parts {
			if part.CallId != came {
				t.Errorf("message %d came when %d was due", part.CallId, came)
			}
			came++
		}
	}
	if want := []int{1, 1, 1, 4, 1, maxBatch, 1}; !slices.Equal(sizes, want) {
		t.Errorf("messages of %v, want %v", sizes, want)
	}
	cancel()
	<-done
}

// TestCreditFollowsEnds: the credit of tasks that are ending goes out once, behind the commits of their ends, in the same message.
func TestCreditFollowsEnds(t *testing.T) {
	to := &sentTo{sent: make(chan *perdurev1.WorkRequest, 10)}
	w := &Worker{clock: newFakeClock(), timestamps: newTimestamps(time.Second)}
	s := &session{w: w, stream: to, out: outgoing{wake: make(chan struct{}, 1)}}
	s.out.begin()
	w.lastCall = 2
	for n := range uint64(2) {
		s.returned++
		s.send(&perdurev1.WorkRequest{CallId: n + 1, Kind: &perdurev1.WorkRequest_Commit{Commit: &perdurev1.Commit{}}})
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.write(ctx)
	}()
	next := func() *perdurev1.WorkRequest {
		select {
		case m := <-to.sent:
			return m
		case <-time.After(testTimeout):
			t.Fatal("nothing was sent")
			return nil
		}
	}
	if parts := next().Batch; len(parts) != 3 || parts[0].CallId != 1 || parts[1].CallId != 2 || parts[2].CallId != 3 || parts[2].GetCredit().GetTasks() != 2 {
		t.Errorf("sent %v", parts)
	}
	s.send(&perdurev1.WorkRequest{CallId: 4, Kind: &perdurev1.WorkRequest_Commit{Commit: &perdurev1.Commit{}}})
	if m := next(); m.CallId != 4 || len(m.Batch) > 0 {
		t.Errorf("sent %v", m)
	}
	cancel()
	<-done
}
