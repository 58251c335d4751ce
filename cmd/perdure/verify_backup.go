package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"

	"perdure/backup"
	cutrules "perdure/cut"
	"perdure/fsm"
	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

const (
	// ruleCut: the states of a backup are of one cut (package cut).
	ruleCut = "cut"
	// ruleBackupIndex: a state of a backup is at the index that the manifest says.
	ruleBackupIndex = "backup_index"
)

// verifyBackup checks the files of a backup, then its states by all rules.
func (a *app) verifyBackup(ctx context.Context, location string, args []string, parallel int) error {
	store, err := a.openStore(location)
	if err != nil {
		return err
	}
	name, err := backupName(ctx, store, args)
	if err != nil {
		return err
	}
	m, err := backup.Read(ctx, store, name)
	if damaged := (*backup.DamagedError)(nil); err != nil && !errors.As(err, &damaged) {
		return err
	}
	problems, err := a.checkBackup(ctx, store, name)
	if err != nil {
		return err
	}
	if len(problems) > 0 {
		return errors.Join(a.printProblems(name, problems), &damagedBackupError{name, problems})
	}
	tmp, err := os.MkdirTemp("", "perdure-verify-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	cache := pebble.NewCache(verifyCacheBytes)
	defer cache.Unref()
	b := &backupVerification{store: store, m: m, tmp: tmp, cache: cache, progress: a.newProgress(), ends: make([]channelEnds, len(m.States))}
	v, err := b.run(ctx, parallel)
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return errors.Join(err, a.deliver(v))
}

// channelEnds are one partition's ends of its channels with each other partition.
type channelEnds struct{ sent, first, received []cutrules.End }

// backupVerification audits the states of a backup.
type backupVerification struct {
	store    backup.Store
	m        *backup.Manifest
	tmp      string
	cache    *pebble.Cache
	progress *progress
	seen     atomic.Uint64
	// ends has those of each partition whose state could be read.
	ends []channelEnds
}

// run audits so many states at a time and compares them with each other.
func (b *backupVerification) run(ctx context.Context, parallel int) (verdict, error) {
	var (
		reports = make([]*audit.Report, len(b.m.States))
		errs    = make([]error, len(b.m.States))
		slots   = make(chan struct{}, parallel)
		wg      sync.WaitGroup
	)
	for p := range b.m.States {
		wg.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			reports[p], errs[p] = b.audit(ctx, p)
		})
	}
	wg.Wait()
	v := verdictOn(reports, 0)
	for p, s := range b.m.States {
		v.findings = append(v.findings, b.pairs(p, s)...)
	}
	return v, errors.Join(errs...)
}

// pairs checks the channels from a partition to all others.
func (b *backupVerification) pairs(src int, s backup.State) (out []finding) {
	if b.ends[src].sent == nil {
		return nil // it could not be read
	}
	for dst := range b.m.States {
		if dst == src || b.ends[dst].received == nil {
			continue
		}
		c := cutrules.Channel{Sent: b.ends[src].sent[dst], First: b.ends[src].first[dst], Received: b.ends[dst].received[src]}
		if err := c.Check(); err != nil {
			out = append(out, finding{partition: int(s.Partition), Violation: audit.Violation{Rule: ruleCut,
				Detail: fmt.Sprintf("from partition %d to %d: %v", src, dst, err)}})
		}
	}
	return out
}

// audit fetches one state, audits it, and deletes what it fetched.
func (b *backupVerification) audit(ctx context.Context, p int) (report *audit.Report, err error) {
	s := b.m.States[p]
	dir := filepath.Join(b.tmp, fmt.Sprintf("state-%04d", p))
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := fetchState(ctx, b.store, s, dir, nil); err != nil {
		return nil, err
	}
	opened, err := fsm.OpenCheckpoint(dir, fsm.Options{Cache: b.cache})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, opened.Close()) }()
	err = opened.View(func(r state.Reader) error {
		w := &watched{r, ctx, &b.seen, b.progress}
		found, err := audit.Run(w, 0, state.Partition{Number: uint32(p), Count: b.m.Partitions})
		if err != nil {
			return err
		}
		report = &found
		b.ends[p], err = readEnds(w, len(b.m.States))
		return err
	})
	if at := opened.Status().Applied; report != nil && at != s.Index {
		report.Violations = append(report.Violations, audit.Violation{Rule: ruleBackupIndex, Detail: fmt.Sprintf("the state is at index %d, the manifest says %d", at, s.Index)})
	}
	return report, err
}

// fetchState makes a copied state in a folder: its files, then what was changed since.
func fetchState(ctx context.Context, store backup.Store, s backup.State, dir string, fetched func(bytes int64)) error {
	if err := backup.Fetch(ctx, store, s, dir, fetched); err != nil {
		return err
	}
	ingest := func(db *pebble.DB, path string) error { return db.Ingest(ctx, []string{path}) }
	for _, d := range s.Deltas {
		path := filepath.Join(dir, d.Name)
		if err := fsm.ApplyDelta(dir, path, d.From, d.To, ingest, fsm.Options{}); err != nil {
			return fmt.Errorf("partition %d, file %s: %w", s.Partition, d.Name, err)
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// readEnds reads a partition's ends of the channels with each of so many partitions.
func readEnds(r state.Reader, partitions int) (channelEnds, error) {
	e := channelEnds{make([]cutrules.End, partitions), make([]cutrules.End, partitions), make([]cutrules.End, partitions)}
	for other := range uint32(partitions) {
		sent, err := state.ReadChannel(r, keys.Number(keys.Channel, other))
		if err != nil {
			return e, err
		}
		received, err := state.ReadChannel(r, keys.Number(keys.Inbox, other))
		if err != nil {
			return e, err
		}
		e.sent[other] = cutrules.End{Epoch: sent.Epoch, Last: sent.Last}
		e.received[other] = cutrules.End{Epoch: received.Epoch, Last: received.Last}
		e.first[other] = cutrules.End{Epoch: sent.Epoch, Last: sent.Last + 1}
		box := keys.Number(keys.Outbox, other)
		bad := error(nil)
		err = r.Scan(box, keys.After(box), func(key, _ []byte) bool {
			e.first[other], bad = messageAt(key[len(box):])
			return false
		})
		if err = errors.Join(err, bad); err != nil {
			return e, err
		}
	}
	return e, nil
}

// messageAt reads the end of an outbox key.
func messageAt(rest []byte) (cutrules.End, error) {
	epoch, rest, err := keys.CutUint64(rest)
	if err != nil {
		return cutrules.End{}, err
	}
	last, _, err := keys.CutUint64(rest)
	return cutrules.End{Epoch: epoch, Last: last}, err
}
