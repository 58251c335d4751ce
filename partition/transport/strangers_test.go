package transport

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// from dials from one of loopback's addresses, as another host would.
func from(t testing.TB, host, addr string) net.Conn {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(host)}}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// shake is the handshake of a server that has only a socket.
func shake(t testing.TB, c net.Conn, h hello) {
	t.Helper()
	h.cluster, h.address = "cluster", c.LocalAddr().String()
	first, err := h.encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Write(first); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(testTimeout))
	code, text, err := readAnswer(c)
	if err != nil || code != CodeOK {
		t.Fatalf("%v %q, %v", code, text, err)
	}
	_ = c.SetReadDeadline(time.Time{})
}

// ended says that the other side has ended a connection.
func ended(c net.Conn) bool {
	_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
	_, err := c.Read(make([]byte, 1))
	return err != nil && !isTimeout(err)
}

// TestHandshakesGiveWayByHost: a flood of half handshakes from one host takes no place from one of another host that is
// still in its own.
func TestHandshakesGiveWayByHost(t *testing.T) {
	b := listen(t, Options{ServerID: "b", MaxPending: 16})
	addr := b.Addr().String()
	go echo(b.Service("ship"), "ship")
	slow := from(t, "127.0.0.1", addr)
	first, err := (&hello{kind: KindService, cluster: "cluster", server: "a", service: "ship"}).encode()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Write(first[:5]); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is there", func() (string, bool) { n := b.Stats().Pending; return fmt.Sprint(n), n == 1 })
	for i := range 200 {
		c := from(t, "127.0.0.2", addr)
		if _, err := c.Write(first[:i%5]); err != nil {
			t.Fatal(err)
		}
		if n := b.Stats().Pending; n > 16 {
			t.Fatalf("%d handshakes", n)
		}
	}
	eventually(t, "most gave way", func() (string, bool) { n := b.Stats().Evicted; return fmt.Sprint(n), n >= 200-16 })
	if _, err := slow.Write(first[5:]); err != nil {
		t.Fatal(err)
	}
	_ = slow.SetReadDeadline(time.Now().Add(testTimeout))
	if code, text, err := readAnswer(slow); err != nil || code != CodeOK {
		t.Fatalf("%v %q, %v", code, text, err)
	}
}

// TestStrangersHoldFewConnections: servers that are no members hold a bounded number of connections, the newest of
// each host, and members still get in. One that is admitted later keeps its connection.
func TestStrangersHoldFewConnections(t *testing.T) {
	var admitted atomic.Bool
	b := listen(t, Options{ServerID: "b", MaxConns: 64, MaxStrangers: 8, Member: func(server string) bool {
		return server == "a" || server == "new" && admitted.Load()
	}})
	addr := b.Addr().String()
	go echo(b.Service("ship"), "ship")
	joining := from(t, "127.0.0.3", addr)
	shake(t, joining, hello{kind: KindService, server: "new", service: "ship"})
	var held []net.Conn
	for i := range 100 {
		c := from(t, "127.0.0.2", addr)
		shake(t, c, hello{kind: KindService, server: fmt.Sprintf("x%d", i), service: "ship"})
		held = append(held, c)
		if st := b.Stats(); st.Strangers > 8 || st.Open > 9 {
			t.Fatalf("strangers hold %d connections, %d are open", st.Strangers, st.Open)
		}
	}
	for i, c := range held {
		eventually(t, fmt.Sprint("connection ", i), func() (string, bool) { is := ended(c); return fmt.Sprint("over: ", is), is == (i < 93) })
	}
	ask(t, joining, "ship?\n")
	admitted.Store(true)
	for i := range 20 {
		shake(t, from(t, "127.0.0.3", addr), hello{kind: KindService, server: fmt.Sprintf("y%d", i), service: "ship"})
	}
	ask(t, joining, "ship?\n")
	a := listen(t, Options{ServerID: "a"})
	c, err := a.Dial(context.Background(), addr, "ship")
	if err != nil {
		t.Fatalf("a member is kept out: %v", err)
	}
	ask(t, c, "ship?\n")
}

