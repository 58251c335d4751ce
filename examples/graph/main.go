// Command graph runs a month's report of a shop as a DAG: it reads files, rejects bad rows, converts, adds up
// in two ways, joins, waits for an approval, writes the report and archives it. One branch fails.
//
// It owns a work folder. The report follows from the files, however often the process is killed and started
// again: the cluster stores the run, and knows which nodes have ended. A crash loses the nodes that were
// running: those run again.
//
// graph.yaml is the graph, graph.go the same in Go, jobs.go the functions. The rest is there to watch them.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
	"perdure/embed"
	"perdure/examples/internal/cluster"
)

// Exit codes.
const (
	exitDone   = 0
	exitFailed = 1 // it was stopped, or could not continue, or the check found differences
	exitUsage  = 2
)

// Files in the work folder.
const (
	dataName    = "data"         // the files that the run reads
	outName     = "out"          // what it writes
	nodeData    = "perdure-data" // the node's
	worksName   = "work.log"     // a line for each time that a function ran
	logName     = "run.log"      // what the node and the worker have to say
	pictureName = "run.svg"
	claimName   = "run.id" // which run the folder belongs to
	ignoreName  = ".gitignore"
)

// options are the command line.
type options struct {
	addrs   []string
	work    string
	id      string
	latency time.Duration
	lease   time.Duration
	strict  bool
	wait    bool
	fresh   bool
	json    bool
}

func main() {
	o, err := parse(os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(exitDone)
	case err != nil:
		os.Exit(exitUsage)
	}
	// The first signal asks for an orderly stop, a second one ends the process at once.
	ctx, restore := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, restore)
	os.Exit(o.run(ctx, os.Stdout, os.Stderr))
}

// parse reads the command line. When it returns an error, it has printed the problem or the help.
func parse(args []string, stdout, stderr io.Writer) (options, error) {
	o := options{}
	flags := flag.NewFlagSet("graph", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {} // the whole help is no answer to a slip
	addr := flags.String("addr", "", "`addresses` of a cluster, with commas; none: a node of its own, inside this process")
	flags.StringVar(&o.work, "work", "", "`folder` for the files, the report and the node's data (default \"graph-run\", and with --strict \"graph-run-strict\")")
	flags.StringVar(&o.id, "id", "", "`id` of the run (default \"report-2025-06\", and with --strict \"strict-2025-06\")")
	flags.DurationVar(&o.latency, "latency", 300*time.Millisecond, "how much longer than it needs each function takes")
	flags.DurationVar(&o.lease, "lease", 2*time.Second, "how long a task is held without a heartbeat, 1s at least")
	flags.BoolVar(&o.strict, "strict", false, "let the run fail with the branch that fails; then repair it and retry")
	flags.BoolVar(&o.wait, "wait-for-signal", false, "leave the approval to you")
	flags.BoolVar(&o.fresh, "fresh", false, "forget earlier runs: first remove what they left in the work folder")
	flags.BoolVar(&o.json, "json", false, "print the outcome as JSON")
	wrong := func(err error) (options, error) {
		fmt.Fprintf(stderr, "graph: %v\nsee graph --help\n", err)
		return o, err
	}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprint(stdout, "Usage: graph [flags]\n\nRuns a month's report as a graph of 17 nodes. Kill it and start it again: it continues.\n\n")
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return o, err
	case err != nil:
		return wrong(err)
	}
	if *addr != "" {
		var err error
		if o.addrs, err = cluster.SplitAddrs(*addr); err != nil {
			return wrong(err)
		}
	}
	if text := o.wrong(flags.Args()); text != "" {
		return wrong(errors.New(text))
	}
	byDefault := func(s *string, usual, strict string) {
		switch {
		case *s == "" && o.strict:
			*s = strict
		case *s == "":
			*s = usual
		}
	}
	byDefault(&o.id, "report-"+TheMonth.Period, "strict-"+TheMonth.Period)
	byDefault(&o.work, "graph-run", "graph-run-strict")
	return o, nil
}

// wrong describes a problem of the options, or returns "".
func (o options) wrong(rest []string) string {
	switch {
	case len(rest) > 0:
		return fmt.Sprintf("%q: there are only flags", rest[0])
	case o.latency < 0 || o.latency > 30*time.Second:
		return fmt.Sprintf("--latency %v: from 0 to 30s", o.latency)
	case o.lease < time.Second:
		return fmt.Sprintf("--lease %v: at least 1s", o.lease)
	case o.fresh && len(o.addrs) > 0:
		return "--fresh: the run stays in the cluster; take another --id and another --work"
	}
	return ""
}

