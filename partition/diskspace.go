package partition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
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
	metrics *diskMetrics

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
func (d *diskSpace) majority(now time.Time) disk.Level {
	own := d.Level()
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.heard) == 0 || d.members == 0 {
		return own
	}
	levels := make([]disk.Level, 0, d.members)
	levels = append(levels, own)
	for _, h := range d.heard {
		if now.Sub(h.at) <= diskNews {
			levels = append(levels, h.level)
		}
	}
	return max(own, quorumLevel(levels, d.members))
}

// quorumLevel is the highest level within the majority of n disks that has the lowest ones; those not listed are OK.
func quorumLevel(levels []disk.Level, n int) disk.Level {
	for len(levels) < n {
		levels = append(levels, disk.OK)
	}
	slices.Sort(levels)
	return levels[n/2]
}

// grows reports whether a command adds to the state what only a later command removes. Every other command
// frees space, ends something, or records what has already happened: the node accepts it while there is any
// space. A commit is one of these however large its results are: the step has acted, and would act again if
// the commit were refused.
func grows(cmd *commandv1.Command) bool {
	switch cmd.Kind.(type) {
	case *commandv1.Command_Start, *commandv1.Command_Signal, *commandv1.Command_CreatePromise,
		*commandv1.Command_SubmitGraph, *commandv1.Command_RetryGraph:
		return true
	}
	return false
}

// refuseForDisk returns the error that refuses a command for lack of disk space, or nil.
func (r *Replica) refuseForDisk(cmd *commandv1.Command) *api.Error {
	if r.disk == nil {
		return nil
	}
	switch level := r.disk.majority(r.clock.Now()); {
	case level == disk.OK || level == disk.Low && !grows(cmd):
		return nil
	default:
		r.disk.metrics.refusals.Inc()
		return r.errDiskFull(level)
	}
}

// errDiskFull refuses a command, with the figures of this node's disk.
func (r *Replica) errDiskFull(level disk.Level) *api.Error {
	st := r.disk.Status()
	what := "what grows the state is refused"
	if level >= disk.Critical {
		what = "nothing is proposed"
	}
	whose := "the disk is " + level.String()
	if st.Level < level {
		whose = "the disks of a majority are " + level.String()
	}
	return api.Errorf(perdurev1.Reason_REASON_DISK_FULL, "partition %d: %s: %s until there is space: %s", r.id, whose, what, diskText(st)).
		With("rule", "disk_"+level.String()).With("free", fmt.Sprint(st.Free)).With("low_mark", fmt.Sprint(st.Low))
}

// diskText formats how much space a disk has.
func diskText(st disk.Status) string {
	return fmt.Sprintf("%s of %s free, %s is the low mark", bytesText(st.Free), bytesText(st.Total), bytesText(st.Low))
}

func bytesText(n int64) string {
	switch {
	case n >= 10<<30:
		return fmt.Sprintf("%d GiB", n>>30)
	case n >= 10<<20:
		return fmt.Sprintf("%d MiB", n>>20)
	default:
		return fmt.Sprintf("%d KiB", n>>10)
	}
}

// diskProblem returns an error if this node's disk is short of space, or nil.
func (n *Node) diskProblem() error {
	if n.disk == nil {
		return nil
	}
	st := n.disk.Status()
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
	return fmt.Errorf("the disk is %s (%s): %s", st.Level, diskText(st), what)
}

// diskStatus is what operators are shown; nil if nothing is known.
func (n *Node) diskStatus() *perdurev1.DiskStatus {
	if n.disk == nil {
		return nil
	}
	st := n.disk.Status()
	if st.Total == 0 {
		return nil
	}
	return &perdurev1.DiskStatus{Level: st.Level.String(), Free: uint64(st.Free), Total: uint64(st.Total), LowMark: uint64(st.Low),
		Reserve: uint64(st.Reserve), ReserveHeld: st.Held, Waiting: uint64(st.Waiting)}
}

