package rpc

import (
	"context"
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition"
)

// Bounds of a worker's stream.
const (
	maxFunctions   = 1024
	maxCapacity    = 100_000
	minLeaseMS     = 1_000
	maxLeaseMS     = 600_000
	maxCalls       = 4096     // commits and other calls of one stream under way at once
	maxCommitBytes = 16 << 20 // of all events of one commit
	maxReplyBytes  = 8 << 20  // of the answer to one
	helloTimeout   = 10 * time.Second
	// helloPartitionsTimeout is how long a worker waits for partitions that do not answer before it begins.
	helloPartitionsTimeout = 3 * time.Second
	// heldFraction is the part of a lease that it waits for partitions to say what it holds.
	heldFraction = 4
	drainTimeout = time.Second
	// Of one heartbeat: tasks, and bytes of their ids.
	maxBeatTasks = 4096
	maxBeatBytes = 1 << 20
	// lateBeats bounds the parts of heartbeats that partitions have not answered in time.
	lateBeats = 1024
	// hearsPerLease is how often in a lease the dispatcher is told that the worker says something.
	hearsPerLease = 32
)

type tasks struct {
	perdurev1.UnimplementedTasksServer
	s *Server
}

// session is one worker stream.
type session struct {
	s      *Server
	stream perdurev1.Tasks_WorkServer
	ctx    context.Context
	ns     string
	worker *partition.Worker

	sending sync.Mutex
	calls   chan struct{} // bounds calls under way
	under   inflight      // counts them
	lease   time.Duration
	heard   time.Time     // when the dispatcher was told last that the worker says something
	beats   chan struct{} // bounds the parts of heartbeats under way
}

// Work implements Tasks.
func (t *tasks) Work(stream perdurev1.Tasks_WorkServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	w := &session{s: t.s, stream: stream, ctx: ctx, calls: make(chan struct{}, maxCalls), beats: make(chan struct{}, lateBeats)}
	first, hello, err := w.introduce()
	if err != nil {
		return err
	}
	// A worker that comes back replaces its own stream, which may not be known to be over yet.
	if !t.s.workers.reserve(t.s.cfg.MaxWorkers, t.s.dispatcher.Attached(w.ns, hello.WorkerId)) {
		return api.Errorf(perdurev1.Reason_REASON_OVERLOADED, "the node has %d worker streams, which is its limit", t.s.cfg.MaxWorkers)
	}
	defer t.s.workers.release()
	w.lease = time.Duration(hello.LeaseMs) * time.Millisecond
	lost := w.extendHeld(hello) // before all else: the worker's former node may have extended none of these leases
	if err := w.register(hello); err != nil {
		return err
	}
	w.worker = t.s.dispatcher.Attach(partition.WorkerSpec{
		ID: hello.WorkerId, Namespace: w.ns, Functions: hello.Functions, LeaseMS: hello.LeaseMs, Room: int(hello.Capacity), Held: hello.Held,
		Timestamp: first.Timestamp,
	})
	w.heard = time.Now()
	defer w.worker.Detach()
	gone := lost()
	w.worker.Finished(gone...)
	if err := w.send(&perdurev1.WorkResponse{CallId: first.CallId, Kind: &perdurev1.WorkResponse_Welcome{
		Welcome: &perdurev1.Welcome{NodeId: t.s.cfg.NodeID, LeaseMs: hello.LeaseMs, Lost: gone}}}); err != nil {
		return err
	}
	t.s.log.Info("worker attached", "event", "worker_attached", "worker", hello.WorkerId, "namespace", w.ns, "functions", len(hello.Functions), "held", len(hello.Held))
	defer t.s.log.Info("worker detached", "event", "worker_detached", "worker", hello.WorkerId)

	go func() {
		w.deliver()
		cancel()
	}()
	go func() {
		select {
		case <-t.s.stopping:
			w.drain()
			cancel()
		case <-ctx.Done():
		}
	}()
	err = w.receive()
	cancel()
	// Answers on their way are let out; returning ends the stream, and with it what cannot be sent.
	select {
	case <-w.under.ended():
	case <-time.After(drainTimeout):
	}
	return err
}

