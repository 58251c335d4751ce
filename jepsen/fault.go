package jepsen

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Target is the kind of nodes that a fault hits.
type Target string

// The targets.
const (
	NoTarget Target = "nothing"
	Leader   Target = "leader"   // the node that leads most partitions
	Follower Target = "follower" // one of the others
	Anyone   Target = "anyone"
	Everyone Target = "everyone"
	// LeaderAnd is the leader and one other, Followers are all but the leader.
	LeaderAnd Target = "leader and another"
	Followers Target = "all followers"
	// AWorker is one of the harness's worker processes, and no node.
	AWorker Target = "a worker"
)

// Action is one change of a node.
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
	Deafen  Action = "deafen"  // lose what other nodes send to the node
	Unite   Action = "unite"   // end part, isolate, mute and deafen
	Wipe    Action = "wipe"    // remove the data directory
	Await   Action = "await"   // wait until the node is ready
	Damage  Action = "damage"  // change a byte of a file of a node that does not run
	Repair  Action = "repair"  // rebuild the replicas that were damaged
	Fill    Action = "fill"    // fill the node's disk
	Free    Action = "free"    // free it again
	Ahead   Action = "ahead"   // set the node's wall clock forward
	Behind  Action = "behind"  // set it back
	Slow    Action = "slow"    // make the node's disk slow
	Calm    Action = "calm"    // end ahead, behind and slow
)

const (
	// clockStep is how far clocks are set.
	clockStep = 20 * time.Second
	// slowSync is what each write to a slow disk waits for.
	slowSync = 60 * time.Millisecond
)

// Fault is a row of the table of faults.
type Fault struct {
	Name, About string
	Target      Target
	// Break runs on each node that is hit, action by action; Heal undoes it.
	Break, Heal []Action
	// Quorum says that a majority keeps running: an outage longer than a failover is the cluster's fault.
	Quorum bool
	// Netns says that the fault needs network namespaces.
	Netns bool
	// Patched says that the fault needs a server built with overlay.Faults, Disk that it needs nodes with disks
	// of their own. SavedOften says that nodes must make their states durable all the time, so that there are
	// files to damage.
	Patched, Disk, SavedOften bool
	// InTurn breaks one node after the other, each by all of Break, rather than all of them action by action.
	InTurn bool
	// Lasts bounds how long the fault lasts, drawn between the two; zero leaves it to the run.
	Lasts [2]time.Duration
	// OutlastsLease says that the fault lasts longer than a worker's lease.
	OutlastsLease bool
}

// holds is how long the fault lasts in a run that holds faults for so long.
func (f Fault) holds(hold, lease time.Duration, rng *rand.Rand) time.Duration {
	if f.Lasts[1] > f.Lasts[0] {
		return f.Lasts[0] + time.Duration(rng.Int64N(int64(f.Lasts[1]-f.Lasts[0])))
	}
	if f.OutlastsLease {
		return max(hold, lease+lease/4)
	}
	return hold
}

