package boltfile

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"io"
	"os"
)

// The layout of a bolt file (data format 2), in the byte order of the machine:
//
//	page header  id 8 | flags 2 | count 2 | overflow 4
//	meta         after the header of pages 0 and 1: magic 4 | version 4 | page size 4 | flags 4 |
//	             root 8 | sequence 8 | freelist 8 | high water 8 | transaction 8 | checksum 8
//	branch       count x (offset 4 | key size 4 | page 8), offsets from the element
//	leaf         count x (flags 4 | offset 4 | key size 4 | value size 4); flag 1 marks a bucket, whose value
//	             is root 8 | sequence 8, followed by a page when root is 0
//	freelist     page ids of 8 bytes; count 0xFFFF means that the first of them is the count
const (
	pageHeader   = 16
	metaBytes    = 64
	metaMagic    = 0xED0CDAED
	metaVersion  = 2
	branchFlag   = 0x01
	leafFlag     = 0x02
	freelistFlag = 0x10
	noFreelist   = ^uint64(0)
	bucketFlag   = 0x01

	maxDepth = 64
	maxPage  = 64 << 10
)

var order = binary.NativeEndian

// meta is one of the two roots of a file.
type meta struct {
	pageSize            uint32
	root, freelist      uint64
	highWater, transact uint64
}

// checker walks one file.
type checker struct {
	r        io.ReaderAt
	size     int64
	meta     meta
	reached  []uint64 // bitmap of pages
	reachedN uint64
}

// Check reads the whole structure of the bolt file at path without mapping it. The error is a *CorruptError,
// or what the file system said. The file must have no concurrent writer.
//
// It is stricter than bolt in one point: both meta pages must be valid. Bolt falls back to the older one
// and so forgets the last transaction; a meta page is less than a sector, so a crash does not tear it, and
// an invalid one is damage.
func Check(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	return check(f, info.Size(), path)
}

func check(r io.ReaderAt, size int64, path string) error {
	c := &checker{r: r, size: size}
	if err := c.run(); err != nil {
		return &CorruptError{Path: path, Detail: err.Error()}
	}
	return nil
}

func (c *checker) run() error {
	m0, err := c.readMeta(0)
	if err != nil {
		return fmt.Errorf("meta page 0: %w", err)
	}
	m1, err := c.readMeta(int64(m0.pageSize))
	if err != nil {
		return fmt.Errorf("meta page 1: %w", err)
	}
	c.meta = m0
	if m1.transact > m0.transact {
		c.meta = m1
	}
	if m0.pageSize != m1.pageSize {
		return fmt.Errorf("page sizes %d and %d", m0.pageSize, m1.pageSize)
	}
	if d := int64(m0.transact) - int64(m1.transact); d != 1 && d != -1 {
		return fmt.Errorf("meta pages are of transactions %d and %d", m0.transact, m1.transact)
	}
	pages := uint64(c.size) / uint64(c.meta.pageSize)
	if c.meta.highWater < 3 || c.meta.highWater > pages {
		return fmt.Errorf("%d pages in use, the file has %d", c.meta.highWater, pages)
	}
	c.reached = make([]uint64, c.meta.highWater/64+1)
	if err := c.mark(0, 0); err != nil {
		return err
	}
	if err := c.mark(1, 0); err != nil {
		return err
	}
	if _, err := c.page(c.meta.root, nil, nil, 0); err != nil {
		return err
	}
	if c.meta.freelist == noFreelist {
		return nil
	}
	if err := c.free(); err != nil {
		return err
	}
	if c.reachedN != c.meta.highWater {
		return fmt.Errorf("%d of %d pages are neither used nor free", c.meta.highWater-c.reachedN, c.meta.highWater)
	}
	return nil
}

