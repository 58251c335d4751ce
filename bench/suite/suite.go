// Package suite runs workloads on clusters and turns what was read into figures.
//
// It owns the order of the measurements. A measurement is a cell: a workload at a number of nodes, a number
// of operations under way and a size of payload. All cells of one cluster run one after the other, round by
// round, so that a change of the machine's speed meets all of them. A figure is of what happened inside the
// window of its cell.
//
// Servers, worker and client are processes of their own, and their CPU time comes from /proc: the suite
// measures on Linux only. Everything it starts ends with the call that started it.
package suite

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"time"

	"perdure/bench/cluster"
	"perdure/bench/load"
	"perdure/bench/role"
	"perdure/bench/stored"
	"perdure/bench/workload"
)

// Cell is one measurement.
type Cell struct {
	Workload    *workload.Workload
	Nodes       int
	Concurrency int
	Payload     int
}

// String names the cell.
func (c Cell) String() string {
	return fmt.Sprintf("%s, %d nodes, %d under way, %d bytes", c.Workload.Name, c.Nodes, c.Concurrency, c.Payload)
}

// Options say how to measure.
type Options struct {
	// Node is the server's binary. Load is the binary of the worker and the client, which is this program's.
	Node, Load string
	// SDK is the folder of sdk.Install, for workloads that need it.
	SDK string
	// Env is added to the environment of nodes.
	Env []string
	// Warmup and Duration are those of a cell. Count, if not 0, replaces both by a number of operations.
	Warmup, Duration time.Duration
	Count            int64
	// Rate, if not 0, makes the loops open: operations that begin per second.
	Rate float64
	// Sleepers is how many sleep at one time, Spread the time over which they are due. Lead is that of workload.Job.
	Sleepers     int64
	Spread, Lead time.Duration
	// Lease is the workers'; their default if 0.
	Lease time.Duration
	// Rounds is how often each cell is measured.
	Rounds int
	// Partitions, Args and Parent are those of cluster.Options.
	Partitions int
	Args       []string
	Parent     string
	// Prepare is that of cluster.Options.
	Prepare func(dir, nodeID, peerAddr string) error
	// Filled stores the sleepers in the node's data directory instead of starting them. The cluster has one node.
	Filled bool
	// Restart kills a node while all sleepers sleep, and times its restart.
	Restart bool
	// Baseline measures the limits of each cell after it: see Counting and Writing.
	Baseline bool
	// Progress is told each cell's figures. Nil for nobody.
	Progress func(Figures)
}

// The most bytes that the operations of one cell may have under way, and that their journals may hold.
const (
	maxUnderWay  = 64 << 20
	maxJournaled = 512 << 20
)

// TooLarge reports whether a cell would measure the bounds of memory instead of the work.
func (c Cell) TooLarge() bool {
	bytes := c.Payload * c.Concurrency
	return bytes > maxUnderWay || bytes*max(c.Workload.Units, 1) > maxJournaled
}

// Run measures cells, cluster by cluster, and returns the figures of every round.
func Run(ctx context.Context, o Options, cells []Cell) ([]Figures, error) {
	var out []Figures
	for len(cells) > 0 {
		nodes := cells[0].Nodes
		var mine, others []Cell
		for _, c := range cells {
			if c.Nodes == nodes {
				mine = append(mine, c)
			} else {
				others = append(others, c)
			}
		}
		figures, err := runCluster(ctx, o, nodes, mine)
		out = append(out, figures...)
		if err != nil {
			return out, err
		}
		cells = others
	}
	return out, nil
}

// runCluster measures cells that share a cluster.
func runCluster(ctx context.Context, o Options, nodes int, cells []Cell) (out []Figures, err error) {
	s, err := startFor(ctx, o, nodes, cells)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for round := range o.Rounds {
		for _, cell := range cells {
			f, err := s.measure(ctx, cell)
			if err != nil {
				return out, fmt.Errorf("%v: %w", cell, err)
			}
			f.Round = round + 1
			all := []Figures{f}
			if o.Baseline && !cell.Workload.Killed && !cell.Workload.Counted {
				limits, err := baselines(ctx, o, f)
				if err != nil {
					return out, fmt.Errorf("%v: %w", cell, err)
				}
				all = append(all, limits...)
			}
			for _, f := range all {
				if o.Progress != nil {
					o.Progress(f)
				}
			}
			out = append(out, all...)
		}
	}
	return out, nil
}

// stand is a cluster to be measured, with a folder for the logs of workers and clients.
type stand struct {
	o       Options
	dir     string
	cluster *cluster.Cluster
	// during, if set, runs from the beginning of a window until stop at its end.
	during func() (stop func() error)
	// filled are the sleepers that the data directory held at the start; nil if it held none.
	filled *stored.Job
}

// startFor starts a cluster for cells.
func startFor(ctx context.Context, o Options, nodes int, cells []Cell) (*stand, error) {
	if !o.Filled {
		return start(ctx, o, nodes)
	}
	if nodes != 1 || len(cells) != 1 || !cells[0].Workload.Counted || o.Rounds != 1 {
		return nil, errors.New("stored sleepers are measured on one node, once, and with no other workload")
	}
	return startFilled(ctx, o)
}

