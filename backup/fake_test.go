package backup

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// replicaOf names a replica.
type replicaOf struct {
	node      string
	partition uint32
}

// cluster is a Source: each replica has files of its own, and a cut copies them.
type cluster struct {
	mu         sync.Mutex
	id         string
	nodes      []string
	partitions uint32
	replicas   map[replicaOf]map[string][]byte
	cuts       map[uint64]map[replicaOf]map[string][]byte
	cut        uint64
	// before is asked before each call, and before each part of a read.
	before func(call string, at Checkpoint, name string) error
	// reads are the bytes read of each file's hash.
	reads map[string]int64
	gone  map[string]bool
	// shifted is by how much the indexes that List says differ.
	shifted uint64
	// deltas says that nodes make them: a text that names both states.
	deltas bool
}

func newCluster(nodes int, partitions uint32) *cluster {
	c := &cluster{id: "c-1", partitions: partitions, replicas: map[replicaOf]map[string][]byte{}, cuts: map[uint64]map[replicaOf]map[string][]byte{},
		reads: map[string]int64{}, gone: map[string]bool{}}
	for n := range nodes {
		node := fmt.Sprintf("n%d", n+1)
		c.nodes = append(c.nodes, node)
		for p := range partitions {
			files := map[string][]byte{"CURRENT": []byte("same everywhere"), "empty.log": {}}
			for f := range 3 {
				files[fmt.Sprintf("%06d.sst", f)] = bytes.Repeat([]byte(fmt.Sprintf("%s/%d/%d;", node, p, f)), 10+f)
			}
			c.replicas[replicaOf{node, p}] = files
		}
	}
	return c
}

// write changes one file of a replica, as a flush does.
func (c *cluster) write(node string, partition uint32, name, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.replicas[replicaOf{node, partition}][name] = []byte(text)
}

func (c *cluster) ask(ctx context.Context, call string, at Checkpoint, name string) error {
	c.mu.Lock()
	before, gone := c.before, c.gone[at.Node]
	c.mu.Unlock()
	if gone {
		return errors.New("connection refused")
	}
	if before != nil {
		if err := before(call, at, name); err != nil {
			return err
		}
	}
	return ctx.Err()
}

func (c *cluster) Cluster(ctx context.Context) (string, error) {
	return c.id, c.ask(ctx, "cluster", Checkpoint{}, "")
}

