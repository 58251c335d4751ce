package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"perdure/jepsen"
)

// times are the flags that say how long a fault's round is.
func times(set *flag.FlagSet, warm, hold, cool *time.Duration, w, h, c time.Duration) {
	set.DurationVar(warm, "warm", w, "how long the load runs before a fault")
	set.DurationVar(hold, "hold", h, "how long a fault lasts")
	set.DurationVar(cool, "cool", c, "how long the load continues after the last fault is healed")
}

// ofNodes leaves out the faults of workers, for a workload that has none.
func ofNodes(faults []jepsen.Fault, out io.Writer) ([]jepsen.Fault, error) {
	nodes, left := jepsen.OfNodes(faults)
	if len(nodes) == 0 {
		return nil, fmt.Errorf("there are no workers here, and --fault names only faults of workers: %s", strings.Join(left, ", "))
	}
	if len(left) > 0 {
		fmt.Fprintf(out, "left out, as there are no workers here: %s\n", strings.Join(left, ", "))
	}
	return nodes, nil
}

func failoverJob(set *flag.FlagSet, co *common, out io.Writer) job {
	o := jepsen.FailoverOptions{Out: out}
	set.IntVar(&o.Rounds, "rounds", 10, "faults, one after the other")
	set.IntVar(&o.Load.Clients, "clients", 16, "clients that write")
	set.DurationVar(&o.Load.Pause, "pause", 0, "what a client waits for between two writes")
	set.DurationVar(&o.Load.Timeout, "call-timeout", 30*time.Second, "timeout of one write, retries included")
	set.DurationVar(&o.MaxGap, "max-gap", 0, "a longer gap, while there is a majority, is a violation (default: only reported)")
	times(set, &o.Warm, &o.Hold, &o.Cool, 2*time.Second, 5*time.Second, time.Second)
	return func(ctx context.Context, c *jepsen.Cluster, faults []jepsen.Fault) (fmt.Stringer, []string, error) {
		var err error
		if o.Faults, err = ofNodes(faults, out); err != nil {
			return nil, nil, err
		}
		o.Seed = co.opts.Seed
		r, err := jepsen.Failover(ctx, c, o)
		if r == nil {
			return nil, nil, err
		}
		return r, r.Violations, err
	}
}

func registerJob(set *flag.FlagSet, co *common, out io.Writer) job {
	o := jepsen.HistoryOptions{Out: out}
	set.IntVar(&o.Histories, "histories", 10, "histories, each with one fault")
	set.IntVar(&o.Load.Clients, "clients", 9, "clients; a third of them know all nodes, the others one each")
	set.IntVar(&o.Load.OpsPerID, "ops", 18, "operations on one promise")
	set.IntVar(&o.Load.Live, "live", 6, "promises in use at a time")
	set.IntVar(&o.Load.Deadlines, "deadlines", 40, "promises with a deadline in use at a time; -1 for none")
	set.BoolVar(&o.AllowLate, "allow-late", false, "a create that is answered with a state later than its effect is counted and no violation")
	set.DurationVar(&o.Load.Pause, "pause", 2*time.Millisecond, "what a client waits for between two operations")
	set.DurationVar(&o.Load.Timeout, "call-timeout", 4*time.Second, "timeout of one operation")
	times(set, &o.Warm, &o.Hold, &o.Cool, time.Second, 3*time.Second, time.Second)
	return func(ctx context.Context, c *jepsen.Cluster, faults []jepsen.Fault) (fmt.Stringer, []string, error) {
		var err error
		if o.Faults, err = ofNodes(faults, out); err != nil {
			return nil, nil, err
		}
		o.Seed = co.opts.Seed
		r, err := jepsen.Histories(ctx, c, o)
		if r == nil {
			return nil, nil, err
		}
		return r, r.Violations, err
	}
}

