package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
	"github.com/hashicorp/go-hclog"

	"perdure/internal/pebbleopen"
)

// pebbleFormat is the rung of Pebble's format ladder that stores are made at; the newest of v2.1.7. It
// is named, not "newest", because a store that climbed can no longer be opened by an older program:
// raising it is a decision.
const pebbleFormat = pebble.FormatValueSeparation

// maxManifestBytes bounds the MANIFEST before Pebble starts another; a new seal reads what was added.
const maxManifestBytes = 4 << 20

type pebbleDriver struct {
	db       *pebble.DB
	manifest *manifestReader
	// synced is the sequence number below which everything is on disk.
	synced atomic.Uint64
}

// openPebble opens the store in dir, after its MANIFEST was compared with the seal.
func openPebble(dir string, opts Options, fresh bool, hooks hooks) (d driver, err error) {
	memTable := opts.MemTableBytes
	if memTable == 0 {
		memTable = 64 << 20
	}
	manifest := &manifestReader{fs: opts.FS, dir: dir}
	log := &pebbleLogger{log: opts.Logger, fatal: hooks.fatal}
	po := &pebble.Options{
		FS:                          zeroAheadFS{opts.FS},
		Cache:                       opts.Cache,
		FormatMajorVersion:          pebbleFormat,
		MemTableSize:                memTable,
		MemTableStopWritesThreshold: 2,
		MaxManifestFileSize:         maxManifestBytes,
		Logger:                      log,
		ErrorIfNotExists:            !fresh,
		ErrorIfExists:               fresh,
		EventListener: &pebble.EventListener{
			BackgroundError: func(err error) {
				if errors.Is(err, syscall.ENOSPC) {
					log.Infof("background: %v", err) // Pebble tries again, and the disk's Guard reports the full disk
					return
				}
				log.Errorf("background: %v", err)
			},
			// Readers get the error too; Pebble's default would end the process.
			DataCorruption:  func(info pebble.DataCorruptionInfo) { log.Errorf("%v", info) },
			FlushEnd:        func(pebble.FlushInfo) { hooks.flushed(manifest.read()) },
			CompactionEnd:   func(pebble.CompactionInfo) { hooks.changed() },
			ManifestCreated: func(pebble.ManifestCreateInfo) { hooks.changed() },
			WALCreated:      func(pebble.WALCreateInfo) { hooks.changed() },
		},
	}
	// Some damage makes Pebble panic while it replays.
	defer func() {
		if r := recover(); r != nil {
			err = &CorruptError{Detail: "does not open", Err: fmt.Errorf("%v", r)}
		}
	}()
	db, err := pebbleopen.Open(dir, po)
	if err != nil {
		// Files that must be there are missing, or there are some where there must be none.
		if (!fresh && notExist(err)) || errors.Is(err, pebble.ErrDBNotPristine) {
			return nil, &CorruptError{Detail: "does not open", Err: err}
		}
		return nil, pebbleErr("does not open", err)
	}
	return &pebbleDriver{db: db, manifest: manifest}, nil
}

// pebbleErr turns what Pebble calls corruption into a CorruptError.
func pebbleErr(detail string, err error) error {
	if err == nil {
		return nil
	}
	if pebble.IsCorruptionError(err) {
		return &CorruptError{Detail: detail, Err: err}
	}
	return fmt.Errorf("raftlog: pebble: %w", err)
}

func groupPrefix(group uint32) []byte {
	b := make([]byte, 5)
	b[0] = familyEntry
	binary.BigEndian.PutUint32(b[1:], group)
	return b
}

// upper is the smallest key above every key of family, group, index.
func upper(group uint32, index uint64) []byte {
	return append(entryKey(group, index), 0)
}

func (d *pebbleDriver) append(group uint32, restart bool, recs []record) error {
	b, err := d.entries(group, restart, recs)
	if err != nil {
		return err
	}
	defer b.Close()
	return d.commit(b)
}

func (d *pebbleDriver) write(group uint32, recs []record) (wait func() error, err error) {
	b, err := d.entries(group, false, recs)
	if err != nil {
		return nil, err
	}
	if err := d.apply(func() error { return d.db.ApplyNoSyncWait(b, pebble.Sync) }); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return func() error {
		if err := b.SyncWait(); err != nil {
			return pebbleErr("sync", err)
		}
		d.durable(b)
		return b.Close()
	}, nil
}

