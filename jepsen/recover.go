package jepsen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// RecoverCase is a kind of loss and its recovery.
type RecoverCase struct {
	Name, About string
	// Args are the flags of the nodes with which the case happens within seconds.
	Args []string
	run  func(*recoverRun) error
}

// smallLogs make markers often and keep short logs, so that states are flushed to disk and a node that lags
// cannot be helped with log entries.
var smallLogs = []string{"--snapshot-threshold", "500", "--snapshot-interval", "1s", "--trailing-logs", "100"}

// RecoverCases is the table. A new case is a row.
var RecoverCases = []RecoverCase{
	{Name: "kill-all", About: "kill -9 of all nodes under load; all start again", run: (*recoverRun).killAll},
	{Name: "wipe", About: "a node loses its disk, comes back empty, and must then make up the majority", Args: smallLogs, run: (*recoverRun).wipe},
	{Name: "lag", About: "a node misses so many writes that its log cannot be continued", Args: smallLogs, run: (*recoverRun).lag},
	{Name: "flip", About: "a byte of one node's state is flipped while it is down", Args: smallLogs, run: (*recoverRun).flip},
}

// FindRecoverCase finds a row.
func FindRecoverCase(name string) (RecoverCase, error) {
	var known []string
	for _, c := range RecoverCases {
		if c.Name == name {
			return c, nil
		}
		known = append(known, c.Name)
	}
	return RecoverCase{}, fmt.Errorf("there is no case %q; there are %s", name, strings.Join(known, ", "))
}

// RecoverOptions say how to recover. The zero value is good.
type RecoverOptions struct {
	// Writes are made before the loss, and with lag and wipe as many again during it; default 4000.
	Writes int
	// Rounds is how often flip damages and rebuilds a replica of the same cluster; default 1. With more than one, what
	// was written is read in the rebuilt replica after the last.
	Rounds int
	Load   CommitOptions
	Seed   uint64
	Out    io.Writer
}

// RecoverReport is the outcome of a case.
type RecoverReport struct {
	Case string
	// Times are the measured times, in order.
	Times []Measured
	// Notes are further observations.
	Notes      []string
	Verdict    CommitVerdict
	Violations []string
}

// Measured is a name and a duration.
type Measured struct {
	What string
	Took time.Duration
}

// recoverRun is one case under way.
type recoverRun struct {
	ctx    context.Context
	c      *Cluster
	o      RecoverOptions
	rng    *rand.Rand
	report *RecoverReport
	writes []Write
	loads  int
}

// Recover runs one case on a cluster that was started with the case's Args. It reads back every write
// afterwards: in the cluster, and in the replicas of the damaged node. An error means that the run could not
// be made.
func Recover(ctx context.Context, c *Cluster, rc RecoverCase, o RecoverOptions) (*RecoverReport, error) {
	o.Writes = fallback(o.Writes, 4000)
	o.Load.Prefix = fallback(o.Load.Prefix, fmt.Sprintf("rec-%x", o.Seed))
	if o.Out == nil {
		o.Out = io.Discard
	}
	r := &recoverRun{ctx: ctx, c: c, o: o, rng: rand.New(rand.NewPCG(o.Seed, 4)), report: &RecoverReport{Case: rc.Name}}
	if err := rc.run(r); err != nil {
		return r.report, fmt.Errorf("case %s: %w", rc.Name, err)
	}
	if err := r.readWrites("all writes", nil); err != nil {
		return r.report, err
	}
	r.report.Verdict = CheckCommits(r.writes)
	r.report.Violations = append(r.report.Violations, r.report.Verdict.Violations()...)
	r.report.Violations = append(r.report.Violations, Aftermath(ctx, c)...)
	return r.report, nil
}

