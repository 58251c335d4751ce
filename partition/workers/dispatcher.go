package workers

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"perdure/fsm/machine"
	"perdure/fsm/state"
	"perdure/internal/credit"
)

// Dispatcher brings the pending tasks of the partitions that its node leads to workers at any node. It is safe for
// concurrent use. New makes one; Close ends what it has started.
type Dispatcher struct {
	env Env
	// ctx ends with the node or at Close; running counts the goroutines, which spawn starts.
	ctx     context.Context
	cancel  context.CancelFunc
	running sync.WaitGroup

	mu     sync.Mutex
	closed bool
	// workers are the streams of this node, sessions those of the whole cluster with this node, in order of attaching.
	workers  map[workerKey]*Worker
	sessions map[workerKey]*session
	order    []*session
	next     int
	led      map[uint32]*ledPartition
	// draining are sessions that have ended while entries under way still reserve their credit, by worker.
	draining map[workerKey][]*session
	// returning are tasks on their way back to the queues: no worker is sent them.
	returning map[credit.Task]bool
	// sessionsWanting counts the sessions that want credit.
	sessionsWanting int
	// known is the last survey; leadersChanged asks for one.
	known          Survey
	leadersChanged chan struct{}
	// remote are the bytes of other nodes' tasks that wait for workers of this one. spaceFreed is closed, and another
	// one made, when they become fewer.
	remote     int64
	spaceFreed chan struct{}
	// onStarved is called for queues of the server's own functions.
	onStarved func(namespace, function string)
}

// ledPartition is what the dispatcher knows of a partition that this node leads.
type ledPartition struct {
	lead Leadership
	// pending are queues that may hold unassigned tasks.
	pending map[state.Queue]bool
	// assigning: a command that only carries grants is under way.
	assigning bool
	// resent are tasks that this leadership has sent again.
	resent resentTasks
}

// New makes the dispatcher of a node. Survey is first used by Follow.
func New(env Env) *Dispatcher {
	d := &Dispatcher{env: env, workers: map[workerKey]*Worker{}, sessions: map[workerKey]*session{}, led: map[uint32]*ledPartition{},
		draining: map[workerKey][]*session{}, returning: map[credit.Task]bool{}, leadersChanged: make(chan struct{}, 1),
		spaceFreed: make(chan struct{})}
	d.ctx, d.cancel = context.WithCancel(env.Lifetime)
	return d
}

// Close ends what the dispatcher has started and waits for it. The replicas have stopped before.
func (d *Dispatcher) Close() {
	d.mu.Lock()
	d.closed = true
	d.mu.Unlock()
	d.cancel()
	d.running.Wait()
}

// spawn starts a goroutine that Close waits for; none once Close was called. The lock is held.
func (d *Dispatcher) spawn(run func()) {
	if !d.closed {
		d.running.Go(run)
	}
}

func (d *Dispatcher) now() time.Time { return d.env.Clock.Now() }

// finish acts on a change of capacity or queues, and unlocks.
func (d *Dispatcher) finish() {
	d.settle()
	d.mu.Unlock()
}

// Established begins to dispatch for a partition this node has come to lead.
func (d *Dispatcher) Established(lead Leadership, queues []state.Queue, held []machine.Assignment) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := lead.Replica()
	led := &ledPartition{lead: lead, pending: map[state.Queue]bool{}}
	for _, q := range queues {
		led.pending[q] = true
	}
	if former := d.led[r.ID()]; former != nil && former.lead == lead {
		// It has loaded again, and effects have named some since.
		for q := range former.pending {
			led.pending[q] = true
		}
		led.resent = former.resent
	}
	d.led[r.ID()] = led
	for _, a := range held {
		// The previous leader may not have sent it.
		if s := d.sessions[workerKey{a.Token.Namespace, a.Worker}]; s != nil {
			led.resent.add(creditTask(a.Token))
			s.deliver(Delivery{Token: a.Token, again: true, replica: r, lead: lead})
		}
	}
}

// Serving is called when a partition that was established has begun to serve.
func (d *Dispatcher) Serving() {
	d.mu.Lock()
	d.finish()
}

// Revoked ends dispatching for a partition.
func (d *Dispatcher) Revoked(lead Leadership) {
	d.mu.Lock()
	defer d.finish()
	if id := lead.Replica().ID(); d.led[id] != nil && d.led[id].lead == lead {
		delete(d.led, id)
	}
}

// Attached reports whether a worker process has a stream at this node.
func (d *Dispatcher) Attached(namespace, id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.workers[workerKey{namespace, id}] != nil
}

// Workers is how many streams are attached to this node.
func (d *Dispatcher) Workers() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.workers)
}

// Waiting is how many queues of a partition may hold unassigned tasks; 0 if this node does not lead it.
func (d *Dispatcher) Waiting(partition uint32) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	if led := d.led[partition]; led != nil {
		return len(led.pending)
	}
	return 0
}

// String describes every worker and session, for a log or a test that fails.
func (d *Dispatcher) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	var out strings.Builder
	for _, w := range d.workers {
		fmt.Fprintf(&out, "[%s: %d queued, %+v]", w.ID, len(w.queue), w.ledger)
	}
	for _, s := range d.order {
		fmt.Fprintf(&out, "(%s: %+v, wants credit: %v, %d queued)", s.ID, s.share, s.wanted, len(s.queue))
	}
	return out.String()
}
