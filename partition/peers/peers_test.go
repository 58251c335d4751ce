package peers

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/partition/transport"
)

// directory answers ShowDirectory.
type directory struct {
	commandv1.UnimplementedPeersServer
}

func (directory) ShowDirectory(context.Context, *commandv1.ShowDirectoryRequest) (*commandv1.ShowDirectoryReply, error) {
	return &commandv1.ShowDirectoryReply{}, nil
}

// Propose answers every command.
func (directory) Propose(context.Context, *commandv1.ProposeRequest) (*commandv1.Reply, error) {
	return &commandv1.Reply{}, nil
}

// noting notes by which method of the connection the last command came.
type noting struct {
	directory
	method atomic.Value
}

func (n *noting) Propose(ctx context.Context, req *commandv1.ProposeRequest) (*commandv1.Reply, error) {
	method, _ := grpc.Method(ctx)
	n.method.Store(method)
	return n.directory.Propose(ctx, req)
}

// TestCallsOnStreamsAreChecked: a member that was replaced while its stream is open makes no call on it any more.
func TestCallsOnStreamsAreChecked(t *testing.T) {
	var replaced atomic.Bool
	var checked atomic.Int32
	listen := func(server string) *transport.Mux {
		mux, err := transport.Listen("127.0.0.1:0", transport.Options{ClusterID: "c1", ServerID: server, Member: func(string) bool { return true }})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { mux.Close() })
		return mux
	}
	at, from := listen("s"), listen("caller")
	p := New(at, func(server string) error {
		checked.Add(1)
		if server != "caller" || replaced.Load() {
			return api.Errorf(perdurev1.Reason_REASON_MEMBERSHIP_REFUSED, "%s is no member", server)
		}
		return nil
	}, func() {})
	service := &noting{}
	p.Serve(service)
	defer p.Close()
	other := New(from, nil, func() {})
	defer other.Close()
	client, err := other.Client(at.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	propose := func() error {
		_, err := client.Propose(t.Context(), &commandv1.ProposeRequest{})
		return err
	}
	// A unary call that has just been answered may still count as under way, so the number of calls does not show a stream.
	eventually(t, "a call on a stream", func() bool {
		if err := propose(); err != nil {
			t.Fatal(err)
		}
		return service.method.Load() != commandv1.Peers_Propose_FullMethodName
	}, func() string { return fmt.Sprint("the last came by ", service.method.Load()) })
	before := checked.Load()
	for range 10 {
		if err := propose(); err != nil {
			t.Fatal(err)
		}
	}
	if n := checked.Load() - before; n != 10 {
		t.Errorf("%d of 10 calls were checked", n)
	}
	replaced.Store(true)
	if err := propose(); !api.Is(err, perdurev1.Reason_REASON_MEMBERSHIP_REFUSED) {
		t.Errorf("a call of a replaced member: %v", err)
	}
}

// eventually waits for a state for a minute.
func eventually(t *testing.T, what string, is func() bool, see func() string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited for %s; last seen: %s", what, see())
		}
	}
}

// TestStrangersConnectionsEnd: the connection of a server that is no member ends after a while. One that is admitted
// meanwhile connects again as a member and stays.
func TestStrangersConnectionsEnd(t *testing.T) {
	var admitted atomic.Bool
	mux, err := transport.Listen("127.0.0.1:0", transport.Options{ClusterID: "c1", ServerID: "s", Member: func(string) bool { return admitted.Load() }})
	if err != nil {
		t.Fatal(err)
	}
	defer mux.Close()
	p := New(mux, func(string) error { return nil }, func() {})
	p.strangerAge, p.helloTimeout = 200*time.Millisecond, 500*time.Millisecond
	p.Serve(directory{})
	defer p.Close()
	from, err := transport.Listen("127.0.0.1:0", transport.Options{ClusterID: "c1", ServerID: "joining"})
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	conn, err := Dial(from, mux.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask := func() {
		t.Helper()
		if _, err := commandv1.NewPeersClient(conn).ShowDirectory(t.Context(), &commandv1.ShowDirectoryRequest{}, grpc.WaitForReady(true)); err != nil {
			t.Error(err)
		}
	}
	show := func() string { return fmt.Sprintf("%+v", mux.Stats()) }
	ask()
	eventually(t, "the stranger's connection to end", func() bool { return mux.Stats().Strangers == 0 && mux.Stats().Open == 0 }, show)
	ask()
	admitted.Store(true)
	eventually(t, "it to connect as a member", func() bool { ask(); return mux.Stats().Strangers == 0 && mux.Stats().Open == 1 }, show)
	// A connection without a word is ended as well.
	admitted.Store(false)
	if _, err := from.Dial(t.Context(), mux.Addr().String(), ServiceName); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the silent connection to end", func() bool { return mux.Stats().Open == 1 }, show)
}
