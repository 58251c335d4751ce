package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
)

const left = perdurev1.PurgeState_PURGE_STATE_LEFT

func purgeManyCmd(ids ...string) *commandv1.Command {
	many := &commandv1.PurgeMany{}
	for _, id := range ids {
		many.Purges = append(many.Purges, &perdurev1.PurgeRequest{Id: id, Force: true})
	}
	return &commandv1.Command{Namespace: ns, Kind: &commandv1.Command_PurgeMany{PurgeMany: many}}
}

// purgeMany applies a purge of many to the only partition.
func (w *world) purgeMany(ids ...string) []perdurev1.PurgeState {
	w.t.Helper()
	return w.do(purgeManyCmd(ids...)).GetPurgeMany().GetStates()
}

// wantStates compares the answer to a purge of many.
func wantStates(t *testing.T, what string, got []perdurev1.PurgeState, want ...perdurev1.PurgeState) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: answered %v, want %v", what, got, want)
	}
}

// One command purges what takes little, and nothing else: what is open, young, of another incarnation or large stays whole. Its
// repetition finds what is gone absent, and so does an id that is named twice.
func TestPurgeMany(t *testing.T) {
	w := newWorld(t, 1)
	for _, id := range []string{"done", "failed", "again"} {
		w.commit(w.begin(id, "f"), map[bool]string{true: "step s -> x; return x", false: "fail e:x"}[id != "failed"])
	}
	w.begin("open", "f")
	v := w.begin("parent", "f")
	w.commit(v, "child g x; return x") // the child is open
	w.commit(w.begin("waited", "f"), "sleep 50; return x")
	w.do(createPromiseCmd("pending", 50_000))
	w.do(createPromiseCmd("settled", 50_000))
	w.do(settlePromiseCmd("settled", perdurev1.PromiseState_PROMISE_STATE_RESOLVED, "1"))
	ids := []string{"done", "open", "parent", "done", "failed", "nothing", "waited", "settled", "pending", "settled", "a:0"}
	want := []perdurev1.PurgeState{deleted, left, left, absent, deleted, absent, left, deleted, left, absent, left}
	wantStates(t, "first", w.purgeMany(ids...), want...)
	w.sound(w.parts[0])
	for i, id := range ids {
		if rows := w.left(id, 0); (want[i] == left && id != "a:0") != (len(rows) > 0) {
			t.Errorf("of %s are left %q", id, rows)
		}
	}
	for i, s := range want {
		if s == deleted {
			want[i] = absent
		}
	}
	wantStates(t, "repeated", w.purgeMany(ids...), want...)

	other := purgeManyCmd("again", "again", "again", "again")
	for i, change := range []func(*perdurev1.PurgeRequest){
		func(r *perdurev1.PurgeRequest) { r.Incarnation = 77 },
		func(r *perdurev1.PurgeRequest) { r.Force = false },
		func(r *perdurev1.PurgeRequest) { r.EndedBeforeMs = w.describe("again").ClosedMs },
		func(r *perdurev1.PurgeRequest) { r.Incarnation = w.describe("again").Incarnation },
	} {
		change(other.GetPurgeMany().Purges[i])
	}
	wantStates(t, "by incarnation and age", w.do(other).GetPurgeMany().GetStates(), absent, left, left, deleted)
}

// A purge of many leaves the id's next incarnation alone, and what a worker of the former one sends afterwards effects nothing.
func TestPurgeManyAndTheNextIncarnation(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("a", "f")
	was := w.describe("a")
	late := *v
	w.commit(v, "step s -> x; return x")
	named := purgeManyCmd("a")
	named.GetPurgeMany().Purges[0].Incarnation = was.Incarnation
	wantStates(t, "first", w.do(named).GetPurgeMany().GetStates(), deleted)
	next := w.begin("a", "f")
	w.commitRefused(&late, "step t -> z", perdurev1.Reason_REASON_STALE_TASK, "")
	wantStates(t, "late repetition", w.do(named).GetPurgeMany().GetStates(), absent)
	wantStates(t, "of what is open", w.purgeMany("a"), left)
	w.commit(next, "return x")
	wantStates(t, "late repetition of the end", w.do(named).GetPurgeMany().GetStates(), absent)
	if got := w.course("a"); got != "started completed" {
		t.Errorf("the new incarnation is %s", got)
	}
	// An execution that is a new incarnation by a restart has rows of the former one: it is left to a purge of its own.
	w.do(restartCmd(w.request(), "a", fromStart, 0))
	w.tick()
	w.do(terminateCmd("a", "enough"))
	wantStates(t, "restarted", w.purgeMany("a"), left)
	w.sound(w.parts[0])
	if got := w.purge("a"); got != deleted {
		t.Errorf("by a command of its own: %v", got)
	}
}

