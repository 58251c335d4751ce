package partition

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm"
	"perdure/internal/testkit"
	"perdure/partition/identity"
	"perdure/partition/raftlogger"
)

// lateDamageFS lets the first compaction of one store fail, after another store is being opened. It lets that one
// open when the failure was noticed.
type lateDamageFS struct {
	vfs.FS
	store, next string
	noticed     func()

	reached  chan struct{}
	once     sync.Once
	failOnce sync.Once
}

func (fs *lateDamageFS) Create(name string, category vfs.DiskWriteCategory) (f vfs.File, err error) {
	if strings.Contains(name, fs.next) {
		fs.once.Do(func() {
			close(fs.reached)
			fs.noticed()
		})
	}
	if strings.Contains(name, fs.store) && category == "pebble-compaction" {
		fs.failOnce.Do(func() {
			select {
			case <-fs.reached:
			case <-time.After(waitLimit):
			}
			err = &fsm.DamagedError{Dir: fs.store, Err: vfs.ErrUnsupported}
		})
		if err != nil {
			return nil, err
		}
	}
	return fs.FS.Create(name, category)
}

// backlog leaves a store that compacts as soon as it is opened.
func backlog(t *testing.T, fs vfs.FS, dir string) {
	t.Helper()
	db, err := pebble.Open(dir, &pebble.Options{FS: fs, FormatMajorVersion: pebble.FormatValueSeparation, DisableWAL: true,
		DisableAutomaticCompactions: true, Logger: raftlogger.Pebble{Log: slog.New(slog.DiscardHandler), Fatal: func(error) {}}})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	}()
	it, err := db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	if !it.First() {
		t.Fatal("the store is empty")
	}
	key, value := append([]byte(nil), it.Key()...), append([]byte(nil), it.Value()...)
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	for range 10 {
		if err := db.Set(key, value, pebble.NoSync); err != nil {
			t.Fatal(err)
		}
		if err := db.Flush(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRebuildOfAStoreLeftOpen: damage found between the opening of a replica's state and the start of its
// group halts the replica. Its state is closed nevertheless, so a rebuild can begin.
func TestRebuildOfAStoreLeftOpen(t *testing.T) {
	testkit.Bubble(t, func(t *testing.T, net *testkit.Network) {
		all := newClusterWith(t, 3, timeouts, on(net))
		for i := range 30 {
			if _, err := all[0].router.Propose(bg(t), createCmd(idIn(all[0].router, 1, string(rune('a'+i))))); err != nil {
				t.Fatal(err)
			}
		}
		victim := all[2]
		victim.stop(t)
		backlog(t, victim.cfg.FS, "data/"+identity.StateDir(1))
		log, logged := newLog(t)
		victim.cfg.Logger = log
		victim.cfg.FS = &lateDamageFS{FS: victim.cfg.FS, store: identity.StateDir(1), next: identity.StateDir(2), reached: make(chan struct{}),
			noticed: func() {
				waitFor(t, "the damage to be noticed", func() bool { return logged.has("event=partition_halted") }, logged.String)
			}}
		victim.start(t)
		old := victim.router.slots[1].Load()
		if old.Halted() == nil || old.Raft() != nil || old.Store() == nil {
			t.Fatalf("the replica was to halt with its state open and without a group: halted %v, group %v, state %v", old.Halted(), old.Raft(), old.Store())
		}
		ctx, cancel := context.WithTimeout(bg(t), time.Minute)
		defer cancel()
		reply, err := all[0].Operator().Rebuild(ctx, &perdurev1.RebuildReplicaRequest{Partition: 1, NodeId: "n3"})
		if err != nil || reply.Applied == 0 {
			t.Fatalf("rebuild: %v, %v", reply, err)
		}
		ready(t, victim.Node)
		equalReplicas(t, all, 1)
	})
}
