package grouptest

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"perdure/partition/identity"
)

// GatedDisk delays the syncs of the log while its gate is closed, and fails the writes that the test names.
type GatedDisk struct {
	vfs.FS
	mu     sync.Mutex
	closed chan struct{} // nil while the gate is open
	held   atomic.Int64
	fail   atomic.Pointer[func(errorfs.Op) bool]
}

func NewGatedDisk(below vfs.FS) *GatedDisk {
	d := &GatedDisk{}
	d.FS = errorfs.Wrap(below, errorfs.InjectorFunc(d.before))
	return d
}

func (d *GatedDisk) before(op errorfs.Op) error {
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

// Hold holds syncs back until Release.
func (d *GatedDisk) Hold() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed == nil {
		d.closed = make(chan struct{})
	}
}

// Release lets the syncs that wait continue.
func (d *GatedDisk) Release() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed != nil {
		close(d.closed)
		d.closed = nil
	}
}

// Failing makes the operations for which which returns true fail from now on.
func (d *GatedDisk) Failing(which func(errorfs.Op) bool) { d.fail.Store(&which) }

// Held returns how many syncs wait.
func (d *GatedDisk) Held() int64 { return d.held.Load() }