// entries is a batch that stores consecutive entries.
func (d *pebbleDriver) entries(group uint32, restart bool, recs []record) (*pebble.Batch, error) {
	size := 0
	for _, r := range recs {
		size += entryKeyLen + r.size + 16
	}
	b, err := d.batch(size)
	if err != nil {
		return nil, err
	}
	if restart {
		if err := b.DeleteRange(entryKey(group, 0), entryKey(group, recs[0].log.Index), nil); err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	for _, r := range recs {
		op := b.SetDeferred(entryKeyLen, r.size)
		putEntryKey(op.Key, group, r.log.Index)
		encodeEntry(op.Value, op.Key, r.log)
		if err := op.Finish(); err != nil {
			return nil, errors.Join(err, b.Close())
		}
	}
	return b, nil
}

// batch begins a batch with a promise of what is on disk (records.go).
func (d *pebbleDriver) batch(size int) (*pebble.Batch, error) {
	b := d.db.NewBatchWithSize(recordHead + size)
	var promise [promiseBytes]byte
	binary.LittleEndian.PutUint64(promise[:], d.synced.Load())
	return b, b.LogData(promise[:], nil)
}

// commit returns when b, and with it every batch committed before it, is on disk.
func (d *pebbleDriver) commit(b *pebble.Batch) error {
	if err := d.apply(func() error { return b.Commit(pebble.Sync) }); err != nil {
		return err
	}
	d.durable(b)
	return nil
}

// apply has Pebble take a batch.
func (d *pebbleDriver) apply(do func() error) (err error) {
	// Pebble calls Fatalf when the commit fails. If OnFatal returned from that, so does apply.
	defer func() {
		if r := recover(); r != nil {
			var fatal *FatalError
			if e, ok := r.(error); !ok || !errors.As(e, &fatal) {
				panic(r)
			}
			err = fatal
		}
	}()
	return do()
}

// durable notes that b, and with it every batch committed before it, is on disk.
func (d *pebbleDriver) durable(b *pebble.Batch) {
	end := uint64(b.SeqNum()) + uint64(b.Count())
	for {
		now := d.synced.Load()
		if end <= now || d.synced.CompareAndSwap(now, end) {
			return
		}
	}
}

func (d *pebbleDriver) deleteRange(group uint32, from, to uint64) error {
	b, err := d.batch(64)
	if err != nil {
		return err
	}
	defer b.Close()
	if err := b.DeleteRange(entryKey(group, from), upper(group, to), nil); err != nil {
		return err
	}
	return d.commit(b)
}

func (d *pebbleDriver) drop(group uint32, unlist func() error) error {
	if err := unlist(); err != nil {
		return err
	}
	return d.deleteRange(group, 0, ^uint64(0))
}

func (d *pebbleDriver) get(group uint32, index uint64) ([]byte, error) {
	v, closer, err := d.db.Get(entryKey(group, index))
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		if pebble.IsCorruptionError(err) {
			return nil, &CorruptError{Group: group, HasGroup: true, Index: index, Detail: "entry cannot be read", Err: err}
		}
		return nil, fmt.Errorf("raftlog: pebble: %w", err)
	}
	out := append([]byte{}, v...)
	if err := closer.Close(); err != nil {
		return nil, fmt.Errorf("raftlog: pebble: %w", err)
	}
	return out, nil
}

func (d *pebbleDriver) scan(group uint32, from, to uint64, fn func(uint64, []byte) bool) (err error) {
	at := from
	defer func() {
		if err != nil && pebble.IsCorruptionError(err) {
			err = &CorruptError{Group: group, HasGroup: true, Index: at, Detail: "entry cannot be read", Err: err}
		}
	}()
	it, err := d.db.NewIter(&pebble.IterOptions{LowerBound: entryKey(group, from), UpperBound: upper(group, to)})
	if err != nil {
		return err
	}
	for ok := it.First(); ok; ok = it.Next() {
		_, index, valid := parseEntryKey(it.Key())
		if !valid {
			err := &CorruptError{Group: group, HasGroup: true, Detail: fmt.Sprintf("unknown key %x", it.Key())}
			_ = it.Close()
			return err
		}
		v, err := it.ValueAndErr()
		if err != nil {
			_ = it.Close()
			return err
		}
		if !fn(index, v) {
			break
		}
		at = index + 1
	}
	return it.Close()
}

func (d *pebbleDriver) bounds(group uint32) (first, last uint64, err error) {
	it, err := d.db.NewIter(&pebble.IterOptions{LowerBound: entryKey(group, 0), UpperBound: upper(group, ^uint64(0))})
	if err != nil {
		return 0, 0, pebbleErr("log cannot be read", err)
	}
	if it.First() {
		_, first, _ = parseEntryKey(it.Key())
	}
	if it.Last() {
		_, last, _ = parseEntryKey(it.Key())
	}
	if err := it.Close(); err != nil {
		if pebble.IsCorruptionError(err) {
			return 0, 0, &CorruptError{Group: group, HasGroup: true, Detail: "log cannot be read", Err: err}
		}
		return 0, 0, fmt.Errorf("raftlog: pebble: %w", err)
	}
	return first, last, nil
}

func (d *pebbleDriver) groups() ([]uint32, error) {
	it, err := d.db.NewIter(&pebble.IterOptions{LowerBound: []byte{familyEntry}, UpperBound: []byte{familyEntry + 1}})
	if err != nil {
		return nil, pebbleErr("cannot be read", err)
	}
	var out []uint32
	for ok := it.First(); ok; {
		g, _, valid := parseEntryKey(it.Key())
		if !valid {
			err := &CorruptError{Detail: fmt.Sprintf("unknown key %x", it.Key())}
			_ = it.Close()
			return nil, err
		}
		out = append(out, g)
		if g == ^uint32(0) {
			break
		}
		ok = it.SeekGE(groupPrefix(g + 1))
	}
	return out, pebbleErr("cannot be read", it.Close())
}

func (d *pebbleDriver) verify(uint32) error { return nil }

func (d *pebbleDriver) witness() (witness, error) { return d.manifest.read() }

func (d *pebbleDriver) close() error { return d.db.Close() }

// pebbleLogger passes Pebble's messages on and ends the process where Pebble would.
type pebbleLogger struct {
	log   hclog.Logger
	fatal func(error) error
}

func (l *pebbleLogger) Infof(format string, args ...any) {
	if l.log.IsDebug() {
		l.log.Debug(fmt.Sprintf(format, args...))
	}
}

func (l *pebbleLogger) Errorf(format string, args ...any) { l.log.Error(fmt.Sprintf(format, args...)) }

// Fatalf must not return: Pebble calls it where it cannot continue.
func (l *pebbleLogger) Fatalf(format string, args ...any) {
	panic(l.fatal(fmt.Errorf(format, args...)))
}
