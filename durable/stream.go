package durable

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

const (
	reconnectMin = 50 * time.Millisecond
	reconnectMax = 2 * time.Second
	// greetPatience bounds the way from opening a stream to its Welcome.
	greetPatience = 10 * time.Second
	// maxSilent is how many heartbeats in a row may find no sign of life of the node, be it an answer or
	// anything else. A heartbeat alone may take long: it concerns every partition, and one may have no
	// leader at the moment, which is no reason to leave the others.
	maxSilent = 3
)

// session is one stream. Its end is never an error for a turn: calls that were not answered are made
// again on the next one.
type session struct {
	w      *Worker
	stream perdurev1.Tasks_WorkClient
	cancel context.CancelCauseFunc
	sendMu sync.Mutex
	// drained says that its Hello offered no room because the worker is stopping.
	drained bool
	// hello is the call id of the Hello; since is when its Welcome came, guarded by the worker's lock.
	hello uint64
	since time.Time
	// beats are the heartbeats that are not answered yet, by call id.
	beatsMu sync.Mutex
	beats   map[uint64]heartbeat
	// silent counts the heartbeats sent since the last message came.
	silent atomic.Int32
}

// send sends one message. A failure ends the session, and the next one repeats what matters. It blocks
// only as long as the session lives: a peer that reads nothing answers no heartbeat either.
func (s *session) send(m *perdurev1.WorkRequest) {
	m.Timestamp = s.w.timestamp() // before it waits for others
	s.sendMu.Lock()
	defer s.sendMu.Unlock()
	if err := s.stream.Send(m); err != nil {
		s.cancel(fmt.Errorf("sending: %w", err))
	}
}

// call is a question of a turn that is not answered yet.
type call struct {
	id    uint64
	t     *turn
	build func() *perdurev1.WorkRequest
	mu    sync.Mutex // build draws the age of a request, for one sender at a time
	reply chan answer
}

func (c *call) message() *perdurev1.WorkRequest {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.build()
	m.CallId = c.id
	return m
}

// answer is the response to a call, and the session it came by.
type answer struct {
	*perdurev1.WorkResponse
	via *session
}

func (w *Worker) callID() uint64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lastCall++
	return w.lastCall
}

func (w *Worker) session() *session {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sess
}

// roundTrip asks the cluster on behalf of a turn and waits for the answer, over as many sessions as it
// takes. ok is false when the task was lost meanwhile; then nothing more is sent for it.
func (w *Worker) roundTrip(t *turn, build func() *perdurev1.WorkRequest) (resp answer, ok bool) {
	c := &call{t: t, build: build, reply: make(chan answer, 1)}
	w.mu.Lock()
	if t.isLost() {
		w.mu.Unlock()
		return answer{}, false
	}
	w.lastCall++
	c.id = w.lastCall
	w.calls[c.id] = c
	s := w.sess
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.calls, c.id)
		w.mu.Unlock()
	}()
	if s != nil {
		s.send(c.message())
	}
	select {
	case resp = <-c.reply:
		return resp, true
	case <-t.lost:
		return answer{}, false
	}
}

// serve keeps a session open until ctx ends, or the cluster refuses the worker for good.
func (w *Worker) serve(ctx context.Context) error {
	pause := reconnectMin
	for {
		welcomed, err := w.converse(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the stream ended because the worker stops
		}
		if errors.Is(err, errRedial) {
			continue
		}
		if welcomed {
			pause = reconnectMin
		} else if final(err) {
			select {
			case <-w.ready:
			default:
				return fmt.Errorf("durable: the worker was refused: %w", err)
			}
		}
		w.log.Warn("worker stream ended, connecting again", "err", err, "in", pause)
		w.event(Event{Kind: EventDisconnected, Err: err})
		select {
		case <-w.clock.After(pause):
		case <-ctx.Done():
			return nil
		}
		pause = min(2*pause, reconnectMax)
	}
}

// final reports whether a worker that was refused so will be refused again.
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