func (c *checker) readMeta(offset int64) (meta, error) {
	var b [pageHeader + metaBytes]byte
	if _, err := c.r.ReadAt(b[:], offset); err != nil {
		return meta{}, err
	}
	p := b[pageHeader:]
	h := fnv.New64a()
	_, _ = h.Write(p[:56])
	switch {
	case order.Uint32(p) != metaMagic:
		return meta{}, fmt.Errorf("magic %#x", order.Uint32(p))
	case h.Sum64() != order.Uint64(p[56:]):
		return meta{}, fmt.Errorf("checksum mismatch")
	case order.Uint32(p[4:]) != metaVersion:
		return meta{}, fmt.Errorf("version %d", order.Uint32(p[4:]))
	}
	m := meta{
		pageSize:  order.Uint32(p[8:]),
		root:      order.Uint64(p[16:]),
		freelist:  order.Uint64(p[32:]),
		highWater: order.Uint64(p[40:]),
		transact:  order.Uint64(p[48:]),
	}
	if m.pageSize < 512 || m.pageSize > maxPage || m.pageSize&(m.pageSize-1) != 0 {
		return meta{}, fmt.Errorf("page size %d", m.pageSize)
	}
	return m, nil
}

// mark notes that a page and its overflow are in use; each may be so once.
func (c *checker) mark(id, overflow uint64) error {
	for p := id; p <= id+overflow; p++ {
		if c.reached[p/64]&(1<<(p%64)) != 0 {
			return fmt.Errorf("page %d is used twice", p)
		}
		c.reached[p/64] |= 1 << (p % 64)
		c.reachedN++
	}
	return nil
}

// load reads a page with its overflow and marks it.
func (c *checker) load(id uint64) (b []byte, flags, count uint16, err error) {
	if id < 2 || id >= c.meta.highWater {
		return nil, 0, 0, fmt.Errorf("page %d of %d", id, c.meta.highWater)
	}
	var head [pageHeader]byte
	size := uint64(c.meta.pageSize)
	if _, err := c.r.ReadAt(head[:], int64(id*size)); err != nil {
		return nil, 0, 0, fmt.Errorf("page %d: %w", id, err)
	}
	if got := order.Uint64(head[:]); got != id {
		return nil, 0, 0, fmt.Errorf("page %d calls itself %d", id, got)
	}
	overflow := uint64(order.Uint32(head[12:]))
	if overflow >= c.meta.highWater-id {
		return nil, 0, 0, fmt.Errorf("page %d has %d overflow pages", id, overflow)
	}
	if err := c.mark(id, overflow); err != nil {
		return nil, 0, 0, err
	}
	b = make([]byte, (overflow+1)*size)
	if _, err := c.r.ReadAt(b, int64(id*size)); err != nil {
		return nil, 0, 0, fmt.Errorf("page %d: %w", id, err)
	}
	return b, order.Uint16(head[8:]), order.Uint16(head[10:]), nil
}

// slice returns b[from:from+n] if that lies within b and after the elements.
func slice(b []byte, from, n, elementsEnd uint64) ([]byte, error) {
	if from < elementsEnd || from > uint64(len(b)) || n > uint64(len(b))-from {
		return nil, fmt.Errorf("%d bytes at %d of %d", n, from, len(b))
	}
	return b[from : from+n], nil
}

// page checks the tree under a page whose keys must lie in [low, high) and returns its last key.
func (c *checker) page(id uint64, low, high []byte, depth int) ([]byte, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("page %d lies %d deep", id, depth)
	}
	b, flags, count, err := c.load(id)
	if err != nil {
		return nil, err
	}
	switch flags {
	case leafFlag:
		return c.leaf(id, b, count, low, high, depth)
	case branchFlag:
		return c.branch(id, b, count, low, high, depth)
	}
	return nil, fmt.Errorf("page %d has flags %#x", id, flags)
}

func (c *checker) branch(id uint64, b []byte, count uint16, low, high []byte, depth int) ([]byte, error) {
	end := pageHeader + 16*uint64(count)
	if count == 0 || end > uint64(len(b)) {
		return nil, fmt.Errorf("branch page %d with %d elements", id, count)
	}
	keys, pages := make([][]byte, count), make([]uint64, count)
	for i := range keys {
		at := pageHeader + 16*uint64(i)
		k, err := slice(b, at+uint64(order.Uint32(b[at:])), uint64(order.Uint32(b[at+4:])), end)
		if err != nil {
			return nil, fmt.Errorf("branch page %d: key %d: %w", id, i, err)
		}
		if err := inOrder(keys, i, k, low, high); err != nil {
			return nil, fmt.Errorf("branch page %d: %w", id, err)
		}
		keys[i], pages[i] = k, order.Uint64(b[at+8:])
	}
	last := low
	for i, p := range pages {
		bound := high
		if i+1 < len(keys) {
			bound = keys[i+1]
		}
		if last != nil && bytes.Compare(keys[i], last) < 0 {
			return nil, fmt.Errorf("branch page %d: key %d overlaps the page before", id, i)
		}
		var err error
		if last, err = c.page(p, keys[i], bound, depth+1); err != nil {
			return nil, err
		}
	}
	return last, nil
}