// A refused command of many changes nothing: with too many purges, with none, with one of another partition.
func TestPurgeManyRefused(t *testing.T) {
	w := newWorld(t, 2)
	var ids []string
	for n := 0; len(ids) < MaxPurges+1; n++ {
		if id := fmt.Sprintf("e-%d", n); state.PartitionOf(ns, id, 2) == 0 {
			ids = append(ids, id)
		}
	}
	elsewhere := "e-0"
	for n := 0; state.PartitionOf(ns, elsewhere, 2) == 0; n++ {
		elsewhere = fmt.Sprintf("e-%d", n)
	}
	w.commit(w.begin(ids[0], "f"), "return x")
	w.refused(purgeManyCmd(ids...), perdurev1.Reason_REASON_BAD_REQUEST)
	w.refused(purgeManyCmd(), perdurev1.Reason_REASON_BAD_REQUEST)
	e := w.refused(purgeManyCmd(ids[0], elsewhere), perdurev1.Reason_REASON_TRY_LATER)
	if e.Meta["id"] != elsewhere {
		t.Errorf("refused for %q: %v", e.Meta["id"], e)
	}
	got := w.purgeMany(ids[:MaxPurges]...)
	if len(got) != MaxPurges || got[0] != deleted || got[1] != absent {
		t.Errorf("purged: %v", got)
	}
}

// A parent with a spread child, and the child, are each purged where they are; the child only when its end has reached its parent.
func TestPurgeManyOfSpread(t *testing.T) {
	w := newWorld(t, 2)
	v := w.begin("a", "f")
	w.commit(v, "child g in spread")
	w.ship()
	child := w.only("w2", "g")
	w.commit(child, "return 1")
	at := func(id string) perdurev1.PurgeState {
		reply := w.apply(w.at(id), &commandv1.Entry{Commands: []*commandv1.Command{purgeManyCmd(id)}}).Replies[0]
		if e := wire.ReplyError(reply); e != nil {
			t.Fatal(e)
		}
		return reply.GetPurgeMany().GetStates()[0]
	}
	if got := at(child.token.Id); got != deleted {
		t.Errorf("the child: %v", got)
	}
	w.ship()
	if got := w.course("a"); got != "started scheduled started completed" {
		t.Errorf("the parent is %s", got)
	}
	w.commit(v, "return x")
	if got := at("a"); got != left { // it has a proxy promise
		t.Errorf("the parent: %v", got)
	}
	for _, p := range w.parts {
		w.sound(p)
	}
}

// The purges of one command read a bounded number of journal entries. The answer says how many of them were tried, one at least.
func TestPurgeManyEntries(t *testing.T) {
	w := newWorld(t, 1)
	w.unaudited, w.effectsUnchecked = true, true
	var ids []string
	for n := range 6 {
		id := fmt.Sprintf("long-%d", n)
		ids = append(ids, id)
		v := w.begin(id, "f")
		for range 2 {
			w.commit(v, strings.TrimSuffix(strings.Repeat("step s -> x; ", 75), "; "))
		}
		w.commit(v, "return x") // 452 entries
	}
	v := w.begin("longest", "f")
	for range 4 {
		w.commit(v, strings.TrimSuffix(strings.Repeat("step s -> x; ", 75), "; "))
	}
	w.commit(v, "return x")
	ids = append(ids, "longest", "nothing")
	wantStates(t, "first", w.purgeMany(ids...), deleted, deleted)
	wantStates(t, "second", w.purgeMany(ids[2:]...), deleted, deleted)
	wantStates(t, "third", w.purgeMany(ids[4:]...), deleted, deleted, left, absent)
	w.sound(w.parts[0])
}

