package raftlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// CacheOptions bound a Cache.
type CacheOptions struct {
	// Bytes bounds the data of the entries in memory, Entries their number; 8 MiB and 512 if 0. An entry larger
	// than Bytes is not cached.
	Bytes, Entries int
	// Refer is the size in bytes above which GetLog returns a reference instead of a command entry: see
	// Reference. 0 returns every entry whole.
	Refer int
	// Sizes is how many entries' terms and sizes are remembered, 32 bytes each; 8,192 if 0.
	Sizes int
	// Overlap reports that StoreLogs may return before commands are synced: this server leads, and relies on its own
	// copy of them after AwaitSync only. It must not block. Nil for never.
	Overlap func() bool
	// OnStored is called after entries were stored, with their number and the bytes of their data. It runs on Raft's
	// main loop and must not block. Nil for none.
	OnStored func(entries int, bytes int64)
}

// Cache is a layer between Raft and a Log. It replaces raft.NewLogCache, which counts entries and not bytes,
// and which keeps everything that a proposal's future holds, its response included, for the next 512 entries.
//
// Raft reads up to MaxAppendEntries entries into memory for each message to a follower, and up to 128 batches of as
// many for the state machine, whatever their size. So above CacheOptions.Refer GetLog answers a reference: the entry
// without its data. Load reads the data when a message is sent or an entry is applied:
//
//	_ = cache.GetLog(i, &l)          // Raft: index, term and type are the entry's
//	size := raftlog.SizeOf(&l)       // transport, state machine: stop at a bound of bytes
//	whole, err := cache.Load(&l)     // the entry itself, or raft.ErrLogNotFound if it was deleted
//
// A reference is never stored and never sent: StoreLogs refuses it.
type Cache struct {
	log  Log
	opts CacheOptions

	mu sync.Mutex
	// recent holds whole entries by index modulo its length, order their indexes in the order they came, oldest first.
	// 0 <= bytes <= opts.Bytes.
	recent []raft.Log
	order  []uint64
	bytes  int
	// heads holds what a reference needs, by index modulo its length.
	heads []head
	// last is the index of the log's last entry.
	last uint64
	// changes counts deletions: what a reader read before one is not remembered after it.
	changes uint64

	loaded atomic.Int64
	// failed: an append was shown to readers and then not synced.
	failed atomic.Bool
}

// head is an entry without its data. Index 0 is none.
type head struct {
	index, term uint64
	size        int
	kind        raft.LogType
}

var (
	_ raft.LogStore          = (*Cache)(nil)
	_ raft.MonotonicLogStore = (*Cache)(nil)
)

// NewCache makes a cache in front of a log. All use of the log must go through it. It reads the log's bounds.
func NewCache(log Log, opts CacheOptions) *Cache {
	if opts.Bytes == 0 {
		opts.Bytes = 8 << 20
	}
	if opts.Entries == 0 {
		opts.Entries = 512
	}
	if opts.Sizes == 0 {
		opts.Sizes = 8192
	}
	c := &Cache{log: log, opts: opts, recent: make([]raft.Log, opts.Entries), heads: make([]head, opts.Sizes)}
	if last, err := log.LastIndex(); err == nil { // Raft asks again, and meets the error
		c.last = last
	}
	return c
}

// A reference's Extensions: the mark, then the size of the entry's data. No entry of this program has extensions.
const (
	referenceMark = "perdure/reference\x00"
	referenceLen  = len(referenceMark) + 8
)

// Reference reports whether l is a reference to an entry whose data was not read, and the size of that data
// in bytes.
func Reference(l *raft.Log) (size int, is bool) {
	if len(l.Extensions) != referenceLen || string(l.Extensions[:len(referenceMark)]) != referenceMark {
		return 0, false
	}
	return int(binary.BigEndian.Uint64(l.Extensions[len(referenceMark):])), true
}

// SizeOf is the size in bytes of an entry's data and extensions, whether it was read or not.
func SizeOf(l *raft.Log) int {
	if size, is := Reference(l); is {
		return size
	}
	return len(l.Data) + len(l.Extensions)
}

