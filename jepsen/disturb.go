package jepsen

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/overlay"
)

// unavailable reports whether a call has no answer.
func unavailable(err error) bool {
	code := grpcstatus.Code(err)
	return code == codes.Unavailable || code == codes.DeadlineExceeded || code == codes.Canceled
}

// Disturbance is the faults of a server built with overlay.Faults. The zero value is none.
type Disturbance struct {
	// Clock is by how much its wall clock is ahead of the machine's; negative: behind. Timers do not feel it.
	Clock time.Duration
	// Sync is how much longer each write takes to reach the disk.
	Sync time.Duration
}

// ErrNeedsPatches refuses a fault that only a server built with overlay.Faults can have.
var ErrNeedsPatches = errors.New("server is not built with overlay.Faults (Options.Patched)")

// faultsFile is the file from which the server reads its disturbances.
func (n *Node) faultsFile() string { return filepath.Join(n.c.dir, n.Name+".faults") }

// Disturb changes the node's faults. They take effect within some hundredths of a second, and last over
// restarts.
func (n *Node) Disturb(change func(*Disturbance)) error {
	if !n.c.opts.Patched {
		return ErrNeedsPatches
	}
	n.hurt.Lock()
	defer n.hurt.Unlock()
	change(&n.hurt.disturbance)
	return overlay.WriteFaults(n.faultsFile(), n.hurt.disturbance.Clock, n.hurt.disturbance.Sync)
}

// ErrNeedsDisk says that a fault needs nodes with disks of their own.
var ErrNeedsDisk = errors.New("this fault needs each node's data on a disk of its own (Options.DiskBytes)")

// mount mounts a disk in memory for the node's data directory.
func (n *Node) mount(ctx context.Context, size int64) error {
	disk := filepath.Join(n.c.dir, n.Name+".disk")
	if err := os.MkdirAll(disk, 0o755); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "mount", "-t", "tmpfs", "-o", fmt.Sprintf("size=%d", size), "perdure-jepsen", disk).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: mount: %w: %s", ErrNeedsDisk, err, strings.TrimSpace(string(out)))
	}
	n.disk, n.DataDir = disk, filepath.Join(disk, "data")
	return nil
}

// unmount takes the node's disk away, with all that is on it.
func (n *Node) unmount() error {
	if n.disk == "" || n.c.opts.Keep {
		return nil
	}
	out, err := exec.Command("umount", n.disk).CombinedOutput()
	if err != nil {
		return fmt.Errorf("umount %s: %w: %s", n.disk, err, strings.TrimSpace(string(out)))
	}
	n.disk = ""
	return nil
}

// filler is the file that fills a disk.
func (n *Node) filler() string { return filepath.Join(n.disk, "filler") }

// FillDisk leaves no byte free on the node's disk. FreeDisk ends that.
func (n *Node) FillDisk() error {
	if n.disk == "" {
		return ErrNeedsDisk
	}
	f, err := os.OpenFile(n.filler(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); err != nil {
			size /= 16 // it is full, or has less left than that
		}
	}
	return f.Close()
}

// FreeDisk frees what FillDisk took.
func (n *Node) FreeDisk() error {
	if n.disk == "" {
		return ErrNeedsDisk
	}
	if err := os.Remove(n.filler()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// damage changes a byte of the largest table of some partition that has one. The node must not run.
func (n *Node) damage() error {
	partitions, err := filepath.Glob(filepath.Join(n.DataDir, "state-*"))
	if err != nil {
		return err
	}
	n.c.mu.Lock()
	defer n.c.mu.Unlock()
	for _, i := range n.c.rng.Perm(len(partitions)) {
		var p uint32
		if _, err := fmt.Sscanf(filepath.Base(partitions[i]), "state-%d", &p); err != nil {
			continue // a state that was set aside
		}
		where, err := n.Flip(int(p), n.c.rng)
		if errors.Is(err, ErrNothingToFlip) {
			continue
		} else if err != nil {
			return err
		}
		n.c.log.Info("damaged", "node", n.Name, "where", where.String())
		n.hurt.Lock()
		n.hurt.damaged = append(n.hurt.damaged, p)
		n.hurt.Unlock()
		return nil
	}
	return fmt.Errorf("%s: %w in any partition", n.Name, ErrNothingToFlip)
}

// repair has the cluster rebuild the damaged replicas, noticed or not.
func (n *Node) repair(ctx context.Context) error {
	n.hurt.Lock()
	damaged := n.hurt.damaged
	n.hurt.damaged = nil
	n.hurt.Unlock()
	for _, p := range damaged {
		cl, err := n.c.Client(time.Minute, n)
		if err != nil {
			return err
		}
		// The node may still be starting: nothing else excuses a refusal.
		err = waitFor(ctx, fmt.Sprintf("%s to rebuild partition %d", n.Name, p), func(ctx context.Context) error {
			ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
			defer cancel()
			_, err := perdurev1.NewClusterClient(cl.Conn()).RebuildReplica(ctx, &perdurev1.RebuildReplicaRequest{Partition: p, NodeId: n.Name})
			if err != nil && n.Running() && !unavailable(err) {
				n.c.unexpected("rebuilding partition %d on %s: %v", p, n.Name, err)
				return nil
			}
			return err
		})
		if err = errors.Join(err, cl.Close()); err != nil {
			return err
		}
	}
	return nil
}
