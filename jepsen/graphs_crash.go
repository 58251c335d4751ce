package jepsen

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
	"perdure/id"
	"perdure/reduction"
)

// GraphCrashReport shows the crash example of staged reduction on real processes: a diamond a → (b, c) → d
// whose leader is killed in the middle, and then all nodes, once node by node and once in waves.
type GraphCrashReport struct {
	Stories    []GraphStory
	Violations []string
}

// GraphStory is one run as a sequence of states.
type GraphStory struct {
	ID, Title string
	Stages    []GraphStage
}

// GraphStage is a state of the run, as a client reads it.
type GraphStage struct {
	When   string
	Status *perdurev1.GraphStatus
	// Normal is the same in the normalised view, in which nothing runs; Frontier is what may start in it.
	Normal   reduction.State
	Frontier []reduction.NodeID
}

// diamond has the gates of a diamond's functions: the test decides the results of b and c, and when they
// come.
type diamond struct {
	gates map[string]*gate
}

// gate blocks its callers until it is open, and gives each the same answer. A function whose worker has lost
// its lease without notice may wait here at the same time as the one that counts.
type gate struct {
	open chan struct{}
	err  error // set before open is closed
}

// gateFunction is the function of the diamond's nodes.
const gateFunction = "jepsen-gate"

// GraphCrash runs both stories and checks each state. An error means that a story could not be run.
func GraphCrash(ctx context.Context, c *Cluster, prefix string, out io.Writer) (*GraphCrashReport, error) {
	d := &diamond{gates: map[string]*gate{}}
	report := &GraphCrashReport{}
	type plan struct {
		id, title string
		wave      bool
	}
	plans := []plan{
		{prefix + "-node", "node by node: kill -9 of the leader when c's result is recorded and b runs", false},
		{prefix + "-wave", "in waves: kill -9 of the leader when b's failure is recorded and not observed, while c runs", true},
	}
	for _, p := range plans {
		for _, node := range []string{"a", "b", "c", "d"} {
			d.gates[p.id+" "+node] = &gate{open: make(chan struct{})}
		}
	}
	stop, err := d.work(ctx, c)
	if err != nil {
		return nil, err
	}
	defer stop()
	for _, p := range plans {
		story := &crashStory{c: c, d: d, out: out, GraphStory: GraphStory{ID: p.id, Title: p.title}}
		if story.cl, err = c.Client(30 * time.Second); err != nil {
			return report, err
		}
		err := story.run(ctx, p.wave)
		report.Stories = append(report.Stories, story.GraphStory)
		report.Violations = append(report.Violations, story.wrong...)
		if err != nil {
			err = fmt.Errorf("%s does not continue as it should: %w", p.id, err)
			if ctx.Err() == nil {
				report.Violations, err = append(report.Violations, err.Error()), nil
			}
		}
		if err := errors.Join(err, story.cl.Close()); err != nil {
			return report, err
		}
	}
	report.Violations = append(report.Violations, Aftermath(ctx, c)...)
	return report, nil
}

// work starts a worker whose functions wait at their gates.
func (d *diamond) work(ctx context.Context, c *Cluster) (stop func(), err error) {
	cl, err := c.Client(30 * time.Second)
	if err != nil {
		return nil, err
	}
	w := durable.NewWorker(cl, durable.WorkerOptions{Name: "gates", StopGrace: time.Second, Logger: c.log})
	w.Register(durable.NewFunction(gateFunction, func(ctx durable.Context, in struct {
		Node string `json:"node"`
	}) (string, error) {
		gate := d.gates[id.Origin(durable.Info(ctx).ID)+" "+in.Node]
		select {
		case <-gate.open:
			return in.Node + " is done", gate.err
		case <-ctx.Done():
			return "", ctx.Err()
		}
	}))
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	stop = func() {
		cancel()
		if err := <-ended; err != nil {
			fmt.Fprintln(os.Stderr, "the worker ended:", err)
		}
		_ = cl.Close()
	}
	select {
	case <-w.Ready():
		return stop, nil
	case err := <-ended:
		ended <- err
		stop()
		return nil, fmt.Errorf("the worker ended: %w", err)
	case <-time.After(healTimeout):
		stop()
		return nil, fmt.Errorf("no node has welcomed the worker within %v", healTimeout)
	}
}