// run does everything, in order, and returns the exit code.
func (o options) run(ctx context.Context, stdout, stderr io.Writer) int {
	fail := func(err error) int {
		fmt.Fprintf(stderr, "graph: %v\n", err)
		return exitFailed
	}

	// 1. The graph.
	g, err := LoadGraph(o.strict)
	if err != nil {
		return fail(err)
	}

	// 2. The cluster that is there already, if one was named. TLS, a token and the namespace, for a cluster
	// that asks for them, come from the environment.
	var opts client.Options
	if len(o.addrs) > 0 {
		if opts, err = client.OptionsFromEnv(nil); err != nil {
			return fail(err)
		}
		opts.Addrs = o.addrs
		if _, _, err := cluster.Which(ctx, opts); err != nil {
			return fail(err)
		}
	}

	// 3. The work folder, and in it the files.
	if o.fresh {
		if err := removeRun(o.work); err != nil {
			return fail(err)
		}
	}
	data, out := filepath.Join(o.work, dataName), filepath.Join(o.work, outName)
	if err := o.claim(); err != nil {
		return fail(err)
	}
	if err := errors.Join(copyData(data), os.MkdirAll(out, 0o755)); err != nil {
		return fail(err)
	}
	logs, err := openAppend(filepath.Join(o.work, logName))
	if err != nil {
		return fail(err)
	}
	defer logs.Close()
	works, err := openAppend(filepath.Join(o.work, worksName))
	if err != nil {
		return fail(err)
	}
	defer works.Close()
	log := slog.New(slog.NewTextHandler(logs, nil)).With("process", os.Getpid())

	// 4. Without a cluster, one node in this process.
	var node *embed.Node
	if len(o.addrs) == 0 {
		if node, err = cluster.Start(ctx, filepath.Join(o.work, nodeData), log); err != nil {
			return fail(err)
		}
		defer cluster.Stop(node, log)
		opts.Addrs = []string{node.GRPCAddr()}
	}
	opts.Logger = log
	c, err := client.Dial(opts)
	if err != nil {
		return fail(err)
	}
	defer c.Close()
	addrs := opts.Addrs
	fmt.Fprintf(stderr, "graph: process %d, cluster at %s, work folder %s\n", os.Getpid(), strings.Join(addrs, ","), o.work)

	// 5. The worker. It stops before the node that it is connected to.
	ctx, cancel := context.WithCancelCause(ctx)
	var background sync.WaitGroup
	defer func() { cancel(errOver); background.Wait() }()
	serve := func(what string, run func(context.Context) error) {
		background.Go(func() {
			if err := run(ctx); err != nil && ctx.Err() == nil {
				cancel(fmt.Errorf("%s: %w", what, err))
			}
		})
	}
	if node != nil {
		serve("the node", func(ctx context.Context) error {
			select {
			case <-node.Done():
				return node.Err()
			case <-ctx.Done():
				return nil
			}
		})
	}
	w := durable.NewWorker(c, durable.WorkerOptions{Name: "graph", Lease: o.lease, StopGrace: o.latency + 10*time.Second, Logger: log})
	NewShop(data, out, o.latency, works).Register(w)
	serve("the worker", w.Run)

	// 6. The run.
	r := &theRun{options: o, client: c, graph: g, data: data, addr: addrs[0], say: stdout, stderr: stderr}
	if o.json {
		r.say = stderr
	}
	status, err := r.toTheEnd(ctx)
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return r.explain(err)
	}

	// 7. The outcome.
	return r.conclude(ctx, status, stdout)
}

// errOver is the cause of a context that ends because the work is done.
var errOver = errors.New("the run has ended")

const (
	runCompleted = perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED
	runFailed    = perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED
)

// theRun is the run that this process follows.
type theRun struct {
	options
	client      *client.Client
	graph       *perdurev1.Graph
	data        string
	addr        string
	say, stderr io.Writer
	last        *perdurev1.GraphStatus
}

