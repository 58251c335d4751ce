package workers

import (
	"context"
	"maps"
	"time"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	"perdure/internal/credit"
)

// link is a worker's remote session at another node, at the worker's own node: it takes a part of the
// worker's capacity there, and brings that node's tasks here. The dispatcher's lock guards its fields.
type link struct {
	w      *Worker
	server string
	ctx    context.Context // ends when the server is no member any more, or the worker's stream is over
	cancel context.CancelFunc
	wake   chan struct{}
	// up: the stream is open, and the ledger has a link for it. give and ask are the credit to grant and to
	// revoke that is not sent yet.
	up        bool
	give, ask int
	// notified is when the other node last got a notice that the worker was heard from; notify: it has to get
	// another one.
	notified time.Time
	notify   bool
}

// name returns the link's name in the ledger; nil is the session at this node.
func (l *link) name() credit.Link {
	if l == nil {
		return credit.Home
	}
	return credit.Link(l.server)
}

// Bounds of a link.
const (
	linkPauseMin = 20 * time.Millisecond
	linkPauseMax = time.Second
	linkRest     = 50 * time.Millisecond
	// linkFarewell bounds the wait for what is still on its way when a stream ends.
	linkFarewell = time.Second
	// SurveyEvery is how often a node surveys its cluster, if no leader changes.
	SurveyEvery = time.Second
)

// noticesPerLease is how often in a lease another node is notified, at most, that a worker was heard from.
const noticesPerLease = 16

// hear notifies the other node that the worker was heard from.
func (l *link) hear(now time.Time) {
	if l.up && now.Sub(l.notified) >= time.Duration(l.w.LeaseMS)*time.Millisecond/noticesPerLease {
		l.notified, l.notify = now, true
		l.signal()
	}
}

func (l *link) signal() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// follow gives a worker a link to every other member.
func (w *Worker) follow() {
	d := w.d
	links := w.links[:0]
	has := map[string]bool{}
	for _, l := range w.links {
		if !d.known.Members[l.server] {
			l.cancel()
			continue
		}
		has[l.server] = true
		links = append(links, l)
	}
	w.links = links
	for server := range d.known.Members {
		if !has[server] && !w.over {
			l := &link{w: w, server: server, wake: make(chan struct{}, 1)}
			l.ctx, l.cancel = context.WithCancel(w.ctx)
			w.links = append(w.links, l)
			d.spawn(l.run)
		}
	}
}

// run keeps the link's stream open.
func (l *link) run() {
	defer l.cancel()
	pause := linkPauseMin
	for l.ctx.Err() == nil {
		if l.attach() {
			pause = linkPauseMin
		}
		c, stop := l.w.d.env.Clock.After(pause)
		select {
		case <-c:
		case <-l.ctx.Done():
		}
		stop()
		pause = min(2*pause, linkPauseMax)
	}
}

