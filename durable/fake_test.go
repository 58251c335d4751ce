package durable

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/id"
	"perdure/journal"
)

// testTimeout bounds every wait of these tests. It is long because the machine may be busy; no test waits for
// it to pass.
const testTimeout = 90 * time.Second

// fakeServer is a cluster in memory: tasks, journals and streams, one lock, no clock. The journal's own guard
// checks every event, so a worker that breaks a rule fails its test. The world's events (timers, children,
// signals) happen when an execution waits for them, in a fixed order.
type fakeServer struct {
	perdurev1.UnimplementedTasksServer
	perdurev1.UnimplementedExecutionsServer
	t    testing.TB
	grpc *grpc.Server
	lis  *bufconn.Listener

	mu           sync.Mutex
	changed      chan struct{} // closed and replaced whenever anything changed
	execs        map[string]*fakeExec
	conns        []*fakeConn
	replies      map[string]*perdurev1.CommitReply
	incarnations uint64
	former       map[string][]*perdurev1.JournalEntry // the journals of incarnations that continued as new

	// children are the results of functions that no worker runs here, and the answers to signals of that name by
	// another partition, which come when they are awaited; the input is the target.
	children map[string]func(input []byte) *perdurev1.Outcome
	// missing are the targets of signals that do not exist.
	missing map[string]bool
	// signals are the payloads that the world sends when an execution waits for that name, by number of delivery.
	signals map[string][]string
	// split is set for a node of a fakeCluster.
	split *fakeNode
	// others is how many nodes the cluster has besides one; all of them are this server.
	others int
	// page, if positive, is how many entries a task or a page carries.
	page int
	// whole: tasks leave nothing out. short counts those that did, pages the pages of journals that were read.
	whole        bool
	short, pages int
	// spread: workers take turns.
	spread bool
	// manual: the test causes the world's events.
	manual bool
	// refuse, if set, decides whether a worker is welcome; hangs whether its n-th Hello gets no answer at all.
	refuse func(n int) error
	hangs  func(n int) bool
	// deaf: heartbeats are not answered. unknown: they are, but no partition is.
	deaf, unknown bool
	// hold is how long a worker holds results, the usual time if it is zero.
	hold holdTimes
	// onCommit may make a commit fail; it is called with the lock held.
	onCommit func(ex *fakeExec, c *perdurev1.Commit) fault

	commits    []*perdurev1.Commit
	releases   []*perdurev1.Release
	hellos     []*perdurev1.Hello
	heartbeats int
	// beatSteps is how many steps each heartbeat was about.
	beatSteps []int
	// stale counts the commits that were refused because the task was not the worker's.
	stale   int
	sent    []*perdurev1.SignalSend
	credits int
}

// fault is a disturbance of a commit.
type fault struct {
	reason perdurev1.Reason // refused
	before bool             // the stream breaks before it is applied
	after  bool             // it is applied, and the stream breaks instead of the answer
	lost   bool             // besides, the task goes to the next worker
	late   bool             // its answer comes after the execution's next task; if lost, its lease ends before it is applied
}

type fakeExec struct {
	id, function string
	incarnation  uint64
	j            *journal.State
	entries      []*perdurev1.JournalEntry
	state        perdurev1.TaskState
	version      uint64
	worker       string
	parked       bool // released; delivered to no worker until wake
	tags         map[string]string
	// steps are the last heartbeats of steps; they are never dropped.
	steps     map[string]*perdurev1.StepHeartbeat
	cancelled map[string]bool // timers
	cleanupMS int64           // as the last commit set it
	late      func()          // the answer that comes after the next task
	cleanupOf *fakeExec       // of a clean-up
}

func (ex *fakeExec) token() *perdurev1.TaskToken {
	return &perdurev1.TaskToken{Namespace: "default", Id: ex.id, Incarnation: ex.incarnation, Version: ex.version}
}

// fakeConn is one stream.
type fakeConn struct {
	f         *fakeServer
	worker    string
	functions []string
	cleanups  bool
	credit    int
	kept      map[tokenKey]uint64 // the entries that the worker has, by the token of the next task
	splits    bool
	wanted    bool   // as the worker knows
	stamp     uint64 // the highest timestamp that has come
	out       chan *perdurev1.WorkResponse
	broken    chan struct{}
	once      sync.Once
}

func (c *fakeConn) breakOff() { c.once.Do(func() { close(c.broken) }) }

func (c *fakeConn) send(m *perdurev1.WorkResponse) {
	select {
	case c.out <- m:
	case <-c.broken:
	}
}

