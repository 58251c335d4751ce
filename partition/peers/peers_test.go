package peers

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"

	commandv1 "perdure/api/command/v1"
	"perdure/partition/transport"
)

// directory answers ShowDirectory.
type directory struct {
	commandv1.UnimplementedPeersServer
}

func (directory) ShowDirectory(context.Context, *commandv1.ShowDirectoryRequest) (*commandv1.ShowDirectoryReply, error) {
	return &commandv1.ShowDirectoryReply{}, nil
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
