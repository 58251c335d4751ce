package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
)

// later is so much later that a partial counts as abandoned.
const later = 2 * abandonedAfter

// TestCreate makes two backups. The second copies what has changed, and nothing else.
func TestCreate(t *testing.T) {
	s, c := memFolder(t), newCluster(3, 4)
	first, err := Create(t.Context(), c, s, optionsAt(t, start))
	if err != nil {
		t.Fatal(err)
	}
	if first.Name != "20260506T070809Z" || first.Cut != 1 || first.Cluster != "c-1" || first.Level != 6 || !first.Created.Equal(start) {
		t.Fatalf("made %+v", first.Manifest)
	}
	if len(c.cuts) != 1 || first.Unreleased != nil {
		t.Fatalf("the nodes have %d cuts, error %v; want the one of the backup", len(c.cuts), first.Unreleased)
	}
	// Node n2's replica is rebuilt: the same names and sizes, other bytes.
	rebuilt := first.States[1].Node
	old := c.replicas[replicaOf{rebuilt, 1}]["000001.sst"]
	c.write(rebuilt, 1, "000001.sst", strings.Repeat("x", len(old)))
	c.write(first.States[0].Node, 0, "000009.sst", "flushed")
	clear(c.reads)
	c.before = func(call string, at Checkpoint, name string) error {
		if call == "release" {
			return errors.New("planted: no release")
		}
		return nil
	}
	second, err := Create(t.Context(), c, s, optionsAt(t, start.Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(len(old) + len("flushed")); second.Progress.Copied != want || second.Progress.Stored != want || len(c.reads) != 2 {
		t.Fatalf("the second copied %d bytes and stored %d, want %d: %v", second.Progress.Copied, second.Progress.Stored, want, c.reads)
	}
	if second.Unreleased == nil {
		t.Fatal("a cut that was not released is not reported")
	}
	checkBackup(t, s, second.Manifest, c.cuts[2])
	if list, err := Partials(t.Context(), s); err != nil || len(list) > 0 {
		t.Fatalf("partials are left: %v, error %v", list, err)
	}
	if all, err := Names(t.Context(), s); err != nil || len(all) != 2 {
		t.Fatalf("backups %v, error %v", all, err)
	}
}

// TestResumeKilled kills a create at each call of the store, before or behind it. The next one continues its cut, and
// copies no file a second time that was in the store.
func TestResumeKilled(t *testing.T) {
	for _, whole := range []bool{false, true} {
		for calls := 0; ; calls++ {
			s, c := memFolder(t), newCluster(2, 2)
			dies := mortalStore(s, calls)
			dies.whole = whole
			_, err := Create(t.Context(), c, dies, optionsAt(t, start))
			if !dies.dead() {
				if calls < 20 || err != nil {
					t.Fatalf("a create is done after %d calls, error %v", calls, err)
				}
				break
			}
			resumes(t, fmt.Sprintf("killed at call %d, whole %v", calls, whole), s, c, dies)
		}
	}
}

// resumes makes the backup that an interrupted create began.
func resumes(t *testing.T, when string, s Store, c *cluster, before *mortal) {
	t.Helper()
	made, err := Names(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range made { // it died behind the manifest
		if problems, err := Verify(t.Context(), s, name, nil); err != nil || len(problems) > 0 {
			t.Fatalf("%s: the backup has %v, error %v", when, problems, err)
		}
	}
	cuts := c.cut
	again := mortalStore(s, 1<<30)
	r, err := Create(t.Context(), c, again, optionsAt(t, start.Add(later)))
	if err != nil {
		t.Fatalf("%s: %v", when, err)
	}
	if problems, err := Verify(t.Context(), s, r.Name, nil); err != nil || len(problems) > 0 {
		t.Fatalf("%s: the next backup has %v, error %v", when, problems, err)
	}
	for name := range before.puts { //lint:sorted each is checked
		if strings.HasPrefix(name, filesPrefix) && again.puts[name] > 0 {
			t.Fatalf("%s: %s was stored twice", when, name)
		}
		if sum, isFile := strings.CutPrefix(name, filesPrefix); isFile && len(made) == 0 {
			size, _, err := s.Exists(t.Context(), name)
			if err != nil || c.reads[sum] > size && sum != sumOf([]byte("same everywhere")) {
				t.Fatalf("%s: %d bytes of %s were read, it has %d, error %v", when, c.reads[sum], name, size, err)
			}
		}
	}
	// The cut is the same one if the first create could note it.
	if len(made) == 0 && r.Progress.Resumed != "" && c.cut != cuts {
		t.Fatalf("%s: another cut was entered", when)
	}
	if len(before.puts) > 1 && r.Progress.Resumed == "" && len(made) == 0 {
		t.Fatalf("%s: %v were put, and nothing was resumed", when, before.puts)
	}
	if list, err := Partials(t.Context(), s); err != nil || len(list) > 0 {
		t.Fatalf("%s: partials are left: %v, error %v", when, list, err)
	}
}

// TestResumeCancelled cancels a create at each call of the source. The next one continues at once.
func TestResumeCancelled(t *testing.T) {
	for at := 0; ; at++ {
		s, c := memFolder(t), newCluster(2, 2)
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		c.before = func(string, Checkpoint, string) error {
			if calls++; calls > at {
				cancel()
			}
			return nil
		}
		first := mortalStore(s, 1<<30)
		_, err := Create(ctx, c, first, optionsAt(t, start))
		cancel()
		c.before = nil
		if err == nil {
			if at < 50 {
				t.Fatalf("a create is done after %d calls", at)
			}
			return
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("call %d: %v", at, err)
		}
		again := mortalStore(s, 1<<30)
		r, err := Create(t.Context(), c, again, optionsAt(t, start.Add(time.Second)))
		if err != nil {
			t.Fatalf("call %d: %v", at, err)
		}
		for name := range first.puts { //lint:sorted each is checked
			if strings.HasPrefix(name, filesPrefix) && again.puts[name] > 0 {
				t.Fatalf("call %d: %s was stored twice", at, name)
			}
		}
		if at > 1 && (r.Progress.Resumed == "" || r.Cut != 1) {
			t.Fatalf("call %d: cut %d, resumed %q", at, r.Cut, r.Progress.Resumed)
		}
		if problems, err := Verify(t.Context(), s, r.Name, nil); err != nil || len(problems) > 0 {
			t.Fatalf("call %d: %v, error %v", at, problems, err)
		}
	}
}

// TestResumeNot leaves a partial that no create may continue: of another cluster, of a create that may run, of a cut
// that is gone.
func TestResumeNot(t *testing.T) {
	for _, test := range []struct {
		name   string
		after  time.Duration
		change func(*cluster)
	}{
		{"of another cluster", later, func(c *cluster) { c.id = "c-2" }},
		{"of a create that runs", time.Minute, func(*cluster) {}},
		{"of a cut that is gone", later, func(c *cluster) { clear(c.cuts) }},
		{"of a state that differs", later, func(c *cluster) { c.cuts[1] = nil }},
	} {
		s, c := memFolder(t), newCluster(1, 2)
		if _, err := Create(t.Context(), c, mortalStore(s, 25), optionsAt(t, start)); !errors.Is(err, errDead) {
			t.Fatal(err)
		}
		test.change(c)
		r, err := Create(t.Context(), c, s, optionsAt(t, start.Add(test.after)))
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		if r.Progress.Resumed != "" || r.Cut != 2 {
			t.Fatalf("%s: cut %d, resumed %q", test.name, r.Cut, r.Progress.Resumed)
		}
	}
}

// TestReplicaVanishes has a node die at each of its calls. Every state is of one node, and the other node is asked for
// no more than it has to be.
func TestReplicaVanishes(t *testing.T) {
	for at := 0; ; at++ {
		s, c := memFolder(t), newCluster(2, 2)
		calls, dead := 0, false
		c.before = func(_ string, where Checkpoint, _ string) error {
			if where.Node == "n1" {
				calls++
				dead = dead || calls > at
			}
			if dead && where.Node == "n1" {
				return errors.New("planted: connection reset")
			}
			return nil
		}
		var files map[replicaOf]map[string][]byte
		opts := optionsAt(t, start)
		opts.Progress = func(Progress) { files = maps.Clone(c.cuts[c.cut]) }
		r, err := Create(t.Context(), c, s, opts)
		if err != nil {
			t.Fatalf("node n1 vanished at call %d: %v", at, err)
		}
		checkBackup(t, s, r.Manifest, files)
		if r.Cut != 1 {
			t.Fatalf("node n1 vanished at call %d: cut %d", at, r.Cut)
		}
		if !dead {
			return
		}
	}
}

// TestReplicaHiccups breaks each part of a read once: it continues where it was, on the same node.
func TestReplicaHiccups(t *testing.T) {
	s, c := memFolder(t), newCluster(1, 2)
	calls := 0
	c.before = func(string, Checkpoint, string) error {
		if calls++; c.cut > 0 && calls%3 == 0 {
			return io.ErrUnexpectedEOF
		}
		return nil
	}
	r, err := Create(t.Context(), c, s, optionsAt(t, start))
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := Verify(t.Context(), s, r.Name, nil); err != nil || len(problems) > 0 {
		t.Fatalf("%v, error %v", problems, err)
	}
	if r.Progress.Copied != r.Bytes() {
		t.Fatalf("%d bytes were read of %d", r.Progress.Copied, r.Bytes())
	}
}

// TestNewCut removes a cut in the middle: another one is entered, and files of the first are not stored again. A
// cluster that never has one is given up.
func TestNewCut(t *testing.T) {
	s, c := memFolder(t), newCluster(2, 2)
	removed := false
	c.before = func(call string, _ Checkpoint, name string) error {
		if call == "read" && name == "000002.sst" && !removed {
			removed = true
			c.mu.Lock()
			clear(c.cuts)
			c.mu.Unlock()
		}
		return nil
	}
	counted := mortalStore(s, 1<<30)
	r, err := Create(t.Context(), c, counted, optionsAt(t, start))
	if err != nil || r.Cut != 2 {
		t.Fatalf("made %+v, error %v", r, err)
	}
	for name, n := range counted.puts { //lint:sorted each is checked
		if strings.HasPrefix(name, filesPrefix) && n > 1 {
			t.Fatalf("%s was stored %d times", name, n)
		}
	}
	c.before = func(call string, _ Checkpoint, _ string) error {
		if call == "read" || call == "hash" {
			return &GoneError{}
		}
		return nil
	}
	var lost *ReplicasError
	if _, err := Create(t.Context(), c, s, optionsAt(t, start.Add(time.Hour))); !errors.As(err, &lost) || len(lost.Errs) != 2 || c.cut != 5 {
		t.Fatalf("cut %d, error %v", c.cut, err)
	}
}

// TestDamage flips a bit of each object of a backup, shortens it, lengthens it and removes it: Verify names that one.
func TestDamage(t *testing.T) {
	mem := vfs.NewMem()
	s, err := openFolder(mem, "store")
	if err != nil {
		t.Fatal(err)
	}
	c := newCluster(2, 2)
	r, err := Create(t.Context(), c, s, optionsAt(t, start))
	if err != nil {
		t.Fatal(err)
	}
	objects, err := s.List(t.Context(), filesPrefix)
	if err != nil || len(objects) != 2+2*3 {
		t.Fatalf("%d files, error %v", len(objects), err)
	}
	objects = append(objects, Object{Name: backupsPrefix + r.Name + jsonSuffix})
	for _, o := range objects {
		good := get(t, s, o.Name)
		for kind, bad := range map[string]func() string{ //lint:sorted each is checked
			"bit":     func() string { return good[:len(good)/2] + string(good[len(good)/2]^4) + good[len(good)/2+1:] },
			"shorter": func() string { return good[:len(good)-1] },
			"longer":  func() string { return good + "x" },
			"missing": func() string { return "" },
		} {
			if good == "" && kind != "longer" && kind != "missing" || kind == "missing" && !strings.HasPrefix(o.Name, filesPrefix) {
				continue // there is no such damage
			}
			if err := s.Delete(t.Context(), o.Name); err != nil {
				t.Fatal(err)
			}
			if kind != "missing" {
				put(t, s, o.Name, bad())
			}
			problems, err := Verify(t.Context(), s, r.Name, nil)
			if err != nil || len(problems) != 1 || problems[0].Object != o.Name {
				t.Fatalf("%s, %s: found %v, error %v", o.Name, kind, problems, err)
			}
			if strings.HasPrefix(o.Name, filesPrefix) && len(problems[0].Uses) == 0 {
				t.Fatalf("%s, %s: no state is named", o.Name, kind)
			}
		}
		put(t, s, o.Name, good)
	}
	// A create does not use what was discarded.
	put(t, s, objects[0].Name, get(t, s, objects[0].Name)+"x")
	problems, err := Verify(t.Context(), s, r.Name, nil)
	if err == nil {
		err = Discard(t.Context(), s, problems)
	}
	if err != nil {
		t.Fatal(err)
	}
	next, err := Create(t.Context(), c, s, optionsAt(t, start.Add(time.Hour)))
	if err != nil {
		t.Fatal(err)
	}
	if problems, err := Verify(t.Context(), s, next.Name, nil); err != nil || len(problems) > 0 {
		t.Fatalf("%v, error %v", problems, err)
	}
}

// TestTwoCreates makes two backups at once, which begin in the same second.
func TestTwoCreates(t *testing.T) {
	for round := range 20 {
		s, c := memFolder(t), newCluster(3, 3)
		var group sync.WaitGroup
		results, errs := make([]*Result, 2), make([]error, 2)
		for i := range results {
			opts := optionsAt(t, start)
			opts.Parallel = 3
			group.Go(func() { results[i], errs[i] = Create(t.Context(), c, s, opts) })
		}
		group.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
		if results[0].Name == results[1].Name {
			t.Fatalf("round %d: both are %s", round, results[0].Name)
		}
		for _, r := range results {
			if problems, err := Verify(t.Context(), s, r.Name, nil); err != nil || len(problems) > 0 {
				t.Fatalf("round %d: %v, error %v", round, problems, err)
			}
		}
		if list, err := Partials(t.Context(), s); err != nil || len(list) > 0 {
			t.Fatalf("round %d: partials are left: %v, error %v", round, list, err)
		}
	}
}

// TestFullTarget fills the target's disk at each of its writes: the backup before stays whole, and when there is room the
// create continues.
func TestFullTarget(t *testing.T) {
	for at := 0; ; at++ {
		mem := vfs.NewMem()
		c, writes, full := newCluster(1, 2), 0, false
		s, err := openFolder(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind.ReadOrWrite() != errorfs.OpIsWrite || op.Kind == errorfs.OpRemove {
				return nil
			}
			if writes++; full && writes > at {
				return syscall.ENOSPC
			}
			return nil
		})), "store")
		if err != nil {
			t.Fatal(err)
		}
		before, err := Create(t.Context(), c, s, optionsAt(t, start))
		if err != nil {
			t.Fatal(err)
		}
		for p := range uint32(2) {
			c.write("n1", p, "000003.sst", fmt.Sprintf("new in %d", p))
		}
		writes, full = 0, true
		during, err := Create(t.Context(), c, s, optionsAt(t, start.Add(time.Hour)))
		if problems, err := Verify(t.Context(), s, before.Name, nil); err != nil || len(problems) > 0 {
			t.Fatalf("full at write %d: the backup before has %v, error %v", at, problems, err)
		}
		if err == nil {
			if during.Name == "" || at < 10 {
				t.Fatalf("write %d did not fail", at)
			}
			return
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatalf("full at write %d: %v", at, err)
		}
		full = false
		after, err := Create(t.Context(), c, s, optionsAt(t, start.Add(time.Hour+later)))
		if err != nil {
			t.Fatalf("full at write %d, then not: %v", at, err)
		}
		if problems, err := Verify(t.Context(), s, after.Name, nil); err != nil || len(problems) > 0 {
			t.Fatalf("full at write %d, then not: %v, error %v", at, problems, err)
		}
	}
}

// TestRate bounds the bytes of a create.
func TestRate(t *testing.T) {
	s, c := memFolder(t), newCluster(1, 3)
	opts := optionsAt(t, start)
	var mu sync.Mutex
	now := start
	opts.now = func() time.Time { mu.Lock(); defer mu.Unlock(); return now }
	opts.sleep = func(ctx context.Context, d time.Duration) error {
		mu.Lock()
		defer mu.Unlock()
		now = now.Add(d)
		return ctx.Err()
	}
	opts.Rate = 100
	r, err := Create(t.Context(), c, s, opts)
	if err != nil {
		t.Fatal(err)
	}
	took := now.Sub(start).Seconds()
	if least := float64(r.Progress.Copied-16) / 100; took < least || took > least+2 {
		t.Fatalf("%d bytes took %.1f s at 100 bytes a second", r.Progress.Copied, took)
	}
}