func newFake(t testing.TB) *fakeServer {
	f := &fakeServer{
		t: t, grpc: grpc.NewServer(), lis: bufconn.Listen(1 << 20), changed: make(chan struct{}),
		execs: map[string]*fakeExec{}, former: map[string][]*perdurev1.JournalEntry{}, replies: map[string]*perdurev1.CommitReply{},
		children: map[string]func([]byte) *perdurev1.Outcome{}, signals: map[string][]string{},
	}
	perdurev1.RegisterTasksServer(f.grpc, f)
	perdurev1.RegisterExecutionsServer(f.grpc, f)
	go f.grpc.Serve(f.lis)
	t.Cleanup(f.grpc.Stop)
	return f
}

func (f *fakeServer) client(opts client.Options, dial ...grpc.DialOption) *client.Client {
	f.t.Helper()
	if len(opts.Addrs) == 0 {
		opts.Addrs = slices.Repeat([]string{"passthrough:///fake"}, 1+f.others)
	}
	opts.DialOptions = []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		return f.lis.DialContext(ctx)
	})}
	opts.DialOptions = append(opts.DialOptions, dial...)
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	c, err := client.Dial(opts)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { c.Close() })
	return c
}

// worker runs a worker until the test ends, or the returned function is called.
func (f *fakeServer) worker(opts WorkerOptions, fns ...Registration) (*Worker, func()) {
	f.t.Helper()
	w := NewWorker(f.client(client.Options{Clock: opts.Clock}), opts)
	if f.hold != (holdTimes{}) {
		w.hold = f.hold
	}
	w.Register(fns...)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					f.t.Errorf("Run: %v", err)
				}
			case <-time.After(testTimeout):
				f.t.Error("Run did not return")
			}
		})
	}
	f.t.Cleanup(stop)
	select {
	case <-w.Ready():
	case <-time.After(testTimeout):
		f.t.Fatal("the worker was not welcomed")
	}
	return w, stop
}

// wait waits until cond holds, which is asked with the lock held.
func (f *fakeServer) wait(what string, cond func() bool) {
	f.t.Helper()
	deadline := time.After(testTimeout)
	for {
		f.mu.Lock()
		ok, changed := cond(), f.changed
		f.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline:
			f.t.Fatalf("waited too long for %s\n%s", what, f.dump())
		}
	}
}

// touch announces a change; the lock is held.
func (f *fakeServer) touch() {
	f.split.changed(f)
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeServer) dump() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	for _, ex := range f.execs {
		fmt.Fprintf(&b, "%s %s %s %s v%d worker=%s\n", ex.id, ex.function, ex.j.Status(), ex.state, ex.version, ex.worker)
		for _, e := range ex.entries {
			fmt.Fprintf(&b, "  %d %v\n", e.GetSeq(), e.GetEvent())
		}
	}
	for _, r := range f.releases {
		fmt.Fprintf(&b, "release %v\n", r)
	}
	return b.String()
}

// start begins an execution; the lock is not held.
func (f *fakeServer) start(id, function, input string) *fakeExec {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.begin(id, function, "", []byte(input))
}

func (f *fakeServer) begin(eid, function, parent string, input []byte) *fakeExec {
	ex := f.newExec(eid, function)
	f.append(ex, &perdurev1.Event{Kind: &perdurev1.Event_ExecutionStarted{ExecutionStarted: &perdurev1.ExecutionStarted{Input: input, ParentId: parent}}})
	ex.state = perdurev1.TaskState_TASK_STATE_PENDING
	f.dispatch()
	return ex
}

func (f *fakeServer) newExec(eid, function string) *fakeExec {
	f.incarnations++
	ex := &fakeExec{id: eid, function: function, incarnation: f.incarnations,
		j: journal.New(id.PromiseID(eid), journal.WithRetryBound(func(policy string) int { return attemptsOf(policy, 4) - 1 }))}
	f.execs[eid] = ex
	return ex
}

// restore begins an execution from a journal that was cut off; the server's missing entries follow at once.
func (f *fakeServer) restore(eid, function string, entries []*perdurev1.JournalEntry) *fakeExec {
	f.mu.Lock()
	defer f.mu.Unlock()
	ex := f.newExec(eid, function)
	for _, e := range entries {
		f.append(ex, e.GetEvent())
	}
	for n := range ex.j.NextChild() {
		p := id.PromiseID(eid).Child(n)
		inv, ok := ex.j.Invoke(p)
		if !ok || inv.Kind == journal.InvokeStep {
			continue
		}
		if !inv.Started {
			f.append(ex, started(string(p), 1))
		}
		if inv.Kind == journal.InvokeSignal {
			f.signalFutures(ex, f.nameOf(ex, string(p)))
		}
		if inv.Kind == journal.InvokeSend && !inv.Completed && f.children[f.nameOf(ex, string(p))] == nil {
			f.append(ex, completed(string(p), 1, &perdurev1.Outcome{}))
		}
	}
	ex.state = perdurev1.TaskState_TASK_STATE_PENDING
	if ex.j.Status() == journal.StatusBlocked {
		ex.state = perdurev1.TaskState_TASK_STATE_SUSPENDED
		f.world(ex)
	}
	f.dispatch()
	return ex
}

