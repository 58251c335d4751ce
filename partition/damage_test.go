package partition

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/testkit"
	"perdure/partition/group"
	"perdure/partition/identity"
)

var update = flag.Bool("update", false, "rewrite the golden files")

const damagePartitions = 2

func diskConfig(t *testing.T, dir string) Config {
	cfg := memConfig(t, vfs.Default, nil, damagePartitions)
	cfg.DataDir = dir
	cfg.TrailingLogs, cfg.MemtableBytes = 16, 256<<10
	return cfg
}

// written is what a directory holds.
type written struct {
	inputs   map[string]string // executions and their input
	settled  map[string]string // promises and their value
	signals  map[string]int
	victim   string // the execution whose input is alone in a block of a state's table
	identity identity.Identity
}

// noise does not get smaller by compression, so it can be found again in a file.
func noise(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return string(b)
}

// write fills a new directory, in several flushes and with the log cut, and closes the node.
func write(t *testing.T, dir string) *written {
	t.Helper()
	w := &written{inputs: map[string]string{}, settled: map[string]string{}, signals: map[string]int{}}
	n, err := Start(diskConfig(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	ready(t, n)
	r := n.Router()
	w.identity = n.Identity()
	for part := range 4 {
		many := 40
		if part == 3 {
			many = 200 // which the log still holds, in tables and in the write-ahead log
		}
		for k := range many {
			id := fmt.Sprintf("execution-%d-%d", part, k)
			w.inputs[id] = noise(1000)
			must(t, r, startCmd("start of "+id, id, "f", w.inputs[id]))
			if k%4 == 0 {
				must(t, r, signalCmd("signal of "+id, id, "go", "payload"))
				w.signals[id]++
			}
			if k%5 == 0 {
				promise := fmt.Sprintf("promise-%d-%d", part, k)
				must(t, r, promiseCmd(promise, 1<<40))
				must(t, r, settleCmd(promise, "value of "+promise))
				w.settled[promise] = "value of " + promise
			}
		}
		if part == 0 {
			// A large value before the victim keeps its block free of others. The test does not read that
			// value again: a reader that reads it to its end would read the next block.
			before := idIn(r, 1, "the-one-before-the-victim")
			must(t, r, startCmd("start of the one before", before, "f", noise(16<<10)))
			w.victim = idIn(r, 1, "victim")
			w.inputs[w.victim] = noise(16 << 10)
			must(t, r, startCmd("start of the victim", w.victim, "f", w.inputs[w.victim]))
		}
		if part < 3 {
			for _, replica := range n.router.Replicas() {
				if err := replica.Cover(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	closeNode(t, n)
	return w
}

// there checks that everything is there, but for what except names.
func (w *written) there(ctx context.Context, r *Router, except string) error {
	for _, id := range slices.Sorted(maps.Keys(w.inputs)) {
		if id == except {
			continue
		}
		q, _, err := r.Query(ctx, group.Linearizable, journalQuery(id))
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		signals := 0
		for _, e := range q.GetJournal().Entries {
			if e.Event.GetSignalDelivered() != nil {
				signals++
			}
		}
		started := q.GetJournal().Entries[0].Event.GetExecutionStarted()
		if string(started.GetInput()) != w.inputs[id] || signals != w.signals[id] {
			return fmt.Errorf("%s: input of %d bytes, %d signals; %d and %d were written", id, len(started.GetInput()), signals, len(w.inputs[id]), w.signals[id])
		}
	}
	for id, value := range w.settled {
		q, _, err := r.Query(ctx, group.Linearizable, promiseQuery(id))
		if err != nil {
			return fmt.Errorf("%s: %w", id, err)
		}
		if got := string(q.GetPromise().Promise.Value.GetValue()); got != value {
			return fmt.Errorf("%s: %q, %q was written", id, got, value)
		}
	}
	return nil
}

// hurt is a copy of a directory that something is done to.
type hurt struct {
	t        *testing.T
	dir      string // the copy
	template string
	other    string // another node's directory
	w        *written
	cfg      Config
	touched  map[string]bool // relative paths, of files and folders
}

func (h *hurt) path(rel string) string { return filepath.Join(h.dir, rel) }

// one is the only file that a pattern finds, or the last one, which is the youngest.
func (h *hurt) one(pattern string) string {
	found, err := filepath.Glob(h.path(pattern))
	if err != nil || len(found) == 0 {
		h.t.Fatalf("no file %s (%v)", pattern, err)
	}
	slices.Sort(found)
	rel, _ := filepath.Rel(h.dir, found[len(found)-1])
	return rel
}

func (h *hurt) all(pattern string) (rels []string) {
	found, err := filepath.Glob(h.path(pattern))
	if err != nil || len(found) == 0 {
		h.t.Fatalf("no file %s (%v)", pattern, err)
	}
	for _, f := range found {
		rel, _ := filepath.Rel(h.dir, f)
		rels = append(rels, rel)
	}
	return rels
}

func (h *hurt) check(err error) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
}

// flip turns a bit of one byte; a negative offset counts from the end.
func (h *hurt) flip(rel string, offset int) {
	h.t.Helper()
	h.touched[rel] = true
	b, err := os.ReadFile(h.path(rel))
	h.check(err)
	if offset < 0 {
		offset += len(b)
	}
	if offset < 0 || offset >= len(b) {
		h.t.Fatalf("%s has %d bytes, not one at %d", rel, len(b), offset)
	}
	b[offset] ^= 0x10
	h.check(os.WriteFile(h.path(rel), b, 0o644))
}

// find flips a byte of a text in those files of a pattern that hold it.
func (h *hurt) find(pattern, text string) bool {
	h.t.Helper()
	found := false
	for _, rel := range h.all(pattern) {
		b, err := os.ReadFile(h.path(rel))
		h.check(err)
		if at := bytes.Index(b, []byte(text)); at >= 0 {
			h.flip(rel, at+len(text)/2)
			found = true
		}
	}
	return found
}

// entry finds where a file holds the text of an execution whose entry the log still needs: the first one in
// the file, or the one written last.
func (h *hurt) entry(rel string, last bool) (string, int) {
	h.t.Helper()
	b, err := os.ReadFile(h.path(rel))
	h.check(err)
	found := -1
	for k := range 200 {
		at := bytes.Index(b, []byte(h.w.inputs[fmt.Sprintf("execution-3-%d", k)][400:464]))
		if at >= 0 && (last || found < 0 || at < found) {
			found = at
		}
	}
	if found < 0 {
		h.t.Fatalf("no entry that the log still needs is in %s", rel)
	}
	return rel, found
}

// holding is the first file of a pattern that holds the entry of an execution.
func (h *hurt) holding(pattern string, k int) string {
	h.t.Helper()
	for _, rel := range h.all(pattern) {
		b, err := os.ReadFile(h.path(rel))
		h.check(err)
		if bytes.Contains(b, []byte(h.w.inputs[fmt.Sprintf("execution-3-%d", k)][400:464])) {
			return rel
		}
	}
	h.t.Fatalf("execution %d is in no file %s", k, pattern)
	return ""
}

func (h *hurt) size(rel string) int {
	info, err := os.Stat(h.path(rel))
	h.check(err)
	return int(info.Size())
}

func (h *hurt) cut(rel string, to int) {
	h.touched[rel] = true
	h.check(os.Truncate(h.path(rel), int64(to)))
}

func (h *hurt) remove(rel string) {
	h.touched[rel] = true
	h.check(os.RemoveAll(h.path(rel)))
}

func (h *hurt) swap(a, b string) {
	h.touched[a], h.touched[b] = true, true
	h.check(os.Rename(h.path(a), h.path("swap")))
	h.check(os.Rename(h.path(b), h.path(a)))
	h.check(os.Rename(h.path("swap"), h.path(b)))
}

// foreign replaces this node's file or folder by another node's.
func (h *hurt) foreign(rel string) {
	h.remove(rel)
	copyTree(h.t, filepath.Join(h.other, rel), h.path(rel))
}

// heal puts back what was touched.
func (h *hurt) heal() {
	for rel := range h.touched {
		h.check(os.RemoveAll(h.path(rel)))
		copyTree(h.t, filepath.Join(h.template, rel), h.path(rel))
	}
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, path)
		if d.IsDir() {
			return os.MkdirAll(filepath.Join(to, rel), 0o755)
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, rel), b, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// files hashes every file of a directory that holds data: not the locks.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		if strings.EqualFold(filepath.Base(rel), "lock") {
			return nil
		}
		b, err := os.ReadFile(path)
		out[rel] = fmt.Sprintf("%x", sha256.Sum256(b))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

type damageCase struct {
	name string
	do   func(h *hurt)
	// want is what must come of it: refused, halts (when it is met), or serves (everything is there).
	want string
	// opened is what was opened before the refusal: nothing, terms and votes, or the log too. Their files
	// change when they are opened, what they hold does not.
	opened string
}

const (
	terms = "terms and votes"
	logs  = "the log"
)

const (
	refused = "refused"
	halts   = "halts"
	serves  = "serves"
	either  = "refused, or everything is there"
)

// TestDamage covers damage and loss on a real directory. Each case copies a node's directory, changes one
// thing in it, and starts a node on it. The start must fail with an error that names what is wrong, and leave
// every file as it was. Where the damage is met later, everything else is served until then, and that
// partition alone halts, by name. testdata/damage.txt has each case's outcome, for people to read.
func TestDamage(t *testing.T) {
	t.Parallel() // it waits for the disk most of the time
	base := t.TempDir()
	template, other := filepath.Join(base, "data"), filepath.Join(base, "other")
	w := write(t, template)
	write(t, other)
	before := files(t, template)
	golden := readGolden(t)
	cases := damageCases()
	said := make([]string, len(cases))
	t.Run("cases", func(t *testing.T) {
		for i, c := range cases {
			if !testkit.Long() && !*update && i%testkit.Choose(30, 10, 1) != 0 {
				said[i] = golden[c.name]
				continue
			}
			t.Run(strings.ReplaceAll(c.name, "/", "_"), func(t *testing.T) {
				t.Parallel()
				dir := filepath.Join(base, fmt.Sprintf("case%d", i))
				defer func() { _ = os.RemoveAll(dir) }()
				copyTree(t, template, dir)
				h := &hurt{t: t, dir: dir, template: template, other: other, w: w, cfg: diskConfig(t, dir), touched: map[string]bool{}}
				c.do(h)
				said[i] = h.run(c)
				if said[i] != golden[c.name] && !*update {
					t.Errorf("it says\n%s\nand not, as in %s (rewrite it with -update),\n%s", said[i], goldenDamage, golden[c.name])
				}
			})
		}
	})
	if !maps.Equal(before, files(t, template)) {
		t.Error("the directory that was copied has changed")
	}
	cfg := diskConfig(t, template)
	n := startNode(t, cfg)
	if err := w.there(bg(t), n.Router(), ""); err != nil {
		t.Errorf("the undamaged directory: %v", err)
	}
	if *update && !t.Failed() {
		var all strings.Builder
		for i, c := range cases {
			fmt.Fprintf(&all, "%s\n    %s\n", c.name, strings.ReplaceAll(said[i], "\n", "\n    "))
		}
		if err := os.WriteFile(goldenDamage, []byte(all.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

const goldenDamage = "testdata/damage.txt"

// readGolden reads what each case says, by the case's name.
func readGolden(t *testing.T) map[string]string {
	t.Helper()
	b, err := os.ReadFile(goldenDamage)
	if err != nil && !*update {
		t.Fatal(err)
	}
	out, name := map[string]string{}, ""
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSuffix(line, "\n")
		if text, more := strings.CutPrefix(line, "    "); more {
			out[name] = strings.TrimPrefix(out[name]+"\n"+text, "\n")
			continue
		}
		name = line
	}
	return out
}

// run starts a node on the damaged copy, and returns the outcome in words.
func (h *hurt) run(c damageCase) (outcome string) {
	t := h.t
	before := files(t, h.dir)
	n, err := Start(h.cfg)
	if err != nil {
		if c.want != refused && c.want != either {
			t.Fatalf("refused: %v", err)
		}
		h.unchanged(before, c.opened)
		h.healed(c.opened)
		if c.want == either {
			return either
		}
		return refused + ": " + h.words(err)
	}
	defer closeNode(t, n)
	ctx := bg(t)
	if c.want == refused {
		ready(t, n)
		t.Fatalf("started, and: %v", h.w.there(ctx, n.Router(), ""))
	}
	if c.want == serves || c.want == either {
		ready(t, n)
		if err := h.w.there(ctx, n.Router(), ""); err != nil {
			t.Fatalf("it serves, but: %v", err)
		}
		if c.want == either {
			return either
		}
		return serves + ": everything is there"
	}
	// Everything but the victim is served, then the victim is read. A compaction may read it first.
	halted := func() bool { return n.router.Replicas()[1].Halted() != nil }
	waitFor(t, "the node to serve or to meet the damage", func() bool { return n.NotReady() == nil || halted() }, func() string { return fmt.Sprint(n.NotReady()) })
	if err := h.w.there(ctx, n.Router(), h.w.victim); err != nil && !halted() {
		t.Fatalf("before the damage was met: %v", err)
	}
	_, _, err = n.Router().Query(ctx, group.Linearizable, journalQuery(h.w.victim))
	if reasonOf(err) != perdurev1.Reason_REASON_CORRUPT {
		t.Fatalf("reading the damaged block answers %v", err)
	}
	if n.NotReady() == nil || !strings.Contains(n.NotReady().Error(), "partition 1 has halted") {
		t.Errorf("readiness says %v", n.NotReady())
	}
	if n.Err() != nil {
		t.Errorf("the whole node has halted: %v", n.Err())
	}
	r := n.Router()
	if _, err := r.Propose(ctx, startCmd("x", idIn(r, 1, "later"), "f", "")); reasonOf(err) != perdurev1.Reason_REASON_CORRUPT {
		t.Errorf("the halted partition answers %v", err)
	}
	must(t, r, startCmd("x", idIn(r, 0, "later"), "f", ""))
	return halts + ": " + h.words(err) + "\nreadiness: " + h.words(n.NotReady())
}

// unchanged checks that a refused start has left every file that holds data as it was.
func (h *hurt) unchanged(before map[string]string, opened string) {
	h.t.Helper()
	after := files(h.t, h.dir)
	for _, all := range []map[string]string{before, after} {
		for rel := range all {
			if before[rel] == after[rel] || opened != "" && rel == identity.StableFile || opened == logs && strings.HasPrefix(rel, identity.RaftLogDir+"/") {
				continue
			}
			h.t.Errorf("the refused start has changed %s: %.8s, before %.8s", rel, after[rel], before[rel])
		}
	}
}

// healed checks that with the damage undone everything is there again, after the refused start.
func (h *hurt) healed(opened string) {
	h.t.Helper()
	if opened == logs {
		// A log that was damaged and then opened is put back whole; one that was only opened is left.
		for rel := range h.touched {
			if strings.HasPrefix(rel, identity.RaftLogDir) {
				h.touched = map[string]bool{identity.RaftLogDir: true}
			}
		}
	}
	h.heal()
	n, err := Start(diskConfig(h.t, h.dir))
	if err != nil {
		h.t.Errorf("healed, it is refused: %v", err)
		return
	}
	defer closeNode(h.t, n)
	ready(h.t, n)
	if err := h.w.there(bg(h.t), n.Router(), ""); err != nil {
		h.t.Errorf("healed: %v", err)
	}
}

var (
	kept    = regexp.MustCompile(`(state|markers)-\d{4}|(partition|group) \d+`)
	hexes   = regexp.MustCompile(`[0-9a-f]{16,}`)
	numbers = regexp.MustCompile(`\bL\d\b|\b(0x)?[0-9a-f]*\d[0-9a-f]*\b`)
)

// words are those of an error, without what differs from run to run.
func (h *hurt) words(err error) string {
	s := strings.ReplaceAll(err.Error(), h.dir, "DIR")
	var keep []string
	s = kept.ReplaceAllStringFunc(s, func(m string) string {
		keep = append(keep, m)
		return "\x00"
	})
	s = numbers.ReplaceAllString(hexes.ReplaceAllString(s, "HEX"), "N")
	for _, k := range keep {
		s = strings.Replace(s, "\x00", k, 1)
	}
	return s
}
