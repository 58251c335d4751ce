package partition

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/fsm/machine"
	"perdure/fsm/state"
	"perdure/internal/crashfs"
	"perdure/internal/testkit"
	"perdure/partition/group"
	"perdure/partition/stable"
)

var (
	crashSeed   = flag.Uint64("crash.seed", 0, "seed of the power loss test; 0 for a new one")
	crashRounds = flag.Int("crash.rounds", 0, "rounds of the power loss test, each of some 60 copies of the disk; 0 for 1 or, with -long, 13")
)

// TestPowerLoss copies a node's disk under load at random points as a power loss would leave it, with none,
// half and all of the unsynced writes, and starts a new node on each copy. It must serve everything that was
// acknowledged before, its state must equal a replay of the log, the rules' invariants must hold, and it must
// keep working. Now and then the load continues on such a copy, so that copies of copies are taken too.
func TestPowerLoss(t *testing.T) {
	seed := *crashSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	rounds := cmp.Or(*crashRounds, testkit.Choose(1, 1, 13))
	t.Logf("seed %d: go test ./partition -run TestPowerLoss -crash.seed=%d -crash.rounds=%d", seed, seed, rounds)
	t.Parallel() // others wait most of the time
	generations, points := testkit.Choose(3, 3, 4), testkit.Choose(3, 4, 5)
	c := &crashTest{t: t, rng: rand.New(rand.NewPCG(seed, 1)), base: memConfig(t, nil, nil, crashPartitions)}
	// Markers, cut logs, flushes and compactions, as often as they can be had.
	c.base.SnapshotThreshold, c.base.SnapshotInterval, c.base.TrailingLogs = 32, 20*time.Millisecond, 128
	// The log keeps the entries that the follower of the load may not have read yet, of up to 10 KiB each.
	c.base.SnapshotBytes, c.base.TrailingBytes = 64<<10, maxLag*10<<10
	c.base.CacheBytes, c.base.MemtableBytes = 1<<20, 192<<10
	c.sum.kinds = map[string]int{}
	c.base.Logger = slog.New(slog.DiscardHandler)
	for round := range rounds {
		if c.round(round, generations, points); t.Failed() {
			break
		}
	}
	t.Log(c.sum.String())
	if t.Failed() {
		return
	}
	if c.sum.markers == 0 || c.sum.cut == 0 || c.sum.flushes == 0 || testkit.Long() && c.sum.compactions == 0 {
		t.Errorf("the test must meet markers, cut logs, flushes and compactions")
	}
	for _, kind := range []string{"start", "commit", "signal", "cancel", "promise made", "promise settled"} {
		if c.sum.kinds[kind] == 0 {
			t.Errorf("nothing of kind %q was acknowledged", kind)
		}
	}
}

const crashPartitions = 3

type crashTest struct {
	t    *testing.T
	rng  *rand.Rand
	base Config

	mu  sync.Mutex
	sum crashSummary
}

type crashSummary struct {
	points, clones, looked           int
	kinds                            map[string]int
	replayed, scratch, whole         int
	promises, journals               int
	markers, cut                     int
	flushes, compactions             int64
	starting, looking, checking, all time.Duration
}

func (s *crashSummary) String() string {
	var kinds []string
	for _, k := range slices.Sorted(maps.Keys(s.kinds)) {
		kinds = append(kinds, fmt.Sprintf("%s %d", k, s.kinds[k]))
	}
	per := func(d time.Duration) time.Duration {
		return (d / time.Duration(max(s.clones, 1))).Round(100 * time.Microsecond)
	}
	return fmt.Sprintf(`%d points, %d clones: all served again
acknowledged: %s
looked up again: %d facts
replayed: %d entries for %d checksums, %d more from the first on; %d states compared key by key
audited: %d promises, %d journals
met: %d partitions with markers, %d with a log that was cut; %d flushes and %d compactions of states
per clone: starting %v, looking up %v, comparing and auditing %v, all %v`,
		s.points, s.clones, strings.Join(kinds, ", "), s.looked, s.replayed, s.clones*crashPartitions, s.scratch, s.whole,
		s.promises, s.journals, s.markers, s.cut, s.flushes, s.compactions,
		per(s.starting), per(s.looking), per(s.checking), per(s.all))
}

// image is a disk after a power loss, and what was acknowledged before it.
type image struct {
	percent int
	fs      *crashfs.FS
	stable  *stable.Memory
	facts   []fact
	// shared is how far each partition's log is that of the node which lost its power.
	shared [crashPartitions]uint64
}

