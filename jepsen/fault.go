package jepsen

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// Target says whom a fault hits.
type Target string

// The targets.
const (
	Nobody   Target = "nobody"
	Leader   Target = "leader"   // the node that leads most partitions
	Follower Target = "follower" // one of the others
	Anyone   Target = "anyone"
	Everyone Target = "everyone"
	// LeaderAnd is the leader and one other.
	LeaderAnd Target = "leader and another"
	// AWorker is one of the harness's worker processes, and no node.
	AWorker Target = "a worker"
)

// Action is one thing done to a node.
type Action string

// The actions.
const (
	Kill    Action = "kill"    // SIGKILL
	Stop    Action = "stop"    // SIGTERM, and wait
	Launch  Action = "launch"  // start the process
	Pause   Action = "pause"   // SIGSTOP
	Resume  Action = "resume"  // SIGCONT
	Cut     Action = "cut"     // pull the cable
	Join    Action = "join"    // put it back
	Part    Action = "part"    // keep the nodes that are hit from each other, both ways
	Isolate Action = "isolate" // keep the node from all other nodes, both ways; clients still reach it
	Mute    Action = "mute"    // lose what the node sends to other nodes
	Unite   Action = "unite"   // end part, isolate and mute
	Wipe    Action = "wipe"    // remove the data directory
)

// Fault is a row of the table of faults.
type Fault struct {
	Name, About string
	Target      Target
	// Break is done to each node that is hit, action by action; Mend mends it.
	Break, Mend []Action
	// Quorum says that a majority goes on: whatever lasts longer than a failover is the cluster's fault.
	Quorum bool
	// Netns says that it takes network namespaces.
	Netns bool
}

// Faults is the table. A new fault is a row.
var Faults = []Fault{
	{Name: "none", About: "nothing happens: the figure to compare with", Target: Nobody, Quorum: true},
	{Name: "kill-leader", About: "kill -9 of the node that leads most", Target: Leader,
		Break: []Action{Kill}, Mend: []Action{Launch}, Quorum: true},
	{Name: "kill-follower", About: "kill -9 of another node", Target: Follower,
		Break: []Action{Kill}, Mend: []Action{Launch}, Quorum: true},
	{Name: "kill-all", About: "kill -9 of all nodes at once", Target: Everyone, Break: []Action{Kill}, Mend: []Action{Launch}},
	{Name: "stop-leader", About: "an orderly stop of the node that leads most", Target: Leader,
		Break: []Action{Stop}, Mend: []Action{Launch}, Quorum: true},
	{Name: "pause-leader", About: "the process of the node that leads most stands still", Target: Leader,
		Break: []Action{Pause}, Mend: []Action{Resume}, Quorum: true},
	{Name: "pause-all", About: "all processes stand still", Target: Everyone, Break: []Action{Pause}, Mend: []Action{Resume}},
	{Name: "cut-leader", About: "the host of the node that leads most vanishes from the network", Target: Leader,
		Break: []Action{Cut}, Mend: []Action{Join}, Quorum: true, Netns: true},
	{Name: "cut-follower", About: "the host of another node vanishes", Target: Follower,
		Break: []Action{Cut}, Mend: []Action{Join}, Quorum: true, Netns: true},
	{Name: "isolate-leader", About: "the leader and the other nodes do not hear each other; clients reach all of them", Target: Leader,
		Break: []Action{Isolate}, Mend: []Action{Unite}, Quorum: true, Netns: true},
	{Name: "mute-leader", About: "what the leader sends to other nodes is lost, what they send it is not", Target: Leader,
		Break: []Action{Mute}, Mend: []Action{Unite}, Quorum: true, Netns: true},
	{Name: "part-leader", About: "the leader and one follower do not hear each other; all others hear both", Target: LeaderAnd,
		Break: []Action{Part}, Mend: []Action{Unite}, Quorum: true, Netns: true},
	{Name: "part-all", About: "no node hears another; clients reach all of them", Target: Everyone,
		Break: []Action{Part}, Mend: []Action{Unite}, Netns: true},
	{Name: "wipe-follower", About: "a node is killed and loses its disk", Target: Follower,
		Break: []Action{Kill, Wipe}, Mend: []Action{Launch}, Quorum: true},
	{Name: "wipe-leader", About: "the node that leads most is killed and loses its disk", Target: Leader,
		Break: []Action{Kill, Wipe}, Mend: []Action{Launch}, Quorum: true},
	{Name: "kill-worker", About: "kill -9 of a worker's process", Target: AWorker,
		Break: []Action{Kill}, Mend: []Action{Launch}, Quorum: true},
	{Name: "pause-worker", About: "a worker's process stands still", Target: AWorker,
		Break: []Action{Pause}, Mend: []Action{Resume}, Quorum: true},
}

// short are the faults that may be named without their target.
var short = map[string]string{"kill": "kill-leader", "stop": "stop-leader", "pause": "pause-leader",
	"cut": "cut-leader", "part": "part-leader", "isolate": "isolate-leader", "mute": "mute-leader", "wipe": "wipe-follower"}

