package raftlog

import (
	"bytes"
	"errors"
	"testing"

	"github.com/hashicorp/raft"
)

func entriesOf(from, to, term uint64, size int) (out []*raft.Log) {
	for i := from; i <= to; i++ {
		out = append(out, &raft.Log{Index: i, Term: term, Data: bytes.Repeat([]byte{byte(i)}, size)})
	}
	return out
}

func newCache(t *testing.T, opts CacheOptions) (*Cache, *countingLog) {
	t.Helper()
	log := &countingLog{Log: openMem(t).Group(1)}
	return NewCache(log, opts), log
}

// countingLog counts the bytes that are read from a log, and lets a test act in the middle of a read.
type countingLog struct {
	Log
	read   int
	midway func()
}

func (l *countingLog) GetLog(index uint64, out *raft.Log) error {
	err := l.Log.GetLog(index, out)
	l.read += len(out.Data)
	if l.midway != nil {
		l.midway()
	}
	return err
}

func noErr(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// The cached entries are bounded by bytes, for any number, and by number, for any size.
func TestCacheBounds(t *testing.T) {
	c, log := newCache(t, CacheOptions{Bytes: 1 << 20, Entries: 64})
	for i := range uint64(40) {
		noErr(t, c.StoreLogs(entriesOf(i+1, i+1, 1, 300<<10)))
		if s := c.Stats(); s.Bytes > 1<<20 || s.Bytes != s.Entries*300<<10 {
			t.Fatalf("%d bytes of %d entries are kept, the bound is %d", s.Bytes, s.Entries, 1<<20)
		}
	}
	var l raft.Log
	for i := uint64(38); i <= 40; i++ {
		noErr(t, c.GetLog(i, &l))
	}
	if log.read != 0 {
		t.Errorf("the last entries were read again: %d bytes", log.read)
	}
	noErr(t, c.GetLog(1, &l))
	if log.read != 300<<10 {
		t.Errorf("the first entry was not read from the log: %d bytes", log.read)
	}
	noErr(t, c.StoreLogs(entriesOf(41, 300, 1, 10)))
	if s := c.Stats(); s.Entries > 64 {
		t.Errorf("%d entries are kept, the bound is 64", s.Entries)
	}
	// One above the bound is not cached, and does not evict the others.
	before := c.Stats()
	noErr(t, c.StoreLogs(entriesOf(301, 301, 1, 2<<20)))
	if s := c.Stats(); s.Entries < before.Entries-1 || s.Bytes > 1<<20 {
		t.Errorf("%+v after one that is too large, before it %+v", s, before)
	}
}

// 256 entries of 64 KiB, as for one message to a follower, bring no data into memory until they are loaded.
func TestCacheHandsOutReferences(t *testing.T) {
	stored := int64(0)
	c, log := newCache(t, CacheOptions{Bytes: 1 << 20, Refer: 16 << 10, OnStored: func(n int, bytes int64) { stored += bytes }})
	noErr(t, c.StoreLogs(entriesOf(1, 256, 3, 64<<10)))
	noErr(t, c.StoreLogs(append(entriesOf(257, 257, 3, 16<<10), &raft.Log{Index: 258, Term: 3, Type: raft.LogConfiguration, Data: make([]byte, 32<<10)})))
	if stored != 256*64<<10+16<<10+32<<10 {
		t.Errorf("%d bytes were stored", stored)
	}
	handed := 0
	var refs []raft.Log
	for i := uint64(1); i <= 256; i++ {
		var l raft.Log
		noErr(t, c.GetLog(i, &l))
		handed += len(l.Data)
		if size, is := Reference(&l); !is || size != 64<<10 || SizeOf(&l) != size || l.Index != i || l.Term != 3 {
			t.Fatalf("entry %d is handed out as %+v", i, l)
		}
		refs = append(refs, l)
	}
	if handed != 0 || log.read != 0 {
		t.Errorf("%d bytes were handed out, %d read", handed, log.read)
	}
	for i := range refs {
		whole, err := c.Load(&refs[i])
		noErr(t, err)
		if !bytes.Equal(whole.Data, bytes.Repeat([]byte{byte(i + 1)}, 64<<10)) || whole.Term != 3 || len(whole.Extensions) != 0 {
			t.Fatalf("entry %d is loaded as another", i+1)
		}
	}
	// Small entries, and those that Raft itself reads, are returned whole.
	for _, i := range []uint64{257, 258} {
		var l raft.Log
		noErr(t, c.GetLog(i, &l))
		if _, is := Reference(&l); is || len(l.Data) == 0 {
			t.Errorf("entry %d is a reference", i)
		}
	}
	if err := c.StoreLogs([]*raft.Log{{Index: 259, Term: 3, Extensions: refs[0].Extensions}}); !errors.Is(err, errStoreReference) {
		t.Errorf("a reference is stored: %v", err)
	}
	// After a restart the entries are found in the log, the first time whole.
	again := NewCache(log, CacheOptions{Bytes: 1 << 20, Refer: 16 << 10})
	var l raft.Log
	noErr(t, again.GetLog(7, &l))
	if _, is := Reference(&l); !is || l.Term != 3 {
		t.Errorf("after a restart entry 7 is %+v", l)
	}
}

// A reference to an entry that was cut off, or overwritten, is not taken for what is there now.
func TestCacheForgets(t *testing.T) {
	c, log := newCache(t, CacheOptions{Bytes: 1 << 20, Refer: 1})
	noErr(t, c.StoreLogs(entriesOf(1, 20, 1, 100)))
	var first, fifteenth raft.Log
	noErr(t, c.GetLog(1, &first))
	noErr(t, c.GetLog(15, &fifteenth))
	noErr(t, c.DeleteRange(1, 5))
	noErr(t, c.DeleteRange(15, 20))
	for _, l := range []raft.Log{first, fifteenth} {
		if _, err := c.Load(&l); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("entry %d, deleted, is loaded: %v", l.Index, err)
		}
		if err := c.GetLog(l.Index, &raft.Log{}); !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("entry %d, deleted, is there: %v", l.Index, err)
		}
	}
	noErr(t, c.StoreLogs(entriesOf(15, 16, 2, 100)))
	if _, err := c.Load(&fifteenth); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("a reference of term 1 gives an entry of term 2: %v", err)
	}
	// An entry that was read before it was replaced is not remembered after it.
	again := NewCache(log, CacheOptions{Bytes: 1 << 20, Refer: 1})
	log.midway = func() {
		log.midway = nil
		noErr(t, again.DeleteRange(16, 16))
		noErr(t, again.StoreLogs(entriesOf(16, 16, 3, 100)))
	}
	var l raft.Log
	noErr(t, again.GetLog(16, &l)) // of term 2, as it was then
	noErr(t, again.GetLog(16, &l))
	if l.Term != 3 {
		t.Errorf("entry 16 is of term %d, the log has 3", l.Term)
	}
	// A log that restarts behind a gap.
	noErr(t, again.StoreLogs(entriesOf(100, 101, 4, 100)))
	if err := again.GetLog(10, &l); !errors.Is(err, raft.ErrLogNotFound) {
		t.Errorf("entry 10 is there after the log restarted at 100: %v", err)
	}
}