func resonateJob(set *flag.FlagSet, co *common, out io.Writer) job {
	o := jepsen.ResonateHistoryOptions{Out: out}
	co.faults = jepsen.ResonateFaults
	set.IntVar(&o.Rounds, "rounds", 8, "rounds at least, each with one fault")
	set.IntVar(&o.Histories, "histories", 200, "histories at least, one for each origin; rounds follow each other until these were checked")
	set.IntVar(&o.Load.Clients, "clients", 9, "clients; a third of them use all nodes, the others one each")
	set.IntVar(&o.Load.Live, "live", 8, "origins in use at a time, of four promises each")
	set.IntVar(&o.Load.OpsPerOrigin, "ops", 40, "requests about one origin: the length of a history")
	set.IntVar(&o.Load.Concurrent, "concurrent", 4, "requests under way about one origin")
	set.IntVar(&o.Load.MaxOpen, "max-open", 4, "requests without an answer after which an origin is left")
	set.DurationVar(&o.Load.Pause, "pause", 5*time.Millisecond, "what a client waits for between two requests")
	set.DurationVar(&o.Load.Timeout, "call-timeout", 3*time.Second, "timeout of one request")
	set.DurationVar(&o.Check, "check-timeout", 10*time.Second, "when the check of one history is given up; one in a hundred may be")
	set.StringVar(&o.Tamper, "tamper", "", "change one answer of each history, which the run must report: all, "+strings.Join(jepsen.ResonateTampers(), ", "))
	times(set, &o.Warm, &o.Hold, &o.Cool, time.Second/2, 2*time.Second, time.Second/2)
	return func(ctx context.Context, c *jepsen.Cluster, faults []jepsen.Fault) (fmt.Stringer, []string, error) {
		var err error
		if o.Faults, err = ofNodes(faults, out); err != nil {
			return nil, nil, err
		}
		o.Seed = co.opts.Seed
		r, err := jepsen.ResonateHistories(ctx, c, o)
		if r == nil {
			return nil, nil, err
		}
		return r, r.Violations, err
	}
}

func executionsJob(set *flag.FlagSet, co *common, out io.Writer) job {
	o := jepsen.ExecutionOptions{Out: out}
	set.IntVar(&o.N, "n", 2000, "executions at least")
	set.IntVar(&o.Rounds, "rounds", 0, "faults, one after the other (default: each once)")
	set.IntVar(&o.Clients, "clients", 64, "clients, each with one execution at a time")
	set.IntVar(&o.Workers, "workers", 3, "workers")
	set.IntVar(&o.Journals, "journals", 500, "journals that are read through afterwards")
	set.DurationVar(&o.StepTime, "step", 2*time.Millisecond, "how long a step takes")
	set.IntVar(&o.LongEvery, "long-every", 32, "every so manieth execution has steps of a third of the lease; -1 for none")
	set.DurationVar(&o.Lease, "lease", 5*time.Second, "how long a task is held without a heartbeat")
	set.DurationVar(&o.Timeout, "call-timeout", time.Minute, "timeout of one execution")
	times(set, &o.Warm, &o.Hold, &o.Cool, 2*time.Second, 8*time.Second, 2*time.Second)
	return func(ctx context.Context, c *jepsen.Cluster, faults []jepsen.Fault) (fmt.Stringer, []string, error) {
		o.Faults, o.Seed = faults, co.opts.Seed
		r, err := jepsen.Executions(ctx, c, o)
		if r == nil {
			return nil, nil, err
		}
		return r, r.Violations, err
	}
}

func bankJob(set *flag.FlagSet, co *common, out io.Writer) job {
	o := jepsen.BankOptions{Out: out}
	co.faults = jepsen.BankFaults
	set.IntVar(&o.Accounts, "accounts", 1000, "accounts, each an entity")
	set.IntVar(&o.Transfers, "transfers", 20_000, "transfers at least")
	set.IntVar(&o.Functions, "functions", 64, "transfers at a time")
	set.IntVar(&o.Audited, "audited", 50, "accounts that an audit locks")
	set.IntVar(&o.Auditors, "auditors", 1, "audits at a time")
	set.IntVar(&o.Rounds, "rounds", 0, "faults at least; they follow each other until all transfers are made (default: each once)")
	set.IntVar(&o.Workers, "workers", 3, "workers")
	set.DurationVar(&o.Lease, "lease", 5*time.Second, "how long a task is held without a heartbeat")
	set.DurationVar(&o.Timeout, "call-timeout", 2*time.Minute, "timeout of one transfer or audit")
	times(set, &o.Warm, &o.Hold, &o.Cool, 2*time.Second, 8*time.Second, 2*time.Second)
	return func(ctx context.Context, c *jepsen.Cluster, faults []jepsen.Fault) (fmt.Stringer, []string, error) {
		o.Faults, o.Seed = faults, co.opts.Seed
		r, err := jepsen.Bank(ctx, c, o)
		if r == nil {
			return nil, nil, err
		}
		return r, r.Violations, err
	}
}

