package durable

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
)

// WorkerOptions configures a Worker. The zero value is good.
type WorkerOptions struct {
	// Name begins the worker's id, which people see (a random part follows); default "worker".
	Name string
	// Concurrency is how many functions run at once; default 64. One that waits (for a child, a timer, a
	// signal) does not count.
	Concurrency int
	// Lease is how long the cluster waits for a sign of life before it gives the tasks to another worker:
	// 1 s to 10 min, default 10 s. Signs of life are sent every third of it.
	Lease time.Duration
	// StopGrace is how long steps that are running may go on once Run's context has ended; then their
	// contexts end. Default 10 s.
	StopGrace time.Duration
	// Digest names the version of the code, for people.
	Digest string
	// Codec is for functions that have none of their own; default JSON. Whoever starts those functions
	// must use the same one, so a codec is better given to the function.
	Codec Codec
	// Logger hears of problems and reconnects; default the client's.
	Logger *slog.Logger
	// OnEvent, if set, hears of everything that happens to the worker and its tasks. It is called from
	// many goroutines and must not block.
	OnEvent func(Event)
	// Clock and Rand are the client's by default. Rand must be safe for concurrent use.
	Clock client.Clock
	Rand  io.Reader
}

// EventKind says what an Event is about.
type EventKind string

// The kinds of events.
const (
	EventConnected    EventKind = "connected"    // a stream is open, and the node has welcomed the worker
	EventDisconnected EventKind = "disconnected" // the stream broke; Err says why
	EventDraining     EventKind = "draining"     // the node announced that it stops
	EventTask         EventKind = "task"         // a task arrived, and its lease holds
	EventTurnOver     EventKind = "turn over"    // a task left: it waits, ended, was given back or lost
	EventLost         EventKind = "lost"         // a task is no longer this worker's
	EventProblem      EventKind = "problem"      // a task is given back with Err
	EventAttempt      EventKind = "attempt"      // a step failed with Err and will be tried again
)

// Event is something that happened. ID and Function are empty when it concerns no execution.
type Event struct {
	Kind         EventKind
	ID, Function string
	Err          error
}

// Worker runs registered functions for a cluster. Make it with NewWorker, Register functions, Run it once.
type Worker struct {
	c         *client.Client
	opts      WorkerOptions
	log       *slog.Logger
	clock     client.Clock
	id        string
	functions map[string]Registration
	ready     chan struct{}
	// leaving is set when the worker begins to stop: it offers no room any more. stopping is closed once the
	// cluster knows that, or cannot be told: turns end from then on.
	leaving  atomic.Bool
	stopping chan struct{}
	// drained is closed once a session has begun that offers no room, because the worker is stopping.
	drained     chan struct{}
	drainedOnce func()
	base        context.Context // of all functions: the values of Run's context, not its end
	slots       chan struct{}   // one per function that runs

	mu      sync.Mutex
	started bool
	// held are the tasks that this worker believes are its own; turns counts the goroutines, and idle is
	// told when there are none.
	held  map[tokenKey]*turn
	turns int
	idle  chan struct{}
	// busy is how many tasks count against the room; offered is the room the current session knows of.
	// Together they are Concurrency, unless the server sent more than was offered.
	busy, offered int
	sess          *session // nil while there is none
	calls         map[uint64]*call
	lastCall      uint64
	// problems counts how often in a row an execution was given back with a problem.
	problems map[string]int
	// timestamps number this worker's messages, ended are the tokens that it never begins again.
	timestamps *timestamps
	ended      *ended
	// lastBeat is the call id of the last heartbeat by the present session, and when it was made; 0 for none.
	lastBeat   uint64
	lastBeatAt time.Time
	// beat has a heartbeat sent at once.
	beat chan struct{}
	// moves counts the sessions that were ended because their nodes extended no lease, since one extended all leases
	// for as long as a lease lasts.
	moves int
	// greetings counts the sessions that were begun since the last Welcome.
	greetings int
}

// tokenKey is a TaskToken as a map key.
type tokenKey struct {
	namespace, id        string
	incarnation, version uint64
}

func keyOf(t *perdurev1.TaskToken) tokenKey {
	return tokenKey{t.GetNamespace(), t.GetId(), t.GetIncarnation(), t.GetVersion()}
}

func (k tokenKey) token() *perdurev1.TaskToken {
	return &perdurev1.TaskToken{Namespace: k.namespace, Id: k.id, Incarnation: k.incarnation, Version: k.version}
}

// maxConcurrency is the most room a node lets a worker have.
const maxConcurrency = 100_000