// converse is one session from its Hello to its end. welcomed says that it got as far as its Welcome.
func (w *Worker) converse(ctx context.Context) (welcomed bool, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	why := func(err error) error {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
			return cause
		}
		return err
	}
	greeted := make(chan struct{})
	over := w.clock.After(w.welcomePatience())
	go func() {
		select {
		case <-greeted:
		case <-over:
			cancel(errors.New("no Welcome in time"))
		case <-ctx.Done():
		}
	}()
	stream, err := w.c.Work(ctx)
	if err != nil {
		return false, why(err)
	}
	s := &session{w: w, stream: stream, cancel: cancel}
	defer func() {
		w.mu.Lock()
		if w.sess == s {
			w.sess = nil
		}
		w.mu.Unlock()
	}()
	go w.watch(ctx, s, greeted)
	room := w.greet(s)
	for {
		m, err := stream.Recv()
		if err != nil {
			return welcomed, why(err)
		}
		s.silent.Store(0)
		switch k := m.GetKind().(type) {
		case *perdurev1.WorkResponse_Welcome:
			if !welcomed {
				welcomed = true
				w.welcome(s, k.Welcome, room)
				close(greeted)
			}
		case *perdurev1.WorkResponse_Task:
			w.accept(k.Task)
		case *perdurev1.WorkResponse_Heartbeat:
			w.told(k.Heartbeat)
			s.beatAnswered(m.GetCallId(), k.Heartbeat)
			w.answer(s, m)
		case *perdurev1.WorkResponse_Drain:
			w.log.Info("the node is draining")
			w.event(Event{Kind: EventDraining})
		case *perdurev1.WorkResponse_Error:
			if m.GetCallId() == s.hello {
				return false, callErrorOf(k.Error)
			}
			w.answer(s, m)
		default:
			w.answer(s, m)
		}
	}
}

// redial ends the session, if there is one, for another one to begin at once.
func (w *Worker) redial() {
	if s := w.session(); s != nil {
		s.cancel(errRedial)
	}
}

// greet sends the Hello and returns the room it offered.
func (w *Worker) greet(s *session) int {
	hello := &perdurev1.Hello{
		WorkerId: w.id, Namespace: w.c.Namespace(), LeaseMs: client.Millis(w.opts.Lease), ComponentDigest: w.opts.Digest,
	}
	for name := range w.functions {
		hello.Functions = append(hello.Functions, name)
	}
	slices.Sort(hello.Functions)
	w.mu.Lock()
	w.lastCall++
	s.hello = w.lastCall
	for _, t := range w.listedLocked() {
		hello.Held = append(hello.Held, t.key.token())
	}
	room := 0
	if s.drained = w.leaving.Load(); !s.drained {
		room = max(0, w.opts.Concurrency-w.busy)
	}
	w.mu.Unlock()
	hello.Room = uint32(room)
	s.send(&perdurev1.WorkRequest{CallId: s.hello, Kind: &perdurev1.WorkRequest_Hello{Hello: hello}})
	return room
}

// welcome makes s the session of new calls and repeats those that were not answered.
func (w *Worker) welcome(s *session, m *perdurev1.Welcome, room int) {
	w.loseAll(m.GetLost())
	w.mu.Lock()
	w.sess, w.offered, s.since = s, room, w.clock.Now()
	w.lastBeat, w.greetings = 0, 0
	if len(w.held) > 0 {
		defer w.poke() // leases may be near their ends
	}
	switch {
	case s.drained:
		defer w.drainedOnce()
	case w.leaving.Load():
		defer s.cancel(errRedial) // the stop came between its Hello and its Welcome
	}
	var again []*call
	for _, c := range w.calls {
		if !c.t.isLost() {
			again = append(again, c)
		}
	}
	select {
	case <-w.ready:
	default:
		close(w.ready)
	}
	w.mu.Unlock()
	slices.SortFunc(again, func(a, b *call) int { return int(a.id) - int(b.id) })
	go func() { // not here: the stream must be read while it is written
		for _, c := range again {
			s.send(c.message())
		}
	}()
	w.log.Debug("connected", "node", m.GetNodeId(), "repeated", len(again))
	w.event(Event{Kind: EventConnected})
}

// answer hands a response to whoever asked; one that nobody waits for any more is dropped.
func (w *Worker) answer(s *session, m *perdurev1.WorkResponse) {
	w.mu.Lock()
	c := w.calls[m.GetCallId()]
	w.mu.Unlock()
	if c == nil {
		return
	}
	select {
	case c.reply <- answer{m, s}:
	default: // answered before, by an earlier session
	}
}

// welcomePatience is how long the next session may take to its Welcome. A worker that holds tasks gives each node a
// quarter of the lease at first: one that hangs must not take the time in which another one could extend the leases.
func (w *Worker) welcomePatience() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.greetings++
	if len(w.held) == 0 || w.c.Nodes() == 1 || w.greetings > w.c.Nodes() {
		return greetPatience
	}
	return min(greetPatience, w.opts.Lease/4)
}