// Trailing counts as many last entries as fit into the bytes.
func TestCacheTrailing(t *testing.T) {
	c, log := newCache(t, CacheOptions{Bytes: 1 << 10, Sizes: 64})
	noErr(t, c.StoreLogs(entriesOf(1, 100, 1, 10)))
	noErr(t, c.StoreLogs(entriesOf(101, 110, 1, 1000)))
	for _, v := range []struct {
		bytes       int64
		limit, want uint64
	}{{0, 100, 0}, {999, 100, 0}, {1000, 100, 1}, {10_000, 100, 10}, {10_100, 100, 20}, {10_100, 5, 5}, {10_540, 100, 64}, {10_550, 100, 65}, {1 << 30, 1 << 30, 110}} {
		n, err := c.Trailing(v.bytes, v.limit, 10)
		if err != nil || n != v.want {
			t.Errorf("%d entries fit into %d bytes, %d at most: want %d, %v", n, v.bytes, v.limit, v.want, err)
		}
	}
	if n, err := NewCache(log, CacheOptions{}).Trailing(5000, 100, 100); n != 50 || err != nil {
		t.Errorf("%d entries of unknown size, %v", n, err)
	}
	if n := c.BytesAfter(105); n != 5000 {
		t.Errorf("%d bytes after entry 105", n)
	}
}
