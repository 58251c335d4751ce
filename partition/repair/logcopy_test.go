package repair

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/raft"

	"perdure/fsm"
	"perdure/partition/identity"
	"perdure/partition/raftlog"
)

// The copy of a log gives the commands that a state does not have, and leaves the node's own as it is.
func TestCopyLogs(t *testing.T) {
	dir := t.TempDir()
	id := identity.Identity{ClusterID: "c", ServerID: "n1-x", NodeID: "n1", Partitions: 3, LogStore: "pebble", Ready: true}
	s, err := raftlog.Open(filepath.Join(dir, identity.RaftLogDir), raftlog.Options{MustCreate: true})
	if err != nil {
		t.Fatal(err)
	}
	var logs []*raft.Log
	for index := uint64(5); index < 10; index++ {
		kind := raft.LogCommand
		if index == 7 {
			kind = raft.LogNoop
		}
		logs = append(logs, &raft.Log{Index: index, Term: 1, Type: kind, Data: []byte{byte(index)}})
	}
	if err := errors.Join(s.SetStamp(id.Stamp(identity.RaftLogDir)), s.Group(1).StoreLogs(logs)); err != nil {
		t.Fatal(err)
	}
	if inOrder, err := StoppedInOrder(dir); inOrder || err != nil {
		t.Errorf("while it runs it was stopped in order: %t, %v", inOrder, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if inOrder, err := StoppedInOrder(dir); !inOrder || err != nil {
		t.Errorf("closed, it was stopped in order: %t, %v", inOrder, err)
	}

	c, err := CopyLogs(id, dir, filepath.Join(t.TempDir(), "copy"))
	if err != nil {
		t.Fatal(err)
	}
	read := func(partition uint32, st fsm.Status) (indexes []uint64, err error) {
		err = c.Commands(partition, st, func(index uint64, data []byte) error {
			if len(data) != 1 || data[0] != byte(index) {
				t.Errorf("entry %d holds %v", index, data)
			}
			indexes = append(indexes, index)
			return nil
		})
		return indexes, err
	}
	for _, want := range []struct {
		partition uint32
		st        fsm.Status
		indexes   []uint64
	}{
		{1, fsm.Status{Applied: 4}, []uint64{5, 6, 8, 9}},
		{1, fsm.Status{Applied: 6, Covered: 7}, []uint64{8, 9}},
		{1, fsm.Status{Applied: 2, Covered: 4}, []uint64{5, 6, 8, 9}},
		{1, fsm.Status{Applied: 9}, nil},
		{2, fsm.Status{}, nil},
	} {
		if got, err := read(want.partition, want.st); err != nil || !slices.Equal(got, want.indexes) {
			t.Errorf("partition %d at %+v: %v, %v, want %v", want.partition, want.st, got, err, want.indexes)
		}
	}
	var lost *LostError
	if got, err := read(1, fsm.Status{Applied: 3}); !errors.As(err, &lost) || lost.Partition != 1 || len(got) > 0 {
		t.Errorf("a log that begins too late: %v, %v", got, err)
	}
	enough := errors.New("enough")
	if err := c.Commands(1, fsm.Status{Applied: 4}, func(uint64, []byte) error { return enough }); !errors.Is(err, enough) {
		t.Errorf("the caller's error comes back as %v", err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if inOrder, err := StoppedInOrder(dir); !inOrder || err != nil {
		t.Errorf("after it was copied: %t, %v", inOrder, err)
	}

	other := id
	other.ClusterID = "another"
	var foreign *fsm.ForeignError
	if _, err := CopyLogs(other, dir, filepath.Join(t.TempDir(), "copy")); !errors.As(err, &foreign) || foreign.Dir != filepath.Join(dir, identity.RaftLogDir) {
		t.Errorf("another cluster's log: %v", err)
	}
	var missing *raftlog.MissingError
	if _, err := CopyLogs(id, t.TempDir(), filepath.Join(t.TempDir(), "copy")); !errors.As(err, &missing) {
		t.Errorf("no log: %v", err)
	}
}