// Faults is the table. A new fault is a row.
var Faults = []Fault{
	{Name: "none", About: "nothing happens: the figure to compare with", Target: NoTarget, Quorum: true},
	{Name: "kill-leader", About: "kill -9 of the node that leads most", Target: Leader,
		Break: []Action{Kill}, Heal: []Action{Launch}, Quorum: true},
	{Name: "kill-follower", About: "kill -9 of another node", Target: Follower,
		Break: []Action{Kill}, Heal: []Action{Launch}, Quorum: true},
	{Name: "kill-all", About: "kill -9 of all nodes at once", Target: Everyone, Break: []Action{Kill}, Heal: []Action{Launch}},
	{Name: "stop-leader", About: "an orderly stop of the node that leads most", Target: Leader,
		Break: []Action{Stop}, Heal: []Action{Launch}, Quorum: true},
	{Name: "pause-leader", About: "the process of the node that leads most is stopped", Target: Leader,
		Break: []Action{Pause}, Heal: []Action{Resume}, Quorum: true},
	{Name: "pause-follower", About: "the process of another node is stopped", Target: Follower,
		Break: []Action{Pause}, Heal: []Action{Resume}, Quorum: true},
	{Name: "pause-all", About: "all processes are stopped", Target: Everyone, Break: []Action{Pause}, Heal: []Action{Resume}},
	{Name: "cut-leader", About: "the host of the node that leads most vanishes from the network", Target: Leader,
		Break: []Action{Cut}, Heal: []Action{Join}, Quorum: true, Netns: true},
	{Name: "cut-follower", About: "the host of another node vanishes", Target: Follower,
		Break: []Action{Cut}, Heal: []Action{Join}, Quorum: true, Netns: true},
	{Name: "isolate-leader", About: "the leader and the other nodes get no messages from each other; clients reach all of them", Target: Leader,
		Break: []Action{Isolate}, Heal: []Action{Unite}, Quorum: true, Netns: true},
	{Name: "isolate-follower", About: "a follower and the other nodes get no messages from each other; clients reach all of them", Target: Follower,
		Break: []Action{Isolate}, Heal: []Action{Unite}, Quorum: true, Netns: true},
	{Name: "mute-leader", About: "what the leader sends to other nodes is lost, what they send it is not", Target: Leader,
		Break: []Action{Mute}, Heal: []Action{Unite}, Quorum: true, Netns: true},
	{Name: "mute-follower", About: "what a follower sends to other nodes is lost, what they send it is not", Target: Follower,
		Break: []Action{Mute}, Heal: []Action{Unite}, Quorum: true, Netns: true},
	{Name: "deafen-leader", About: "what other nodes send to the leader is lost, what it sends them is not", Target: Leader,
		Break: []Action{Deafen}, Heal: []Action{Unite}, Quorum: true, Netns: true},
	{Name: "deafen-follower", About: "what other nodes send to a follower is lost, what it sends them is not", Target: Follower,
		Break: []Action{Deafen}, Heal: []Action{Unite}, Quorum: true, Netns: true},
	{Name: "late-answers", About: "answers to the leader are lost until another node leads, then TCP delivers the old ones", Target: Leader,
		Break: []Action{Deafen}, Heal: []Action{Unite}, Quorum: true, Netns: true, Lasts: lateHold},
	{Name: "part-leader", About: "the leader and one follower get no messages from each other; all others hear both (a follower is the bridge)", Target: LeaderAnd,
		Break: []Action{Part}, Heal: []Action{Unite}, Quorum: true, Netns: true},
	{Name: "part-followers", About: "the followers get no messages from each other; all of them hear the leader (the leader is the bridge)", Target: Followers,
		Break: []Action{Part}, Heal: []Action{Unite}, Quorum: true, Netns: true},
	{Name: "part-all", About: "no node gets messages from another; clients reach all of them", Target: Everyone,
		Break: []Action{Part}, Heal: []Action{Unite}, Netns: true},
	{Name: "wipe-follower", About: "a node is killed and loses its disk", Target: Follower,
		Break: []Action{Kill, Wipe}, Heal: []Action{Launch}, Quorum: true},
	{Name: "wipe-leader", About: "the node that leads most is killed and loses its disk", Target: Leader,
		Break: []Action{Kill, Wipe}, Heal: []Action{Launch}, Quorum: true},
	{Name: "rolling-restart", About: "an orderly stop and start of one node after the other", Target: Everyone,
		Break: []Action{Stop, Launch, Await}, Heal: []Action{Launch}, Quorum: true, InTurn: true},
	{Name: "damage-follower", About: "a byte of a state file is changed while its node is down; the replica is rebuilt", Target: Follower,
		Break: []Action{Stop, Damage, Launch}, Heal: []Action{Repair}, Quorum: true, SavedOften: true},
	{Name: "full-disk-follower", About: "the disk of a node is full", Target: Follower,
		Break: []Action{Fill}, Heal: []Action{Free, Launch}, Quorum: true, Disk: true},
	{Name: "full-disk-leader", About: "the disk of the node that leads most is full", Target: Leader,
		Break: []Action{Fill}, Heal: []Action{Free, Launch}, Quorum: true, Disk: true},
	{Name: "full-disk-all", About: "all disks are full", Target: Everyone,
		Break: []Action{Fill}, Heal: []Action{Free, Launch}, Disk: true},
	{Name: "slow-disk-follower", About: "each sync of a node's disk takes 60 ms longer", Target: Follower,
		Break: []Action{Slow}, Heal: []Action{Calm}, Quorum: true, Patched: true},
	{Name: "slow-disk-leader", About: "each sync of the disk of the node that leads most takes 60 ms longer", Target: Leader,
		Break: []Action{Slow}, Heal: []Action{Calm}, Quorum: true, Patched: true},
	{Name: "slow-disk-all", About: "each sync of any disk takes 60 ms longer", Target: Everyone,
		Break: []Action{Slow}, Heal: []Action{Calm}, Quorum: true, Patched: true},
	{Name: "clock-ahead-leader", About: "the wall clock of the node that leads most is set 20 s forward, and back", Target: Leader,
		Break: []Action{Ahead}, Heal: []Action{Calm}, Quorum: true, Patched: true},
	{Name: "clock-behind-leader", About: "the wall clock of the node that leads most is set 20 s back, and forward", Target: Leader,
		Break: []Action{Behind}, Heal: []Action{Calm}, Quorum: true, Patched: true},
	{Name: "clock-ahead-follower", About: "the wall clock of another node is set 20 s forward, and back", Target: Follower,
		Break: []Action{Ahead}, Heal: []Action{Calm}, Quorum: true, Patched: true},
	{Name: "clock-behind-follower", About: "the wall clock of another node is set 20 s back, and forward", Target: Follower,
		Break: []Action{Behind}, Heal: []Action{Calm}, Quorum: true, Patched: true},
	{Name: "kill-worker", About: "kill -9 of a worker's process", Target: AWorker,
		Break: []Action{Kill}, Heal: []Action{Launch}, Quorum: true},
	{Name: "pause-worker", About: "a worker's process is stopped", Target: AWorker,
		Break: []Action{Pause}, Heal: []Action{Resume}, Quorum: true},
	{Name: "stop-worker", About: "a worker's process is stopped for longer than its lease, then continues", Target: AWorker,
		Break: []Action{Pause}, Heal: []Action{Resume}, Quorum: true, OutlastsLease: true},
}

