package embed_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"perdure/client"
	"perdure/embed"
	"perdure/internal/testkit"
)

// memberConfigs are the settings of three nodes that are to make a cluster.
func memberConfigs(t *testing.T) []embed.Config {
	var all []embed.Config
	var join []string
	for range 3 {
		join = append(join, fixedAddr(t))
	}
	for i := range 3 {
		cfg := nodeConfig(t.TempDir())
		cfg.NodeID, cfg.BootstrapExpect, cfg.Join, cfg.GossipAddr = fmt.Sprintf("n%d", i+1), 3, join, join[i]
		cfg.PeerAddr, cfg.GRPCAddr, cfg.HTTPAddr = fixedAddr(t), fixedAddr(t), fixedAddr(t)
		cfg.CommitTimeout = 50 * time.Millisecond // the followers learn soon what was committed
		all = append(all, cfg)
	}
	return all
}

// startAll starts nodes side by side.
func startAll(t *testing.T, cfgs ...embed.Config) []*running {
	t.Helper()
	out, errs := make([]*running, len(cfgs)), make([]error, len(cfgs))
	var wg sync.WaitGroup
	for i, cfg := range cfgs {
		wg.Go(func() { out[i], errs[i] = start(cfg) })
	}
	wg.Wait()
	for i, n := range out {
		if errs[i] != nil {
			t.Errorf("%s: %v", cfgs[i].NodeID, errs[i])
			continue
		}
		t.Cleanup(func() {
			if err := n.stop(); err != nil {
				t.Errorf("%s: %v", n.cfg.NodeID, err)
			}
		})
	}
	if t.Failed() {
		t.FailNow()
	}
	return out
}