// workerStreams counts the streams that may attach a worker, from before they do until they have ended.
type workerStreams struct {
	mu sync.Mutex
	n  int
}

// reserve counts one stream more; false if there are limit already and this one replaces none of them.
func (w *workerStreams) reserve(limit int, replaces bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.n >= limit && !replaces {
		return false
	}
	w.n++
	return true
}

func (w *workerStreams) release() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.n--
}

// drain tells the worker that the node stops, and lets the calls end that are under way. It does not wait
// long for a worker that does not read.
func (w *session) drain() {
	patience := time.NewTimer(drainTimeout)
	defer patience.Stop()
	told := make(chan struct{})
	go func() {
		defer close(told)
		_ = w.send(&perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Drain{Drain: &perdurev1.Drain{}}}) // the stream ends either way
	}()
	select {
	case <-told:
	case <-patience.C:
		return
	case <-w.ctx.Done():
		return
	}
	select {
	case <-w.under.ended():
	case <-patience.C:
	case <-w.ctx.Done():
	}
}

// introduce reads and checks the first message.
func (w *session) introduce() (*perdurev1.WorkRequest, *perdurev1.Hello, error) {
	type message struct {
		in  *perdurev1.WorkRequest
		err error
	}
	got := make(chan message, 1)
	go func() {
		in, err := w.stream.Recv()
		got <- message{in, err}
	}()
	timeout := time.NewTimer(helloTimeout)
	defer timeout.Stop()
	var m message
	select {
	case m = <-got:
	case <-timeout.C:
		return nil, nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "no Hello came within %s", helloTimeout)
	}
	if m.err != nil {
		return nil, nil, m.err
	}
	h := m.in.GetHello()
	if h == nil {
		return nil, nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the first message of a worker stream must be Hello")
	}
	ns, err := namespace(h.Namespace)
	if err := firstError(err, name("worker id", h.WorkerId)); err != nil {
		return nil, nil, err
	}
	if len(h.Functions) == 0 || len(h.Functions) > maxFunctions {
		return nil, nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "a worker serves 1 to %d functions, not %d", maxFunctions, len(h.Functions))
	}
	for _, fn := range h.Functions {
		if err := function(fn); err != nil {
			return nil, nil, err
		}
	}
	if len(h.Held) > maxCapacity {
		return nil, nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "%d tasks are held, at most %d", len(h.Held), maxCapacity)
	}
	if h.Capacity > maxCapacity {
		return nil, nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "capacity of %d tasks exceeds %d", h.Capacity, maxCapacity)
	}
	if h.LeaseMs == 0 {
		h.LeaseMs = w.s.cfg.Lease.Milliseconds()
	}
	if h.LeaseMs < minLeaseMS || h.LeaseMs > maxLeaseMS {
		return nil, nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "a lease of %d ms; it must be %d to %d", h.LeaseMs, minLeaseMS, maxLeaseMS)
	}
	w.ns = ns
	for _, t := range h.Held {
		if err := w.own(t); err != nil {
			return nil, nil, err
		}
	}
	return m.in, h, nil
}

// everywhere has something done for partitions, beside each other, and waits for it, but not beyond a deadline. What is
// not done by then, because a partition has no leader, goes on while the stream lives: the worker serves the
// others. A refusal that will not change is answered at once.
func (w *session) everywhere(what string, within time.Duration, partitions []uint32, do func(ctx context.Context, partition uint32) error) error {
	refusals := make(chan error, len(partitions))
	for _, p := range partitions {
		go func() {
			err := w.s.retry(w.ctx, func() error {
				ctx, cancel := context.WithTimeout(w.ctx, writeTimeout)
				defer cancel()
				return do(ctx, p)
			})
			if api.Is(err, perdurev1.Reason_REASON_CORRUPT) {
				// One damaged state must not stop the others.
				w.s.log.Warn("a worker does without a partition that has halted", "event", "worker_partition_halted", "partition", p, "error", err)
				err = nil
			}
			refusals <- err
		}()
	}
	patience := time.NewTimer(within)
	defer patience.Stop()
	for range partitions {
		select {
		case err := <-refusals:
			if err != nil {
				return err
			}
		case <-patience.C:
			w.s.log.Warn("a worker begins before all partitions answer", "event", "worker_partitions_late", "what", what)
			return nil
		case <-w.ctx.Done():
			return w.ctx.Err()
		}
	}
	return nil
}

