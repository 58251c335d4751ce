package partition

import (
	"context"
	"maps"
	"time"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/credit"
)

// leg carries a part of a worker's capacity to another node, and that node's tasks here. Its fields are guarded by the
// dispatcher's lock.
type leg struct {
	w      *Worker
	server string
	ctx    context.Context // ends when the server is no member any more, or the worker's stream is over
	cancel context.CancelFunc
	wake   chan struct{}
	// up: the stream is open, and the ledger has a link for it. give and ask are what it grants and revokes and is not
	// sent yet.
	up        bool
	give, ask int
	// told is when the other node was told last that the worker was heard from; tell says that it is to be again.
	told time.Time
	tell bool
}

// name is the leg's in the ledger; nil stands for this node's own seat.
func (l *leg) name() credit.Link {
	if l == nil {
		return credit.Home
	}
	return credit.Link(l.server)
}

// Bounds of a leg.
const (
	legPauseMin = 20 * time.Millisecond
	legPauseMax = time.Second
	legRest     = 50 * time.Millisecond
	// legFarewell bounds the wait for what is still on its way when a stream ends.
	legFarewell = time.Second
	// surveyEvery is how often nodes look who is a member, if no leader changes.
	surveyEvery = time.Second
)

// tellsPerLease is how often in a lease another node is told, at most, that a worker was heard from.
const tellsPerLease = 16

// hear has the other node told that the worker was heard from.
func (l *leg) hear(now time.Time) {
	if l.up && now.Sub(l.told) >= time.Duration(l.w.LeaseMS)*time.Millisecond/tellsPerLease {
		l.told, l.tell = now, true
		l.poke()
	}
}

// leadsHere reports whether this node leads partitions.
func (d *Dispatcher) leadsHere() bool {
	return d.node == nil || d.node.identity.Alone() || d.leads[d.node.identity.ServerID] > 0
}

func (l *leg) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// follow gives a worker a leg to every member.
func (w *Worker) follow() {
	d := w.d
	kept := w.legs[:0]
	has := map[string]bool{}
	for _, l := range w.legs {
		if _, member := d.members[l.server]; !member {
			l.cancel()
			continue
		}
		has[l.server] = true
		kept = append(kept, l)
	}
	w.legs = kept
	for server := range d.members {
		if !has[server] && !w.over {
			l := &leg{w: w, server: server, wake: make(chan struct{}, 1)}
			l.ctx, l.cancel = context.WithCancel(w.ctx)
			w.legs = append(w.legs, l)
			go l.run()
		}
	}
}

// run keeps the leg's stream open.
func (l *leg) run() {
	defer l.cancel()
	clock := l.w.d.node.clock
	pause := legPauseMin
	for l.ctx.Err() == nil {
		if l.attach() {
			pause = legPauseMin
		}
		c, stop := clock.After(pause)
		select {
		case <-c:
		case <-l.ctx.Done():
		}
		stop()
		pause = min(2*pause, legPauseMax)
	}
}

// attach opens the stream and follows it to its end. It reports whether the other node has said anything.
func (l *leg) attach() (heard bool) {
	d := l.w.d
	client, err := d.node.peers.Client(d.node.cluster.AddressOf(l.server))
	if err != nil {
		return false
	}
	ctx, cancel := context.WithCancel(d.node.lifetime)
	defer cancel()
	connecting := context.AfterFunc(l.ctx, cancel)
	stream, err := client.Attach(ctx)
	if err != nil || !connecting() {
		return false
	}
	hello := l.opened()
	if hello == nil {
		return false
	}
	defer l.closed()
	if stream.Send(&commandv1.AttachUp{Kind: &commandv1.AttachUp_Worker{Worker: hello}}) != nil {
		return false
	}
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		l.send(ctx, stream)
		// The other node has heard all and says what it still has to say, or it takes too long.
		over, stop := d.node.clock.After(legFarewell)
		defer stop()
		select {
		case <-over:
			cancel()
		case <-ctx.Done():
		}
	}()
	for {
		l.awaitSpace(ctx)
		down, err := stream.Recv()
		if err != nil {
			cancel()
			<-sent
			return heard
		}
		heard = true
		l.received(down)
	}
}

// awaitSpace blocks while the worker's queue, or those of the node, hold so many bytes of other nodes' tasks that no more
// are taken, until ctx ends. Then the stream is not read, and its flow control has the leader keep the next ones as
// tokens.
func (l *leg) awaitSpace(ctx context.Context) {
	d := l.w.d
	for {
		d.mu.Lock()
		may, drained := l.w.mayTake(), d.drained
		d.mu.Unlock()
		if may {
			return
		}
		select {
		case <-drained:
		case <-ctx.Done():
			return
		}
	}
}

// opened tells the ledger of the leg, and answers what is to be said first: the worker, what it is granted there, and
// when it was heard from, which may be long ago. nil: the leg is over.
func (l *leg) opened() *commandv1.AttachWorker {
	w, d := l.w, l.w.d
	d.mu.Lock()
	defer d.finish()
	if l.ctx.Err() != nil {
		return nil
	}
	l.up, l.told, l.tell = true, time.Time{}, false
	w.step(credit.LinkOpened{Link: l.name(), Leads: d.leads[l.server] > 0, Of: len(d.leads)})
	room := l.give
	l.give = 0
	return &commandv1.AttachWorker{Worker: w.ID, Namespace: w.Namespace, Functions: w.Functions, LeaseMs: w.LeaseMS, Room: uint32(room),
		SinceMs: w.since, Timestamp: w.seat.timestamp, UnheardMs: d.now().Sub(w.seat.heard).Milliseconds()}
}

