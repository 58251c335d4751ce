package backup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Options are those of Create. The zero value is good.
type Options struct {
	// Rate bounds the bytes that nodes read, per second; 0: no bound.
	Rate int64
	// Parallel is how many partitions are copied at once; 0: 4.
	Parallel int
	// Attempts is how often a call of the source is repeated without progress before another replica is tried; 0: 5.
	Attempts int
	// Cuts bounds the cuts that are entered, if no replica has a partition of one any more; 0: 3.
	Cuts int
	// Full copies the files of each state even if a delta would do, and leaves no checkpoint on the nodes.
	Full bool
	// Spool is the directory for one temporary file per partition that is copied at once; "": the system's.
	Spool string
	// Progress, if not nil, is called after each file and must return soon.
	Progress func(Progress)

	// now and sleep are the clock; nil: the machine's.
	now   func() time.Time
	sleep func(context.Context, time.Duration) error
	// retryAfter is the first wait before a repetition; 0: 200 ms.
	retryAfter time.Duration
	// saveEvery is the least time between two writes of the partial; 0: a second, negative: none.
	saveEvery time.Duration
}

func (o Options) filled() Options {
	o.Parallel = cmp.Or(o.Parallel, 4)
	o.Attempts = cmp.Or(o.Attempts, 5)
	o.Cuts = cmp.Or(o.Cuts, 3)
	o.retryAfter = cmp.Or(o.retryAfter, 200*time.Millisecond)
	o.saveEvery = cmp.Or(o.saveEvery, time.Second)
	if o.now == nil {
		o.now = time.Now
	}
	if o.sleep == nil {
		o.sleep = sleep
	}
	return o
}

// Progress is how far a create is.
type Progress struct {
	Name string
	Cut  uint64
	// Resumed is the name of the partial that the create continues; "" if none.
	Resumed string
	// Partitions are all of the cluster, and those that are copied.
	Partitions, PartitionsDone int
	// Files and Bytes are those of the checkpoints that were listed so far; Done of them are in the store.
	Files, FilesDone int
	Bytes, BytesDone int64
	// Copied are the bytes read from nodes over the network, Stored those written to the store.
	Copied, Stored int64
}

// Result is what a create made.
type Result struct {
	*Manifest
	Progress Progress
	// Unreleased is why checkpoints that nobody needs could not be removed; nil if they were. The next cuts remove them.
	Unreleased error
}

// Create makes a backup of a cluster, and returns when its manifest is in the store. It continues a create that was
// interrupted, if its cut still is on the nodes. It does not copy a file that some backup or partial in the store has.
// A store that fails ends it with a *StoreError, and nothing of the store's backups is changed. Errors: *StoreError;
// *ReplicasError; *BusyError while unused files are deleted; the source's.
func Create(ctx context.Context, source Source, store Store, opts Options) (*Result, error) {
	opts = opts.filled()
	c := &creator{source: source, store: store, opts: opts, known: map[version]string{}, here: map[string]int64{},
		limit: &limiter{rate: opts.Rate, now: opts.now, sleep: opts.sleep}}
	if err := c.begin(ctx); err != nil {
		return nil, err
	}
	running, stop := context.WithCancelCause(ctx)
	var renewal sync.WaitGroup
	renewal.Add(1)
	go func() {
		defer renewal.Done()
		c.renew(running, stop)
	}()
	result, err := c.run(running)
	if cause := context.Cause(running); err != nil && cause != nil {
		err = cause
	}
	stop(nil)
	renewal.Wait()
	if err != nil {
		return nil, errors.Join(err, c.giveUp(ctx))
	}
	return result, nil
}

// version names bytes that are known unless a replica was replaced: Pebble gives no number to two files of one store.
type version struct {
	partition uint32
	node      string
	name      string
	size      int64
}

// creator is one Create.
type creator struct {
	source Source
	store  Store
	opts   Options
	limit  *limiter
	// nodes are those whose replicas the last backup has, by partition: they have the same files still.
	nodes map[uint32]string
	// last is the last backup of the cluster that can be read; nil if there is none.
	last *Manifest
	// ask says that a node is asked for the hash of each file, because an interrupted create has put some into the store.
	ask bool

	mu sync.Mutex
	// part is what has been copied, and its state in the store.
	part partial
	// at is the index in part.Copied of each file of the present cut.
	at map[version]int
	// known is what the last backup and the partials copied; here are the objects under files/.
	known    map[version]string
	here     map[string]int64
	progress Progress

	// saving is held while the partial is written; saved is when it was.
	saving sync.Mutex
	saved  time.Time
}

