package rpc

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/callstream/async"
	"perdure/partition/workers"
)

// Bounds of a worker's stream.
const (
	maxFunctions  = 1024
	maxCompatible = 64
	maxCapacity   = 100_000
	minLeaseMS    = 1_000
	maxLeaseMS    = 600_000
	maxCalls      = 4096    // calls of one stream in progress
	maxReplyBytes = 8 << 20 // of the answer to a commit
	helloTimeout  = 10 * time.Second
	// helloPartitionsTimeout bounds the wait for partitions before the Welcome.
	helloPartitionsTimeout = 3 * time.Second
	// heldFraction: a Hello waits 1/heldFraction of the lease for the partitions of its held tasks.
	heldFraction = 4
	drainTimeout = time.Second
	// Bounds of one heartbeat: tasks, and bytes of their ids.
	maxBeatTasks = 4096
	maxBeatBytes = 1 << 20
	// lateBeats bounds the unanswered parts of heartbeats.
	lateBeats = 1024
	// reportsPerLease bounds how often in a lease the session reports the worker as alive to the dispatcher.
	reportsPerLease = 32
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
	code   string // see codeOf
	worker *workers.Worker

	sending  sync.Mutex
	calls    chan struct{} // bounds calls in progress
	under    inflight      // counts them
	lease    time.Duration
	reported time.Time     // when the session last reported the worker as alive
	beats    chan struct{} // bounds the parts of heartbeats in progress

	// async are the writes without a goroutine; expire is when to look for those that take long. wake has the writer run
	// steps and send answers.
	async  *async.Calls
	expire *time.Timer
	wake   chan struct{}

	mu             sync.Mutex
	answers, spare []pendingAnswer // for the writer
	over           bool            // no call begins any more
}

// Work implements Tasks.
func (t *tasks) Work(stream perdurev1.Tasks_WorkServer) error {
	ctx, cancel := context.WithCancel(stream.Context())
	defer cancel()
	w := &session{s: t.s, stream: stream, ctx: ctx, calls: make(chan struct{}, maxCalls), beats: make(chan struct{}, lateBeats),
		expire: time.NewTimer(time.Hour), wake: make(chan struct{}, 1)}
	w.async = async.New(async.Options{Wake: w.signal, Run: func(f func()) { go f() }})
	defer w.expire.Stop()
	first, hello, err := w.readHello()
	if err != nil {
		return err
	}
	// A worker that reconnects replaces its own stream, whose end may not be known yet.
	if !t.s.workers.reserve(t.s.cfg.MaxWorkers, t.s.dispatcher.Attached(w.ns, hello.WorkerId)) {
		return api.Errorf(perdurev1.Reason_REASON_OVERLOADED, "worker stream exceeds the node's limit of %d streams", t.s.cfg.MaxWorkers)
	}
	defer t.s.workers.release()
	w.lease = time.Duration(hello.LeaseMs) * time.Millisecond
	lost := w.extendHeld(hello) // first, because the worker's former node may have extended none of these leases
	if err := w.register(hello); err != nil {
		return err
	}
	w.code = codeOf(hello)
	var serves []string
	if hello.ComponentDigest != "" {
		serves = append([]string{hello.ComponentDigest}, hello.CompatibleDigests...)
	}
	w.worker = t.s.dispatcher.Attach(workers.Spec{
		ID: hello.WorkerId, Namespace: w.ns, Functions: hello.Functions, Digests: serves, LeaseMS: hello.LeaseMs, Capacity: int(hello.Capacity), Held: hello.Held,
		Timestamp: first.Timestamp, Splits: hello.SplitsCredit,
	})
	w.reported = time.Now()
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
	written := make(chan struct{})
	go func() {
		defer close(written)
		w.write()
	}()
	err = w.receive()
	w.mu.Lock()
	w.over = true
	w.mu.Unlock()
	cancel()
	<-written
	w.async.Interrupt()
	w.async.Process()
	// Let answers out; returning ends the stream.
	over := time.NewTimer(drainTimeout)
	defer over.Stop()
	for {
		w.flush()
		select {
		case <-w.under.ended():
			return err
		case <-w.wake:
		case <-over.C:
			return err
		}
	}
}

