package partition

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/prometheus/client_golang/prometheus"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm"
	"perdure/partition/identity"
	"perdure/partition/stable"
)

// A gatedDisk delays the syncs of the log while its gate is closed, and fails the writes that the test names.
type gatedDisk struct {
	vfs.FS
	mu     sync.Mutex
	closed chan struct{} // nil while the gate is open
	held   atomic.Int64
	fail   atomic.Pointer[func(errorfs.Op) bool]
}

func newGatedDisk(below vfs.FS) *gatedDisk {
	d := &gatedDisk{}
	d.FS = errorfs.Wrap(below, errorfs.InjectorFunc(d.before))
	return d
}

func (d *gatedDisk) before(op errorfs.Op) error {
	if fail := d.fail.Load(); fail != nil && (*fail)(op) {
		return errorfs.ErrInjected
	}
	isSync := op.Kind == errorfs.OpFileSync || op.Kind == errorfs.OpFileSyncData || op.Kind == errorfs.OpFileSyncTo
	if !isSync || !strings.Contains(op.Path, identity.RaftLogDir) || !strings.HasSuffix(op.Path, ".log") {
		return nil
	}
	d.mu.Lock()
	gate := d.closed
	d.mu.Unlock()
	if gate != nil {
		d.held.Add(1)
		<-gate
		d.held.Add(-1)
	}
	return nil
}

func (d *gatedDisk) shut() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed == nil {
		d.closed = make(chan struct{})
	}
}

func (d *gatedDisk) open() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed != nil {
		close(d.closed)
		d.closed = nil
	}
}

// failing makes operations fail from now on.
func (d *gatedDisk) failing(which func(errorfs.Op) bool) { d.fail.Store(&which) }

// A node that starts on a disk on which a state's MANIFEST cannot be written ends with an error that names the
// store; it does not wait for what will never be.
func TestStartOnFailingDisk(t *testing.T) {
	disk := newGatedDisk(vfs.NewMem())
	cfg := memConfig(t, disk, stable.NewMemory(), 2)
	n, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ready(t, n)
	closeNode(t, n)
	disk.failing(func(op errorfs.Op) bool {
		return op.Kind == errorfs.OpFileWrite && strings.Contains(op.Path, identity.StateDir(1)) && strings.Contains(op.Path, "MANIFEST")
	})
	ended := make(chan error, 1)
	go func() {
		n, err := Start(cfg)
		if err == nil {
			err = errors.Join(errors.New("it has started"), n.Close(bg(t)))
		}
		ended <- err
	}()
	select {
	case err := <-ended:
		var damaged *fsm.DamagedError
		if !errors.As(err, &damaged) || !strings.HasSuffix(damaged.Dir, identity.StateDir(1)) || !strings.Contains(err.Error(), "MANIFEST") {
			t.Errorf("it ends with %v", err)
		}
	case <-time.After(time.Minute):
		t.Fatal("it neither starts nor ends")
	}
}

// newGatedNode is a node whose log can be held back.
func newGatedNode(t *testing.T, partitions uint32, change ...func(*Config)) (*Node, *gatedDisk) {
	t.Helper()
	disk := newGatedDisk(vfs.NewMem())
	cfg := memConfig(t, disk, stable.NewMemory(), partitions)
	for _, f := range change {
		f(&cfg)
	}
	n := startNode(t, cfg)
	t.Cleanup(disk.open) // before the node is closed
	return n, disk
}

// stuck holds the log back and waits until as many entries as may be are under way: nothing that is
// proposed from now on gets into one of them.
func stuck(t *testing.T, n *Node, disk *gatedDisk, partition uint32) {
	t.Helper()
	r := n.router.Replicas()[partition]
	disk.shut()
	for k := range maxInFlight {
		go func() {
			_, _ = n.Router().Deliver(bg(t), partition, promiseCmd(idIn(n.Router(), partition, "stuck"), 1<<40))
		}()
		waitFor(t, "an entry to be under way", func() bool { return len(r.slots) == k+1 }, func() string { return "" })
	}
	// Both are with Raft: the one that the resolver waits for, and the next.
	waitFor(t, "the log to be held back", func() bool { return disk.held.Load() > 0 && len(r.flights) == maxInFlight-1 }, func() string { return "" })
}

// queued waits until as many proposals wait for the log.
func queued(t *testing.T, r *Replica, want int) {
	t.Helper()
	waitFor(t, "proposals to wait", func() bool { return r.pending.len() >= want }, func() string { return "" })
}

// enqueued proposes a command without waiting.
func enqueued(t *testing.T, r *Replica, cmd *commandv1.Command) *waiter {
	t.Helper()
	w, err := r.enqueue(cmd)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// wait waits for the outcome as the log gave it.
func (w *waiter) wait() proposalResult {
	<-w.p.done
	w.close()
	return w.p.result
}

// counted reads a counter or gauge.
func counted(t *testing.T, c prometheus.Collector) int {
	t.Helper()
	reg := prometheus.NewRegistry()
	if err := reg.Register(c); err != nil {
		t.Fatal(err)
	}
	families, err := reg.Gather()
	if err != nil || len(families) != 1 || len(families[0].GetMetric()) != 1 {
		t.Fatalf("%v, %v", families, err)
	}
	m := families[0].GetMetric()[0]
	return int(m.GetCounter().GetValue() + m.GetGauge().GetValue())
}

// A handClock is time that a test moves.
type handClock struct {
	mu      sync.Mutex
	now     time.Time
	waiting map[*handTimer]struct{}
}

type handTimer struct {
	at time.Time
	c  chan time.Time
}

func newHandClock() *handClock {
	return &handClock{now: time.UnixMilli(1_700_000_000_000), waiting: map[*handTimer]struct{}{}}
}

// Now implements Clock.
func (c *handClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// After implements Clock.
func (c *handClock) After(d time.Duration) (<-chan time.Time, func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &handTimer{at: c.now.Add(d), c: make(chan time.Time, 1)}
	if d <= 0 {
		t.c <- c.now
		return t.c, func() {}
	}
	c.waiting[t] = struct{}{}
	return t.c, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.waiting, t)
	}
}

// advance moves time forward.
func (c *handClock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for t := range c.waiting {
		if !t.at.After(c.now) {
			t.c <- c.now
			delete(c.waiting, t)
		}
	}
}

// timers returns the timers that a goroutine waits for.
func (c *handClock) timers() (out []*handTimer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := range c.waiting {
		out = append(out, t)
	}
	return out
}

// armed reports whether something waits for exactly that time from now.
func (c *handClock) armed(d time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for t := range c.waiting {
		if t.at.Equal(c.now.Add(d)) {
			return true
		}
	}
	return false
}
