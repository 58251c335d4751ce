package partition

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"go.uber.org/goleak"

	"perdure/fsm"
	"perdure/partition/grouptest"
	"perdure/partition/identity"
	"perdure/partition/stable"
)

// A node that starts on a disk on which a state's MANIFEST cannot be written ends with an error that names the
// store; it does not wait for what will never be.
func TestStartOnFailingDisk(t *testing.T) {
	t.Cleanup(func() { abandoned = append(abandoned, goleak.IgnoreCurrent()) })
	disk := grouptest.NewGatedDisk(vfs.NewMem())
	cfg := memConfig(t, disk, stable.NewMemory(), 2)
	n, err := Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ready(t, n)
	closeNode(t, n)
	disk.Failing(func(op errorfs.Op) bool {
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
func newGatedNode(t *testing.T, partitions uint32, change ...func(*Config)) (*Node, *grouptest.GatedDisk) {
	t.Helper()
	disk := grouptest.NewGatedDisk(vfs.NewMem())
	cfg := memConfig(t, disk, stable.NewMemory(), partitions)
	for _, f := range change {
		f(&cfg)
	}
	n := startNode(t, cfg)
	t.Cleanup(disk.Release) // before the node is closed
	return n, disk
}
