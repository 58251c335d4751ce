package callstream

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"perdure/internal/callstream/async"
)

const (
	// maxUnsent bounds the bytes of answers that wait for a client before the server reads further requests of it.
	maxUnsent = 1 << 20
	// maxIdle is how many goroutines wait for the next call: their stacks have grown already.
	maxIdle = 64
	// maxSpareRequests is for how many requests a stream keeps memory from one message to the next.
	maxSpareRequests = 256
)

// ServerOptions are the settings of a Server.
type ServerOptions struct {
	// Name is the full name of the service whose method Stream carries the calls.
	Name string
	// Intercept run around each call, the first one outermost.
	Intercept []grpc.UnaryServerInterceptor
	// Keep takes over the bytes of the message that the stream of ctx has received last, in parts of the given sizes. Each
	// call's context comes with its part, see WithPart. Nil for none.
	Keep func(ctx context.Context, sizes []int) []func()
	// WithPart gives the context of a call its part of the kept bytes, which the handler may release before it ends.
	WithPart func(ctx context.Context, release func()) context.Context
	// Overloaded is the answer to a call beyond the bound of those under way on one stream.
	Overloaded func(message string) error
	// Holds reports errors that are held for up to Hold, to be sent with the answers that follow: those of requests that a caller
	// should make less often. To send one alone costs as much as the rest of such a call, and a caller that does not wait before it
	// asks again is slowed. A call whose deadline is near is answered at once. Nil for none.
	Holds func(error) bool
	Hold  time.Duration
	// Rest says of the stream of ctx whether all that its client asks for is held: none of its calls is under way, and the last ones
	// were answered with errors that are held. Its requests may then be read less often, and together. Nil for none.
	Rest func(ctx context.Context, rests bool)
	// Stopping is closed when the server begins to stop: streams end when their calls have ended.
	Stopping <-chan struct{}
	// Async begins calls of a method without a goroutine, by the method's full name; see Async. Intercept does not run for
	// them.
	Async map[string]Async
	// MaxCalls bounds the calls under way on all streams, MaxAnswer the bytes of one answer.
	MaxCalls, MaxAnswer int
}

// Server answers the calls of streams.
type Server struct {
	opts    ServerOptions
	methods map[string]handler
	under   atomic.Int64 // calls under way
	tasks   chan func()
	idle    chan struct{} // a token for each goroutine that waits
}

type handler struct {
	impl   any
	handle grpc.MethodHandler
}

// NewServer makes a Server without methods.
func NewServer(opts ServerOptions) *Server {
	return &Server{opts: opts, methods: map[string]handler{}, tasks: make(chan func()), idle: make(chan struct{}, maxIdle)}
}

// RegisterService implements grpc.ServiceRegistrar: streams carry the service's unary methods. It must not be called after
// the first stream.
func (s *Server) RegisterService(desc *grpc.ServiceDesc, impl any) {
	for _, m := range desc.Methods {
		s.methods["/"+desc.ServiceName+"/"+m.MethodName] = handler{impl, m.Handler}
	}
}

// Service describes the service of streams for a gRPC server, which is registered with the Server as its implementation.
func (s *Server) Service() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{ServiceName: s.opts.Name, HandlerType: (*any)(nil), Streams: []grpc.StreamDesc{{
		StreamName: "Stream", ServerStreams: true, ClientStreams: true,
		Handler: func(_ any, stream grpc.ServerStream) error { return s.serve(stream) },
	}}}
}

// session is a stream at the server.
type session struct {
	s      *Server
	stream grpc.ServerStream
	ctx    context.Context
	cancel context.CancelFunc
	calls  sync.WaitGroup
	// async are the calls without a goroutine; expire is when to look for those that take long.
	async    *async.Calls
	expire   *time.Timer
	holdOver *time.Timer // when the answers that are held are sent
	// requests and rests, what Rest was said last, are used by the one goroutine that reads.
	requests []request
	rests    bool

	wake chan struct{} // answers wait, async calls were notified, or the last answer was queued

	mu       sync.Mutex
	under    map[uint64]*Call
	unsent   [][]byte      // encoded answers, several in one
	holding  bool          // all of them are held
	bytes    int           // of them
	taken    chan struct{} // closed when the client has taken answers; nil if nobody waits
	stopping bool          // no call begins any more
	ended    bool          // the last answer was queued
}