// ListNodes implements Tasks. A node that has not learnt its cluster yet names itself alone.
func (t *tasks) ListNodes(_ context.Context, _ *perdurev1.ListNodesRequest) (*perdurev1.NodeList, error) {
	if list := t.s.dispatcher.Nodes(); list != nil {
		return list, nil
	}
	return &perdurev1.NodeList{NodeId: t.s.cfg.NodeID, Nodes: []*perdurev1.ClusterAddress{{NodeId: t.s.cfg.NodeID}}}, nil
}

// workerStreams counts the worker streams, from before they attach until they have ended.
type workerStreams struct {
	mu sync.Mutex
	n  int
}

// reserve counts one more stream; false if there are limit already and this one replaces none.
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

// drain sends Drain and waits for the calls in progress, both at most drainTimeout: the worker may not read.
func (w *session) drain() {
	timeout := time.NewTimer(drainTimeout)
	defer timeout.Stop()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		_ = w.send(&perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Drain{Drain: &perdurev1.Drain{}}}) // the stream ends either way
	}()
	select {
	case <-sent:
	case <-timeout.C:
		return
	case <-w.ctx.Done():
		return
	}
	select {
	case <-w.under.ended():
	case <-timeout.C:
	case <-w.ctx.Done():
	}
}

func (w *session) send(m *perdurev1.WorkResponse) error {
	w.sending.Lock()
	defer w.sending.Unlock()
	return w.stream.Send(m)
}

// deliver sends tasks and cancellations to the worker until the stream ends.
func (w *session) deliver() {
	for {
		d, ok := w.worker.Next(w.ctx)
		if !ok {
			return
		}
		if d.Notice != nil {
			if w.send(d.Notice) != nil {
				return
			}
			continue
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

// receive handles the worker's messages until the stream ends.
func (w *session) receive() error {
	ended := make(chan error, 1)
	go func() { // only the stream's end ends a Recv, and the stream ends when the handler returns
		for {
			in, err := w.stream.Recv()
			release := w.s.gate.Keep(w.stream.Context())
			if err != nil {
				release()
				ended <- err
				return
			}
			w.handle(in, release)
		}
	}()
	select {
	case err := <-ended:
		if errors.Is(err, io.EOF) {
			return nil
		}
		return err
	case <-w.ctx.Done():
		if w.s.isStopping() {
			return errStopping()
		}
		return w.ctx.Err()
	}
}

// handle handles one message and calls release when it is done. It blocks while maxCalls calls are in progress.
func (w *session) handle(in *perdurev1.WorkRequest, release func()) {
	if now := time.Now(); now.Sub(w.reported) >= w.lease/reportsPerLease {
		w.reported = now
		w.worker.Heard(in.Timestamp)
	}
	if credit := in.GetCredit(); credit != nil {
		release()
		w.worker.AddCapacity(int(min(credit.Tasks, maxCapacity)))
		return
	}
	if revoke := in.GetRevokeCredit(); revoke != nil {
		release()
		w.worker.Revoke(int(min(revoke.Tasks, maxCapacity)))
		return
	}
	select {
	case w.calls <- struct{}{}:
	case <-w.ctx.Done():
		release()
		return
	}
	w.mu.Lock()
	over := w.over
	if !over {
		w.under.begin()
	}
	w.mu.Unlock()
	if over {
		<-w.calls
		release()
		return
	}
	if isWrite(in) {
		w.beginWrite(in, release)
		return
	}
	go func() {
		out, err := w.call(in)
		if err != nil {
			out = errorResponse(err)
		}
		out.CallId = in.CallId
		w.queue(pendingAnswer{out: out, release: release})
		w.signal()
	}()
}

func callError(err error) *perdurev1.CallError {
	e, ok := api.FromStatus(err)
	if !ok {
		e = api.Errorf(perdurev1.Reason_REASON_OUTCOME_UNKNOWN, "%v", err)
	}
	return &perdurev1.CallError{Code: int32(api.Code(e.Reason)), Reason: e.Reason, Message: e.Message, Metadata: e.Meta}
}
