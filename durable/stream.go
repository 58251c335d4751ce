package durable

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/internal/credit"
)

const (
	reconnectMin = 50 * time.Millisecond
	reconnectMax = 2 * time.Second
	// helloTimeout bounds the time from opening a stream to its Welcome.
	helloTimeout = 10 * time.Second
	// maxUnansweredBeats bounds the heartbeats in a row during which the node sends no message at all. One answer may
	// take long: a heartbeat concerns every partition, and one of them may have no leader at the moment.
	maxUnansweredBeats = 3
)

// session is one stream. An activation never sees its end: another session repeats the unanswered calls.
type session struct {
	w *Worker
	// node is at the other end; nil if that splits the worker's capacity over all nodes. link is its name in
	// the ledger.
	node   *node
	link   credit.Link
	stream perdurev1.Tasks_WorkClient
	cancel context.CancelCauseFunc
	out    outgoing
	// drained: its Hello had capacity 0 because the worker is stopping.
	drained bool
	// hello is the call id of the Hello; since is when its Welcome came, guarded by the worker's lock.
	hello uint64
	since time.Time
	// beats are the heartbeats that are not answered yet, by call id.
	beatsMu sync.Mutex
	beats   map[uint64]heartbeat
	// The worker's lock guards these: the credit to be granted and revoked, the node's list of the cluster,
	// and the last heartbeat, as its call id (0 for none) and time. returned is credit that goes out with the next batch.
	toGrant, toRevoke int
	returned          int
	view              *perdurev1.NodeList
	lastBeat          uint64
	lastBeatAt        time.Time
	// creditWake and beat ask for messages at once.
	creditWake, beat chan struct{}
	// silent counts the heartbeats sent since the last message came.
	silent atomic.Int32
}

// session is the first live session; nil if there is none.
func (w *Worker) session() *session {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.routeLocked(nil)
}

// routeLocked is the session for a hold's messages: the one its task came by, or else any.
func (w *Worker) routeLocked(t *hold) *session {
	if t != nil && t.home != nil && slices.Contains(w.sessions, t.home) {
		return t.home
	}
	if len(w.sessions) == 0 {
		return nil
	}
	if t != nil {
		t.home = w.sessions[0]
	}
	return w.sessions[0]
}

// serve keeps sessions open until ctx ends, or the cluster refuses the worker for good: one with each node if
// it reaches every node that leads partitions, otherwise one with any node, which splits the worker's
// capacity over the others.
func (w *Worker) serve(ctx context.Context) error {
	defer w.closeConns()
	pause := rediscoverMin
	nodes, view := w.discover(ctx)
	for {
		if nodes != nil {
			began := w.clock.Now()
			if err := w.serveEach(ctx, nodes, view); !errors.Is(err, errUnreached) {
				return err
			}
			if elapsed(began, w.clock.Now()) > rediscoverMax {
				pause = rediscoverMin
			}
		}
		found := make(chan struct{})
		lone, split := context.WithCancelCause(ctx)
		w.spawn(func(context.Context) {
			defer close(found)
			nodes, view = w.rediscover(lone, &pause)
			if nodes != nil {
				split(errSplit)
			}
		})
		err := w.keep(lone, nil)
		split(nil)
		<-found
		if ctx.Err() != nil || err != nil {
			return err
		}
	}
}

// rediscover blocks until the worker reaches every node that leads partitions, or ctx ends.
func (w *Worker) rediscover(ctx context.Context, pause *time.Duration) (map[string]*node, *perdurev1.NodeList) {
	for {
		select {
		case <-w.clock.After(*pause):
		case <-ctx.Done():
			return nil, nil
		}
		*pause = min(2**pause, rediscoverMax)
		if nodes, view := w.discover(ctx); nodes != nil && !w.leaving.Load() {
			return nodes, view
		}
	}
}

func (w *Worker) closeConns() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, conn := range w.conns {
		_ = conn.Close() // nothing is lost with it
	}
	clear(w.conns)
}