// inOrder checks that k, the i-th key, follows the one before it and lies in [low, high).
func inOrder(keys [][]byte, i int, k, low, high []byte) error {
	switch {
	case i > 0 && bytes.Compare(keys[i-1], k) >= 0,
		i == 0 && low != nil && bytes.Compare(low, k) > 0,
		high != nil && bytes.Compare(k, high) >= 0:
		return fmt.Errorf("key %d is out of order", i)
	}
	return nil
}

func (c *checker) leaf(id uint64, b []byte, count uint16, low, high []byte, depth int) ([]byte, error) {
	end := pageHeader + 16*uint64(count)
	if end > uint64(len(b)) {
		return nil, fmt.Errorf("leaf page %d with %d elements", id, count)
	}
	keys := make([][]byte, count)
	for i := range keys {
		at := pageHeader + 16*uint64(i)
		keySize, valueSize := uint64(order.Uint32(b[at+8:])), uint64(order.Uint32(b[at+12:]))
		kv, err := slice(b, at+uint64(order.Uint32(b[at+4:])), keySize+valueSize, end)
		if err != nil {
			return nil, fmt.Errorf("leaf page %d: element %d: %w", id, i, err)
		}
		if err := inOrder(keys, i, kv[:keySize], low, high); err != nil {
			return nil, fmt.Errorf("leaf page %d: %w", id, err)
		}
		keys[i] = kv[:keySize]
		switch flags := order.Uint32(b[at:]); flags {
		case 0:
		case bucketFlag:
			if err := c.bucket(kv[keySize:], depth); err != nil {
				return nil, fmt.Errorf("bucket %q: %w", keys[i], err)
			}
		default:
			return nil, fmt.Errorf("leaf page %d: element %d has flags %#x", id, i, flags)
		}
	}
	if count == 0 {
		return low, nil
	}
	return keys[count-1], nil
}

func (c *checker) bucket(v []byte, depth int) error {
	if len(v) < 16 {
		return fmt.Errorf("header of %d bytes", len(v))
	}
	if root := order.Uint64(v); root != 0 {
		_, err := c.page(root, nil, nil, depth+1)
		return err
	}
	inline := v[16:]
	if len(inline) < pageHeader || order.Uint64(inline) != 0 || order.Uint16(inline[8:]) != leafFlag ||
		order.Uint32(inline[12:]) != 0 {
		return fmt.Errorf("inline page is not a leaf")
	}
	_, err := c.leaf(0, inline, order.Uint16(inline[10:]), nil, nil, depth+1)
	return err
}

// free checks that the freelist names pages that are not in use, each once.
func (c *checker) free() error {
	b, flags, count, err := c.load(c.meta.freelist)
	if err != nil {
		return fmt.Errorf("freelist: %w", err)
	}
	if flags != freelistFlag {
		return fmt.Errorf("freelist page has flags %#x", flags)
	}
	ids, n := b[pageHeader:], uint64(count)
	if count == 0xFFFF {
		n, ids = order.Uint64(ids), ids[8:]
	}
	if n > uint64(len(ids))/8 {
		return fmt.Errorf("freelist of %d pages in %d bytes", n, len(ids))
	}
	for i := range n {
		id := order.Uint64(ids[8*i:])
		if id < 2 || id >= c.meta.highWater {
			return fmt.Errorf("freelist: page %d is not below %d", id, c.meta.highWater)
		}
		if err := c.mark(id, 0); err != nil {
			return fmt.Errorf("freelist: %w", err)
		}
	}
	return nil
}