// register makes the worker's functions known to every partition.
func (w *session) register(h *perdurev1.Hello) error {
	var all []uint32
	for p := range w.s.router.Partitions() {
		all = append(all, p)
	}
	return w.everywhere("its functions", helloPartitionsTimeout, all, func(ctx context.Context, p uint32) error {
		// A replica that lags may not know them yet; they are registered once more then.
		reply, _, err := w.s.router.Read(ctx, p, partition.Stale, &commandv1.Query{Namespace: w.ns, Kind: &commandv1.Query_Functions{
			Functions: &commandv1.FunctionsQuery{Functions: h.Functions}}})
		if err != nil {
			return err
		}
		unknown := reply.GetFunctions().Unknown
		if len(unknown) == 0 {
			return nil
		}
		_, err = w.s.router.Deliver(ctx, p, &commandv1.Command{Namespace: w.ns, Kind: &commandv1.Command_RegisterFunctions{
			RegisterFunctions: &commandv1.RegisterFunctions{Functions: unknown}}})
		return err
	})
}

// isRetryable reports whether err carries a reason that api.Retryable accepts.
func isRetryable(err error) bool {
	var e *api.Error
	return errors.As(err, &e) && api.Retryable(e.Reason)
}

// retry repeats what was surely not applied, or may be applied twice, until it works or ctx ends.
func (s *Server) retry(ctx context.Context, try func() error) error {
	pause := 5 * time.Millisecond
	for {
		err := try()
		switch {
		case err == nil:
			return nil
		case !isRetryable(err), api.Is(err, perdurev1.Reason_REASON_SHUTTING_DOWN) && s.isStopping():
			return err
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
		pause = min(2*pause, 500*time.Millisecond)
	}
}

// extendHeld extends the leases of the tasks that a worker says it holds, in all partitions beside each other, as a
// heartbeat does. The function that it returns waits for the partitions, at most for an eighth of the lease, and
// returns the tasks that are no longer the worker's by the state. The worker's heartbeats find out what a partition
// has not said by then. Tasks that the worker holds and does not know of come with the others.
func (w *session) extendHeld(h *perdurev1.Hello) (lost func() []*perdurev1.TaskToken) {
	claimed := w.s.router.ByPartition(h.Held)
	var mu sync.Mutex
	var gone []*perdurev1.TaskToken
	done := make(chan error, 1)
	go func() {
		done <- w.everywhere("what it holds", w.lease/heldFraction, slices.Sorted(maps.Keys(claimed)), func(ctx context.Context, p uint32) error {
			for left := claimed[p]; len(left) > 0; {
				n := beatLength(left)
				reply, err := w.s.router.Deliver(ctx, p, &commandv1.Command{Kind: &commandv1.Command_Heartbeat{
					Heartbeat: &commandv1.Heartbeat{Worker: h.WorkerId, Tasks: left[:n]}}})
				if err != nil {
					return err
				}
				left = left[n:]
				mu.Lock()
				gone = append(gone, reply.GetHeartbeat().GetLost()...)
				mu.Unlock()
			}
			return nil
		})
	}()
	return func() []*perdurev1.TaskToken {
		if err := <-done; err != nil && w.ctx.Err() == nil {
			w.s.log.Warn("what a worker holds could not be compared", "event", "worker_not_compared", "worker", h.WorkerId, "error", err)
		}
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(gone)
	}
}

// beatLength is how many of these tasks one heartbeat may name: at least one.
func beatLength(tasks []*perdurev1.TaskToken) int {
	size := 0
	for i, t := range tasks {
		size += len(t.Namespace) + len(t.Id)
		if i > 0 && (i == maxBeatTasks || size > maxBeatBytes) {
			return i
		}
	}
	return len(tasks)
}

func (w *session) send(m *perdurev1.WorkResponse) error {
	w.sending.Lock()
	defer w.sending.Unlock()
	return w.stream.Send(m)
}

// deliver tells the worker of tasks that have become its own, and of cancels.
func (w *session) deliver() {
	for {
		d, ok := w.worker.Next(w.ctx)
		if !ok {
			return
		}
		if d.Cancelling {
			if w.send(&perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Heartbeat{
				Heartbeat: &perdurev1.HeartbeatReply{Cancelling: []*perdurev1.TaskToken{d.Token}}}}) != nil {
				return
			}
			continue
		}
		if w.send(&perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Task{Task: d.Task}}) != nil {
			return
		}
	}
}