func clusterClient(t *testing.T, cfgs ...embed.Config) *client.Client {
	t.Helper()
	var addrs []string
	for _, c := range cfgs {
		addrs = append(addrs, c.GRPCAddr)
	}
	c, err := client.Dial(client.Options{Addrs: addrs})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// TestThreeMembers: three nodes find each other by gossip and become one cluster; a fourth is refused; one
// whose data is gone becomes a member again as a new server; all of them restart.
func TestThreeMembers(t *testing.T) {
	t.Parallel() // it waits most of the time
	cfgs := memberConfigs(t)
	nodes := startAll(t, cfgs...)
	ctx, cancel := context.WithTimeout(context.Background(), 2*testTimeout)
	defer cancel()
	c := clusterClient(t, cfgs...)
	create := func(from, to int) {
		t.Helper()
		for i := from; i < to; i++ {
			if _, err := c.CreatePromise(ctx, fmt.Sprintf("p%d", i), client.PromiseOptions{Timeout: time.Hour}); err != nil {
				t.Fatal(err)
			}
		}
	}
	read := func(to int) {
		t.Helper()
		for i := range to {
			if _, err := c.GetPromise(ctx, fmt.Sprintf("p%d", i)); err != nil {
				t.Fatal(err)
			}
		}
	}
	create(0, 20)
	st, err := c.ClusterStatus(ctx)
	if err != nil || len(st.Nodes) != 3 || st.State != "ready" {
		t.Fatalf("%v, %v", st, err)
	}

	made := st.Epoch

	// A fourth.
	fourth := nodeConfig(t.TempDir())
	fourth.NodeID, fourth.BootstrapExpect, fourth.Join = "n4", 3, cfgs[0].Join
	fourth.PeerAddr, fourth.GRPCAddr, fourth.HTTPAddr, fourth.GossipAddr = fixedAddr(t), fixedAddr(t), fixedAddr(t), fixedAddr(t)
	if n, err := start(fourth); err == nil {
		_ = n.stop()
		t.Fatal("a fourth node was let in")
	} else if !strings.Contains(err.Error(), "n4 is not one of them") {
		t.Fatalf("a fourth node: %v", err)
	}
	// A node with other settings than the cluster's, and the node id of a running member.
	second := fourth
	second.NodeID, second.DataDir = "n1", t.TempDir()
	if n, err := start(second); err == nil {
		_ = n.stop()
		t.Fatal("a second n1 was let in")
	} else if !strings.Contains(err.Error(), "node n1 is running") {
		t.Fatalf("a second n1: %v", err)
	}

	// A member loses its data.
	if err := nodes[2].stop(); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(cfgs[2].DataDir); err != nil {
		t.Fatal(err)
	}
	create(20, 40)
	nodes[2] = startAll(t, cfgs[2])[0]
	read(40)

	// All of them stop and start.
	for _, n := range nodes {
		if err := n.stop(); err != nil {
			t.Fatal(err)
		}
	}
	startAll(t, cfgs...)
	read(40)
	create(40, 60)
	if st, err = c.ClusterStatus(ctx); err != nil || st.Epoch <= made {
		t.Errorf("%v, %v", st, err)
	}
}

// TestMembersThatDisagree: nodes with other settings make no cluster and say why.
func TestMembersThatDisagree(t *testing.T) {
	t.Parallel() // it waits most of the time
	cfgs := memberConfigs(t)
	cfgs[1].Partitions = 8
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for _, cfg := range cfgs {
		cfg.Logger = slog.New(slog.DiscardHandler)
		wg.Go(func() {
			if n, err := embed.Start(ctx, cfg); err == nil {
				t.Error("a cluster was made of nodes that disagree")
				_ = n.Close(context.Background())
			}
		})
	}
	var said string
	eventually(t, "the node says why it is not ready", func() bool {
		resp, err := http.Get("http://" + cfgs[0].HTTPAddr + "/readyz")
		if err != nil {
			said = err.Error()
			return false
		}
		b, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		said = fmt.Sprint(resp.StatusCode, string(b), err)
		return resp.StatusCode == 503 && strings.Contains(said, "node n2 was started with --partitions 8, this one with 4")
	}, func() string { return said })
}

// eventually waits until a state is there; see says what is there instead.
func eventually(t *testing.T, what string, is func() bool, see func() string) {
	t.Helper()
	testkit.Eventually(t, testTimeout, what, is, see)
}

// TestNoiseOnEveryPort: a caller that sends random bytes to the ports of a cluster is refused, logged, and
// disturbs nothing.
func TestNoiseOnEveryPort(t *testing.T) {
	t.Parallel() // it waits most of the time
	cfgs := memberConfigs(t)
	nodes := startAll(t, cfgs...)
	ctx, cancel := context.WithTimeout(context.Background(), 2*testTimeout)
	defer cancel()
	rng := rand.New(rand.NewPCG(1, 2))
	noise := func() []byte {
		b := make([]byte, 1+rng.IntN(600))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		switch rng.IntN(4) {
		case 0:
			copy(b, "PRDU\x01\x00\x20") // how peers begin
		case 1:
			copy(b, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n") // how gRPC begins
		case 2:
			copy(b, "GET /metrics HTTP/1.1\r\n")
		}
		return b
	}
	var targets []string
	for _, c := range cfgs {
		targets = append(targets, c.PeerAddr, c.GossipAddr, c.HTTPAddr, c.GRPCAddr)
	}
	var storm [][]byte
	for range 1000 {
		storm = append(storm, noise())
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i, b := range storm {
			addr := targets[i%len(targets)]
			if conn, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
				_, _ = conn.Write(b) // the other side may have hung up already
				_ = conn.Close()
			}
			if conn, err := net.Dial("udp", cfgs[i%3].GossipAddr); err == nil {
				_, _ = conn.Write(b)
				_ = conn.Close()
			}
		}
	}()
	c := clusterClient(t, cfgs...)
	written := 0
	for over := false; !over; written++ {
		if _, err := c.CreatePromise(ctx, fmt.Sprintf("p%d", written), client.PromiseOptions{Timeout: time.Hour}); err != nil {
			t.Fatalf("write %d: %v", written, err)
		}
		select {
		case <-done:
			over = written >= 100
		default:
		}
	}
	for i := range written {
		if _, err := c.GetPromise(ctx, fmt.Sprintf("p%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	for _, n := range nodes {
		until(t, n.cfg.NodeID+" to be ready", n.NotReady) // a busy machine may be in the middle of an election
		for _, want := range []string{"connection refused", "event=gossip_refused"} {
			if !n.log.has(want) {
				t.Errorf("%s does not log %q", n.cfg.NodeID, want)
			}
		}
	}
	t.Logf("%d writes during %d pieces of noise", written, len(storm))
}