// NewWorker makes a worker that talks through c, in c's namespace.
func NewWorker(c *client.Client, opts WorkerOptions) *Worker {
	if opts.Name == "" {
		opts.Name = "worker"
	}
	if opts.Concurrency <= 0 {
		opts.Concurrency = 64
	}
	if opts.Lease <= 0 {
		opts.Lease = 10 * time.Second
	}
	opts.Concurrency = min(opts.Concurrency, maxConcurrency)
	opts.Lease = min(max(opts.Lease, time.Second), 10*time.Minute)
	if opts.StopGrace <= 0 {
		opts.StopGrace = 10 * time.Second
	}
	if opts.Codec == nil {
		opts.Codec = JSON{}
	}
	if opts.Logger == nil {
		opts.Logger = c.Logger()
	}
	if opts.Clock == nil {
		opts.Clock = c.Clock()
	}
	if opts.Rand == nil {
		opts.Rand = c.Rand()
	}
	w := &Worker{
		c: c, opts: opts, clock: opts.Clock,
		functions:  map[string]Registration{},
		ready:      make(chan struct{}),
		stopping:   make(chan struct{}),
		drained:    make(chan struct{}),
		slots:      make(chan struct{}, opts.Concurrency),
		held:       map[tokenKey]*turn{},
		idle:       make(chan struct{}, 1),
		calls:      map[uint64]*call{},
		problems:   map[string]int{},
		timestamps: newTimestamps(opts.Lease),
		ended:      newEnded(opts.Lease),
		beat:       make(chan struct{}, 1),
	}
	w.drainedOnce = sync.OnceFunc(func() { close(w.drained) })
	w.id = opts.Name + "-" + hex.EncodeToString(w.random(6))
	w.log = opts.Logger.With("worker", w.id)
	return w
}

// random are n random bytes.
func (w *Worker) random(n int) []byte {
	b := make([]byte, n)
	if _, err := io.ReadFull(w.opts.Rand, b); err != nil {
		panic("durable: no randomness: " + err.Error())
	}
	return b
}

// ID is the worker's id: unique per Worker, the same over its reconnects.
func (w *Worker) ID() string { return w.id }

// Register adds functions to those this worker runs. It panics when a name is taken, or after Run.
func (w *Worker) Register(fns ...Registration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.started {
		panic("durable: Register after Run")
	}
	for _, f := range fns {
		if _, taken := w.functions[f.Name()]; taken {
			panic(fmt.Sprintf("durable: function %q is registered twice", f.Name()))
		}
		w.functions[f.Name()] = f
	}
}

// Ready is closed once the cluster has welcomed the worker for the first time: its functions are known.
func (w *Worker) Ready() <-chan struct{} { return w.ready }

// Run serves until ctx ends, and then gives back what it holds: functions stop at their next operation,
// steps that run may finish within StopGrace. It reconnects by itself, for ever. It returns nil after a
// graceful stop, and an error when the cluster refuses the worker for good. Run may be called once.
func (w *Worker) Run(ctx context.Context) error {
	w.mu.Lock()
	if w.started {
		w.mu.Unlock()
		return errors.New("durable: Run was called before")
	}
	w.started = true
	w.base = context.WithoutCancel(ctx)
	w.mu.Unlock()

	streams, closeStreams := context.WithCancel(w.base)
	defer closeStreams()
	refused := make(chan error, 1)
	served := make(chan struct{})
	go func() {
		defer close(served)
		refused <- w.serve(streams)
	}()
	var err error
	select {
	case <-ctx.Done():
	case err = <-refused:
	}
	if err == nil { // otherwise no task ever came
		w.stop()
	}
	closeStreams()
	<-served
	return err
}

// stopPatience is how long a step may take to notice that its context has ended, when the worker stops.
const stopPatience = 2 * time.Second

// drainPatience is how long a stopping worker tries to have its room withdrawn, and waits for what was
// under way before.
const drainPatience = 3 * time.Second

// stop lets every turn end: at once between operations, within the grace in a step, and then whether it
// likes or not. It returns when nothing is held any more; a step that ignores its context may still run,
// and nothing it returns is used.
func (w *Worker) stop() {
	// Room that was offered cannot be taken back, only offered anew: without this, what is given back now
	// would come to this very worker again, perhaps when it is gone already. So nothing is given back before.
	// Tasks on their way here are sent again to the new session, and given back too.
	w.leaving.Store(true)
	w.redial()
	select {
	case <-w.drained:
	case <-w.clock.After(drainPatience):
	}
	close(w.stopping)
	if w.waitIdle(w.opts.StopGrace) {
		w.settle()
		return
	}
	for _, t := range w.listed() {
		t.cancel(errStopping)
	}
	if w.waitIdle(stopPatience) {
		return
	}
	left := w.listed()
	for _, t := range left {
		w.log.Warn("a step did not end within the stop grace; its execution is left to another worker", "id", t.info.ID)
		t.sendAbandon()
		w.lose(t)
	}
}

