package fsm

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/hashicorp/raft"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/machine"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
)

// sparse gives a log whose numbers run from one mark to the next within a few entries, and now and then past
// several at once.
func sparse(t testing.TB, seed uint64, n int) *script {
	return newSparseScript(t, seed, n, func(rng *rand.Rand) uint64 {
		if rng.IntN(40) == 0 {
			return 3 * markEvery
		}
		return 1 + rng.Uint64N(markEvery/3)
	})
}

// marks are those of the rule, computed differently from the store: for each multiple of markEvery the first
// command entry at or behind it, with a replay's checksum.
func (s *script) marks() []Mark {
	var out []Mark
	end := s.logs[len(s.logs)-1].Index
	for at := uint64(markEvery); at <= end; at += markEvery {
		i := slices.IndexFunc(s.logs, func(l *raft.Log) bool { return l.Index >= at && l.Type == raft.LogCommand })
		if i < 0 {
			break
		}
		if m := (Mark{s.logs[i].Index, s.checksums[i]}); len(out) == 0 || out[len(out)-1] != m {
			out = append(out, m)
		}
	}
	return out
}

// between are the marks with after < index <= upTo, the newest 64 of them.
func between(marks []Mark, after, upTo uint64) []Mark {
	var out []Mark
	for _, m := range marks {
		if m.Index > after && m.Index <= upTo {
			out = append(out, m)
		}
	}
	return out[max(0, len(out)-marksKept):]
}

// present is where a replay of the first n entries is.
func (s *script) present(n int) Mark {
	if n == 0 {
		return Mark{}
	}
	return Mark{s.last(n), s.checksums[n-1]}
}

func (s *script) wantMarks(t *testing.T, what string, store *Store, after uint64, n int) {
	t.Helper()
	if have, want := store.Marks(), between(s.marks(), after, s.last(n)); !slices.Equal(have, want) {
		t.Errorf("%s: the marks are\n%v, want\n%v", what, have, want)
	}
	if have, want := store.Present(), s.present(n); have != want {
		t.Errorf("%s: it is at %v, want %v", what, have, want)
	}
}

// Replicas note the same marks in whatever batches their entries come.
func TestMarksInAnyBatches(t *testing.T) {
	s := sparse(t, 41, 700)
	if all := s.marks(); len(all) < 2*marksKept {
		t.Fatalf("a poor script: %d marks", len(all))
	}
	for _, atOnce := range []int{1, 7, 64, 700} {
		store := open(t, vfs.NewMem(), "state", true)
		s.wantMarks(t, "new", store, 0, 0)
		for from := 0; from < len(s.logs); {
			to := min(len(s.logs), from+atOnce)
			s.apply(t, store, from, to, atOnce)
			from = to
			if from%3 == 0 || from == len(s.logs) {
				s.wantMarks(t, fmt.Sprintf("%d at once, after %d", atOnce, from), store, 0, from)
			}
			if t.Failed() {
				return
			}
		}
	}
}

// A restart drops the marks and continues with the same indices, wherever it falls between two marks, and
// however much the log repeats.
func TestMarksAcrossRestart(t *testing.T) {
	s := sparse(t, 42, 60)
	for stop := range len(s.logs) {
		fs := vfs.NewMem()
		w := newWatcher()
		store, err := Open("state", w.options(fs, true))
		if err != nil {
			t.Fatal(err)
		}
		s.apply(t, store, 0, stop, 5)
		s.wantMarks(t, fmt.Sprintf("until %d", stop), store, 0, stop)
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		store = open(t, fs, "state", false)
		s.wantMarks(t, fmt.Sprintf("restarted after %d", stop), store, s.last(stop), stop)
		s.apply(t, store, max(0, stop-10), len(s.logs), 7)
		s.wantMarks(t, fmt.Sprintf("restarted after %d, at last", stop), store, s.last(stop), len(s.logs))
		if t.Failed() {
			return
		}
	}
}

