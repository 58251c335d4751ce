package partition

import (
	"context"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"
	"go.uber.org/goleak"

	"perdure/internal/crashfs"
	"perdure/internal/testkit"
	"perdure/partition/identity"
	"perdure/partition/raftlog"
)

// logDisk is a node's disk, which notes the commands that the synced part of the Raft log has. Only a command whose id
// is a mark counts.
type logDisk struct {
	vfs.FS
	mu sync.Mutex
	// synced are the marks that a power loss cannot take any more.
	synced map[string]bool
	syncs  int
	// slow gives each sync a duration of its own. lies is how many of the next syncs report success and do nothing.
	// broken fails them all.
	slow, broken bool
	lies         int
	random       *rand.Rand
}

var markForm = regexp.MustCompile(`mark-[0-9]{5}\.`)

func markOf(n int) string { return fmt.Sprintf("mark-%05d.", n) }

func newLogDisk(below vfs.FS, seed uint64) *logDisk {
	return &logDisk{FS: below, synced: map[string]bool{}, random: rand.New(rand.NewPCG(seed, 1))}
}

func isRaftLog(name string) bool {
	return strings.Contains(name, identity.RaftLogDir) && strings.HasSuffix(name, ".log")
}

// Create implements vfs.FS.
func (d *logDisk) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return d.wrap(name)(d.FS.Create(name, category))
}

// ReuseForWrite implements vfs.FS.
func (d *logDisk) ReuseForWrite(from, to string, category vfs.DiskWriteCategory) (vfs.File, error) {
	return d.wrap(to)(d.FS.ReuseForWrite(from, to, category))
}

func (d *logDisk) wrap(name string) func(vfs.File, error) (vfs.File, error) {
	return func(f vfs.File, err error) (vfs.File, error) {
		if err == nil && isRaftLog(name) {
			f = &logFile{File: f, disk: d}
		}
		return f, err
	}
}

// set changes what syncs do from now on.
func (d *logDisk) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

// has reports whether the command of a mark survives a power loss.
func (d *logDisk) has(mark string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.synced[mark]
}

// logFile is a file of the Raft log.
type logFile struct {
	vfs.File
	disk    *logDisk
	written []byte // since the last sync, and the end of what was written before; guarded by disk.mu
}

// Write implements vfs.File.
func (f *logFile) Write(p []byte) (int, error) {
	f.disk.mu.Lock()
	f.written = append(f.written, p...)
	f.disk.mu.Unlock()
	return f.File.Write(p)
}

// Sync implements vfs.File.
func (f *logFile) Sync() error { return f.sync(f.File.Sync) }

// SyncData implements vfs.File.
func (f *logFile) SyncData() error { return f.sync(f.File.SyncData) }

func (f *logFile) sync(sync func() error) error {
	d := f.disk
	d.mu.Lock()
	upTo, wait, lies := len(f.written), time.Duration(0), d.lies > 0
	if d.slow {
		wait = time.Millisecond + time.Duration(d.random.Int64N(int64(20*time.Millisecond)))
	}
	if lies {
		d.lies--
	}
	d.mu.Unlock()
	if lies {
		return nil
	}
	if wait > 0 {
		<-time.After(wait)
	}
	d.mu.Lock()
	broken := d.broken
	d.mu.Unlock()
	if broken {
		return fmt.Errorf("the disk has failed")
	}
	if err := sync(); err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.syncs++
	for _, mark := range markForm.FindAll(f.written[:upTo], -1) {
		d.synced[string(mark)] = true
	}
	// A mark may have been written by halves.
	f.written = f.written[max(0, upTo-len(markOf(0))):]
	return nil
}

// proof counts on how many nodes a command was synced when it was acknowledged.
type proof struct {
	t     *testing.T
	all   []*member
	disks []*logDisk
	files []*crashfs.FS

	mu sync.Mutex
	// copies counts the acknowledged commands by their synced copies; few are those with less than a majority.
	copies [4]int
	few    []string
	marks  []string
}

// newProof founds a cluster of three nodes whose syncs are counted.
func newProof(t *testing.T, partitions uint32, timeout time.Duration, change ...func(*Config)) *proof {
	p := &proof{t: t}
	change = append(change, func(cfg *Config) {
		fs := crashfs.New()
		disk := newLogDisk(fs, uint64(len(p.disks)))
		p.files, p.disks, cfg.FS = append(p.files, fs), append(p.disks, disk), disk
	})
	p.all = newClusterWith(t, partitions, timeout, change...)
	t.Cleanup(p.check)
	return p
}