// toTheEnd submits the graph, or finds the run that is there, and follows it until it has completed.
func (r *theRun) toTheEnd(ctx context.Context) (*perdurev1.GraphStatus, error) {
	input, err := json.Marshal(TheMonth)
	if err != nil {
		return nil, err
	}
	// Workers may not have registered their functions yet.
	started, err := r.client.SubmitGraph(ctx, client.SubmitGraphOptions{ID: r.id, Graph: r.graph, Input: input, AllowUnknownFunctions: true})
	if err != nil {
		return nil, fmt.Errorf("submitting %s: %w", graphFile, err)
	}
	s, err := r.client.GraphStatus(ctx, r.id)
	if err != nil {
		return nil, err
	}
	total := len(s.GetNodes())
	switch n := endedNodes(s); {
	case s.GetStatus() == runCompleted:
		over := "--fresh starts over"
		if len(r.addrs) > 0 {
			over = "another --id with another --work starts over"
		}
		fmt.Fprintf(r.say, "The run %s had ended before; there was nothing to do. %s.\n", r.id, over)
		return s, nil
	case client.Ended(s.GetStatus()) && !r.strict:
		retried, err := r.client.RetryGraph(ctx, r.id)
		if err != nil {
			return nil, fmt.Errorf("retrying %s: %w", r.id, err)
		}
		fmt.Fprintf(r.say, "The run %s had failed, and is retried: %d of %d nodes start over.\n", r.id, retried.GetReset_(), total)
	case started.Created:
		fmt.Fprintf(r.say, "The run %s: %d nodes of %s. Look into it from another terminal:\n  go run ./cmd/perdure graph watch %s --addr %s\n",
			r.id, total, graphFile, r.id, r.addr)
	default:
		fmt.Fprintf(r.say, "The run %s continues: %d of %d nodes had ended before.\n", r.id, n, total)
	}
	for p := (&progress{w: r.say, began: time.Now()}); ; p.last = nil {
		if s, err = r.follow(ctx, p); err != nil {
			return nil, err
		}
		if s.GetStatus() == runCompleted {
			return s, nil
		}
		if !r.strict || s.GetStatus() != runFailed {
			fmt.Fprintln(r.say)
			if err := table(ctx, r.client, s, r.say); err != nil {
				return nil, err
			}
			return nil, fmt.Errorf("the run %s has %s: %s", r.id, endOf(s), s.GetProblem())
		}
		if err := r.repair(ctx, s); err != nil {
			return nil, err
		}
	}
}

// endOf describes the end of a run that has not completed.
func endOf(s *perdurev1.GraphStatus) string {
	if s.GetStatus() == runFailed {
		return "failed"
	}
	return "been cancelled"
}

// follow prints the progress until the run has ended, and handles the approval.
func (r *theRun) follow(ctx context.Context, p *progress) (*perdurev1.GraphStatus, error) {
	asked := false
	for s, err := range r.client.WatchGraph(ctx, r.id) {
		if err != nil {
			return nil, err
		}
		r.last = s
		p.show(s)
		if s.GetPhase() != "suspended" || asked {
			continue
		}
		asked = true
		if err := drawRun(r.work, r.graph, s); err != nil {
			return nil, err
		}
		if err := r.approve(ctx); err != nil {
			return nil, err
		}
	}
	return r.last, nil
}

// approve shows what there is to approve, and gives the signal, or says how it is given.
func (r *theRun) approve(ctx context.Context) error {
	joined, err := outcome[Summary](ctx, r.client, r.id, nodeJoin)
	if err != nil {
		return err
	}
	rejected, err := outcome[RejectedRows](ctx, r.client, r.id, nodeRejected)
	if err != nil {
		return err
	}
	fmt.Fprintf(r.say, "\nThe run is suspended: nothing can continue before the signal %q. What it is about:\n  %s\n  rejected: %s\n  picture: %s\n",
		signalApproved, joined.Note, rejected.Note, filepath.Join(r.work, pictureName))
	if r.wait {
		fmt.Fprintf(r.say, "Approve it from another terminal:\n  go run ./cmd/perdure signal %s %s --payload '{\"by\": \"you\"}' --addr %s\n\n", r.id, signalApproved, r.addr)
		return nil
	}
	fmt.Fprintf(r.say, "This program approves it (with --wait-for-signal, you do).\n\n")
	return r.client.Signal(ctx, r.id, signalApproved, []byte(`{"by": "the example"}`))
}

// repair shows the progress of a failed run, repairs the file and has the run retried.
func (r *theRun) repair(ctx context.Context, s *perdurev1.GraphStatus) error {
	fmt.Fprintf(r.say, "\nThe run has failed: %s\n\n", s.GetProblem())
	if err := errors.Join(table(ctx, r.client, s, r.say), drawRun(r.work, r.graph, s), repairLegacy(r.data)); err != nil {
		return err
	}
	retried, err := r.client.RetryGraph(ctx, r.id)
	if err != nil {
		return fmt.Errorf("retrying %s: %w", r.id, err)
	}
	fmt.Fprintf(r.say, "\n%s is repaired, and the run retried (go run ./cmd/perdure graph retry %s): %d nodes start over, %d are kept.\n\n",
		filepath.Join(r.data, legacyFile), r.id, retried.GetReset_(), len(s.GetNodes())-int(retried.GetReset_()))
	return nil
}