// settle waits until everything that was sent before now has arrived, and was given back.
func (w *Worker) settle() {
	select {
	case <-w.drained:
	default:
		return // nothing comes from a cluster that cannot be reached
	}
	probe := &turn{lost: make(chan struct{}), cancel: func(error) {}}
	over := make(chan struct{})
	go func() {
		defer close(over)
		w.roundTrip(probe, func() *perdurev1.WorkRequest {
			return &perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Heartbeat{Heartbeat: &perdurev1.Heartbeat{}}}
		})
	}()
	select {
	case <-over:
	case <-w.clock.After(drainPatience):
	}
	probe.lose()
	w.waitIdle(drainPatience)
}

// waitIdle waits until no turn is left; false when that took longer than patience.
func (w *Worker) waitIdle(patience time.Duration) bool {
	over := w.clock.After(patience)
	for {
		w.mu.Lock()
		n := w.turns
		w.mu.Unlock()
		if n == 0 {
			return true
		}
		select {
		case <-w.idle:
		case <-over:
			return false
		}
	}
}

// sendAbandon gives the task back on behalf of a goroutine that is stuck in a step. Nobody waits for an
// answer: the stream is about to close, and the lease would end by itself.
func (t *turn) sendAbandon() {
	if s := t.w.session(); s != nil {
		s.send(&perdurev1.WorkRequest{CallId: t.w.callID(), Kind: &perdurev1.WorkRequest_Release{Release: &perdurev1.Release{Task: t.key.token()}}})
	}
}

func (w *Worker) isStopping() bool {
	select {
	case <-w.stopping:
		return true
	default:
		return false
	}
}

// listed are the turns in held, in the order of their ids.
func (w *Worker) listed() []*turn {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listedLocked()
}

func (w *Worker) listedLocked() []*turn {
	out := make([]*turn, 0, len(w.held))
	for _, t := range w.held {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *turn) int {
		if a.info.ID < b.info.ID {
			return -1
		}
		return 1
	})
	return out
}

// accept takes a task that arrived. It may have been under way for long, and be over: one whose token this worker
// has finished with, or knows a later one of, is not begun. One of which it is not sure that the lease still holds
// is begun when the cluster has confirmed it.
func (w *Worker) accept(task *perdurev1.Task) {
	t := newTurn(w, task)
	now := w.clock.Now()
	w.mu.Lock()
	if w.held[t.key] != nil {
		w.mu.Unlock()
		t.cancel(errLost)
		return // sent again because the server was not sure that it had arrived
	}
	var older *turn
	over := w.ended.has(t.key)
	for k, h := range w.held {
		switch {
		case k.exec() != t.key.exec():
		case k.upTo(t.key):
			older = h // its lease had ended before we were told
		default:
			over = true
		}
	}
	if over {
		w.mu.Unlock()
		w.drop(t)
		return
	}
	if from := w.timestamps.when(task.GetAcquiredAfter()); w.ended.covers(from) {
		t.confirm(from)
	}
	t.born = w.lastCall
	w.held[t.key] = t
	t.busy = true
	w.busy++
	w.offered = max(0, w.offered-1)
	w.turns++
	w.mu.Unlock()
	if older != nil {
		w.lose(older)
	}
	if t.leaseLeft(now) > 0 {
		t.announce()
	}
	go t.run()
}

// drop refuses a task that came too late. If the cluster should still believe that it is this worker's (a release
// was not heard), it is told; and the room that the task has used up is offered again.
func (w *Worker) drop(t *turn) {
	t.cancel(errLost)
	w.log.Info("a task came late and is not begun", "id", t.info.ID, "version", t.key.version)
	if s := w.session(); s != nil {
		s.send(&perdurev1.WorkRequest{CallId: w.callID(), Kind: &perdurev1.WorkRequest_Release{Release: &perdurev1.Release{Task: t.key.token()}}})
	}
	w.mu.Lock()
	w.offered = max(0, w.offered-1)
	w.mu.Unlock()
	w.freeRoom(t, nil, 0)
}

// timestamp numbers a message that is made now.
func (w *Worker) timestamp() uint64 {
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.timestamps.next(now)
}

// unheldLocked takes a turn off those that are held. Its token is never begun again.
func (w *Worker) unheldLocked(t *turn) {
	delete(w.held, t.key)
	w.ended.add(t.key, w.clock.Now())
}