func (c *crashTest) config(fs *crashfs.FS, st stable.Store) Config {
	cfg := c.base
	cfg.FS, cfg.Stable = fs, st
	return cfg
}

// round is one lineage of nodes, from an empty directory on.
func (c *crashTest) round(round, generations, points int) {
	t := c.t
	w, err := newTwin(crashPartitions)
	if err != nil {
		t.Fatal(err)
	}
	now := &image{percent: -1, fs: crashfs.New(), stable: stable.NewMemory()}
	for generation := range generations {
		n, err := Start(c.config(now.fs, now.stable))
		if err != nil {
			t.Fatalf("round %d, generation %d: %v", round, generation, err)
		}
		ready(t, n)
		f := follow(w, n)
		l := newLoad(fmt.Sprintf("r%dg%d", round, generation), n, c.rng.Uint64(), f.gate)
		l.run()
		var next *image
		for range points {
			target := l.count.Load() + 1 + c.rng.Int64N(60)
			waitFor(t, "the load to get further", func() bool { return l.count.Load() >= target || f.failed() != nil || len(l.wrong()) > 0 },
				func() string { return fmt.Sprintf("%d of %d facts", l.count.Load(), target) })
			if next = c.point(w, l, now); t.Failed() {
				break
			}
		}
		c.tally(n, l)
		l.stop()
		err = f.end()
		if wrong := l.wrong(); len(wrong) > 0 {
			t.Errorf("answers that must not be:\n%s", strings.Join(wrong[:min(len(wrong), 10)], "\n"))
		}
		if err != nil {
			t.Errorf("following the log: %v", err)
		}
		if generation == generations-1 && !t.Failed() {
			c.last(n, w, append(now.facts, l.acknowledged()...))
		}
		closeNode(t, n)
		if t.Failed() {
			return
		}
		// The next node continues after the last power loss: what was acknowledged since is gone with it.
		now = next
		for p, part := range w.parts {
			if err := part.turnBack(next.shared[p]); err != nil {
				t.Fatalf("turning back to %d: %v", next.shared[p], err)
			}
		}
	}
}

// point takes three images of a working node, as near to one moment as three copies can be, and checks a new
// node on each. It returns one of them as it was before, for the load to continue on.
func (c *crashTest) point(w *twin, l *load, now *image) *image {
	facts := append(slices.Clone(now.facts), l.acknowledged()...)
	var images []*image
	for _, percent := range []int{0, 50, 100} {
		images = append(images, &image{percent: percent, facts: facts, fs: now.fs.CrashClone(vfs.CrashCloneCfg{
			UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(c.rng.Uint64(), 2))})})
	}
	pick := images[c.rng.IntN(len(images))]
	again := &image{percent: pick.percent, facts: facts, fs: pick.fs.CrashClone(vfs.CrashCloneCfg{})}
	// Copy terms and votes after the disk. Nothing acknowledged before the disk was copied depends on later
	// ones. A log never holds a term that the votes lack; copied first, they could lack one.
	again.stable = now.stable.Clone()
	var wg sync.WaitGroup
	for _, i := range images {
		i.stable = now.stable.Clone()
		rng := rand.New(rand.NewPCG(c.rng.Uint64(), 3))
		whole := c.rng.IntN(8) == 0
		wg.Add(1)
		go func() {
			defer wg.Done()
			if err := c.check(w, i, rng, whole); err != nil {
				c.t.Errorf("point %d, %d %% of unsynced bytes survive: %v", c.sum.points, i.percent, err)
			}
		}()
	}
	wg.Wait()
	again.shared = pick.shared
	c.sum.points++
	return again
}

