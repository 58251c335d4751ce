package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"perdure/jepsen"
)

func upgradeJob(set *flag.FlagSet, co *common, out io.Writer) job {
	o := jepsen.UpgradeOptions{Out: out}
	co.previous = true
	set.StringVar(&o.Newer, "newer", "", "the newer server (default: built from the sources); --server is the older one, by default built with the tag perdure_previous")
	set.IntVar(&o.Executions, "executions", 16, "executions under way at a time")
	set.IntVar(&o.Graphs, "graphs", 6, "graphs under way at a time")
	set.IntVar(&o.MaxNodes, "max-nodes", 30, "nodes of one graph at most")
	set.IntVar(&o.Each, "each", 50, "executions that have to end between two restarts")
	set.DurationVar(&o.Timeout, "call-timeout", time.Minute, "timeout of one execution")
	return func(ctx context.Context, c *jepsen.Cluster, _ []jepsen.Fault) (fmt.Stringer, []string, error) {
		o.Seed = co.opts.Seed
		if o.Newer == "" {
			dir, err := os.MkdirTemp("", "perdure-jepsen-newer-")
			if err != nil {
				return nil, nil, err
			}
			defer func() { _ = os.RemoveAll(dir) }() // a binary in a temporary folder
			if o.Newer, err = jepsen.Build(ctx, dir, jepsen.BuildOptions{Race: co.race}); err != nil {
				return nil, nil, err
			}
		}
		r, err := jepsen.Upgrade(ctx, c, o)
		if r == nil {
			return nil, nil, err
		}
		return r, r.Violations, err
	}
}