// serve answers a stream's calls until the client ends it, the stream breaks, or the server stops.
func (s *Server) serve(stream grpc.ServerStream) error {
	w := &session{s: s, stream: stream, under: map[uint64]*Call{}, wake: make(chan struct{}, 1),
		expire: time.NewTimer(time.Hour), holdOver: time.NewTimer(time.Hour)}
	w.async = async.New(async.Options{Wake: w.signal, Run: s.run})
	w.ctx, w.cancel = context.WithCancel(stream.Context())
	defer w.cancel()
	defer w.expire.Stop()
	defer w.holdOver.Stop()
	if err := stream.SendMsg(&frame{}); err != nil {
		return err
	}
	var writer sync.WaitGroup
	var wrote error
	writer.Go(func() { wrote = w.write() })
	read := make(chan error, 1)
	go func() { read <- w.read() }() // only the handler's return ends a receive
	var err error
	for serving := true; serving; {
		select {
		case err = <-read:
			serving = false
		case <-s.opts.Stopping:
			serving = false
		case <-w.ctx.Done():
			err = status.FromContextError(w.ctx.Err()).Err()
			serving = false
		case now := <-w.expire.C:
			if w.async.Expire(now) {
				w.expire.Reset(async.ExpireEvery)
			}
			w.async.Process() // the writer may wait for the client
			w.signal()
		case <-w.holdOver.C:
			w.sendHeld()
		}
	}
	w.mu.Lock()
	w.stopping = true
	w.mu.Unlock()
	if err != nil {
		w.cancel()
	}
	w.async.Interrupt()
	w.async.Process()
	w.calls.Wait()
	w.mu.Lock()
	w.ended = true
	w.mu.Unlock()
	w.signal()
	writer.Wait()
	if wrote != nil {
		return wrote
	}
	return err
}

// read begins the stream's calls until the client ends the stream. It waits while the client takes no answers.
func (w *session) read() error {
	defer w.rest(false)
	last := uint64(0)
	for {
		if err := w.waitForClient(); err != nil {
			return err
		}
		var f frame
		if err := w.stream.RecvMsg(&f); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		requests, cancelled, err := decodeRequests(w.requests[:0], f.data, last)
		if err != nil {
			return status.Errorf(codes.InvalidArgument, "malformed message: %v", err)
		}
		if len(requests) > 0 {
			last = requests[len(requests)-1].number
			w.begin(requests)
			w.mu.Lock()
			held := w.holding && len(w.under) == 0
			w.mu.Unlock()
			w.rest(held)
		}
		clear(requests)
		if w.requests = requests; cap(requests) > maxSpareRequests {
			w.requests = nil
		}
		for _, n := range cancelled {
			w.mu.Lock()
			c := w.under[n]
			w.mu.Unlock()
			if c != nil {
				c.stop()
			}
		}
	}
}

// rest passes on whether the stream's requests may be read less often.
func (w *session) rest(rests bool) {
	if w.s.opts.Rest != nil && w.rests != rests {
		w.rests = rests
		w.s.opts.Rest(w.stream.Context(), rests)
	}
}

// waitForClient blocks while more than maxUnsent bytes of answers wait.
func (w *session) waitForClient() error {
	for {
		w.mu.Lock()
		if w.bytes <= maxUnsent {
			w.mu.Unlock()
			return nil
		}
		if w.taken == nil {
			w.taken = make(chan struct{})
		}
		taken := w.taken
		w.mu.Unlock()
		select {
		case <-taken:
		case <-w.ctx.Done():
			return status.FromContextError(w.ctx.Err()).Err()
		}
	}
}

// begin begins calls. It does not block.
func (w *session) begin(requests []request) {
	parts := make([]func(), len(requests))
	if w.s.opts.Keep != nil {
		sizes := make([]int, len(requests))
		for i, r := range requests {
			sizes[i] = len(r.message) + len(r.method)
		}
		parts = w.s.opts.Keep(w.stream.Context(), sizes)
	}
	now := time.Now()
	for i := range requests {
		r := &requests[i]
		c := &Call{w: w, number: r.number, message: r.message, release: parts[i]}
		c.Calls = w.async
		if r.timeout > 0 {
			c.deadline = now.Add(r.timeout)
		}
		if err := w.admit(c); err != nil {
			c.Release()
			if w.queue(c, nil, err) {
				w.signal()
			}
			continue
		}
		if begin := w.s.opts.Async[string(r.method)]; begin != nil {
			var err error
			if c.handler, err = begin(c); err != nil {
				c.answer(nil, err)
			} else if c.Begin(asyncCall{c}, now, c.deadline) {
				w.expire.Reset(async.ExpireEvery)
			}
			continue
		}
		c.method = string(r.method)
		ctx := c.context()
		if c.release != nil {
			ctx = w.s.opts.WithPart(ctx, c.release)
		}
		w.s.run(func() {
			c.answer(w.s.call(ctx, c))
		})
	}
}

// admit counts a call, or returns why it may not begin.
func (w *session) admit(c *Call) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.stopping:
		return status.Error(codes.Unavailable, "the stream ends")
	case len(w.under) >= maxUnderWay:
		return w.s.opts.Overloaded(fmt.Sprintf("%d calls are under way on the stream, which is its limit", maxUnderWay))
	case w.s.under.Add(1) > int64(w.s.opts.MaxCalls):
		w.s.under.Add(-1)
		return w.s.opts.Overloaded(fmt.Sprintf("%d calls are under way on streams, which is the node's limit", w.s.opts.MaxCalls))
	}
	w.under[c.number] = c
	w.calls.Add(1)
	return nil
}