func (c *cluster) Cut(ctx context.Context) (Cut, error) {
	if err := c.ask(ctx, "cut", Checkpoint{}, ""); err != nil {
		return Cut{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut++
	at := map[replicaOf]map[string][]byte{}
	cut := Cut{Number: c.cut, Cluster: c.id, Partitions: c.partitions, Level: 6}
	for _, node := range c.nodes {
		for p := range c.partitions {
			if c.gone[node] {
				continue
			}
			at[replicaOf{node, p}] = maps.Clone(c.replicas[replicaOf{node, p}])
			cut.Checkpoints = append(cut.Checkpoints, Checkpoint{p, node, node + ":1", 100*c.cut + uint64(p)})
		}
	}
	c.cuts[c.cut] = at
	delete(c.cuts, c.cut-2)
	return cut, nil
}

func (c *cluster) checkpoint(cut uint64, at Checkpoint) (map[string][]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	files, ok := c.cuts[cut][replicaOf{at.Node, at.Partition}]
	if !ok {
		return nil, &GoneError{cut, at.Partition, at.Node, errors.New("it was removed")}
	}
	return files, nil
}

func (c *cluster) List(ctx context.Context, cut uint64, at Checkpoint) (uint64, []Listed, error) {
	if err := c.ask(ctx, "list", at, ""); err != nil {
		return 0, nil, err
	}
	files, err := c.checkpoint(cut, at)
	var out []Listed
	for name, b := range files {
		if !strings.HasPrefix(name, "delta-") {
			out = append(out, Listed{name, int64(len(b))})
		}
	}
	return 100*cut + uint64(at.Partition) + c.shifted, out, err
}

func (c *cluster) Read(ctx context.Context, cut uint64, at Checkpoint, name string, offset int64) (io.ReadCloser, error) {
	if err := c.ask(ctx, "read", at, name); err != nil {
		return nil, err
	}
	files, err := c.checkpoint(cut, at)
	if err != nil {
		return nil, err
	}
	return &reading{c, ctx, at, name, files[name], files[name][offset:]}, nil
}

// reading is a stream of parts of 16 bytes.
type reading struct {
	c    *cluster
	ctx  context.Context
	at   Checkpoint
	name string
	all  []byte
	rest []byte
}

func (r *reading) Read(p []byte) (int, error) {
	if err := r.c.ask(r.ctx, "part", r.at, r.name); err != nil {
		return 0, err
	}
	if len(r.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p, r.rest[:min(16, len(r.rest))])
	r.rest = r.rest[n:]
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.c.reads[sumOf(r.all)] += int64(n)
	return n, nil
}

func (r *reading) Close() error { return nil }

func (c *cluster) Hash(ctx context.Context, cut uint64, at Checkpoint, name string) (string, error) {
	if err := c.ask(ctx, "hash", at, name); err != nil {
		return "", err
	}
	files, err := c.checkpoint(cut, at)
	return sumOf(files[name]), err
}

func (c *cluster) Delta(ctx context.Context, cut uint64, at Checkpoint, from Base, limit int64) (Listed, error) {
	if err := c.ask(ctx, "delta", at, ""); err != nil {
		return Listed{}, err
	}
	_, err := c.checkpoint(from.Cut, at)
	files, err2 := c.checkpoint(cut, at)
	if err := errors.Join(err, err2); err != nil {
		return Listed{}, err
	}
	if !c.deltas || from.Index != 100*from.Cut+uint64(at.Partition) {
		return Listed{}, &GoneError{from.Cut, at.Partition, at.Node, errors.New("it makes no deltas")}
	}
	name, text := deltaOf(at.Partition, from, Base{cut, at.Index})
	if int64(len(text)) > limit {
		return Listed{}, ErrDeltaTooLarge
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	files[name] = []byte(text)
	return Listed{name, int64(len(text))}, nil
}

// deltaOf is what a node of the cluster writes as a delta.
func deltaOf(partition uint32, from, to Base) (name, text string) {
	name = fmt.Sprintf("delta-%d-%d-%d-%d", from.Cut, from.Index, to.Cut, to.Index)
	return name, fmt.Sprintf("%s of partition %d", name, partition)
}

func (c *cluster) Release(ctx context.Context, cut uint64) error {
	if err := c.ask(ctx, "release", Checkpoint{}, ""); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.cuts, cut)
	return nil
}

func sumOf(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// mortal is a Store that fails at some call and from then on; with whole, that call is done and its answer lost.
type mortal struct {
	Store
	mu    sync.Mutex
	left  int
	whole bool
	err   error
	puts  map[string]int
}

var errDead = errors.New("planted: the process is dead")

// mortalStore returns a store that works for so many calls.
func mortalStore(s Store, calls int) *mortal {
	return &mortal{Store: s, left: calls, err: errDead, puts: map[string]int{}}
}

func (m *mortal) call() (last bool, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.left--; m.left < 0 {
		return m.left == -1, m.err
	}
	return false, nil
}

func (m *mortal) dead() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.left < 0
}

func (m *mortal) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	last, err := m.call()
	if err != nil && (!last || !m.whole) {
		return err
	}
	if putErr := m.Store.Put(ctx, name, r, size); putErr != nil {
		return putErr
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.puts[name]++
	return err
}

func (m *mortal) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	if _, err := m.call(); err != nil {
		return nil, err
	}
	return m.Store.Get(ctx, name)
}

func (m *mortal) List(ctx context.Context, prefix string) ([]Object, error) {
	if _, err := m.call(); err != nil {
		return nil, err
	}
	return m.Store.List(ctx, prefix)
}

func (m *mortal) Delete(ctx context.Context, name string) error {
	last, err := m.call()
	if err != nil && (!last || !m.whole) {
		return err
	}
	return errors.Join(err, m.Store.Delete(ctx, name))
}

func (m *mortal) Exists(ctx context.Context, name string) (int64, bool, error) {
	if _, err := m.call(); err != nil {
		return 0, false, err
	}
	return m.Store.Exists(ctx, name)
}

// start is when tests begin.
var start = time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)

// optionsAt are options of a create that begins at a time, and whose clock stands still.
func optionsAt(t *testing.T, at time.Time) Options {
	return Options{Parallel: 1, Spool: t.TempDir(), now: func() time.Time { return at }, saveEvery: -1,
		sleep: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}
}

// memFolder is a folder in memory.
func memFolder(t *testing.T) Store {
	t.Helper()
	s, err := openFolder(vfs.NewMem(), "store")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// checkBackup checks that a backup is whole, and that each state is one node's checkpoint of its cut.
func checkBackup(t *testing.T, s Store, m *Manifest, files map[replicaOf]map[string][]byte) {
	t.Helper()
	problems, err := Verify(t.Context(), s, m.Name, nil)
	if err != nil || len(problems) > 0 {
		t.Fatalf("backup %s: %v, error %v", m.Name, problems, err)
	}
	for p, state := range m.States {
		want := files[replicaOf{state.Node, state.Partition}]
		if state.Index != 100*m.Cut+uint64(p) {
			t.Fatalf("partition %d is at %d in cut %d", p, state.Index, m.Cut)
		}
		if len(want) != len(state.Files) || len(want) == 0 {
			t.Fatalf("partition %d of node %s has %d files, want %d", p, state.Node, len(state.Files), len(want))
		}
		for _, f := range state.Files {
			if f.SHA256 != sumOf(want[f.Name]) {
				t.Fatalf("partition %d of node %s, file %s: other bytes", p, state.Node, f.Name)
			}
		}
	}
}
