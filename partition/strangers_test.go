package partition

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/ingress/ingresstest"
	"perdure/partition/peers"
	"perdure/partition/transport"
)

// stranger opens a connection to the Peers service of an address, as a server that is no member.
func stranger(t testing.TB, server, addr string) *ingresstest.Caller {
	t.Helper()
	mux, err := transport.Listen("127.0.0.1:0", transport.Options{ClusterID: "c1", ServerID: server})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = mux.Close() })
	conn, err := mux.Dial(context.Background(), addr, peers.ServiceName)
	if err != nil {
		t.Fatal(err)
	}
	caller, err := ingresstest.New(conn, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = caller.Close() })
	return caller
}

// TestStrangersBodiesAreNotRead: the port does not read the requests of servers that are no members,
// whichever methods they call, and members' calls continue.
func TestStrangersBodiesAreNotRead(t *testing.T) {
	t.Parallel() // it waits most of the time
	all := newCluster(t, 1)
	addr := all[0].cfg.PeerAddr
	const conns, calls, each = 8, 12, 4 << 20
	methods := []string{commandv1.Peers_Propose_FullMethodName, commandv1.Peers_Join_FullMethodName, commandv1.Peers_Attach_FullMethodName}
	var taken, named atomic.Int64
	var flood sync.WaitGroup
	for i := range conns {
		caller := stranger(t, fmt.Sprint("stranger", i), addr)
		for j := range calls {
			flood.Go(func() {
				r := caller.Begin(methods[j%len(methods)], "")
				r.Announce(60 << 20)
				taken.Add(r.Push(each, 2*time.Second))
				// By name: who calls, and not how much. A slow machine may end the stranger's connection first.
				want := fmt.Sprint(int(status.Code(api.Errorf(perdurev1.Reason_REASON_MEMBERSHIP_REFUSED, "").GRPCStatus().Err())))
				switch got, err := r.Wait(waitLimit); {
				case methods[j%len(methods)] == commandv1.Peers_Join_FullMethodName || errors.Is(err, io.EOF):
				case got == want:
					named.Add(1)
				default:
					t.Errorf("%s ended with %q, %v, must be %s", methods[j%len(methods)], got, err, want)
				}
			})
		}
	}
	conn, err := peers.Dial(all[1].mux, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	for range 20 {
		if _, err := commandv1.NewPeersClient(conn).Status(bg(t), &commandv1.StatusRequest{}, grpc.WaitForReady(true)); err != nil {
			t.Errorf("a member's call: %v", err)
		}
	}
	flood.Wait()
	if named.Load() == 0 {
		t.Error("no stranger was refused by name")
	}
	// A call's window is sent before its end is heard of.
	if n := taken.Load(); n > conns*calls*(128<<10) {
		t.Errorf("%d bytes were taken of strangers' calls that announce 60 MiB each", n)
	}
}