// An installed state has no marks of the one it replaces, and continues with the same indices.
func TestMarksAcrossInstall(t *testing.T) {
	s := sparse(t, 43, 80)
	for upTo := 1; upTo < len(s.logs); upTo += 3 {
		source := open(t, vfs.NewMem(), "source", true)
		s.apply(t, source, 0, upTo, 10)
		content := contentOfStore(t, source)
		for _, had := range []int{0, upTo / 2, upTo} {
			what := fmt.Sprintf("%d entries installed over %d", upTo, had)
			store := open(t, vfs.NewMem(), "state", true)
			s.apply(t, store, 0, had, 4)
			if store.Restore(io.NopCloser(bytes.NewReader(content[:len(content)-1]))) == nil {
				t.Fatal("content that was cut is installed")
			}
			s.wantMarks(t, what+", content that is refused", store, 0, had)
			if err := store.Restore(io.NopCloser(bytes.NewReader(content))); err != nil {
				t.Fatal(err)
			}
			s.wantMarks(t, what, store, s.last(upTo), upTo)
			s.apply(t, store, max(0, upTo-5), len(s.logs), 9)
			s.wantMarks(t, what+", at last", store, s.last(upTo), len(s.logs))
			if t.Failed() {
				return
			}
		}
	}
}

// A value that has changed on one replica's disk shows at the first mark behind the entry that uses it.
func TestMarksShowFlippedValue(t *testing.T) {
	const promise = "promise"
	entry := func(index uint64, cmd *commandv1.Command) *raft.Log {
		data, err := EncodeEntry(&commandv1.Entry{TimeMs: 1_000_000 + int64(index), Commands: []*commandv1.Command{cmd}})
		if err != nil {
			t.Fatal(err)
		}
		return &raft.Log{Index: index, Term: 1, Type: raft.LogCommand, Data: data}
	}
	other := func(index uint64) *raft.Log {
		id := fmt.Sprintf("other-%d", index)
		return entry(index, &commandv1.Command{Namespace: ns, Id: id, Kind: &commandv1.Command_CreatePromise{
			CreatePromise: &perdurev1.CreatePromiseRequest{Id: id, TimeoutMs: 1 << 30}}})
	}
	logs := []*raft.Log{
		entry(100, &commandv1.Command{Namespace: ns, Id: promise, Kind: &commandv1.Command_CreatePromise{
			CreatePromise: &perdurev1.CreatePromiseRequest{Id: promise, TimeoutMs: 1 << 30, Param: []byte("a parameter")}}}),
		other(300), // mark
		other(400), // here the value is flipped
		other(600), // mark, as if nothing were
		entry(700, &commandv1.Command{Namespace: ns, Id: promise, Kind: &commandv1.Command_SettlePromise{
			SettlePromise: &perdurev1.SettlePromiseRequest{Id: promise, State: perdurev1.PromiseState_PROMISE_STATE_RESOLVED}}}),
		other(800),  // mark
		other(1100), // mark
	}
	marksOf := func(flip bool) (out []Mark) {
		fs := vfs.NewMem()
		apply := func(logs []*raft.Log, create bool, change func(*pebble.DB)) {
			w := newWatcher()
			store, err := Open("state", w.options(fs, create))
			if err != nil {
				t.Fatal(err)
			}
			for i, a := range store.ApplyBatch(logs) {
				res, applied := a.(*machine.Result)
				if !applied || wire.ReplyError(res.Replies[0]) != nil {
					t.Fatalf("entry %d: %v", logs[i].Index, a)
				}
			}
			out = append(out, store.Marks()...)
			if err := store.Flush(); err != nil {
				t.Fatal(err)
			}
			change(store.db)
			if err := store.Close(); err != nil {
				t.Fatal(err)
			}
		}
		apply(logs[:3], true, func(db *pebble.DB) {
			key := keys.Of(keys.Promise, ns, promise)
			v, ok, err := (view{db}).Get(key)
			at := bytes.Index(v, []byte("a parameter"))
			if err != nil || !ok || at < 0 {
				t.Fatalf("%q, %v", v, err)
			}
			if flip {
				v[at] ^= 1
			}
			if err := db.Set(key, v, pebble.NoSync); err != nil {
				t.Fatal(err)
			}
		})
		apply(logs[3:], false, func(*pebble.DB) {})
		return out
	}
	sound, flipped := marksOf(false), marksOf(true)
	if len(sound) != 4 || len(flipped) != 4 {
		t.Fatalf("%v and %v", sound, flipped)
	}
	for i, index := range []uint64{300, 600, 800, 1100} {
		if sound[i].Index != index || flipped[i].Index != index {
			t.Fatalf("%v and %v", sound, flipped)
		}
		if differ := sound[i] != flipped[i]; differ != (index > 700) {
			t.Errorf("at %d: %v and %v", index, sound[i], flipped[i])
		}
	}
}

