package resonate_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"perdure/client"
	"perdure/fsm/state"
	"perdure/internal/resonatesdk"
	"perdure/internal/testkit"
)

// sdkTimeout bounds each wait of a test with the SDK.
const sdkTimeout = 90 * time.Second

// sdk installs the unmodified SDK and returns a folder with it and the programs.
func sdk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("testdata", "sdk"))); err != nil {
		t.Fatal(err)
	}
	switch err := resonatesdk.Install(t.Context(), dir); {
	case errors.Is(err, resonatesdk.ErrUnavailable):
		testkit.Lacks(t, "Resonate's SDK", err)
	case err != nil:
		t.Fatal(err)
	}
	return dir
}

// process is a child process and what it prints.
type process struct {
	*exec.Cmd
	stdin io.WriteCloser
	ended chan struct{}

	mu    sync.Mutex
	lines []string
	err   error
}

// launch starts a process, which is killed at the end of the test.
func launch(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{Cmd: cmd, ended: make(chan struct{})}
	read, write := io.Pipe()
	cmd.Stdout, cmd.Stderr = write, write
	var err error
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		for lines := bufio.NewScanner(read); lines.Scan(); {
			p.mu.Lock()
			p.lines = append(p.lines, lines.Text())
			p.mu.Unlock()
		}
		_, _ = io.Copy(io.Discard, read) // a line that is too long
	})
	go func() {
		err := cmd.Wait()
		_ = write.Close()
		reading.Wait()
		p.err = err
		close(p.ended)
	}()
	t.Cleanup(p.kill)
	return p
}

// kill ends the process as kill -9 does.
func (p *process) kill() {
	_ = p.Process.Kill() // it may have ended
	<-p.ended
}

func (p *process) output() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lines)
}

// printed waits until the process has printed n lines that begin with prefix.
func (p *process) printed(t *testing.T, prefix string, n int) {
	t.Helper()
	until(t, fmt.Sprintf("%d lines %q", n, prefix), func() bool {
		select {
		case <-p.ended:
			t.Fatalf("%s ended: %v\n%s", p.Path, p.err, strings.Join(p.output(), "\n"))
		default:
		}
		count := 0
		for _, line := range p.output() {
			if strings.HasPrefix(line, prefix) {
				count++
			}
		}
		return count >= n
	})
}

// result waits for the end of a client and decodes its last line.
func (p *process) result(t *testing.T, into any) {
	t.Helper()
	select {
	case <-p.ended:
	case <-time.After(sdkTimeout):
		t.Fatalf("the client has not ended:\n%s", strings.Join(p.output(), "\n"))
	}
	out := p.output()
	if p.err != nil || len(out) == 0 {
		t.Fatalf("client: %v\n%s", p.err, strings.Join(out, "\n"))
	}
	if err := json.Unmarshal([]byte(out[len(out)-1]), into); err != nil {
		t.Fatalf("client: %v\n%s", err, strings.Join(out, "\n"))
	}
}

// until waits for a state.
func until(t *testing.T, what string, reached func() bool) {
	t.Helper()
	testkit.Eventually(t, sdkTimeout, what, reached, nil)
}

// partitions is how many the cluster has.
const partitions = 3

// nodes are the processes of a cluster of three.
type nodes struct {
	*client.Client
	procs map[string]*process
	urls  map[string]string
	// args are the command line of each node. A node ends with whole.
	args  map[string][]string
	whole *testing.T
}

// start starts a node, or starts it again.
func (n *nodes) start(id string) {
	n.whole.Helper()
	n.procs[id] = launch(n.whole, exec.Command(n.args[id][0], n.args[id][1:]...))
}

// ready waits until a node serves.
func (n *nodes) ready(t *testing.T, id string) {
	t.Helper()
	until(t, id+" is ready", func() bool { return ready(n.urls[id]) })
}

// freeAddrs are loopback addresses that nothing listened on just now.
func freeAddrs(t *testing.T, n int) []string {
	t.Helper()
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		out = append(out, l.Addr().String())
	}
	return out
}

// startNodes builds the server and starts three of it.
func startNodes(t *testing.T) *nodes {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "node")
	if out, err := exec.Command("go", "build", "-ldflags=-w", "-o", binary, "perdure/cmd/node").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	addrs := freeAddrs(t, 12)
	gossip, grpc, http := addrs[0:3], addrs[3:6], addrs[6:9]
	out := &nodes{procs: map[string]*process{}, urls: map[string]string{}, args: map[string][]string{}, whole: t}
	for i := range 3 {
		id := fmt.Sprintf("n%d", i+1)
		out.args[id] = []string{binary, "start", "--node-id", id, "--data", t.TempDir(), "--bootstrap-expect", "3", "--join", strings.Join(gossip, ","),
			"--gossip-addr", gossip[i], "--grpc-addr", grpc[i], "--http-addr", http[i], "--peer-addr", addrs[9+i], "--partitions", fmt.Sprint(partitions),
			"--disk-reserve", "16MiB", "--check-invariants", "--log-level", "warn"}
		out.urls[id] = "http://" + http[i]
		out.start(id)
	}
	c, err := client.Dial(client.Options{Addrs: grpc})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	out.Client = c
	for id := range out.urls {
		out.ready(t, id)
	}
	return out
}