func (h *head) reference() raft.Log {
	ext := make([]byte, 0, referenceLen)
	ext = binary.BigEndian.AppendUint64(append(ext, referenceMark...), uint64(h.size))
	return raft.Log{Index: h.index, Term: h.term, Type: h.kind, Extensions: ext}
}

// IsMonotonic is the log's.
func (c *Cache) IsMonotonic() bool { return c.log.IsMonotonic() }

// FirstIndex is the log's.
func (c *Cache) FirstIndex() (uint64, error) { return c.log.FirstIndex() }

// LastIndex is the log's.
func (c *Cache) LastIndex() (uint64, error) { return c.log.LastIndex() }

// refers reports whether an entry is returned as a reference.
func (c *Cache) refers(h *head) bool {
	return c.opts.Refer > 0 && h.kind == raft.LogCommand && h.size > c.opts.Refer
}

var errNotSynced = errors.New("raftlog: the log could not be synced")

// AwaitSync blocks until all entries up to an index are durable. After a failure nothing is read any more.
func (c *Cache) AwaitSync(index uint64) error {
	err := c.log.AwaitSync(index)
	if err != nil {
		c.failed.Store(true)
	}
	return err
}

// Synced is the log's.
func (c *Cache) Synced(index uint64) uint64 { return c.log.Synced(index) }

// GetLog reads one entry, or a reference to it. Errors are the log's.
func (c *Cache) GetLog(index uint64, out *raft.Log) error {
	if c.failed.Load() {
		return errNotSynced
	}
	c.mu.Lock()
	if h := &c.heads[index%uint64(len(c.heads))]; h.index == index && index != 0 && c.refers(h) {
		*out = h.reference()
		c.mu.Unlock()
		return nil
	}
	if l := &c.recent[index%uint64(len(c.recent))]; l.Index == index && index != 0 {
		*out = *l
		c.mu.Unlock()
		return nil
	}
	c.mu.Unlock()
	var whole raft.Log
	if err := c.read(index, &whole); err != nil {
		return err
	}
	if h := headOf(&whole); c.refers(&h) {
		whole = h.reference()
	}
	*out = whole
	return nil
}

// read reads a whole entry from the log and remembers it.
func (c *Cache) read(index uint64, out *raft.Log) error {
	c.mu.Lock()
	changes := c.changes
	c.mu.Unlock()
	if err := c.log.GetLog(index, out); err != nil {
		return err
	}
	c.loaded.Add(int64(len(out.Data)))
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.changes == changes {
		c.remember(out)
	}
	return nil
}

// Load returns the entry that l refers to: l itself unless it is a reference. The error is
// raft.ErrLogNotFound if the entry was deleted meanwhile, or another one has its index. The entry's bytes are
// shared: do not change them.
func (c *Cache) Load(l *raft.Log) (*raft.Log, error) {
	if _, is := Reference(l); !is {
		return l, nil
	}
	whole := new(raft.Log)
	c.mu.Lock()
	if have := &c.recent[l.Index%uint64(len(c.recent))]; have.Index == l.Index {
		*whole = *have
	}
	c.mu.Unlock()
	if whole.Index == 0 {
		if err := c.read(l.Index, whole); err != nil {
			return nil, err
		}
	}
	if whole.Term != l.Term {
		return nil, fmt.Errorf("entry %d of term %d was replaced by one of term %d: %w", l.Index, l.Term, whole.Term, raft.ErrLogNotFound)
	}
	return whole, nil
}

// StoreLog is StoreLogs of one entry.
func (c *Cache) StoreLog(l *raft.Log) error { return c.StoreLogs([]*raft.Log{l}) }

var errStoreReference = errors.New("raftlog: a reference to an entry is not the entry, and is not stored")