// receive reads the worker's messages until the stream ends.
func (w *session) receive() error {
	type message struct {
		in      *perdurev1.WorkRequest
		err     error
		release func() // gives back the bytes that the message is charged
	}
	// Recv cannot be cancelled but by the stream's end, and the stream ends when this handler returns.
	in := make(chan message)
	go func() {
		for {
			m, err := w.stream.Recv()
			release := w.s.gate.Keep(w.stream.Context())
			select {
			case in <- message{m, err, release}:
			case <-w.ctx.Done():
				release()
				return
			}
			if err != nil {
				return
			}
		}
	}()
	for {
		select {
		case m := <-in:
			if m.err != nil {
				m.release()
			}
			if errors.Is(m.err, io.EOF) {
				return nil
			}
			if m.err != nil {
				return m.err
			}
			if err := w.handle(m.in, m.release); err != nil {
				return err
			}
		case <-w.ctx.Done():
			if w.s.isStopping() {
				return errStopping()
			}
			return w.ctx.Err()
		}
	}
}

// handle takes one message, and calls release when it is done with it. Calls run beside each other: the worker has
// many executions under way.
func (w *session) handle(in *perdurev1.WorkRequest, release func()) error {
	if now := time.Now(); now.Sub(w.heard) >= w.lease/hearsPerLease {
		w.heard = now
		w.worker.Heard(in.Timestamp)
	}
	if credit := in.GetCredit(); credit != nil {
		release()
		w.worker.AddRoom(int(min(credit.Tasks, maxCapacity)))
		return nil
	}
	select {
	case w.calls <- struct{}{}:
	case <-w.ctx.Done():
		release()
		return nil
	}
	w.under.begin()
	go func() {
		defer func() { <-w.calls; w.under.end(); release() }()
		out, err := w.call(in)
		if err != nil {
			out = &perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Error{Error: callError(err)}}
		}
		out.CallId = in.CallId
		_ = w.send(out) // a broken stream ends the receive loop
	}()
	return nil
}

func callError(err error) *perdurev1.CallError {
	e, ok := api.FromStatus(err)
	if !ok {
		e = api.Errorf(perdurev1.Reason_REASON_OUTCOME_UNKNOWN, "%v", err)
	}
	return &perdurev1.CallError{Code: int32(api.Code(e.Reason)), Reason: e.Reason, Message: e.Message, Metadata: e.Meta}
}

func (w *session) call(in *perdurev1.WorkRequest) (*perdurev1.WorkResponse, error) {
	ctx, cancel := context.WithTimeout(w.ctx, writeTimeout)
	defer cancel()
	switch k := in.Kind.(type) {
	case *perdurev1.WorkRequest_Commit:
		return w.commit(ctx, k.Commit)
	case *perdurev1.WorkRequest_Heartbeat:
		return w.heartbeat(ctx, k.Heartbeat)
	case *perdurev1.WorkRequest_Release:
		return w.release(ctx, k.Release)
	case *perdurev1.WorkRequest_ReadJournal:
		return w.readJournal(ctx, k.ReadJournal)
	case *perdurev1.WorkRequest_Hello:
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "Hello comes once, first")
	default:
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "a message of an unknown kind")
	}
}

// own checks that a token is of the stream's namespace.
func (w *session) own(t *perdurev1.TaskToken) error {
	if t == nil {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the task token is missing")
	}
	if t.Namespace == "" {
		t.Namespace = w.ns
	}
	if t.Namespace != w.ns {
		return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the task is of namespace %q, the stream of %q", t.Namespace, w.ns).With("id", short(t.Id))
	}
	return anyID(t.Id)
}

