package addresses

import (
	"context"
	"maps"
	"slices"
	"time"

	commandv1 "perdure/api/command/v1"
	"perdure/internal/clock"
)

// Bounds of a link.
const (
	linkPauseMin = 20 * time.Millisecond
	linkPauseMax = time.Second
	// membersEvery is how often a node with streams looks for members without a link.
	membersEvery = time.Second
	// announced bounds the streams, and the reports, of one message.
	announced = 1000
)

// link announces the streams of this node to another member and receives that node's messages for them. The
// dispatcher's lock guards it.
type link struct {
	d      *Dispatcher
	server string
	ctx    context.Context // ends when the server is no member any more, or the node stops
	cancel context.CancelFunc
	wake   chan struct{}
	// changed are processes whose streams the other node does not know as they are.
	changed map[name]bool
	// delivered and dropped are numbers to report. An RPC that ends has the other node count them as dropped.
	delivered, dropped []uint64
}

// announce has the other members learn of a process's streams. The lock is held.
func (d *Dispatcher) announce(n name) {
	for _, l := range d.links {
		l.changed[n] = true
		signal(l.wake)
	}
	if !d.following && d.env.Members != nil {
		d.following = d.spawn(d.follow)
	}
}

// follow keeps a link to every other member until the node stops.
func (d *Dispatcher) follow() {
	for {
		members := d.env.Members()
		d.mu.Lock()
		for server, l := range d.links {
			if !slices.Contains(members, server) {
				l.cancel()
				delete(d.links, server)
			}
		}
		for _, server := range members {
			if d.links[server] == nil {
				l := &link{d: d, server: server, wake: make(chan struct{}, 1), changed: map[name]bool{}}
				l.ctx, l.cancel = context.WithCancel(d.ctx)
				d.links[server] = l
				d.spawn(l.run)
			}
		}
		d.mu.Unlock()
		if !clock.Wait(d.ctx, d.env.Clock, membersEvery) {
			return
		}
	}
}

// run keeps the link's RPC open.
func (l *link) run() {
	defer l.cancel()
	pause := linkPauseMin
	for l.ctx.Err() == nil {
		if l.attach() {
			pause = linkPauseMin
		}
		clock.Wait(l.ctx, l.d.env.Clock, pause)
		pause = min(2*pause, linkPauseMax)
	}
}

// attach opens the RPC and follows it to its end. It reports whether the other node has sent anything.
func (l *link) attach() (heard bool) {
	d := l.d
	client, err := d.env.Peer(l.server)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithCancel(l.ctx)
	defer cancel()
	rpc, err := client.Streams(ctx)
	if err != nil {
		return false
	}
	d.mu.Lock()
	l.changed, l.delivered, l.dropped = map[name]bool{}, nil, nil
	for n := range d.streams {
		l.changed[n] = true
	}
	d.mu.Unlock()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		defer cancel()
		l.send(ctx, rpc)
	}()
	defer func() { <-sent }()
	defer cancel()
	for {
		down, err := rpc.Recv()
		if err != nil {
			return heard
		}
		heard = true
		l.received(down)
	}
}

// send announces and reports, until the RPC ends.
func (l *link) send(ctx context.Context, rpc commandv1.Peers_StreamsClient) {
	known := map[name]int64{}
	if rpc.Send(&commandv1.StreamsUp{ServerId: l.d.env.ServerID}) != nil {
		return
	}
	for {
		up := l.next(known)
		if up == nil {
			select {
			case <-l.wake:
			case <-ctx.Done():
				return
			}
			continue
		}
		if rpc.Send(up) != nil {
			return
		}
	}
}

// next is the next message, or nil; known are the streams that the other node knows.
func (l *link) next(known map[name]int64) *commandv1.StreamsUp {
	d := l.d
	d.mu.Lock()
	defer d.mu.Unlock()
	up := &commandv1.StreamsUp{}
	up.Delivered, l.delivered = cut(l.delivered)
	up.Dropped, l.dropped = cut(l.dropped)
	some := len(up.Delivered)+len(up.Dropped) > 0
	for n := range maps.Keys(l.changed) {
		if len(up.Opened)+len(up.Closed) >= announced {
			break
		}
		delete(l.changed, n)
		since, knows := known[n]
		switch list := d.streams[n]; {
		case len(list) == 0 && knows:
			delete(known, n)
			up.Closed, some = append(up.Closed, n.wire(0)), true
		case len(list) > 0 && (!knows || since != list[len(list)-1].since):
			known[n] = list[len(list)-1].since
			up.Opened, some = append(up.Opened, n.wire(known[n])), true
		}
	}
	if !some {
		return nil
	}
	return up
}

func cut(numbers []uint64) (first, rest []uint64) {
	n := min(len(numbers), announced)
	return numbers[:n:n], numbers[n:]
}

func (n name) wire(since int64) *commandv1.ClientStream {
	return &commandv1.ClientStream{Namespace: n.namespace, Group: n.group.name, Pid: n.pid, SinceMs: since}
}

// received queues a message of the other node for a stream of this one. The streams may be others than those that the
// other node knows.
func (l *link) received(down *commandv1.StreamsDown) {
	d, m := l.d, down.Message
	if m == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	pid, ok := d.table.pickHere(m.Namespace, parse(m.Address))
	if ok {
		q := &Queued{Message: m, number: down.Number, from: l}
		ok = d.newest(name{group{m.Namespace, parse(m.Address).group}, pid}).put(q)
	}
	if !ok {
		d.metrics.ended(m, false)
		if down.Number > 0 {
			l.report(down.Number, false)
		}
	}
}

// report reports an unblock to its leader. The lock is held.
func (l *link) report(number uint64, ok bool) {
	if ok {
		l.delivered = append(l.delivered, number)
	} else {
		l.dropped = append(l.dropped, number)
	}
	signal(l.wake)
}