// crashStory is a story under way.
type crashStory struct {
	GraphStory
	c       *Cluster
	d       *diamond
	cl      *client.Client
	out     io.Writer
	samples *GraphSamples
	wrong   []string
}

// crashed is why b fails.
var crashed = &durable.Error{Type: "b_failed", Message: "b has failed", NonRetryable: true}

func (s *crashStory) open(node string, err error) {
	gate := s.d.gates[s.ID+" "+node]
	gate.err = err
	close(gate.open)
}

func (s *crashStory) run(ctx context.Context, wave bool) error {
	fmt.Fprintln(s.out, s.Title)
	var opts []durable.GraphOption
	if wave {
		opts = append(opts, durable.Wave())
	}
	g := durable.NewGraph("diamond", opts...)
	node := func(name string) *durable.Node {
		return g.FunctionName(name, gateFunction, durable.Input("node", durable.Literal(name)))
	}
	a, b, c, last := node("a"), node("b"), node("c"), node("d")
	g.Add(durable.Path(a, durable.Overlay(b, c), last))
	built, err := g.Build()
	if err != nil {
		return err
	}
	script := &GraphScript{Graph: built, Plans: map[string]NodePlan{"b": {Node: "b", End: EndRefuse}}}
	if s.samples, err = NewGraphSamples(s.ID, script); err != nil {
		return err
	}
	run, err := g.Submit(ctx, s.cl, s.ID, nil)
	if err != nil {
		return err
	}
	const running, completed, failed, pending = "running", "completed", "failed", "pending"
	if err := s.expect(ctx, "submitted", running, pending, pending, pending); err != nil {
		return err
	}
	s.open("a", nil)
	if err := s.expect(ctx, "a has completed", completed, running, running, pending); err != nil {
		return err
	}
	if !wave {
		s.open("c", nil)
		if err := s.killed(ctx, "c has completed, b runs", completed, running, completed, pending); err != nil {
			return err
		}
		s.open("b", crashed)
	} else {
		s.open("b", crashed)
		if err := s.killed(ctx, "b's failure is recorded, c runs", completed, failed+", not observed", running, pending); err != nil {
			return err
		}
		s.open("c", nil)
	}
	if err := run.Wait(ctx); err == nil {
		s.wrong = append(s.wrong, s.ID+" has completed, and b has failed")
	}
	return s.expect(ctx, "the end", completed, failed, completed, failed+" by propagation")
}

// killed waits for a state, kills the leader of the run's partition, and reads the state that the next
// leader has recovered, before the killed one is started again. Then it kills all nodes at once, so that the
// state is read from their disks.
func (s *crashStory) killed(ctx context.Context, when string, states ...string) error {
	if err := s.expect(ctx, when, states...); err != nil {
		return err
	}
	before := s.Stages[len(s.Stages)-1].Status
	leader, partition, err := s.leader(ctx)
	if err != nil {
		return err
	}
	at := time.Now()
	if err := leader.Kill(); err != nil {
		return err
	}
	// Only the state that was read before the kill may be found: any difference was lost or invented.
	status, err := s.cl.GraphStatus(ctx, s.ID)
	if err != nil {
		return err
	}
	took := time.Since(at)
	next, _, err := s.leader(ctx)
	if err != nil {
		return err
	}
	s.add(fmt.Sprintf("after kill -9 of %s, recovered by %s in %s", leader.Name, next.Name, short3(took)), status)
	if next == leader {
		s.wrong = append(s.wrong, fmt.Sprintf("%s: %s leads partition %d, and was killed", s.ID, leader.Name, partition))
	}
	fmt.Fprintf(s.out, "  kill -9 of %s, which leads partition %d; %s answers after %s\n", leader.Name, partition, next.Name, short3(took))
	if err := leader.Start(); err != nil {
		return err
	}
	ready, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	if err := s.c.WaitReady(ready); err != nil {
		return err
	}
	all, err := FindFaults("kill-all")
	if err != nil {
		return err
	}
	if err := pause(ctx, saveTime); err != nil {
		return err
	}
	w, err := s.c.Inject(ctx, all[0], nil)
	if err != nil {
		return err
	}
	if err := w.Heal(ready, s.c); err != nil {
		return err
	}
	last, err := s.cl.GraphStatus(ctx, s.ID)
	if err != nil {
		return err
	}
	s.add("after kill -9 of all, read from disk", last)
	for _, found := range []*perdurev1.GraphStatus{status, last} {
		if diff := differ(before, found); diff != "" {
			s.wrong = append(s.wrong, s.ID+": the recovered state differs: "+diff)
		}
	}
	return nil
}

