package baseline

import (
	"encoding/binary"
	"testing"

	"github.com/hashicorp/raft"

	"perdure/bench/load"
	"perdure/internal/freeport"
)

// keysOf counts the keys of a machine's state.
func keysOf(t *testing.T, m *machine) (n int) {
	t.Helper()
	it, err := m.db.NewIter(nil)
	if err != nil {
		t.Fatal(err)
	}
	for it.First(); it.Valid(); it.Next() {
		if n++; len(it.Key()) != keyBytes || len(it.Value()) != len(m.value) {
			t.Errorf("key %x has %d bytes", it.Key(), len(it.Value()))
		}
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestMachine: a machine counts the commands of its entries, and writes as many keys as it is told to, half ones too.
func TestMachine(t *testing.T) {
	for _, keys := range []float64{0, 0.5, 1, 2.5} {
		m, err := openMachine(t.TempDir(), keys, 100)
		if err != nil {
			t.Fatal(err)
		}
		entry := func(commands uint64) *raft.Log {
			return &raft.Log{Type: raft.LogCommand, Data: binary.AppendUvarint(nil, commands)}
		}
		for _, answer := range append(m.ApplyBatch([]*raft.Log{entry(3), {Type: raft.LogNoop}, entry(6)}), m.Apply(entry(1))) {
			if answer != nil {
				t.Errorf("an entry was answered by %v", answer)
			}
		}
		if m.Apply(&raft.Log{Type: raft.LogCommand}) == nil {
			t.Error("an entry without a number of commands was applied")
		}
		if n := m.applied.Load(); n != 10 {
			t.Errorf("%d commands were applied, not 10", n)
		}
		if keys > 0 {
			if n := keysOf(t, m); n != int(10*keys) {
				t.Errorf("10 commands of %g keys wrote %d", keys, n)
			}
		}
		if err := m.close(); err != nil {
			t.Error(err)
		}
	}
}

// TestServer: a server that is alone leads, and applies every command that its load proposes.
func TestServer(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: an election takes 2 to 4 s")
	}
	s, err := Open(Config{Addrs: []string{freeport.Bench.Addr(t)}, Dir: t.TempDir(), Commands: 2, CommandBytes: 100, Keys: 3, KeyBytes: 50,
		Load: load.Options{Concurrency: 8, Count: 50}})
	if err != nil {
		t.Fatal(err)
	}
	if leads, err := s.WaitLeader(t.Context()); err != nil || !leads {
		t.Fatalf("the server leads: %v, %v", leads, err)
	}
	marks := 0
	mark := func() { marks++ }
	r, err := s.Run(t.Context(), mark, mark)
	if err != nil {
		t.Fatal(err)
	}
	if n := keysOf(t, s.machine); r.Begun != 50 || n != 300 || marks != 2 {
		t.Errorf("%d operations began, %d keys were written, %d marks", r.Begun, n, marks)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