func ready(url string) bool {
	resp, err := http.Get(url + "/ready")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

// leader is the node that leads the partition of a promise.
func (n *nodes) leader(t *testing.T, id string) string {
	t.Helper()
	var leader string
	until(t, "a leader", func() bool {
		ctx, cancel := context.WithTimeout(context.Background(), sdkTimeout)
		defer cancel()
		st, err := n.ClusterStatus(ctx)
		if err != nil {
			t.Fatal(err)
		}
		of := state.PartitionOf("default", id, uint32(len(st.Partitions)))
		for _, p := range st.Partitions {
			if p.Partition == of {
				leader = p.Leader
			}
		}
		return leader != ""
	})
	return leader
}

// fixture is an installed SDK, a cluster and workers.
type fixture struct {
	*nodes
	dir, log string
	// workers outlive the subtest that starts them: they end with whole.
	workers map[string]*process
}

// node runs a program of the SDK against a node.
func (f *fixture) node(t *testing.T, node, pid string, args ...string) *process {
	t.Helper()
	cmd := exec.Command("node", args...)
	cmd.Dir = f.dir
	cmd.Env = append(os.Environ(), "RESONATE_URL="+f.urls[node], "PID="+pid, "LOG="+f.log, "TTL=2000")
	return launch(t, cmd)
}

// client runs a scenario of the client program.
func (f *fixture) client(t *testing.T, node string, args ...string) *process {
	t.Helper()
	return f.node(t, node, "client", append([]string{"client.mjs"}, args...)...)
}

// worker runs a worker of the group workers.
func (f *fixture) worker(t *testing.T, node, pid string) {
	t.Helper()
	f.workers[pid] = f.node(f.whole, node, pid, "worker.mjs", "workers")
	f.workers[pid].printed(t, "ready", 1)
}

// noted counts the lines that workers noted.
func (f *fixture) noted(t *testing.T) map[string]int {
	t.Helper()
	text, err := os.ReadFile(f.log)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	out := map[string]int{}
	for line := range bytes.Lines(text) {
		out[strings.TrimSpace(string(line))]++
	}
	return out
}

// Unmodified clients of Resonate use a cluster: each at another node, while workers and leaders are killed. No error
// reaches their code.
func TestSDK(t *testing.T) {
	if testing.Short() {
		t.Skip("takes half a minute")
	}
	f := &fixture{dir: sdk(t), nodes: startNodes(t), log: filepath.Join(t.TempDir(), "log"), workers: map[string]*process{}}
	f.worker(t, "n1", "w1")
	f.worker(t, "n2", "w2")
	t.Run("features", f.features)
	t.Run("worker killed", f.workerKilled)
	t.Run("leader killed", f.leaderKilled)
	for _, pid := range []string{"w1", "w2"} { // at the node that stays
		f.workers[pid].kill()
		f.worker(t, "n3", pid)
	}
	t.Run("features while the leader is killed", f.featuresWithoutLeader)
	t.Run("worker and leader killed", f.workerAndLeaderKilled)
}

// checkFeatures checks what each feature of the SDK has returned to user code.
func checkFeatures(t *testing.T, got map[string]any) {
	t.Helper()
	for name, want := range map[string]any{
		"run": 7.0, "steps": 3.0, "rpc": 42.0, "calls": 9.0, "runCalls": 11.0, "sleeps": "slept", "asks": "from outside",
		"standalone": "rejected: refused", "fails": "no luck", "schedule": 16.0, "leaves": []any{"left", 18.0}, "group": []any{"w1", "w2"},
	} {
		if !reflect.DeepEqual(got[name], want) {
			t.Errorf("%s: %v, want %v", name, got[name], want)
		}
	}
}

// features uses each feature of the SDK once.
func (f *fixture) features(t *testing.T) {
	var got map[string]any
	f.client(t, "n3", "all").result(t, &got)
	checkFeatures(t, got)
}

// victim is a node that leads a partition and that no client or worker of a test without a leader uses.
func (f *fixture) victim(t *testing.T) (node string, partition uint32) {
	t.Helper()
	for i := 0; ; i++ {
		id := fmt.Sprint("victim-", i)
		if leader := f.leader(t, id); leader != "n3" {
			return leader, state.PartitionOf("default", id, partitions)
		}
	}
}

// idIn is an id in a partition that begins with name.
func idIn(partition uint32, name string) string {
	for i := 0; ; i++ {
		if id := fmt.Sprintf("%s-%d", name, i); state.PartitionOf("default", id, partitions) == partition {
			return id
		}
	}
}

// featuresWithoutLeader uses each feature three times at once with the others, on promises of one partition, and kills its
// leader when the second time begins.
func (f *fixture) featuresWithoutLeader(t *testing.T) {
	victim, partition := f.victim(t)
	args := []string{"rounds"}
	for round := range 3 {
		ids := map[string]string{}
		for _, name := range []string{
			"run", "steps", "rpc", "calls", "run-calls", "sleeps", "asks", "standalone", "fails", "every-second", "leaves", "who",
		} {
			ids[name] = idIn(partition, fmt.Sprintf("%s-round-%d", name, round))
		}
		b, err := json.Marshal(ids)
		if err != nil {
			t.Fatal(err)
		}
		args = append(args, string(b))
	}
	rounds := f.client(t, "n3", args...)
	rounds.printed(t, "begin", 2)
	f.procs[victim].kill()
	var got []map[string]any
	rounds.result(t, &got)
	if len(got) != 3 {
		t.Fatalf("%d rounds have ended, not 3", len(got))
	}
	for _, round := range got {
		checkFeatures(t, round)
	}
	if leader := f.leader(t, idIn(partition, "any")); leader == victim {
		t.Errorf("%s is dead and leads", victim)
	}
	f.start(victim)
	f.ready(t, victim)
}

// workerKilled kills a worker between two steps: another one continues behind those that are recorded.
func (f *fixture) workerKilled(t *testing.T) {
	f.killHolder(t, "killed", func(holder string) { f.worker(t, map[string]string{"w1": "n1", "w2": "n2"}[holder], holder) })
}

// workerAndLeaderKilled kills the leader of the promises' partition with the worker.
func (f *fixture) workerAndLeaderKilled(t *testing.T) {
	victim, partition := f.victim(t)
	f.killHolder(t, idIn(partition, "both"), func(holder string) {
		f.procs[victim].kill()
		f.worker(t, "n3", holder)
	})
}

// killHolder calls a function of twelve recorded steps, kills the worker that runs the fifth, and calls then. No recorded
// step is repeated.
func (f *fixture) killHolder(t *testing.T, id string, then func(holder string)) {
	t.Helper()
	call := f.client(t, "n3", "rpc", id, "steps", "12", "200")
	holder := ""
	until(t, "a worker has begun the fifth step", func() bool {
		for line := range f.noted(t) {
			if pid, ok := strings.CutPrefix(line, id+" 4 "); ok {
				holder = pid
			}
		}
		return holder != ""
	})
	f.workers[holder].kill()
	then(holder)
	var sum int
	if call.result(t, &sum); sum != 66 {
		t.Errorf("the sum of the steps is %d, want 66", sum)
	}
	for i := range 4 {
		runs := 0
		for line, n := range f.noted(t) {
			if strings.HasPrefix(line, fmt.Sprintf("%s %d ", id, i)) {
				runs += n
			}
		}
		if runs != 1 {
			t.Errorf("recorded step %d ran %d times", i, runs)
		}
	}
}

// leaderKilled kills the node that leads the partition of the promises in use, and that a worker talks to.
func (f *fixture) leaderKilled(t *testing.T) {
	var ids []string
	victim, partition := "", uint32(0)
	for i := 0; len(ids) < 400; i++ {
		id := fmt.Sprintf("load-%d", i)
		of := state.PartitionOf("default", id, partitions)
		if victim == "" {
			if leader := f.leader(t, id); leader != "n3" { // the client's node
				victim, partition = leader, of
			}
		}
		if victim != "" && of == partition {
			ids = append(ids, id)
		}
	}
	load := f.client(t, "n3", append([]string{"load"}, ids...)...)
	load.printed(t, "done", 5)
	f.procs[victim].kill()
	load.printed(t, "done", len(slices.DeleteFunc(load.output(), func(line string) bool { return !strings.HasPrefix(line, "done") }))+10)
	if err := load.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	var done int
	if load.result(t, &done); done >= len(ids) {
		t.Errorf("all %d calls were over before the client was stopped", done)
	}
	if leader := f.leader(t, ids[0]); leader == victim {
		t.Errorf("%s is dead and leads", victim)
	}
	f.start(victim)
	f.ready(t, victim)
}
