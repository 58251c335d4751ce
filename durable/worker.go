package durable

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/internal/credit"
)

// WorkerOptions configures a Worker. The zero value is good.
type WorkerOptions struct {
	// Name is the prefix of the worker's id, which people see (a random part follows); default "worker".
	Name string
	// Concurrency is how many functions run at once; default 64. One that waits (for a child, a timer, a
	// signal) does not count.
	Concurrency int
	// Lease is the time without a heartbeat after which the cluster gives the worker's tasks to another one:
	// 1 s to 10 min, default 10 s. The worker sends a heartbeat every third of it.
	Lease time.Duration
	// StopGrace is the time that running steps have after Run's context ends; then their contexts end. Default 10 s.
	StopGrace time.Duration
	// StickyFunctions is how many functions stay in memory while they wait, so that they continue without a
	// replay; default 1000, negative for none. StickyBytes bounds the size of their journals together;
	// default 64 MiB. The function that has waited longest makes place: it is replayed when its wait is over,
	// like one that waits at a worker that stops.
	StickyFunctions int
	StickyBytes     int
	// Digest names the version of the code. Executions are pinned to the digest that was current at their
	// start: the one that was the last to be new to the cluster. A worker with a Digest gets those that are
	// pinned to it, to a digest of CompatibleWith, or to none. A worker without one gets all.
	Digest string
	// CompatibleWith are other digests whose executions this code can continue: it fits their journals.
	CompatibleWith []string
	// Codec is for functions without a codec of their own; default JSON. The callers of those functions must use
	// the same codec, so prefer the option WithCodec of NewFunction.
	Codec Codec
	// HTTPClient makes the requests of HTTP; default http.DefaultClient. Its transport is where to limit what
	// functions may call.
	HTTPClient *http.Client
	// Logger gets problems and reconnects; default the client's.
	Logger *slog.Logger
	// OnEvent, if set, gets every Event of the worker and its tasks. Many goroutines call it; it must not block.
	OnEvent func(Event)
	// Clock and Rand are the client's by default. Rand must be safe for concurrent use.
	Clock client.Clock
	Rand  io.Reader
}

// EventKind is the kind of an Event.
type EventKind string

// The kinds of events.
const (
	EventConnected       EventKind = "connected"        // a stream is open, and the node has answered with Welcome
	EventDisconnected    EventKind = "disconnected"     // the stream broke; Err says why
	EventDraining        EventKind = "draining"         // the node announced that it stops
	EventTask            EventKind = "task"             // a task arrived, and its lease holds
	EventActivationEnded EventKind = "activation ended" // a task left: its execution waits or ended, or the task was released or lost
	EventLost            EventKind = "lost"             // a task is no longer this worker's
	EventProblem         EventKind = "problem"          // a task is released with Err
	EventAttempt         EventKind = "attempt"          // a step failed with Err and will be tried again
	EventContinued       EventKind = "continued"        // a function that waited in memory continues, without a replay
	EventDropped         EventKind = "dropped"          // a function that waited in memory left it, and will be replayed
)