// explain prints why the run has not ended.
func (r *theRun) explain(err error) int {
	what := err.Error()
	switch {
	case errors.Is(err, context.Canceled):
		what = "stopped"
	case r.last != nil && client.Ended(r.last.GetStatus()) && !r.strict:
		fmt.Fprintf(r.stderr, "graph: %s; put that right and run the same command again: it retries what has failed\n", what)
		return exitFailed
	}
	fmt.Fprintf(r.stderr, "graph: %s, with %d of %d nodes ended; run the same command again to continue; details are in %s\n",
		what, endedNodes(r.last), len(r.graph.GetNodes()), filepath.Join(r.work, logName))
	return exitFailed
}

// Summary of a run, as --json prints it.
type runSummary struct {
	ID          string        `json:"id"`
	Status      string        `json:"status"`
	Nodes       []nodeSummary `json:"nodes"`
	Report      string        `json:"report"`
	Check       string        `json:"check"` // "ok" or "failed"
	Differences []string      `json:"differences"`
}

type nodeSummary struct {
	ID       string `json:"id"`
	State    string `json:"state"`
	Attempts uint32 `json:"attempts"`
	// Attempt is the id of the last attempt, an execution of its own: work.log has it.
	Attempt string `json:"attempt,omitempty"`
	Kept    bool   `json:"kept,omitempty"`
}

// conclude checks the run's outcome and prints it.
func (r *theRun) conclude(ctx context.Context, s *perdurev1.GraphStatus, stdout io.Writer) int {
	fail := func(err error) int {
		fmt.Fprintf(r.stderr, "graph: %v\n", err)
		return exitFailed
	}
	out := filepath.Join(r.work, outName)
	differences, err := Check(r.data, out, TheMonth, s)
	if err != nil {
		return fail(err)
	}
	if err := drawRun(r.work, r.graph, s); err != nil {
		return fail(err)
	}
	sum := runSummary{ID: r.id, Status: s.GetPhase(), Report: filepath.Join(out, reportMarkdown), Check: "ok", Differences: append([]string{}, differences...)}
	if len(differences) > 0 {
		sum.Check = "failed"
	}
	if r.json {
		for _, n := range s.GetNodes() {
			sum.Nodes = append(sum.Nodes, nodeSummary{n.GetId(), stateOf(n), n.GetAttempt(), n.GetAttemptId(), n.GetKept()})
		}
		if err := json.NewEncoder(stdout).Encode(sum); err != nil {
			return fail(err)
		}
	} else {
		fmt.Fprintln(stdout)
		if err := table(ctx, r.client, s, stdout); err != nil {
			return fail(err)
		}
		fmt.Fprintf(stdout, "\nreport: %s\npicture: %s\n", sum.Report, filepath.Join(r.work, pictureName))
		for _, d := range differences {
			fmt.Fprintf(stdout, "  %s\n", d)
		}
		if len(differences) > 0 {
			fmt.Fprintf(stdout, "check: %d differences from what the files say\n", len(differences))
		} else {
			fmt.Fprintln(stdout, "check: ok")
		}
	}
	if len(differences) > 0 {
		return exitFailed
	}
	return exitDone
}

// outcome is a node's answer.
func outcome[T any](ctx context.Context, c *client.Client, run, node string) (T, error) {
	return durable.Outcome[T](ctx, durable.AttachGraph(c, run), node)
}

// claim makes the folder the one of this run: another run with other files must not get in between.
func (o options) claim() error {
	path := filepath.Join(o.work, claimName)
	switch owner, err := os.ReadFile(path); {
	case err == nil && string(owner) == o.id+"\n":
		return nil
	case err == nil:
		return fmt.Errorf("%s is of the run %s: take another --work, or --fresh", o.work, strings.TrimSpace(string(owner)))
	case !errors.Is(err, os.ErrNotExist):
		return err
	}
	return errors.Join(writeFile(filepath.Join(o.work, ignoreName), []byte("*\n")), writeFile(path, []byte(o.id+"\n")))
}

// removeRun removes what a run leaves in its work folder, and nothing else.
func removeRun(dir string) error {
	var errs []error
	for _, name := range []string{nodeData, dataName, outName, worksName, logName, pictureName, claimName, ignoreName} {
		errs = append(errs, os.RemoveAll(filepath.Join(dir, name)))
	}
	return errors.Join(errs...)
}

func openAppend(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}