func sagaJob(set *flag.FlagSet, co *common, out io.Writer) job {
	o := jepsen.SagaOptions{Out: out}
	co.faults = jepsen.SagaFaults
	set.IntVar(&o.N, "n", 200, "sagas at least")
	set.IntVar(&o.Clients, "clients", 24, "clients, each with one saga at a time")
	set.IntVar(&o.Workers, "workers", 3, "workers")
	set.IntVar(&o.Rounds, "rounds", 0, "faults at least; they follow each other until all sagas were begun (default: each once)")
	set.BoolVar(&o.Points, "points", false, "each saga's worker kills itself at one point, and all points are covered")
	set.StringVar(&o.Bug, "bug", "", "a bug to plant in the saga: "+strings.Join(jepsen.SagaBugs, ", "))
	set.DurationVar(&o.Lease, "lease", 5*time.Second, "how long a task is held without a heartbeat")
	set.DurationVar(&o.Timeout, "call-timeout", 2*time.Minute, "timeout of one saga")
	times(set, &o.Warm, &o.Hold, &o.Cool, time.Second, 4*time.Second, time.Second)
	return func(ctx context.Context, c *jepsen.Cluster, faults []jepsen.Fault) (fmt.Stringer, []string, error) {
		o.Faults, o.Seed = faults, co.opts.Seed
		r, err := jepsen.Sagas(ctx, c, o)
		if r == nil {
			return nil, nil, err
		}
		return r, r.Violations, err
	}
}

func endsJob(set *flag.FlagSet, co *common, out io.Writer) job {
	o := jepsen.EndsOptions{Out: out}
	set.IntVar(&o.Rounds, "rounds", 1, "how often each trial is made")
	return func(ctx context.Context, c *jepsen.Cluster, _ []jepsen.Fault) (fmt.Stringer, []string, error) {
		o.Seed = co.opts.Seed
		r, err := jepsen.Ends(ctx, c, o)
		if r == nil {
			return nil, nil, err
		}
		return r, r.Violations, err
	}
}

func versionsJob(set *flag.FlagSet, co *common, out io.Writer) job {
	o := jepsen.VersionOptions{Out: out}
	co.faults = jepsen.VersionFaults
	set.IntVar(&o.N, "n", 1000, "executions that begin on the first version, and on the second at least as many")
	set.IntVar(&o.Clients, "clients", 32, "executions that are woken at a time")
	set.IntVar(&o.Workers, "workers", 2, "workers of each version")
	set.IntVar(&o.Rounds, "rounds", 0, "faults at least; they follow each other until all executions were woken (default: each once)")
	set.DurationVar(&o.Lease, "lease", 5*time.Second, "how long a task is held without a heartbeat")
	set.DurationVar(&o.Timeout, "call-timeout", 2*time.Minute, "timeout of one execution")
	times(set, &o.Warm, &o.Hold, &o.Cool, time.Second, 4*time.Second, time.Second)
	return func(ctx context.Context, c *jepsen.Cluster, faults []jepsen.Fault) (fmt.Stringer, []string, error) {
		o.Faults, o.Seed = faults, co.opts.Seed
		r, err := jepsen.Versions(ctx, c, o)
		if r == nil {
			return nil, nil, err
		}
		return r, r.Violations, err
	}
}

