package ingress_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"perdure/internal/ingress"
	"perdure/internal/ingress/ingresstest"
	"perdure/internal/testkit"
)

// testTimeout bounds every wait.
const testTimeout = 30 * time.Second

// The service has two methods: Echo answers the length of its message; Stream answers each message with the length.
const (
	echo   = "/test.Service/Echo"
	stream = "/test.Service/Stream"
)

// server is a gRPC server behind a gate and a listener.
type server struct {
	t    *testing.T
	gate *ingress.Gate
	addr string
	conn *grpc.ClientConn
	// hold, if it is there, keeps handlers until it is closed.
	hold chan struct{}

	mu      sync.Mutex
	refused map[string]int
	closed  map[string]int
}

var limits = ingress.Limits{Message: 4 << 20, Node: 8 << 20, Connection: 5 << 20, Class: 6 << 20, Reserve: 1 << 20,
	Calls: 200, Strangers: 4, StrangerMessage: 1 << 10}

func serve(t *testing.T, change func(*ingress.Options, *ingress.ListenerOptions)) *server {
	t.Helper()
	s := &server{t: t, refused: map[string]int{}, closed: map[string]int{}}
	opts := ingress.Options{
		Limits: limits,
		Check: func(ctx context.Context, method string) (string, bool, error) {
			md, _ := metadata.FromIncomingContext(ctx)
			switch token := strings.Join(md.Get("authorization"), ""); token {
			case "":
				return "", true, nil
			case "Bearer bad":
				return "", false, status.Error(codes.Unauthenticated, "no")
			default:
				return strings.TrimPrefix(token, "Bearer "), false, nil
			}
		},
		Overloaded: func(message string, _ time.Duration) error { return status.Error(codes.ResourceExhausted, message) },
		Refused: func(_ string, _ error, why string) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.refused[why]++
		},
	}
	of := ingress.ListenerOptions{Max: 1000, MaxPerAddress: 1000, First: 24, FirstTimeout: testTimeout, Refused: func(why string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.closed[why]++
	}}
	if change != nil {
		change(&opts, &of)
	}
	s.gate = ingress.New(opts)
	g := grpc.NewServer(append(s.gate.ServerOptions(insecure.NewCredentials()), grpc.MaxRecvMsgSize(4<<20), grpc.MaxConcurrentStreams(1000))...)
	s.gate.Registrar(g).RegisterService(&grpc.ServiceDesc{ServiceName: "test.Service", HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Echo", Handler: func(_ any, ctx context.Context, read func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			in := &wrapperspb.BytesValue{}
			if err := read(in); err != nil {
				return nil, err
			}
			if s.hold != nil {
				<-s.hold
			}
			return wrapperspb.Int64(int64(len(in.Value))), nil
		}}},
		Streams: []grpc.StreamDesc{{StreamName: "Stream", ServerStreams: true, ClientStreams: true, Handler: func(_ any, st grpc.ServerStream) error {
			for {
				in := &wrapperspb.BytesValue{}
				if err := st.RecvMsg(in); err != nil {
					if errors.Is(err, io.EOF) {
						return nil
					}
					return err
				}
				if err := st.SendMsg(wrapperspb.Int64(int64(len(in.Value)))); err != nil {
					return err
				}
			}
		}}},
	}, nil)
	l, err := ingress.Listen("127.0.0.1:0", of)
	if err != nil {
		t.Fatal(err)
	}
	s.addr = l.Addr().String()
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = g.Serve(l)
	}()
	t.Cleanup(func() {
		g.Stop()
		<-done
		s.settled()
	})
	s.conn = s.dial()
	return s
}

func (s *server) dial() *grpc.ClientConn {
	s.t.Helper()
	conn, err := grpc.NewClient(s.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (s *server) raw(frame int) *ingresstest.Caller {
	s.t.Helper()
	c, err := ingresstest.Dial(s.addr, frame)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = c.Close() })
	return c
}