// keep keeps a session with a node open, or with any node if that is nil, until ctx ends. The error is that the cluster
// refuses the worker for good.
func (w *Worker) keep(ctx context.Context, n *node) error {
	pause, failures := reconnectMin, 0
	for {
		welcomed, err := w.converse(ctx, n)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the stream ended because the worker stops, or the node is no member any more
		}
		if errors.Is(err, errRedial) {
			continue
		}
		if failures++; welcomed {
			pause, failures = reconnectMin, 0
		} else if final(err) {
			select {
			case <-w.ready:
			default:
				return fmt.Errorf("durable: the worker was refused: %w", err)
			}
		}
		if n != nil && !welcomed {
			w.drainedNode(n.id)
		}
		if n == nil || failures <= 1 {
			w.log.Warn("worker stream ended", "event", "worker_stream_ended", "error", err, "reconnect_in", pause)
			w.event(Event{Kind: EventDisconnected, Err: err})
		}
		select {
		case <-w.clock.After(pause):
		case <-ctx.Done():
			return nil
		}
		pause = min(2*pause, reconnectMax)
	}
}

// final reports whether the cluster will refuse the worker again after this error.
func final(err error) bool {
	if e, ok := api.FromStatus(err); ok {
		switch api.Code(e.Reason) {
		case codes.InvalidArgument, codes.NotFound, codes.FailedPrecondition, codes.Unauthenticated, codes.PermissionDenied:
			return true
		}
		return false
	}
	switch status.Code(err) {
	case codes.InvalidArgument, codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied, codes.FailedPrecondition:
		return true
	}
	return false
}

// converse runs one session from its Hello to its end, with a node or with any if that is nil. welcomed
// reports that its Welcome came.
func (w *Worker) converse(ctx context.Context, n *node) (welcomed bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var own sync.WaitGroup // goroutines of this session
	defer own.Wait()
	defer cancel(nil)
	why := func(err error) error {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
			return cause
		}
		return err
	}
	greeted := make(chan struct{})
	over := w.clock.After(w.welcomeTimeout())
	own.Go(func() {
		select {
		case <-greeted:
		case <-over:
			cancel(fmt.Errorf("no Welcome within %s", w.welcomeTimeout()))
		case <-ctx.Done():
		}
	})
	stream, err := w.open(ctx, n)
	if err != nil {
		return false, why(err)
	}
	s := &session{w: w, node: n, link: "any", stream: stream, cancel: cancel, creditWake: make(chan struct{}, 1), beat: make(chan struct{}, 1),
		out: outgoing{wake: make(chan struct{}, 1)}}
	if n != nil {
		s.link = credit.Link(n.id)
	}
	defer w.sessionEnded(s)
	own.Go(func() { w.watch(ctx, s, greeted) })
	capacity := w.greet(s)
	take := func(m *perdurev1.WorkResponse) error {
		switch k := m.GetKind().(type) {
		case *perdurev1.WorkResponse_Welcome:
			if n != nil && k.Welcome.GetNodeId() != n.id {
				return fmt.Errorf("durable: node %q answers as %q", n.id, k.Welcome.GetNodeId())
			}
			if !welcomed {
				welcomed = true
				w.welcome(s, k.Welcome, capacity)
				close(greeted)
				if k.Welcome.GetBatches() {
					s.out.begin()
					own.Go(func() { s.write(ctx) })
				}
				own.Go(func() { s.sendCredit(ctx) })
			}
		case *perdurev1.WorkResponse_Task:
			w.accept(s, k.Task)
		case *perdurev1.WorkResponse_SignalArrived:
			w.signalArrived(k.SignalArrived)
		case *perdurev1.WorkResponse_CreditReturned:
			w.step(credit.Returned{Link: s.link, N: int(k.CreditReturned.GetTasks())})
		case *perdurev1.WorkResponse_CreditWanted:
			w.step(credit.Wants{Link: s.link, Wants: k.CreditWanted.GetWanted()})
		case *perdurev1.WorkResponse_Nodes:
			w.learned(s, k.Nodes)
		case *perdurev1.WorkResponse_Heartbeat:
			w.heartbeatReply(k.Heartbeat)
			s.beatAnswered(m.GetCallId(), k.Heartbeat)
			w.answer(s, m)
		case *perdurev1.WorkResponse_Drain:
			w.log.Info("node is draining", "event", "node_draining")
			w.event(Event{Kind: EventDraining})
		case *perdurev1.WorkResponse_Error:
			if m.GetCallId() == s.hello {
				welcomed = false
				return callErrorOf(k.Error)
			}
			w.answer(s, m)
		default:
			w.answer(s, m)
		}
		return nil
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return welcomed, why(err)
		}
		s.silent.Store(0)
		if len(m.GetBatch()) == 0 {
			err = take(m)
		}
		for _, part := range m.GetBatch() {
			if err == nil {
				err = take(part)
			}
		}
		if err != nil {
			return welcomed, err
		}
	}
}