// saveTime is the time in which nodes with the arguments SavedOften store the present state.
const saveTime = time.Second

// leader is the node that leads the partition of the run, by what the cluster says.
func (s *crashStory) leader(ctx context.Context) (*Node, uint32, error) {
	e, err := s.cl.Describe(ctx, s.ID)
	if err != nil {
		return nil, 0, err
	}
	var found *Node
	look, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	err = waitFor(look, "the partition's leader", func(ctx context.Context) error {
		status, err := s.c.Status(ctx)
		if err != nil {
			return err
		}
		for _, p := range status.GetPartitions() {
			for _, n := range s.c.nodes {
				if p.GetPartition() == e.GetPartition() && n.Name == p.GetLeader() && n.Running() {
					found = n
					return nil
				}
			}
		}
		return fmt.Errorf("partition %d has no leader", e.GetPartition())
	})
	return found, e.GetPartition(), err
}

// expect waits for a state of a, b, c and d, and adds it to the story.
func (s *crashStory) expect(ctx context.Context, when string, states ...string) error {
	ctx, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	var status *perdurev1.GraphStatus
	err := waitFor(ctx, "the state: "+when, func(ctx context.Context) (err error) {
		if status, err = s.cl.GraphStatus(ctx, s.ID); err != nil {
			return err
		}
		if got := words(status); !slices.Equal(got, states) {
			return fmt.Errorf("%s: the nodes are %q, not %q", s.ID, got, states)
		}
		return nil
	})
	if status != nil {
		s.add(when, status)
	}
	return err
}

// add checks a state and adds it to the story.
func (s *crashStory) add(when string, status *perdurev1.GraphStatus) {
	wrong, _ := s.samples.Sample(func() (*perdurev1.GraphStatus, error) { return status, nil })
	_, normal := states(status)
	s.Stages = append(s.Stages, GraphStage{When: when, Status: status, Normal: normal, Frontier: reduction.Ready(s.samples.rel, normal)})
	for _, text := range wrong {
		s.wrong = append(s.wrong, when+": "+text)
	}
}

// words are the states of the nodes, as the tables show them.
func words(s *perdurev1.GraphStatus) []string {
	var out []string
	for _, n := range s.GetNodes() {
		word := nodeWord(n.GetStatus())
		if n.GetUnobserved() {
			word += ", not observed"
		}
		if n.GetByPropagation() {
			word += " by propagation"
		}
		out = append(out, word)
	}
	return out
}

// String draws the tables.
func (r *GraphCrashReport) String() string {
	var b strings.Builder
	for _, s := range r.Stories {
		fmt.Fprintf(&b, "\n%s\n%s\n", s.ID, s.Title)
		rows := [][]string{{"", "a", "b", "c", "d", "run", "normalised: frontier"}}
		for _, stage := range s.Stages {
			var frontier []string
			for _, n := range stage.Frontier {
				frontier = append(frontier, string(n))
			}
			rows = append(rows, slices.Concat([]string{stage.When}, words(stage.Status),
				[]string{stage.Status.GetPhase(), normalised(stage) + ": {" + strings.Join(frontier, ", ") + "}"}))
		}
		width := make([]int, len(rows[0]))
		for _, row := range rows {
			for i, cell := range row {
				width[i] = max(width[i], len(cell))
			}
		}
		for _, row := range rows {
			line := ""
			for i, cell := range row {
				line += fmt.Sprintf("| %-*s ", width[i], cell)
			}
			fmt.Fprintln(&b, line+"|")
		}
	}
	fmt.Fprintln(&b)
	return b.String()
}

// normalised are the nodes of a stage in the normalised view, each by its first letter: P, C, F.
func normalised(stage GraphStage) string {
	var out []string
	for _, n := range stage.Status.GetNodes() {
		out = append(out, stage.Normal.Statuses[reduction.NodeID(n.GetId())].Kind.String()[:1])
	}
	return strings.Join(out, "")
}