// Event is an event of the worker or one of its tasks. ID and Function are empty when it concerns no
// execution.
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
	// leaving is set when the worker begins to stop: it grants no more credit. stopping is closed when a node has
	// acknowledged that, or after drainTimeout: activations end from then on.
	leaving  atomic.Bool
	stopping chan struct{}
	// drained is closed when a session with capacity 0 has begun, because the worker is stopping.
	drained     chan struct{}
	drainedOnce func()
	base        context.Context // of all functions: the values of Run's context, not its end
	slots       chan struct{}   // one per function that runs
	hold        holdTimes

	// ctx ends with the streams; running counts the goroutines that spawn starts.
	ctx     context.Context
	running sync.WaitGroup

	mu      sync.Mutex
	started bool
	over    bool // Run waits for the goroutines, no more begin
	// held are the tasks that this worker believes are its own; activations counts the goroutines, those that wait in
	// memory too, and idle is signalled when one ends.
	held        map[execKey]*hold
	activations int
	idle        chan struct{}
	// waiting counts the goroutines that wait for another activation from begun.
	waiting int
	begun   chan *activation
	// sticky are the activations that wait in memory.
	sticky stickyCache
	// lingers is about functions that wait for signals.
	lingers lingers
	// busy counts the tasks held against the capacity, which the ledger splits over the sessions; see capacity.go.
	// ending counts those of them whose functions have returned and whose credit is out already; see endingLocked.
	busy, promised, ending int
	ledger                 *credit.Ledger
	// sessions are live; without nodes one at most. nodes are those that the worker keeps a session with each.
	sessions    []*session
	nodes       map[string]*node
	firstView   *perdurev1.NodeList
	viewChanged chan struct{}
	conns       map[string]*client.NodeConn // by address
	undrained   map[credit.Link]bool        // sessions to be replaced before drained is closed
	calls       map[uint64]*call
	lastCall    uint64
	// problems counts how often in a row a task of an execution was released with a problem.
	problems map[string]int
	// timestamps number this worker's messages, ended are the tokens that it never begins again.
	timestamps *timestamps
	ended      *ended
	// moves counts the sessions that the worker ended because their nodes extended no lease. It is 0 again when a
	// session has extended all leases for the length of a lease.
	moves int
	// hellos counts the sessions begun since the last Welcome.
	hellos int
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

// maxConcurrency is the highest capacity that a node accepts.
const maxConcurrency = 100_000

// NewWorker makes a worker that uses c and c's namespace.
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
	if opts.StickyFunctions == 0 {
		opts.StickyFunctions = defaultStickyFunctions
	}
	if opts.StickyBytes <= 0 {
		opts.StickyBytes = defaultStickyBytes
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
		c: c, opts: opts, clock: opts.Clock, hold: defaultHold,
		functions:   map[string]Registration{},
		ready:       make(chan struct{}),
		stopping:    make(chan struct{}),
		drained:     make(chan struct{}),
		slots:       make(chan struct{}, opts.Concurrency),
		held:        map[execKey]*hold{},
		idle:        make(chan struct{}, 1),
		begun:       make(chan *activation),
		calls:       map[uint64]*call{},
		problems:    map[string]int{},
		timestamps:  newTimestamps(opts.Lease),
		ended:       newEnded(opts.Lease),
		viewChanged: make(chan struct{}, 1),
		conns:       map[string]*client.NodeConn{},
		undrained:   map[credit.Link]bool{},
		ledger:      credit.New(credit.Config{Rest: int64(creditRest)}, 0),
	}
	w.sticky = stickyCache{functions: opts.StickyFunctions, bytes: opts.StickyBytes, byExec: map[execKey]*activation{}}
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

// Ready is closed when a node has accepted the worker for the first time: its functions are registered.
func (w *Worker) Ready() <-chan struct{} { return w.ready }

// Run serves until ctx ends, and then releases its tasks: functions stop at their next operation, running steps have
// StopGrace to finish. Run reconnects without a limit. It returns nil after a graceful stop, and an error when the
// cluster refuses the worker for good. Run may be called once.
func (w *Worker) Run(ctx context.Context) error {
	w.mu.Lock()
	if w.started {
		w.mu.Unlock()
		return errors.New("durable: Run was called before")
	}
	w.started = true
	w.base = context.WithoutCancel(ctx)
	w.mu.Unlock()
	if replayCheckAsked() {
		return w.replayCheck(ctx)
	}

	streams, closeStreams := context.WithCancel(w.base)
	defer closeStreams()
	w.ctx = streams
	w.step(credit.Announced{N: w.opts.Concurrency})
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
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	w.running.Wait()
	return err
}

// spawn starts a goroutine that Run waits for. Its ctx ends with the streams.
func (w *Worker) spawn(run func(ctx context.Context)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.spawnLocked(run)
}

func (w *Worker) spawnLocked(run func(ctx context.Context)) {
	if !w.over {
		w.running.Go(func() { run(w.ctx) })
	}
}

