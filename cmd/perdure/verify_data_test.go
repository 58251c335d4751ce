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

	"github.com/cockroachdb/pebble/v2"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
	"perdure/embed"
	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/internal/testkit"
	"perdure/journal"
	"perdure/recovery"
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

// populate runs functions of every fate.
func populate(ctx context.Context, addr string) error {
	c, err := client.Dial(client.Options{Addrs: []string{addr}, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
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
	w := durable.NewWorker(c, durable.WorkerOptions{})
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
			got.Promises < got.Tasks || got.Callbacks != 9 {
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

// A plot is one partition's state of a copy, into which violations are planted.
type plot struct {
	t  *testing.T
	db *pebble.DB
}

// plant changes one partition of a data directory behind everybody's back.
func plant(t *testing.T, dir string, partition uint32, change func(s *plot)) {
	t.Helper()
	db, err := pebble.Open(filepath.Join(dir, fmt.Sprintf("state-%04d", partition)), &pebble.Options{
		ErrorIfNotExists: true, DisableWAL: true, FormatMajorVersion: pebble.FormatValueSeparation, Logger: quiet{t}})
	if err != nil {
		t.Fatal(err)
	}
	change(&plot{t, db})
	if err := errors.Join(db.Flush(), db.Close()); err != nil {
		t.Fatal(err)
	}
}

type quiet struct{ t *testing.T }

func (quiet) Infof(string, ...any)                {}
func (quiet) Errorf(string, ...any)               {}
func (q quiet) Fatalf(format string, args ...any) { q.t.Errorf(format, args...) }
func (s *plot) put(key, value []byte)             { s.must(s.db.Set(key, value, pebble.NoSync)) }
func (s *plot) must(err error)                    { s.t.Helper(); must(s.t, err) }
func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
func here(id string) uint32 { return state.PartitionOf("default", id, realPartitions) }
func of(f keys.Family, parts ...string) []byte {
	return keys.Of(f, append([]string{"default"}, parts...)...)
}

// drop removes a key that must be there.
func (s *plot) drop(key []byte) {
	s.t.Helper()
	s.get(key)
	s.must(s.db.Delete(key, pebble.NoSync))
}

func (s *plot) get(key []byte) []byte {
	s.t.Helper()
	value, closer, err := s.db.Get(key)
	if err != nil {
		s.t.Fatalf("key %q: %v", key, err)
	}
	defer closer.Close()
	return slices.Clone(value)
}

// below lists the keys with a prefix.
func (s *plot) below(prefix []byte) (found [][]byte) {
	s.t.Helper()
	it, err := s.db.NewIter(&pebble.IterOptions{LowerBound: prefix, UpperBound: keys.After(prefix)})
	s.must(err)
	for ok := it.First(); ok; ok = it.Next() {
		found = append(found, slices.Clone(it.Key()))
	}
	s.must(it.Close())
	return found
}

// entry is the key of a journal entry.
func (s *plot) entry(id string, seq int) []byte {
	s.t.Helper()
	return s.below(of(keys.Journal, id))[seq]
}

func (s *plot) event(id string, seq int, ev journal.Event) {
	s.put(s.entry(id, seq), journal.AppendEntry(nil, journal.Entry{Seq: uint64(seq), Event: ev}))
}

func (s *plot) promise(id string, change func(p *recovery.Promise)) {
	s.t.Helper()
	p, err := recovery.DecodePromise(s.get(of(keys.Promise, id)))
	s.must(err)
	change(&p)
	s.put(of(keys.Promise, id), recovery.AppendPromise(nil, p))
}

func (s *plot) header(id string, change func(h *state.Header)) (h state.Header) {
	s.t.Helper()
	h, err := state.DecodeHeader(s.get(of(keys.Header, id)))
	s.must(err)
	change(&h)
	s.put(of(keys.Header, id), h.Encode())
	return h
}

func (s *plot) task(id string, change func(t *recovery.Task)) {
	s.t.Helper()
	task, err := recovery.DecodeTask(s.get(of(keys.Task, id)))
	s.must(err)
	change(&task)
	s.put(of(keys.Task, id), recovery.AppendTask(nil, task))
}

// mark changes the mark of a child's proxy promise.
func (s *plot) mark(p *recovery.Promise, change func(c *state.ChildElsewhere)) {
	s.t.Helper()
	c, ok := state.ChildOf(*p)
	if !ok {
		s.t.Fatalf("%q is no proxy promise: %q", p.ID, p.Tags)
	}
	change(&c)
	p.Tags = c.Mark()
}

// row changes the bytes of a graph run's node: old, which must be there once, becomes new.
func (s *plot) row(run string, node int, old, new string) {
	s.t.Helper()
	key := s.below(of(keys.Node, run))[node]
	value := s.get(key)
	if bytes.Count(value, []byte(old)) != 1 {
		s.t.Fatalf("node %d of %s has %q, not %q once", node, run, value, old)
	}
	s.put(key, bytes.Replace(value, []byte(old), []byte(new), 1))
}

// end changes the last bytes of a node's row, which are its output behind the output's length.
func (s *plot) end(run string, node int, old, new string) {
	s.t.Helper()
	key := s.below(of(keys.Node, run))[node]
	rest, ok := bytes.CutSuffix(s.get(key), []byte(old))
	if !ok {
		s.t.Fatalf("node %d of %s has %q, which does not end in %q", node, run, s.get(key), old)
	}
	s.put(key, append(rest, new...))
}

// replace changes the first entry of a journal that is of a kind, and keeps its time.
func (s *plot) replace(id string, kind journal.Kind, change func(ev journal.Event) journal.Event) {
	s.t.Helper()
	for _, key := range s.below(of(keys.Journal, id)) {
		e, err := journal.DecodeEntry(s.get(key))
		s.must(err)
		if e.Event.Kind() == kind {
			e.Event = change(e.Event)
			s.put(key, journal.AppendEntry(nil, e))
			return
		}
	}
	s.t.Fatalf("the journal of %s has no %s", id, kind)
}

func value(text string) []byte {
	return recovery.AppendOutcome(nil, recovery.Outcome{Data: []byte(text)})
}

// A planting is one corruption of a state, and by what it is to be named.
type planting struct {
	what, rule, id string
	in             string // the object whose partition it is planted into; id if empty
	seq            int    // the entry that is named; -1 for none
	change         func(s *plot)
	says           string // part of the detail
}

// plantings are corruptions of the real node's states.
func plantings() []planting {
	none := []byte{}
	return []planting{
		// Values that are stored in two places.
		{"a node that waits for another signal than its graph says", audit.RuleGraph, "flow", "", -1, func(s *plot) { s.row("flow", 2, "approve", "bpprove") }, `"bpprove", the graph says "approve"`},
		{"an output that its promise and journal do not have", audit.RuleGraph, "made", "", -1, func(s *plot) { s.end("made", 0, "\x010", "\x017") }, "its output has 1 bytes"},
		{"an output gone", audit.RuleGraph, "flow", "", -1, func(s *plot) { s.end("flow", 0, "\x010", "\x00") }, "completed without an output"},
		{"an output of a node that was skipped", audit.RuleGraph, "flow", "", -1, func(s *plot) { s.end("flow", 1, "\x00", "\x011") }, "output_iff_completed (Definition 1, item 3)"},
		{"a child's result that its parent's journal does not have", audit.RuleResult, "caller", "", -1, func(s *plot) {
			s.promise("caller:0", func(p *recovery.Promise) { p.Value = value("9") })
		}, `"caller:0": the journal has a result`},
		{"a result that is no outcome", audit.RuleOutcome, "caller", "", 9999, func(s *plot) {
			s.replace("caller", journal.KindInvokeCompleted, func(ev journal.Event) journal.Event {
				done := ev.(journal.InvokeCompleted)
				done.Result = []byte{0xff, 1, 2}
				return done
			})
		}, "the result of InvokeCompleted is no outcome"},
		{"a node's promise with another value", audit.RuleGraph, "made", "", -1, func(s *plot) {
			s.promise("made:0", func(p *recovery.Promise) { p.Value = value("9") })
		}, "its promise, resolved, another"},
		{"a graph run's result that its nodes do not make", audit.RuleGraph, "made", "", -1, func(s *plot) {
			s.replace("made", journal.KindExecutionCompleted, func(journal.Event) journal.Event { return journal.ExecutionCompleted{Result: []byte("{}")} })
		}, "make another"},
		{"another failure than the attempt's", audit.RuleGraph, "lost", "", -1, func(s *plot) { s.row("lost", 0, "it broke", "it brake") }, "its failure has"},
		{"a timer that did not fire as its promise says", audit.RuleResult, "caller", "", -1, func(s *plot) {
			s.promise("caller:1", func(p *recovery.Promise) { p.TimeoutAt, p.SettledAt = p.TimeoutAt+1, p.SettledAt+1 })
		}, "the journal has a timer for"},
		{"a child of another input", audit.RuleInput, "caller:0", "", -1, func(s *plot) {
			s.replace("caller:0", journal.KindExecutionStarted, func(ev journal.Event) journal.Event {
				started := ev.(journal.ExecutionStarted)
				started.Input = []byte("9")
				return started
			})
		}, "1 bytes of input"},
		{"an attempt of another input", audit.RuleInput, "made:0.0", "", -1, func(s *plot) {
			s.replace("made:0.0", journal.KindExecutionStarted, func(ev journal.Event) journal.Event {
				started := ev.(journal.ExecutionStarted)
				started.Input = []byte("9")
				return started
			})
		}, "bytes of input"},
		{"a promise whose value is no outcome", audit.RuleOutcome, "failed", "", -1, func(s *plot) {
			s.promise("failed", func(p *recovery.Promise) { p.Value = []byte{7} })
		}, "is no outcome"},
		{"a promise settled after its execution was closed", audit.RuleEnding, "cancelled", "", -1, func(s *plot) {
			s.promise("cancelled", func(p *recovery.Promise) { p.CreatedAt, p.SettledAt = p.CreatedAt-5, p.SettledAt-5 })
		}, "it was closed at"},
		{"a callback lost, of a wait that has it", audit.RuleWait, "sleeping", "", -1, func(s *plot) {
			s.drop(of(keys.Callback, "sleeping:0", "sleeping"))
			s.drop(of(keys.AwaitedBy, "sleeping", "sleeping:0"))
		}, "has no callback on it"},
		{"a task resumed by what is pending", audit.RuleWait, "waiting", "", -1, func(s *plot) {
			s.task("waiting", func(task *recovery.Task) { task.Resumes = []string{"waiting:7"} })
		}, "which is not settled"},
		{"an entry of tomorrow", audit.RuleClock, "asking", "", 0, func(s *plot) {
			e, err := journal.DecodeEntry(s.get(s.entry("asking", 0)))
			s.must(err)
			e.Time += 86_400_000
			s.put(s.entry("asking", 0), journal.AppendEntry(nil, e))
		}, "the clock is at"},
		{"a promise of an entry to come", audit.RuleClock, "bare", "", -1, func(s *plot) {
			s.promise("bare", func(p *recovery.Promise) { p.Incarnation = 1 << 40 })
		}, "the state at index"},
		{"another graph's signal", audit.RuleGraph, "flow", "", -1, func(s *plot) {
			s.put(latchOf(s, "flow", "never"), []byte("1"))
		}, "was never delivered"},

		// The first kinds of damage.
		{"an attempt completed that never started", journal.RuleCompletedRequiresStarted, "asking", "", 2, func(s *plot) {
			s.event("asking", 2, journal.InvokeCompleted{Promise: "asking:0", Attempt: 1})
		}, ""},
		{"an end before the end", journal.RuleTerminalIsLast, "sleeping", "", 2, func(s *plot) { s.event("sleeping", 1, journal.ExecutionCompleted{}) }, ""},
		{"a hole in a journal", journal.RuleSequence, "done", "", 1, func(s *plot) { s.drop(s.entry("done", 1)) }, ""},
		{"an entry that is none", audit.RuleDamaged, "failed", "", -1, func(s *plot) { s.put(s.entry("failed", 1), []byte("nonsense")) }, ""},
		{"a journal without an execution", audit.RuleOrphanJournal, "ghost", "", -1, func(s *plot) {
			s.put(keys.JournalEntry("default", "ghost", 1, 0), journal.AppendEntry(nil, journal.Entry{Event: journal.ExecutionStarted{}}))
		}, ""},
		{"no header", audit.RuleOrphanExecution, "asking", "", -1, func(s *plot) { s.drop(of(keys.Header, "asking")) }, ""},
		{"another's header", audit.RuleMisplaced, "calling", "", -1, func(s *plot) { s.put(of(keys.Header, "calling"), s.get(of(keys.Header, "calling:0"))) }, ""},
		{"a longer journal than the header says", audit.RuleHeader, "failed", "", -1, func(s *plot) {
			s.put(append(s.entry("failed", 0)[:len(s.entry("failed", 0))-1], 77), journal.AppendEntry(nil, journal.Entry{Seq: 77, Event: journal.ExecutionResumed{}}))
		}, ""},
		{"no task", audit.RuleOrphanExecution, "sleeping", "", -1, func(s *plot) { s.drop(of(keys.Task, "sleeping")) }, ""},
		{"a result taken back", audit.RuleEnding, "done", "", -1, func(s *plot) {
			s.promise("done", func(p *recovery.Promise) { p.State, p.Value, p.SettledAt = recovery.PromisePending, nil, 0 })
		}, ""},
		{"another result", audit.RuleEnding, "done", "", -1, func(s *plot) {
			s.promise("done", func(p *recovery.Promise) { p.Value = []byte("\x00another") })
		}, ""},
		{"a task that sleeps while it should not", audit.RuleSuspended, "waiting", "", -1, func(s *plot) {
			s.task("waiting", func(task *recovery.Task) { task.State, task.RetryAt = recovery.TaskSuspended, 0 })
		}, ""},
		{"a fulfilled task of what is open", recovery.SettledNotFulfilled, "asking", "", -1, func(s *plot) {
			s.task("asking", func(task *recovery.Task) { task.State = recovery.TaskFulfilled })
		}, ""},
		{"a deadline lost", recovery.MissingPromiseTimeout, "bare", "", -1, func(s *plot) {
			s.promise("bare", func(p *recovery.Promise) {
				s.drop(keys.DeadlineOf(keys.DeadlinePromise, p.TimeoutAt, "default", "bare"))
			})
		}, ""},
		{"a timer that never fires", audit.RuleStuck, "sleeping", "", -1, func(s *plot) {
			s.promise("sleeping:0", func(p *recovery.Promise) {
				s.drop(keys.DeadlineOf(keys.DeadlinePromise, p.TimeoutAt, "default", "sleeping:0"))
			})
		}, ""},
		{"a stray deadline", audit.RuleDeadline, "done", "", -1, func(s *plot) { s.put(keys.DeadlineOf(keys.DeadlineLease, 5, "default", "done"), none) }, ""},
		{"a stray callback", recovery.CallbackIndex, "asking", "", -1, func(s *plot) { s.put(of(keys.AwaitedBy, "asking", "bare"), none) }, ""},
		{"a callback lost in both directions", audit.RuleStuck, "calling", "", -1, func(s *plot) {
			s.drop(of(keys.Callback, "calling:0", "calling"))
			s.drop(of(keys.AwaitedBy, "calling", "calling:0"))
		}, ""},
		{"a listener of what is over", recovery.ListenerForSettledPromise, "done", "", -1, func(s *plot) { s.put(of(keys.Listener, "done", "somebody"), none) }, ""},
		{"a place in a queue lost", audit.RuleReady, "waiting", "", -1, func(s *plot) { s.drop(s.below(of(keys.Ready, "missing-has-it"))[0]) }, ""},
		{"a place of what waits for something else", audit.RuleReady, "asking", "", -1, func(s *plot) { s.put(keys.ReadyOf("default", "ask", 5, "asking"), none) }, ""},
		{"not listed", audit.RuleListing, "cancelled", "", -1, func(s *plot) {
			for _, key := range s.below(keys.VisibilityPrefix("default", keys.Cancelled)) {
				s.drop(key)
			}
		}, ""},
		{"a message out of nowhere", audit.RuleChannel, fmt.Sprint("partition ", (here("done")+1)%realPartitions), "done", -1, func(s *plot) {
			s.put(keys.OutboxOf((here("done")+1)%realPartitions, 1, 9_999), []byte{8, 1})
		}, ""},
		{"replies miscounted", audit.RuleReplies, "", "done", -1, func(s *plot) { s.put(keys.MetaKey("replies"), keys.AppendUint64(nil, 9_999)) }, ""},
		{"an object of another partition", audit.RuleMisplaced, elsewhere("asking"), "asking", -1, func(s *plot) {
			s.put(of(keys.Promise, elsewhere("asking")), recovery.AppendPromise(nil, recovery.Promise{ID: elsewhere("asking"), Incarnation: 1,
				State: recovery.PromisePending, External: true, TimeoutAt: state.Never, CreatedAt: 1}))
		}, ""},
		{"an entity without its task", audit.RuleEntity, "account@held", "", -1, func(s *plot) { s.drop(of(keys.Task, "account@held:@")) }, "no task"},
		{"operations without an entity", audit.RuleEntity, "account@held", "", -1, func(s *plot) { s.drop(of(keys.Entity, "account@held")) }, "there is no entity"},
		{"an operation cut short", audit.RuleDamaged, "account@held", "", -1, func(s *plot) {
			key := s.below(keys.EntityItemPrefix("default", "account@held"))[0]
			s.put(key, s.get(key)[:4])
		}, ""},
		{"a scheduled signal that is gone", audit.RuleEntity, "account@held", "", -1, func(s *plot) {
			s.drop(s.below(append(keys.EntityItemPrefix("default", "account@held"), byte(keys.Delayed)))[0])
		}, "first scheduled signal"},
		{"a section cut short", audit.RuleDamaged, "holding", "", -1, func(s *plot) {
			key := s.below(of(keys.Holder, "holding"))[0]
			s.put(key, s.get(key)[:6])
		}, ""},
		{"heartbeats of an ended execution", audit.RuleHeartbeat, "done", "", -1, func(s *plot) {
			s.put(keys.HeartbeatOf("default", "done", s.header("done", func(*state.Header) {}).Incarnation),
				state.EncodeHeartbeats([]state.StepHeartbeat{{Name: "copy", Attempt: 1, AtMS: 1, Details: []byte("half")}}))
		}, "is not open"},
		{"a heartbeat that is gone", audit.RuleHeartbeat, "asking", "", -1, func(s *plot) {
			s.header("asking", func(h *state.Header) { h.HeartbeatAt = 1 })
		}, "none is stored"},
		{"a sweep that no execution has", audit.RuleDeadline, "done", "", -1, func(s *plot) { s.put(keys.DeadlineOf(keys.DeadlineSweep, 5, "default", "done"), none) }, "swept then"},
		{"a sweep without its deadline", audit.RuleDeadline, "failed", "", -1, func(s *plot) {
			s.header("failed", func(h *state.Header) { h.Former, h.Generation, h.SweepAt, h.Sweep = h.Incarnation-1, 1, 77, []byte{1} })
		}, "its sweep at 77 is not in the index"},
		{"children that no execution reaches", audit.RuleDeadline, "sleeping", "", -1, func(s *plot) {
			s.put(keys.DeadlineOf(keys.DeadlineChildren, 5, "default", "sleeping"), none)
		}, "children are reached then"},
		{"children that are never reached", audit.RuleDeadline, "cancelled", "", -1, func(s *plot) {
			s.header("cancelled", func(h *state.Header) { h.ChildrenAt = 77 })
		}, "its children are reached at 77, which is not in the index"},
		{"children of a running parent", audit.RuleHeader, "calling", "", -1, func(s *plot) {
			s.header("calling", func(h *state.Header) { h.ChildrenAt, h.ChildrenFrom = 77, 1 })
		}, "its children from 1 on"},
		{"listed as stuck and running", audit.RuleCode, "asking", "", -1, func(s *plot) { s.put(of(keys.Stuck, "ask", "asking"), none) }, "listed as stuck"},
		{"halted and not listed as stuck", audit.RuleCode, "waiting", "", -1, func(s *plot) {
			s.task("waiting", func(task *recovery.Task) { task.State = recovery.TaskHalted })
		}, "not listed as stuck"},
		{"a function without a name", audit.RuleDamaged, "", "bare", -1, func(s *plot) { s.put(of(keys.Function, ""), none) }, "without a name"},
		{"an inbox of this partition", audit.RuleChannel, fmt.Sprint("partition ", here("asking")), "asking", -1, func(s *plot) {
			s.put(keys.Number(keys.Inbox, here("asking")), state.Channel{Epoch: 1, Last: 1}.Encode())
		}, "an inbox for messages"},
		{"a child with more attempts than its caller's journal allows", audit.RuleInput, "retried:0", "", -1, func(s *plot) {
			s.header("retried:0", func(h *state.Header) { h.Retry.Attempts = 9 })
		}, "has 9 attempts"},
		{"a child with more failed attempts than it has", audit.RuleHeader, "retried:0", "retried", -1, func(s *plot) {
			s.header("retried:0", func(h *state.Header) { h.FailedAttempts = 3 })
		}, "3 attempts have failed"},
		{"a proxy promise with more attempts than the journal allows", audit.RuleInput, "retried", "", -1, func(s *plot) {
			s.promise("retried:1", func(p *recovery.Promise) { s.mark(p, func(c *state.ChildElsewhere) { c.Retry.Attempts = 9 }) })
		}, "has 9 attempts"},
		{"a proxy promise that names no child", audit.RuleInput, "retried", "", -1, func(s *plot) {
			s.promise("retried:1", func(p *recovery.Promise) { p.Tags[0].Value = "?" })
		}, "names no child"},
		{"a proxy promise with another pause than its child", audit.RuleInput, ownChild, "retried", -1, func(s *plot) {
			s.promise("retried:1", func(p *recovery.Promise) { s.mark(p, func(c *state.ChildElsewhere) { c.Retry.InitialMS++ }) })
		}, "its promise \"retried:1\" the retries"},
		{"a child with another tag than its proxy promise", audit.RuleInput, ownChild, "retried", -1, func(s *plot) {
			s.header(ownChild, func(h *state.Header) { h.Tags = []recovery.Tag{{Key: "of", Value: "another"}} })
		}, `"another"}], its promise`},
		{"a key of no family", audit.RuleDamaged, "", "done", -1, func(s *plot) { s.put([]byte{0x99, 1}, none) }, ""},
	}
}

// latchOf is where a graph run keeps a signal.
func latchOf(s *plot, run, signal string) []byte {
	graph := s.below(of(keys.Graph, run))[0]
	incarnation, _, err := keys.CutUint64(graph[len(graph)-8:])
	s.must(err)
	return keys.LatchOf("default", run, incarnation, signal)
}

// verify names every planted fault, by its rule and its object, in the partition it is in.
func TestVerifyFindsWhatIsPlanted(t *testing.T) {
	t.Parallel() // others wait meanwhile
	n := aRealNode(t)
	if all := plantings(); len(all) < 40 {
		t.Errorf("only %d plantings", len(all))
	}
	for _, c := range plantings() {
		t.Run(strings.ReplaceAll(c.what, " ", "_"), func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			must(t, os.CopyFS(dir, os.DirFS(n.stopped)))
			in := c.in
			if in == "" {
				in = c.id
			}
			plant(t, dir, here(in), c.change)
			got, stderr, code := verifyDir(t, dir)
			if code != exitFailed || got.OK || !got.finds(c.rule, c.id, c.says) || !strings.Contains(stderr, "VIOLATIONS") {
				t.Fatalf("exit %d, %s of %q must be found, found\n%+v\n%s", code, c.rule, c.id, got.Violations, stderr)
			}
			for _, v := range got.Violations {
				if v.Partition == nil || *v.Partition != int(here(in)) {
					t.Errorf("found in partition %v, planted into %d: %+v", v.Partition, here(in), v)
				}
				if v.Rule == c.rule && v.ID == c.id && c.says == "" && (c.seq >= 0) != (v.Seq != nil) {
					t.Errorf("entry %v, must be %d: %+v", v.Seq, c.seq, v)
				}
			}
			text, _, code := (&shell{addr: "127.0.0.1:1"}).run("verify", "--data", dir)
			line := "violation: " + c.rule + ": "
			if c.id != "" {
				line += c.id
			}
			if c.seq >= 0 && c.seq < 9999 {
				line += fmt.Sprintf(", entry %d: ", c.seq)
			}
			if code != exitFailed || !strings.Contains(text, "\n"+line) || !strings.Contains(text, fmt.Sprintf("partition %d)\n", here(in))) {
				t.Errorf("exit %d, the line %q is not in\n%s", code, line, text)
			}
		})
	}
}

// A running cluster reports the same faults, on every node, and continues to serve. Faults in different call
// trees are looked for together.
func TestVerifyLiveFindsWhatIsPlanted(t *testing.T) {
	t.Parallel() // others wait meanwhile
	n := aRealNode(t)
	left := plantings()
	nodes := 0
	for ; len(left) > 0; nodes++ {
		var now, later []planting
		taken := map[string]bool{}
		for _, c := range left {
			in := c.in
			if in == "" {
				in = c.id
			}
			root, _, _ := strings.Cut(in, ":")
			if taken[root] {
				later = append(later, c)
				continue
			}
			taken[root] = true
			now = append(now, c)
		}
		left = later
		dir := filepath.Join(t.TempDir(), "data")
		must(t, os.CopyFS(dir, os.DirFS(n.stopped)))
		for _, c := range now {
			in := c.in
			if in == "" {
				in = c.id
			}
			plant(t, dir, here(in), c.change)
		}
		ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
		node, err := embed.Start(ctx, embed.Config{DataDir: dir, AuditShare: embed.NoShare,
			DiskReserve: 1 << 20, GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
			Logger: slog.New(slog.DiscardHandler)})
		must(t, err)
		stdout, stderr, code := (&shell{addr: node.GRPCAddr()}).run("verify", "--json")
		var got verifyReport
		if stdout != "" {
			got = verifyReportOf(t, stdout)
		}
		if code != exitFailed || got.OK || !strings.Contains(stderr, "VIOLATIONS") {
			t.Errorf("exit %d: %s\n%s", code, stdout, stderr)
		}
		for _, c := range now {
			if !got.finds(c.rule, c.id, c.says) {
				t.Errorf("%s: %s of %q (%s) must be found, found\n%+v", c.what, c.rule, c.id, c.says, got.Violations)
			}
		}
		must(t, node.Close(ctx))
		cancel()
	}
	t.Logf("%d plantings in %d nodes", len(plantings()), nodes)
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
				err = errors.Join(err, readErr, os.WriteFile(name, flip(data), 0o644))
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