// open opens a stream to a node, or to any if that is nil.
func (w *Worker) open(ctx context.Context, n *node) (perdurev1.Tasks_WorkClient, error) {
	if n == nil {
		return w.c.Work(ctx)
	}
	if err := w.locate(ctx, n); err != nil {
		return nil, err
	}
	return n.conn.Work(ctx)
}

func (w *Worker) step(e credit.Event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stepLocked(e)
}

// sessionEnded takes a session's credit back, and has other sessions send the messages of its tasks.
func (w *Worker) sessionEnded(s *session) {
	w.mu.Lock()
	k := slices.Index(w.sessions, s)
	if k < 0 {
		w.mu.Unlock()
		return
	}
	w.sessions = slices.Delete(w.sessions, k, k+1)
	w.stepLocked(credit.LinkLost{Link: s.link})
	for id, c := range w.calls {
		if c.via == s && c.t.isLost() && c.promise > 0 { // its credit ended with the session
			w.promised -= c.promise
			delete(w.calls, id)
		}
	}
	w.announceLocked()
	next := w.routeLocked(nil)
	var again []*call
	if next != nil {
		again = w.unsentLocked(next)
		if len(w.held) > 0 {
			next.beatNow()
		}
	}
	w.mu.Unlock()
	if next != nil {
		next.repeat(again)
	}
}

// unsentLocked returns the unanswered calls that no live session has sent, which s sends now, in the order of
// their ids.
func (w *Worker) unsentLocked(s *session) []*call {
	var again []*call
	for _, c := range w.calls {
		if !c.t.isLost() && !slices.Contains(w.sessions, c.via) {
			c.via, c.t.home = s, s
			again = append(again, c)
		}
	}
	slices.SortFunc(again, func(a, b *call) int { return int(a.id) - int(b.id) })
	return again
}

// repeat sends calls, in a goroutine: the stream must be read while it is written.
func (s *session) repeat(again []*call) {
	if len(again) > 0 {
		s.w.spawn(func(context.Context) {
			for _, c := range again {
				s.send(c.message())
			}
		})
	}
}

// redial ends all sessions; others begin at once.
func (w *Worker) redial() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.sessions {
		s.cancel(errRedial)
	}
}

// greet sends the Hello and returns the capacity that it announced.
func (w *Worker) greet(s *session) int {
	hello := &perdurev1.Hello{
		WorkerId: w.id, Namespace: w.c.Namespace(), LeaseMs: client.Millis(w.opts.Lease), ComponentDigest: w.opts.Digest, CompatibleDigests: w.opts.CompatibleWith, Cleanups: true,
	}
	for name := range w.functions {
		if entity, ok := strings.CutPrefix(name, "@"); ok {
			hello.Entities = append(hello.Entities, entity)
			continue
		}
		hello.Functions = append(hello.Functions, name)
	}
	slices.Sort(hello.Functions)
	slices.Sort(hello.Entities)
	w.mu.Lock()
	w.lastCall++
	s.hello = w.lastCall
	for _, t := range w.listedLocked() {
		hello.Held = append(hello.Held, t.key.token())
	}
	capacity := 0
	if s.drained = w.leaving.Load(); !s.drained {
		capacity = max(0, w.opts.Concurrency-w.busy-w.promised)
	}
	if s.node != nil {
		hello.SplitsCredit, capacity = true, 0 // the ledger grants after the Welcome
	}
	hello.Batches, hello.Signals, hello.Keeps = true, true, uint32(min(max(w.sticky.functions, 0), math.MaxUint32))
	w.mu.Unlock()
	hello.Capacity = uint32(capacity)
	s.send(&perdurev1.WorkRequest{CallId: s.hello, Kind: &perdurev1.WorkRequest_Hello{Hello: hello}})
	return capacity
}