func (s *server) echo(conn *grpc.ClientConn, token string, n int) error {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if token != "" {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	out := &wrapperspb.Int64Value{}
	if err := conn.Invoke(ctx, echo, wrapperspb.Bytes(make([]byte, n)), out); err != nil {
		return err
	}
	if out.Value != int64(n) {
		return fmt.Errorf("%d bytes arrived, %d were sent", out.Value, n)
	}
	return nil
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	testkit.Eventually(t, testTimeout, what, is, nil)
}

// settled waits until nothing is charged any more.
func (s *server) settled() {
	s.t.Helper()
	until(s.t, "everything given back", func() bool { return s.gate.Stats() == ingress.Stats{} })
}

// watch looks at how much is held, until it is asked for the most.
func (s *server) watch() (most func() int64) {
	stop, watched := make(chan struct{}), make(chan int64, 1)
	go func() {
		most := int64(0)
		for {
			most = max(most, s.gate.Stats().Bytes)
			select {
			case <-stop:
				watched <- most
				return
			case <-time.After(100 * time.Microsecond):
			}
		}
	}()
	return func() int64 {
		close(stop)
		return <-watched
	}
}

func (s *server) why(reason string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.refused[reason]
}

// Calls of all sizes come through, and nothing stays charged.
func TestServed(t *testing.T) {
	s := serve(t, nil)
	for _, n := range []int{0, 1, 100, 1 << 10, 4 << 10, 4<<10 + 1, 60 << 10, 70 << 10, 1 << 20, 3 << 20} {
		if err := s.echo(s.conn, "a", n); err != nil {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	if err := s.echo(s.conn, "a", 5<<20); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a message beyond the server's bound: %v", err)
	}
	if err := s.echo(s.conn, "bad", 1); status.Code(err) != codes.Unauthenticated {
		t.Errorf("a bad token: %v", err)
	}
	if err := s.echo(s.conn, "", 100); err != nil {
		t.Errorf("a stranger: %v", err)
	}
	if err := s.echo(s.conn, "", 2<<10); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("a stranger's large message: %v", err)
	}
	err := s.conn.Invoke(context.Background(), "/test.Service/Nothing", &wrapperspb.BytesValue{}, &wrapperspb.Int64Value{})
	if status.Code(err) != codes.Unimplemented {
		t.Errorf("an unknown method: %v", err)
	}
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			if err := s.echo(s.conn, "a", i*1000); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	s.settled()
}

// Streams have no time limit, with messages of all sizes.
func TestStreams(t *testing.T) {
	s := serve(t, nil)
	ctx, cancel := context.WithTimeout(metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer a"), testTimeout)
	defer cancel()
	st, err := s.conn.NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}, stream)
	if err != nil {
		t.Fatal(err)
	}
	sizes := []int{0, 1, 3 << 20, 2, 100 << 10, 3 << 20, 5, 0, 0, 64 << 10}
	for range 4 {
		go func() {
			for _, n := range sizes {
				_ = st.SendMsg(wrapperspb.Bytes(make([]byte, n))) // what fails shows below
			}
		}()
		for _, n := range sizes {
			out := &wrapperspb.Int64Value{}
			if err := st.RecvMsg(out); err != nil || out.Value != int64(n) {
				t.Fatalf("message of %d bytes: %v, %v", n, out.Value, err)
			}
		}
	}
	if err := st.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if err := st.RecvMsg(&wrapperspb.Int64Value{}); !errors.Is(err, io.EOF) {
		t.Errorf("the stream ends with %v", err)
	}
}

// A refused call's message is not read: no more of it is taken than a window, and what is taken is let go at once.
func TestRefusedUnread(t *testing.T) {
	s := serve(t, nil)
	r := s.raw(0).Begin(echo, "bad")
	r.Announce(4 << 20)
	if sent := r.Push(4<<20, testTimeout); sent > 64<<10 {
		t.Errorf("%d bytes were taken", sent)
	}
	if code, err := r.Wait(testTimeout); code != "16" {
		t.Errorf("status %q, %v", code, err)
	}
	s.settled()
	if s.why(ingress.RefusedCheck) != 1 {
		t.Errorf("refusals: %v", s.refused)
	}
}