// begin announces the create, and reads what the store has.
func (c *creator) begin(ctx context.Context) error {
	c.part = partial{Format: partialFormat, Owner: randomText(), Process: thisProcess(), Copied: []copied{}}
	if err := c.announce(ctx); err != nil {
		return err
	}
	err := c.prepare(ctx)
	if err != nil {
		err = errors.Join(err, c.store.Delete(context.WithoutCancel(ctx), c.part.object()))
	}
	return err
}

// announce puts the partial under a name that no backup and no other partial has. Each of two creates that choose one
// name puts its partial before it looks for the other's, so one of them at least takes another name.
func (c *creator) announce(ctx context.Context) error {
	at := c.opts.now().UTC()
	for tried := 0; ; tried++ {
		c.part.Name, c.part.Updated = at.Format(nameLayout), c.opts.now().UTC()
		if err := putPartial(ctx, c.store, &c.part); err != nil {
			return err
		}
		free, err := c.free(ctx)
		if err == nil && free {
			c.progress.Name = c.part.Name
			return nil
		}
		if err = errors.Join(err, c.store.Delete(context.WithoutCancel(ctx), c.part.object())); err != nil {
			return err
		}
		at = at.Add(time.Duration(1+rand.IntN(2+tried)) * time.Second)
	}
}

// free reports whether nothing else has the create's name.
func (c *creator) free(ctx context.Context) (bool, error) {
	// A create that ends puts its manifest before it deletes its partial.
	others, err := readPartials(ctx, c.store)
	if err != nil {
		return false, err
	}
	for _, p := range others {
		if p.Name == c.part.Name && p.Owner != c.part.Owner {
			return false, nil
		}
	}
	_, exists, err := c.store.Exists(ctx, backupsPrefix+c.part.Name+jsonSuffix)
	return !exists, err
}

// prepare looks for a collection, takes over an interrupted create, and learns what the store has.
func (c *creator) prepare(ctx context.Context) error {
	mark, err := collecting(ctx, c.store, "", c.opts.now())
	if err != nil {
		return err
	}
	if mark != "" {
		return collectingError(mark)
	}
	cluster, err := c.source.Cluster(ctx)
	if err != nil {
		return err
	}
	objects, err := c.store.List(ctx, filesPrefix)
	if err != nil {
		return err
	}
	for _, o := range objects {
		c.here[o.Name] = o.Size
	}
	if err := c.learn(ctx, cluster); err != nil {
		return err
	}
	return c.resume(ctx, cluster)
}

// learn reads the newest backup of the cluster that can be read.
func (c *creator) learn(ctx context.Context, cluster string) error {
	c.nodes = map[uint32]string{}
	m, err := NewestOf(ctx, c.store, cluster)
	if err != nil || m == nil {
		return err
	}
	c.last = m
	for _, s := range m.States {
		c.nodes[s.Partition] = s.Node
		for _, f := range s.Files {
			c.known[version{s.Partition, s.Node, f.Name, f.Size}] = f.SHA256
		}
	}
	return nil
}

// resume takes over the newest partial of the cluster that no create writes, and deletes the other ones.
func (c *creator) resume(ctx context.Context, cluster string) error {
	list, err := readPartials(ctx, c.store)
	if err != nil {
		return err
	}
	for _, p := range slices.Backward(list) {
		if p.Owner == c.part.Owner || p.Cut.Number != 0 && p.Cut.Cluster != cluster {
			continue
		}
		c.ask = true
		for _, f := range p.Copied {
			c.known[version{f.Partition, f.Node, f.File.Name, f.File.Size}] = f.File.SHA256
		}
		if !p.abandoned(c.opts.now()) {
			continue
		}
		if err := c.takeOver(ctx, p); err != nil {
			return err
		}
		if err := c.store.Delete(ctx, p.object()); err != nil {
			return err
		}
	}
	return nil
}

