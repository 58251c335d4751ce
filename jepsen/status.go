package jepsen

import (
	"context"
	"errors"
	"fmt"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// pollInterval is the interval at which a wait reads the state.
const pollInterval = 20 * time.Millisecond

// ErrNotRecovered: the cluster did not recover within the time limit after the last fault was removed.
// Drivers return it as their error; it is a violation.
var ErrNotRecovered = errors.New("the cluster has not recovered")

// waitFor calls ok until it returns nil or ctx ends; then the error names what was waited for, and the last
// error of ok.
func waitFor(ctx context.Context, what string, ok func(context.Context) error) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		err := ok(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w: %w", what, ctx.Err(), err)
		case <-tick.C:
		}
	}
}

// WaitReady waits until the nodes, by default all, say that they are ready, or ctx ends. It gives up when
// one of them ends.
func (c *Cluster) WaitReady(ctx context.Context, nodes ...*Node) error {
	if len(nodes) == 0 {
		nodes = c.nodes
	}
	gone := errors.New("the process has ended")
	for _, n := range nodes {
		var dead error
		err := waitFor(ctx, n.Name+" to be ready", func(ctx context.Context) error {
			if !n.Running() {
				dead = fmt.Errorf("%s: %w; last log lines: %s", n.Name, gone, n.LastLogLines())
				return nil
			}
			return n.Ready(ctx)
		})
		if err = errors.Join(dead, err); err != nil {
			return fmt.Errorf("%w: %w", ErrNotRecovered, err)
		}
	}
	return nil
}

// waitLevel waits until all partitions are at the cluster's feature level, or, where no server names one, at
// the level that the nodes know: below it a signal is acknowledged when it is sent. It does not wait for a
// server that names no level.
func (c *Cluster) waitLevel(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	return waitFor(ctx, "the feature level", func(ctx context.Context) error {
		s, err := c.Status(ctx)
		if err != nil {
			return err
		}
		newest := s.GetFeatureLevel()
		for _, n := range s.GetNodes() {
			if s.GetFeatureLevel() == 0 {
				newest = max(newest, n.GetFeatureLevel())
			}
		}
		for _, p := range s.GetPartitions() {
			if p.GetFeatureLevel() < newest {
				return fmt.Errorf("partition %d is at level %d of %d", p.GetPartition(), p.GetFeatureLevel(), newest)
			}
		}
		return nil
	})
}

// Status asks the nodes in turn until one of them answers with the cluster's state, each for at most a few
// seconds.
func (c *Cluster) Status(ctx context.Context) (*perdurev1.ClusterStatus, error) {
	var errs []error
	for _, n := range c.nodes {
		if !n.Running() {
			continue
		}
		s, err := n.Status(ctx)
		if err == nil {
			return s, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", n.Name, err))
	}
	return nil, errors.Join(append(errs, errors.New("no node returns the cluster's status"))...)
}

// Status asks this node for the cluster's state.
func (n *Node) Status(ctx context.Context) (*perdurev1.ClusterStatus, error) {
	cl, err := n.c.Client(5*time.Second, n)
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return perdurev1.NewClusterClient(cl.Conn()).GetStatus(ctx, &perdurev1.GetStatusRequest{})
}

// Leader is the node that leads most partitions; of several the first.
func (c *Cluster) Leader(ctx context.Context) (*Node, error) {
	if len(c.nodes) == 1 {
		return c.nodes[0], nil
	}
	s, err := c.Status(ctx)
	if err != nil {
		return nil, err
	}
	leads := map[string]int{}
	for _, p := range s.GetPartitions() {
		leads[p.GetLeader()]++
	}
	var most *Node
	for _, n := range c.nodes {
		if leads[n.Name] > 0 && (most == nil || leads[n.Name] > leads[most.Name]) {
			most = n
		}
	}
	if most == nil {
		return nil, errors.New("a partition has no leader")
	}
	return most, nil
}

// WaitEqual waits until every replica has applied the entries that its leader had when the wait began, and
// all replicas of a partition compare equal. A replica that has halted or differs ends the wait with a
// Divergence: waiting does not repair it.
func (c *Cluster) WaitEqual(ctx context.Context) error {
	if len(c.nodes) == 1 {
		return nil
	}
	var goal map[uint32]uint64
	var broken error
	err := waitFor(ctx, "all replicas to be equal", func(ctx context.Context) error {
		s, err := c.Status(ctx)
		if err != nil {
			return err
		}
		if goal == nil {
			goal = goals(s)
		}
		if broken = diverged(s); broken == nil {
			err = behind(s, goal, len(c.nodes))
		}
		return err
	})
	if err = errors.Join(broken, err); err != nil {
		return fmt.Errorf("%w: %w", ErrNotRecovered, err)
	}
	return nil
}

// goals is the highest applied index that any replica of each partition has.
func goals(s *perdurev1.ClusterStatus) map[uint32]uint64 {
	out := map[uint32]uint64{}
	for _, p := range s.GetPartitions() {
		for _, r := range p.GetReplicas() {
			out[p.GetPartition()] = max(out[p.GetPartition()], r.GetApplied())
		}
	}
	return out
}

// Divergence says that replicas of one partition differ, or that one has halted. No fault but damage to a
// disk may cause it.
type Divergence struct {
	Partition uint32
	Node      string
	Problem   string
}

// Error names the partition, the node and the problem.
func (d *Divergence) Error() string {
	return fmt.Sprintf("partition %d, node %q: %s", d.Partition, d.Node, d.Problem)
}

// diverged finds a replica that has halted, or a partition whose replicas differ.
func diverged(s *perdurev1.ClusterStatus) error {
	for _, p := range s.GetPartitions() {
		for _, r := range p.GetReplicas() {
			if r.GetState() == "halted" {
				return &Divergence{p.GetPartition(), r.GetNodeId(), "halted: " + r.GetProblem()}
			}
		}
		if p.GetComparison() == "different" {
			return &Divergence{p.GetPartition(), "", fmt.Sprintf("the replicas differ at index %d: %v", p.GetComparedIndex(), p.GetReplicas())}
		}
	}
	return nil
}

// behind describes a replica that has not applied its goal yet, if any.
func behind(s *perdurev1.ClusterStatus, goal map[uint32]uint64, nodes int) error {
	if len(s.GetPartitions()) == 0 {
		return errors.New("the status shows no partition")
	}
	for _, p := range s.GetPartitions() {
		if p.GetLeader() == "" {
			return fmt.Errorf("partition %d has no leader", p.GetPartition())
		}
		if len(p.GetReplicas()) != nodes {
			return fmt.Errorf("partition %d has %d replicas, not %d", p.GetPartition(), len(p.GetReplicas()), nodes)
		}
		for _, r := range p.GetReplicas() {
			if s := r.GetState(); s != "leader" && s != "follower" {
				return fmt.Errorf("partition %d on %s is %s %s", p.GetPartition(), r.GetNodeId(), s, r.GetProblem())
			}
			if r.GetApplied() < goal[p.GetPartition()] {
				return fmt.Errorf("partition %d on %s has applied %d, not %d", p.GetPartition(), r.GetNodeId(), r.GetApplied(), goal[p.GetPartition()])
			}
		}
	}
	return nil
}