// StoreLogs appends entries to the log, durably unless they may overlap, and remembers them.
func (c *Cache) StoreLogs(logs []*raft.Log) error {
	commands := true
	for _, l := range logs {
		if _, is := Reference(l); is {
			return fmt.Errorf("%w: index %d", errStoreReference, l.Index)
		}
		commands = commands && l.Type == raft.LogCommand
	}
	store := c.log.StoreLogs
	if commands && c.opts.Overlap != nil && c.opts.Overlap() {
		store = c.log.StoreUnsynced
	}
	if err := store(logs); err != nil {
		return err
	}
	bytes := int64(0)
	c.mu.Lock()
	for _, l := range logs {
		if l.Index != c.last+1 {
			c.forget(1, ^uint64(0)) // the log may have restarted behind a gap
		}
		c.remember(l)
		c.last = l.Index
		bytes += int64(len(l.Data))
	}
	c.mu.Unlock()
	if c.opts.OnStored != nil {
		c.opts.OnStored(len(logs), bytes)
	}
	return nil
}

// DeleteRange deletes entries from the log, durably.
func (c *Cache) DeleteRange(min, max uint64) error {
	c.deleting(min, max)
	err := c.log.DeleteRange(min, max)
	c.deleting(min, max) // what was read until now
	return err
}

func (c *Cache) deleting(min, max uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.changes++
	c.forget(min, max)
}

func headOf(l *raft.Log) head { return head{l.Index, l.Term, len(l.Data), l.Type} }

// remember keeps an entry's head, and the entry if it is not too large. It copies the struct, since l may be
// part of a larger object that must stay collectable. The caller holds mu.
func (c *Cache) remember(l *raft.Log) {
	c.heads[l.Index%uint64(len(c.heads))] = headOf(l)
	slot := &c.recent[l.Index%uint64(len(c.recent))]
	c.bytes -= len(slot.Data)
	*slot = raft.Log{}
	if len(l.Data) > c.opts.Bytes {
		return
	}
	*slot = *l
	c.bytes += len(l.Data)
	c.order = append(c.order, l.Index)
	for c.bytes > c.opts.Bytes || len(c.order) > len(c.recent) {
		oldest := &c.recent[c.order[0]%uint64(len(c.recent))]
		if oldest.Index == c.order[0] && oldest != slot {
			c.bytes -= len(oldest.Data)
			*oldest = raft.Log{}
		}
		c.order = c.order[1:]
	}
}

// forget drops what is remembered of min..max. The caller holds mu.
func (c *Cache) forget(min, max uint64) {
	in := func(index uint64) bool { return min <= index && index <= max }
	for i := range c.heads {
		if c.heads[i].index != 0 && in(c.heads[i].index) {
			c.heads[i] = head{}
		}
	}
	for i := range c.recent {
		if l := &c.recent[i]; l.Index != 0 && in(l.Index) {
			c.bytes -= len(l.Data)
			*l = raft.Log{}
		}
	}
	if in(c.last) {
		c.last = min - 1
	}
}

// Trailing returns how many of the log's last entries take at most bytes together, limit at most. An entry whose size
// is not remembered counts for unknown bytes.
func (c *Cache) Trailing(bytes int64, limit uint64, unknown int64) (uint64, error) {
	last, err := c.log.LastIndex()
	if err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	n := uint64(0)
	for ; n < limit && n < last; n++ {
		size := unknown
		if h := &c.heads[(last-n)%uint64(len(c.heads))]; h.index == last-n {
			size = int64(h.size)
		}
		if bytes -= size; bytes < 0 {
			break
		}
	}
	return n, nil
}

// BytesAfter is the data of the remembered entries above an index.
func (c *Cache) BytesAfter(index uint64) (bytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i := range c.heads {
		if c.heads[i].index > index {
			bytes += int64(c.heads[i].size)
		}
	}
	return bytes
}

// CacheStats counts the entries that a Cache holds, and its reads.
type CacheStats struct {
	// Bytes is the data of the entries in memory, Entries their number.
	Bytes, Entries int
	// Read is the data in bytes that was read from the log since the start.
	Read int64
}

// Stats returns the figures. It does not block.
func (c *Cache) Stats() CacheStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := CacheStats{Bytes: c.bytes, Read: c.loaded.Load()}
	for i := range c.recent {
		if c.recent[i].Index != 0 {
			s.Entries++
		}
	}
	return s
}
