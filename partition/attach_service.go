package partition

import (
	"time"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
)

// Attach implements Peers: a worker of another node has a seat here for as long as the stream lives.
func (s *peerService) Attach(stream commandv1.Peers_AttachServer) error {
	in, err := stream.Recv()
	if err != nil {
		return err
	}
	hello := in.GetWorker()
	if hello == nil || hello.Worker == "" {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the first message must name the worker")
	}
	d := s.n.dispatch
	d.mu.Lock()
	seat := d.sit(WorkerSpec{ID: hello.Worker, Namespace: hello.Namespace, Functions: hello.Functions, LeaseMS: hello.LeaseMs, Room: int(hello.Room),
		Timestamp: hello.Timestamp, Unheard: time.Duration(hello.UnheardMs) * time.Millisecond}, hello.SinceMs, nil)
	d.finish()
	if seat == nil {
		return stream.Send(supersededDown())
	}
	defer func() {
		d.mu.Lock()
		d.drop(seat)
		d.finish()
	}()
	over := make(chan struct{})
	go func() {
		defer close(over)
		for {
			up, err := stream.Recv()
			if err != nil {
				return
			}
			seat.received(up)
		}
	}()
	told := false // whether the seat wants room, as the other node knows
	for {
		queue, out, ended := seat.pull(&told)
		for i, q := range queue {
			down := seat.down(stream, q)
			if down == nil {
				continue
			}
			if err := stream.Send(down); err != nil {
				d.mu.Lock()
				d.giveBack(queue[i:])
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
		case <-seat.wake:
		case <-over:
			return nil
		case <-s.n.stopping:
			return s.n.stoppingError()
		}
	}
}

func (n *Node) stoppingError() error {
	return api.Errorf(perdurev1.Reason_REASON_SHUTTING_DOWN, "the node is stopping")
}

func supersededDown() *commandv1.AttachDown {
	return &commandv1.AttachDown{Kind: &commandv1.AttachDown_Superseded{Superseded: true}}
}

// received takes in what the worker's node says.
func (s *seat) received(up *commandv1.AttachUp) {
	s.d.mu.Lock()
	defer s.d.finish()
	if up.Timestamp > 0 || up.Kind == nil {
		s.hear(up.Timestamp)
	}
	switch k := up.Kind.(type) {
	case *commandv1.AttachUp_Room:
		s.grant(int(k.Room))
	case *commandv1.AttachUp_Recall:
		s.revoke(int(k.Recall))
	}
}

// pull is what there is to be told now. A recall is answered once there is room that no entry offers, or
// none at all.
func (s *seat) pull(told *bool) (queue []Delivery, out []*commandv1.AttachDown, ended bool) {
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
		// If something has come to wait for it meanwhile, an offer is under way, and then the seat wants.
		out = append(out, &commandv1.AttachDown{Kind: &commandv1.AttachDown_Spare{Spare: uint32(s.giveUp())}})
	}
	if s.wanted != *told {
		*told = s.wanted
		out = append(out, &commandv1.AttachDown{Kind: &commandv1.AttachDown_Wanted{Wanted: &commandv1.AttachWanted{Wanted: s.wanted}}})
	}
	return queue, out, false
}

// down is a delivery as a message, or nil when its task is over already: then its room is free again.
func (s *seat) down(stream commandv1.Peers_AttachServer, q Delivery) *commandv1.AttachDown {
	if q.Cancelling {
		return &commandv1.AttachDown{Kind: &commandv1.AttachDown_Cancelling{Cancelling: q.Token}}
	}
	task, err := q.replica.task(stream.Context(), q.Token)
	if err == nil {
		task.AcquiredAfter = q.timestamp
		var term uint64
		if q.lead != nil {
			term = q.lead.term
		}
		return &commandv1.AttachDown{Kind: &commandv1.AttachDown_Task{Task: &commandv1.AttachTask{Task: task, Again: q.again, Term: term}}}
	}
	if !q.again {
		s.d.mu.Lock()
		s.grant(1)
		s.d.finish()
	}
	return nil
}