// check starts a node on an image and checks everything that it must still have.
func (c *crashTest) check(w *twin, i *image, rng *rand.Rand, whole bool) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	began := time.Now()
	n, err := Start(c.config(i.fs, i.stable))
	if err != nil {
		return fmt.Errorf("start: %w", err)
	}
	defer func() {
		if closed := n.Close(ctx); err == nil && closed != nil {
			err = fmt.Errorf("close: %w", closed)
		}
		c.mu.Lock()
		c.sum.clones++
		c.sum.all += time.Since(began)
		c.mu.Unlock()
	}()
	select {
	case <-n.Ready():
	case <-ctx.Done():
		return fmt.Errorf("it does not serve: %w", n.NotReady())
	}
	started := time.Now()
	for p, r := range n.router.Replicas() {
		logs := n.raftlog.Group(uint32(p))
		v, err := w.parts[p].compare(r, logs, whole)
		if err != nil {
			return fmt.Errorf("partition %d: %w", p, err)
		}
		i.shared[p] = v.shared
		problems, promises, journals, err := auditStore(r.Store())
		if err != nil {
			return fmt.Errorf("partition %d: %w", p, err)
		}
		if len(problems) > 0 {
			return fmt.Errorf("partition %d: invariants are broken:\n%s", p, strings.Join(problems, "\n"))
		}
		first, err := logs.FirstIndex()
		if err != nil {
			return err
		}
		c.mu.Lock()
		c.sum.replayed += v.replayed
		c.sum.promises += promises
		c.sum.journals += journals
		c.sum.whole += count(whole)
		c.sum.markers += count(r.Raft().Stats()["last_snapshot_index"] != "0")
		c.sum.cut += count(first > 1)
		c.mu.Unlock()
	}
	checked := time.Now()
	// The youngest facts are those at risk; of the older ones, which the checksums vouch for, some.
	some := i.facts[max(0, len(i.facts)-120):]
	for range min(40, len(i.facts)-len(some)) {
		some = append(slices.Clip(some), i.facts[rng.IntN(len(i.facts)-len(some))])
	}
	if err := lookUp(ctx, n.Router(), some); err != nil {
		return err
	}
	looked := time.Now()
	if err := serveNew(ctx, n); err != nil {
		return fmt.Errorf("it does not serve new commands: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sum.looked += len(some)
	c.sum.starting += started.Sub(began)
	c.sum.checking += checked.Sub(started)
	c.sum.looking += looked.Sub(checked)
	return nil
}

func count(is bool) int {
	if is {
		return 1
	}
	return 0
}

// lookUp checks facts, several at a time.
func lookUp(ctx context.Context, r *Router, facts []fact) error {
	const at = 8
	errs := make(chan error, at)
	for lane := range at {
		go func() {
			for k := lane; k < len(facts); k += at {
				if err := facts[k].check(ctx, r); err != nil {
					errs <- fmt.Errorf("fact %d of %d, %s %s: %w", k, len(facts), facts[k].kind, facts[k].what, err)
					return
				}
			}
			errs <- nil
		}()
	}
	var first error
	for range at {
		if err := <-errs; first == nil {
			first = err
		}
	}
	return first
}

// serveNew has new commands done in every partition.
func serveNew(ctx context.Context, n *Node) error {
	r := n.Router()
	for p := range r.Partitions() {
		id := idIn(r, p, "new")
		if _, err := r.Propose(ctx, startCmd("start "+id, id, "new", "")); err != nil {
			return err
		}
		promise := idIn(r, p, "promise")
		if _, err := r.Propose(ctx, promiseCmd(promise, 60_000)); err != nil {
			return err
		}
		reply, err := r.Propose(ctx, settleCmd(promise, "v"))
		if err != nil {
			return err
		}
		if got := string(reply.GetPromise().Promise.Value.GetValue()); got != "v" {
			return fmt.Errorf("a new promise was settled with %q", got)
		}
		if _, _, err := r.Query(ctx, group.Linearizable, describeQuery(id)); err != nil {
			return err
		}
	}
	return nil
}

// tally adds what a node has met.
func (c *crashTest) tally(n *Node, l *load) {
	for _, r := range n.router.Replicas() {
		if m, err := r.Store().Metrics(); err == nil {
			c.sum.flushes += m.Flush.Count
			c.sum.compactions += m.Compact.Count
		}
	}
	for _, f := range l.acknowledged() {
		c.sum.kinds[f.kind]++
	}
}

// last checks every fact of a lineage on its last node, which has not lost its power, and replays the logs
// from their first entries on.
func (c *crashTest) last(n *Node, w *twin, facts []fact) {
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	if err := lookUp(ctx, n.Router(), facts); err != nil {
		c.t.Errorf("at last: %v", err)
	}
	c.sum.looked += len(facts)
	for p, part := range w.parts {
		state := state.NewMemReader()
		m, err := machine.New(part.cfg, state)
		if err == nil {
			err = replay(m, state, part.log)
		}
		if err == nil && m.Checksum() != part.m.Checksum() {
			err = fmt.Errorf("checksum %016x, followed %016x", m.Checksum(), part.m.Checksum())
		}
		if err == nil {
			err = sameState(contentOf(state), contentOf(part.state))
		}
		if err == nil {
			_, err = part.compare(n.router.Replicas()[p], n.raftlog.Group(uint32(p)), true)
		}
		if err != nil {
			c.t.Errorf("partition %d, replayed from the first of %d entries: %v", p, len(part.log), err)
		}
		c.sum.scratch += len(part.log)
	}
}
