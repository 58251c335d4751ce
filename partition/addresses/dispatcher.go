package addresses

import (
	"context"
	"sync"

	commandv1 "perdure/api/command/v1"
)

// Dispatcher brings messages of the partitions that its node leads to streams of clients at any node. It is safe for
// concurrent use. New makes one; Close ends what it has started.
type Dispatcher struct {
	env     Env
	metrics *metrics
	// ctx ends with the node or at Close; running counts the goroutines, which spawn starts.
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup
	// drained is closed by Drain.
	drained chan struct{}

	mu               sync.Mutex
	closed, draining bool
	push             Push
	// streams are those of this node, of each process the oldest first; open counts them.
	streams map[name][]*Stream
	open    int
	// table has the streams of all nodes, by server; "" is this node.
	table *table
	// links are to the other members, since this node has had a stream. sessions are the other nodes' links.
	links     map[string]*link
	following bool
	sessions  map[string]*session
	led       map[uint32]*led
	// flights are the unblocks that were sent, by number; last is the last number.
	flights map[uint64]flight
	last    uint64
	// bytes wait for streams and links.
	bytes int64
}

// flight is an unblock that was sent, and the link that has it; nil if it is at a stream of this node or was pushed.
type flight struct {
	led     *led
	unblock Unblock
	session *session
}

// New makes the dispatcher of a node.
func New(env Env) *Dispatcher {
	d := &Dispatcher{env: env, drained: make(chan struct{}), streams: map[name][]*Stream{}, table: newTable(), links: map[string]*link{},
		sessions: map[string]*session{}, led: map[uint32]*led{}, flights: map[uint64]flight{}}
	d.metrics = newMetrics(d)
	d.ctx, d.cancel = context.WithCancel(env.Lifetime)
	return d
}

// ServePush has the dispatcher send messages for HTTP addresses by push; nil ends it.
func (d *Dispatcher) ServePush(push Push) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.push = push
	if push != nil {
		for _, l := range d.led {
			l.offerPushed()
		}
	}
}

// Drain refuses further streams and ends those that are open, so that clients open them at other nodes. It does not
// block.
func (d *Dispatcher) Drain() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.draining {
		d.draining = true
		close(d.drained)
	}
}

// Close ends what the dispatcher has started and waits for it. The replicas have stopped before.
func (d *Dispatcher) Close() {
	d.Drain()
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.running.Wait()
}

// spawn starts a goroutine that Close waits for; none once Close was called. The lock is held.
func (d *Dispatcher) spawn(run func()) bool {
	if !d.closed {
		d.running.Go(run)
	}
	return !d.closed
}

// Streams is how many streams of clients this node has.
func (d *Dispatcher) Streams() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open
}

// Known is how many processes have streams at other nodes, as far as this node knows; one that has streams at two
// counts twice.
func (d *Dispatcher) Known() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.table.size - len(d.streams)
}

// Established begins to serve a partition that this node has come to lead: it offers the streams what waits for them.
func (d *Dispatcher) Established(lead Leadership) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.led[lead.Partition()]
	if l == nil || l.lead != lead {
		if l != nil {
			l.end()
		}
		l = newLed(d, lead)
		d.led[lead.Partition()] = l
	}
	for g := range d.table.groups {
		l.offer(g)
	}
	l.offerPushed()
}

// Revoked ends serving a partition.
func (d *Dispatcher) Revoked(lead Leadership) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.led[lead.Partition()]; l != nil && l.lead == lead {
		l.end()
		delete(d.led, lead.Partition())
	}
}

// Applied sends what an entry of a partition wants sent. It does not block. While no stream is open anywhere, a poll
// address costs one look into an empty map.
func (d *Dispatcher) Applied(lead Leadership, executes []Execute, unblocks []Unblock) {
	if len(executes) == 0 && len(unblocks) == 0 {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	l := d.led[lead.Partition()]
	if l == nil || l.lead != lead {
		return
	}
	for _, e := range executes {
		d.execute(e)
	}
	for _, u := range unblocks {
		if d.reaches(u.Namespace, parse(u.Address)) {
			l.unblock(u)
		}
	}
}

// reaches reports whether an address has a receiver now. The lock is held.
func (d *Dispatcher) reaches(namespace string, to target) bool {
	switch to.scheme {
	case schemeHTTP:
		return d.push != nil
	case schemePoll:
		return d.table.has(group{namespace, to.group})
	}
	return false
}

// execute sends an execute to a stream of its address, or drops it. It reports whether it was sent. The lock is held.
func (d *Dispatcher) execute(e Execute) bool {
	to := parse(e.Address)
	if !d.hasStream(e.Namespace, to) {
		return false
	}
	m := &commandv1.AddressMessage{Namespace: e.Namespace, Address: e.Address,
		Kind: &commandv1.AddressMessage_Execute{Execute: &commandv1.AddressExecute{Id: e.ID, Version: e.Version}}}
	sent := false
	if to.scheme == schemeHTTP {
		sent = d.push(m, func(accepted bool) { d.metrics.ended(m, accepted) })
	} else {
		_, sent = d.send(m, to, 0)
	}
	if !sent {
		d.metrics.ended(m, false)
	}
	return sent
}

// send queues a message for a stream of its address, here or at another node. number is that of an unblock. session is
// the link that has it. The lock is held.
func (d *Dispatcher) send(m *commandv1.AddressMessage, to target, number uint64) (at *session, sent bool) {
	pid, server, ok := d.table.pick(m.Namespace, to)
	if !ok {
		return nil, false
	}
	if server != "" {
		at = d.sessions[server]
		return at, at.put(m, number)
	}
	return nil, d.newest(name{group{m.Namespace, to.group}, pid}).put(&Queued{Message: m, number: number})
}

// newest is the stream of this node that gets the messages of a process. The table says that there is one. The lock is
// held.
func (d *Dispatcher) newest(n name) *Stream {
	list := d.streams[n]
	return list[len(list)-1]
}
