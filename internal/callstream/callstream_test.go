package callstream

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"

	"perdure/internal/callstream/async"
	"perdure/internal/testkit"
)

const limit = time.Minute

// service answers checks as the test says. It is served by unary calls and by streams.
type service struct {
	healthv1.UnimplementedHealthServer
	check func(ctx context.Context, in *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error)
}

func (s *service) Check(ctx context.Context, in *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	return s.check(ctx, in)
}

// streamed counts the calls that came by a stream, by their name.
type streamed struct {
	mu    sync.Mutex
	calls map[string]int
}

func (s *streamed) around(ctx context.Context, in any, _ *grpc.UnaryServerInfo, handle grpc.UnaryHandler) (any, error) {
	s.mu.Lock()
	s.calls[in.(*healthv1.HealthCheckRequest).Service]++
	s.mu.Unlock()
	return handle(ctx, in)
}

func (s *streamed) count(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[name]
}

// pair is a server and the address of its connections.
type pair struct {
	t        *testing.T
	service  *service
	streamed *streamed
	server   *Server
	grpc     *grpc.Server
	stopping chan struct{}
	stop     func() // closes it
	listener *bufconn.Listener
	conn     *grpc.ClientConn
	// conns are the server's ends.
	mu    sync.Mutex
	conns []net.Conn
}

// newPair starts a server. With other, that serves the streams instead.
func newPair(t *testing.T, check func(context.Context, *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error), other grpc.StreamHandler) *pair {
	p := &pair{t: t, service: &service{check: check}, streamed: &streamed{calls: map[string]int{}}, stopping: make(chan struct{})}
	p.stop = sync.OnceFunc(func() { close(p.stopping) })
	t.Cleanup(p.stop)
	p.server = NewServer(ServerOptions{Name: ForClients, Intercept: []grpc.UnaryServerInterceptor{p.streamed.around}, Stopping: p.stopping,
		MaxCalls: 100_000, MaxAnswer: 2 << 20, Overloaded: func(m string) error { return status.Error(codes.ResourceExhausted, m) }})
	healthv1.RegisterHealthServer(p.server, p.service)
	p.grpc = grpc.NewServer()
	healthv1.RegisterHealthServer(p.grpc, p.service)
	desc := p.server.Service()
	if other != nil {
		desc.Streams[0].Handler = other
	}
	p.grpc.RegisterService(desc, p.server)
	p.listener = bufconn.Listen(1 << 16)
	go p.grpc.Serve(p.listener)
	t.Cleanup(p.grpc.Stop)
	var err error
	p.conn, err = grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()), WithStatus(),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := p.listener.DialContext(ctx)
			if err == nil {
				p.mu.Lock()
				p.conns = append(p.conns, conn)
				p.mu.Unlock()
			}
			return conn, err
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.conn.Close() })
	return p
}

// client makes a Conn whose stream is open.
func (p *pair) client(opts Options) (*Conn, healthv1.HealthClient) {
	p.t.Helper()
	opts.Name, opts.Carries = ForClients, func(string) bool { return true }
	c := NewConn(p.conn, opts)
	p.t.Cleanup(func() { c.Close() })
	client := healthv1.NewHealthClient(c)
	p.opened(c)
	return c, client
}

// opened waits until the client has a stream.
func (p *pair) opened(c *Conn) {
	p.t.Helper()
	testkit.EventuallyNil(p.t, limit, "a stream", func() error {
		if c.stream() == nil {
			return errors.New("none")
		}
		return nil
	})
}

func ask(ctx context.Context, c healthv1.HealthClient, name string) error {
	_, err := c.Check(ctx, &healthv1.HealthCheckRequest{Service: name})
	return err
}

func echo(_ context.Context, in *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
	if name, ok := strings.CutPrefix(in.Service, "error-"); ok {
		return nil, status.Error(codes.NotFound, name)
	}
	return &healthv1.HealthCheckResponse{Status: healthv1.HealthCheckResponse_ServingStatus(len(in.Service) % 4)}, nil
}