// TestOneServerHoldsNotAllConnections: connections under one server's id leave some for other servers.
func TestOneServerHoldsNotAllConnections(t *testing.T) {
	b := listen(t, Options{ServerID: "b", MaxConns: 8})
	addr := b.Addr().String()
	go echo(b.Service("ship"), "ship")
	a, other := listen(t, Options{ServerID: "a"}), listen(t, Options{ServerID: "other"})
	for range 6 {
		if _, err := a.Dial(context.Background(), addr, "ship"); err != nil {
			t.Fatal(err)
		}
	}
	_, err := a.Dial(context.Background(), addr, "ship")
	wantRefused(t, err, CodeBusy)
	c, err := other.Dial(context.Background(), addr, "ship")
	if err != nil {
		t.Fatal(err)
	}
	ask(t, c, "ship?\n")
}

// pushed sends as much of a request to append entries as the other side takes: one entry of the given size. It answers
// how many bytes that were.
func pushed(c net.Conn, size int, stuck time.Duration) (sent int64) {
	head := []byte{0} // rpcAppendEntries
	head = append(head, 0x81, 0xa7)
	head = append(head, "Entries"...)
	head = append(head, 0x91, 0x81, 0xa4)
	head = append(head, "Data"...)
	head = append(head, 0xc6, byte(size>>24), byte(size>>16), byte(size>>8), byte(size))
	chunk := make([]byte, 64<<10)
	for first := true; sent < int64(size); first = false {
		b := chunk
		if first {
			b = head
		}
		_ = c.SetWriteDeadline(time.Now().Add(stuck))
		n, err := c.Write(b)
		sent += int64(n)
		if err != nil {
			return sent
		}
	}
	return sent
}