// PurgeMany leaves the same state as one Purge for each id, whatever the executions have done, also after a replica's restart.
func TestPurgeManyIsPurges(t *testing.T) {
	ops := []string{
		"return x", "fail e:x", "step s -> x; random 8; time 5; return x", "intent s; return x", "nothing", "sleep 50; return x",
		"wait go timeout=10", "promise p; return x", "child g x; return x", "continue in", "return x", "return x",
	}
	final := map[string]string{}
	for _, how := range []string{"one by one", "at once", "at once after a start"} {
		w := newWorld(t, 1)
		var ids []string
		for i, op := range ops {
			id := fmt.Sprintf("e-%02d", i)
			ids = append(ids, id)
			w.commit(w.begin(id, "f-"+id), op)
		}
		w.pass(60)
		for _, child := range w.take("w2", 9, "g") {
			w.commit(child, "return 1")
		}
		for _, id := range ids {
			w.one(terminateCmd(id, "enough"))
		}
		w.pass(60)
		own := ids
		if how != "one by one" {
			if how != "at once" {
				w.open(w.parts[0])
			}
			states := w.purgeMany(ids...)
			own = nil
			for i, s := range states {
				if s != deleted {
					own = append(own, ids[i])
				}
			}
			if len(states) != len(ids) || len(own) == 0 || len(own) > len(ids)-5 {
				t.Fatalf("%s: %v", how, states)
			}
		}
		for _, id := range own {
			if got := w.purge(id); got != deleted {
				t.Fatalf("%s: %s: %v", how, id, got)
			}
		}
		w.sound(w.parts[0])
		for _, id := range ids {
			final[how] += strings.Join(w.left(id, 0), "\n")
		}
	}
	if final["one by one"] != "" || final["at once"] != "" || final["at once after a start"] != "" {
		t.Errorf("left: %v", final)
	}
}

// A cluster below its level knows no purges of many; the state's level rises by the first.
func TestPurgeManyLevel(t *testing.T) {
	w := newWorldAt(t, state.LevelFunctions, 1)
	w.commit(w.begin("a", "f"), "return x")
	if level, _ := LevelOf(purgeManyCmd("a")); level != state.LevelPurges {
		t.Errorf("it may be proposed from level %d on", level)
	}
	wantStates(t, "first", w.purgeMany("a"), deleted)
	if got := w.parts[0].m.feature; got != state.LevelPurges {
		t.Errorf("the state is at level %d", got)
	}
	many := make([]string, FewPurges+1)
	for i := range many {
		many[i] = fmt.Sprint("none-", i)
	}
	for _, c := range []struct {
		purges int
		level  uint64
	}{{FewPurges, state.LevelPurges}, {FewPurges + 1, state.LevelPromise}} {
		if level, _ := LevelOf(purgeManyCmd(many[:c.purges]...)); level != c.level {
			t.Errorf("%d purges may be proposed from level %d on", c.purges, level)
		}
		w.purgeMany(many[:c.purges]...)
		if got := w.parts[0].m.feature; got != c.level {
			t.Errorf("after %d purges the state is at level %d", c.purges, got)
		}
	}
}

// A command that names executions as the listing has them, and where, reads one range of the listing for its leaves, and no header and
// no journal of theirs; one more of each if it does not say where, or wrongly. It decides and writes what a replica does that still has them in memory, also beside what the listing does not
// decide: calls, a second incarnation, what is kept or named twice, and an execution that began before it could be a leaf.
func TestPurgeManyByListing(t *testing.T) {
	for _, level := range []uint64{state.LevelLeaves, state.LevelInline, state.LevelPromise} {
		t.Run(fmt.Sprint(level), func(t *testing.T) { purgeManyByListing(t, level) })
	}
}