// takeSlot waits until one more function may run; false when the turn must not run at all. The room that
// was offered keeps to the concurrency, so waiting is rare: after a reconnect the server may send more.
func (w *Worker) takeSlot(t *turn) bool {
	select {
	case w.slots <- struct{}{}:
		return true
	default:
	}
	select {
	case w.slots <- struct{}{}:
		return true
	case <-t.lost:
	case <-w.stopping:
		t.give = &giveBack{}
	}
	t.unwinding = true
	return false
}

func (w *Worker) freeSlot() { <-w.slots }

// turnOver notes that the server has ended the turn: by a commit that left the task not acquired, or by a
// release. room is what that request offered in the turn's place, by the session via.
func (w *Worker) turnOver(t *turn, via *session, room uint32) {
	w.mu.Lock()
	w.unheldLocked(t)
	w.mu.Unlock()
	w.freeRoom(t, via, int(room))
}

// turnClosed is the end of a turn's goroutine.
func (w *Worker) turnClosed(t *turn) {
	w.mu.Lock()
	w.unheldLocked(t)
	w.mu.Unlock()
	w.freeRoom(t, nil, 0)
	if t.announced.Load() {
		w.event(Event{Kind: EventTurnOver, ID: t.info.ID, Function: t.info.Function})
	}
	w.mu.Lock()
	w.turns--
	w.mu.Unlock()
	select {
	case w.idle <- struct{}{}: // a level to look at again, not a count
	default:
	}
}

// freeRoom takes the turn off the room, and tells the server about room that it does not know of yet.
func (w *Worker) freeRoom(t *turn, via *session, known int) {
	w.mu.Lock()
	if t.busy {
		t.busy = false
		w.busy--
	}
	if via != nil && via == w.sess {
		w.offered += known // an offer made to an earlier session is not known to this one
	}
	more := w.opts.Concurrency - w.busy - w.offered
	s := w.sess
	if more <= 0 || s == nil || w.leaving.Load() {
		w.mu.Unlock()
		return // without a session, the next Hello says it all
	}
	w.offered += more
	w.mu.Unlock()
	s.send(&perdurev1.WorkRequest{CallId: w.callID(), Kind: &perdurev1.WorkRequest_Room{Room: &perdurev1.Room{Tasks: uint32(more)}}})
}

// offer is the room that a message may offer at the moment it is sent: none from a worker that stops. A message
// that is repeated may have offered some before.
func (w *Worker) offer(room uint32) uint32 {
	if w.leaving.Load() {
		return 0
	}
	return room
}

// lose drops a turn that is no longer this worker's. Its goroutine ends at its next operation.
func (w *Worker) lose(t *turn) {
	w.mu.Lock()
	w.unheldLocked(t)
	w.mu.Unlock()
	if !t.isLost() && t.announced.Load() {
		w.event(Event{Kind: EventLost, ID: t.info.ID, Function: t.info.Function})
	}
	t.lose()
}

// loseAll drops the turns of tokens the server called lost.
func (w *Worker) loseAll(tokens []*perdurev1.TaskToken) {
	for _, token := range tokens {
		if t := w.turnOf(token); t != nil {
			w.log.Info("task lost", "id", t.info.ID, "version", t.key.version)
			w.lose(t)
		}
	}
}

func (w *Worker) turnOf(token *perdurev1.TaskToken) *turn {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.held[keyOf(token)]
}

const (
	problemDelayMin = time.Second
	problemDelayMax = time.Minute
	// maxProblems bounds the memory of who had problems; beyond it, delays start over.
	maxProblems = 10_000
)

// problem logs why an execution is given back, and says how: with a delay that doubles each time in a row.
func (w *Worker) problem(t *turn, err error) *giveBack {
	w.mu.Lock()
	if len(w.problems) >= maxProblems {
		clear(w.problems)
	}
	n := w.problems[t.info.ID]
	w.problems[t.info.ID] = n + 1
	w.mu.Unlock()
	delay := min(problemDelayMin<<min(n, 10), problemDelayMax)
	t.log.Error("execution given back", "problem", err, "again_in", delay)
	w.event(Event{Kind: EventProblem, ID: t.info.ID, Function: t.info.Function, Err: err})
	return &giveBack{problem: err.Error(), delay: delay}
}

// committed notes that an execution made progress: its problems are over.
func (w *Worker) committed(t *turn) {
	w.mu.Lock()
	delete(w.problems, t.info.ID)
	w.mu.Unlock()
}

func (w *Worker) event(e Event) {
	if w.opts.OnEvent != nil {
		w.opts.OnEvent(e)
	}
}