// welcome makes s a live session and repeats the calls that no live session has sent. capacity is the credit
// of its Hello.
func (w *Worker) welcome(s *session, m *perdurev1.Welcome, capacity int) {
	w.loseUnasked(m.GetLost())
	w.mu.Lock()
	w.sessions, s.since = append(w.sessions, s), w.clock.Now()
	w.hellos = 0
	if len(w.held) > 0 {
		defer s.beatNow() // leases may be about to expire
	}
	switch {
	case s.drained || w.leaving.Load() && s.node != nil: // no credit is out there
		w.drainedLinkLocked(s.link)
	case w.leaving.Load():
		defer s.cancel(errRedial) // the stop began between its Hello and its Welcome
	default:
		opened := credit.LinkOpened{Link: s.link, Leads: true, Of: 1}
		if s.node != nil {
			opened.Leads, opened.Of = w.leadsLocked(s.node.id), w.leadersLocked()
		}
		w.stepLocked(opened)
		w.announceLocked()
		s.toGrant = max(s.toGrant-capacity, 0)
	}
	again := w.unsentLocked(s)
	select {
	case <-w.ready:
	default:
		close(w.ready)
	}
	w.mu.Unlock()
	s.repeat(again)
	w.log.Debug("connected", "event", "worker_connected", "node", m.GetNodeId(), "repeated", len(again))
	w.event(Event{Kind: EventConnected})
}

// drainedNode counts a node without a session as drained: the worker cannot take its credit back.
func (w *Worker) drainedNode(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.leaving.Load() {
		return
	}
	if delete(w.undrained, credit.Link(id)); len(w.undrained) == 0 && len(w.sessions) > 0 {
		w.drainedOnce()
	}
}

// drainedLinkLocked records that a session without credit has replaced one that the stop ended.
func (w *Worker) drainedLinkLocked(l credit.Link) {
	if delete(w.undrained, l); len(w.undrained) == 0 {
		w.drainedOnce()
	}
}

// welcomeTimeout bounds the wait for the next session's Welcome. A worker that holds tasks first gives each node a
// quarter of the lease, so that another node can still extend the leases if one hangs.
func (w *Worker) welcomeTimeout() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hellos++
	if len(w.held) == 0 || len(w.sessions) > 0 || w.c.Nodes() == 1 || w.hellos > w.c.Nodes() {
		return helloTimeout
	}
	return min(helloTimeout, w.opts.Lease/4)
}

// watch sends heartbeats, and ends a session whose node has sent nothing for the length of a lease.
func (w *Worker) watch(ctx context.Context, s *session, greeted <-chan struct{}) {
	select {
	case <-greeted:
	case <-ctx.Done():
		return
	}
	tick := w.clock.After(w.opts.Lease / 3)
	for {
		move, again := w.moveOn(s)
		if move {
			s.cancel(errors.New("node extends no leases"))
			return
		}
		var half <-chan time.Time
		if again > 0 {
			half = w.clock.After(again)
		}
		select {
		case <-s.beat:
			w.sendBeat(s)
			continue
		case <-half:
			continue
		case <-tick:
		case <-ctx.Done():
			return
		}
		if s.silent.Add(1) > maxUnansweredBeats {
			s.cancel(errors.New("no answer to heartbeats"))
			return
		}
		w.sendBeat(s)
		tick = w.clock.After(w.opts.Lease / 3)
	}
}

// moveOn reports whether to try another node: half of a lease has passed, and a heartbeat of this session has not
// extended it within a quarter. The remaining time is for the other node. The worker tries each node once until a
// session extends all leases for the length of a lease: in a slow cluster, changing nodes does not help. again is when
// the answer may change if no lease is extended until then; 0 for never.
func (w *Worker) moveOn(s *session) (move bool, again time.Duration) {
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.moves >= max(w.c.Nodes(), len(w.nodes))-1 {
		return false, 0
	}
	for _, t := range w.held {
		if t.via != s || t.askedAt.IsZero() {
			continue
		}
		wait := w.opts.Lease/4 - elapsed(t.askedAt, now)
		if from := t.lease(); !from.IsZero() {
			wait = max(wait, w.opts.Lease/2-elapsed(from, now))
		}
		if wait <= 0 {
			w.moves++
			return true, 0
		}
		if again == 0 || wait < again {
			again = wait
		}
	}
	return false, again
}

// beatRest is the wait for a requested heartbeat's answer before another one is sent.
const beatRest = 200 * time.Millisecond

// askBeat requests a heartbeat that includes the hold, unless one was sent within beatRest.
func (w *Worker) askBeat(t *hold) {
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if s := w.routeLocked(t); s != nil && (s.lastBeat <= t.born || elapsed(s.lastBeatAt, now) >= beatRest) {
		s.beatNow()
	}
}