// attach opens the stream and follows it to its end. It reports whether the other node has sent anything.
func (l *link) attach() (heard bool) {
	d := l.w.d
	client, err := d.env.Peer(l.server)
	if err != nil {
		return false
	}
	ctx, cancel := context.WithCancel(d.ctx)
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
		// The other node has read everything and sends its last messages, or linkFarewell is over.
		over, stop := d.env.Clock.After(linkFarewell)
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

// awaitSpace blocks while the queue of the worker, or of the node, holds as many bytes of other nodes' tasks
// as it may, or until ctx ends. The stream is not read meanwhile, so its flow control has the leader keep the
// next tasks as tokens.
func (l *link) awaitSpace(ctx context.Context) {
	d := l.w.d
	for {
		d.mu.Lock()
		may, freed := l.w.mayTake(), d.spaceFreed
		d.mu.Unlock()
		if may {
			return
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return
		}
	}
}

// opened adds the link to the ledger and returns the first message: the worker, its grant there, and when the
// worker was heard from, which may be long ago. It returns nil when the link is over.
func (l *link) opened() *commandv1.AttachWorker {
	w, d := l.w, l.w.d
	d.mu.Lock()
	defer d.finish()
	if l.ctx.Err() != nil {
		return nil
	}
	l.up, l.notified, l.notify = true, time.Time{}, false
	w.step(credit.LinkOpened{Link: l.name(), Leads: d.known.Leads[l.server] > 0, Of: d.known.leaders()})
	granted := l.give
	l.give = 0
	return &commandv1.AttachWorker{Worker: w.ID, Namespace: w.Namespace, Functions: w.Functions, Digests: w.Digests, LeaseMs: w.LeaseMS, Credit: uint32(granted),
		SinceMs: w.since, Timestamp: w.session.timestamp, UnheardMs: d.now().Sub(w.session.heard).Milliseconds()}
}

// closed removes the broken link from the ledger.
func (l *link) closed() {
	d := l.w.d
	d.mu.Lock()
	defer d.finish()
	l.up, l.give, l.ask = false, 0, 0
	l.w.step(credit.LinkLost{Link: l.name()})
}

// send sends the other node what the ledger grants and revokes, until the link is over or its stream broken.
func (l *link) send(ctx context.Context, stream commandv1.Peers_AttachClient) {
	d := l.w.d
	for {
		d.mu.Lock()
		give, ask, notify := l.give, l.ask, l.notify
		l.give, l.ask, l.notify = 0, 0, false
		timestamp := l.w.session.timestamp
		d.mu.Unlock()
		var ups []*commandv1.AttachUp
		if notify { // first: what is granted is used at once
			ups = append(ups, &commandv1.AttachUp{Timestamp: timestamp})
		}
		if give > 0 {
			ups = append(ups, &commandv1.AttachUp{Kind: &commandv1.AttachUp_Credit{Credit: uint32(give)}})
		}
		if ask > 0 {
			ups = append(ups, &commandv1.AttachUp{Kind: &commandv1.AttachUp_Revoke{Revoke: uint32(ask)}})
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

// received handles a message of the other node.
func (l *link) received(down *commandv1.AttachDown) {
	w, d := l.w, l.w.d
	d.mu.Lock()
	defer d.finish()
	switch k := down.Kind.(type) {
	case *commandv1.AttachDown_Task:
		token := k.Task.GetTask().GetToken()
		switch stale := k.Task.Term > 0 && d.env.Term(token.GetNamespace(), token.GetId()) > k.Task.Term; {
		case !stale:
			w.arrive(Delivery{Token: token, Task: k.Task.GetTask(), again: k.Task.Resent, link: l, term: k.Task.Term, size: int64(proto.Size(down))})
		case !k.Task.Resent:
			// The task waited while another leader was elected, which sends it again if a worker still holds
			// it.
			w.step(credit.Dropped{Link: l.name()})
		}
	case *commandv1.AttachDown_Cancelling:
		w.arrive(Delivery{Token: k.Cancelling, Cancelling: true})
	case *commandv1.AttachDown_Returned:
		w.step(credit.Returned{Link: l.name(), N: int(k.Returned)})
	case *commandv1.AttachDown_Wanted:
		w.step(credit.Wants{Link: l.name(), Wants: k.Wanted.GetWanted()})
	case *commandv1.AttachDown_Superseded:
		d.supersede(w)
	}
}

// supersede ends a stream whose worker has a later one at another node.
func (d *Dispatcher) supersede(w *Worker) {
	s := w.session
	s.superseded = true
	d.drop(s)
}

// Follow has the dispatcher survey the cluster, now and until the node stops. Workers get links to the other
// members. It does not block.
func (d *Dispatcher) Follow() {
	d.survey()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.spawn(func() {
		for {
			c, stop := d.env.Clock.After(SurveyEvery)
			select {
			case <-c:
			case <-d.leadersChanged:
			case <-d.ctx.Done():
				stop()
				return
			}
			stop()
			d.survey()
		}
	})
}

// LeadersChanged has the dispatcher survey the cluster at once. It does not block.
func (d *Dispatcher) LeadersChanged() {
	select {
	case d.leadersChanged <- struct{}{}:
	default:
	}
}

// leadsHere reports whether this node leads partitions.
func (d *Dispatcher) leadsHere() bool { return d.env.Survey == nil || d.known.Here > 0 }

func (d *Dispatcher) survey() {
	now := d.env.Survey()
	d.mu.Lock()
	defer d.finish()
	former := d.known
	if d.known = now; proto.Equal(now.Nodes, former.Nodes) {
		d.known.Nodes = former.Nodes // compared by pointer
	} else {
		for _, w := range d.workers {
			w.signal()
		}
	}
	if now.Here != former.Here || !maps.Equal(now.Leads, former.Leads) {
		for _, w := range d.workers {
			w.step(credit.Leads{Link: credit.Home, Leads: d.leadsHere()})
			for _, l := range w.links {
				w.step(credit.Leads{Link: l.name(), Leads: now.Leads[l.server] > 0})
			}
		}
	}
	if !maps.Equal(now.Members, former.Members) {
		for _, w := range d.workers {
			if !w.Splits {
				w.follow()
			}
		}
	}
}