// lateHold is how long the answers to a leader are held back, to come late: longer than an election takes,
// and about as long as the old leader still acts as one.
var lateHold = [2]time.Duration{1600 * time.Millisecond, 2800 * time.Millisecond}

// short are the names of faults without their target, and of groups of faults.
var short = map[string]string{"kill": "kill-leader", "stop": "stop-leader", "pause": "pause-leader",
	"cut": "cut-leader", "part": "part-leader", "isolate": "isolate-leader", "mute": "mute-leader", "deafen": "deafen-leader",
	"late": "late-answers", "wipe": "wipe-follower", "damage": "damage-follower", "restart": "rolling-restart",
	"full-disk": "full-disk-follower,full-disk-all", "slow-disk": "slow-disk-leader,slow-disk-follower",
	"clock":   "clock-ahead-leader,clock-behind-leader,clock-ahead-follower,clock-behind-follower",
	"one-way": "mute-leader,deafen-leader,mute-follower,deafen-follower", "bridge": "part-leader,part-followers"}

// expand replaces short names by those of the table; "all" is the whole table but for "none".
func expand(names string) []string {
	var out []string
	for _, name := range strings.Split(names, ",") {
		name = strings.TrimSpace(name)
		if full, ok := short[name]; ok {
			out = append(out, strings.Split(full, ",")...)
			continue
		}
		if name != "all" {
			out = append(out, name)
			continue
		}
		for _, f := range Faults {
			if f.Target != NoTarget {
				out = append(out, f.Name)
			}
		}
	}
	return out
}

