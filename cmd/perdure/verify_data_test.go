package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
	"perdure/embed"
	"perdure/internal/testkit"
)

// testTimeout bounds every wait for the real node.
const testTimeout = 60 * time.Second

// realPartitions is how many partitions the real node has.
const realPartitions = 3

// A realNode is the data of a whole node: the directory of one that was stopped in order, and a copy of it as
// kill -9 would have left it. Its contents:
//
//	done, failed, cancelled   have ended; done has called far, which was placed elsewhere
//	sleeping                  waits for its timer sleeping:0
//	calling                   waits for its child calling:0, which waits for a signal
//	asking                    waits for a signal
//	holding                   waits for a signal in a critical section; it holds account@held, where a signal and a
//	                          scheduled one wait
//	waiting                   waits for a worker of a function that no worker has
//	retried                   waits for its child retried:0 and for ownChild, of the same partition; both have retries
//	bare                      is a promise
//	caller                    has ended, after its child caller:0, its timer caller:1 and its signal caller:2
//	flow                      is a graph run: a is completed, k skipped, s waits for a signal
//	made, lost                are graph runs that have ended, lost by a failure
type realNode struct {
	stopped, killed string
	// live is the output of verify while the node ran, inUse its output for the directory in use.
	live, inUse string
	liveCode    int
	inUseCode   int
}

