package suite

import (
	"context"
	"errors"
	"fmt"
	"time"

	"perdure/bench/cluster"
	"perdure/bench/role"
	"perdure/bench/stored"
	"perdure/bench/workload"
)

// The bounds of a measurement of stored executions.
const (
	// fillLeast is the rate at which executions are stored, at least.
	fillLeast = 500
	// calm is the share of a core that an idle node uses at most, calmTimeout bounds the wait for it.
	calm        = 0.15
	calmTimeout = 2 * time.Minute
)

// Stored measures a cell on nodes that differ in how many finished executions they store, in turns. Before each turn
// the node is killed and started again. Each cluster has one node.
func Stored(ctx context.Context, o Options, cell Cell, sizes []int64) (all []Figures, err error) {
	var stands []*stand
	defer func() {
		for _, s := range stands {
			err = errors.Join(err, s.close())
		}
	}()
	for _, size := range sizes {
		s, err := startStored(ctx, o, cell, size)
		if err != nil {
			return nil, fmt.Errorf("%d stored executions: %w", size, err)
		}
		stands = append(stands, s)
	}
	for round := range o.Rounds {
		for i := range stands {
			if round%2 == 1 {
				i = len(stands) - 1 - i
			}
			f, err := stands[i].measureStored(ctx, cell, sizes[i])
			if err != nil {
				return all, fmt.Errorf("%d stored executions: %w", sizes[i], err)
			}
			f.Round = round + 1
			if o.Progress != nil {
				o.Progress(f)
			}
			all = append(all, f)
		}
	}
	return all, nil
}

// startStored fills the directory of a node and starts it.
func startStored(ctx context.Context, o Options, cell Cell, size int64) (*stand, error) {
	o.Prepare = func(dir, node, peer string) error {
		limit := time.Minute + time.Duration(size)*time.Second/fillLeast
		ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("they are not stored after %v", limit))
		defer cancel()
		return role.Fill(ctx, o.Load, stored.Job{Dir: dir, NodeID: node, PeerAddr: peer, Partitions: max(o.Partitions, defaultPartitions),
			Prefix: "stored", To: size, Payload: cell.Payload})
	}
	return start(ctx, o, 1)
}

// startFilled starts a node whose data directory holds sleepers.
func startFilled(ctx context.Context, o Options) (*stand, error) {
	lead := o.Lead
	if lead == 0 {
		lead = workload.SleepersLead(o.Sleepers)
	}
	job := stored.Job{Partitions: max(o.Partitions, defaultPartitions), Prefix: "stored", To: o.Sleepers,
		Sleeper: workload.SleeperFunction, First: time.Now().Add(lead), Spread: o.Spread}
	o.Prepare = func(dir, node, peer string) error {
		ctx, cancel := context.WithDeadlineCause(ctx, job.First, fmt.Errorf("%d sleepers are not stored after %v", o.Sleepers, lead))
		defer cancel()
		mine := job
		mine.Dir, mine.NodeID, mine.PeerAddr = dir, node, peer
		return role.Fill(ctx, o.Load, mine)
	}
	s, err := start(ctx, o, 1)
	if err == nil {
		s.filled = &job
	}
	return s, err
}

// defaultPartitions is the node's default on up to two cores.
const defaultPartitions = 4

// measureStored restarts the node, waits until it is idle, and measures.
func (s *stand) measureStored(ctx context.Context, cell Cell, size int64) (f Figures, err error) {
	restart, err := s.restart(ctx)
	if err != nil {
		return f, err
	}
	idle, err := s.awaitCalm(ctx)
	if err != nil {
		return f, err
	}
	bytes, err := s.cluster.Stored()
	if err != nil {
		return f, err
	}
	if f, err = s.measure(ctx, cell); err != nil {
		return f, err
	}
	f.Binary = fmt.Sprintf("%d stored", size)
	f.extra("server CPU per command, us", 1000*f.ServerCPU/f.Commands)
	f.extra("restart to serving, ms", float64(restart.Milliseconds()))
	f.extra("memory of the idle server, MB", float64(idle.RSS)/1e6)
	f.extra("files, MB", float64(bytes)/1e6)
	return f, nil
}

// restart kills the node that leads most partitions, starts it again, and returns how long it takes until it serves.
func (s *stand) restart(ctx context.Context) (time.Duration, error) {
	n, err := s.cluster.KillLeader(ctx)
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := n.Restart(); err != nil {
		return 0, err
	}
	err = s.cluster.WaitReady(ctx)
	return time.Since(began), err
}

// awaitCalm waits until the servers use little of a core, and returns what they have used until then.
func (s *stand) awaitCalm(ctx context.Context) (cluster.Usage, error) {
	const every = time.Second
	last, err := s.cluster.Usage(ctx)
	for begun := time.Now(); err == nil && time.Since(begun) < calmTimeout; {
		time.Sleep(every)
		before := last
		if last, err = s.cluster.Usage(ctx); err == nil && last.CPU-before.CPU < time.Duration(calm*float64(every)) {
			break
		}
	}
	return last, err
}
