// Command run breaks a cluster of real processes and reports the outage and the violations.
//
// It owns the command line of package jepsen: it starts a cluster, runs one kind of test on it, and prints a
// report. It stops by itself and removes what it made, also when it is interrupted. It exits with 1 when
// anything was lost, doubled, answered wrongly or not decided, and with 2 after wrong usage or when the run
// could not be made. With --keep the data and the logs stay.
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
	"slices"
	"strings"
	"syscall"
	"time"

	"perdure/internal/overlay"
	"perdure/jepsen"
)

const usage = `usage: go run ./jepsen/run COMMAND [flags]

  failover     --rounds 10 --fault kill         what a fault costs a stream of small writes
  register     --histories 10 --fault kill,cut  histories of write-once registers, judged by a checker
  resonate     --rounds 8 --histories 200       histories of clients of the Resonate protocol, judged by its rules
  executions   --n 2000 --fault kill,kill-worker three-step executions, all read back afterwards
  bank         --accounts 1000 --transfers 20000  transfers in critical sections, under faults of all kinds throughout
  backup       --rounds 3 --kill-create         backups under load and kills, each restored into twice the partitions
  saga         --n 500                          sagas that complete, fail or are cancelled: undone once, in reverse order
  ends         --rounds 1                       cancels without a worker, or with one that hangs; restarts under paused leaders
  versions     --n 1000                         two versions of a function side by side, workers and nodes killed
  entity-signals --n 20000                      signals from functions and clients to entities, under restarts
  graphs       --n 500 --fault kill-leader,kill-worker  drawn graphs, held against the pure reduction
  graph-crash                                   a diamond whose leader is killed in the middle, state by state
  graph-speed  --nodes-in-graph 10000 --width 100  nodes completed per second, in tenths of a large run
  recover      --case kill-all|wipe|lag|flip    something is lost; what it takes to have it back
  upgrade      --newer BINARY --server BINARY   the previous version to this one and back, node by node, under load
  late         --rounds 10                      answers that come late must not confirm a read
  payload      --signals 120 --bytes 3900000    large signals to one execution: memory, delivery, others' latency
  journals     --kill none,worker,leader  the worked journals of the specification, entry by entry
  scale        --case signals|steps|children|timers|joinset|eternal  tens of thousands of one thing: rates, memory, nothing lost
  callers      --unfinished 1000 --idle 10000   callers that hold requests and connections; --token asks for tokens
  faults                                        lists the faults
  build        --out FILE                       builds a server whose clock and disk can be disturbed
  sweep                                         removes networks that a killed run has left

Flags of all: --nodes, --partitions, --netns auto|on|off, --seed, --binary, --race, --dir, --keep, --json, -v, --arg.
Exit codes: 0 all is well, 1 a promise was broken, 2 the run could not be made.
`

// Exit codes.
const exitOK, exitViolation, exitNoRun = 0, 1, 2