// watchDisk notifies the other members while this node's disk is low, and transfers its leaderships to
// members that have space. It returns when the node's lifetime ends.
func (n *Node) watchDisk() {
	defer close(n.diskDone)
	notified := disk.OK
	for n.pause(n.lifetime, diskEvery) {
		members := n.cluster.Members()
		n.disk.prune(members)
		level := n.disk.Level()
		if level != disk.OK || notified != disk.OK {
			n.notifyDisk(members, level)
			notified = level
		}
		if level != disk.OK {
			n.leaveToOthers()
		}
	}
}

// notifyDisk reports the level of this node's disk to the other members. A member that does not answer gets
// the next report, or drops the last one after diskNews. It blocks for diskEvery at most.
func (n *Node) notifyDisk(members []*commandv1.DirectoryMember, level disk.Level) {
	ctx, cancel := context.WithTimeout(n.lifetime, diskEvery)
	defer cancel()
	var wg sync.WaitGroup
	for _, m := range members {
		if m.ServerId == n.identity.ServerID {
			continue
		}
		wg.Go(func() {
			client, err := n.peers.Client(n.cluster.AddressOf(m.ServerId))
			if err == nil {
				_, _ = client.NoteDisk(ctx, &commandv1.NoteDiskRequest{ServerId: n.identity.ServerID, Level: uint32(level)})
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
func (n *Node) leaveToOthers() {
	led := n.transfers.Led()
	if len(led) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(n.lifetime, election.TransferTimeout)
	defer cancel()
	targets := n.transfers.Targets(ctx, led)
	for _, g := range led {
		for _, m := range targets[g.ID()] {
			if n.disk.of(m.ServerId, n.clock.Now()) != disk.OK {
				continue
			}
			err := n.transfers.Transfer(ctx, g, m)
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

// guardedLog refuses entries for which there is no space, before anything is written. Raft then steps down, or has the
// leader send them again; an entry that it has begun to write must not meet a full disk.
type guardedLog struct {
	raft.LogStore
	disk *disk.Guard
	// owed: Raft removed a conflicting end of the log for entries that follow at once. Raft does not survive
	// a refusal of these: it would take the removed ones for stored.
	owed atomic.Bool
}

// entryOverhead is an upper bound of what an entry takes in the log in addition to its data.
const entryOverhead = 256

// StoreLog implements raft.LogStore.
func (l *guardedLog) StoreLog(log *raft.Log) error { return l.StoreLogs([]*raft.Log{log}) }

// StoreLogs implements raft.LogStore. A *disk.FullError says that nothing was stored. Entries of Raft's own are few
// and small and are always stored: with them a leader is elected, and serves reads.
func (l *guardedLog) StoreLogs(logs []*raft.Log) error {
	bytes, commands := int64(0), false
	for _, e := range logs {
		bytes += int64(len(e.Data)+len(e.Extensions)) + entryOverhead
		commands = commands || e.Type == raft.LogCommand
	}
	if owed := l.owed.Swap(false); owed || !commands {
		return l.LogStore.StoreLogs(logs)
	}
	release, err := l.disk.Admit(bytes, disk.Full)
	if err != nil {
		return err
	}
	defer release()
	return l.LogStore.StoreLogs(logs)
}

// DeleteRange implements raft.LogStore. It removes the end of the log only if there is space for the entries
// that replace it.
func (l *guardedLog) DeleteRange(low, high uint64) error {
	last, err := l.LastIndex()
	if err != nil {
		return err
	}
	first, err := l.FirstIndex()
	if err != nil {
		return err
	}
	suffix := high >= last
	if suffix && low > first { // the whole log goes after a snapshot was installed
		if err := l.disk.Check(entryOverhead, disk.Full); err != nil {
			return err
		}
	}
	if err := l.LogStore.DeleteRange(low, high); err != nil {
		return err
	}
	if suffix {
		l.owed.Store(true)
	}
	return nil
}

// IsMonotonic implements raft.MonotonicLogStore, as the log below does.
func (l *guardedLog) IsMonotonic() bool {
	m, is := l.LogStore.(raft.MonotonicLogStore)
	return is && m.IsMonotonic()
}

// isDiskFull says of an error of a Raft future that the entry was refused for want of space: it is not in the log.
func isDiskFull(err error) bool {
	var full *disk.FullError
	return errors.As(err, &full)
}