// append records an event; the journal's guard must allow it.
func (f *fakeServer) append(ex *fakeExec, ev *perdurev1.Event) {
	if err := f.tryAppend(ex, ev); err != nil {
		f.t.Errorf("fake: %v", err)
	}
}

func (f *fakeServer) tryAppend(ex *fakeExec, ev *perdurev1.Event) error {
	if err := ex.j.Append(ex.j.NextSeq(), toJournal(ev)); err != nil {
		return err
	}
	ex.entries = append(ex.entries, &perdurev1.JournalEntry{Seq: uint64(len(ex.entries)), Event: ev})
	f.touch()
	return nil
}

// dispatch gives pending tasks to workers with capacity, in the order of their ids.
func (f *fakeServer) dispatch() {
	var ids []string
	for id := range f.execs {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	for _, id := range ids {
		ex := f.execs[id]
		if ex.state != perdurev1.TaskState_TASK_STATE_PENDING || ex.parked {
			continue
		}
		for _, c := range f.conns {
			if c.credit > 0 && slices.Contains(c.functions, ex.function) && (ex.cleanupOf == nil || c.cleanups) {
				c.credit--
				ex.state, ex.worker = perdurev1.TaskState_TASK_STATE_ACQUIRED, c.worker
				ex.version++
				f.hand(c, ex, c.stamp)
				if f.spread {
					f.conns = append(slices.DeleteFunc(slices.Clone(f.conns), func(o *fakeConn) bool { return o == c }), c)
				}
				break
			}
		}
	}
	f.touch()
}

// hand sends a task to its worker. after is what the task was acquired after; 0 when it is sent again.
func (f *fakeServer) hand(c *fakeConn, ex *fakeExec, after uint64) {
	task := f.task(ex, after)
	if from := c.kept[keyOf(ex.token())]; from > 0 && f.page == 0 {
		task.Entries = task.Entries[from:]
		f.short++
	}
	c.send(&perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Task{Task: task}})
	if ex.late != nil {
		ex.late()
		ex.late = nil
	}
}

func (f *fakeServer) task(ex *fakeExec, after uint64) *perdurev1.Task {
	entries := ex.entries
	if f.page > 0 && len(entries) > f.page {
		entries = entries[:f.page]
	}
	var of *perdurev1.CleanupOf
	if c := ex.cleanupOf; c != nil {
		of = &perdurev1.CleanupOf{Id: c.id, Incarnation: c.incarnation, Function: c.function, NextSeq: c.j.NextSeq(), CreatedMs: 1_000}
	}
	return &perdurev1.Task{
		CleanupMs: ex.cleanupMS, CleanupOf: of, Steps: slices.Collect(maps.Values(ex.steps)),
		Token: ex.token(), Function: ex.function, Status: perdurev1.ExecutionStatus(ex.j.Status()),
		Entries: slices.Clone(entries), NextSeq: ex.j.NextSeq(), CreatedMs: 1_000, DeadlineMs: 0, Tags: ex.tags,
		AcquiredAfter: after, Again: f.split != nil && after == 0,
	}
}

// wake makes a released task pending again.
func (f *fakeServer) wake(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.execs[id].parked = false
	f.dispatch()
}

// expire takes a task from its worker, as when its lease ends.
func (f *fakeServer) expire(ex *fakeExec) {
	if ex.state == perdurev1.TaskState_TASK_STATE_ACQUIRED {
		ex.version++
		ex.state, ex.worker = perdurev1.TaskState_TASK_STATE_PENDING, ""
	}
	f.touch()
}

// breakStreams ends every stream; workers connect again.
func (f *fakeServer) breakStreams() {
	for _, c := range f.conns {
		c.breakOff()
	}
	f.conns = nil
}

// cancel asks an execution to cancel.
func (f *fakeServer) cancel(id, reason string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cancelLocked(f.execs[id], reason)
	f.dispatch()
}

func (f *fakeServer) cancelLocked(ex *fakeExec, reason string) {
	f.append(ex, &perdurev1.Event{Kind: &perdurev1.Event_CancelRequested{CancelRequested: &perdurev1.CancelRequested{Reason: reason}}})
	if ex.state == perdurev1.TaskState_TASK_STATE_SUSPENDED {
		ex.state = perdurev1.TaskState_TASK_STATE_PENDING
	}
}