// stepStopTimeout is the time that steps have to return after their contexts end, when the worker stops.
const stepStopTimeout = 2 * time.Second

// drainTimeout bounds each step of the stop: revoking the credit, and receiving the tasks already under way.
const drainTimeout = 3 * time.Second

// stop ends every activation: at once between operations, within StopGrace in a step, then by ending the contexts. It
// returns when the worker holds no task. A step that ignores its context may still run; its result is dropped.
func (w *Worker) stop() {
	// Credit cannot be revoked, only a new Hello replaces it. Without that, the cluster would deliver the released
	// tasks to this worker again. So the worker first opens a session with capacity 0 and releases nothing before.
	// The node sends tasks that were under way to the new session, which releases them too.
	w.mu.Lock()
	w.leaving.Store(true)
	for _, s := range w.sessions {
		w.undrained[s.link] = true
	}
	w.mu.Unlock()
	w.redial()
	select {
	case <-w.drained:
	case <-w.clock.After(drainTimeout):
	}
	close(w.stopping)
	w.dropSticky()
	if w.waitIdle(w.opts.StopGrace) {
		w.settle()
		return
	}
	for _, t := range w.listed() {
		t.endContext(errStopping)
	}
	if w.waitIdle(stepStopTimeout) {
		return
	}
	var releases []lastRequest
	for _, t := range w.listed() {
		w.log.Warn("step did not end within the stop grace", "event", "step_abandoned", "id", t.id)
		w.mu.Lock()
		s := w.routeLocked(t)
		w.mu.Unlock()
		if s != nil {
			releases = append(releases, lastRequest{s, t.bareRelease})
		}
		w.lose(t)
	}
	w.askLast(releases)
}

// settle waits until the tasks that were under way have arrived and been released, at most 2 * drainTimeout.
func (w *Worker) settle() {
	select {
	case <-w.drained:
	default:
		return // an unreachable cluster delivers nothing
	}
	var beats []lastRequest
	w.mu.Lock()
	for _, s := range w.sessions {
		beats = append(beats, lastRequest{s, func() *perdurev1.WorkRequest {
			return &perdurev1.WorkRequest{Kind: &perdurev1.WorkRequest_Heartbeat{Heartbeat: &perdurev1.Heartbeat{}}}
		}})
	}
	w.mu.Unlock()
	w.askLast(beats)
	w.waitIdle(drainTimeout)
}

// lastRequest is a request of a worker that stops, by the given session or one that replaces it.
type lastRequest struct {
	home  *session
	build func() *perdurev1.WorkRequest
}

// askLast sends the requests and waits until all are answered, at most drainTimeout: the end of a stream drops what is
// still on its way.
func (w *Worker) askLast(requests []lastRequest) {
	if len(requests) == 0 {
		return
	}
	timeout := w.clock.After(drainTimeout)
	var asked sync.WaitGroup
	lost := make(chan struct{})
	for _, r := range requests {
		probe := &hold{lost: lost, home: r.home}
		asked.Go(func() { w.roundTrip(probe, r.build) })
	}
	answered := make(chan struct{})
	go func() { // it ends when lost is closed, at the latest
		asked.Wait()
		close(answered)
	}()
	select {
	case <-answered:
	case <-timeout:
	}
	close(lost)
	<-answered
}

