package jepsen

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"perdure/internal/testkit"
)

// fakeNode, in the environment, makes the test binary a node that only reports that it is ready; echo makes
// it send back the bytes that reach an address.
const fakeNode, echo = "JEPSEN_TEST_FAKE_NODE", "JEPSEN_TEST_ECHO"

var (
	flagNodes  = flag.Int("jepsen.nodes", 3, "nodes of the clusters that tests start")
	flagBinary = flag.String("jepsen.binary", "", "the server; built from the sources by default")
	flagSeed   = flag.Uint64("jepsen.seed", uint64(time.Now().UnixNano())%1_000_000, "seed of the tests")
	flagKeep   = flag.Bool("jepsen.keep", false, "keep data and logs")
)

func TestMain(m *testing.M) {
	if code, is := BeWorker(); is {
		os.Exit(code)
	}
	if how := os.Getenv(fakeNode); how != "" {
		os.Exit(beFakeNode(how, os.Args[1:]))
	}
	if addr := os.Getenv(echo); addr != "" {
		os.Exit(beEcho(addr))
	}
	testkit.ShareBuilds()
	testkit.WaitingTests(clustersAtOnce)
	code := m.Run()
	for c := takeIdle(); c != nil; c = takeIdle() {
		if err := c.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	if builtDir != "" {
		os.RemoveAll(builtDir)
	}
	testkit.Exit(code, goleak.IgnoreTopFunction("perdure/jepsen.spawning"))
}

// beFakeNode is ready until a signal stops it. One that is "weak" ends by itself at the first readiness
// check.
func beFakeNode(how string, args []string) int {
	var addr string
	for i, a := range args {
		if a == "--http-addr" {
			addr = args[i+1]
		}
	}
	fmt.Println("fake node", strings.Join(args, " "))
	if how == "weak" {
		http.HandleFunc("/readyz", func(http.ResponseWriter, *http.Request) { fmt.Println("oh no"); os.Exit(3) })
	} else {
		http.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	}
	failed := make(chan error, 1)
	go func() { failed <- http.ListenAndServe(addr, nil) }()
	asked := make(chan os.Signal, 1)
	signal.Notify(asked, syscall.SIGTERM)
	select {
	case err := <-failed:
		fmt.Println(err)
		return 1
	case <-asked:
		return 0
	}
}

// beEcho echoes each connection's bytes.
func beEcho(addr string) int {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		fmt.Println(err)
		return 1
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			return 1
		}
		go func() {
			defer conn.Close()
			io.Copy(conn, conn)
		}()
	}
}

// clustersAtOnce is how many tests with a cluster run at a time: each waits for elections and leases about half of it.
const clustersAtOnce = 2

var (
	building        sync.Mutex
	builtDir, built string
	// idle are the clusters that no test uses now.
	idle struct {
		sync.Mutex
		clusters []*Cluster
	}
)

// binary builds the server once, in a folder that TestMain removes. It blocks while another test builds.
func binary(ctx context.Context) (string, error) {
	if *flagBinary != "" {
		return *flagBinary, nil
	}
	building.Lock()
	defer building.Unlock()
	if built != "" {
		return built, nil
	}
	if builtDir == "" {
		var err error
		if builtDir, err = os.MkdirTemp("", "perdure-jepsen-test-"); err != nil {
			return "", err
		}
	}
	path, err := Build(ctx, builtDir, BuildOptions{})
	if err != nil {
		return "", errors.Join(err, ctx.Err())
	}
	built = path
	return path, nil
}

// startCluster starts a cluster of the server and waits until it is ready.
func startCluster(ctx context.Context, o Options) (*Cluster, error) {
	var err error
	if o.Binary, err = binary(ctx); err != nil {
		return nil, err
	}
	o.Seed, o.Keep = *flagSeed, *flagKeep
	c, err := Start(ctx, o)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, testTimeout)
	defer cancel()
	if err := c.WaitReady(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// sharedCluster returns a cluster for a test that leaves it whole, and lets others with a cluster run meanwhile. The next
// test gets it if this one passes. It is in network namespaces when the machine allows that.
func sharedCluster(t *testing.T) *Cluster {
	t.Helper()
	if testing.Short() {
		t.Skip("building and breaking a cluster takes more than the few seconds of -short")
	}
	t.Parallel()
	t.Logf("reproduce with -jepsen.seed=%d", *flagSeed)
	c := takeIdle()
	if c == nil {
		var err error
		if c, err = startCluster(t.Context(), Options{Nodes: *flagNodes, Netns: CheckNetns() == nil}); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := dismissWorkers(c); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			if err := c.Close(); err != nil {
				t.Error(err)
			}
			return
		}
		idle.Lock()
		defer idle.Unlock()
		idle.clusters = append(idle.clusters, c)
	})
	return c
}

// takeIdle returns a cluster that no test uses, or nil.
func takeIdle() *Cluster {
	idle.Lock()
	defer idle.Unlock()
	n := len(idle.clusters)
	if n == 0 {
		return nil
	}
	c := idle.clusters[n-1]
	idle.clusters = idle.clusters[:n-1]
	return c
}

// dismissWorkers ends a cluster's workers: the next test has others, with leases of its own.
func dismissWorkers(c *Cluster) error {
	var errs []error
	for _, w := range c.workers {
		errs = append(errs, w.Kill(), os.RemoveAll(w.Book), os.RemoveAll(w.Steps))
	}
	c.workers = nil
	return errors.Join(errs...)
}
