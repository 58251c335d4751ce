package boltfile

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// filled makes a file with branch pages, overflow pages, free pages and both kinds of buckets.
func filled(t testing.TB, noFreelistSync bool) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "f.bolt")
	db, err := Open(path, Options{Create: true, NoFreelistSync: noFreelistSync})
	if err != nil {
		t.Fatal(err)
	}
	for i := uint64(1); i <= 400; i += 40 {
		var logs []*raft.Log
		for j := i; j < i+40; j++ {
			logs = append(logs, &raft.Log{Index: j, Data: bytes.Repeat([]byte{byte(j)}, int(j))})
		}
		if err := db.StoreLogs(logs); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(db.DeleteRange(1, 150), db.Set([]byte("big"), make([]byte, 20_000)),
		db.Set([]byte("k"), []byte("v"))); err != nil {
		t.Fatal(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestCheckAcceptsSoundFiles(t *testing.T) {
	for _, noSync := range []bool{true, false} {
		path := filled(t, noSync)
		if err := Check(path); err != nil {
			t.Errorf("NoFreelistSync=%v: %v", noSync, err)
		}
		db, err := Open(path, Options{NoFreelistSync: noSync})
		if err != nil {
			t.Fatal(err)
		}
		if v, err := db.Get([]byte("k")); err != nil || string(v) != "v" {
			t.Errorf("%q, %v", v, err)
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestCheckAgreesWithBolt grows files at random and asks both.
func TestCheckAgreesWithBolt(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	path := filepath.Join(t.TempDir(), "f.bolt")
	for round := range 20 {
		db, err := bbolt.Open(path, 0o600, &bbolt.Options{NoFreelistSync: round%4 == 3, NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			err := db.Update(func(tx *bbolt.Tx) error {
				b, err := tx.CreateBucketIfNotExists([]byte{'b', byte(rng.IntN(3))})
				if err != nil {
					return err
				}
				if rng.IntN(4) == 0 {
					if b, err = b.CreateBucketIfNotExists([]byte("nested")); err != nil {
						return err
					}
				}
				for range rng.IntN(50) {
					key := []byte(fmt.Sprintf("k%04d", rng.IntN(2000)))
					if b.Bucket(key) != nil {
						continue
					}
					if rng.IntN(3) == 0 {
						err = b.Delete(key)
					} else {
						err = b.Put(key, make([]byte, rng.IntN(1<<rng.IntN(14))))
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if err := Check(path); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}

// TestCheckSurvivesAnything: whatever bytes are damaged, Check returns, and a file it passes can be opened
// and read without a crash of the process.
func TestCheckSurvivesAnything(t *testing.T) {
	for _, noSync := range []bool{true, false} {
		path := filled(t, noSync)
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(2, 2))
		passed, refused := 0, 0
		for n := range 3000 {
			bad := bytes.Clone(b)
			for range 1 + n%3 {
				at := rng.IntN(len(bad))
				if n%2 == 0 {
					at = at&^4095 + rng.IntN(80) // headers and elements
				}
				if n%4 == 0 {
					bad[at] = byte(rng.Uint32())
				} else {
					bad[at] ^= 1 << rng.IntN(8)
				}
			}
			if n%10 == 0 {
				bad = bad[:rng.IntN(len(bad))]
			}
			if err := check(bytes.NewReader(bad), int64(len(bad)), "f"); err != nil {
				var corrupt *CorruptError
				if !errors.As(err, &corrupt) {
					t.Fatalf("%T: %v", err, err)
				}
				refused++
				continue
			}
			if passed++; passed > 60 {
				continue // opening is slow
			}
			p := filepath.Join(t.TempDir(), "bad.bolt")
			if err := os.WriteFile(p, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			db, err := Open(p, Options{NoFreelistSync: noSync})
			if err != nil {
				t.Errorf("passed Check, then: %v", err)
				continue
			}
			err = Guard(p, func() error {
				for i := uint64(1); i <= 400; i++ {
					var l raft.Log
					_ = db.GetLog(i, &l) // damaged content is the caller's to find
				}
				_, _ = db.Get([]byte("big"))
				return db.Set([]byte("k"), []byte("w"))
			})
			if err != nil {
				t.Errorf("passed Check, then: %v", err)
			}
			if err := db.Close(); err != nil {
				t.Error(err)
			}
		}
		t.Logf("NoFreelistSync=%v: %d refused, %d passed", noSync, refused, passed)
		if refused < 500 || passed < 20 {
			t.Errorf("%d refused, %d passed", refused, passed)
		}
	}
}

// TestStalePage points a bucket at a page that was in use before: sound by itself, and freed. With the list
// of free pages in the file this is noticed.
func TestStalePage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.bolt")
	db, err := Open(path, Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 6 {
		if err := db.Set([]byte("k"), bytes.Repeat([]byte{byte(i)}, 3000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	c := &checker{r: bytes.NewReader(b), size: int64(len(b))}
	if err := c.run(); err != nil {
		t.Fatal(err)
	}
	// The root leaf holds the bucket "conf", whose value begins with the page it lies on.
	root := b[c.meta.root*uint64(c.meta.pageSize):][:c.meta.pageSize]
	at := bytes.Index(root, []byte("conf")) + 4
	old := order.Uint64(root[at:])
	tried := 0
	for id := uint64(2); id < c.meta.highWater; id++ {
		page := b[id*uint64(c.meta.pageSize):]
		if id == old || order.Uint16(page[8:]) != leafFlag || order.Uint64(page) != id || !bytes.Contains(page[:200], []byte("k")) {
			continue
		}
		bad := bytes.Clone(b)
		order.PutUint64(bad[c.meta.root*uint64(c.meta.pageSize)+uint64(at):], id)
		tried++
		if check(bytes.NewReader(bad), int64(len(bad)), path) == nil {
			t.Errorf("the older page %d is accepted in place of %d", id, old)
		}
	}
	if tried == 0 {
		t.Error("no older page in the file")
	}
}

func TestOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.bolt")
	var missing *MissingError
	if _, err := Open(path, Options{}); !errors.As(err, &missing) {
		t.Fatalf("missing file: %v", err)
	}
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the refused open made a file: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var corrupt *CorruptError
	if _, err := Open(path, Options{}); !errors.As(err, &corrupt) {
		t.Fatalf("empty file: %v", err)
	}
	if err := os.WriteFile(path, bytes.Repeat([]byte("not bolt "), 4000), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path, Options{Create: true}); !errors.As(err, &corrupt) {
		t.Fatalf("garbage: %v", err)
	}
	db, err := Open(filepath.Join(t.TempDir(), "g.bolt"), Options{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
}

func TestLocked(t *testing.T) {
	path := filled(t, false)
	db, err := Open(path, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := Open(path, Options{Timeout: 1}); !errors.Is(err, bbolterrors.ErrTimeout) {
		t.Fatalf("second open: %v, want a time-out", err)
	}
}

func FuzzCheck(f *testing.F) {
	for _, noSync := range []bool{true, false} {
		b, err := os.ReadFile(filled(f, noSync))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:min(len(b), 1<<17)])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		_ = check(bytes.NewReader(b), int64(len(b)), "fuzz")
	})
}