// watch sends heartbeats, and ends a session that shows no life: nothing at all for as long as a lease.
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
			s.cancel(errors.New("the node does not extend leases"))
			return
		}
		var half <-chan time.Time
		if again > 0 {
			half = w.clock.After(again)
		}
		select {
		case <-w.beat:
			w.sendBeat(s)
			continue
		case <-half:
			continue
		case <-tick:
		case <-ctx.Done():
			return
		}
		if s.silent.Add(1) > maxSilent {
			s.cancel(errors.New("no answer to heartbeats"))
			return
		}
		w.sendBeat(s)
		tick = w.clock.After(w.opts.Lease / 3)
	}
}

// moveOn reports whether another node should be tried: a lease is half over, and a heartbeat by this session has not
// extended it within a quarter of a lease. The rest is for the way to another node. Each node is tried once before a
// session extends all leases for as long as a lease lasts: changing nodes helps nobody where the whole cluster is slow.
// again is when the answer may change if no lease is extended until then; 0 for never.
func (w *Worker) moveOn(s *session) (move bool, again time.Duration) {
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.moves >= w.c.Nodes()-1 {
		return false, 0
	}
	for _, t := range w.held {
		if t.via != s || t.askedAt.IsZero() {
			continue
		}
		wait := w.opts.Lease/4 - elapsed(t.askedAt, now)
		if from, _ := t.lease(); !from.IsZero() {
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

// beatRest is how long a heartbeat that was asked for may take before another one is sent instead.
const beatRest = 200 * time.Millisecond

// askBeat has a heartbeat sent for a turn, unless one that speaks for it was sent just now.
func (w *Worker) askBeat(t *turn) {
	now := w.clock.Now()
	w.mu.Lock()
	wait := w.lastBeat > t.born && elapsed(w.lastBeatAt, now) < beatRest
	w.mu.Unlock()
	if !wait {
		w.poke()
	}
}

func (w *Worker) poke() {
	select {
	case w.beat <- struct{}{}:
	default:
	}
}

// heartbeat is what one heartbeat spoke for, and when.
type heartbeat struct {
	sent  time.Time
	turns []*turn
}

// beatAnswered confirms the leases that a heartbeat has extended: from when it was made, not from now. Those of
// which the node does not know are asked for again before long.
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
	now := w.clock.Now()
	w.mu.Lock()
	for _, t := range b.turns {
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
	go func() {
		select {
		case <-w.clock.After(w.opts.Lease / 12):
			w.poke()
		case <-s.stream.Context().Done():
		}
	}()
}

// Bounds of one heartbeat; more tasks are spoken for by several.
const (
	beatTasks = 1_000
	beatBytes = 256 << 10
)

// sendBeat sends heartbeats for all tasks.
func (w *Worker) sendBeat(s *session) {
	now := w.clock.Now()
	w.mu.Lock()
	turns := w.listedLocked()
	for _, t := range turns {
		if t.via != s || t.askedAt.IsZero() {
			t.via, t.askedAt = s, now
		}
	}
	w.mu.Unlock()
	for first := true; first || len(turns) > 0; first = false {
		beat, n, size := &perdurev1.Heartbeat{}, 0, 0
		for n < len(turns) && n < beatTasks && size < beatBytes {
			beat.Tasks = append(beat.Tasks, turns[n].key.token())
			size += len(turns[n].key.namespace) + len(turns[n].key.id)
			n++
		}
		w.mu.Lock()
		w.lastCall++
		id := w.lastCall
		if w.sess == s {
			w.lastBeat, w.lastBeatAt = id, now
		}
		w.mu.Unlock()
		s.beatsMu.Lock()
		if s.beats == nil {
			s.beats = map[uint64]heartbeat{}
		}
		for old, b := range s.beats {
			if elapsed(b.sent, now) > w.opts.Lease {
				delete(s.beats, old) // its answer would say nothing any more
			}
		}
		s.beats[id] = heartbeat{now, turns[:n:n]}
		s.beatsMu.Unlock()
		turns = turns[n:]
		// Not here: a session that cannot send must still be found silent.
		go s.send(&perdurev1.WorkRequest{CallId: id, Kind: &perdurev1.WorkRequest_Heartbeat{Heartbeat: beat}})
	}
}

// told takes what a heartbeat was answered, or what the node says on its own in the same form.
func (w *Worker) told(reply *perdurev1.HeartbeatReply) {
	w.loseAll(reply.GetLost())
	for _, token := range reply.GetCancelling() {
		if t := w.turnOf(token); t != nil {
			t.askCancel()
		}
	}
}