// waitIdle waits until no activation is left; false after timeout.
func (w *Worker) waitIdle(timeout time.Duration) bool {
	over := w.clock.After(timeout)
	for {
		w.mu.Lock()
		n := w.activations
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

func (w *Worker) isStopping() bool {
	select {
	case <-w.stopping:
		return true
	default:
		return false
	}
}

// listed are the holds, ordered by id.
func (w *Worker) listed() []*hold {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.listedLocked()
}

func (w *Worker) listedLocked() []*hold {
	out := make([]*hold, 0, len(w.held))
	for _, t := range w.held {
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b *hold) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	return out
}

// accept takes a delivered task. The delivery may be late: accept drops a token that this worker has finished with, or
// of which it holds a later version. If the lease may have expired, the activation waits for a heartbeat's answer.
func (w *Worker) accept(s *session, task *perdurev1.Task) {
	t := newHold(w, task)
	t.home = s
	now := w.clock.Now()
	w.mu.Lock()
	if task.GetAgain() {
		w.stepLocked(credit.Resent{Task: t.key.credit()})
	} else {
		w.stepLocked(credit.Assigned{Link: s.link, Task: t.key.credit()})
	}
	w.stepLocked(credit.Begun{Task: t.key.credit()})
	older := w.held[t.key.exec()] // if any, its lease had expired before the worker learned of it
	switch {
	case older != nil && older.key == t.key:
		older.home = s // the leader's node
		w.mu.Unlock()
		return // a repeated delivery
	case older != nil && !older.key.upTo(t.key), w.ended.has(t.key):
		w.mu.Unlock()
		w.drop(t)
		return
	case w.overtakesLocked(s, older, t.key):
		older = nil
	}
	if from := w.timestamps.when(task.GetAcquiredAfter()); w.ended.covers(from) {
		t.confirm(from)
	}
	t.born = w.lastCall
	w.held[t.key.exec()] = t
	t.busy = true
	w.busy++
	continues := w.continueLocked(t, task)
	if !continues {
		w.activations++
	}
	w.mu.Unlock()
	if older != nil {
		w.lose(older)
	}
	if t.leaseLeft(now) > 0 {
		t.announce()
	}
	if !continues {
		w.begin(newActivation(t, task))
	}
}

// drop releases a task that was delivered too late, in case an earlier release was lost, and grants its credit again.
func (w *Worker) drop(t *hold) {
	w.log.Info("late task dropped", "event", "task_dropped", "id", t.id, "version", t.key.version)
	t.sendAbandon()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stepLocked(credit.Finished{Task: t.key.credit()})
	w.announceLocked()
}

// timestamp is the number of a message made now.
func (w *Worker) timestamp() uint64 {
	now := w.clock.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.timestamps.next(now)
}

// unheldLocked removes a hold from held. Its token is never begun again.
func (w *Worker) unheldLocked(t *hold) {
	if t.ended {
		return
	}
	t.ended = true
	if w.held[t.key.exec()] == t {
		delete(w.held, t.key.exec())
	}
	w.ended.add(t.key, w.clock.Now())
}

// takeSlot waits until one more function may run; false when the activation must not run. Credit bounds the tasks to
// Concurrency, so it rarely waits: after a reconnect a node may deliver more.
func (w *Worker) takeSlot(t *activation) bool {
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
		t.release = &taskRelease{}
	}
	t.unwinding = true
	return false
}

func (w *Worker) freeSlot() { <-w.slots }

// activationEnded records that the server has ended the activation: by a commit that left the task not acquired, or
// by a release. It announces the capacity that the ledger does not have yet.
func (w *Worker) activationEnded(t *hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.unheldLocked(t)
	w.finishedLocked(t)
	w.announceLocked()
}

// functionReturned notes that the function of a hold has returned: the hold needs only to commit its end.
func (w *Worker) functionReturned(t *hold) {
	w.mu.Lock()
	defer w.mu.Unlock()
	t.returned = true
}

// finishedLocked takes a hold off the capacity in use.
func (w *Worker) finishedLocked(t *hold) {
	if t.busy {
		t.busy = false
		w.busy--
		if t.ending {
			t.ending = false
			w.ending--
		}
		w.stepLocked(credit.Finished{Task: t.key.credit()})
	}
}

// holdClosed ends the bookkeeping of a hold; its activation calls it once.
func (w *Worker) holdClosed(t *hold) {
	w.activationEnded(t)
	if t.announced.Load() {
		w.event(Event{Kind: EventActivationEnded, ID: t.id, Function: t.function})
	}
}

// activationClosed ends the bookkeeping of an activation; its goroutine calls it last. A hold that was given
// to it, and that it has not taken, goes to a new one.
func (w *Worker) activationClosed(t *activation) {
	if !t.idle {
		w.holdClosed(t.hold)
	}
	w.mu.Lock()
	w.sticky.remove(t)
	next, task := t.wait.next, t.wait.task
	w.mu.Unlock()
	if next != nil {
		w.replace(next, task)
	}
	w.mu.Lock()
	w.activations--
	w.mu.Unlock()
	select {
	case w.idle <- struct{}{}: // a level to look at again, not a count
	default:
	}
}

// setSticks sets which activation is kept in memory if a commit for the hold leaves its function waiting.
func (w *Worker) setSticks(t *hold, a *activation) {
	w.mu.Lock()
	t.sticks = a
	w.mu.Unlock()
}

// lose drops a hold that is no longer this worker's. Its activation ends at the next operation.
func (w *Worker) lose(t *hold) {
	w.mu.Lock()
	w.unheldLocked(t)
	w.mu.Unlock()
	if !t.isLost() && t.announced.Load() {
		w.event(Event{Kind: EventLost, ID: t.id, Function: t.function})
	}
	t.lose()
}

// loseAll drops the holds of the tokens that the server reported as lost.
func (w *Worker) loseAll(tokens []*perdurev1.TaskToken) {
	for _, token := range tokens {
		if t := w.holdOf(token); t != nil {
			w.log.Info("task lost", "event", "task_lost", "id", t.id, "version", t.key.version)
			w.lose(t)
		}
	}
}

// loseUnasked is loseAll without the holds that wait for the answer to a call: their own commits may have ended the
// tasks. The answer says which; a session that begins asks for it again.
func (w *Worker) loseUnasked(tokens []*perdurev1.TaskToken) {
	w.loseAll(slices.DeleteFunc(slices.Clone(tokens), w.asks))
}

// asks reports whether a call for the token's hold has no answer yet.
func (w *Worker) asks(token *perdurev1.TaskToken) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.heldLocked(keyOf(token))
	return t != nil && t.asks > 0
}

