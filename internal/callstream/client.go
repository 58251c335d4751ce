package callstream

import (
	"context"
	"runtime"
	"sync"
	"time"

	statuspb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
)

// Bounds of a client's stream.
const (
	// maxUnderWay bounds the calls under way on a stream.
	maxUnderWay = 4096
	// maxRequest is the largest request that a stream carries, so that small ones do not wait behind a large one.
	maxRequest = 32 << 10
	// maxQueued bounds the bytes of requests that wait for the stream, maxBatch those of one message.
	maxQueued = 1 << 20
	maxBatch  = 128 << 10
	// streamAfter is how many calls a Conn passes on before it opens a stream: a command line makes one or two.
	streamAfter = 8
	// openTimeout bounds the opening of a stream; reopenAfter is the pause after one that failed or broke, unknownAfter
	// after one that the server does not know.
	openTimeout  = 3 * time.Second
	reopenAfter  = 250 * time.Millisecond
	unknownAfter = time.Minute
	// idleAfter ends a stream without calls, so that the connection counts as idle.
	idleAfter = time.Minute
)

// Options of a Conn.
type Options struct {
	// Name is the full name of the service that carries calls.
	Name string
	// Carries reports whether the stream carries calls of a method.
	Carries func(method string) bool
	// Token is sent with the stream's headers; when it changes, calls go to a new stream. Nil for none.
	Token func() string
	// Sent is called with a call's context when its request is handed to gRPC: the server may have executed it. Nil for none.
	Sent func(context.Context)
}

// Conn is a grpc.ClientConnInterface over another one. It is safe for concurrent use.
type Conn struct {
	grpc.ClientConnInterface
	opts   Options
	ctx    context.Context
	cancel context.CancelFunc
	all    sync.WaitGroup

	mu      sync.Mutex
	passed  int // calls passed on before the first stream
	current *stream
	opening bool
	closed  bool
	next    time.Time // no stream is opened before
}

// NewConn makes a Conn. It does no I/O.
func NewConn(conn grpc.ClientConnInterface, opts Options) *Conn {
	c := &Conn{ClientConnInterface: conn, opts: opts}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	return c
}

// Close ends the streams; calls under way on them fail, later ones are passed on. It blocks until their goroutines have
// ended. It does not close the connection below.
func (c *Conn) Close() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.all.Wait()
	return nil
}

// Invoke implements grpc.ClientConnInterface.
func (c *Conn) Invoke(ctx context.Context, method string, in, out any, opts ...grpc.CallOption) error {
	req, ok := in.(proto.Message)
	if !ok || !isPlain(opts) || !c.opts.Carries(method) || hasMetadata(ctx) {
		return c.ClientConnInterface.Invoke(ctx, method, in, out, opts...)
	}
	if s := c.stream(); s != nil && proto.Size(req) <= maxRequest {
		if done, err := s.call(ctx, method, req, out.(proto.Message)); done {
			return err
		}
	}
	return c.ClientConnInterface.Invoke(ctx, method, in, out, opts...)
}

// isPlain reports whether options change nothing: generated clients say of each call that its method is a constant.
func isPlain(opts []grpc.CallOption) bool {
	for _, o := range opts {
		if _, static := o.(grpc.StaticMethodCallOption); !static {
			return false
		}
	}
	return true
}

func hasMetadata(ctx context.Context) bool {
	md, ok := metadata.FromOutgoingContext(ctx)
	return ok && len(md) > 0
}