// resume makes an execution pending whose wait is satisfied.
func (f *fakeServer) resume(ex *fakeExec) {
	if ex.j.Status() == journal.StatusBlocked && ex.j.WaitSatisfied() {
		f.append(ex, &perdurev1.Event{Kind: &perdurev1.Event_ExecutionResumed{ExecutionResumed: &perdurev1.ExecutionResumed{}}})
		if ex.state == perdurev1.TaskState_TASK_STATE_SUSPENDED {
			ex.state = perdurev1.TaskState_TASK_STATE_PENDING
		}
	}
}

// world does what a waiting execution waits for: the member with the highest number first, one for ANY.
func (f *fakeServer) world(ex *fakeExec) {
	kind, on, name, blocked := ex.j.Wait()
	if !blocked || f.manual {
		return
	}
	if ex.j.WaitSatisfied() {
		f.resume(ex)
		return
	}
	if kind == journal.AwaitSignal {
		if _, _, buffered := ex.j.NextReceipt(name); buffered { // a journal cut between delivery and receipt
			f.append(ex, f.receipt(ex, string(on[0]), name))
			f.resume(ex)
			return
		}
		n := int(ex.j.Deliveries(name))
		switch texts := f.signals[name]; {
		case n < len(texts):
			f.deliver(ex, name, value(texts[n]))
		case name == "never":
			f.deliver(ex, name, failure(TypeTimeout, "no signal in time"))
		}
		return
	}
	for _, p := range slices.Backward(on) {
		if ex.j.Resolved(p) {
			continue
		}
		f.resolve(ex, string(p))
		if ex.j.WaitSatisfied() {
			break
		}
	}
	f.resume(ex)
}

// resolve ends a timer, or a child that no worker runs.
func (f *fakeServer) resolve(ex *fakeExec, p string) {
	if _, timer := ex.j.Timer(id.PromiseID(p)); timer {
		f.append(ex, &perdurev1.Event{Kind: &perdurev1.Event_TimerFired{TimerFired: &perdurev1.TimerFired{PromiseId: p}}})
		return
	}
	for _, e := range ex.entries {
		if s := e.GetEvent().GetInvokeScheduled(); s.GetPromiseId() == p {
			if s.GetKind() == perdurev1.InvokeKind_INVOKE_KIND_SIGNAL {
				if n := int(ex.j.Deliveries(s.GetFunctionName())); n < len(f.signals[s.GetFunctionName()]) {
					f.deliver(ex, s.GetFunctionName(), value(f.signals[s.GetFunctionName()][n]))
				}
				return
			}
			if child := f.children[s.GetFunctionName()]; child != nil {
				f.append(ex, completed(p, 1, child(s.GetInput())))
			}
		}
	}
}

// deliver sends a signal to an execution.
func (f *fakeServer) deliver(ex *fakeExec, name string, payload *perdurev1.Outcome) {
	f.append(ex, &perdurev1.Event{Kind: &perdurev1.Event_SignalDelivered{SignalDelivered: &perdurev1.SignalDelivered{
		Name: name, Payload: payload, DeliveryId: ex.j.Deliveries(name) + 1}}})
	if kind, on, waited, blocked := ex.j.Wait(); blocked && kind == journal.AwaitSignal && waited == name {
		f.append(ex, f.receipt(ex, string(on[0]), name))
		f.resume(ex)
	}
	f.signalFutures(ex, name)
}

// receipt is the SignalReceived of the oldest delivery not consumed.
func (f *fakeServer) receipt(ex *fakeExec, p, name string) *perdurev1.Event {
	n, _, _ := ex.j.NextReceipt(name)
	for _, e := range ex.entries {
		if d := e.GetEvent().GetSignalDelivered(); d.GetName() == name && d.GetDeliveryId() == n {
			return &perdurev1.Event{Kind: &perdurev1.Event_SignalReceived{SignalReceived: &perdurev1.SignalReceived{
				PromiseId: p, Name: name, Payload: d.GetPayload(), DeliveryId: n}}}
		}
	}
	f.t.Errorf("fake: no delivery of %q", name)
	return nil
}

func started(p string, n uint32) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_InvokeStarted{InvokeStarted: &perdurev1.InvokeStarted{PromiseId: p, Attempt: n}}}
}

func completed(p string, n uint32, o *perdurev1.Outcome) *perdurev1.Event {
	return &perdurev1.Event{Kind: &perdurev1.Event_InvokeCompleted{InvokeCompleted: &perdurev1.InvokeCompleted{PromiseId: p, Attempt: n, Result: o}}}
}

func value(text string) *perdurev1.Outcome {
	return &perdurev1.Outcome{Result: &perdurev1.Outcome_Value{Value: []byte(text)}}
}

func failure(typ, message string) *perdurev1.Outcome {
	return &perdurev1.Outcome{Result: &perdurev1.Outcome_Failure{Failure: &perdurev1.Failure{Type: typ, Message: message}}}
}