func (w *Worker) holdOf(token *perdurev1.TaskToken) *hold {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.heldLocked(keyOf(token))
}

// heldLocked is the hold of a token; nil if the worker does not hold its task.
func (w *Worker) heldLocked(key tokenKey) *hold {
	if t := w.held[key.exec()]; t != nil && t.key == key {
		return t
	}
	return nil
}

const (
	problemDelayMin = time.Second
	problemDelayMax = time.Minute
	// maxProblems bounds the problem counters; beyond it, delays start over.
	maxProblems = 10_000
)

// problem logs why a task is released, and returns the release: with a delay that doubles with each problem in a row.
func (w *Worker) problem(t *activation, err error) *taskRelease {
	w.mu.Lock()
	if len(w.problems) >= maxProblems {
		clear(w.problems)
	}
	n := w.problems[t.info.ID]
	w.problems[t.info.ID] = n + 1
	w.mu.Unlock()
	delay := min(problemDelayMin<<min(n, 10), problemDelayMax)
	t.logger().Error("task released with a problem", "event", "task_problem", "problem", err, "retry_in", delay)
	w.event(Event{Kind: EventProblem, ID: t.info.ID, Function: t.info.Function, Err: err})
	var mismatch *MismatchError
	return &taskRelease{problem: publicText(t.codec, err), delay: delay, mismatch: errors.As(err, &mismatch)}
}

// committed resets the problem count of an execution that made progress.
func (w *Worker) committed(t *activation) {
	w.mu.Lock()
	delete(w.problems, t.info.ID)
	w.mu.Unlock()
}

// firstProblem counts a problem as the first one after progress, and returns its delay.
func (w *Worker) firstProblem(t *activation) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems[t.info.ID] = 1
	return problemDelayMin
}

func (w *Worker) event(e Event) {
	if w.opts.OnEvent != nil {
		w.opts.OnEvent(e)
	}
}
