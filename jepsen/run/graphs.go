package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"perdure/jepsen"
)

func graphsJob(set *flag.FlagSet, co *common, out io.Writer) job {
	o := jepsen.GraphOptions{Out: out}
	set.IntVar(&o.N, "n", 500, "runs")
	set.IntVar(&o.MaxNodes, "max-nodes", 200, "nodes of one graph at most")
	set.IntVar(&o.Active, "active", 24, "runs under way at a time")
	set.IntVar(&o.Workers, "workers", 3, "worker processes")
	set.IntVar(&o.Samplers, "samplers", 3, "clients that read statuses all the time")
	set.DurationVar(&o.Lease, "lease", 2*time.Second, "how long a task is held without a heartbeat")
	set.DurationVar(&o.Bound, "bound", time.Minute, "when all runs have to have ended, after the last fault")
	times(set, &o.Warm, &o.Hold, &o.Cool, time.Second, time.Second, time.Second)
	co.opts.Args = jepsen.SavedOften
	return func(ctx context.Context, c *jepsen.Cluster, faults []jepsen.Fault) (fmt.Stringer, []string, error) {
		o.Faults, o.Seed = faults, co.opts.Seed
		r, err := jepsen.Graphs(ctx, c, o)
		if r == nil {
			return nil, nil, err
		}
		return r, r.Violations, err
	}
}

func graphCrashJob(_ *flag.FlagSet, co *common, out io.Writer) job {
	co.opts.Args = append(jepsen.SavedOften, "--snapshot-threshold=1") // the runs are short
	return func(ctx context.Context, c *jepsen.Cluster, _ []jepsen.Fault) (fmt.Stringer, []string, error) {
		r, err := jepsen.GraphCrash(ctx, c, fmt.Sprintf("diamond-%d", co.opts.Seed), out)
		if r == nil {
			return nil, nil, err
		}
		return r, r.Violations, err
	}
}

func graphSpeedJob(set *flag.FlagSet, _ *common, out io.Writer) job {
	o := jepsen.GraphSpeedOptions{Nodes: []int{1000, 10_000}, Out: out}
	set.Func("nodes-in-graph", "nodes of each graph, one after the other (default 1000,10000)", func(list string) error {
		o.Nodes = nil
		for _, word := range strings.Split(list, ",") {
			n, err := strconv.Atoi(strings.TrimSpace(word))
			if err != nil || n < 1 {
				return errors.New("positive numbers, with commas between")
			}
			o.Nodes = append(o.Nodes, n)
		}
		return nil
	})
	set.IntVar(&o.Width, "width", 100, "nodes of a layer")
	set.IntVar(&o.Workers, "workers", 2, "worker processes")
	return func(ctx context.Context, c *jepsen.Cluster, _ []jepsen.Fault) (fmt.Stringer, []string, error) {
		r, err := jepsen.GraphSpeed(ctx, c, o)
		if r == nil {
			return nil, nil, err
		}
		return r, r.Violations, err
	}
}