// load writes, at least n times, while something is done, and returns when both are over.
func (r *recoverRun) load(n int, meanwhile func() error) error {
	o := r.o.Load
	o.Prefix = fmt.Sprintf("%s-%d", o.Prefix, r.loads)
	r.loads++
	run, err := StartCommits(r.ctx, r.c, o)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.ctx, 5*time.Minute)
	defer cancel()
	err = waitFor(ctx, fmt.Sprintf("%d writes", n), func(context.Context) error {
		if done := run.Acked(); done < n {
			return fmt.Errorf("%d so far", done)
		}
		return nil
	})
	if err == nil && meanwhile != nil {
		err = meanwhile()
	}
	writes, refusals := run.Stop()
	r.writes = append(r.writes, writes...)
	for _, text := range refusals {
		r.report.Violations = append(r.report.Violations, "refused: "+text)
	}
	return err
}

// timed runs do and records how long it took.
func (r *recoverRun) timed(what string, do func() error) error {
	began := time.Now()
	err := do()
	r.report.Times = append(r.report.Times, Measured{what, time.Since(began)})
	fmt.Fprintf(r.o.Out, "%s: %s\n", what, short3(time.Since(began)))
	return err
}

func (r *recoverRun) note(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	r.report.Notes = append(r.report.Notes, text)
	fmt.Fprintln(r.o.Out, text)
}

// readWrites reads all writes so far. Given a node, it reads them in that node's replicas and checks the
// answers at once.
func (r *recoverRun) readWrites(what string, in *Node) error {
	ctx, cancel := context.WithTimeout(r.ctx, 5*time.Minute)
	defer cancel()
	if in == nil {
		return ReadWrites(ctx, r.c, r.writes)
	}
	writes := slices.Clone(r.writes)
	if err := ReadWrites(ctx, r.c, writes, in); err != nil {
		return fmt.Errorf("reading %s in %s: %w", what, in.Name, err)
	}
	v := CheckCommits(writes)
	for _, text := range v.Violations() {
		r.report.Violations = append(r.report.Violations, fmt.Sprintf("in %s's replicas: %s", in.Name, text))
	}
	r.note("%d writes read in the replicas of %s: %d lost, %d doubled", len(writes), in.Name, len(v.Lost), len(v.Doubled))
	return nil
}

// ready starts nodes and measures until all are ready, and until all replicas are equal.
func (r *recoverRun) ready(what string, nodes ...*Node) error {
	ctx, cancel := context.WithTimeout(r.ctx, healTimeout)
	defer cancel()
	began := time.Now()
	for _, n := range nodes {
		if err := n.Start(); err != nil {
			return err
		}
	}
	if err := r.c.WaitReady(ctx); err != nil {
		return err
	}
	r.report.Times = append(r.report.Times, Measured{what + ": start to ready", time.Since(began)})
	if err := r.c.WaitEqual(ctx); err != nil {
		return err
	}
	r.report.Times = append(r.report.Times, Measured{what + ": start to all replicas caught up", time.Since(began)})
	return nil
}

func (r *recoverRun) killAll() error {
	return r.load(r.o.Writes, func() error {
		all, err := FindFaults("kill-all")
		if err != nil {
			return err
		}
		w, err := r.c.Inject(r.ctx, all[0], r.rng)
		if err != nil {
			return err
		}
		return r.ready("after kill -9 of all", w.Nodes...)
	})
}

// victim is a node that is not the leader of most, or the only one.
func (r *recoverRun) victim() (*Node, error) {
	if len(r.c.nodes) == 1 {
		return r.c.nodes[0], nil
	}
	nodes, err := r.c.choose(r.ctx, Follower, r.rng)
	if err != nil {
		return nil, err
	}
	return nodes[0], nil
}

func (r *recoverRun) wipe() error {
	if len(r.c.nodes) < 3 {
		return errors.New("a cluster that loses a disk needs three nodes")
	}
	if err := r.load(r.o.Writes, nil); err != nil {
		return err
	}
	n, err := r.victim()
	if err != nil {
		return err
	}
	if err := errors.Join(n.Kill(), n.Wipe()); err != nil {
		return err
	}
	r.note("%s was killed and lost its disk", n.Name)
	if err := r.load(r.o.Writes, func() error { return r.ready("the empty node", n) }); err != nil {
		return err
	}
	if err := r.c.waitCalm(r.ctx); err != nil {
		return err
	}
	if err := r.readWrites("what it had lost", n); err != nil {
		return err
	}
	// The node that came back must now be one of a majority of two.
	for _, other := range r.c.nodes {
		if other == n {
			continue
		}
		if err := other.Kill(); err != nil {
			return err
		}
		r.note("%s was killed: %s is needed now", other.Name, n.Name)
		if err := r.load(r.o.Writes/10, nil); err != nil {
			return err
		}
		return r.ready("the other node", other)
	}
	return nil
}