func (w *session) commit(ctx context.Context, c *perdurev1.Commit) (*perdurev1.WorkResponse, error) {
	rid, err := request(c.Request)
	if err := firstError(err, w.own(c.Task), commitForm(c)); err != nil {
		return nil, err
	}
	c.Request = nil
	credit := c.Credit
	c.Credit = 0
	reply, err := w.s.propose(ctx, &commandv1.Command{Request: rid, Namespace: c.Task.Namespace, Id: c.Task.Id, Kind: &commandv1.Command_Commit{Commit: c}})
	if err != nil {
		w.refused(c.Task, err)
		return nil, err
	}
	out := reply.GetCommit()
	if out.State != perdurev1.TaskState_TASK_STATE_ACQUIRED {
		w.worker.Finished(c.Task)
		w.worker.AddRoom(int(min(credit, maxCapacity)))
	}
	if proto.Size(out) > maxReplyBytes {
		// More has arrived meanwhile than a message should carry. An answer that lacks entries sends the
		// worker to the journal, which comes in pages.
		out = &perdurev1.CommitReply{State: out.State, Status: out.Status, NextSeq: out.NextSeq, NextChild: out.NextChild}
	}
	return &perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Commit{Commit: out}}, nil
}

// refused notes that a task is not the worker's any more, if that is why a call failed.
func (w *session) refused(t *perdurev1.TaskToken, err error) {
	if api.Is(err, perdurev1.Reason_REASON_STALE_TASK) {
		w.worker.Finished(t)
	}
}

// commitForm checks the sizes and names in a commit.
func commitForm(c *perdurev1.Commit) error {
	total := 0
	counted := func(n int) error {
		if total += n; total > maxCommitBytes {
			return api.Errorf(perdurev1.Reason_REASON_PAYLOAD_TOO_LARGE, "the commit's payloads have more than %d bytes", maxCommitBytes).With("id", c.Task.GetId())
		}
		return nil
	}
	sized := func(what, promise string, b []byte) error {
		return firstError(payload(what+" of "+short(promise), b), counted(len(b)))
	}
	failed := func(promise string, f *perdurev1.Failure) error {
		return firstError(failure("failure of "+short(promise), f), counted(failureBytes(f)))
	}
	for _, ev := range c.Events {
		var err error
		switch k := ev.Kind.(type) {
		case *perdurev1.Event_InvokeScheduled:
			e := k.InvokeScheduled
			err = firstError(function(e.FunctionName), sized("input", e.PromiseId, e.Input), anyID(e.PromiseId),
				text("retry policy", e.RetryPolicy, maxPolicyBytes))
		case *perdurev1.Event_InvokeCompleted:
			e := k.InvokeCompleted
			err = firstError(sized("result", e.PromiseId, e.Result.GetValue()), failed(e.PromiseId, e.Result.GetFailure()))
		case *perdurev1.Event_InvokeRetrying:
			err = failed(k.InvokeRetrying.PromiseId, k.InvokeRetrying.Error)
		case *perdurev1.Event_RandomGenerated:
			err = sized("value", k.RandomGenerated.PromiseId, k.RandomGenerated.Value)
		case *perdurev1.Event_ExecutionCompleted:
			err = sized("result", c.Task.GetId(), k.ExecutionCompleted.Result)
		case *perdurev1.Event_ExecutionFailed:
			err = failed(c.Task.GetId(), k.ExecutionFailed.Error)
		case *perdurev1.Event_ExecutionCancelled:
			err = reason(k.ExecutionCancelled.Reason)
		case *perdurev1.Event_ExecutionAwaiting:
			if k.ExecutionAwaiting.Kind == perdurev1.AwaitKind_AWAIT_KIND_SIGNAL {
				err = name("signal", k.ExecutionAwaiting.SignalName)
			}
		}
		if err != nil {
			return err
		}
	}
	for _, o := range c.Children {
		if err := firstError(tags(o.Tags), duration("timeout", o.TimeoutMs)); err != nil {
			return err
		}
	}
	for _, s := range c.Sends {
		var err error
		switch k := s.What.(type) {
		case *perdurev1.Send_Signal:
			err = firstError(anyID(k.Signal.Id), name("signal", k.Signal.Name), sized("signal", s.PromiseId, k.Signal.Payload))
		case *perdurev1.Send_Start:
			err = firstError(rootID(k.Start.Id), function(k.Start.Function), sized("input", s.PromiseId, k.Start.Input), tags(k.Start.Tags),
				duration("timeout", k.Start.TimeoutMs))
		}
		if err != nil {
			return err
		}
	}
	return duration("wait", c.WaitTimeoutMs)
}