// Marks are read concurrently with the machine and always equal a replay's.
func TestMarksBesideApply(t *testing.T) {
	s := sparse(t, 44, 300)
	all := s.marks()
	store := open(t, vfs.NewMem(), "state", true)
	stop := make(chan struct{})
	var readers sync.WaitGroup
	for range 2 {
		readers.Add(1)
		go func() {
			defer readers.Done()
			last := uint64(0)
			for {
				p := store.Present()
				n, ok := s.position(p.Index)
				if !ok || p.Index < last || p != s.present(n) {
					t.Errorf("present is %v after %d", p, last)
					return
				}
				last = p.Index
				for _, m := range store.Marks() {
					if !slices.Contains(all, m) {
						t.Errorf("%v is not a mark", m)
						return
					}
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		}()
	}
	s.apply(t, store, 0, len(s.logs), 3)
	close(stop)
	readers.Wait()
	s.wantMarks(t, "at last", store, 0, len(s.logs))
}

// OnApplied runs once for every entry, in order, when reads see the entry; OnRestored runs after a
// replacement of the state.
func TestHooks(t *testing.T) {
	s := newScript(t, 45, 120)
	var store *Store
	var applied []*machine.Result
	var appliedAt []uint64
	restored := 0
	opts := newWatcher().options(vfs.NewMem(), true)
	opts.OnApplied = func(res *machine.Result) {
		st, err := store.Status()
		if err != nil {
			t.Error(err)
		}
		applied, appliedAt = append(applied, res), append(appliedAt, st.Applied)
	}
	opts.OnRestored = func() {
		restored++
		if st, err := s.agrees(store); err != nil || st.Applied != s.last(100) {
			t.Errorf("OnRestored for the content at %+v, %v", st, err)
		}
	}
	var err error
	if store, err = Open("state", opts); err != nil {
		t.Fatal(err)
	}
	expect := func(what string, answers []any, last uint64) {
		t.Helper()
		var want []*machine.Result
		for _, a := range answers {
			if res, ok := a.(*machine.Result); ok {
				want = append(want, res)
			}
		}
		if !slices.Equal(applied, want) {
			t.Errorf("%s: OnApplied got %d entries, not the %d applied", what, len(applied), len(want))
		}
		for _, at := range appliedAt {
			if at != last {
				t.Errorf("%s: OnApplied ran when the state was at %d, not %d", what, at, last)
			}
		}
		applied, appliedAt = nil, nil
	}
	for _, step := range []struct{ from, to int }{{0, 1}, {1, 20}, {5, 20}, {15, 60}} {
		answers := store.ApplyBatch(s.logs[step.from:step.to])
		if step.to == 60 && len(applied) == 0 {
			t.Error("OnApplied was not called")
		}
		expect(fmt.Sprint(step), answers, s.last(step.to))
	}

	source := open(t, vfs.NewMem(), "source", true)
	s.apply(t, source, 0, 100, 10)
	content := contentOfStore(t, source)
	if store.Restore(io.NopCloser(strings.NewReader("nothing"))) == nil || restored != 0 {
		t.Errorf("OnRestored ran %d times for content that was refused", restored)
	}
	if err := store.Restore(io.NopCloser(bytes.NewReader(content))); err != nil || restored != 1 {
		t.Errorf("OnRestored ran %d times for the content, %v", restored, err)
	}
	expect("what the content brought", nil, 0)
	expect("after it", store.ApplyBatch(s.logs[90:110]), s.last(110))

	bad := &raft.Log{Index: s.logs[119].Index + 1, Term: 1, Type: raft.LogCommand, Data: []byte{entryFormat, 0xff}}
	for _, a := range store.ApplyBatch(append(slices.Clone(s.logs[110:]), bad)) {
		if _, failed := a.(error); !failed {
			t.Errorf("%v in a batch that fails", a)
		}
	}
	expect("a batch that fails", nil, 0)
	if have, want := store.Present(), s.present(len(s.logs)); have != want {
		t.Errorf("then it is at %v, not %v, that of the last entry that can be read", have, want)
	}
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}
