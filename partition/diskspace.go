package partition

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/clock"
	"perdure/partition/disk"
	"perdure/partition/election"
)

const (
	// diskEvery is the pause between two checks of the disks' levels and of the leaderships.
	diskEvery = time.Second
	// diskNews is how long another member's report of its disk is valid.
	diskNews = 5 * time.Second
)

// diskSpace holds what a node knows of the free space on the members' disks.
type diskSpace struct {
	*disk.Guard

	mu    sync.Mutex
	heard map[string]heardDisk // by server id, of the other members
	// members is how many replicas each partition has, this node's too; 0 until it is known.
	members int
}

type heardDisk struct {
	level disk.Level
	at    time.Time
}

// note records another member's report of its disk.
func (d *diskSpace) note(server string, level disk.Level, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if level == disk.OK {
		delete(d.heard, server)
		return
	}
	d.heard[server] = heardDisk{level, now}
}

// prune forgets servers that are no members.
func (d *diskSpace) prune(members []*commandv1.DirectoryMember) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.members = len(members)
	for server := range d.heard {
		if !slices.ContainsFunc(members, func(m *commandv1.DirectoryMember) bool { return m.ServerId == server }) {
			delete(d.heard, server)
		}
	}
}

// majority is the level at which a majority of the replicas can store an entry of this node: its own level, or that
// of the fullest disk of the majority with the most space.
func (d *diskSpace) majority(now time.Time) disk.Level { return max(d.Level(), d.quorum(now)) }

// quorum is the level of the fullest disk of the majority with the most space.
func (d *diskSpace) quorum(now time.Time) disk.Level {
	levels := []disk.Level{d.Level()}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, h := range d.heard {
		if now.Sub(h.at) <= diskNews {
			levels = append(levels, h.level)
		}
	}
	return quorumLevel(levels, max(d.members, 1))
}

// quorumLevel is the level of a majority of n disks at best: the highest level among the majority with the lowest
// levels. Disks that are not listed are OK.
func quorumLevel(levels []disk.Level, n int) disk.Level {
	for len(levels) < n {
		levels = append(levels, disk.OK)
	}
	slices.Sort(levels)
	return levels[n/2]
}

// problem returns an error if this node's disk is short of space, or nil.
func (d *diskSpace) problem() error {
	st := d.Status()
	what := ""
	switch st.Level {
	case disk.Low:
		what = "commands that grow the state are refused"
	case disk.Critical:
		what = "this node proposes nothing"
	case disk.Full:
		what = "this node stores nothing"
	default:
		return nil
	}
	return fmt.Errorf("the disk is %s (%s): %s", st.Level, st.Space(), what)
}

// report is what operators are shown; nil if nothing is known.
func (d *diskSpace) report() *perdurev1.DiskStatus {
	st := d.Status()
	if st.Total == 0 {
		return nil
	}
	return &perdurev1.DiskStatus{Level: st.Level.String(), Free: uint64(st.Free), Total: uint64(st.Total), LowMark: uint64(st.Low),
		Reserve: uint64(st.Reserve), ReserveHeld: st.Held, Waiting: uint64(st.Waiting)}
}

// diskWatch removes checkpoints from a disk that fills, notifies the other members, and transfers leaderships to them.
type diskWatch struct{ n *Node }

// run removes one checkpoint of each replica in each round in which space is scarce. While this node's disk is low, it notifies
// the other members, and transfers its leaderships to members that have space. It returns when the node's lifetime ends.
func (w diskWatch) run() {
	defer close(w.n.diskDone)
	notified := disk.OK
	for clock.Wait(w.n.lifetime, w.n.clock, diskEvery) {
		if w.n.disk.Scarce() {
			for _, r := range w.n.router.Replicas() {
				r.DropCheckpoint()
			}
			w.n.disk.Measure() // else the next round might not know of that space
		}
		if w.n.identity.Alone() {
			continue
		}
		members := w.n.cluster.Members()
		w.n.disk.prune(members)
		level := w.n.disk.Level()
		if level != disk.OK || notified != disk.OK {
			w.notify(members, level)
			notified = level
		}
		if level != disk.OK {
			w.leaveToOthers()
		}
	}
}

// notify reports the level of this node's disk to the other members. A member that does not answer gets
// the next report, or drops the last one after diskNews. It blocks for diskEvery at most.
func (w diskWatch) notify(members []*commandv1.DirectoryMember, level disk.Level) {
	ctx, cancel := context.WithTimeout(w.n.lifetime, diskEvery)
	defer cancel()
	var wg sync.WaitGroup
	for _, m := range members {
		if m.ServerId == w.n.identity.ServerID {
			continue
		}
		wg.Go(func() {
			client, err := w.n.peers.Client(w.n.cluster.AddressOf(m.ServerId))
			if err == nil {
				_, _ = client.NoteDisk(ctx, &commandv1.NoteDiskRequest{ServerId: w.n.identity.ServerID, Level: uint32(level)})
			}
		})
	}
	wg.Wait()
}

// NoteDisk implements Peers.
func (s *peerService) NoteDisk(_ context.Context, in *commandv1.NoteDiskRequest) (*commandv1.NoteDiskReply, error) {
	members := s.n.cluster.Members()
	if slices.ContainsFunc(members, func(m *commandv1.DirectoryMember) bool { return m.ServerId == in.ServerId }) {
		s.n.disk.note(in.ServerId, min(disk.Level(min(in.Level, uint32(disk.Full))), disk.Full), s.n.clock.Now())
	}
	return &commandv1.NoteDiskReply{}, nil
}

// leaveToOthers transfers the groups that this node leads to members whose disks are not low.
func (w diskWatch) leaveToOthers() {
	led := w.n.transfers.Led()
	if len(led) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(w.n.lifetime, election.TransferTimeout)
	defer cancel()
	targets := w.n.transfers.Targets(ctx, led)
	for _, g := range led {
		for _, m := range targets[g.ID()] {
			if w.n.disk.of(m.ServerId, w.n.clock.Now()) != disk.OK {
				continue
			}
			err := w.n.transfers.Transfer(ctx, g, m)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return
			}
		}
	}
}

// of returns the level that a member reported of its disk, and OK if it reported none within diskNews.
func (d *diskSpace) of(server string, now time.Time) disk.Level {
	d.mu.Lock()
	defer d.mu.Unlock()
	if h, is := d.heard[server]; is && now.Sub(h.at) <= diskNews {
		return h.level
	}
	return disk.OK
}