// FindFaults reads a list of names, "cut,pause,kill".
func FindFaults(names string) ([]Fault, error) {
	var out []Fault
	for _, name := range strings.Split(names, ",") {
		name = strings.TrimSpace(name)
		if full, ok := short[name]; ok {
			name = full
		}
		found := false
		for _, f := range Faults {
			if f.Name == name {
				out, found = append(out, f), true
			}
		}
		if !found {
			var known []string
			for _, f := range Faults {
				known = append(known, f.Name)
			}
			return nil, fmt.Errorf("there is no fault %q; there are %s", name, strings.Join(known, ", "))
		}
	}
	return out, nil
}

// NeedsNetns says whether any of the faults takes network namespaces.
func NeedsNetns(faults []Fault) bool {
	for _, f := range faults {
		if f.Netns {
			return true
		}
	}
	return false
}

// Wound is a fault that has been done to somebody.
type Wound struct {
	Fault Fault
	Nodes []*Node
	// Worker is who was hit instead of a node.
	Worker *Worker
	// At is when it was done, Mending when mending began, Mended when the nodes hit were ready again.
	At, Mending, Mended time.Time
}

// Names are the names of the nodes that were hit.
func (w *Wound) Names() string {
	var out []string
	for _, n := range w.Nodes {
		out = append(out, n.Name)
	}
	if w.Worker != nil {
		out = append(out, w.Worker.Name)
	}
	if len(out) == 0 {
		return "nobody"
	}
	return strings.Join(out, ",")
}

// Restart is how long the nodes took from the start of mending until they were ready.
func (w *Wound) Restart() time.Duration { return w.Mended.Sub(w.Mending) }

// Inject does a fault. What was begun when an error comes is mended by Mend.
func (c *Cluster) Inject(ctx context.Context, f Fault, rng *rand.Rand) (*Wound, error) {
	if f.Target == AWorker {
		return c.injectWorker(f, rng)
	}
	nodes, err := c.choose(ctx, f.Target, rng)
	if err != nil {
		return nil, fmt.Errorf("fault %s: %w", f.Name, err)
	}
	w := &Wound{Fault: f, Nodes: nodes, At: time.Now()}
	c.log.Info("fault", "name", f.Name, "nodes", w.Names())
	return w, w.do(ctx, f.Break)
}

// Mend undoes the fault and waits until all nodes are ready, or ctx ends.
func (w *Wound) Mend(ctx context.Context, c *Cluster) error {
	w.Mending = time.Now()
	c.log.Info("mend", "name", w.Fault.Name, "nodes", w.Names())
	if w.Worker != nil {
		return w.mendWorker()
	}
	if err := w.do(ctx, w.Fault.Mend); err != nil {
		return err
	}
	if err := c.WaitReady(ctx, w.Nodes...); err != nil {
		return fmt.Errorf("after %s of %s: %w", w.Fault.Name, w.Names(), err)
	}
	w.Mended = time.Now()
	return c.WaitReady(ctx)
}

// do does each action to all nodes at once, before it begins the next.
func (w *Wound) do(ctx context.Context, actions []Action) error {
	for _, a := range actions {
		errs := make(chan error, len(w.Nodes))
		for _, n := range w.Nodes {
			go func() { errs <- n.act(ctx, a, w.Nodes) }()
		}
		var all []error
		for range w.Nodes {
			all = append(all, <-errs)
		}
		if err := errors.Join(all...); err != nil {
			return fmt.Errorf("fault %s: %s: %w", w.Fault.Name, a, err)
		}
	}
	return nil
}

// act does one action; hit are all nodes that the fault hits.
func (n *Node) act(ctx context.Context, a Action, hit []*Node) error {
	switch a {
	case Kill:
		return n.Kill()
	case Stop:
		return n.Stop()
	case Launch:
		return n.Start()
	case Pause:
		return n.Pause()
	case Resume:
		return n.Resume()
	case Cut:
		return n.Cut(ctx)
	case Join:
		return n.Join(ctx)
	case Part:
		return n.Mute(ctx, true, hit...)
	case Isolate:
		return n.Mute(ctx, true, n.c.nodes...)
	case Mute:
		return n.Mute(ctx, false, n.c.nodes...)
	case Unite:
		return n.Unmute(ctx)
	case Wipe:
		return n.Wipe()
	}
	return fmt.Errorf("there is no action %q", a)
}

// choose finds the nodes that a fault hits.
func (c *Cluster) choose(ctx context.Context, t Target, rng *rand.Rand) ([]*Node, error) {
	switch t {
	case Nobody:
		return nil, nil
	case Everyone:
		return c.nodes, nil
	case Anyone:
		return []*Node{c.nodes[rng.IntN(len(c.nodes))]}, nil
	}
	var leader *Node
	look, cancel := context.WithTimeout(ctx, mendPatience)
	defer cancel()
	if err := waitFor(look, "a leader", func(ctx context.Context) (err error) { leader, err = c.Leader(ctx); return err }); err != nil {
		return nil, err
	}
	var others []*Node
	for _, n := range c.nodes {
		if n != leader {
			others = append(others, n)
		}
	}
	if t == Leader {
		return []*Node{leader}, nil
	}
	if len(others) == 0 {
		return nil, errors.New("a single node has no others")
	}
	other := others[rng.IntN(len(others))]
	if t == Follower {
		return []*Node{other}, nil
	}
	return []*Node{leader, other}, nil
}