// TestCallsAreCarried: the first calls are unary ones, later ones go by the stream, each with its own answer or status.
func TestCallsAreCarried(t *testing.T) {
	p := newPair(t, echo, nil)
	var sent atomic.Int32
	c := NewConn(p.conn, Options{Name: ForClients, Carries: func(string) bool { return true }, Sent: func(context.Context) { sent.Add(1) }})
	defer c.Close()
	client := healthv1.NewHealthClient(c)
	for range streamAfter {
		if err := ask(t.Context(), client, "first"); err != nil {
			t.Fatal(err)
		}
	}
	if n := p.streamed.count("first"); n != 0 {
		t.Errorf("%d of the first calls went by a stream", n)
	}
	p.opened(c)
	var all sync.WaitGroup
	for i := range 500 {
		all.Go(func() {
			name := strings.Repeat("x", i)
			answer, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{Service: name})
			if err != nil || int(answer.Status) != i%4 {
				t.Errorf("call %d: %v, %v", i, answer, err)
			}
			if n := p.streamed.count(name); n != 1 {
				t.Errorf("call %d came %d times by the stream", i, n)
			}
			if err := ask(t.Context(), client, fmt.Sprint("error-", i)); status.Code(err) != codes.NotFound || status.Convert(err).Message() != fmt.Sprint(i) {
				t.Errorf("call %d: %v", i, err)
			}
		})
	}
	all.Wait()
	if n := sent.Load(); n != 1000 {
		t.Errorf("%d calls count as sent", n)
	}
}

// TestLargeRequestsAreUnary: large requests do not delay small ones on the stream.
func TestLargeRequestsAreUnary(t *testing.T) {
	p := newPair(t, echo, nil)
	_, client := p.client(Options{})
	large := strings.Repeat("x", 256<<10)
	if err := ask(t.Context(), client, large); err != nil || p.streamed.count(large) != 0 {
		t.Errorf("%v; by the stream: %d", err, p.streamed.count(large))
	}
}

