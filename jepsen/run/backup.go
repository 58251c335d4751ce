package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"time"

	"perdure/jepsen"
)

func backupJob(set *flag.FlagSet, co *common, out io.Writer) job {
	o := jepsen.BackupOptions{Out: out}
	co.faults = jepsen.BackupFaults
	set.IntVar(&o.Rounds, "rounds", 1, "backups, each restored into a cluster of its own")
	set.BoolVar(&o.KillCreate, "kill-create", false, "each create is killed at a random moment, and run again")
	set.StringVar(&o.Store, "store", "", "URL of the backups, with the environment of perdure backup (default: a folder)")
	set.StringVar(&o.Rate, "rate", "2MiB", "bytes per second that create copies")
	set.IntVar(&o.Clients, "clients", 48, "clients, each with one execution at a time")
	set.IntVar(&o.Functions, "functions", 8, "transfers at a time")
	set.IntVar(&o.Accounts, "accounts", 200, "accounts, each an entity")
	set.IntVar(&o.Graphs, "graphs", 3, "graphs at a time")
	set.IntVar(&o.MaxNodes, "max-nodes", 20, "nodes of one graph at most")
	set.IntVar(&o.Workers, "workers", 3, "workers of each cluster")
	set.DurationVar(&o.StepTime, "step", 2*time.Millisecond, "how long a step takes")
	set.DurationVar(&o.Lease, "lease", 5*time.Second, "how long a task is held without a heartbeat")
	set.DurationVar(&o.Timeout, "call-timeout", time.Minute, "timeout of one execution")
	set.DurationVar(&o.Warm, "warm", 4*time.Second, "load before a create, which begins at most as long after it")
	set.DurationVar(&o.Hold, "hold", 3*time.Second, "how long a fault lasts")
	set.DurationVar(&o.Bound, "bound", 90*time.Second, "when all that was restored has to have ended")
	return func(ctx context.Context, c *jepsen.Cluster, faults []jepsen.Fault) (fmt.Stringer, []string, error) {
		o.Faults, o.Seed = faults, co.opts.Seed
		r, err := jepsen.Backups(ctx, c, o)
		if r == nil {
			return nil, nil, err
		}
		return r, r.Violations, err
	}
}
