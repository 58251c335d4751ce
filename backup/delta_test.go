package backup

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// createAt makes a backup some hours after start.
func createAt(t *testing.T, c *cluster, s Store, hours int, change ...func(*Options)) *Result {
	t.Helper()
	opts := optionsAt(t, start.Add(time.Duration(hours)*time.Hour))
	for _, f := range change {
		f(&opts)
	}
	r, err := Create(t.Context(), c, s, opts)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// checkDeltas checks that each state is the files of a base and so many deltas, each from the cut before to the next.
func checkDeltas(t *testing.T, s Store, r *Result, base *Manifest, deltas int) {
	t.Helper()
	problems, err := Verify(t.Context(), s, r.Name, nil)
	if err != nil || len(problems) > 0 {
		t.Fatalf("backup %s: %v, error %v", r.Name, problems, err)
	}
	for p, state := range r.States {
		if len(state.Deltas) != deltas || fmt.Sprint(state.Files) != fmt.Sprint(base.States[p].Files) {
			t.Fatalf("backup %s, partition %d: %d deltas, want %d; files %v", r.Name, p, len(state.Deltas), deltas, state.Files)
		}
		for i, d := range state.Deltas {
			cut := base.Cut + uint64(i)
			name, text := deltaOf(uint32(p), Base{cut, 100*cut + uint64(p)}, Base{cut + 1, 100*(cut+1) + uint64(p)})
			if d.Name != name || d.SHA256 != sumOf([]byte(text)) || d.From != 100*cut+uint64(p) || d.To != 100*(cut+1)+uint64(p) {
				t.Fatalf("backup %s, partition %d: delta %d is %+v, want %s", r.Name, p, i, d, name)
			}
		}
	}
}

// TestDeltas makes backups one after the other: each copies a delta of each partition, from any replica that has both
// states. The nodes keep the state of the last one, and no other.
func TestDeltas(t *testing.T) {
	s, c := memFolder(t), newCluster(3, 4)
	c.deltas = true
	first := createAt(t, c, s, 0)
	checkDeltas(t, s, first, first.Manifest, 0)
	if first.Format != 1 {
		t.Fatalf("format %d", first.Format)
	}
	for i := 1; i <= 4; i++ {
		c.write("n1", 0, "000001.sst", fmt.Sprint("compacted ", i))
		if i == 3 { // the node of the last backup is lost
			c.gone[first.States[1].Node] = true
		}
		r := createAt(t, c, s, i)
		checkDeltas(t, s, r, first.Manifest, i)
		if r.Format != 2 || r.Progress.Copied > 400 || len(c.cuts) != 1 || c.cuts[r.Cut] == nil {
			t.Fatalf("format %d, %d bytes copied, %d cuts kept", r.Format, r.Progress.Copied, len(c.cuts))
		}
	}
	// A backup needs no manifest of another one.
	newest, err := Newest(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Keep(t.Context(), s, c.id, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := Collect(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if problems, err := Verify(t.Context(), s, newest, nil); err != nil || len(problems) > 0 {
		t.Fatalf("%v, error %v", problems, err)
	}
}

// TestNoDelta has what prevents a delta: the files are copied, and the next backup has a delta again.
func TestNoDelta(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(t *testing.T, s Store, c *cluster, last *Manifest) func(*Options)
	}{
		{"the checkpoint is gone", func(_ *testing.T, _ Store, c *cluster, _ *Manifest) func(*Options) { clear(c.cuts); return nil }},
		{"a full backup", func(*testing.T, Store, *cluster, *Manifest) func(*Options) { return func(o *Options) { o.Full = true } }},
		{"a file of the base is gone", func(t *testing.T, s Store, _ *cluster, last *Manifest) func(*Options) {
			for _, state := range last.States {
				if err := s.Delete(t.Context(), state.Files[0].Object()); err != nil {
					t.Fatal(err)
				}
			}
			return nil
		}},
		{"a delta is gone", func(t *testing.T, s Store, _ *cluster, last *Manifest) func(*Options) {
			for _, state := range last.States {
				if err := s.Delete(t.Context(), state.Deltas[0].Object()); err != nil {
					t.Fatal(err)
				}
			}
			return nil
		}},
		{"the cluster began again", func(_ *testing.T, _ Store, c *cluster, _ *Manifest) func(*Options) { c.cut = 0; return nil }},
		{"another cluster", func(_ *testing.T, _ Store, c *cluster, _ *Manifest) func(*Options) { c.id = "c-2"; return nil }},
	} {
		s, c := memFolder(t), newCluster(2, 2)
		c.deltas = true
		createAt(t, c, s, 0)
		last := createAt(t, c, s, 1)
		var change []func(*Options)
		if f := test.change(t, s, c, last.Manifest); f != nil {
			change = append(change, f)
		}
		r := createAt(t, c, s, 2, change...)
		for p, state := range r.States {
			if len(state.Deltas) > 0 || len(state.Files) != 5 {
				t.Fatalf("%s: partition %d has %d deltas and %d files", test.name, p, len(state.Deltas), len(state.Files))
			}
		}
		if problems, err := Verify(t.Context(), s, r.Name, nil); err != nil || len(problems) > 0 {
			t.Fatalf("%s: %v, error %v", test.name, problems, err)
		}
		if change != nil {
			if len(c.cuts) != 0 {
				t.Fatalf("%s: it keeps %d cuts", test.name, len(c.cuts))
			}
			continue
		}
		if next := createAt(t, c, s, 3); len(next.States[0].Deltas) != 1 {
			t.Fatalf("%s: the next backup has no delta", test.name)
		}
	}
}

// TestNoDeltaOfNodeAlone: a node alone has no name, so the last backup at the URL may be of another one.
func TestNoDeltaOfNodeAlone(t *testing.T) {
	s, c := memFolder(t), newCluster(1, 2)
	c.id, c.deltas = "", true
	for i := range 3 {
		if r := createAt(t, c, s, i); len(r.States[0].Deltas) > 0 {
			t.Fatalf("backup %d has %d deltas", i, len(r.States[0].Deltas))
		}
	}
}

// TestManyDeltas makes backups until the deltas of a state are too many, and until they are too large: then a backup
// copies the files again.
func TestManyDeltas(t *testing.T) {
	s, c := memFolder(t), newCluster(1, 1)
	c.deltas = true
	for i := range maxDeltas + 2 {
		if r, want := createAt(t, c, s, i), i%(maxDeltas+1); len(r.States[0].Deltas) != want {
			t.Fatalf("backup %d has %d deltas, want %d", i, len(r.States[0].Deltas), want)
		}
	}
	base := State{Files: []File{{Size: 4 * leastDeltas}}, Deltas: []Delta{{File: File{Size: leastDeltas}}}}
	if got := base.deltaLimit(); got != leastDeltas {
		t.Fatalf("a delta may have %d bytes", got)
	}
	base.Deltas = append(base.Deltas, base.Deltas[0])
	if got := base.deltaLimit(); got != 0 {
		t.Fatalf("a delta may have %d bytes", got)
	}
	asked := map[int64]bool{}
	limited := &limitedSource{cluster: c, asked: asked}
	r, err := Create(t.Context(), limited, s, optionsAt(t, start.Add(1000*time.Hour)))
	if err != nil || len(r.States[0].Deltas) != 0 {
		t.Fatalf("made %+v, error %v", r, err)
	}
	if len(asked) != 1 {
		t.Fatalf("asked for deltas of %v bytes", asked)
	}
}

// limitedSource has deltas that are too large.
type limitedSource struct {
	*cluster
	asked map[int64]bool
}

func (s *limitedSource) Delta(_ context.Context, _ uint64, _ Checkpoint, _ Base, limit int64) (Listed, error) {
	if limit <= 0 {
		return Listed{}, errors.New("a limit of 0")
	}
	s.asked[limit] = true
	return Listed{}, ErrDeltaTooLarge
}

// TestDeltaResumes kills a create that copies deltas at each call of the store, and cancels one at each call of the source:
// the next one continues its cut, still from the last backup.
func TestDeltaResumes(t *testing.T) {
	for calls := 0; ; calls++ {
		s, c := memFolder(t), newCluster(2, 2)
		c.deltas = true
		first := createAt(t, c, s, 0)
		dies := mortalStore(s, calls)
		_, err := Create(t.Context(), c, dies, optionsAt(t, start.Add(time.Hour)))
		if !dies.dead() {
			if calls < 20 || err != nil {
				t.Fatalf("a create is done after %d calls, error %v", calls, err)
			}
			break
		}
		r := createAt(t, c, s, 2)
		if r.Cut == 2 {
			checkDeltas(t, s, r, first.Manifest, 1)
		} else if problems, err := Verify(t.Context(), s, r.Name, nil); err != nil || len(problems) > 0 {
			t.Fatalf("call %d: %v, error %v", calls, problems, err)
		}
	}
	for at := 0; ; at++ {
		s, c := memFolder(t), newCluster(2, 2)
		c.deltas = true
		first := createAt(t, c, s, 0)
		ctx, cancel := context.WithCancel(t.Context())
		calls := 0
		c.before = func(string, Checkpoint, string) error {
			if calls++; calls > at {
				cancel()
			}
			return nil
		}
		_, err := Create(ctx, c, s, optionsAt(t, start.Add(time.Hour)))
		cancel()
		c.before = nil
		if err == nil {
			return
		}
		r := createAt(t, c, s, 2)
		checkDeltas(t, s, r, first.Manifest, 1)
	}
}

// TestDeltaDamage flips a bit of each object of a backup with deltas, and removes it: Verify names that one.
func TestDeltaDamage(t *testing.T) {
	s, c := memFolder(t), newCluster(2, 2)
	c.deltas = true
	createAt(t, c, s, 0)
	createAt(t, c, s, 1)
	r := createAt(t, c, s, 2)
	files, uses := objects(r.Manifest)
	deltas := 0
	for _, f := range files {
		if f.Size == 0 {
			continue
		}
		if strings.Contains(uses[f][0], "delta-") {
			deltas++
		}
		good := get(t, s, f.Object())
		put(t, s, f.Object(), good[:len(good)/2]+string(good[len(good)/2]^4)+good[len(good)/2+1:])
		for range 2 {
			problems, err := Verify(t.Context(), s, r.Name, nil)
			if err != nil || len(problems) != 1 || problems[0].Object != f.Object() || len(problems[0].Uses) == 0 {
				t.Fatalf("%v: found %v, error %v", f, problems, err)
			}
			if err := s.Delete(t.Context(), f.Object()); err != nil {
				t.Fatal(err)
			}
		}
		put(t, s, f.Object(), good)
	}
	if deltas != 4 {
		t.Fatalf("%d deltas were damaged", deltas)
	}
}

// TestDeltaManifest refuses manifests whose deltas lead elsewhere.
func TestDeltaManifest(t *testing.T) {
	sum := sumOf(nil)
	for name, change := range map[string]func(*Manifest){ //lint:sorted each is checked
		"as made":             func(*Manifest) {},
		"a gap":               func(m *Manifest) { m.States[0].Deltas[1].From++ },
		"another end":         func(m *Manifest) { m.States[0].Index++ },
		"backwards":           func(m *Manifest) { m.States[0].Deltas[0].From = 20 },
		"no name":             func(m *Manifest) { m.States[0].Deltas[0].Name = "../x" },
		"its parent's name":   func(m *Manifest) { m.States[0].Deltas[0].Name = ".." },
		"the name of a file":  func(m *Manifest) { m.States[0].Deltas[0].Name = "000001.sst" },
		"format 1":            func(m *Manifest) { m.Format = 1 },
		"format 2 without":    func(m *Manifest) { m.States[0].Deltas = nil },
		"a format to come":    func(m *Manifest) { m.Format = Format + 1 },
		"a format before all": func(m *Manifest) { m.Format = 0 },
	} {
		m := Manifest{Format: 2, Name: "20260506T070809Z", Cluster: "c", Cut: 3, Partitions: 1, States: []State{{Index: 30, Node: "n1",
			Files:  []File{{"000001.sst", 0, sum}},
			Deltas: []Delta{{10, 20, File{"delta-1-10-2-20", 0, sum}}, {20, 30, File{"delta-2-20-3-30", 0, sum}}}}}}
		change(&m)
		b, err := m.encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := decode(b); (err == nil) != (name == "as made") {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

// TestFirstFormat reads a manifest as the first version with backups wrote it: every later version restores its backups.
func TestFirstFormat(t *testing.T) {
	s, err := openFolder(vfs.Default, "testdata/format1")
	if err != nil {
		t.Fatal(err)
	}
	m, err := Read(t.Context(), s, "20260506T070809Z")
	if err != nil || m.Format != 1 || len(m.States) != 2 || len(m.States[1].Deltas) != 0 {
		t.Fatalf("read %+v, error %v", m, err)
	}
	if problems, err := Verify(t.Context(), s, m.Name, nil); err != nil || len(problems) > 0 {
		t.Fatalf("%v, error %v", problems, err)
	}
}
