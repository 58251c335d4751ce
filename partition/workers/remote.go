package workers

import (
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
)

// Serve keeps a session for a worker of another node as long as the stream is open. It blocks until then.
func (d *Dispatcher) Serve(stream commandv1.Peers_AttachServer) error {
	in, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := in.GetWorker()
	if hello == nil || hello.Worker == "" {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the first message must name the worker")
	}
	d.mu.Lock()
	s := d.attach(Spec{ID: hello.Worker, Namespace: hello.Namespace, Functions: hello.Functions, Digests: hello.Digests, LeaseMS: hello.LeaseMs, Capacity: int(hello.Credit),
		Timestamp: hello.Timestamp, Unheard: time.Duration(hello.UnheardMs) * time.Millisecond}, hello.SinceMs, nil)
	d.finish()
	if s == nil {
		return stream.Send(supersededDown())
	}
	defer func() {
		d.mu.Lock()
		d.drop(s)
		d.finish()
	}()
	over := make(chan struct{})
	go func() { // it ends with the stream, which ends when this method returns
		defer close(over)
		for {
			up, err := stream.Recv()
			if err != nil {
				return
			}
			s.received(up)
		}
	}()
	notified := false // whether the session wants credit, as the other node knows
	for {
		queue, out, ended := s.pull(&notified)
		for i, q := range queue {
			down := s.down(stream, q)
			if down == nil {
				continue
			}
			if err := stream.Send(down); err != nil {
				d.mu.Lock()
				d.returnUnsent(queue[i:])
				d.mu.Unlock()
				return err
			}
		}
		for _, down := range out {
			if err := stream.Send(down); err != nil {
				return err
			}
		}
		if ended {
			return nil
		}
		select {
		case <-s.wake:
		case <-over:
			return nil
		case <-d.ctx.Done():
			return api.Errorf(perdurev1.Reason_REASON_SHUTTING_DOWN, "the node is stopping")
		}
	}
}

func supersededDown() *commandv1.AttachDown {
	return &commandv1.AttachDown{Kind: &commandv1.AttachDown_Superseded{Superseded: true}}
}

// received handles a message of the worker's node.
func (s *session) received(up *commandv1.AttachUp) {
	s.d.mu.Lock()
	defer s.d.finish()
	if up.Timestamp > 0 || up.Kind == nil {
		s.hear(up.Timestamp)
	}
	switch k := up.Kind.(type) {
	case *commandv1.AttachUp_Credit:
		s.grant(int(k.Credit))
	case *commandv1.AttachUp_Revoke:
		s.revoke(int(k.Revoke))
	}
}

// pull returns the messages to send now. It answers a revocation once the session has credit that no entry
// has reserved, or none at all.
func (s *session) pull(notified *bool) (queue []Delivery, out []*commandv1.AttachDown, ended bool) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.detached {
		if s.superseded {
			out = append(out, supersededDown())
		}
		return nil, out, true
	}
	queue, s.queue = s.queue, nil
	if s.mayAnswer() {
		// If tasks have begun to wait for this credit, a command with grants is in flight, and the session wants
		// credit afterwards.
		out = append(out, &commandv1.AttachDown{Kind: &commandv1.AttachDown_Returned{Returned: uint32(s.giveUp())}})
	}
	if s.wanted != *notified {
		*notified = s.wanted
		out = append(out, &commandv1.AttachDown{Kind: &commandv1.AttachDown_Wanted{Wanted: &commandv1.AttachWanted{Wanted: s.wanted}}})
	}
	return queue, out, false
}

// down returns a delivery as a message, or nil if its task is over: its credit is free again then.
func (s *session) down(stream commandv1.Peers_AttachServer, q Delivery) *commandv1.AttachDown {
	if q.Cancelling {
		return &commandv1.AttachDown{Kind: &commandv1.AttachDown_Cancelling{Cancelling: q.Token}}
	}
	task, err := q.read(stream.Context(), 0)
	if err == nil {
		task.AcquiredAfter = q.timestamp
		var term uint64
		if q.lead != nil {
			term = q.lead.Term()
		}
		return &commandv1.AttachDown{Kind: &commandv1.AttachDown_Task{Task: &commandv1.AttachTask{Task: task, Resent: q.again, Term: term}}}
	}
	if !q.again {
		s.d.mu.Lock()
		s.grant(1)
		s.d.finish()
	}
	return nil
}