func entitySignalsJob(set *flag.FlagSet, co *common, out io.Writer) job {
	o := jepsen.EntitySignalOptions{Out: out}
	co.faults = jepsen.EntitySignalFaults
	set.IntVar(&o.N, "n", 20_000, "signals")
	set.IntVar(&o.Functions, "functions", 8, "executions that send")
	set.IntVar(&o.Clients, "clients", 2, "clients that send")
	set.IntVar(&o.Entities, "entities", 10, "entities that receive")
	set.IntVar(&o.ClientShare, "client-share", 2, "signals of a hundred that clients send")
	set.IntVar(&o.Every, "every", 50, "every so manieth signal to an entity is scheduled")
	set.IntVar(&o.Chunk, "chunk", 2000, "signals of an incarnation of an execution")
	set.IntVar(&o.Workers, "workers", 3, "workers")
	set.IntVar(&o.Rounds, "rounds", 0, "faults at least; they follow each other until all signals have run (default: each once)")
	set.DurationVar(&o.Lease, "lease", 5*time.Second, "how long a task is held without a heartbeat")
	set.DurationVar(&o.Bound, "bound", 20*time.Minute, "when all signals have to have run")
	set.Int64Var(&o.MaxMemory, "max-memory", 800_000_000, "bytes that a node may take")
	times(set, &o.Warm, &o.Hold, &o.Cool, 2*time.Second, 4*time.Second, 2*time.Second)
	return func(ctx context.Context, c *jepsen.Cluster, faults []jepsen.Fault) (fmt.Stringer, []string, error) {
		o.Faults, o.Seed = faults, co.opts.Seed
		r, err := jepsen.EntitySignals(ctx, c, o)
		if r == nil {
			return nil, nil, err
		}
		return r, r.Violations, err
	}
}

func recoverJob(set *flag.FlagSet, co *common, out io.Writer) job {
	o := jepsen.RecoverOptions{Out: out}
	var rc jepsen.RecoverCase
	set.Func("case", "kill-all, wipe, lag or flip", func(name string) (err error) {
		rc, err = jepsen.FindRecoverCase(name)
		co.opts.Args = rc.Args
		return err
	})
	set.IntVar(&o.Writes, "writes", 4000, "writes before the loss, and, where a node is away, as many meanwhile")
	set.IntVar(&o.Load.Clients, "clients", 16, "clients that write")
	set.IntVar(&o.Rounds, "rounds", 1, "with flip: how often a replica of the same cluster is damaged and rebuilt")
	return func(ctx context.Context, c *jepsen.Cluster, _ []jepsen.Fault) (fmt.Stringer, []string, error) {
		if rc.Name == "" {
			return nil, nil, fmt.Errorf("--case is missing")
		}
		o.Seed = co.opts.Seed
		r, err := jepsen.Recover(ctx, c, rc, o)
		if r == nil {
			return nil, nil, err
		}
		return r, r.Violations, err
	}
}

func lateJob(set *flag.FlagSet, co *common, out io.Writer) job {
	o := jepsen.LateOptions{Out: out}
	co.netns = "on"
	set.IntVar(&o.Rounds, "rounds", 10, "rounds, one after the other")
	set.IntVar(&o.Promises, "promises", 24, "promises that are settled and read in each round")
	set.DurationVar(&o.From, "from", 1200*time.Millisecond, "how long the leader gets no answer, at least")
	set.DurationVar(&o.To, "to", 2800*time.Millisecond, "and at most")
	return func(ctx context.Context, c *jepsen.Cluster, _ []jepsen.Fault) (fmt.Stringer, []string, error) {
		o.Seed = co.opts.Seed
		r, err := jepsen.Late(ctx, c, o)
		if r == nil {
			return nil, nil, err
		}
		return r, r.Violations, err
	}
}

func payloadJob(set *flag.FlagSet, co *common, out io.Writer) job {
	o := jepsen.PayloadOptions{Out: out}
	set.IntVar(&o.Signals, "signals", 120, "signals to one execution")
	set.IntVar(&o.Bytes, "bytes", 3_900_000, "bytes of each")
	set.IntVar(&o.Senders, "senders", 12, "executions of other partitions that send them")
	set.IntVar(&o.Clients, "clients", 8, "clients that run small executions")
	set.DurationVar(&o.Bound, "bound", 5*time.Minute, "when all signals have to have arrived")
	set.DurationVar(&o.Calm, "calm", 10*time.Second, "how long small executions are measured before")
	set.Int64Var(&o.MaxMemory, "max-memory", 600_000_000, "bytes that a node may take")
	set.Float64Var(&o.MaxSlowdown, "max-slowdown", 5, "how many times as long small executions may take (p99)")
	return func(ctx context.Context, c *jepsen.Cluster, _ []jepsen.Fault) (fmt.Stringer, []string, error) {
		o.Seed = co.opts.Seed
		r, err := jepsen.Payload(ctx, c, o)
		if r == nil {
			return nil, nil, err
		}
		return r, r.Violations, err
	}
}

