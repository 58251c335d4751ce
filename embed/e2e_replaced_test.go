package embed_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"perdure/client"
	"perdure/embed"
	"perdure/partition/identity"
)

// TestReplacedServer: a member loses its disk and returns as a new server. Then the old disk is started as a
// process on other ports. It reports whose membership it has lost and exits with 1, and again at the next
// start. It never opens a port to clients, and the cluster is not disturbed.
func TestReplacedServer(t *testing.T) {
	t.Parallel() // it waits most of the time
	if testing.Short() {
		t.Skip("builds the node's binary; left out with -short")
	}
	cfgs := memberConfigs(t)
	nodes := startAll(t, cfgs...)
	ctx, cancel := context.WithTimeout(context.Background(), 4*testTimeout)
	defer cancel()
	c := clusterClient(t, cfgs...)
	create := func(id string) {
		t.Helper()
		if _, err := c.CreatePromise(ctx, id, client.PromiseOptions{Timeout: time.Hour}); err != nil {
			t.Fatal(err)
		}
	}
	create("before")
	if err := nodes[2].stop(); err != nil {
		t.Fatal(err)
	}
	lost, err := identity.Read(cfgs[2].DataDir)
	if err != nil {
		t.Fatal(err)
	}
	old := cfgs[2]
	old.DataDir = filepath.Join(t.TempDir(), "old")
	if err := os.Rename(cfgs[2].DataDir, old.DataDir); err != nil {
		t.Fatal(err)
	}
	nodes[2] = startAll(t, cfgs[2])[0]
	has, err := identity.Read(cfgs[2].DataDir)
	if err != nil || has.ServerID == lost.ServerID {
		t.Fatalf("%v, %v", has, err)
	}

	// The old disk is back.
	old.GRPCAddr, old.HTTPAddr, old.PeerAddr, old.GossipAddr = fixedAddr(t), fixedAddr(t), fixedAddr(t), fixedAddr(t)
	binary := nodeBinary(t)
	open := func() string {
		for _, addr := range []string{old.GRPCAddr, old.HTTPAddr} {
			if conn, err := net.DialTimeout("tcp", addr, time.Second); err == nil {
				_ = conn.Close() // it is the finding
				return addr
			}
		}
		return ""
	}
	for _, start := range []string{"the first start", "the second start"} {
		p := exec.CommandContext(ctx, binary, "start", "--node-id", "n3", "--bootstrap-expect", "3", "--join", strings.Join(old.Join, ","),
			"--data", old.DataDir, "--grpc-addr", old.GRPCAddr, "--http-addr", old.HTTPAddr, "--peer-addr", old.PeerAddr, "--gossip-addr", old.GossipAddr)
		said := &logBuffer{}
		p.Stderr = said
		if err := p.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 1)
		go func() { ended <- p.Wait() }()
		tick := time.NewTicker(5 * time.Millisecond)
		for over := false; !over; {
			if addr := open(); addr != "" {
				t.Errorf("%s: port %s was open", start, addr)
			}
			select {
			case err := <-ended:
				over = true
				var exit *exec.ExitError
				if !errors.As(err, &exit) || exit.ExitCode() != 1 {
					t.Errorf("%s: %v, want exit code 1", start, err)
				}
			case <-tick.C:
			}
		}
		tick.Stop()
		want := fmt.Sprintf("node: cannot start: node n3: this server (%s) has been replaced by server %s at %s", lost.ServerID, has.ServerID, cfgs[2].PeerAddr)
		if !said.has(want) || !said.has("Remove its data directory "+old.DataDir+" or keep it aside") {
			t.Errorf("%s does not say %q:\n%s", start, want, said.tail())
		}
	}
	var replaced *identity.ReplacedError
	if n, err := embed.Start(ctx, old); !errors.As(err, &replaced) || replaced.Successor != has.ServerID {
		t.Errorf("as a library: %v, %v", n, err)
	}

	create("after")
	for _, n := range nodes {
		until(t, n.cfg.NodeID+" to be ready", n.NotReady) // a busy machine may be in the middle of an election
	}
	until(t, "the successor to say that it is ready", func() error {
		resp, err := http.Get("http://" + cfgs[2].HTTPAddr + "/readyz")
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return errors.New(resp.Status)
		}
		return nil
	})
}
