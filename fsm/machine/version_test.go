package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/recovery"
)

// attach registers functions in every partition, as a worker of a digest does.
func (w *world) attach(digest, code string, functions ...string) {
	w.t.Helper()
	for _, p := range w.parts {
		w.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{{Namespace: ns, Kind: &commandv1.Command_RegisterFunctions{
			RegisterFunctions: &commandv1.RegisterFunctions{Functions: functions, Digest: digest, Code: code}}}}})
	}
}

// takeAs is take for a worker of these digests, without any if there are none.
func (w *world) takeAs(worker, digests string, functions ...string) []*view {
	w.t.Helper()
	var got []*view
	for _, p := range w.parts {
		g := grant(worker, 10, functions...)
		g.Digests = strings.Fields(digests)
		got = append(got, w.takeFrom(p, g)...)
	}
	return got
}

func idsOf(views []*view) string {
	var ids []string
	for _, v := range views {
		ids = append(ids, v.token.Id)
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

// give gives tasks back at once.
func (w *world) give(views []*view) {
	for _, v := range views {
		w.do(releaseCmd(v.token, "", 0))
	}
}

// mismatch gives a task back whose journal the worker's code does not fit.
func (w *world) mismatch(v *view, code string) {
	w.t.Helper()
	cmd := releaseCmd(v.token, "step a, the code asks for step b", 0)
	cmd.GetRelease().CodeMismatch, cmd.GetRelease().Code = true, code
	w.do(cmd)
}

// An execution is pinned to the digest that was current at its start, or that its start names. Its tasks go
// to workers of that digest, to those that declare it, and to those that state none. A digest stays known, so
// a worker that comes back does not make it current again.
func TestDigestPins(t *testing.T) {
	w := newWorld(t, 1)
	start := func(id, digest string) {
		cmd := startCmd(w.request(), id, "f", "in")
		cmd.GetStart().ComponentDigest = digest
		w.do(cmd)
	}
	w.attach("", "worker a", "f")
	start("none", "")
	w.attach("v1", "v1", "f")
	start("one", "")
	w.attach("v2", "v2", "f")
	start("two", "")
	w.attach("v1", "v1", "f")
	start("new", "")
	start("named", "v1")
	start("unknown", "v0")
	for id, want := range map[string]string{"none": "", "one": "v1", "two": "v2", "new": "v2", "named": "v1", "unknown": "v0"} {
		if got := w.describe(id).ComponentDigest; got != want {
			t.Errorf("%s is pinned to %q, must be to %q", id, got, want)
		}
	}
	w.open(w.parts[0]) // the digests and queues are read again
	for _, c := range []struct{ digests, want string }{
		{"v1", "named none one"},
		{"v2", "new none two"},
		{"v3 v1", "named none one"},
		{"v3", "none"},
		{"v0 v1 v2", "named new none one two unknown"},
		{"", "named new none one two unknown"},
	} {
		got := w.takeAs("w", c.digests, "f")
		if idsOf(got) != c.want {
			t.Errorf("a worker of %q gets %q, must get %q", c.digests, idsOf(got), c.want)
		}
		w.give(got)
	}
	if ready := w.parts[0].results[len(w.parts[0].results)-1].Effects.Ready; len(ready) != 1 {
		t.Errorf("the last task given back makes %v ready", ready)
	}
}

// Below the level of versions nothing is pinned: older programs would not find the queues.
func TestDigestPinsByLevel(t *testing.T) {
	w := newWorldAt(t, state.LevelFunctions-1, 1)
	w.attach("v1", "v1", "f")
	cmd := startCmd(w.request(), "e", "f", "in")
	cmd.GetStart().ComponentDigest = "v1"
	w.do(cmd)
	v := w.takeAs("w", "v2", "f")
	if idsOf(v) != "e" {
		t.Fatalf("a worker of another digest gets %q", idsOf(v))
	}
	w.mismatch(v[0], "v2")
	if got := w.describe("e").WakeSource; got != "no worker" {
		t.Errorf("given back, it waits for %q", got)
	}
	w.raise(w.parts[0], state.LevelFunctions)
	w.commit(w.takeAs("w", "v2", "f")[0], "return")
}

// A child takes its parent's digest if a worker of that digest has the child's function, else the current
// digest of its own function; spread or not. A function that no versioned worker has takes its parent's. The
// next incarnation of a loop takes the current one.
func TestDigestOfChildren(t *testing.T) {
	for _, how := range []string{"", " spread"} {
		w := newWorld(t, 3)
		w.attach("v1", "v1", "f", "g")
		w.attach("v7", "v7", "other")
		w.attach("v8", "v8", "other")
		w.do(startCmd(w.request(), "p", "f", "in"))
		w.attach("v2", "v2", "f", "g")
		v := w.takeAs("w", "v1", "f")[0]
		w.commit(v, "child g in"+how+"; child other in"+how+"; child strange in"+how+"; all 0,1,2")
		w.ship()
		got := ""
		for _, p := range w.parts {
			_ = p.state.Scan([]byte{byte(keys.Header)}, []byte{byte(keys.Header) + 1}, func(_, value []byte) bool {
				h, err := state.DecodeHeader(value)
				if err != nil {
					t.Fatal(err)
				}
				got += fmt.Sprintf("%s:%s ", h.Function, h.Digest)
				return true
			})
		}
		words := strings.Fields(got)
		slices.Sort(words)
		if got := strings.Join(words, " "); got != "f:v1 g:v1 other:v8 strange:v1" {
			t.Errorf("children%s have the digests %s", how, got)
		}
	}
	w := newWorld(t, 1)
	w.attach("v1", "v1", "f")
	w.do(startCmd(w.request(), "loop", "f", "in"))
	v := w.takeAs("w", "v1", "f")[0]
	w.attach("v2", "v2", "f")
	w.commit(v, "continue next")
	w.tick()
	if got := w.describe("loop").ComponentDigest; got != "v2" {
		t.Errorf("the next incarnation is pinned to %q", got)
	}
	if got := idsOf(w.takeAs("w", "v1", "f")) + "|" + idsOf(w.takeAs("w", "v2", "f")); got != "|loop" {
		t.Errorf("workers of v1 | v2 get %s", got)
	}
}

// An execution whose journal some code does not fit is given to no worker until other code attaches, or by hand. It is
// listed with its problem. Its deadline, a cancel and a new incarnation end that state, too.
func TestStuckCode(t *testing.T) {
	const day = 24 * 60 * 60 * 1000
	stuck := func(t *testing.T) (*world, *view) {
		w := newWorld(t, 1)
		w.attach("v1", "v1", "f")
		start := startCmd(w.request(), "e", "f", "in")
		start.GetStart().TimeoutMs = 10 * day
		w.do(start)
		v := w.takeAs("w", "v1", "f")[0]
		w.commit(v, "step a -> done")
		w.mismatch(v, "v1")
		if e := w.describe("e"); e.WakeSource != "stuck: code" || e.LastProblem == "" || w.parts[0].m.Stuck() != 1 {
			t.Fatalf("it is not stuck: %v", e)
		}
		w.now += day
		w.tick()
		if got := w.takeAs("w", "", "f"); len(got) > 0 {
			t.Fatalf("it is given out again: %q", idsOf(got))
		}
		w.open(w.parts[0])
		return w, v
	}
	unknown := func(w *world, digest, code string) string {
		return strings.Join(w.query(&commandv1.Query{Kind: &commandv1.Query_Functions{Functions: &commandv1.FunctionsQuery{
			Functions: []string{"f"}, Digest: digest, Code: code}}}).GetFunctions().Unknown, " ")
	}
	t.Run("the same code attaches", func(t *testing.T) {
		w, _ := stuck(t)
		if got := unknown(w, "v1", "v1"); got != "" {
			t.Errorf("the worker is to register %q", got)
		}
		w.attach("v1", "v1", "f")
		if got := w.takeAs("w", "v1", "f"); len(got) > 0 || w.parts[0].m.Stuck() != 1 {
			t.Errorf("it is given to %q", idsOf(got))
		}
	})
	t.Run("other code attaches", func(t *testing.T) {
		w, _ := stuck(t)
		if got := unknown(w, "v2", "v2"); got != "f" {
			t.Errorf("the worker is to register %q", got)
		}
		w.attach("v2", "v2", "f")
		if got := w.takeAs("w2", "v2", "f"); len(got) > 0 {
			t.Fatal("a worker of another digest gets it")
		}
		v := w.takeAs("w2", "v2 v1", "f")
		if idsOf(v) != "e" || w.parts[0].m.Stuck() != 0 {
			t.Fatalf("a compatible worker gets %q", idsOf(v))
		}
		w.commit(v[0], "return")
	})
	t.Run("another process without a digest attaches", func(t *testing.T) {
		w, _ := stuck(t)
		w.attach("", "worker w2", "f")
		v := w.takeAs("w2", "", "f")
		if idsOf(v) != "e" {
			t.Fatalf("it gets %q", idsOf(v))
		}
		w.mismatch(v[0], "worker w2")
		if got := unknown(w, "", "worker w2"); got != "" {
			t.Errorf("the same process is to register %q", got)
		}
		if got := unknown(w, "", "worker w3"); got != "f" {
			t.Errorf("another process is to register %q", got)
		}
	})
	t.Run("by hand", func(t *testing.T) {
		w, _ := stuck(t)
		before := w.describe("e")
		r := w.do(restartCmd(w.request(), "e", fromFailure, 0)).GetRestart()
		if r.Incarnation != before.Incarnation || r.FormerIncarnation != before.Incarnation {
			t.Errorf("it is %v, the incarnation is %d", r, before.Incarnation)
		}
		w.commit(w.takeAs("w", "v1", "f")[0], "return")
		w.refused(restartCmd(w.request(), "e", fromFailure, 0), perdurev1.Reason_REASON_RULE_BROKEN)
	})
	t.Run("by hand for another digest", func(t *testing.T) {
		w, v := stuck(t)
		cmd := restartCmd(w.request(), "e", fromFailure, 0)
		cmd.GetRestart().ComponentDigest = "v2"
		if r := w.do(cmd).GetRestart(); r.KeptEvents != 4 {
			t.Fatalf("it keeps %v", r)
		}
		w.tick()
		if got := w.takeAs("w", "v1", "f"); len(got) > 0 || w.parts[0].m.Stuck() != 0 {
			t.Fatalf("a worker of v1 gets %q", idsOf(got))
		}
		w.commitRefused(v, "return", perdurev1.Reason_REASON_STALE_TASK, "")
		w.commit(w.takeAs("w2", "v2", "f")[0], "return")
	})
	t.Run("its deadline passes", func(t *testing.T) {
		w, _ := stuck(t)
		w.now += 10 * day
		w.tick()
		if e := w.describe("e"); e.Outcome.GetFailure().GetType() != "timeout" || w.parts[0].m.Stuck() != 0 {
			t.Errorf("it is %v", e)
		}
	})
	t.Run("it is cancelled", func(t *testing.T) {
		w, _ := stuck(t)
		w.do(cancelCmd("e", "why", 10))
		w.now += 10
		w.tick()
		if e := w.describe("e"); e.Outcome.GetFailure().GetType() != "cancelled" || w.parts[0].m.Stuck() != 0 {
			t.Errorf("it is %v", e)
		}
	})
}

// An open execution is pinned to another digest by hand, whether its task is with a worker, waits for one of
// a digest that is gone, or is blocked. It keeps its journal, and the former worker effects nothing.
func TestPinnedByHand(t *testing.T) {
	repin := func(w *world) *perdurev1.RestartResponse {
		cmd := restartCmd(w.request(), "e", fromFailure, 0)
		cmd.GetRestart().ComponentDigest = "v2"
		return w.do(cmd).GetRestart()
	}
	begin := func(t *testing.T) (*world, *view) {
		w := newWorld(t, 1)
		w.attach("v1", "v1", "f")
		w.do(startCmd(w.request(), "e", "f", "in"))
		v := w.takeAs("w", "v1", "f")[0]
		w.commit(v, "step a -> done")
		return w, v
	}
	ends := func(w *world, kept uint64) {
		w.t.Helper()
		if r := repin(w); r.KeptEvents != kept || r.Incarnation == r.FormerIncarnation {
			w.t.Fatalf("it keeps %v", r)
		}
		w.tick()
		if got := w.takeAs("w", "v1", "f"); len(got) > 0 {
			w.t.Fatalf("a worker of v1 gets %q", idsOf(got))
		}
		w.commit(w.takeAs("w2", "v2", "f")[0], "return")
		if e := w.describe("e"); e.ComponentDigest != "v2" || e.Status != perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED {
			w.t.Errorf("it is %v", e)
		}
		w.open(w.parts[0])
		w.refused(restartCmd(w.request(), "e", fromFailure, 0), perdurev1.Reason_REASON_RULE_BROKEN)
	}
	t.Run("running", func(t *testing.T) {
		w, v := begin(t)
		w.refused(restartCmd(w.request(), "e", fromFailure, 0), perdurev1.Reason_REASON_RULE_BROKEN)
		ends(w, 4)
		w.commitRefused(v, "return", perdurev1.Reason_REASON_STALE_TASK, "")
	})
	t.Run("blocked", func(t *testing.T) {
		w, v := begin(t)
		w.commit(v, "wait go")
		ends(w, 4)
	})
	t.Run("after a child failed", func(t *testing.T) {
		w, v := begin(t)
		w.commit(v, "child g; child g; await 2")
		children := w.takeAs("w3", "", "g")
		w.commit(children[0], "fail")
		repin(w)
		w.tick()
		if again := w.takeAs("w3", "", "g"); len(again) > 0 {
			t.Errorf("started again: %q", idsOf(again))
		}
		w.commit(children[1], "return fine")
		if e := w.describe("e"); e.WakeSource != "no worker" {
			t.Errorf("with both results it waits for %q", e.WakeSource)
		}
	})
}

// More stuck executions than one command announces again are announced by several.
func TestStuckMany(t *testing.T) {
	w := newWorld(t, 1)
	w.unaudited = true
	w.attach("v1", "v1", "f")
	const n = maxWoken + 10
	for i := range n {
		w.do(startCmd(w.request(), fmt.Sprint("e", i), "f", "in"))
	}
	g := grant("w", n, "f")
	for _, v := range w.takeFrom(w.parts[0], g) {
		w.mismatch(v, "v1")
	}
	register := &commandv1.Command{Namespace: ns, Kind: &commandv1.Command_RegisterFunctions{
		RegisterFunctions: &commandv1.RegisterFunctions{Functions: []string{"f"}, Digest: "v2", Code: "v2"}}}
	if w.parts[0].m.Stuck() != n || !w.do(register).GetRegisterFunctions().More || w.parts[0].m.Stuck() != n-maxWoken {
		t.Fatalf("%d of %d are still stuck", w.parts[0].m.Stuck(), n)
	}
	if w.do(register).GetRegisterFunctions().More || w.parts[0].m.Stuck() != 0 {
		t.Fatalf("%d are still stuck", w.parts[0].m.Stuck())
	}
}

// The audit finds what disagrees about pinned and stuck executions.
func TestAuditFindsVersions(t *testing.T) {
	w := newWorld(t, 1)
	w.attach("v1", "v1", "f", "g")
	w.do(startCmd(w.request(), "e", "f", "in"))
	v := w.takeAs("w", "v1", "f")[0]
	w.commit(v, "child g in")
	w.mismatch(v, "v1")
	function := keys.Of(keys.Function, ns, "f")
	for _, c := range []struct {
		what, rule string
		plant      func(s *plot)
	}{
		{"a halted task that is not listed", audit.RuleCode, func(s *plot) { s.drop(keys.Of(keys.Stuck, ns, "f", "e")) }},
		{"listed under another function", audit.RuleCode, func(s *plot) { s.put(keys.Of(keys.Stuck, ns, "g", "e"), nil0) }},
		{"listed, and its task is not halted", audit.RuleCode, func(s *plot) {
			s.task("e", func(task *recovery.Task) { task.State = recovery.TaskSuspended })
		}},
		{"listed, and not there", audit.RuleCode, func(s *plot) { s.put(keys.Of(keys.Stuck, ns, "f", "x"), nil0) }},
		{"an execution of another digest than its queue's", audit.RuleHeader, func(s *plot) {
			s.promise("e", func(p *recovery.Promise) { p.Target = state.Target("f", "v2") })
			s.task("e", func(task *recovery.Task) { task.Target = state.Target("f", "v2") })
		}},
		{"a child of a digest that its function does not know", audit.RuleInput, func(s *plot) {
			s.header("e:0", func(h *state.Header) { h.Digest = "v9" })
		}},
		{"an empty digest", audit.RuleDamaged, func(s *plot) { s.put(function, []byte{0}) }},
		{"a digest twice", audit.RuleDamaged, func(s *plot) { s.put(function, state.Digests{"a", "a"}.Encode()) }},
	} {
		s := &plot{t: t, state: w.parts[0].state.Clone(), cfg: w.parts[0].cfg}
		c.plant(s)
		if found := audited(t, s.state, s.cfg); !slices.ContainsFunc(found, func(v audit.Violation) bool { return v.Rule == c.rule }) {
			t.Errorf("%s is not found: %s", c.what, lines(found))
		}
	}
}

var nil0 = []byte{}