func purgeManyByListing(t *testing.T, level uint64) {
	type outcome struct {
		states   []perdurev1.PurgeState
		checksum uint64
		whole    string
	}
	var reads *reading
	run := func(inMemory bool, at func(w *world, id string) (class uint32, createdMS int64)) outcome {
		w := newWorldAt(t, state.LevelPurges, 1)
		old := w.begin("e-00", "f")
		w.raise(w.parts[0], level)
		w.commit(old, "return x")
		var ids []string
		for i := 1; i < 40; i++ {
			id := fmt.Sprintf("e-%02d", i)
			ids = append(ids, id)
			w.pass(int64(i % 2))
			v := w.begin(id, "f")
			switch {
			case i%10 == 3:
				w.commit(v, "child g x")
				w.commit(w.only("w2", "g"), "return 1")
				w.commit(v, "return x")
			case i%10 == 5:
				w.commit(v, "fail e:x")
			case i%10 == 9:
				w.commit(v, "cleanup 5000; nothing")
				w.do(cancelCmd(id, "why", 10))
				w.commit(v, "cancelled why")
				w.commit(w.only("w2", state.FunctionCleanup+"f"), "return")
			case i%10 == 7:
				w.commit(v, "return x")
				req := startCmd(w.request(), id, "f", "in")
				req.GetStart().Reuse = perdurev1.Reuse_REUSE_ALWAYS
				w.one(req)
				w.commit(w.only("w1", "f"), "return y")
			default:
				w.commit(v, "step s -> x; return x")
			}
		}
		w.tick()
		slices.Reverse(ids) // the newest first, of one time by id
		for i := 2; i < len(ids); i += 2 {
			ids[i-1], ids[i] = ids[i], ids[i-1]
		}
		ids = slices.Insert(ids, 20, ids[10])     // named twice
		ids = slices.Delete(ids, 30, 31)          // kept
		ids = append(ids, "e-00", "e-38", "none") // the oldest, what is gone, and nothing
		if !inMemory {
			reads = reopen(t, w.parts[0])
		}
		cmd := purgeManyCmd(ids...)
		cmd.GetPurgeMany().Class, cmd.GetPurgeMany().CreatedMs = at(w, ids[0])
		clear(reads.gets)
		clear(reads.scans)
		states := w.do(cmd).GetPurgeMany().GetStates()
		w.sound(w.parts[0])
		return outcome{states, w.parts[0].m.Checksum(), fmt.Sprint(whole(w.parts[0].state))}
	}
	reads = &reading{gets: map[keys.Family]int{}, scans: map[keys.Family]int{}}
	is := func(class uint32, createdMS int64) func(*world, string) (uint32, int64) {
		return func(*world, string) (uint32, int64) { return class, createdMS }
	}
	of := func(class keys.VisibilityClass) func(*world, string) (uint32, int64) {
		return func(w *world, id string) (uint32, int64) { return uint32(class), w.describe(id).CreatedMs }
	}
	cached := run(true, is(0, 0))
	counts := map[perdurev1.PurgeState]int{}
	for _, s := range cached.states {
		counts[s]++
	}
	if counts[left] != 11 || counts[absent] != 3 || counts[deleted] != 28 {
		t.Errorf("answered %v", counts)
	}
	// 4 call, 4 began again, 4 failed, 4 were cancelled, 1 is old; 3 are absent.
	const others, journals = 4 + 4 + 4 + 4 + 1 + 3, 4 + 4 + 1
	for _, c := range []struct {
		name            string
		at              func(*world, string) (uint32, int64)
		headers, ranges int
	}{
		{"unknown", is(0, 0), others + 1, 1},
		{"of the first, which is no leaf", of(keys.Cancelled), others + 1, 2},
		{"of the leaves", of(keys.Completed), others, 2}, // those that have failed, too
		{"behind them", is(uint32(keys.Completed), 0), others + 1, 2},
		{"of another class", of(keys.Failed), others + 1, 2},
		{"of open ones", of(keys.Open), others + 1, 1},
		{"of no class", is(uint32(keys.Cancelled)+1, 0), others + 1, 1},
		{"of a great number", is(256+uint32(keys.Completed), 1<<40), others + 1, 1},
	} {
		cold := run(false, c.at)
		if !slices.Equal(cached.states, cold.states) || cached.checksum != cold.checksum || cached.whole != cold.whole {
			t.Errorf("%s: from memory: %v\nfrom disk:   %v\nequal states: %t", c.name, cached.states, cold.states, cached.whole == cold.whole)
		}
		if got := reads.gets[keys.Header]; got > c.headers || reads.scans[keys.Journal] > journals || reads.scans[keys.Visibility] != c.ranges {
			t.Errorf("%s: %d headers, %d journals and %d ranges of the listing were read", c.name, got, reads.scans[keys.Journal], reads.scans[keys.Visibility])
		}
	}
}

// reopen opens a partition's machine again, with nothing in memory, and counts what it reads.
func reopen(t *testing.T, p *part) *reading {
	t.Helper()
	reads := &reading{Reader: p.state, gets: map[keys.Family]int{}, scans: map[keys.Family]int{}}
	cfg := p.cfg
	cfg.CheckInvariants = false // which read, too
	m, err := New(cfg, reads)
	if err != nil {
		t.Fatal(err)
	}
	p.m = m
	return reads
}

// Purges of many read the listing to the last execution that they name, and no further.
func TestPurgeManyReadsWhatItNames(t *testing.T) {
	w := newWorldAt(t, state.LevelLeaves, 1)
	for i := range 10 {
		w.commit(w.begin(fmt.Sprint("e-", i), "f"), "return x")
	}
	w.tick()
	p := w.parts[0]
	reads := reopen(t, p)
	for _, c := range []struct {
		ids  []string
		rows int
	}{{[]string{"e-0", "e-1", "e-2", "e-3"}, 3}, {[]string{"e-4"}, 0}, {[]string{"e-6", "e-5"}, 3}} {
		reads.rows = 0
		for _, s := range w.purgeMany(c.ids...) {
			if s != deleted {
				t.Fatalf("%q: %v", c.ids, s)
			}
		}
		if got := reads.rows; got != c.rows {
			t.Errorf("a purge of %q has read %d rows, want %d", c.ids, got, c.rows)
		}
	}
	w.sound(p)
}