// takeOver continues an abandoned partial, unless a newer one is continued, it has become a backup, or its cut is gone.
func (c *creator) takeOver(ctx context.Context, p *partial) error {
	if c.part.Cut.Number != 0 {
		return nil
	}
	_, made, err := c.store.Exists(ctx, backupsPrefix+p.Name+jsonSuffix)
	if err != nil || made {
		return err
	}
	has, err := c.has(ctx, p.Cut)
	if err == nil && !has && p.Cut.Number != 0 {
		_ = c.source.Release(ctx, p.Cut.Number) // as in run
	}
	if err != nil || !has {
		return err
	}
	c.part.Cut, c.part.CutAt, c.part.Copied, c.progress.Resumed = p.Cut, p.CutAt, p.Copied, p.Name
	return c.save(ctx)
}

// has reports whether some node still has each partition's checkpoint of a cut.
func (c *creator) has(ctx context.Context, cut Cut) (bool, error) {
	have := map[uint32]bool{}
	for _, at := range cut.Checkpoints {
		if have[at.Partition] {
			continue
		}
		index, _, err := c.source.List(ctx, cut.Number, at)
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		have[at.Partition] = err == nil && index == at.Index
	}
	for p := range cut.Partitions {
		if !have[p] {
			return false, nil
		}
	}
	return cut.Partitions > 0, nil
}

// run copies the partitions of one cut, and enters another if some partition has none.
func (c *creator) run(ctx context.Context) (*Result, error) {
	for tried := 1; ; tried++ {
		if c.part.Cut.Number == 0 {
			at := c.opts.now().UTC()
			cut, err := c.source.Cut(ctx)
			if err != nil {
				return nil, err
			}
			c.mu.Lock()
			c.part.Cut, c.part.CutAt = cut, at
			c.mu.Unlock()
			if err := c.save(ctx); err != nil {
				return nil, err
			}
		}
		states, err := c.copyAll(ctx, c.part.Cut)
		if err == nil {
			return c.finish(ctx, states)
		}
		if lost := (*ReplicasError)(nil); !errors.As(err, &lost) || tried >= c.opts.Cuts {
			return nil, err
		}
		// Each replica keeps the checkpoints of two cuts: the base of the deltas is to be one of them.
		_ = c.source.Release(ctx, c.part.Cut.Number)
		c.mu.Lock()
		for _, f := range c.part.Copied {
			c.known[version{f.Partition, f.Node, f.File.Name, f.File.Size}] = f.File.SHA256
		}
		c.part.Cut = Cut{}
		c.mu.Unlock()
	}
}

// copyAll copies all partitions of a cut.
func (c *creator) copyAll(ctx context.Context, cut Cut) ([]State, error) {
	c.mu.Lock()
	c.progress = Progress{Name: c.part.Name, Cut: cut.Number, Resumed: c.progress.Resumed, Partitions: int(cut.Partitions),
		Copied: c.progress.Copied, Stored: c.progress.Stored}
	c.at = map[version]int{}
	for i, f := range c.part.Copied {
		if f.Cut == cut.Number {
			c.at[version{f.Partition, f.Node, f.File.Name, f.File.Size}] = i
		}
	}
	c.mu.Unlock()
	states := make([]State, cut.Partitions)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(c.opts.Parallel)
	for p := range cut.Partitions {
		group.Go(func() (err error) {
			states[p], err = c.copyState(ctx, cut, p)
			return err
		})
	}
	return states, group.Wait()
}