// closed tells the ledger that the leg has broken.
func (l *leg) closed() {
	d := l.w.d
	d.mu.Lock()
	defer d.finish()
	l.up, l.give, l.ask = false, 0, 0
	l.w.step(credit.LinkLost{Link: l.name()})
}

// send tells the other node of room given and asked back, until the leg is over or its stream broken.
func (l *leg) send(ctx context.Context, stream commandv1.Peers_AttachClient) {
	d := l.w.d
	for {
		d.mu.Lock()
		give, ask, tell := l.give, l.ask, l.tell
		l.give, l.ask, l.tell = 0, 0, false
		timestamp := l.w.seat.timestamp
		d.mu.Unlock()
		var ups []*commandv1.AttachUp
		if tell { // first: room that is given is offered at once
			ups = append(ups, &commandv1.AttachUp{Timestamp: timestamp})
		}
		if give > 0 {
			ups = append(ups, &commandv1.AttachUp{Kind: &commandv1.AttachUp_Room{Room: uint32(give)}})
		}
		if ask > 0 {
			ups = append(ups, &commandv1.AttachUp{Kind: &commandv1.AttachUp_Recall{Recall: uint32(ask)}})
		}
		var err error
		for _, up := range ups {
			if err == nil {
				err = stream.Send(up)
			}
		}
		if err != nil {
			return // its receiver learns why
		}
		select {
		case <-l.wake:
		case <-l.ctx.Done():
			_ = stream.CloseSend() // the receiver learns how it ends
			return
		case <-ctx.Done():
			return
		}
	}
}

// received takes in what the other node says.
func (l *leg) received(down *commandv1.AttachDown) {
	w, d := l.w, l.w.d
	d.mu.Lock()
	defer d.finish()
	switch k := down.Kind.(type) {
	case *commandv1.AttachDown_Task:
		token := k.Task.GetTask().GetToken()
		switch stale := d.node.knowsLaterTerm(token, k.Task.Term); {
		case !stale:
			w.arrive(Delivery{Token: token, Task: k.Task.GetTask(), again: k.Task.Again, leg: l, term: k.Task.Term, size: int64(proto.Size(down))})
		case !k.Task.Again:
			// It waited while another leader was elected, which has told of the task, or will, if it is still held.
			w.step(credit.Dropped{Link: l.name()})
		}
	case *commandv1.AttachDown_Cancelling:
		w.arrive(Delivery{Token: k.Cancelling, Cancelling: true})
	case *commandv1.AttachDown_Spare:
		w.step(credit.Returned{Link: l.name(), N: int(k.Spare)})
	case *commandv1.AttachDown_Wanted:
		w.step(credit.Wants{Link: l.name(), Wants: k.Wanted.GetWanted()})
	case *commandv1.AttachDown_Superseded:
		d.overtaken(w)
	}
}

// knowsLaterTerm reports whether this node's replica of a task's partition knows a later term than one.
func (n *Node) knowsLaterTerm(t *perdurev1.TaskToken, term uint64) bool {
	r := n.router.Of(t.GetNamespace(), t.GetId())
	return term > 0 && r.raft != nil && r.raft.CurrentTerm() > term
}

// overtaken ends a stream whose worker has a later one at another node.
func (d *Dispatcher) overtaken(w *Worker) {
	s := w.seat
	s.superseded = true
	d.drop(s)
}

// follow keeps the dispatcher informed of who is a member and who leads, until the node stops.
func (d *Dispatcher) follow(n *Node) {
	d.mu.Lock()
	d.node = n
	d.mu.Unlock()
	if n.identity.Alone() {
		return
	}
	d.survey()
	go func() {
		for {
			c, stop := n.clock.After(surveyEvery)
			select {
			case <-c:
			case <-d.changed:
			case <-n.stopping:
				stop()
				return
			}
			stop()
			d.survey()
		}
	}()
}

// look has the dispatcher look at once who leads.
func (d *Dispatcher) look() {
	select {
	case d.changed <- struct{}{}:
	default:
	}
}

func (d *Dispatcher) survey() {
	n := d.node
	members, leads := map[string]string{}, map[string]int{}
	for _, m := range n.cluster.Members() {
		if m.ServerId != n.identity.ServerID {
			members[m.ServerId] = m.NodeId
		}
	}
	for _, r := range n.router.Replicas() {
		if r.serving() != nil {
			leads[n.identity.ServerID]++
		} else if k := r.known.Load(); k != nil && k.server != "" {
			leads[string(k.server)]++
		}
	}
	d.mu.Lock()
	defer d.finish()
	if !maps.Equal(leads, d.leads) {
		d.leads = leads
		for _, w := range d.workers {
			w.step(credit.Leads{Link: credit.Home, Leads: d.leadsHere()})
			for _, l := range w.legs {
				w.step(credit.Leads{Link: l.name(), Leads: leads[l.server] > 0})
			}
		}
	}
	if maps.Equal(members, d.members) {
		return
	}
	d.members = members
	for _, w := range d.workers {
		w.follow()
	}
}
