package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"perdure/fsm"
	"perdure/fsm/audit"
	"perdure/fsm/machine"
	"perdure/fsm/state"
	"perdure/partition/identity"
	"perdure/partition/repair"
)

// verifyCacheBytes is the block cache of all states together: they are read once, from end to end.
const verifyCacheBytes = 64 << 20

// noDirectoryError says that there is no such directory.
type noDirectoryError struct{ dir string }

func (e *noDirectoryError) Error() string { return fmt.Sprintf("there is no directory %s", e.dir) }

// verifyData audits a stopped node's data directory.
func (a *app) verifyData(ctx context.Context, o verifyOptions) error {
	id, err := identity.Read(o.data)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return &noDirectoryError{o.data}
	case err != nil:
		return err
	}
	cache := pebble.NewCache(verifyCacheBytes)
	defer cache.Unref()
	// All states are opened before any is audited: a refusal comes at once, and no node starts
	// meanwhile.
	var states []*fsm.ReadOnly
	defer func() {
		for _, s := range states {
			_ = s.Close() // it was only read
		}
	}()
	for _, store := range id.StateStores(o.data) {
		s, err := fsm.OpenReadOnly(store.Dir, fsm.Options{Cache: cache, Stamp: store.Stamp})
		if err != nil {
			return err
		}
		states = append(states, s)
	}
	d := &dataVerification{states: states, progress: a.newProgress()}
	inOrder, err := repair.StoppedInOrder(o.data)
	if err != nil {
		return err
	}
	if !inOrder {
		// The node was killed: its log holds what the states do not have yet.
		tmp, err := os.MkdirTemp("", "perdure-verify-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(tmp) }()
		if d.log, err = repair.CopyLogs(id, o.data, filepath.Join(tmp, "log")); err != nil {
			return err
		}
		defer func() { _ = d.log.Close() }() // it is only a copy
	}
	v, err := d.run(ctx, o.parallel)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	// Print what could be audited even if a store turned out to be damaged.
	return errors.Join(err, a.deliver(v))
}

// dataVerification audits the states of a data directory.
type dataVerification struct {
	states []*fsm.ReadOnly
	// log holds what the states do not have yet; nil if they have everything.
	log      *repair.LogCopy
	progress *progress
	// seen counts keys, replayed log entries.
	seen, replayed atomic.Uint64
}

// run audits all states, several at a time, and sums up. The error names the stores that could not be audited.
func (d *dataVerification) run(ctx context.Context, parallel int) (verdict, error) {
	var (
		reports = make([]*audit.Report, len(d.states))
		errs    = make([]error, len(d.states))
		slots   = make(chan struct{}, parallel)
		wg      sync.WaitGroup
	)
	for p := range d.states {
		wg.Add(1)
		go func() {
			defer wg.Done()
			slots <- struct{}{}
			defer func() { <-slots }()
			reports[p], errs[p] = d.audit(ctx, p)
		}()
	}
	wg.Wait()
	return verdictOn(reports, d.replayed.Load()), errors.Join(errs...)
}

// audit audits one state. With an error it may also return a report, of what could be read.
func (d *dataVerification) audit(ctx context.Context, p int) (report *audit.Report, err error) {
	cfg := machine.Config{Partition: uint32(p), Partitions: uint32(len(d.states))}
	check := func(r state.Reader) error {
		found, err := audit.Run(&watched{r, ctx, &d.seen, d.progress}, 0, state.Partition{Number: cfg.Partition, Count: cfg.Partitions})
		if err == nil {
			report = &found
		}
		return err
	}
	s := d.states[p]
	if d.log == nil {
		err = s.View(check)
		return report, err
	}
	err = s.Replay(cfg, func(apply func(uint64, []byte) error) error {
		return d.log.Commands(uint32(p), s.Status(), func(index uint64, data []byte) error {
			n := d.replayed.Add(1)
			d.progress.at(func() string { return fmt.Sprintf("%d log entries so far", n) })
			return errors.Join(ctx.Err(), apply(index, data))
		})
	}, check)
	if err != nil && report == nil && ctx.Err() == nil {
		// The state itself may show why the log cannot be applied to it.
		err = errors.Join(err, s.View(check))
	}
	return report, err
}

// watched is a state that is readable until ctx ends and whose reads print progress.
type watched struct {
	state.Reader
	ctx      context.Context
	seen     *atomic.Uint64
	progress *progress
}

// Get implements state.Reader.
func (w *watched) Get(key []byte) ([]byte, bool, error) {
	if err := w.ctx.Err(); err != nil {
		return nil, false, err
	}
	return w.Reader.Get(key)
}

// Scan implements state.Reader.
func (w *watched) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	const tellEvery = 1024
	var stopped error
	err := w.Reader.Scan(lower, upper, func(key, value []byte) bool {
		if n := w.seen.Add(1); n%tellEvery == 0 {
			w.progress.at(func() string { return fmt.Sprintf("%d keys so far", n) })
		}
		if stopped = w.ctx.Err(); stopped != nil {
			return false
		}
		return fn(key, value)
	})
	return errors.Join(err, stopped)
}

// verdictOn sums up the reports of all partitions.
func verdictOn(reports []*audit.Report, replayed uint64) verdict {
	var sum audit.Report
	var v verdict
	for p, r := range reports {
		if r == nil {
			continue
		}
		sum.Namespaces = append(sum.Namespaces, r.Namespaces...)
		sum.Executions += r.Executions
		sum.Open += r.Open
		sum.Events += r.Events
		sum.Promises += r.Promises
		sum.Tasks += r.Tasks
		sum.Callbacks += r.Callbacks
		sum.Messages += r.Messages
		for _, violation := range r.Violations {
			v.findings = append(v.findings, finding{Violation: violation, partition: p})
		}
	}
	slices.Sort(sum.Namespaces)
	v.counts = []count{
		{"partitions", len(reports)}, {"namespaces", names(slices.Compact(sum.Namespaces))}, {"executions", sum.Executions},
		{"open", sum.Open}, {"events", sum.Events}, {"promises", sum.Promises}, {"tasks", sum.Tasks},
		{"callbacks", sum.Callbacks}, {"messages", sum.Messages}, {"replayed", replayed},
	}
	return v
}
