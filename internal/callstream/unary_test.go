package callstream

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// gate is a connection whose writes can be held.
type gate struct {
	net.Conn
	shut    atomic.Bool
	held    chan struct{} // a write is held
	release chan struct{} // when closed, held writes fail
}

func (g *gate) Write(b []byte) (int, error) {
	if g.shut.Load() {
		g.held <- struct{}{}
		<-g.release
		return 0, net.ErrClosed
	}
	return g.Conn.Write(b)
}

// steps follows the calls of a connection.
type steps struct {
	headers func()        // is called before each request is written
	written chan struct{} // a request is queued for its connection
	ended   chan struct{} // a connection has ended, and all its calls
}

func (*steps) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (*steps) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (s *steps) HandleRPC(_ context.Context, step stats.RPCStats) {
	switch step.(type) {
	case *stats.OutHeader:
		s.headers()
	case *stats.OutPayload:
		s.written <- struct{}{}
	}
}

func (s *steps) HandleConn(_ context.Context, step stats.ConnStats) {
	if _, ok := step.(*stats.ConnEnd); ok {
		s.ended <- struct{}{}
	}
}

// TestCutTwice: a unary call whose connection breaks before the server has seen it, and whose next connection breaks
// before its request is written, ends with a status, or with success on a third one.
func TestCutTwice(t *testing.T) {
	p := newPair(t, echo, nil)
	wait := func(c <-chan struct{}, what string) {
		t.Helper()
		select {
		case <-c:
		case <-time.After(limit):
			t.Errorf("no end of the wait for %s", what)
		}
	}
	gates := make(chan *gate, 8)
	steps := &steps{headers: func() {}, written: make(chan struct{}, 8), ended: make(chan struct{}, 8)}
	conn, err := grpc.NewClient("passthrough:///server", grpc.WithTransportCredentials(insecure.NewCredentials()), WithStatus(), grpc.WithDisableRetry(),
		grpc.WithStatsHandler(steps), grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := p.listener.DialContext(ctx)
			if err != nil {
				return nil, err
			}
			g := &gate{Conn: conn, held: make(chan struct{}, 8), release: make(chan struct{})}
			gates <- g
			return g, nil
		}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	client := healthv1.NewHealthClient(conn)
	if err := ask(t.Context(), client, ""); err != nil {
		t.Fatal(err)
	}
	wait(steps.written, "the first request")
	first := <-gates
	first.shut.Store(true)
	errs := make(chan error, 2)
	call := func(name string) { errs <- ask(t.Context(), client, name) }
	go call("held")
	wait(steps.written, "the held request")
	wait(first.held, "the write of the held request")
	go call("cut") // waits in memory behind the held one
	wait(steps.written, "the request behind it")
	steps.headers = sync.OnceFunc(func() { // the call is made again, and the held one if its headers were held too
		(<-gates).Close()
		wait(steps.ended, "the first connection")
		wait(steps.ended, "the second connection")
	})
	first.Close()
	conn.WaitForStateChange(t.Context(), connectivity.Ready) // gRPC takes no more of its streams as begun
	close(first.release)
	for range 2 {
		if err := <-errs; err != nil && status.Code(err) != codes.Unavailable {
			t.Errorf("a call at the cut: %v", err)
		}
	}
}