// finish checks that the store has every file, writes the manifest, and cleans up.
func (c *creator) finish(ctx context.Context, states []State) (*Result, error) {
	objects, err := c.store.List(ctx, filesPrefix)
	if err != nil {
		return nil, err
	}
	here := map[string]int64{}
	for _, o := range objects {
		here[o.Name] = o.Size
	}
	for _, s := range states {
		for _, f := range s.all() {
			if size, ok := here[f.Object()]; !ok || size != f.Size {
				return nil, &StoreError{f.Object(), errors.New("it was deleted or changed meanwhile")}
			}
		}
	}
	// The save checks that this create still owns its partial, which keeps a collection away.
	if err := c.save(ctx); err != nil {
		return nil, err
	}
	cut := c.part.Cut
	m := Manifest{Format: format(states), Name: c.part.Name, Cluster: cut.Cluster, Cut: cut.Number, Partitions: cut.Partitions,
		Level: cut.Level, Created: c.part.CutAt.Truncate(time.Second), States: states}
	b, err := m.encode()
	if err != nil {
		return nil, err
	}
	read, err := decode(b)
	if err != nil {
		return nil, fmt.Errorf("the source's cut makes no manifest: %w", err)
	}
	if err := putBytes(ctx, c.store, backupsPrefix+m.Name+jsonSuffix, b); err != nil {
		return nil, err
	}
	// The backup exists. What fails from here on leaves a partial, or checkpoints, behind.
	result := &Result{Manifest: read, Progress: c.progress, Unreleased: c.release(ctx)}
	c.saving.Lock()
	defer c.saving.Unlock()
	return result, c.store.Delete(ctx, c.part.object())
}

// release removes the checkpoints that no later backup needs: its deltas lead from those of this cut.
func (c *creator) release(ctx context.Context) error {
	var errs []error
	if c.last != nil && c.last.Cut != c.part.Cut.Number {
		errs = append(errs, c.source.Release(ctx, c.last.Cut))
	}
	if c.opts.Full {
		errs = append(errs, c.source.Release(ctx, c.part.Cut.Number))
	}
	return errors.Join(errs...)
}

// giveUp leaves the partial so that the next create continues it at once; without a cut there is nothing to continue.
func (c *creator) giveUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	c.mu.Lock()
	c.part.Ended = true
	nothing := c.part.Cut.Number == 0 && len(c.part.Copied) == 0
	c.mu.Unlock()
	if nothing {
		return c.store.Delete(ctx, c.part.object())
	}
	err := c.save(ctx)
	if busy := (*BusyError)(nil); errors.As(err, &busy) {
		return nil // it is what ended this create, or another one goes on with it
	}
	return err
}

// renew writes the partial now and then, so that no other create takes it over, and stops a create that lost it.
func (c *creator) renew(ctx context.Context, stop context.CancelCauseFunc) {
	ticker := time.NewTicker(renewEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		err := c.save(ctx)
		if busy := (*BusyError)(nil); errors.As(err, &busy) {
			stop(err)
			return
		}
	}
}

// save writes the partial, if this create still owns it.
func (c *creator) save(ctx context.Context) error {
	c.saving.Lock()
	defer c.saving.Unlock()
	c.mu.Lock()
	now := c.part
	now.Updated, c.saved = c.opts.now().UTC(), c.opts.now()
	now.Copied = slices.Clone(now.Copied)
	c.mu.Unlock()
	_, exists, err := c.store.Exists(ctx, now.object())
	if err != nil {
		return err
	}
	if !exists {
		return &BusyError{fmt.Sprintf("another create continues %s, or it was deleted", now.Name)}
	}
	return putPartial(ctx, c.store, &now)
}

// saveSoon is save at most every saveEvery.
func (c *creator) saveSoon(ctx context.Context) error {
	c.mu.Lock()
	soon := c.opts.now().Sub(c.saved) < c.opts.saveEvery
	c.mu.Unlock()
	if soon {
		return nil
	}
	return c.save(ctx)
}

// order returns a partition's checkpoints: first of the node that the last backup copied, the others spread.
func (c *creator) order(cut Cut, partition uint32) []Checkpoint {
	var all []Checkpoint
	for _, at := range cut.Checkpoints {
		if at.Partition == partition {
			all = append(all, at)
		}
	}
	slices.SortFunc(all, func(a, b Checkpoint) int { return strings.Compare(a.Node, b.Node) })
	if n := len(all); n > 0 {
		by := int(partition) % n
		all = slices.Concat(all[by:], all[:by])
	}
	slices.SortStableFunc(all, func(a, b Checkpoint) int {
		return cmp.Compare(c.strange(a), c.strange(b))
	})
	return all
}

// strange is 0 for a node whose files are known, 1 otherwise.
func (c *creator) strange(at Checkpoint) int {
	if c.nodes[at.Partition] == at.Node {
		return 0
	}
	return 1
}