func (s *session) beatNow() {
	select {
	case s.beat <- struct{}{}:
	default:
	}
}

// heartbeat is a sent heartbeat: its time, its holds, and what it tells of their steps.
type heartbeat struct {
	sent    time.Time
	holds   []*hold
	reports []sentReport
}

// beatAnswered confirms the leases that a heartbeat has extended, from when it was made. If the reply names unknown
// leases, another heartbeat follows after a twelfth of the lease.
func (s *session) beatAnswered(callID uint64, reply *perdurev1.HeartbeatReply) {
	w := s.w
	s.beatsMu.Lock()
	b, ok := s.beats[callID]
	delete(s.beats, callID)
	s.beatsMu.Unlock()
	if !ok {
		return
	}
	unknown := map[tokenKey]bool{}
	for _, t := range reply.GetUnknown() {
		unknown[keyOf(t)] = true
	}
	for _, r := range b.reports {
		if !unknown[r.t.key] && !r.t.isLost() {
			r.stored()
		}
	}
	now := w.clock.Now()
	w.mu.Lock()
	for _, t := range b.holds {
		if !unknown[t.key] && !t.isLost() {
			t.confirm(b.sent)
			t.askedAt = time.Time{}
		}
	}
	if len(unknown) == 0 && elapsed(s.since, now) >= w.opts.Lease {
		w.moves = 0
	}
	w.mu.Unlock()
	if len(unknown) == 0 {
		return
	}
	w.spawn(func(context.Context) {
		select {
		case <-w.clock.After(w.opts.Lease / 12):
			s.beatNow()
		case <-s.stream.Context().Done():
		}
	})
}

// Bounds of one heartbeat; more tasks take several.
const (
	beatTasks = 1_000
	beatBytes = 256 << 10
)

// sendBeat sends heartbeats for all tasks whose messages the session sends.
func (w *Worker) sendBeat(s *session) {
	now := w.clock.Now()
	w.mu.Lock()
	holds := slices.DeleteFunc(w.listedLocked(), func(t *hold) bool { return w.routeLocked(t) != s })
	for _, t := range holds {
		if t.via != s || t.askedAt.IsZero() {
			t.via, t.askedAt = s, now
		}
	}
	w.mu.Unlock()
	reports := reportsOf(holds)
	for first := true; first || len(holds) > 0; first = false {
		beat, n, size, details := &perdurev1.Heartbeat{}, 0, 0, 0
		var sent []sentReport
		for n < len(holds) && n < beatTasks && size < beatBytes {
			t := holds[n]
			beat.Tasks = append(beat.Tasks, t.key.token())
			size += len(t.key.namespace) + len(t.key.id)
			for left := reports[t]; len(left) > 0 && len(sent) < beatSteps && details < beatDetails; left = reports[t] {
				details += left[0].size()
				beat.Steps, sent, reports[t] = append(beat.Steps, left[0].step), append(sent, left[0]), left[1:]
			}
			if len(reports[t]) > 0 {
				break // the next message has the task again
			}
			n++
		}
		w.mu.Lock()
		w.lastCall++
		id := w.lastCall
		s.lastBeat, s.lastBeatAt = id, now
		w.mu.Unlock()
		s.beatsMu.Lock()
		if s.beats == nil {
			s.beats = map[uint64]heartbeat{}
		}
		for old, b := range s.beats {
			if elapsed(b.sent, now) > w.opts.Lease {
				delete(s.beats, old) // its answer would confirm an expired lease
			}
		}
		s.beats[id] = heartbeat{now, holds[:n:n], sent}
		s.beatsMu.Unlock()
		holds = holds[n:]
		// In a goroutine, because watch must find a session silent that cannot send.
		w.spawn(func(context.Context) {
			s.send(&perdurev1.WorkRequest{CallId: id, Kind: &perdurev1.WorkRequest_Heartbeat{Heartbeat: beat}})
		})
	}
}

// heartbeatReply applies the answer to a heartbeat, or a message of the same form that the node sends by
// itself.
func (w *Worker) heartbeatReply(reply *perdurev1.HeartbeatReply) {
	w.loseUnasked(reply.GetLost())
	for _, token := range reply.GetCancelling() {
		if t := w.holdOf(token); t != nil {
			t.askCancel()
		}
	}
}