func start(ctx context.Context, o Options, nodes int) (*stand, error) {
	dir, err := os.MkdirTemp(o.Parent, "perdure-bench-roles-")
	if err != nil {
		return nil, err
	}
	c, err := cluster.Start(ctx, cluster.Options{Nodes: nodes, Binary: o.Node, Env: o.Env, Partitions: o.Partitions, Parent: o.Parent, Args: o.Args, Prepare: o.Prepare})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return &stand{o: o, dir: dir, cluster: c}, nil
}

func (s *stand) close() error { return errors.Join(s.cluster.Close(), os.RemoveAll(s.dir)) }

// job is what the worker and the client of a cell get.
func (s *stand) job(cell Cell) (workload.Job, error) {
	var tag [4]byte
	if _, err := rand.Read(tag[:]); err != nil {
		return workload.Job{}, err
	}
	l := load.Options{Concurrency: cell.Concurrency, Rate: s.o.Rate, Warmup: s.o.Warmup, Duration: s.o.Duration, Count: s.o.Count}
	if cell.Workload.Counted {
		l = load.Options{Concurrency: cell.Concurrency, Count: s.o.Sleepers}
	}
	job := workload.Job{Workload: cell.Workload.Name, Addrs: s.cluster.Addrs(), URLs: s.cluster.URLs(), SDK: s.o.SDK, Prefix: "bench-" + hex.EncodeToString(tag[:]),
		Payload: cell.Payload, Load: l, Spread: s.o.Spread, Lead: s.o.Lead, Lease: s.o.Lease}
	if s.filled != nil {
		job.Prefix, job.First = s.filled.Prefix, s.filled.First
	}
	return job, nil
}

// reading is what all processes had used at one instant.
type reading struct {
	servers, worker, client cluster.Usage
	machine                 cluster.Machine
}

// measure measures one cell.
func (s *stand) measure(ctx context.Context, cell Cell) (f Figures, err error) {
	job, err := s.job(cell)
	if err != nil {
		return f, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, s.limit(job), fmt.Errorf("the cell has not ended after %v", s.limit(job)))
	defer cancel()
	worker, err := role.StartWorker(ctx, s.o.Load, s.dir, job)
	if err != nil {
		return f, fmt.Errorf("worker: %w", err)
	}
	defer func() { err = errors.Join(err, worker.Close()) }()
	client, err := role.StartClient(s.o.Load, s.dir, job)
	if err != nil {
		return f, fmt.Errorf("client: %w", err)
	}
	defer func() { err = errors.Join(err, client.Close()) }()

	var outage *outage
	var stop func() error
	asleep := map[string]float64{}
	readings := map[workload.Mark]reading{}
	result, err := client.Result(ctx, func(m workload.Mark) (err error) {
		switch {
		case m == workload.Begin && s.during != nil:
			stop = s.during()
		case m == workload.End && stop != nil:
			err, stop = stop(), nil
			if err != nil {
				return err
			}
		}
		if m == workload.End && outage != nil {
			if err := outage.wait(); err != nil {
				return err
			}
		}
		if readings[m], err = s.read(ctx, worker, client); err != nil {
			return err
		}
		if m == workload.Begin && cell.Workload.Killed {
			outage = s.kill(ctx, job.Load.Duration)
		}
		if m == workload.Asleep {
			return s.whileAsleep(ctx, asleep, job.Load.Count)
		}
		return nil
	})
	if outage != nil {
		err = errors.Join(err, outage.wait())
	}
	if stop != nil {
		err = errors.Join(err, stop())
	}
	if err != nil {
		return f, err
	}
	f = figures(cell, job, result, readings)
	for name, v := range asleep { //lint:sorted into a map
		f.extra(name, v)
	}
	if outage != nil {
		f.OutageMs = outage.longest(result.Timeline)
	}
	return f, nil
}

// whileAsleep reads what n sleepers take on the disk, and times a restart if that is asked for.
func (s *stand) whileAsleep(ctx context.Context, figures map[string]float64, n int64) error {
	if s.o.Restart {
		took, err := s.restart(ctx)
		if err != nil {
			return err
		}
		figures["restart to serving, ms"] = float64(took.Milliseconds())
	}
	bytes, err := s.cluster.Stored()
	figures["files per sleeper, bytes"] = float64(bytes) / float64(n)
	return err
}

// limit bounds a cell: what it takes when all goes well, and minutes more.
func (s *stand) limit(job workload.Job) time.Duration {
	return 5*time.Minute + job.Load.Warmup + job.Load.Duration + job.Lead + job.Spread + time.Duration(job.Load.Count)*10*time.Millisecond
}

func (s *stand) read(ctx context.Context, worker, client *role.Process) (r reading, err error) {
	if r.worker, err = worker.Usage(); err != nil {
		return r, err
	}
	if r.client, err = client.Usage(); err != nil {
		return r, err
	}
	if r.machine, err = cluster.ReadMachine(); err != nil {
		return r, err
	}
	r.servers, err = s.cluster.Usage(ctx)
	return r, err
}