// propose has a command with a mark of its own acknowledged, and counts its synced copies at that instant.
func (p *proof) propose(ctx context.Context, at *member) error {
	p.mu.Lock()
	mark := markOf(len(p.marks))
	p.marks = append(p.marks, mark)
	p.mu.Unlock()
	if _, err := at.router.Propose(ctx, createCmd(mark)); err != nil {
		return err
	}
	n := 0
	for _, d := range p.disks {
		n += count(d.has(mark))
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.copies[n]++; n < 2 {
		p.few = append(p.few, mark)
	}
	return nil
}

// load proposes commands at the nodes that run, several at a time, while each sync takes its time.
func (p *proof) load() {
	p.t.Helper()
	p.slow(true)
	defer p.slow(false)
	ctx := bg(p.t)
	var wg sync.WaitGroup
	for client := range 12 {
		at := p.all[client%3]
		if at.Node == nil {
			continue
		}
		wg.Go(func() {
			for range 20 {
				if err := p.propose(ctx, at); err != nil {
					p.t.Errorf("at %s: %v", at.cfg.NodeID, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if len(p.few) > 0 {
		p.t.FailNow() // check says which
	}
}

func (p *proof) slow(is bool) {
	for _, d := range p.disks {
		d.set(func() { d.slow = is })
	}
}

// disk is the disk of a node.
func (p *proof) disk(m *member) *logDisk {
	for i := range p.all {
		if p.all[i] == m {
			return p.disks[i]
		}
	}
	panic("no node of this cluster")
}

// check fails the test for each command that was acknowledged without a majority of synced copies.
func (p *proof) check() {
	p.t.Helper()
	for _, d := range p.disks {
		d.set(func() { p.t.Logf("%d syncs, %d commands synced", d.syncs, len(d.synced)) })
	}
	p.t.Logf("acknowledged with 0, 1, 2, 3 synced copies: %v", p.copies)
	if len(p.few) > 0 {
		p.t.Errorf("%d commands were acknowledged before a majority had synced them: %v", len(p.few), p.few[:min(len(p.few), 5)])
	}
}

// TestAcknowledgedIsSynced: with each node as the leader and disks of any speed, a command that is acknowledged is in the
// synced logs of a majority at that instant. What the disks hold after a power loss says the same as the count.
func TestAcknowledgedIsSynced(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		p := newProof(t, 2, timeouts, on(net))
		p.load()
		for _, away := range p.all {
			away.stop(t) // now each sync of the others is needed
			for group := range uint32(2) {
				leaderOf(t, p.all, group)
			}
			p.load()
			away.start(t)
			ready(t, away.Node)
			for group := range uint32(2) {
				equalReplicas(t, p.all, group)
			}
		}
		if p.copies[2] == 0 || p.copies[3] == 0 {
			t.Errorf("acknowledged with two copies and with three: %v, both were expected", p.copies)
		}
		p.compare()
	})
}

// compare holds the marks that each disk counted as synced against the log that a power loss leaves.
func (p *proof) compare() {
	p.t.Helper()
	for i, fs := range p.files {
		disk := p.disks[i]
		disk.mu.Lock()
		left := fs.CrashClone(vfs.CrashCloneCfg{})
		counted := len(disk.synced)
		disk.mu.Unlock()
		logs, err := raftlog.Open("data/"+identity.RaftLogDir, raftlog.Options{FS: left})
		if err != nil {
			p.t.Fatal(err)
		}
		found := map[string]bool{}
		for group := range uint32(2) {
			log := logs.Group(group)
			first, err := log.FirstIndex()
			if err != nil {
				p.t.Fatal(err)
			}
			last, err := log.LastIndex()
			if err != nil {
				p.t.Fatal(err)
			}
			for index := first; index <= last; index++ {
				var l raft.Log
				if err := log.GetLog(index, &l); err != nil {
					p.t.Fatal(err)
				}
				for _, mark := range markForm.FindAll(l.Data, -1) {
					found[string(mark)] = true
				}
			}
		}
		if len(found) != counted {
			p.t.Errorf("%s: %d commands are left, %d were counted", p.all[i].cfg.NodeID, len(found), counted)
		}
		if err := logs.Close(); err != nil {
			p.t.Error(err)
		}
	}
}

// TestMissingSyncIsCounted: the count notices a single sync that did not happen, at a follower and at the leader.
func TestMissingSyncIsCounted(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		p := newProof(t, 1, timeouts, on(net))
		lead := leaderOf(t, p.all, 0)
		var others []*member
		for _, m := range p.all {
			if m != lead {
				others = append(others, m)
			}
		}
		equalReplicas(t, p.all, 0)
		others[1].stop(t)
		ctx := bg(t)
		for _, m := range []*member{others[0], lead} {
			if err := p.propose(ctx, lead); err != nil {
				t.Fatal(err)
			}
			d := p.disk(m)
			d.set(func() { d.lies = 1 })
			lost := markOf(len(p.marks))
			if err := p.propose(ctx, lead); err != nil {
				t.Fatal(err)
			}
			if err := p.propose(ctx, lead); err != nil {
				t.Fatal(err)
			}
			if len(p.few) != 1 || p.few[0] != lost {
				t.Errorf("%s lost the sync of %s, and the count names %v", m.cfg.NodeID, lost, p.few)
			}
			p.few = nil
		}
	})
}

// TestFailedSyncIsNotCounted: the leader's disk fails while the only follower syncs. The command has one copy, so it is
// not acknowledged until the third node has it, too.
func TestFailedSyncIsNotCounted(t *testing.T) {
	t.Cleanup(func() { abandoned = append(abandoned, goleak.IgnoreCurrent()) })
	p := newProof(t, 1, wide)
	lead := leaderOf(t, p.all, 0)
	var others []*member
	for _, m := range p.all {
		if m != lead {
			others = append(others, m)
		}
	}
	if err := p.propose(bg(t), lead); err != nil {
		t.Fatal(err)
	}
	equalReplicas(t, p.all, 0)
	others[1].stop(t)
	d := p.disk(lead)
	d.set(func() { d.broken = true })
	answered := make(chan error, 1)
	ctx := bg(t)
	go func() { answered <- p.propose(ctx, others[0]) }()
	select {
	case <-lead.Done():
	case err := <-answered:
		t.Fatalf("answered by a leader that has not synced the command: %v", err)
	case <-time.After(waitLimit):
		t.Fatal("the leader goes on after a failed sync")
	}
	if err := lead.Close(bg(t)); err == nil {
		t.Error("a node whose log has failed closes without an error")
	}
	lead.Node = nil
	others[1].start(t)
	if err := <-answered; err != nil {
		t.Error(err)
	}
}