var theNode = sync.OnceValues(func() (*realNode, error) {
	base, err := os.MkdirTemp("", "perdure-verify-test-")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	r := &realNode{stopped: filepath.Join(base, "data"), killed: filepath.Join(base, "killed")}
	n, err := embed.Start(ctx, embed.Config{DataDir: r.stopped, Partitions: realPartitions, CheckInvariants: true,
		DiskReserve: 1 << 20, GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	err = populate(ctx, n.GRPCAddr())
	sh := &shell{addr: n.GRPCAddr()}
	r.live, _, r.liveCode = sh.run("verify", "--json", "--namespace", "default,acme")
	_, r.inUse, r.inUseCode = sh.run("verify", "--data", r.stopped)
	return r, errors.Join(err, copyAlive(ctx, r.stopped, r.killed), n.Close(ctx))
})

// copyAlive copies the directory of a node that runs and has nothing to do: so its files would be found after
// a kill. A small file may be replaced meanwhile; then the copy is made again.
func copyAlive(ctx context.Context, from, to string) error {
	for {
		err := os.CopyFS(to, os.DirFS(from))
		if err == nil || ctx.Err() != nil {
			return err
		}
		if err := os.RemoveAll(to); err != nil {
			return err
		}
	}
}

func TestMain(m *testing.M) {
	if code, is := workerToCheck(); is {
		os.Exit(code)
	}
	if code, is := codecToRun(); is {
		os.Exit(code)
	}
	testkit.WaitingTests(8)
	code := m.Run()
	if used.Load() {
		if n, err := theNode(); err == nil {
			_ = os.RemoveAll(filepath.Dir(n.stopped))
		}
	}
	testkit.Exit(code)
}

var used atomic.Bool

func aRealNode(t *testing.T) *realNode {
	t.Helper()
	used.Store(true)
	n, err := theNode()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// register has a worker run the functions of a real node.
func register(w *durable.Worker) {
	ask := durable.NewFunction("ask", func(ctx durable.Context, _ int) (string, error) {
		return durable.WaitSignal[string](ctx, "go")
	})
	double := durable.NewFunction("double", func(ctx durable.Context, in int) (int, error) {
		return durable.Run(ctx, "double", func(context.Context) (int, error) { return 2 * in, nil })
	})
	spread := durable.NewFunction("spread", func(ctx durable.Context, in int) (int, error) {
		var all []durable.Awaitable
		for i := range 4 * realPartitions { // some of them elsewhere
			f, err := durable.Go(ctx, double, in+i, durable.Spread())
			if err != nil {
				return 0, err
			}
			all = append(all, f)
		}
		return in, durable.AwaitAll(ctx, all...)
	})
	fail := durable.NewFunction("fail", func(durable.Context, int) (int, error) { return 0, errors.New("it broke") })
	nap := durable.NewFunction("sleep", func(ctx durable.Context, _ int) (int, error) { return 0, durable.Sleep(ctx, time.Hour) })
	call := durable.NewFunction("call", func(ctx durable.Context, in int) (string, error) { return durable.Call(ctx, ask, in) })
	all := durable.NewFunction("all", func(ctx durable.Context, in int) (int, error) {
		out, err := durable.Call(ctx, double, in)
		if err == nil {
			err = durable.Sleep(ctx, time.Millisecond)
		}
		if err == nil {
			_, err = durable.WaitSignal[string](ctx, "go")
		}
		return out, err
	})
	account := durable.NewEntity("account", durable.Op("add", func(_ *durable.EntityContext, n *int, by int) (int, error) {
		*n += by
		return *n, nil
	}))
	hold := durable.NewFunction("hold", func(ctx durable.Context, _ int) (string, error) {
		if _, err := durable.Lock(ctx, "account@held"); err != nil {
			return "", err
		}
		return durable.WaitSignal[string](ctx, "go")
	})
	retried := durable.NewFunction("retried", func(ctx durable.Context, in int) (int, error) {
		retry := durable.CallRetry(durable.RetryPolicy{MaxAttempts: 3})
		own, err := durable.Go(ctx, ask, in, retry)
		if err != nil {
			return 0, err
		}
		other, err := durable.Go(ctx, ask, in, retry, durable.ChildID(ownChild), durable.CallTags(map[string]string{"of": "retried"}))
		if err != nil {
			return 0, err
		}
		return in, durable.AwaitAll(ctx, own, other)
	})
	w.Register(ask, double, spread, fail, nap, call, all, account, hold, retried)
}

// populate runs functions of every fate.
func populate(ctx context.Context, addr string) error {
	c, err := client.Dial(client.Options{Addrs: []string{addr}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	w := durable.NewWorker(c, durable.WorkerOptions{})
	register(w)
	working, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	select {
	case <-w.Ready():
	case err := <-ended:
		stop()
		return err
	}
	err = errors.Join(start(ctx, c, "done", "spread"), start(ctx, c, "failed", "fail"), start(ctx, c, "cancelled", "ask"),
		start(ctx, c, "sleeping", "sleep"), start(ctx, c, "calling", "call"), start(ctx, c, "asking", "ask"), start(ctx, c, "waiting", "missing-has-it"))
	err = errors.Join(err, start(ctx, c, "caller", "all"), c.Signal(ctx, "caller", "go", []byte(`"now"`)),
		submit(ctx, c, "flow", node("a", "double"), skipped("k", "fail"), &perdurev1.GraphNode{Id: "s", After: []string{"a"},
			Kind: &perdurev1.GraphNode_Signal{Signal: &perdurev1.SignalNode{Name: "approve"}}}),
		submit(ctx, c, "made", node("a", "double")), submit(ctx, c, "lost", node("a", "fail")))
	err = errors.Join(err, start(ctx, c, "retried", "retried"), start(ctx, c, "holding", "hold"), waitLocked(ctx, c, "account@held"),
		c.SignalEntity(ctx, "account@held", "add", []byte("1"), 0), c.SignalEntity(ctx, "account@held", "add", []byte("1"), time.Hour))
	_, promiseErr := c.CreatePromise(ctx, "bare", client.PromiseOptions{Timeout: time.Hour})
	err = errors.Join(err, promiseErr, reach(ctx, c, "cancelled", perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED))
	_, cancelErr := c.Terminate(ctx, "cancelled", "why")
	err = errors.Join(err, cancelErr, c.Signal(ctx, "asking", "other", []byte(`"x"`)))
	for id, status := range map[string]perdurev1.ExecutionStatus{
		"done":     perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED,
		"failed":   perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED,
		"sleeping": perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED,
		"calling":  perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED, "calling:0": perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED,
		"asking": perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED, "holding": perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED,
		"caller":  perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED,
		"retried": perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED, "retried:0": perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED,
		ownChild: perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED,
		"made":   perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED,
		"lost":   perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED,
		// Both attempts of flow.
		"flow:0.0": perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED,
		"flow:1.0": perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED,
	} {
		err = errors.Join(err, reach(ctx, c, id, status))
	}
	acme, dialErr := client.Dial(client.Options{Addrs: []string{addr}, Namespace: "acme", Logger: slog.New(slog.DiscardHandler)})
	if dialErr == nil {
		err = errors.Join(err, start(ctx, acme, "parcel", "ship"), acme.Close())
	}
	stop()
	return errors.Join(err, dialErr, <-ended, c.Close())
}

func start(ctx context.Context, c *client.Client, id, function string) error {
	_, err := c.Start(ctx, client.StartOptions{ID: id, Function: function, Input: []byte("1"), AllowUnknownFunction: true})
	return err
}

func submit(ctx context.Context, c *client.Client, id string, nodes ...*perdurev1.GraphNode) error {
	_, err := c.SubmitGraph(ctx, client.SubmitGraphOptions{ID: id, Graph: &perdurev1.Graph{Name: id, Nodes: nodes}})
	return err
}

// node is a node of a graph that calls a function; what comes after a skipped one would run though it fails.
func node(id, function string) *perdurev1.GraphNode {
	return &perdurev1.GraphNode{Id: id, Kind: &perdurev1.GraphNode_Function{Function: &perdurev1.FunctionNode{Function: function}}}
}

func skipped(id, function string) *perdurev1.GraphNode {
	n := node(id, function)
	n.OnFailure = perdurev1.OnFailure_ON_FAILURE_SKIP
	return n
}

// reach waits until an execution has a status.
func reach(ctx context.Context, c *client.Client, id string, status perdurev1.ExecutionStatus) error {
	look := time.NewTicker(5 * time.Millisecond)
	defer look.Stop()
	for {
		e, err := c.Describe(ctx, id)
		if err == nil && e.GetStatus() == status {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("%s did not become %s: %v, %w", id, status, e, err)
		}
	}
}

// waitLocked waits until a critical section holds an entity.
func waitLocked(ctx context.Context, c *client.Client, id string) error {
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for {
		e, err := c.GetEntity(ctx, id)
		if err == nil && e.GetLock() != nil {
			return nil
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			return fmt.Errorf("%s was not locked: %v, %w", id, e, err)
		}
	}
}

// verifyReport is the output of verify --json.
type verifyReport struct {
	OK                                                                                   bool
	Partitions, Executions, Open, Events, Promises, Tasks, Callbacks, Messages, Replayed int
	Namespaces                                                                           []string
	Violations                                                                           []struct {
		Rule, Namespace, ID, Detail string
		Seq, Partition              *int
	}
}

// finds reports whether a violation of a rule is found by an object.
func (j verifyReport) finds(rule, id, says string) bool {
	for _, v := range j.Violations {
		if v.Rule == rule && v.ID == id && strings.Contains(v.Detail, says) {
			return true
		}
	}
	return false
}

func verifyReportOf(t *testing.T, text string) (j verifyReport) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	return j
}

func verifyDir(t *testing.T, dir string) (j verifyReport, stderr string, code int) {
	t.Helper()
	stdout, stderr, code := (&shell{addr: "127.0.0.1:1"}).run("verify", "--data", dir, "--json")
	if stdout != "" {
		j = verifyReportOf(t, stdout)
	}
	return j, stderr, code
}

// A node that has run functions of every fate has nothing wrong: while it runs, after it was stopped, and
// after it was killed; and looking changes nothing.
func TestVerifyRealNode(t *testing.T) {
	n := aRealNode(t)
	live := verifyReportOf(t, n.live)
	if n.liveCode != exitDone || !live.OK || live.Executions != 34 || live.Open != 11 || live.Events < 40 {
		t.Errorf("while it ran: exit %d, %s", n.liveCode, n.live)
	}
	if n.inUseCode != exitUnavailable || !strings.Contains(n.inUse, "IN_USE") || !strings.Contains(n.inUse, "state-0000 is in use by a running process") {
		t.Errorf("its directory, while it ran: exit %d, %s", n.inUseCode, n.inUse)
	}
	for what, dir := range map[string]string{"stopped": n.stopped, "killed": n.killed} {
		before := content(t, dir)
		got, stderr, code := verifyDir(t, dir)
		if code != exitDone || !got.OK || stderr != "" {
			t.Errorf("%s: exit %d, %s, %+v", what, code, stderr, got)
		}
		if got.Partitions != realPartitions || !slices.Equal(got.Namespaces, []string{"acme", "default"}) || got.Executions != live.Executions ||
			got.Open != live.Open || got.Events != live.Events || got.Tasks != live.Executions-2 || // a graph run has none, an entity has one
			got.Promises < got.Tasks || got.Callbacks != 0 { // only clients' tasks have some
			t.Errorf("%s: it holds %+v, while it ran %+v", what, got, live)
		}
		if killed := what == "killed"; killed != (got.Replayed > 0) {
			t.Errorf("%s: %d log entries were applied", what, got.Replayed)
		}
		if after := content(t, dir); after != before {
			t.Errorf("%s: the directory has changed:\n%s\nit was\n%s", what, after, before)
		}
	}
	stdout, _, code := (&shell{addr: "127.0.0.1:1"}).run("verify", "--data", n.stopped, "--parallel", "1")
	if code != exitDone || !strings.HasPrefix(stdout, "partitions  3\nnamespaces  acme, default\nexecutions  34\nopen        11\n") || !strings.HasSuffix(stdout, "\nok\n") {
		t.Errorf("exit %d, for people:\n%s", code, stdout)
	}
}

// content is a directory's files with their content and times; of the LOCK files, which are taken while it is
// read, the time is left out.
func content(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	if err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, path))
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(&b, "%s %d bytes %x", path, len(data), sha256.Sum256(data))
		if d.Name() != "LOCK" {
			fmt.Fprint(&b, " ", info.ModTime())
		}
		b.WriteByte('\n')
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// ownChild is the id of a child of retried, which has its proxy promise in the same partition.
var ownChild = func() string {
	for i := 0; ; i++ {
		if child := fmt.Sprint("own-child-", i); here(child) == here("retried") {
			return child
		}
	}
}()

// elsewhere is an id that belongs to another partition than id.
func elsewhere(id string) string {
	for i := 0; ; i++ {
		if other := fmt.Sprint("elsewhere", i); here(other) != here(id) {
			return other
		}
	}
}

// A directory that is not what it says is refused, and the store is named.
func TestVerifyRefusesStores(t *testing.T) {
	n := aRealNode(t)
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	for what, c := range map[string]struct {
		from   string
		change func(dir string) error
		names  string
	}{
		"missing": {n.stopped, func(dir string) error { return os.RemoveAll(filepath.Join(dir, "state-0001")) }, "state-0001 is missing"},
		"foreign": {n.stopped, func(dir string) error {
			return errors.Join(os.RemoveAll(filepath.Join(dir, "state-0001")),
				os.CopyFS(filepath.Join(dir, "state-0001"), os.DirFS(filepath.Join(dir, "state-0002"))))
		}, "state-0001 is stamped"},
		"damaged": {n.stopped, func(dir string) error {
			tables, err := filepath.Glob(filepath.Join(dir, "state-0002", "*.sst"))
			for _, name := range tables {
				data, readErr := os.ReadFile(name)
				data[len(data)/2] ^= 0xff
				err = errors.Join(err, readErr, os.WriteFile(name, flip(data), 0o644))
			}
			return err
		}, "state-0002"},
		"identity": {n.stopped, func(dir string) error { return os.Remove(filepath.Join(dir, "IDENTITY")) }, "IDENTITY"},
		"no log":   {n.stopped, func(dir string) error { return os.RemoveAll(filepath.Join(dir, "raft-log")) }, "raft-log"},
		"damaged log": {n.killed, func(dir string) error {
			logs, err := filepath.Glob(filepath.Join(dir, "raft-log", "db", "*.log"))
			for _, name := range logs {
				data, readErr := os.ReadFile(name)
				records := bytes.TrimRight(data, "\x00") // zeros are ahead of the log
				err = errors.Join(err, readErr, os.WriteFile(name, append(flip(records), data[len(records):]...), 0o644))
			}
			return err
		}, "raft-log"},
	} {
		dir := filepath.Join(t.TempDir(), "data")
		must(t, os.CopyFS(dir, os.DirFS(c.from)))
		must(t, c.change(dir))
		_, stderr, code := verifyDir(t, dir)
		if code != exitFailed || !strings.Contains(stderr, c.names) || !strings.Contains(stderr, `"reason":"CORRUPT"`) {
			t.Errorf("%s: exit %d, %s", what, code, stderr)
		}
	}
	if left, err := filepath.Glob(filepath.Join(tmp, "perdure-verify-*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// flip damages data all over.
func flip(data []byte) []byte {
	out := slices.Clone(data)
	for i := 0; i < len(out)/2; i += 16 {
		out[i] ^= 0x55
	}
	return out
}

// A verification ends when it is interrupted.
func TestVerifyInterrupted(t *testing.T) {
	n := aRealNode(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, dir := range []string{n.stopped, n.killed} {
		sh := &shell{addr: "127.0.0.1:1", ctx: ctx}
		if stdout, stderr, code := sh.run("verify", "--data", dir); code != exitFailed || stdout != "" || !strings.Contains(stderr, "INTERRUPTED") {
			t.Errorf("exit %d, %q, %q", code, stdout, stderr)
		}
	}
}