// TestCancelledCallers: the handler's context ends with the caller's, and with its deadline. The stream goes on.
func TestCancelledCallers(t *testing.T) {
	began, ended := make(chan struct{}), make(chan error, 1)
	p := newPair(t, func(ctx context.Context, in *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
		if in.Service == "" {
			return echo(ctx, in)
		}
		began <- struct{}{}
		<-ctx.Done()
		ended <- ctx.Err()
		return nil, ctx.Err()
	}, nil)
	_, client := p.client(Options{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-began; cancel() }()
	if err := ask(ctx, client, "cancelled"); status.Code(err) != codes.Canceled {
		t.Errorf("the caller got %v", err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("the handler got %v", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	go func() { <-began }()
	if err := ask(ctx, client, "late"); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("the caller got %v", err)
	}
	if err := <-ended; err == nil {
		t.Error("the handler's context did not end")
	}
	if err := ask(t.Context(), client, ""); err != nil {
		t.Error(err)
	}
	if n := p.streamed.count("late"); n != 1 {
		t.Errorf("the late call came %d times", n)
	}
}

// TestCutStream: calls that the server may have executed end with Unavailable and are not made again. Later ones succeed.
func TestCutStream(t *testing.T) {
	const n = 20
	hold := make(chan struct{})
	var executed atomic.Int32
	p := newPair(t, func(ctx context.Context, in *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
		if in.Service == "held" {
			if executed.Add(1) > n {
				return nil, status.Error(codes.Internal, "executed again")
			}
			select {
			case <-hold:
			case <-ctx.Done():
			}
		}
		return echo(ctx, in)
	}, nil)
	c, client := p.client(Options{})
	errs := make(chan error, n)
	for range n {
		go func() { errs <- ask(t.Context(), client, "held") }()
	}
	testkit.EventuallyNil(t, limit, "the calls", func() error {
		if e := executed.Load(); e != n {
			return fmt.Errorf("%d have begun", e)
		}
		return nil
	})
	p.mu.Lock()
	for _, conn := range p.conns {
		conn.Close()
	}
	p.mu.Unlock()
	for range n {
		if err := <-errs; status.Code(err) != codes.Unavailable {
			t.Errorf("a call at the cut: %v", err)
		}
	}
	close(hold)
	if e := executed.Load(); e != n {
		t.Errorf("%d calls were executed, not %d", e, n)
	}
	testkit.EventuallyNil(t, limit, "a call after the cut", func() error { return ask(t.Context(), client, "") })
	p.opened(c)
}

// TestAnswersOfOthers: answers that come late, twice, or to no call, and a malformed message, reach no caller.
func TestAnswersOfOthers(t *testing.T) {
	ok := []byte{0x08, 1}
	malformed := make(chan struct{})
	p := newPair(t, echo, func(_ any, stream grpc.ServerStream) error {
		_ = stream.SendMsg(&frame{})
		for {
			var f frame
			if err := stream.RecvMsg(&f); err != nil {
				return err
			}
			requests, _, err := decodeRequests(nil, f.data, 0)
			if err != nil {
				return err
			}
			for _, r := range requests {
				select {
				case <-malformed:
					_ = stream.SendMsg(&frame{[]byte{0x0a, 0xff}})
					continue
				default:
				}
				var b []byte
				for _, n := range []uint64{r.number + 1, r.number - 1, 0, r.number, r.number, 1 << 60} {
					if n != r.number {
						b = append(b, appendFailure(nil, n, []byte{0x08, 2})...)
						continue
					}
					b = append(appendAnswerHead(b, n, 2, len(ok)), ok...)
				}
				if err := stream.SendMsg(&frame{b}); err != nil {
					return err
				}
			}
		}
	})
	_, client := p.client(Options{})
	for range 50 {
		if err := ask(t.Context(), client, "x"); err != nil {
			t.Fatal(err)
		}
	}
	close(malformed)
	if err := ask(t.Context(), client, "x"); status.Code(err) != codes.Unavailable {
		t.Errorf("after a malformed answer: %v", err)
	}
}

// TestOldServer: a server that knows no streams is called as before, and asked for one once.
func TestOldServer(t *testing.T) {
	var asked atomic.Int32
	p := newPair(t, echo, func(any, grpc.ServerStream) error {
		asked.Add(1)
		return status.Error(codes.Unimplemented, "unknown service")
	})
	c := NewConn(p.conn, Options{Name: ForClients, Carries: func(string) bool { return true }})
	defer c.Close()
	client := healthv1.NewHealthClient(c)
	testkit.EventuallyNil(t, limit, "the question for a stream to be answered", func() error {
		if err := ask(t.Context(), client, "x"); err != nil {
			t.Fatal(err)
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.next.IsZero() {
			return errors.New("not yet")
		}
		return nil
	})
	for range 100 {
		if err := ask(t.Context(), client, "x"); err != nil {
			t.Fatal(err)
		}
	}
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times for a stream", n)
	}
}

// TestManyWaitingCallers: 10,000 callers wait at the same time, those beyond the stream's bound by unary calls.
func TestManyWaitingCallers(t *testing.T) {
	const n = 10_000
	hold := make(chan struct{})
	var waiting atomic.Int32
	p := newPair(t, func(ctx context.Context, in *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
		waiting.Add(1)
		select {
		case <-hold:
		case <-ctx.Done():
		}
		return echo(ctx, in)
	}, nil)
	_, client := p.client(Options{})
	errs := make(chan error, n)
	for range n {
		go func() { errs <- ask(t.Context(), client, "x") }()
	}
	testkit.EventuallyNil(t, limit, "all to wait", func() error {
		if w := waiting.Load(); w != n {
			return fmt.Errorf("%d wait", w)
		}
		return nil
	})
	if got := p.streamed.count("x"); got != maxUnderWay {
		t.Errorf("%d calls went by the stream, not %d", got, maxUnderWay)
	}
	close(hold)
	for range n {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
}

// raw opens a stream whose messages the test makes.
func (p *pair) raw(ctx context.Context) grpc.ClientStream {
	p.t.Helper()
	stream, err := p.conn.NewStream(ctx, &grpc.StreamDesc{StreamName: "Stream", ServerStreams: true, ClientStreams: true},
		"/"+ForClients+"/Stream", grpc.CallContentSubtype(codecName))
	if err == nil {
		err = stream.RecvMsg(&frame{})
	}
	if err != nil {
		p.t.Fatal(err)
	}
	return stream
}

const checkMethod = "/grpc.health.v1.Health/Check"

// TestSlowReader: a client that takes no answers cannot have the server hold more than maxUnsent and the answers of the
// calls that had begun.
func TestSlowReader(t *testing.T) {
	var begun atomic.Int32
	next := make(chan struct{}, 1000)
	p := newPair(t, func(context.Context, *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
		begun.Add(1)
		next <- struct{}{}
		return nil, status.Error(codes.Aborted, strings.Repeat("x", 64<<10))
	}, nil)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	stream := p.raw(ctx)
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		for n := uint64(1); n <= 1000; n++ {
			if stream.SendMsg(&frame{appendRequest(nil, n, checkMethod, 0, nil)}) != nil {
				return
			}
			select {
			case <-next:
			case <-ctx.Done():
				return
			}
		}
	}()
	stable, last := 0, int32(0)
	testkit.EventuallyNil(t, limit, "the server to read no more", func() error {
		if now := begun.Load(); now != last || now == 0 {
			stable, last = 0, now
		} else {
			stable++
		}
		if stable < 30 {
			return fmt.Errorf("%d calls have begun", last)
		}
		return nil
	})
	if last > 200 {
		t.Errorf("%d calls have begun, with 64 KiB of answers each", last)
	}
	got := 0
	for got < 1000 {
		var f frame
		if err := stream.RecvMsg(&f); err != nil {
			t.Fatalf("after %d answers: %v", got, err)
		}
		if err := decodeAnswers(f.data, func(answer) { got++ }); err != nil {
			t.Fatal(err)
		}
	}
	<-sent
}

// TestHostileClients: malformed messages end the stream; wrong calls get an error of their own.
func TestHostileClients(t *testing.T) {
	p := newPair(t, echo, nil)
	many := []byte{}
	for n := uint64(1); n <= maxUnderWay+1; n++ {
		many = appendCancelled(many, n)
	}
	call := func(n uint64) []byte { return appendRequest(nil, n, checkMethod, 0, nil) }
	for name, b := range map[string][]byte{
		"cut off":         {0x0a, 0x7f, 1},
		"no number":       call(0),
		"repeated number": append(call(1), call(1)...),
		"falling number":  append(call(2), call(1)...),
		"many cancelled":  many,
	} {
		stream := p.raw(t.Context())
		if err := stream.SendMsg(&frame{b}); err != nil {
			t.Fatal(err)
		}
		var err error
		for err == nil {
			err = stream.RecvMsg(&frame{})
		}
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	stream := p.raw(t.Context())
	b := appendRequest(nil, 1, "/nobody/Knows", 0, nil)
	b = appendRequest(b, 2, checkMethod, 0, []byte{0xff})
	b = appendCancelled(b, 77)
	if err := stream.SendMsg(&frame{append(b, call(3)...)}); err != nil {
		t.Fatal(err)
	}
	answers := map[uint64]answer{}
	for len(answers) < 3 {
		var f frame
		if err := stream.RecvMsg(&f); err != nil {
			t.Fatal(err)
		}
		if err := decodeAnswers(f.data, func(a answer) { answers[a.number] = a }); err != nil {
			t.Fatal(err)
		}
	}
	for n, code := range map[uint64]byte{1: byte(codes.Unimplemented), 2: byte(codes.Internal)} {
		if st := answers[n].status; len(st) < 2 || st[1] != code {
			t.Errorf("call %d: status %v, want code %d", n, st, code)
		}
	}
	if a := answers[3]; a.status != nil {
		t.Errorf("call 3: %v", a)
	}
}

// TestStop: calls under way are answered, then the stream ends. Later calls are unary ones.
func TestStop(t *testing.T) {
	began, hold := make(chan struct{}), make(chan struct{})
	p := newPair(t, func(ctx context.Context, in *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
		if in.Service == "held" {
			close(began)
			<-hold
		}
		return echo(ctx, in)
	}, nil)
	c, client := p.client(Options{})
	held := make(chan error, 1)
	go func() { held <- ask(t.Context(), client, "held") }()
	<-began
	p.stop()
	testkit.EventuallyNil(t, limit, "a call that the stopping stream refuses", func() error {
		if err := ask(t.Context(), client, "x"); err == nil {
			return errors.New("it succeeds")
		}
		return nil
	})
	close(hold)
	if err := <-held; err != nil {
		t.Errorf("the call under way: %v", err)
	}
	testkit.EventuallyNil(t, limit, "the stream's end", func() error {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.current != nil {
			return errors.New("it is open")
		}
		return nil
	})
	if err := ask(t.Context(), client, "after"); err != nil || p.streamed.count("after") != 0 {
		t.Errorf("after the stop: %v, by a stream %d times", err, p.streamed.count("after"))
	}
}

// TestNewToken: calls go to a stream that was opened with the present token. A call on the former stream gets its answer.
func TestNewToken(t *testing.T) {
	began, hold := make(chan struct{}), make(chan struct{})
	p := newPair(t, func(ctx context.Context, in *healthv1.HealthCheckRequest) (*healthv1.HealthCheckResponse, error) {
		if in.Service == "held" {
			close(began)
			<-hold
		}
		return echo(ctx, in)
	}, nil)
	var token atomic.Pointer[string]
	first, second := "first", "second"
	token.Store(&first)
	c, client := p.client(Options{Token: func() string { return *token.Load() }})
	former := c.stream()
	held := make(chan error, 1)
	go func() { held <- ask(t.Context(), client, "held") }()
	<-began
	token.Store(&second)
	p.opened(c)
	if s := c.stream(); s == former || s.token != second {
		t.Errorf("the stream has token %s", s.token)
	}
	close(hold)
	if err := <-held; err != nil {
		t.Error(err)
	}
	testkit.EventuallyNil(t, limit, "the former stream's end", func() error {
		if _, err := former.batch(); err {
			return nil
		}
		return errors.New("it is open")
	})
}

// stepping answers a check once it is notified.
type stepping struct {
	c     *Call
	in    *healthv1.HealthCheckRequest
	begun chan *stepping
	ready atomic.Bool
}

func (s *stepping) Step() (proto.Message, async.Next, error) {
	switch {
	case !s.ready.Load():
		return nil, async.Waits, nil
	case s.in.Service == "blocks":
		return nil, async.Blocks, nil
	}
	out, err := echo(context.Background(), s.in)
	return out, async.Done, err
}

func (s *stepping) Block(ctx context.Context) (proto.Message, error) {
	if s.in.Service != "blocks" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return echo(ctx, s.in)
}

// TestAsyncCalls: a call without a goroutine is answered by its step, or ends as any other when it is cancelled, its
// deadline passes, or the server stops.
func TestAsyncCalls(t *testing.T) {
	begun := make(chan *stepping, 16)
	p := newPair(t, echo, nil)
	p.server.opts.Async = map[string]Async{healthv1.Health_Check_FullMethodName: func(c *Call) (Handler, error) {
		s := &stepping{c: c, in: &healthv1.HealthCheckRequest{}}
		if err := c.Decode(s.in); err != nil {
			return nil, err
		}
		if s.in.Service == "refused" {
			return nil, status.Error(codes.NotFound, "refused")
		}
		begun <- s
		return s, nil
	}}
	_, client := p.client(Options{})
	outcome := func(ctx context.Context, name string) chan codes.Code {
		done := make(chan codes.Code, 1)
		go func() { done <- status.Code(ask(ctx, client, name)) }()
		return done
	}
	for name, want := range map[string]codes.Code{"answered": codes.OK, "error-x": codes.NotFound, "blocks": codes.OK} {
		done := outcome(t.Context(), name)
		s := <-begun
		s.ready.Store(true)
		s.c.Notify()
		if got := <-done; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	if got := <-outcome(t.Context(), "refused"); got != codes.NotFound {
		t.Errorf("refused at once: %v", got)
	}
	under := func(want int64) {
		t.Helper()
		testkit.EventuallyNil(t, limit, "calls under way", func() error {
			if n := p.server.under.Load(); n != want {
				return fmt.Errorf("%d, want %d", n, want)
			}
			return nil
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := outcome(ctx, "cancelled")
	<-begun
	cancel()
	if got := <-done; got != codes.Canceled {
		t.Errorf("cancelled: %v", got)
	}
	under(0)
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if got := <-outcome(ctx, "late"); got != codes.DeadlineExceeded {
		t.Errorf("late: %v", got)
	}
	<-begun
	under(0)
	// A call that takes long goes on as one that blocks.
	long := outcome(t.Context(), "blocks")
	if got := <-long; got != codes.OK {
		t.Errorf("long: %v", got)
	}
	<-begun
	last := outcome(t.Context(), "blocks")
	<-begun
	p.stop()
	if got := <-last; got != codes.OK {
		t.Errorf("while the server stops: %v", got)
	}
	under(0)
}

// TestHeldAnswers: refusals that are held are sent together with the next other answer, when they have waited, when they are many,
// when a caller cannot wait, or at the end of the stream.
func TestHeldAnswers(t *testing.T) {
	large := strings.Repeat("x", 40<<10)
	begin := func(c *Call) (Handler, error) {
		in := &healthv1.HealthCheckRequest{}
		if err := c.Decode(in); err != nil {
			return nil, err
		}
		switch in.Service {
		case "held":
			return nil, status.Error(codes.ResourceExhausted, "held")
		case "large":
			return nil, status.Error(codes.ResourceExhausted, large)
		}
		return nil, status.Error(codes.NotFound, "not held")
	}
	// exchange sends calls one after the other, each once the one before was handled, and returns how many answers each message has
	// that comes, until all were answered.
	exchange := func(hold time.Duration, last func(p *pair, stream grpc.ClientStream), timeout time.Duration, names ...string) (messages []int) {
		t.Helper()
		p := newPair(t, echo, nil)
		p.server.opts.Async = map[string]Async{healthv1.Health_Check_FullMethodName: begin}
		p.server.opts.Holds, p.server.opts.Hold = func(err error) bool { return status.Code(err) == codes.ResourceExhausted }, hold
		handled := make(chan struct{}, len(names))
		p.server.opts.Keep = func(_ context.Context, sizes []int) []func() {
			return []func(){func() { handled <- struct{}{} }}
		}
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		stream := p.raw(ctx)
		for n, name := range names {
			body, err := proto.Marshal(&healthv1.HealthCheckRequest{Service: name})
			if err != nil {
				t.Fatal(err)
			}
			within := time.Duration(0)
			if n == len(names)-1 {
				within = timeout
			}
			if err := stream.SendMsg(&frame{appendRequest(nil, uint64(n+1), checkMethod, within, body)}); err != nil {
				t.Fatal(err)
			}
			<-handled
		}
		if last != nil {
			last(p, stream)
		}
		for answered := 0; answered < len(names); {
			var f frame
			if err := stream.RecvMsg(&f); err != nil {
				t.Fatalf("after %v: %v", messages, err)
			}
			in := 0
			if err := decodeAnswers(f.data, func(answer) { in++ }); err != nil {
				t.Fatal(err)
			}
			messages, answered = append(messages, in), answered+in
		}
		return messages
	}
	end := func(_ *pair, stream grpc.ClientStream) {
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
	}
	stop := func(p *pair, _ grpc.ClientStream) { p.stop() }
	for _, c := range []struct {
		what    string
		hold    time.Duration
		last    func(*pair, grpc.ClientStream)
		timeout time.Duration
		names   []string
		want    []int
	}{
		{"with another answer", time.Hour, nil, 0, []string{"held", "held", "other"}, []int{3}},
		{"none held", time.Hour, nil, 0, []string{"other"}, []int{1}},
		{"after an hour that is a millisecond", time.Millisecond, nil, 0, []string{"held"}, []int{1}},
		{"many", time.Hour, nil, 0, []string{"large", "large", "held", "large", "large"}, []int{4, 1}},
		{"a near deadline", time.Hour, nil, time.Minute, []string{"held", "held"}, []int{2}},
		{"the client ends the stream", time.Hour, end, 0, []string{"held", "held"}, []int{2}},
		{"the server stops", time.Hour, stop, 0, []string{"held", "held"}, []int{2}},
	} {
		if got := exchange(c.hold, c.last, c.timeout, c.names...); !slices.Equal(got, c.want) {
			t.Errorf("%s: messages of %d answers, want %d", c.what, got, c.want)
		}
	}
}

// TestRests: a stream rests while the answers to all that its client asked for last are held, and never when it has ended.
func TestRests(t *testing.T) {
	p := newPair(t, echo, nil)
	p.server.opts.Holds = func(err error) bool { return status.Code(err) == codes.ResourceExhausted }
	p.server.opts.Hold = time.Hour
	p.server.opts.Async = map[string]Async{healthv1.Health_Check_FullMethodName: func(c *Call) (Handler, error) {
		in := &healthv1.HealthCheckRequest{}
		if err := c.Decode(in); err != nil {
			return nil, err
		}
		if in.Service == "held" {
			return nil, status.Error(codes.ResourceExhausted, "held")
		}
		return nil, status.Error(codes.NotFound, "not held")
	}}
	rests := make(chan bool, 10)
	p.server.opts.Rest = func(_ context.Context, is bool) { rests <- is }
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	stream := p.raw(ctx)
	number := uint64(0)
	// say makes calls in one message, and reports what was said then.
	say := func(names ...string) bool {
		t.Helper()
		var message []byte
		for _, name := range names {
			body, err := proto.Marshal(&healthv1.HealthCheckRequest{Service: name})
			if err != nil {
				t.Fatal(err)
			}
			number++
			message = appendRequest(message, number, checkMethod, 0, body)
		}
		if err := stream.SendMsg(&frame{message}); err != nil {
			t.Fatal(err)
		}
		select {
		case is := <-rests:
			return is
		case <-ctx.Done():
			t.Fatalf("after %v: nothing was said", names)
			return false
		}
	}
	if !say("held") {
		t.Error("it does not rest after a call whose answer is held")
	}
	if say("held", "other") {
		t.Error("it rests after a call whose answer is not held")
	}
	for answered := 0; answered < int(number); {
		var f frame
		if err := stream.RecvMsg(&f); err != nil {
			t.Fatal(err)
		}
		if err := decodeAnswers(f.data, func(answer) { answered++ }); err != nil {
			t.Fatal(err)
		}
	}
	if !say("held", "held") {
		t.Error("it does not rest again")
	}
	if err := stream.CloseSend(); err != nil {
		t.Fatal(err)
	}
	select {
	case is := <-rests:
		if is {
			t.Fatal("it rests at its end")
		}
	case <-ctx.Done():
		t.Fatal("it rests after its end")
	}
}
