package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
	"perdure/embed"
)

// aNode starts a node alone.
func aNode(ctx context.Context, t *testing.T, partitions int) *embed.Node {
	t.Helper()
	n, err := embed.Start(ctx, embed.Config{DataDir: filepath.Join(t.TempDir(), "data"), Partitions: partitions, CheckInvariants: true,
		DiskReserve: 1 << 20, GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	return n
}

// effects counts the steps that ran, by execution.
type effects struct {
	mu  sync.Mutex
	ran map[string]int
}

func (e *effects) count(id string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ran[id]++
}

// worker runs the functions of the restored executions at a node, until the test or stop ends it.
func (e *effects) worker(ctx context.Context, t *testing.T, addr string) (c *client.Client, stop func()) {
	t.Helper()
	c, err := client.Dial(client.Options{Addrs: []string{addr}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	step := func(ctx durable.Context, name string, in int) (int, error) {
		return durable.Run(ctx, name, func(context.Context) (int, error) {
			e.count(fmt.Sprint(name, "-", in))
			return in, nil
		})
	}
	turn := durable.NewFunction("turn", func(ctx durable.Context, in int) (int, error) {
		if _, err := step(ctx, "before", in); err != nil {
			return 0, err
		}
		if _, err := durable.WaitSignal[string](ctx, "go"); err != nil {
			return 0, err
		}
		return step(ctx, "after", in)
	})
	rest := durable.NewFunction("rest", func(ctx durable.Context, in int) (int, error) {
		if err := durable.Sleep(ctx, 3*time.Second); err != nil {
			return 0, err
		}
		return step(ctx, "rested", in)
	})
	fan := durable.NewFunction("fan", func(ctx durable.Context, in int) (int, error) {
		var all []durable.Awaitable
		for i := range 8 {
			f, err := durable.Go(ctx, turn, in+i, durable.Spread(), durable.ChildID(fmt.Sprint("leaf-", i)))
			if err != nil {
				return 0, err
			}
			all = append(all, f)
		}
		if err := durable.AwaitAll(ctx, all...); err != nil {
			return 0, err
		}
		return step(ctx, "joined", in)
	})
	w := durable.NewWorker(c, durable.WorkerOptions{})
	w.Register(turn, rest, fan)
	working, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(working) }()
	select {
	case <-w.Ready():
	case err := <-ended:
		t.Fatal(err)
	}
	return c, sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
}

// listing has the line of each execution and its journal, by its id.
func listing(t *testing.T, sh *shell) map[string]string {
	t.Helper()
	stdout, stderr, code := sh.run("list", "--json", "--limit", "1000")
	if code != exitDone {
		t.Fatalf("list: exit %d: %s", code, stderr)
	}
	out := map[string]string{}
	for line := range strings.Lines(stdout) {
		var e struct{ ID string }
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		journal, stderr, code := sh.run("journal", e.ID, "--json")
		if code != exitDone {
			t.Fatalf("journal %s: exit %d: %s", e.ID, code, stderr)
		}
		out[e.ID] = line + journal
	}
	return out
}

// A backup of three partitions is restored into six: what had ended is the same, and what was open goes on and ends,
// each step once. A cluster that is not empty takes none; a damaged backup reaches no cluster.
func TestBackupRestore(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	const turns = 12
	old := aNode(ctx, t, 3)
	if err := populate(ctx, old.GRPCAddr()); err != nil {
		t.Fatal(err)
	}
	e := &effects{ran: map[string]int{}}
	c, stop := e.worker(ctx, t, old.GRPCAddr())
	defer func() { stop() }()
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	begin := func(id, function string, in int) {
		t.Helper()
		_, err := c.Start(ctx, client.StartOptions{ID: id, Function: function, Input: fmt.Append(nil, in)})
		must(err)
	}
	open := map[string]bool{"fan": true}
	for i := range turns {
		id := fmt.Sprint("turn-", i)
		begin(id, "turn", i)
		open[id] = i%3 != 0
		if !open[id] {
			must(c.Signal(ctx, id, "go", []byte(`"x"`)))
		}
	}
	begin("fan", "fan", 100)
	for i := range 8 {
		open[fmt.Sprint("leaf-", i)] = true
	}
	for id, blocked := range open {
		status := perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED
		if blocked {
			status = perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED
		}
		must(reach(ctx, c, id, status))
	}
	// What sleeps begins last and then has no worker: the old cluster may take longer to back up than it sleeps.
	begin("rest", "rest", 1)
	open["rest"] = true
	must(reach(ctx, c, "rest", perdurev1.ExecutionStatus_EXECUTION_STATUS_BLOCKED))
	stop()
	sh, store := &shell{addr: old.GRPCAddr()}, filepath.Join(t.TempDir(), "store")
	created := mustJSON(t, sh, "backup", "create", store)
	was := listing(t, sh)
	if _, stderr, code := sh.run("backup", "restore", store); code != exitConflict || !strings.Contains(stderr, "new cluster") {
		t.Fatalf("into the cluster itself: exit %d: %s", code, stderr)
	}

	fresh := aNode(ctx, t, 6)
	sh = &shell{addr: fresh.GRPCAddr()}
	refuseDamaged(t, sh, store)
	temp := t.TempDir()
	restored := mustJSON(t, sh, "backup", "restore", store, "--temp", temp)
	if restored["name"] != created["name"] || restored["partitions"] != 6.0 || restored["from"] != 3.0 || restored["rows"].(float64) < 100 {
		t.Fatalf("restored %v", restored)
	}
	if again := mustJSON(t, sh, "backup", "restore", store, created["name"].(string)); again["rows"] != 0.0 {
		t.Fatalf("restored again: %v", again)
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("the temporary folder has %v, %v", left, err)
	}
	is := listing(t, sh)
	for id, line := range was {
		if !open[id] && is[id] != line {
			t.Errorf("%s was\n%s, is\n%s", id, line, is[id])
		}
	}
	if len(was) != len(is) || len(was) < 20 {
		t.Errorf("%d executions, were %d", len(is), len(was))
	}
	next, stopNext := e.worker(ctx, t, fresh.GRPCAddr())
	defer stopNext()
	for id := range open {
		if open[id] && (strings.HasPrefix(id, "turn") || strings.HasPrefix(id, "leaf")) {
			must(next.Signal(ctx, id, "go", []byte(`"x"`)))
		}
	}
	for id := range open {
		must(reach(ctx, next, id, perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED))
	}
	mustJSON(t, sh, "promise", "resolve", "bare")
	e.mu.Lock()
	defer e.mu.Unlock()
	if want := 2*turns + 2*8 + 2; len(e.ran) != want {
		t.Errorf("%d steps ran, want %d: %v", len(e.ran), want, e.ran)
	}
	for step, n := range e.ran {
		if n != 1 {
			t.Errorf("%s ran %d times", step, n)
		}
	}
	if checked := mustJSON(t, sh, "verify"); checked["ok"] != true {
		t.Errorf("verify: %v", checked)
	}
	mustJSON(t, sh, "backup", "create", store)
	mustJSON(t, sh, "verify", "--backup", store)
}

// refuseDamaged restores a backup of which one bit is flipped.
func refuseDamaged(t *testing.T, sh *shell, store string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(store, "files", "*"))
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		good, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if len(good) == 0 {
			continue
		}
		bad := append([]byte(nil), good...)
		bad[len(bad)/2] ^= 4
		if err := os.WriteFile(file, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if _, stderr, code := sh.run("backup", "restore", store); code != exitFailed || !strings.Contains(stderr, "DAMAGED") {
			t.Fatalf("exit %d: %s", code, stderr)
		}
		if err := os.WriteFile(file, good, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