// waitCalm waits until all replicas are equal, for at most healTimeout.
func (c *Cluster) waitCalm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	return c.WaitEqual(ctx)
}

// waitCaughtUp is waitCalm for all partitions but one. Until then a read from a node itself may lack the
// newest writes.
func (c *Cluster) waitCaughtUp(ctx context.Context, but uint32) error {
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	var goal map[uint32]uint64
	return waitFor(ctx, "the other partitions to be equal", func(ctx context.Context) error {
		s, err := c.Status(ctx)
		if err != nil {
			return err
		}
		s.Partitions = slices.DeleteFunc(s.Partitions, func(p *perdurev1.ClusterPartition) bool { return p.GetPartition() == but })
		if goal == nil {
			goal = goals(s)
		}
		return behind(s, goal, len(c.nodes))
	})
}

func (r *recoverRun) lag() error {
	if len(r.c.nodes) < 3 {
		return errors.New("a cluster of which one node lags needs three")
	}
	if err := r.load(r.o.Writes/10, nil); err != nil {
		return err
	}
	n, err := r.victim()
	if err != nil {
		return err
	}
	if err := n.Kill(); err != nil {
		return err
	}
	if err := r.load(r.o.Writes, nil); err != nil {
		return err
	}
	r.note("%s has missed %d writes", n.Name, len(r.writes)-r.o.Writes/10)
	if err := r.load(r.o.Writes/10, func() error { return r.ready("the node that lagged", n) }); err != nil {
		return err
	}
	if err := r.c.waitCalm(r.ctx); err != nil {
		return err
	}
	return r.readWrites("what it had missed", n)
}

// flip damages one replica, Rounds times. The cluster must continue with the others and never answer wrongly.
// The node must either not need the byte or refuse its replica by name, and it must be whole again after a
// rebuild.
func (r *recoverRun) flip() error {
	if err := r.load(r.o.Writes, nil); err != nil {
		return err
	}
	rounds := max(r.o.Rounds, 1)
	for i := range rounds {
		last := i == rounds-1
		if err := r.flipOnce(last, rounds == 1); err != nil {
			return fmt.Errorf("round %d: %w", i+1, err)
		}
		if !last {
			fmt.Fprintf(r.o.Out, "round %d of %d: rebuilt\n", i+1, rounds)
		}
	}
	return nil
}

// flipOnce damages one replica and rebuilds it. With readRebuilt it then reads every write in the replica, with
// readDamaged also while it is damaged.
func (r *recoverRun) flipOnce(readRebuilt, readDamaged bool) error {
	const partition = 1
	n, err := r.victim()
	if err != nil {
		return err
	}
	// A table file comes with the first flush: at a marker, or when a node stops in order.
	if err := n.Stop(); err != nil {
		return err
	}
	where, err := n.Flip(partition, r.rng)
	if err != nil {
		return err
	}
	r.note("%s: flipped a bit of %s", n.Name, where)
	if err := n.Start(); err != nil {
		return err
	}
	// More writes, and reads of everything in this node, so that the byte is needed if it ever is.
	if err := r.load(r.o.Writes/10, nil); err != nil {
		return err
	}
	if len(r.c.nodes) == 1 {
		return nil
	}
	if err := r.calmOrHalted(n, partition); err != nil {
		r.note("not whole: %v", err) // it may have noticed by now
		if err := r.c.waitCaughtUp(r.ctx, partition); err != nil {
			return err
		}
	}
	if readDamaged {
		r.readFromDamaged(n)
	}
	state, err := r.replicaState(n, partition)
	if err != nil {
		return err
	}
	r.note("the damaged replica is %s", state)
	if err := r.rebuild(n, partition); err != nil {
		return err
	}
	if err := r.c.waitCalm(r.ctx); err != nil {
		return err
	}
	if err := r.forgetQuarantined(n, partition); err != nil {
		return err
	}
	if !readRebuilt {
		return nil
	}
	return r.readWrites("everything", n)
}

