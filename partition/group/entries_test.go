package group

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm"
	"perdure/fsm/machine"
	"perdure/partition/raftlog"
)

// Large entries come to the state machine as references. It reads as many at a time as maxApplyBytes allow, keeps no
// replies to them, and stops the replica when one cannot be read.
func TestEntriesAreReadSomeAtATime(t *testing.T) {
	logs, err := raftlog.Open("log", raftlog.Options{FS: vfs.NewMem(), MustCreate: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = logs.Close() }()
	cache := raftlog.NewCache(logs.Group(0), raftlog.CacheOptions{Bytes: 1 << 10, Refer: referBytes})
	const count, size = 20, 1 << 20
	var stored []*raft.Log
	for i := range uint64(count) {
		cmd := promiseCmd(fmt.Sprint("p", i), 1<<40)
		cmd.GetCreatePromise().Param = []byte(strings.Repeat("v", size))
		b, err := fsm.EncodeEntry(&commandv1.Entry{TimeMs: 1, Commands: []*commandv1.Command{cmd}})
		if err != nil {
			t.Fatal(err)
		}
		stored = append(stored, &raft.Log{Index: i + 1, Term: 1, Data: b})
	}
	if err := cache.StoreLogs(stored); err != nil {
		t.Fatal(err)
	}
	held, most := 0, 0 // read, and not applied yet
	var halted error
	store, err := fsm.Open("state", fsm.Options{FS: vfs.NewMem(), Create: true, Stamp: []byte("s"), Machine: machine.Config{Partitions: 1},
		Logger: pebble.DefaultLogger, OnFatal: func(err error) { halted = err },
		OnApplied: func(*machine.Result) { held = 0 }})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	m := &entryMachine{Store: store, halt: func(err error) { halted = err }, awaitSync: func(uint64) error { return nil }, load: func(l *raft.Log) (*raft.Log, error) {
		whole, err := cache.Load(l)
		if err == nil {
			held += len(whole.Data)
			most = max(most, held)
		}
		return whole, err
	}}
	batch := func(from, to uint64) (out []*raft.Log) {
		for i := from; i <= to; i++ {
			l := new(raft.Log)
			if err := cache.GetLog(i, l); err != nil {
				t.Fatal(err)
			}
			if _, is := raftlog.Reference(l); !is {
				t.Fatalf("entry %d comes whole", i)
			}
			out = append(out, l)
		}
		return out
	}
	for i, response := range m.ApplyBatch(batch(1, count-4)) {
		if response != nil {
			t.Errorf("entry %d is answered %T, and no caller waits for it", i+1, response)
		}
	}
	if st, err := store.Status(); err != nil || st.Applied != count-4 {
		t.Errorf("applied up to %d, %v", st.Applied, err)
	}
	if most > 4<<20 || most < 2*size {
		t.Errorf("%d bytes were in memory at once, the bound is %d", most, 4<<20)
	}
	// One that came whole is a caller's, who gets the reply.
	if got, ok := m.Apply(stored[count-4]).(*machine.Result); !ok || len(got.Replies) != 1 {
		t.Errorf("a whole entry is answered %v", got)
	}
	last := batch(count-2, count)
	if err := cache.DeleteRange(count-1, count); err != nil {
		t.Fatal(err)
	}
	for i, response := range m.ApplyBatch(last) {
		if err, ok := response.(error); !ok || !errors.Is(err, raft.ErrLogNotFound) {
			t.Errorf("entry %d of a batch with one that is gone is answered %v", i, response)
		}
	}
	if st, _ := store.Status(); halted == nil || st.Applied != count-3 {
		t.Errorf("after an entry that cannot be read: halted by %v, applied up to %d", halted, st.Applied)
	}
}