// Unfinished messages hold no more than the bounds of connection, class and node, and small calls are served
// concurrently; large ones are, as soon as the slow ones have been closed.
func TestUnfinished(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := serve(t, nil)
	var wg sync.WaitGroup
	one := s.raw(0)
	for range 8 { // one connection
		wg.Go(func() {
			r := one.Begin(echo, "a")
			r.Announce(2 << 20)
			r.Push(2<<20-1, 300*time.Millisecond)
		})
	}
	for i := range 24 { // many
		c := s.raw(0)
		wg.Go(func() {
			r := c.Begin(echo, fmt.Sprintf("class-%d", i%3))
			r.Announce(2 << 20)
			r.Push(2<<20-1, 300*time.Millisecond)
		})
	}
	most := s.watch()
	wg.Wait()
	if err := s.echo(s.conn, "b", 100); err != nil {
		t.Errorf("a small call beside them: %v", err)
	}
	until(t, "a large call served", func() bool { return s.echo(s.conn, "b", 3<<20) == nil })
	if held := most(); held > limits.Node+limits.Reserve || held < limits.Node/2 {
		t.Errorf("%d bytes were held at most", held)
	}
	if s.why(ingress.RefusedSlow) == 0 {
		t.Errorf("no slow request has given way: %v", s.refused)
	}
}

// Tiny frames cost more than their bytes.
func TestTinyFrames(t *testing.T) {
	s := serve(t, nil)
	most := s.watch()
	r := s.raw(1).Begin(echo, "a")
	r.Announce(4 << 20)
	if sent := r.Push(4<<20-1, testTimeout); sent == 4<<20-1 {
		t.Error("all was taken, one by one")
	}
	if _, err := r.Wait(testTimeout); err != nil {
		t.Error(err)
	}
	s.settled()
	if held := most(); held < limits.Connection/2 || held > limits.Connection+limits.Reserve/4 {
		t.Errorf("%d bytes were held", held)
	}
}

// Calls whose headers alone were sent are bounded, and end; so are those of strangers and those with a deadline that
// has passed when they begin.
func TestHeadersOnly(t *testing.T) {
	s := serve(t, nil)
	c := s.raw(0)
	for range 300 {
		c.Begin(echo, "a")
	}
	until(t, "calls beyond the bound refused", func() bool { return s.why(ingress.RefusedCalls) >= 100 })
	until(t, "the others under way", func() bool { return s.gate.Stats().Calls == limits.Calls })
	_ = c.Close()
	s.settled()
	c = s.raw(0)
	for range 300 {
		c.Begin(echo, "a", hpack.HeaderField{Name: "grpc-timeout", Value: "1n"})
	}
	last := c.Begin(echo, "bad")
	if _, err := last.Wait(testTimeout); err != nil {
		t.Error(err)
	}
	s.settled()
	for range 20 {
		c.Begin(echo, "")
	}
	until(t, "strangers refused", func() bool { return s.why(ingress.RefusedCalls) >= 116 })
}

// Handlers hold their messages' bytes until they end.
func TestHandledBytes(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := serve(t, nil)
	s.hold = make(chan struct{})
	results := make(chan error, 8)
	for i := range 8 {
		conn := s.dial()
		go func() { results <- s.echo(conn, fmt.Sprintf("class-%d", i), 3<<20) }()
	}
	refused := 0
	for range 6 { // two fit
		if err := <-results; status.Code(err) == codes.ResourceExhausted {
			refused++
		}
	}
	if refused != 6 || s.why(ingress.RefusedBytes) != 6 {
		t.Errorf("%d were refused: %v", refused, s.refused)
	}
	close(s.hold)
	for range 2 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
}
