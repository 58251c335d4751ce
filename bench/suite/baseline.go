package suite

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"perdure/bench/baseline"
	"perdure/bench/cluster"
	"perdure/bench/load"
	"perdure/bench/role"
	"perdure/bench/workload"
)

// The machines of a baseline: one that counts, and one that writes what a node writes.
const (
	Counting = "raft that counts"
	Writing  = "raft that writes"
)

// baselines measures both limits of a cell. They do as much as the cluster did in f: an operation proposes as many
// commands of as many bytes, one after the other, and writes as many keys and bytes.
func baselines(ctx context.Context, o Options, f Figures) ([]Figures, error) {
	if f.Commands < 0.5 || f.LogBytes == 0 {
		return nil, nil // reads
	}
	cfg := baseline.Config{
		Commands:     int(math.Round(f.Commands)),
		CommandBytes: int(math.Round(f.LogBytes / f.Commands)),
		Load:         load.Options{Concurrency: f.Concurrency, Warmup: o.Warmup, Duration: o.Duration, Count: o.Count},
	}
	var out []Figures
	for _, name := range []string{Counting, Writing} {
		if name == Writing {
			cfg.Keys = f.StateKeys / f.Commands / float64(f.Nodes)
			cfg.KeyBytes = int(math.Round(f.StateBytes / f.StateKeys))
		}
		g, err := measureBaseline(ctx, o, f, cfg)
		if err != nil {
			return out, fmt.Errorf("%s: %w", name, err)
		}
		g.Binary, g.Round = name, f.Round
		out = append(out, g)
	}
	return out, nil
}

// measureBaseline starts servers, lets the leader run the load, and ends them.
func measureBaseline(ctx context.Context, o Options, like Figures, cfg baseline.Config) (f Figures, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*time.Minute+o.Warmup+o.Duration, errors.New("the baseline has not ended"))
	defer cancel()
	dir, err := os.MkdirTemp(o.Parent, "perdure-bench-raft-")
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	ports, err := cluster.Reserve(like.Nodes)
	if err != nil {
		return f, err
	}
	defer func() { err = errors.Join(err, ports.Close()) }()
	cfg.Addrs = ports.Addrs
	var servers []*role.Process
	defer func() {
		for _, s := range servers {
			err = errors.Join(err, s.Close())
		}
	}()
	for i := range cfg.Addrs {
		cfg.Index, cfg.Dir = i, filepath.Join(dir, strconv.Itoa(i))
		if err := os.Mkdir(cfg.Dir, 0o755); err != nil {
			return f, err
		}
		s, err := role.StartRaft(o.Load, cfg.Dir, cfg)
		if err != nil {
			return f, err
		}
		servers = append(servers, s)
	}
	var leader *role.Process
	for _, s := range servers {
		leads, err := s.Leads(ctx)
		if err != nil {
			return f, err
		}
		if leads {
			leader = s
		}
	}
	if leader == nil {
		return f, errors.New("the leader has changed before the load began")
	}
	if err := leader.Go(); err != nil {
		return f, err
	}
	readings := map[workload.Mark]reading{}
	r, err := leader.Result(ctx, func(m workload.Mark) (err error) {
		var at reading
		for _, s := range servers {
			used, err := s.Usage()
			if err != nil {
				return err
			}
			at.servers = at.servers.Add(used)
		}
		at.machine, err = cluster.ReadMachine()
		readings[m] = at
		return err
	})
	if err != nil {
		return f, err
	}
	w, err := workload.Find(like.Workload)
	if err != nil {
		return f, err
	}
	// An operation is as many commands as one unit of the workload.
	job := workload.Job{Load: cfg.Load}
	f = figures(Cell{Workload: w[0], Nodes: like.Nodes, Concurrency: like.Concurrency, Payload: like.Payload}, job, r, readings)
	f.Commands = like.Commands
	return f, nil
}
