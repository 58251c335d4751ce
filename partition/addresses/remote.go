package addresses

import (
	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
)

// session is the link of another node: the streams that it has announced, and the messages for them. The dispatcher's
// lock guards it.
type session struct {
	d      *Dispatcher
	server string
	names  map[name]bool
	queue  []*commandv1.StreamsDown
	bytes  int64
	wake   chan struct{}
	over   bool
}

// Serve keeps the announcements of another node as long as its RPC is open, and sends it messages. It blocks until
// then.
func (d *Dispatcher) Serve(rpc commandv1.Peers_StreamsServer) error {
	hello, err := rpc.Recv()
	if err != nil {
		return err
	}
	if hello.ServerId == "" || hello.ServerId == d.env.ServerID {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the first message must name another server")
	}
	s := &session{d: d, server: hello.ServerId, names: map[name]bool{}, wake: make(chan struct{}, 1)}
	d.mu.Lock()
	if former := d.sessions[s.server]; former != nil {
		former.end()
	}
	d.sessions[s.server] = s
	d.mu.Unlock()
	defer func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		s.end()
	}()
	gone := make(chan struct{})
	go func() { // it ends with the RPC, which ends when this method returns
		defer close(gone)
		for up := hello; err == nil; up, err = rpc.Recv() {
			s.received(up)
		}
	}()
	for {
		queue, over := s.pull()
		for i, down := range queue {
			if err := rpc.Send(down); err != nil {
				s.sent(queue[i:]...)
				return err
			}
			s.sent(down)
		}
		if over {
			return nil
		}
		select {
		case <-s.wake:
		case <-gone:
			return nil
		case <-d.ctx.Done():
			return api.Errorf(perdurev1.Reason_REASON_SHUTTING_DOWN, "the node is stopping")
		}
	}
}

// received handles announcements and reports.
func (s *session) received(up *commandv1.StreamsUp) {
	d := s.d
	d.mu.Lock()
	defer d.mu.Unlock()
	if s.over {
		return
	}
	for _, c := range up.Closed {
		n := nameOf(c)
		d.table.remove(n, s.server)
		delete(s.names, n)
	}
	for _, c := range up.Opened {
		n := nameOf(c)
		if !s.names[n] && len(s.names) >= MaxStreams || checkName(n.group.name, n.pid) != nil {
			continue
		}
		s.names[n] = true
		if d.table.add(n, s.server, c.SinceMs) {
			d.offerAll(n.group)
		}
	}
	for _, number := range up.Delivered {
		d.reported(s, number, true)
	}
	for _, number := range up.Dropped {
		d.reported(s, number, false)
	}
}

func nameOf(c *commandv1.ClientStream) name {
	return name{group{c.GetNamespace(), c.GetGroup()}, c.GetPid()}
}

// reported ends a flight that a link has; a number of another one is ignored.
func (d *Dispatcher) reported(s *session, number uint64, ok bool) {
	if f, known := d.flights[number]; known && f.session == s {
		d.landed(number, ok)
	}
}

// put queues a message for the other node; false if there is no space. The lock is held.
func (s *session) put(m *commandv1.AddressMessage, number uint64) bool {
	down := &commandv1.StreamsDown{Message: m, Number: number}
	size := sizeOf(down)
	if len(s.queue) >= linkMessages || s.bytes+size > linkBytes || s.d.bytes+size > nodeBytes {
		return false
	}
	s.queue = append(s.queue, down)
	s.bytes += size
	s.d.bytes += size
	signal(s.wake)
	return true
}

// pull takes the queue; over: the session has ended.
func (s *session) pull() (queue []*commandv1.StreamsDown, over bool) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	queue, s.queue = s.queue, nil
	return queue, s.over
}

// sent frees the bytes of messages that were sent or lost.
func (s *session) sent(downs ...*commandv1.StreamsDown) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.free(downs)
}

func (s *session) free(downs []*commandv1.StreamsDown) {
	for _, down := range downs {
		size := sizeOf(down)
		s.bytes -= size
		s.d.bytes -= size
	}
}

// end forgets what the other node has announced. Its unblocks that were not reported count as dropped. The lock is
// held. A second call does nothing.
func (s *session) end() {
	d := s.d
	if s.over {
		return
	}
	s.over = true
	signal(s.wake)
	for n := range s.names {
		d.table.remove(n, s.server)
	}
	if d.sessions[s.server] == s {
		delete(d.sessions, s.server)
	}
	s.free(s.queue)
	s.queue = nil
	for number, f := range d.flights {
		if f.session == s {
			d.landed(number, false)
		}
	}
}