// FindFaults reads a list of names, "cut,pause,kill".
func FindFaults(names string) ([]Fault, error) {
	var out []Fault
	for _, name := range expand(names) {
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

// diskBytes is the size of the disks of nodes that need one of their own.
const diskBytes = 512 << 20

// Need changes options so that a cluster can suffer the faults. It keeps the options that were set already.
func (o *Options) Need(faults []Fault) {
	for _, f := range faults {
		o.Netns = o.Netns || f.Netns
		o.Patched = o.Patched || f.Patched
		if f.Disk && o.DiskBytes == 0 {
			o.DiskBytes = diskBytes
		}
		if f.SavedOften && !slices.Contains(o.Args, SavedOften[0]) {
			o.Args = append(slices.Clone(SavedOften), o.Args...)
		}
	}
}

// OfNodes are the faults that hit nodes, for workloads without worker processes; left are the others' names.
func OfNodes(faults []Fault) (nodes []Fault, left []string) {
	for _, f := range faults {
		if f.Target == AWorker {
			left = append(left, f.Name)
		} else {
			nodes = append(nodes, f)
		}
	}
	return nodes, left
}

// NeedsNetns says whether any of the faults takes network namespaces.
func NeedsNetns(faults []Fault) bool {
	var o Options
	o.Need(faults)
	return o.Netns
}

// Wound is an injected fault with its targets.
type Wound struct {
	Fault Fault
	Nodes []*Node
	// Worker is the worker that was hit instead of a node.
	Worker *Worker
	// At is when it was injected, Healing when the repair began, Healed when the nodes hit were ready again.
	At, Healing, Healed time.Time
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
		return "nothing"
	}
	return strings.Join(out, ",")
}

// Restart is how long the nodes took from the start of healing until they were ready.
func (w *Wound) Restart() time.Duration { return w.Healed.Sub(w.Healing) }

// Inject injects a fault. After an error, Heal repairs the part that was injected.
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
	if !f.InTurn {
		return w, w.do(ctx, nodes, f.Break)
	}
	breaking, cancel := context.WithTimeout(ctx, healTimeout)
	defer cancel()
	for _, n := range nodes {
		if err := w.do(breaking, []*Node{n}, f.Break); err != nil {
			return w, err
		}
	}
	return w, nil
}

// Heal undoes the fault and waits until all nodes are ready, or ctx ends.
func (w *Wound) Heal(ctx context.Context, c *Cluster) error {
	w.Healing = time.Now()
	c.log.Info("healing", "name", w.Fault.Name, "nodes", w.Names())
	if w.Worker != nil {
		return w.healWorker()
	}
	if err := w.do(ctx, w.Nodes, w.Fault.Heal); err != nil {
		return err
	}
	if err := c.WaitReady(ctx, w.Nodes...); err != nil {
		return fmt.Errorf("after %s of %s: %w", w.Fault.Name, w.Names(), err)
	}
	w.Healed = time.Now()
	return c.WaitReady(ctx)
}

// do does each action to all the nodes at once, before it begins the next.
func (w *Wound) do(ctx context.Context, nodes []*Node, actions []Action) error {
	for _, a := range actions {
		errs := make(chan error, len(nodes))
		for _, n := range nodes {
			go func() { errs <- n.act(ctx, a, w.Nodes) }()
		}
		var all []error
		for range nodes {
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
	case Deafen:
		return n.Deafen(ctx)
	case Await:
		return n.c.WaitReady(ctx, n)
	case Unite:
		return n.Unmute(ctx)
	case Wipe:
		return n.Wipe()
	case Damage:
		return n.damage()
	case Repair:
		return n.repair(ctx)
	case Fill:
		return n.FillDisk()
	case Free:
		return n.FreeDisk()
	case Ahead:
		return n.Disturb(func(d *Disturbance) { d.Clock = clockStep })
	case Behind:
		return n.Disturb(func(d *Disturbance) { d.Clock = -clockStep })
	case Slow:
		return n.Disturb(func(d *Disturbance) { d.Sync = slowSync })
	case Calm:
		return n.Disturb(func(d *Disturbance) { *d = Disturbance{} })
	}
	return fmt.Errorf("unknown action %q", a)
}

// choose finds the nodes that a fault hits.
func (c *Cluster) choose(ctx context.Context, t Target, rng *rand.Rand) ([]*Node, error) {
	switch t {
	case NoTarget:
		return nil, nil
	case Everyone:
		return c.nodes, nil
	case Anyone:
		return []*Node{c.nodes[rng.IntN(len(c.nodes))]}, nil
	}
	var leader *Node
	look, cancel := context.WithTimeout(ctx, healTimeout)
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
	if t == Followers {
		return others, nil
	}
	other := others[rng.IntN(len(others))]
	if t == Follower {
		return []*Node{other}, nil
	}
	return []*Node{leader, other}, nil
}
