package jepsen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// UpgradeOptions say how to upgrade a cluster that runs the older server (Options.Binary; see BuildOptions.Previous).
type UpgradeOptions struct {
	// Newer is the newer server's binary.
	Newer string
	// Executions and Graphs are how many of each are under way at a time; defaults 16 and 6. MaxNodes bounds
	// the nodes of a graph; default 30.
	Executions, Graphs, MaxNodes int
	// Each is how many executions have to end between two restarts; default 50. Timeout is a client's
	// timeout for one of them; default 60 s.
	Each    int
	Timeout time.Duration
	Prefix  string
	Seed    uint64
	Out     io.Writer
}

func (o *UpgradeOptions) fill() {
	o.Executions, o.Graphs, o.MaxNodes = fallback(o.Executions, 16), fallback(o.Graphs, 6), fallback(o.MaxNodes, 30)
	o.Each, o.Timeout = fallback(o.Each, 50), fallback(o.Timeout, time.Minute)
	o.Prefix = fallback(o.Prefix, fmt.Sprintf("u-%x", o.Seed))
	if o.Out == nil {
		o.Out = io.Discard
	}
}

// UpgradeReport is the cost of an upgrade.
type UpgradeReport struct {
	Took time.Duration
	// From and To are the cluster's feature levels.
	From, To uint64
	// Executions and Graphs are how many have ended, for their clients; Latency is of both.
	Executions, Graphs int
	Latency            Spread
	// Errors is how many calls, of all clients, were answered with an error.
	Errors   int
	Restarts int
	// TooEarly is the error of an upgrade command before all nodes ran the newer version. Refused is the error of an
	// older server that starts afterwards.
	TooEarly, Refused string
	Verdict           GraphVerdict
	Violations        []string
}

// Upgrade takes a cluster from the older server to the newer one, node by node, and back, and once more to
// the newer one, under a load of executions and graphs. Then it raises the feature level and starts the older
// server once more. No client may see an error, no replica may halt, and the older server has to be refused,
// unless it is from before clusters had a feature level. An error means that the run could not be made. The
// program has to call BeWorker.
func Upgrade(ctx context.Context, c *Cluster, o UpgradeOptions) (*UpgradeReport, error) {
	o.fill()
	u := &upgrade{o: o, c: c, older: c.opts.Binary, report: &UpgradeReport{}}
	if missing := 3 - len(c.workers); missing > 0 {
		if err := c.StartWorkers(ctx, missing, 64, 10*time.Second); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	var err error
	if u.cl, err = c.Client(o.Timeout); err != nil {
		return nil, err
	}
	defer u.cl.Close()
	running, stop := context.WithCancel(ctx)
	var load sync.WaitGroup
	for range o.Executions {
		load.Go(func() { u.execute(ctx, running) })
	}
	for range o.Graphs {
		load.Go(func() { u.graph(ctx, running) })
	}
	err = u.roll(ctx)
	stop()
	load.Wait()
	u.report.Took = time.Since(began)
	if err == nil {
		err = u.readBack(ctx)
	}
	if err == nil {
		u.report.Violations = append(u.report.Violations, Aftermath(ctx, c)...)
		err = u.refuse(ctx)
	}
	u.report.Violations = append(u.report.Violations, u.wrong...)
	if n := u.report.Errors; n > 0 {
		u.violate("%d calls of clients were answered with an error, the first: %s", n, u.first)
	}
	return u.report, err
}

type upgrade struct {
	o      UpgradeOptions
	c      *Cluster
	cl     *client.Client
	older  string
	report *UpgradeReport
	made   atomic.Int64
	ended  atomic.Int64 // executions
	// ungated: the older server is from before clusters had a feature level. It refuses and names none.
	ungated bool

	mu      sync.Mutex
	records []*GraphRecord
	took    []time.Duration
	first   string
	wrong   []string
}

func (u *upgrade) violate(format string, args ...any) {
	u.report.Violations = append(u.report.Violations, fmt.Sprintf(format, args...))
}

// done notes the end of an execution or a graph, as its client sees it.
func (u *upgrade) done(id string, began time.Time, err error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.took = append(u.took, time.Since(began))
	if err == nil {
		return
	}
	if u.report.Errors++; u.first == "" {
		u.first = id + ": " + err.Error()
	}
}

// execute runs executions of three steps, one after the other.
func (u *upgrade) execute(ctx, running context.Context) {
	fn := stepFunction(nil) // to be started only: workers have their own
	for running.Err() == nil {
		id := fmt.Sprintf("%s-x%d", u.o.Prefix, u.made.Add(1))
		began := time.Now()
		result, err := u.executeOne(ctx, fn, id)
		u.done(id, began, err)
		if err == nil && !strings.HasPrefix(result, id+"|") {
			u.mu.Lock()
			u.wrong = append(u.wrong, fmt.Sprintf("%s has the result %q", id, result))
			u.mu.Unlock()
		}
		u.ended.Add(1)
	}
}

func (u *upgrade) executeOne(ctx context.Context, fn *durable.Function[stepsInput, string], id string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, u.o.Timeout)
	defer cancel()
	h, err := fn.Start(ctx, u.cl, id, stepsInput{ID: id, Micros: 2000})
	if err != nil {
		return "", err
	}
	return h.Result(ctx)
}