// stream returns the stream for the next call; nil if there is none. Then one is being opened. It does not block.
func (c *Conn) stream() *stream {
	token := ""
	if c.opts.Token != nil {
		token = c.opts.Token()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.current; s != nil {
		if s.token == token {
			return s
		}
		c.current = nil
		s.retire()
	}
	if c.passed < streamAfter {
		c.passed++
		return nil
	}
	if c.opening || c.closed || time.Now().Before(c.next) {
		return nil
	}
	c.opening = true
	c.all.Go(func() { c.run(token) })
	return nil
}

// run opens a stream and serves it until it ends.
func (c *Conn) run(token string) {
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	late := time.AfterFunc(openTimeout, cancel)
	s := &stream{conn: c, token: token, cancel: cancel, waiting: map[uint64]*call{}, wake: make(chan struct{}, 1)}
	var err error
	s.grpc, err = c.NewStream(ctx, &grpc.StreamDesc{StreamName: "Stream", ServerStreams: true, ClientStreams: true}, "/"+c.opts.Name+"/Stream",
		grpc.CallContentSubtype(codecName))
	if err == nil {
		err = s.grpc.SendMsg(&frame{}) // a stream without any message ends soon
	}
	if err == nil {
		err = s.grpc.RecvMsg(&frame{})
	}
	inTime := late.Stop()
	c.mu.Lock()
	c.opening = false
	if err == nil && inTime && !c.closed {
		c.current = s
	} else {
		c.next = time.Now().Add(reopenAfter)
		if status.Code(err) == codes.Unimplemented {
			c.next = time.Now().Add(unknownAfter)
		}
	}
	serve := c.current == s
	c.mu.Unlock()
	if !serve {
		return
	}
	var writer sync.WaitGroup
	writer.Go(func() { s.write(ctx) })
	err = s.read()
	c.mu.Lock()
	if c.current == s {
		c.current, c.next = nil, time.Now().Add(reopenAfter)
	}
	c.mu.Unlock()
	cancel()
	s.fail(err)
	writer.Wait()
}

// stream is one stream's calls.
type stream struct {
	conn   *Conn
	token  string
	grpc   grpc.ClientStream
	cancel context.CancelFunc
	wake   chan struct{} // there is something to write

	mu        sync.Mutex
	last      uint64
	waiting   map[uint64]*call // by number, those in queue too
	queue     []*call
	queued    int // bytes
	cancelled []uint64
	ended     bool // takes no call
}

// call is one call under way.
type call struct {
	ctx     context.Context
	method  string
	number  uint64
	message []byte
	sent    bool
	done    chan struct{} // closed when answer or err is set
	answer  answer
	err     error
}

// call makes a call. It returns false if the request was not handed to the stream and may be sent otherwise.
func (s *stream) call(ctx context.Context, method string, in, out proto.Message) (done bool, err error) {
	message, err := proto.Marshal(in)
	if err != nil {
		return true, status.Errorf(codes.Internal, "cannot encode the request: %v", err)
	}
	c := &call{ctx: ctx, method: method, message: message, done: make(chan struct{})}
	if !s.enqueue(c) {
		return false, nil
	}
	select {
	case <-c.done:
	case <-ctx.Done():
		if s.abandon(c) {
			return true, status.FromContextError(ctx.Err()).Err()
		}
		<-c.done
	}
	switch {
	case c.err != nil:
		return c.sent, c.err
	case len(c.answer.status) > 0:
		var st statuspb.Status
		if err := proto.Unmarshal(c.answer.status, &st); err != nil {
			return true, status.Errorf(codes.Internal, "cannot decode the status of an answer: %v", err)
		}
		if st.Code == int32(codes.OK) {
			return true, status.Error(codes.Internal, "an answer has the status of success and no message")
		}
		return true, status.ErrorProto(&st)
	}
	if err := proto.Unmarshal(c.answer.message, out); err != nil {
		return true, status.Errorf(codes.Internal, "cannot decode an answer: %v", err)
	}
	return true, nil
}

// enqueue numbers a call and queues it; false if the stream takes no more.
func (s *stream) enqueue(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || len(s.waiting) >= maxUnderWay || s.queued+len(c.message) > maxQueued {
		return false
	}
	s.last++
	c.number = s.last
	s.waiting[c.number] = c
	s.queue = append(s.queue, c)
	s.queued += len(c.message)
	s.signal()
	return true
}

func (s *stream) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// abandon forgets a call whose caller waits no more; false if it is done.
func (s *stream) abandon(c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting[c.number] != c {
		return false
	}
	delete(s.waiting, c.number)
	if c.sent {
		s.cancelled = append(s.cancelled, c.number)
		s.signal()
	}
	return true
}

// retire has the stream take no more calls, and end when those under way have ended.
func (s *stream) retire() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.signal()
}

// write sends what is queued, until the stream ends.
func (s *stream) write(ctx context.Context) {
	idle := time.NewTimer(idleAfter)
	defer idle.Stop()
	for {
		select {
		case <-s.wake:
		case <-idle.C:
			s.conn.leave(s)
		case <-ctx.Done():
			return
		}
		idle.Reset(idleAfter)
		runtime.Gosched() // callers that are about to make calls come into the same message
		for {
			data, over := s.batch()
			if over {
				s.cancel() // no call is under way: the answer to none is lost
				return
			}
			if len(data) == 0 {
				break
			}
			if err := s.grpc.SendMsg(&frame{data}); err != nil {
				s.cancel() // read finds out why
				return
			}
		}
	}
}

// leave retires the stream if no call is under way.
func (c *Conn) leave(s *stream) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.waiting) > 0 || c.current != s {
		return
	}
	c.current = nil
	s.ended = true
	s.signal()
}

// batch encodes what is queued, up to maxBatch and one request more. Calls in it count as sent. over reports that the
// stream takes no more calls and has none under way.
func (s *stream) batch() (data []byte, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, n := range s.cancelled {
		data = appendCancelled(data, n)
	}
	s.cancelled = s.cancelled[:0]
	n := 0
	for ; n < len(s.queue) && len(data) < maxBatch; n++ {
		c := s.queue[n]
		s.queue[n] = nil
		s.queued -= len(c.message)
		if s.waiting[c.number] != c {
			continue // abandoned
		}
		timeout := time.Duration(0)
		if deadline, ok := c.ctx.Deadline(); ok {
			timeout = max(time.Until(deadline), time.Millisecond)
		}
		data = appendRequest(data, c.number, c.method, timeout, c.message)
		c.sent, c.message = true, nil
		if s.conn.opts.Sent != nil {
			s.conn.opts.Sent(c.ctx)
		}
	}
	if s.queue = s.queue[n:]; len(s.queue) == 0 {
		s.queue = nil
	}
	return data, s.ended && len(s.waiting) == 0
}

// read hands answers to their callers until the stream ends. Answers that nobody waits for are dropped.
func (s *stream) read() error {
	for {
		var f frame
		if err := s.grpc.RecvMsg(&f); err != nil {
			return err
		}
		s.mu.Lock()
		err := decodeAnswers(f.data, func(a answer) {
			c := s.waiting[a.number]
			if c == nil || !c.sent {
				return
			}
			delete(s.waiting, a.number)
			c.answer = a
			close(c.done)
		})
		over := s.ended && len(s.waiting) == 0
		s.mu.Unlock()
		if err != nil {
			return err
		}
		if over {
			s.signal()
		}
	}
}

// fail ends the calls under way after the stream's end.
func (s *stream) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	for n, c := range s.waiting {
		delete(s.waiting, n)
		c.err = status.Errorf(codes.Unavailable, "the stream of calls ended: %v", err)
		close(c.done)
	}
	s.queue, s.queued = nil, 0
}
