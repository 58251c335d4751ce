package raftlog_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	"perdure/internal/testkit"
	"perdure/partition/raftlog"
	"perdure/partition/raftlog/logtest"
)

const damageDir = "raftlog"

// filled makes a store with tables, a write-ahead log and deletions, and says what each group holds.
func filled(t testing.TB, fs vfs.FS) (*raftlog.Store, map[uint32][2]uint64) {
	t.Helper()
	s, err := raftlog.Open(damageDir, raftlog.Options{FS: fs, MustCreate: true, MemTableBytes: 64 << 10,
		OnFatal: func(err error) { t.Errorf("fatal: %v", err) }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetStamp([]byte("cluster/server")); err != nil {
		t.Fatal(err)
	}
	for g := range uint32(3) {
		for i := uint64(1); i <= 2000; i += 50 {
			if err := s.Group(g).StoreLogs(logtest.Entries(g, i, i+49, 1)); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Group(1).DeleteRange(1, 500); err != nil {
		t.Fatal(err)
	}
	if err := s.Group(2).DeleteRange(1901, 2000); err != nil {
		t.Fatal(err)
	}
	for i := uint64(1901); i <= 1920; i++ {
		if err := s.Group(2).StoreLog(logtest.Entry(2, i, 1)); err != nil {
			t.Fatal(err)
		}
	}
	return s, map[uint32][2]uint64{0: {1, 2000}, 1: {501, 2000}, 2: {1, 1920}}
}

// outcome says what a store, as it is on fs, answers.
func outcome(t testing.TB, fs vfs.FS, want map[uint32][2]uint64) (string, error) {
	t.Helper()
	s, err := raftlog.Open(damageDir, raftlog.Options{FS: fs, OnFatal: func(err error) { t.Errorf("fatal: %v", err) }})
	if err != nil {
		return "refused", err
	}
	defer s.Close()
	if _, err := s.Verify(context.Background()); err != nil {
		var corrupt *raftlog.CorruptError
		if !errors.As(err, &corrupt) {
			t.Errorf("damage reported as %T: %v", err, err)
		}
		return "named", err
	}
	if b, ok := s.Stamp(); !ok || string(b) != "cluster/server" {
		return "changed", fmt.Errorf("stamp %q, %v", b, ok)
	}
	gs, err := s.Groups()
	if err != nil || len(gs) != len(want) {
		return "changed", fmt.Errorf("groups %v, %v", gs, err)
	}
	for g, w := range want {
		first, err1 := s.Group(g).FirstIndex()
		last, err2 := s.Group(g).LastIndex()
		if err := errors.Join(err1, err2); err != nil {
			return "named", err
		}
		for i := first; i <= last; i++ {
			var got raft.Log
			if err := s.Group(g).GetLog(i, &got); err != nil {
				return "named", err
			}
			if !logtest.Equal(&got, logtest.Entry(g, i, 1)) {
				return "changed", fmt.Errorf("group %d, index %d: %+v", g, i, got)
			}
		}
		if first == w[0] && last < w[1] {
			return "shorter", fmt.Errorf("group %d is %d..%d, want %v", g, first, last, w)
		}
		if first != w[0] || last != w[1] {
			return "changed", fmt.Errorf("group %d is %d..%d, want %v", g, first, last, w)
		}
	}
	return "same", nil
}

// copyFS returns an independent copy.
func copyFS(t testing.TB, from vfs.FS) *vfs.MemFS {
	t.Helper()
	to := vfs.NewMem()
	if _, err := vfs.Clone(from, to, damageDir, damageDir); err != nil {
		t.Fatal(err)
	}
	return to
}

func readAll(t testing.TB, fs vfs.FS, path string) []byte {
	t.Helper()
	f, err := fs.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	b, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func rewrite(t testing.TB, fs vfs.FS, path string, b []byte) {
	t.Helper()
	f, err := fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		t.Fatal(err)
	}
	// The memory file system scrambles what it was given, when built with the race detector.
	if _, err := f.Write(bytes.Clone(b)); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// files lists the paths under dir.
func files(t testing.TB, fs vfs.FS, dir string) []string {
	t.Helper()
	names, err := fs.List(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, n := range names {
		path := fs.PathJoin(dir, n)
		if info, err := fs.Stat(path); err == nil && info.IsDir() {
			out = append(out, files(t, fs, path)...)
		} else if err == nil {
			out = append(out, path)
		}
	}
	return out
}

// kindOf groups paths by what they are.
func kindOf(fs vfs.FS, path string) string {
	name := fs.PathBase(path)
	switch {
	case strings.HasPrefix(name, "MANIFEST"):
		return "MANIFEST"
	case strings.HasPrefix(name, "OPTIONS"):
		return "OPTIONS"
	case strings.HasPrefix(name, "marker"):
		return "marker"
	case strings.HasSuffix(name, ".log"):
		return "wal"
	case strings.HasSuffix(name, ".sst"):
		return "table"
	}
	return name
}

// TestFlippedByte flips single bytes all over a store that was closed. Whatever is hit, the store is
// refused, or the entry is named when it is read, or nothing was lost.
func TestFlippedByte(t *testing.T) {
	t.Parallel() // it waits for files and goroutines much of the time
	base := vfs.NewMem()
	s, want := filled(t, base)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := outcome(t, copyFS(t, base), want); got != "same" {
		t.Fatalf("the undamaged store is %s: %v", got, err)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	counts := map[string]map[string]int{}
	for _, path := range files(t, base, damageDir) {
		b, kind := readAll(t, base, path), kindOf(base, path)
		if counts[kind] == nil {
			counts[kind] = map[string]int{}
		}
		for range min(len(b), flips(kind)) {
			at := rng.IntN(len(b))
			bad := append([]byte(nil), b...)
			bad[at] ^= 1 << rng.IntN(8)
			fs := copyFS(t, base)
			rewrite(t, fs, path, bad)
			got, err := outcome(t, fs, want)
			counts[kind][got]++
			if got == "changed" || got == "shorter" {
				t.Errorf("%s, byte %d of %d: %s: %v", path, at, len(b), got, err)
			}
		}
	}
	t.Log(counts)
	for kind, least := range map[string]string{"MANIFEST": "refused", "wal": "refused", "seal": "refused"} {
		if counts[kind][least] == 0 {
			t.Errorf("no damage of a %s was %s: %v", kind, least, counts[kind])
		}
	}
	if counts["MANIFEST"]["same"] != 0 {
		t.Errorf("damage of the MANIFEST passed: %v", counts["MANIFEST"])
	}
	if c := counts["table"]; c["refused"]+c["named"] == 0 {
		t.Errorf("no damage of a table was found: %v", c)
	}
}

// TestLostFile removes and shortens each file of a store that was closed.
func TestLostFile(t *testing.T) {
	base := vfs.NewMem()
	s, want := filled(t, base)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for _, path := range files(t, base, damageDir) {
		fs := copyFS(t, base)
		if err := fs.Remove(path); err != nil {
			t.Fatal(err)
		}
		got, err := outcome(t, fs, want)
		t.Logf("without %s: %s: %v", path, got, err)
		if got == "changed" || got == "shorter" {
			t.Errorf("without %s: %s: %v", path, got, err)
		}
		b := readAll(t, base, path)
		for range min(len(b), 6) {
			n := rng.IntN(len(b))
			fs := copyFS(t, base)
			rewrite(t, fs, path, b[:n])
			if got, err := outcome(t, fs, want); got == "changed" || got == "shorter" {
				t.Errorf("%s cut to %d of %d: %s: %v", path, n, len(b), got, err)
			}
		}
	}
}

// TestFlippedByteAfterCrash does the same to a store that was not closed. Here damage at the very end of
// the write-ahead log is like a write that was cut short, and may cost the last commit; nothing more.
func TestFlippedByteAfterCrash(t *testing.T) {
	t.Parallel() // it waits for files and goroutines much of the time
	live := vfs.NewCrashableMem()
	s, want := filled(t, live)
	base := live.CrashClone(vfs.CrashCloneCfg{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got, err := outcome(t, copyFS(t, base), want); got != "same" {
		t.Fatalf("the crashed store is %s: %v", got, err)
	}
	rng := rand.New(rand.NewPCG(5, 6))
	counts := map[string]map[string]int{}
	for _, path := range files(t, base, damageDir) {
		b, kind := readAll(t, base, path), kindOf(base, path)
		if counts[kind] == nil {
			counts[kind] = map[string]int{}
		}
		for n := range min(len(b), flips(kind)) {
			at := rng.IntN(len(b))
			if kind == "wal" && n%5 == 0 {
				at = len(b) - 1 - rng.IntN(100) // the last commit is there
			}
			bad := append([]byte(nil), b...)
			bad[at] ^= 1 << rng.IntN(8)
			fs := copyFS(t, base)
			rewrite(t, fs, path, bad)
			got, err := outcome(t, fs, want)
			if got == "shorter" && kind == "wal" && err.Error() == "group 2 is 1..1919, want [1 1920]" {
				got = "last commit lost"
			}
			counts[kind][got]++
			if got == "changed" || got == "shorter" {
				t.Errorf("%s, byte %d of %d: %s: %v", path, at, len(b), got, err)
			}
		}
	}
	t.Log(counts)
	for kind, c := range counts {
		if kind != "lock" && kind != "LOCK" && kind != "marker" && kind != "OPTIONS" && c["refused"]+c["named"] == 0 {
			t.Errorf("no damage of a %s was found: %v", kind, c)
		}
	}
}

// flips is how many bytes are flipped per file.
func flips(kind string) int {
	switch kind {
	case "MANIFEST", "wal":
		return testkit.Choose(30, 100, 100)
	case "seal":
		return testkit.Choose(15, 40, 40)
	}
	return 6
}

// TestFlippedByteLargeCommits is about write-ahead logs of large batches, each synced, in which Pebble
// finds hardly any damage by itself; and about flipped log numbers, which it takes for an orderly end.
func TestFlippedByteLargeCommits(t *testing.T) {
	t.Parallel() // it waits for files and goroutines much of the time
	live := vfs.NewCrashableMem()
	s, err := raftlog.Open(damageDir, raftlog.Options{FS: live, MustCreate: true, MemTableBytes: 8 << 20,
		OnFatal: func(err error) { t.Errorf("fatal: %v", err) }})
	if err != nil {
		t.Fatal(err)
	}
	const n = 70
	for i := uint64(1); i <= n; i++ {
		l := &raft.Log{Index: i, Term: 1, Data: make([]byte, 50_000)}
		if err := s.Group(0).StoreLog(l); err != nil {
			t.Fatal(err)
		}
	}
	base := live.CrashClone(vfs.CrashCloneCfg{})
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	var path string
	for _, f := range files(t, base, damageDir) {
		if kindOf(base, f) == "wal" && f > path {
			path = f
		}
	}
	b := readAll(t, base, path)
	last := func(bad []byte) (uint64, error) {
		fs := copyFS(t, base)
		rewrite(t, fs, path, bad)
		s, err := raftlog.Open(damageDir, raftlog.Options{FS: fs, OnFatal: func(err error) { t.Errorf("fatal: %v", err) }})
		if err != nil {
			return 0, err
		}
		defer s.Close()
		return s.Group(0).LastIndex()
	}
	if got, err := last(b); err != nil || got != n {
		t.Fatalf("undamaged: %d, %v", got, err)
	}
	// The log's number, as in each chunk.
	var number uint32
	if _, err := fmt.Sscanf(base.PathBase(path), "%d.log", &number); err != nil {
		t.Fatal(err)
	}
	mark := binary.LittleEndian.AppendUint32(nil, number)
	rng := rand.New(rand.NewPCG(7, 8))
	var refused, shorter int
	flip := func(at int, bit uint) {
		bad := append([]byte(nil), b...)
		bad[at] ^= 1 << bit
		got, err := last(bad)
		var corrupt *raftlog.CorruptError
		switch {
		case errors.As(err, &corrupt):
			refused++
		case err != nil:
			t.Errorf("byte %d: %T %v", at, err, err)
		case got < n-1:
			t.Errorf("byte %d of %d: the log ends at %d, %d were stored", at, len(b), got, n)
		case got == n-1:
			shorter++
		}
	}
	tries, most := testkit.Choose(20, 60, 60), testkit.Choose(10, 20, 20)
	for range tries {
		flip(rng.IntN(len(b)), uint(rng.IntN(8)))
	}
	numbers := 0
	for at := bytes.Index(b, mark); numbers < most; numbers++ {
		flip(at, 0)
		next := bytes.Index(b[at+1:], mark)
		if next < 0 {
			break
		}
		at += 1 + next
	}
	t.Logf("%d refused, %d lost the last commit", refused, shorter)
	if numbers < 10 || refused+shorter+5 < tries+numbers || shorter > 10 {
		t.Errorf("%d refused, %d lost the last commit, of %d and %d log numbers", refused, shorter, tries, numbers)
	}
}