// errReplicaHalted ends a wait for a replica that will not come.
var errReplicaHalted = errors.New("the replica has halted")

// calmOrHalted waits until all replicas are equal, or until that of one node has halted, which is an error.
func (r *recoverRun) calmOrHalted(n *Node, partition uint32) error {
	ctx, cancel := context.WithTimeout(r.ctx, healTimeout)
	defer cancel()
	var halted bool
	err := waitFor(ctx, "all replicas to be equal, or one to halt", func(ctx context.Context) error {
		state, err := r.replicaState(n, partition)
		if err != nil {
			return err
		}
		if halted = strings.HasPrefix(state, "halted"); halted {
			return nil
		}
		look, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		return r.c.WaitEqual(look)
	})
	if err == nil && halted {
		err = errReplicaHalted
	}
	return err
}

// forgetQuarantined deletes the files that the rebuilds of a replica have quarantined.
func (r *recoverRun) forgetQuarantined(n *Node, partition uint32) error {
	cl, err := r.c.Client(time.Minute, n)
	if err != nil {
		return err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(r.ctx, healTimeout)
	defer cancel()
	_, err = perdurev1.NewClusterClient(cl.Conn()).ForgetQuarantined(ctx, &perdurev1.ForgetQuarantinedRequest{Partition: partition, NodeId: n.Name})
	return err
}

// readFromDamaged reads every write in a damaged node. The node may refuse to answer, but not answer wrongly.
func (r *recoverRun) readFromDamaged(n *Node) {
	ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
	defer cancel()
	writes := slices.Clone(r.writes)
	if err := ReadWrites(ctx, r.c, writes, n); err != nil {
		r.note("%s refuses some reads: %v", n.Name, err)
	}
	v := CheckCommits(writes)
	v.Unchecked = 0 // refused
	for _, text := range v.Violations() {
		r.report.Violations = append(r.report.Violations, fmt.Sprintf("the damaged %s answers wrongly: %s", n.Name, text))
	}
}

// replicaState is one replica's state as the cluster reports it.
func (r *recoverRun) replicaState(n *Node, partition uint32) (string, error) {
	if !n.Running() {
		return "gone with its process, whose last log lines are: " + n.LastLogLines(), nil
	}
	s, err := r.c.Status(r.ctx)
	if err != nil {
		return "", err
	}
	for _, p := range s.GetPartitions() {
		for _, x := range p.GetReplicas() {
			if p.GetPartition() == partition && x.GetNodeId() == n.Name {
				return strings.TrimSpace(x.GetState() + " " + x.GetProblem()), nil
			}
		}
	}
	return "not in the status", nil
}

// rebuild has the cluster rebuild the replica.
func (r *recoverRun) rebuild(n *Node, partition uint32) error {
	return r.timed("rebuilding the replica", func() error {
		cl, err := r.c.Client(time.Minute, n)
		if err != nil {
			return err
		}
		defer cl.Close()
		ctx, cancel := context.WithTimeout(r.ctx, healTimeout)
		defer cancel()
		_, err = perdurev1.NewClusterClient(cl.Conn()).RebuildReplica(ctx,
			&perdurev1.RebuildReplicaRequest{Partition: partition, NodeId: n.Name})
		return err
	})
}

// String is the summary.
func (r *RecoverReport) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "case %s\n", r.Case)
	for _, t := range r.Times {
		fmt.Fprintf(&b, "  %-44s %s\n", t.What, short3(t.Took))
	}
	v := r.Verdict
	fmt.Fprintf(&b, "  acknowledged %d, unknown %d, given up %d, LOST %d, DOUBLED %d, applied but denied %d\n",
		v.Acked, v.Open, v.NotDone, len(v.Lost), len(v.Doubled), len(v.Ghosts))
	return b.String()
}