// TestLargeRequestsOfGroups: the bytes that connections of groups receive at a time are bounded, for any
// announced size and number. Members' requests succeed while strangers hold all permits of strangers.
func TestLargeRequestsOfGroups(t *testing.T) {
	b := listen(t, Options{ServerID: "b", Member: func(server string) bool { return server == "a" }})
	addr := b.Addr().String()
	received := NewRaftTransport(b.Raft(1), RaftOptions{Logger: hclog.NewNullLogger()})
	defer received.Close()
	// A request of no entry's size is ended when it has come to maxMessage.
	giant := from(t, "127.0.0.2", addr)
	shake(t, giant, hello{kind: KindGroup, group: 1, server: "x"})
	if sent := pushed(giant, 256<<20, testTimeout); sent > maxMessage+16<<20 { // plus the sockets' buffers
		t.Errorf("%d bytes of one request were taken", sent)
	}
	_ = giant.Close()
	// One that says it is a snapshot has a head of no size, and a stranger's snapshot is none.
	installs := from(t, "127.0.0.2", addr)
	shake(t, installs, hello{kind: KindGroup, group: 1, server: "x"})
	if _, err := installs.Write([]byte{rpcInstallSnapshot, 0x81, 0xa5, 'P', 'e', 'e', 'r', 's', 0xc6, 0x10, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	if sent := pushed(installs, 256<<20, testTimeout); sent > maxMessage+16<<20 {
		t.Errorf("%d bytes of one snapshot's head were taken", sent)
	}
	_ = installs.Close()
	// Strangers that begin large requests and do not finish them hold the permits of strangers.
	for range 20 {
		c := from(t, "127.0.0.2", addr)
		shake(t, c, hello{kind: KindGroup, group: 1, server: "x"})
		go func() {
			b := make([]byte, 3<<20)
			copy(b, []byte{0, 0x81, 0xa7, 'E', 'n', 't', 'r', 'i', 'e', 's', 0x91, 0x81, 0xa4, 'D', 'a', 't', 'a', 0xc6, 1, 0, 0, 0})
			_ = c.SetWriteDeadline(time.Now().Add(testTimeout))
			_, _ = c.Write(b)
		}()
	}
	const strangers = strangerMedium*mediumMessage + strangerLarge*maxMessage
	eventually(t, "the strangers hold what they may", func() (string, bool) {
		n := b.Stats().Receiving
		if n > strangers {
			t.Fatalf("%d bytes are granted", n)
		}
		return fmt.Sprint(n), n == strangers
	})
	// A member's large entry arrives.
	a := listen(t, Options{ServerID: "a"})
	sender := NewRaftTransport(a.Raft(1), RaftOptions{})
	defer sender.Close()
	go serve(t, received, func(rpc raft.RPC) { rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil) })
	var resp raft.AppendEntriesResponse
	err := sender.AppendEntries("b", raft.ServerAddress(addr), &raft.AppendEntriesRequest{Term: 1, PrevLogEntry: 1,
		Entries: []*raft.Log{{Index: 2, Term: 1, Data: make([]byte, mediumMessage+1<<20)}}}, &resp)
	if err != nil || !resp.Success {
		t.Errorf("a member's entry: %v, %v", resp.Success, err)
	}
	if n := b.Stats().Receiving; n > strangers {
		t.Errorf("%d bytes are granted after the answer", n)
	}
}

// serve answers what arrives until the test ends.
func serve(t *testing.T, received interface{ Consumer() <-chan raft.RPC }, answer func(raft.RPC)) {
	for {
		select {
		case rpc := <-received.Consumer():
			answer(rpc)
		case <-t.Context().Done():
			return
		}
	}
}

// TestSnapshotsAreNotCounted: a snapshot is larger than every request, and goes to the disk.
func TestSnapshotsAreNotCounted(t *testing.T) {
	b := listen(t, Options{ServerID: "b"})
	received := NewRaftTransport(b.Raft(1), RaftOptions{})
	defer received.Close()
	a := listen(t, Options{ServerID: "a"})
	sender := NewRaftTransport(a.Raft(1), RaftOptions{Timeout: testTimeout})
	defer sender.Close()
	const size = maxMessage + 4<<20
	got := make(chan int64, 1)
	go func() {
		rpc := <-received.Consumer()
		n, _ := io.Copy(io.Discard, rpc.Reader)
		got <- n
		rpc.Respond(&raft.InstallSnapshotResponse{Success: true}, nil)
	}()
	err := sender.InstallSnapshot("b", raft.ServerAddress(b.Addr().String()), &raft.InstallSnapshotRequest{Size: size},
		&raft.InstallSnapshotResponse{}, io.LimitReader(zeros{}, size))
	if n := <-got; err != nil || n != size {
		t.Errorf("%d bytes came: %v", n, err)
	}
}

// TestAdmittedServerSendsAsAMember: a connection that began before its server was known to be a member is one of a
// member's from then on.
func TestAdmittedServerSendsAsAMember(t *testing.T) {
	var admitted atomic.Bool
	b := listen(t, Options{ServerID: "b", Member: func(string) bool { return admitted.Load() }})
	received := NewRaftTransport(b.Raft(1), RaftOptions{})
	defer received.Close()
	a := listen(t, Options{ServerID: "new"})
	sender := NewRaftTransport(a.Raft(1), RaftOptions{Timeout: testTimeout})
	defer sender.Close()
	go serve(t, received, func(rpc raft.RPC) {
		if rpc.Reader == nil {
			rpc.Respond(&raft.AppendEntriesResponse{Success: true}, nil)
			return
		}
		_, err := io.Copy(io.Discard, rpc.Reader)
		rpc.Respond(&raft.InstallSnapshotResponse{Success: err == nil}, err)
	})
	addr := raft.ServerAddress(b.Addr().String())
	var appended raft.AppendEntriesResponse
	if err := sender.AppendEntries("b", addr, &raft.AppendEntriesRequest{Term: 1, PrevLogEntry: 1}, &appended); err != nil {
		t.Fatal(err)
	}
	admitted.Store(true)
	const size = maxMessage + 4<<20
	var installed raft.InstallSnapshotResponse
	err := sender.InstallSnapshot("b", addr, &raft.InstallSnapshotRequest{Size: size}, &installed, io.LimitReader(zeros{}, size))
	if err != nil || !installed.Success {
		t.Errorf("a snapshot of %d bytes: %v, %v", size, installed.Success, err)
	}
	if st := b.Stats(); st.Accepted != 1 {
		t.Errorf("%d connections, not the same one", st.Accepted)
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