// heartbeat extends the leases of what the worker holds, in all partitions beside each other. What a partition has not
// answered within a quarter of the lease is unknown; it goes on being asked until the lease would be over.
func (w *session) heartbeat(_ context.Context, h *perdurev1.Heartbeat) (*perdurev1.WorkResponse, error) {
	if len(h.Tasks) > maxBeatTasks {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "a heartbeat of %d tasks exceeds %d", len(h.Tasks), maxBeatTasks)
	}
	size := 0
	for _, t := range h.Tasks {
		if err := w.own(t); err != nil {
			return nil, err
		}
		size += len(t.Namespace) + len(t.Id)
	}
	if size > maxBeatBytes {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "a heartbeat with %d bytes of ids exceeds %d", size, maxBeatBytes)
	}
	type answer struct {
		partition uint32
		reply     *commandv1.HeartbeatReply
	}
	asked := w.s.router.ByPartition(h.Tasks)
	answers := make(chan answer, len(asked))
	waiting := 0
	for p, tokens := range asked {
		select {
		case w.beats <- struct{}{}:
		default:
			continue // too many are late already
		}
		waiting++
		go func() {
			defer func() { <-w.beats }()
			ctx, cancel := context.WithTimeout(w.ctx, w.lease)
			defer cancel()
			reply, err := w.s.router.Deliver(ctx, p, &commandv1.Command{Kind: &commandv1.Command_Heartbeat{
				Heartbeat: &commandv1.Heartbeat{Worker: w.worker.ID, Tasks: tokens}}})
			if err != nil {
				reply = nil
			}
			answers <- answer{p, reply.GetHeartbeat()}
		}()
	}
	timeout := time.NewTimer(w.lease / 4)
	defer timeout.Stop()
	out := &perdurev1.HeartbeatReply{}
	for late := false; waiting > 0 && !late; {
		select {
		case a := <-answers:
			waiting--
			if a.reply != nil {
				out.Lost = append(out.Lost, a.reply.Lost...)
				out.Cancelling = append(out.Cancelling, a.reply.Cancelling...)
				delete(asked, a.partition)
			}
		case <-timeout.C:
			late = true
		case <-w.ctx.Done():
			return nil, w.ctx.Err()
		}
	}
	for _, tokens := range asked {
		out.Unknown = append(out.Unknown, tokens...)
	}
	w.worker.Finished(out.Lost...)
	return &perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Heartbeat{Heartbeat: out}}, nil
}

func (w *session) release(ctx context.Context, r *perdurev1.Release) (*perdurev1.WorkResponse, error) {
	if err := firstError(w.own(r.Task), duration("delay", r.DelayMs)); err != nil {
		return nil, err
	}
	credit := r.Credit
	r.Credit = 0
	_, err := w.s.propose(ctx, &commandv1.Command{Namespace: r.Task.Namespace, Id: r.Task.Id, Kind: &commandv1.Command_Release{Release: r}})
	if err != nil {
		w.refused(r.Task, err)
		return nil, err
	}
	w.worker.Finished(r.Task)
	w.worker.AddRoom(int(min(credit, maxCapacity)))
	return &perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Release{Release: &perdurev1.ReleaseReply{}}}, nil
}

func (w *session) readJournal(ctx context.Context, r *perdurev1.ReadJournal) (*perdurev1.WorkResponse, error) {
	if err := anyID(r.Id); err != nil {
		return nil, err
	}
	reply, _, err := w.s.router.Query(ctx, partition.Linearizable, &commandv1.Query{Namespace: w.ns, Id: r.Id, Kind: &commandv1.Query_Journal{
		Journal: &perdurev1.JournalRequest{FromSeq: r.FromSeq}}})
	if err != nil {
		return nil, err
	}
	page := reply.GetJournal()
	return &perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Journal{Journal: &perdurev1.JournalPage{Entries: page.Entries, NextSeq: page.NextSeq}}}, nil
}