func journalsJob(set *flag.FlagSet, co *common, out io.Writer) job {
	o := jepsen.WorkedOptions{Out: out}
	names := set.String("journal", strings.Join(jepsen.WorkedJournals, ","), "which journals")
	kills := set.String("kill", "none,worker,leader", "what is killed after each entry: none, worker, leader")
	set.IntVar(&o.Every, "every", 1, "make every so manieth journal")
	return func(ctx context.Context, c *jepsen.Cluster, _ []jepsen.Fault) (fmt.Stringer, []string, error) {
		o.Seed, o.Journals, o.Kills = co.opts.Seed, strings.Split(*names, ","), strings.Split(*kills, ",")
		r, err := jepsen.Worked(ctx, c, o)
		if r == nil {
			return nil, nil, err
		}
		return r, r.Violations, err
	}
}

func scaleJob(set *flag.FlagSet, co *common, out io.Writer) job {
	o := jepsen.ScaleOptions{Out: out}
	set.StringVar(&o.Case, "case", "", "signals, steps, children, timers, joinset or eternal")
	set.IntVar(&o.N, "n", 0, "how many (default 50,000 signals, 20,000 steps, 5,000 children, 100,000 timers, 10,000 members of a join set, 100,000 turns of loops)")
	set.BoolVar(&o.AtOnce, "at-once", false, "the members of the join set end at one instant")
	set.DurationVar(&o.Spread, "spread", 0, "with --at-once: the time over which they end, in another order than they began")
	set.IntVar(&o.Clients, "clients", 32, "clients that send signals or set timers")
	set.IntVar(&o.Kills, "kills", 0, "of steps: kills of the worker and the leader, in turn")
	set.DurationVar(&o.Pause, "pause", 0, "what a client waits for between two signals")
	set.IntVar(&o.Batch, "batch", 0, "children that are started before the parent waits for them (default: all)")
	set.DurationVar(&o.Lead, "lead", 0, "time for setting all timers (default 15 s and 1 s for each 1,000)")
	set.DurationVar(&o.Bound, "bound", 5*time.Minute, "when the execution has to have ended, or all timers to have fired")
	set.Int64Var(&o.MaxMemory, "max-memory", 600_000_000, "bytes that a node may take")
	return func(ctx context.Context, c *jepsen.Cluster, _ []jepsen.Fault) (fmt.Stringer, []string, error) {
		o.Seed = co.opts.Seed
		r, err := jepsen.Scale(ctx, c, o)
		if r == nil {
			return nil, nil, err
		}
		return r, r.Violations, err
	}
}

func callersJob(set *flag.FlagSet, co *common, out io.Writer) job {
	o := jepsen.CallersOptions{Out: out}
	co.opts.Nodes = 1
	set.IntVar(&o.Unfinished, "unfinished", 1000, "requests that are begun and not finished, without a token")
	set.Int64Var(&o.Size, "size", 20<<20, "bytes of each")
	set.IntVar(&o.Idle, "idle", 10_000, "connections that send nothing, are idle or slow")
	set.Int64Var(&o.MaxBytes, "max-bytes", 0, "what the node may hold while requests are unfinished (default 150 MB with --token, else 220 MB)")
	set.DurationVar(&o.Hold, "hold", 10*time.Second, "how long each of the two lasts")
	set.BoolFunc("token", "the node asks for tokens", func(string) error {
		dir, err := os.MkdirTemp("", "perdure-jepsen-tokens-")
		if err != nil {
			return err
		}
		args, err := jepsen.CallersArgs(dir)
		co.opts.Args, o.Token, co.noVerify = append(co.opts.Args, args...), jepsen.CallersToken, true
		return err
	})
	return func(ctx context.Context, c *jepsen.Cluster, _ []jepsen.Fault) (fmt.Stringer, []string, error) {
		r, err := jepsen.Callers(ctx, c, o)
		return r, r.Violations, err
	}
}