// graph runs drawn graphs, one after the other.
func (u *upgrade) graph(ctx, running context.Context) {
	for running.Err() == nil {
		k := u.made.Add(1)
		rec := &GraphRecord{ID: fmt.Sprintf("%s-g%d", u.o.Prefix, k), Script: DrawGraph(u.o.Seed, uint64(k), u.o.MaxNodes, k%2 == 0)}
		u.mu.Lock()
		u.records = append(u.records, rec)
		u.mu.Unlock()
		began := time.Now()
		u.done(rec.ID, began, u.graphOne(ctx, rec))
		rec.Took = time.Since(began)
	}
}

func (u *upgrade) graphOne(ctx context.Context, rec *GraphRecord) error {
	ctx, cancel := context.WithTimeout(ctx, u.o.Timeout)
	defer cancel()
	if _, err := u.cl.SubmitGraph(ctx, client.SubmitGraphOptions{ID: rec.ID, Graph: rec.Script.Graph, Input: []byte("{}")}); err != nil {
		return err
	}
	rec.Acked = true
	for _, name := range rec.Script.Signals {
		if err := u.cl.Signal(ctx, rec.ID, name, SignalPayload(name)); err != nil && !api.Is(err, perdurev1.Reason_REASON_ALREADY_FINISHED) {
			return err
		}
	}
	_, err := u.cl.Result(ctx, rec.ID)
	if failed := new(client.ExecutionError); errors.As(err, &failed) {
		return nil // the script may say so
	}
	return err
}

// roll upgrades the cluster, takes it back, upgrades it again and raises the level.
func (u *upgrade) roll(ctx context.Context) error {
	first, err := u.c.Status(ctx)
	if err != nil {
		return err
	}
	u.report.From = first.GetFeatureLevel()
	if u.ungated = u.report.From == 0; !u.ungated {
		if err := u.all(ctx, "older", u.report.From, u.report.From); err != nil {
			return err
		}
	}
	for i, n := range u.c.nodes {
		if err := u.replace(ctx, n, u.o.Newer); err != nil {
			return err
		}
		if i == 0 && !u.ungated {
			u.tooEarly(ctx)
		}
	}
	status, err := u.c.Status(ctx)
	if err != nil {
		return err
	}
	if u.ungated {
		u.report.From = status.GetFeatureLevel()
	}
	newest := status.GetNodes()[0].GetFeatureLevel()
	if newest <= u.report.From {
		return fmt.Errorf("the newer server knows feature level %d, and the cluster is at %d: these are not two versions", newest, u.report.From)
	}
	if err := u.all(ctx, "newer", newest, u.report.From); err != nil {
		return err
	}
	for _, binary := range []string{u.older, u.o.Newer} {
		for _, n := range u.c.nodes {
			if err := u.replace(ctx, n, binary); err != nil {
				return err
			}
		}
	}
	if err := u.all(ctx, "newer again", newest, u.report.From); err != nil {
		return err
	}
	up, err := u.cl.Upgrade(ctx, 0)
	if err != nil {
		u.violate("the upgrade was refused: %v", err)
		return nil
	}
	fmt.Fprintf(u.o.Out, "the feature level is %d, it was %d\n", up.GetLevel(), up.GetFrom())
	if u.report.To = up.GetLevel(); up.GetFrom() != u.report.From || up.GetLevel() != newest || len(up.GetWaiting()) > 0 {
		u.violate("the upgrade from level %d to %d answers %v", u.report.From, newest, up)
	}
	return u.progress(ctx)
}

// tooEarly tries to raise the level while nodes run the older server: it must be refused, with their names.
func (u *upgrade) tooEarly(ctx context.Context) {
	up, err := u.cl.Upgrade(ctx, 0)
	if !api.Is(err, perdurev1.Reason_REASON_FEATURE_LEVEL) {
		u.violate("an upgrade while nodes run the older version: %v, %v", up, err)
		return
	}
	u.report.TooEarly = err.Error()
	fmt.Fprintf(u.o.Out, "too early: %v\n", err)
	for _, n := range u.c.nodes[1:] {
		if !strings.Contains(err.Error(), "node "+n.Name) {
			u.violate("an upgrade while %s runs the older version is refused without its name: %v", n.Name, err)
		}
	}
}