func main() {
	if code, is := jepsen.BeWorker(); is {
		os.Exit(code)
	}
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// common are the flags of all commands.
type common struct {
	opts    jepsen.Options
	args    listFlag
	netns   string
	faults  string
	timeout time.Duration
	race    bool
	// previous builds the server as the previous version.
	previous bool
	json     bool
	// noVerify leaves out the verification of the data after the run.
	noVerify bool
	verbose  bool
}

type listFlag []string

func (l *listFlag) String() string     { return strings.Join(*l, " ") }
func (l *listFlag) Set(s string) error { *l = append(*l, s); return nil }

// job is one command: it gets the cluster and returns a report and its violations.
type job func(ctx context.Context, c *jepsen.Cluster, faults []jepsen.Fault) (fmt.Stringer, []string, error)

func run(args []string, stdout, stderr io.Writer) int {
	if len(args) == 0 {
		fmt.Fprint(stderr, usage)
		return exitNoRun
	}
	fail := func(err error) int {
		fmt.Fprintf(stderr, "jepsen: %v\n", err)
		return exitNoRun
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	set := flag.NewFlagSet(args[0], flag.ContinueOnError)
	set.SetOutput(stderr)
	var co common
	co.register(set)
	var do job
	switch args[0] {
	case "failover":
		do = failoverJob(set, &co, stdout)
	case "register":
		do = registerJob(set, &co, stdout)
	case "resonate":
		do = resonateJob(set, &co, stdout)
	case "executions":
		do = executionsJob(set, &co, stdout)
	case "bank":
		do = bankJob(set, &co, stdout)
	case "backup":
		do = backupJob(set, &co, stdout)
	case "saga":
		do = sagaJob(set, &co, stdout)
	case "ends":
		do = endsJob(set, &co, stdout)
	case "versions":
		do = versionsJob(set, &co, stdout)
	case "entity-signals":
		do = entitySignalsJob(set, &co, stdout)
	case "graphs":
		do = graphsJob(set, &co, stdout)
	case "graph-crash":
		do = graphCrashJob(set, &co, stdout)
	case "graph-speed":
		do = graphSpeedJob(set, &co, stdout)
	case "upgrade":
		do = upgradeJob(set, &co, stdout)
	case "late":
		do = lateJob(set, &co, stdout)
	case "recover":
		do = recoverJob(set, &co, stdout)
	case "payload":
		do = payloadJob(set, &co, stdout)
	case "journals":
		do = journalsJob(set, &co, stdout)
	case "scale":
		do = scaleJob(set, &co, stdout)
	case "callers":
		do = callersJob(set, &co, stdout)
	case "faults":
		for _, f := range jepsen.Faults {
			fmt.Fprintf(stdout, "%-14s %s\n", f.Name, f.About)
		}
		return exitOK
	case "build":
		return build(ctx, args[1:], stdout, stderr)
	case "sweep":
		if err := jepsen.SweepNetns(ctx); err != nil {
			return fail(err)
		}
		return exitOK
	default:
		fmt.Fprint(stderr, usage)
		return exitNoRun
	}
	if err := set.Parse(args[1:]); err != nil {
		return exitNoRun
	}
	if set.NArg() > 0 {
		return fail(fmt.Errorf("%q is no flag", set.Arg(0)))
	}
	faults, err := jepsen.FindFaults(co.faults)
	if err != nil {
		return fail(err)
	}
	fmt.Fprintf(stdout, "reproduce: go run ./jepsen/run %s --seed %d\n", strings.Join(withoutSeed(args), " "), co.opts.Seed)
	ctx, cancel := context.WithTimeout(ctx, co.timeout)
	defer cancel()
	report, violations, err := co.onCluster(ctx, faults, do, stdout, stderr)
	return co.finish(report, violations, err, stdout, stderr)
}

// finish prints the report and returns the exit code. Violations that were found before an error count.
func (co *common) finish(report fmt.Stringer, violations []string, err error, stdout, stderr io.Writer) int {
	if report != nil && co.json {
		if data, err := json.MarshalIndent(report, "", "  "); err == nil {
			fmt.Fprintf(stdout, "%s\n", data)
		}
	} else if report != nil {
		fmt.Fprint(stdout, report)
	}
	for _, v := range violations {
		fmt.Fprintf(stdout, "VIOLATION %s\n", v)
	}
	switch {
	case err != nil:
		fmt.Fprintf(stderr, "jepsen: %v\n", err)
		if len(violations) > 0 {
			return exitViolation
		}
		return exitNoRun
	case len(violations) > 0:
		fmt.Fprintf(stdout, "%d violations\n", len(violations))
		return exitViolation
	}
	fmt.Fprintln(stdout, "no violation")
	return exitOK
}

func (co *common) register(set *flag.FlagSet) {
	set.IntVar(&co.opts.Nodes, "nodes", 3, "nodes of the cluster")
	set.IntVar(&co.opts.Partitions, "partitions", 4, "partitions of the cluster")
	set.StringVar(&co.netns, "netns", "auto", "each node in a network namespace: on, off, or auto (when a fault needs it)")
	set.Uint64Var(&co.opts.Seed, "seed", uint64(time.Now().UnixNano())%1_000_000, "decides who is hit and what is asked")
	set.StringVar(&co.opts.Binary, "server", "", "the server (default: built from the sources; for some faults by the command build)")
	set.StringVar(&co.opts.Binary, "binary", "", "the same as --server")
	set.StringVar(&co.opts.CLI, "cli", "", "the command line that verifies data (default: built from the sources)")
	set.BoolVar(&co.noVerify, "no-verify", false, "do not verify the data after the run")
	set.BoolVar(&co.opts.NoInvariants, "no-invariants", false, "start the nodes without --check-invariants")
	set.BoolVar(&co.race, "race", false, "build the server with the race detector")
	set.StringVar(&co.opts.Dir, "dir", "", "where data and logs go (default: a temporary folder)")
	set.BoolVar(&co.opts.Keep, "keep", false, "keep data and logs")
	set.DurationVar(&co.timeout, "timeout", time.Hour, "when the run is given up")
	set.BoolVar(&co.json, "json", false, "print the report as JSON")
	set.BoolVar(&co.verbose, "v", false, "log what the harness does on stderr")
	set.StringVar(&co.opts.DiskReserve, "disk-reserve", "16MiB", "every node's --disk-reserve; none for a server that knows none")
	set.Var(&co.args, "arg", "a further argument for every node, --arg=--log-level=debug (may be repeated)")
	set.StringVar(&co.faults, "fault", "kill-leader", "faults, taken in turn: see the command faults")
}

// onCluster runs a job on a cluster of its own.
func (co *common) onCluster(ctx context.Context, faults []jepsen.Fault, do job, stdout, stderr io.Writer) (
	report fmt.Stringer, violations []string, err error) {
	switch co.netns {
	case "auto":
		co.opts.Need(faults)
	case "on", "off":
		co.opts.Need(faults)
		co.opts.Netns = co.netns == "on"
	default:
		return nil, nil, fmt.Errorf("--netns is on, off or auto, not %q", co.netns)
	}
	if co.verbose {
		co.opts.Logger = slog.New(slog.NewTextHandler(stderr, nil))
	}
	co.opts.Args = append(co.opts.Args, co.args...)
	if co.opts.Binary == "" {
		dir, err := os.MkdirTemp("", "perdure-jepsen-build-")
		if err != nil {
			return nil, nil, err
		}
		defer func() { _ = os.RemoveAll(dir) }() // a binary in a temporary folder
		if co.opts.Binary, err = jepsen.Build(ctx, dir, co.buildOptions()); err != nil {
			return nil, nil, err
		}
	}
	c, err := jepsen.Start(ctx, co.opts)
	if err != nil {
		return nil, nil, err
	}
	defer func() {
		if co.opts.Keep {
			fmt.Fprintf(stdout, "data and logs: %s\n", c.Dir())
		}
		err = errors.Join(err, c.Close())
	}()
	ready, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	began := time.Now()
	if err := c.WaitReady(ready); err != nil {
		return nil, nil, err
	}
	fmt.Fprintf(stdout, "%d nodes, ready after %v\n", co.opts.Nodes, time.Since(began).Round(time.Millisecond))
	report, violations, err = do(ctx, c, faults)
	if err == nil && !co.noVerify {
		var wrong []string
		wrong, err = c.Verify(ctx)
		violations = append(violations, wrong...)
		for _, text := range jepsen.Evidence(c) { // of the stop, too
			if !slices.Contains(violations, text) {
				violations = append(violations, text)
			}
		}
	}
	if err != nil {
		// The run failed. Violations until then still count.
		if errors.Is(err, jepsen.ErrNotRecovered) {
			violations = append(violations, err.Error())
		}
		violations = append(violations, jepsen.Evidence(c)...)
	}
	return report, violations, err
}

// buildOptions say how the server is to be built.
func (co *common) buildOptions() jepsen.BuildOptions {
	o := jepsen.BuildOptions{Race: co.race, Previous: co.previous}
	if co.opts.Patched {
		o.Patches = overlay.Faults()
	}
	return o
}

// build builds a server that faults of clocks and disks can disturb, for --server.
func build(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	set := flag.NewFlagSet("build", flag.ContinueOnError)
	set.SetOutput(stderr)
	path := set.String("out", "", "the file to write")
	if err := set.Parse(args); err != nil || *path == "" {
		fmt.Fprintln(stderr, "jepsen: build takes --out FILE")
		return exitNoRun
	}
	dir, err := os.MkdirTemp(filepath.Dir(*path), "perdure-jepsen-build-")
	if err == nil {
		var built string
		if built, err = jepsen.Build(ctx, dir, jepsen.BuildOptions{Patches: overlay.Faults()}); err == nil {
			err = os.Rename(built, *path)
		}
		err = errors.Join(err, os.RemoveAll(dir))
	}
	if err != nil {
		fmt.Fprintf(stderr, "jepsen: %v\n", err)
		return exitNoRun
	}
	fmt.Fprintln(stdout, *path)
	return exitOK
}

// withoutSeed is the command line without its seed.
func withoutSeed(args []string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		name, _, joined := strings.Cut(strings.TrimLeft(args[i], "-"), "=")
		if strings.HasPrefix(args[i], "-") && name == "seed" {
			if !joined {
				i++
			}
			continue
		}
		out = append(out, args[i])
	}
	return out
}