// call runs a call's handler. The request is released as soon as it is decoded.
func (s *Server) call(ctx context.Context, c *Call) (any, error) {
	m, ok := s.methods[c.method]
	if !ok {
		return nil, status.Errorf(codes.Unimplemented, "streams of calls do not carry method %.100q", c.method)
	}
	return m.handle(m.impl, ctx, func(in any) error { return c.Decode(in.(proto.Message)) }, s.intercept)
}

// intercept runs the interceptors, then the handler.
func (s *Server) intercept(ctx context.Context, in any, info *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	for i := len(s.opts.Intercept) - 1; i >= 0; i-- {
		around, inner := s.opts.Intercept[i], handle
		handle = func(ctx context.Context, in any) (any, error) { return around(ctx, in, info, inner) }
	}
	return handle(ctx, in)
}

// run runs a function on a goroutine that waits, or on a new one. It does not block.
func (s *Server) run(f func()) {
	select {
	case s.tasks <- f:
	default:
		go s.work(f)
	}
}

// work runs f and then others, while few goroutines wait.
func (s *Server) work(f func()) {
	for {
		f()
		select {
		case s.idle <- struct{}{}:
		default:
			return
		}
		select {
		case f = <-s.tasks:
			<-s.idle
		case <-s.opts.Stopping:
			<-s.idle
			return
		}
	}
}

// queue queues a call's answer, and reports whether the writer can send it now.
func (w *session) queue(c *Call, out any, err error) (send bool) {
	var m proto.Message
	size := 0
	if err == nil {
		m = out.(proto.Message)
		if size = sizeOfAnswer(c.number, m); size > w.s.opts.MaxAnswer {
			err = status.Errorf(codes.ResourceExhausted, "answer of %d bytes exceeds %d", size, w.s.opts.MaxAnswer)
		}
	}
	var failure []byte
	held := false
	if err != nil {
		failure = encodeStatus(err)
		size = len(failure)
		held = w.s.opts.Holds != nil && w.s.opts.Holds(err) && (c.deadline.IsZero() || time.Until(c.deadline) > 2*w.s.opts.Hold)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.under, c.number)
	last := len(w.unsent) - 1
	first := last < 0
	if last < 0 || len(w.unsent[last])+size > maxBatch {
		w.unsent = append(w.unsent, nil)
		last++
	}
	b := w.unsent[last]
	before := len(b)
	if failure == nil {
		if b, err = appendAnswer(b, c.number, m); err != nil {
			failure = encodeStatus(status.Errorf(codes.Internal, "cannot encode the answer: %v", err))
			b = b[:before]
		}
	}
	if failure != nil {
		b = appendFailure(b, c.number, failure)
	}
	w.unsent[last] = b
	w.bytes += len(b) - before
	if w.holding = held && (first || w.holding) && w.bytes < maxBatch; w.holding && first {
		w.holdOver.Reset(w.s.opts.Hold)
	}
	return !w.holding
}

// sendHeld has the writer send the answers that are held.
func (w *session) sendHeld() {
	w.mu.Lock()
	held := w.holding
	w.holding = false
	w.mu.Unlock()
	if held {
		w.signal()
	}
}

// encodeStatus encodes an error as gRPC's server does. The result must not be changed: it may be what the error has encoded.
func encodeStatus(err error) []byte {
	if sealed, ok := err.(interface{ EncodedStatus() []byte }); ok {
		if b := sealed.EncodedStatus(); len(b) > 0 {
			return b
		}
	}
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	b, err := proto.Marshal(st.Proto())
	if err != nil || len(b) == 0 {
		b, _ = proto.Marshal(status.New(codes.Internal, "a status that cannot be sent").Proto())
	}
	return b
}

func (w *session) signal() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// write sends the answers that wait, until the last one was sent or the stream breaks.
func (w *session) write() error {
	for {
		runtime.Gosched() // calls that one event has ended are answered in one message
		w.async.Process()
		data, ended := w.batch()
		if len(data) > 0 {
			if err := w.stream.SendMsg(&frame{data}); err != nil {
				w.cancel()
				return err
			}
			continue
		}
		if ended {
			return nil
		}
		select {
		case <-w.wake:
		case <-w.ctx.Done():
			return nil
		}
	}
}

// batch takes answers that wait: up to maxBatch, or one. ended reports that there will be no others.
func (w *session) batch() (data []byte, ended bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.unsent) > 0 && (!w.holding || w.ended) {
		data = w.unsent[0]
		w.unsent[0] = nil
		w.bytes -= len(data)
		if w.unsent = w.unsent[1:]; len(w.unsent) == 0 {
			w.unsent, w.holding = nil, false
		}
	}
	if w.taken != nil && w.bytes <= maxUnsent {
		close(w.taken)
		w.taken = nil
	}
	return data, w.ended && len(data) == 0
}