// replace stops a node in order and starts it with another server. The load runs on it before the next
// replacement.
func (u *upgrade) replace(ctx context.Context, n *Node, binary string) error {
	if err := n.Stop(); err != nil {
		return err
	}
	n.use(binary)
	if err := n.Start(); err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	if err := u.c.WaitReady(ready); err != nil {
		return err
	}
	u.report.Restarts++
	fmt.Fprintf(u.o.Out, "%s runs %s, %d executions so far\n", n.Name, map[bool]string{true: "the newer server", false: "the older server"}[binary == u.o.Newer], u.ended.Load())
	return u.progress(ctx)
}

// progress waits until Each more executions have ended.
func (u *upgrade) progress(ctx context.Context) error {
	goal := u.ended.Load() + int64(u.o.Each)
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	return waitFor(ctx, "executions to advance", func(context.Context) error {
		if n := u.ended.Load(); n < goal {
			return fmt.Errorf("%d of %d", n, goal)
		}
		return nil
	})
}

// all waits until all nodes are known to know a level, and finds a cluster that is not at its own, or a
// replica that has halted.
func (u *upgrade) all(ctx context.Context, what string, knows, at uint64) error {
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	return waitFor(ctx, fmt.Sprintf("all nodes to run the %s server", what), func(ctx context.Context) error {
		s, err := u.c.Status(ctx)
		if err != nil {
			return err
		}
		for _, n := range s.GetNodes() {
			if n.GetFeatureLevel() != knows {
				return fmt.Errorf("%s knows level %d, not %d", n.GetNodeId(), n.GetFeatureLevel(), knows)
			}
		}
		for _, p := range s.GetPartitions() {
			if p.GetFeatureLevel() > at {
				u.violate("%s: partition %d is at level %d, beyond %d", what, p.GetPartition(), p.GetFeatureLevel(), at)
			}
		}
		if s.GetFeatureLevel() != at {
			u.violate("%s: the cluster is at level %d, not %d", what, s.GetFeatureLevel(), at)
		}
		if err := diverged(s); err != nil {
			u.violate("%s: %v", what, err)
		}
		return nil
	})
}

// readBack reads all runs of graphs again and checks them.
func (u *upgrade) readBack(ctx context.Context) error {
	r := &GraphRun{c: u.c, all: u.cl, records: u.records}
	if err := r.readBack(ctx); err != nil {
		return fmt.Errorf("looking up the runs: %w", err)
	}
	calls, err := u.c.Calls()
	if err != nil {
		return err
	}
	u.report.Verdict = CheckGraphs(u.records, calls, nil)
	u.report.Violations = append(u.report.Violations, u.report.Verdict.Violations()...)
	u.report.Executions, u.report.Graphs, u.report.Latency = int(u.ended.Load()), len(u.records), SpreadOf(u.took)
	return nil
}

// refuse starts the older server on a node of the cluster whose level was raised: it must end by itself and say why.
func (u *upgrade) refuse(ctx context.Context) error {
	if u.ungated {
		return nil
	}
	n := u.c.nodes[len(u.c.nodes)-1]
	if err := n.Stop(); err != nil {
		return err
	}
	n.use(u.older)
	u.report.Refused = n.refused(ctx)
	fmt.Fprintf(u.o.Out, "the older server refuses to start: %s\n", u.report.Refused)
	if !strings.Contains(u.report.Refused, fmt.Sprintf("feature level %d", u.report.To)) {
		u.violate("the older server on %s was not refused by name: %s", n.Name, u.report.Refused)
	}
	n.use(u.o.Newer)
	if err := n.Start(); err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	return u.c.WaitReady(ready)
}

// String is the summary.
func (r *UpgradeReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "feature level %d to %d, %d restarts in %s under %d executions and %d graphs: %d errors at clients; latency %s\n",
		r.From, r.To, r.Restarts, short3(r.Took), r.Executions, r.Graphs, r.Errors, r.Latency)
	fmt.Fprintf(&b, "  graphs: %d completed, %d failed by their scripts, LOST %d, STUCK %d, WRONG %d\n",
		r.Verdict.Completed, r.Verdict.Failed, len(r.Verdict.Lost), len(r.Verdict.Stuck), len(r.Verdict.Wrong))
	fmt.Fprintf(&b, "  too early: %s\n  the older server afterwards: %s\n", r.TooEarly, r.Refused)
	return b.String()
}
