package rpc

import (
	"context"
	"errors"
	"io"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

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
	// batches: the worker reads several messages in one.
	batches bool

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
	// out is used by flush.
	out []*perdurev1.WorkResponse

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
	w.code, w.batches = codeOf(hello), hello.Batches
	var serves []string
	if hello.ComponentDigest != "" {
		serves = append([]string{hello.ComponentDigest}, hello.CompatibleDigests...)
	}
	w.worker = t.s.dispatcher.Attach(workers.Spec{
		ID: hello.WorkerId, Namespace: w.ns, Functions: hello.Functions, Digests: serves, LeaseMS: hello.LeaseMs, Capacity: int(hello.Capacity), Held: hello.Held,
		Timestamp: first.Timestamp, Splits: hello.SplitsCredit, Signals: hello.Signals, MaxKept: int(min(hello.Keeps, math.MaxInt32)),
	})
	w.reported = time.Now()
	defer w.worker.Detach()
	gone := lost()
	w.worker.Finished(gone...)
	if err := w.send(&perdurev1.WorkResponse{CallId: first.CallId, Kind: &perdurev1.WorkResponse_Welcome{
		Welcome: &perdurev1.Welcome{NodeId: t.s.cfg.NodeID, LeaseMs: hello.LeaseMs, Lost: gone, Batches: true}}}); err != nil {
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

// Bounds of the messages that are sent together. One always fits.
const (
	maxBatch      = 256
	maxBatchBytes = 128 << 10
)

// sendAll sends messages in their order, together if the worker reads that.
func (w *session) sendAll(all []*perdurev1.WorkResponse) error {
	for len(all) > 0 {
		n := 1
		if w.batches {
			n = fitting(all)
		}
		m := all[0]
		if n > 1 {
			m = &perdurev1.WorkResponse{Batch: all[:n]}
		}
		if err := w.send(m); err != nil {
			return err
		}
		all = all[n:]
	}
	return nil
}

// fitting is how many of the first messages fit into one.
func fitting(all []*perdurev1.WorkResponse) int {
	for n, bytes := 0, 0; ; n++ {
		if n == min(len(all), maxBatch) {
			return n
		}
		if bytes += proto.Size(all[n]); n > 0 && bytes > maxBatchBytes {
			return n
		}
	}
}

// deliver sends tasks and cancellations to the worker until the stream ends. It sends those together that wait.
func (w *session) deliver() {
	var all []*perdurev1.WorkResponse
	for {
		d, ok := w.worker.Next(w.ctx)
		if !ok {
			return
		}
		bytes := 0
		for ; ok; d, ok = w.worker.More(w.ctx) {
			m := messageOf(d)
			all = append(all, m)
			if bytes += proto.Size(m); !w.batches || len(all) == maxBatch || bytes >= maxBatchBytes {
				break
			}
		}
		if w.sendAll(all) != nil {
			return
		}
		clear(all)
		all = all[:0]
	}
}

// messageOf is the message of a delivery.
func messageOf(d workers.Delivery) *perdurev1.WorkResponse {
	switch {
	case d.Notice != nil:
		return d.Notice
	case d.Cancelling:
		return &perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Heartbeat{
			Heartbeat: &perdurev1.HeartbeatReply{Cancelling: []*perdurev1.TaskToken{d.Token}}}}
	case d.Signal != nil:
		return &perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_SignalArrived{SignalArrived: d.Signal}}
	default:
		return &perdurev1.WorkResponse{Kind: &perdurev1.WorkResponse_Task{Task: d.Task}}
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
			w.handleAll(in, release)
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

// handleAll handles a message, or those of a batch, and calls release when all are done: they share its memory. A message
// with something else is none that has a batch.
func (w *session) handleAll(in *perdurev1.WorkRequest, release func()) {
	if len(in.Batch) == 0 || in.Kind != nil || in.CallId != 0 {
		w.handle(in, release)
		return
	}
	release = releasedTogether(len(in.Batch), release)
	for _, m := range in.Batch {
		w.handle(m, release)
	}
}

// releasedTogether returns a function that calls release at its nth call.
func releasedTogether(n int, release func()) func() {
	left := new(atomic.Int64)
	left.Store(int64(n))
	return func() {
		if left.Add(-1) == 0 {
			release()
		}
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
