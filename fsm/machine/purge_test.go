package machine

import (
	"fmt"
	"strings"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/journal"
)

func purgeCmd(objectID string, change ...func(*perdurev1.PurgeRequest)) *commandv1.Command {
	req := &perdurev1.PurgeRequest{Id: objectID, Force: true}
	for _, f := range change {
		f(req)
	}
	return &commandv1.Command{Namespace: ns, Id: objectID, Kind: &commandv1.Command_Purge{Purge: req}}
}

func (w *world) purge(objectID string) perdurev1.PurgeState {
	w.t.Helper()
	return w.do(purgeCmd(objectID)).GetPurge().State
}

// sound checks a partition by all rules of an audit.
func (w *world) sound(p *part) {
	w.t.Helper()
	report, err := audit.Run(p.state, p.m.Clock(), state.Partition{Number: p.cfg.Partition, Count: p.cfg.Partitions})
	if err != nil {
		w.t.Fatalf("audit: %v", err)
	}
	if len(report.Violations) > 0 {
		w.t.Fatalf("at index %d: %v", p.index, report.Violations)
	}
}

const (
	absent  = perdurev1.PurgeState_PURGE_STATE_ABSENT
	deleted = perdurev1.PurgeState_PURGE_STATE_DELETED
	begun   = perdurev1.PurgeState_PURGE_STATE_BEGUN
)

// A purge deletes an execution and all that is below it; its id can be used again, and the former worker effects nothing.
func TestPurge(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("a", "f")
	w.refused(purgeCmd("a"), perdurev1.Reason_REASON_RULE_BROKEN) // nothing is below it
	w.commit(v, "child g; step s -> x; sleep 50; child g")
	w.refused(purgeCmd("a"), perdurev1.Reason_REASON_RULE_BROKEN)
	for _, child := range w.take("w2", 2, "g") {
		w.commit(child, "step s -> y; child h; return 1")
	}
	for _, child := range w.take("w3", 2, "h") {
		w.commit(child, "return 1")
	}
	w.pass(60)
	late := *v
	w.commit(v, "return x")
	w.sound(w.parts[0])
	w.refused(purgeCmd("a", func(r *perdurev1.PurgeRequest) { r.Force = false }), perdurev1.Reason_REASON_RULE_BROKEN)
	w.refused(purgeCmd("a", func(r *perdurev1.PurgeRequest) { r.EndedBeforeMs = w.now }), perdurev1.Reason_REASON_RULE_BROKEN)
	w.refused(purgeCmd("a:0"), perdurev1.Reason_REASON_BAD_ID)
	other := func(r *perdurev1.PurgeRequest) { r.Incarnation = 77 }
	if got := w.do(purgeCmd("a", other)).GetPurge().State; got != absent {
		t.Errorf("another incarnation: %v", got)
	}
	w.now += replyRetentionMS
	if got := w.do(purgeCmd("a", func(r *perdurev1.PurgeRequest) { r.Force = false })).GetPurge().State; got != deleted {
		t.Errorf("purged: %v", got)
	}
	if left := w.left("a", 0); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	w.sound(w.parts[0])
	if got := w.purge("a"); got != absent {
		t.Errorf("purged again: %v", got)
	}
	w.begin("a", "f")
	w.commitRefused(&late, "step t -> z", perdurev1.Reason_REASON_STALE_TASK, "")
	if got := w.course("a"); got != "started" {
		t.Errorf("the new incarnation is %s", got)
	}
}

// Whatever an execution has called, a purge leaves nothing of it: of what is only recorded, and of what has rows of its own.
func TestPurgeLeavesNothing(t *testing.T) {
	for _, ops := range []string{
		"return x", "fail e:x", "step s -> x; random 8; time 5; return x", "intent s; return x", "nothing",
		"sleep 50; return x", "sleep 50; await 0", "wait go", "wait go timeout=10", "promise p; return x", "signal b go 1; return x",
		"child g x; return x", "set; return x", "continue in",
	} {
		for _, level := range []uint64{state.LevelPurges, state.LevelLeaves, state.LevelInline, state.LevelPromise} {
			leavesNothing(t, newWorldAt(t, level, 1), ops)
		}
	}
}

// leavesNothing runs operations in a world, ends their execution and purges it.
func leavesNothing(t *testing.T, w *world, ops string) {
	t.Helper()
	v := w.begin("a", "f")
	w.commit(v, ops)
	w.one(signalCmd(w.request(), "a", "go", "1")) // refused by what has ended
	w.pass(60)
	for _, child := range w.take("w2", 9, "g") {
		w.commit(child, "return 1")
	}
	w.one(terminateCmd("a", "enough"))
	w.pass(60)
	if got := w.purge("a"); got != deleted {
		t.Fatalf("level %d: %s: purged: %v", w.level, ops, got)
	}
	w.sound(w.parts[0])
	if left := w.left("a", 0); len(left) > 0 {
		t.Errorf("level %d: %s: left: %q", w.level, ops, left)
	}
}

// A header says from LevelLeaves on that the journal has only records. What it says of an execution that began before is kept.
func TestLeaf(t *testing.T) {
	w := newWorldAt(t, state.LevelPurges, 1)
	leaf := func(objectID string) bool {
		h, ok, err := state.ReadHeader(w.parts[0].state, ns, objectID)
		if !ok || err != nil {
			t.Fatalf("%s: %v, %v", objectID, ok, err)
		}
		return h.Leaf
	}
	old := w.begin("old", "f")
	w.raise(w.parts[0], state.LevelLeaves)
	w.commit(old, "step s -> x; return x")
	if leaf("old") {
		t.Error("what began before is a leaf")
	}
	for ops, want := range map[string]bool{
		"return x": true, "fail e:x": true, "step s -> x; random 8; time 5; return x": true, "intent s; return x": true,
		"child g x; return x": false, "sleep 50; return x": false, "promise p; return x": false, "signal b go 1; return x": false,
	} {
		w.commit(w.begin("a-"+ops[:3], "f"), ops)
		if got := leaf("a-" + ops[:3]); got != want {
			t.Errorf("%s: leaf %v", ops, got)
		}
	}
	w.sound(w.parts[0])
}

// A child that outlives its parent keeps the parent from being purged.
func TestPurgeWaitsForChildren(t *testing.T) {
	w := newWorld(t, 1)
	v := w.begin("a", "f")
	w.commit(v, "child g x")
	w.commit(v, "return x")
	if e := w.refused(purgeCmd("a"), perdurev1.Reason_REASON_RULE_BROKEN); !strings.Contains(e.Message, "a:0") {
		t.Errorf("refused: %v", e)
	}
	w.commit(w.only("w2", "g"), "return 1")
	if got := w.purge("a"); got != deleted {
		t.Errorf("purged: %v", got)
	}
}

// A purge in the entry after a child's end, before any tick: the end reaches what the child called elsewhere before the child is deleted.
func TestPurgeEndsChildrenOfEnded(t *testing.T) {
	for _, many := range []int{1, childrenBudget + 70} {
		w := newWorld(t, 1)
		v := w.begin("p", "f")
		w.commit(v, "child g x")
		w.commit(w.only("w2", "g"), strings.TrimSuffix(strings.Repeat("child h spread; ", many), "; "))
		w.commit(v, "return x")
		w.tick()
		w.do(terminateCmd("p:0", "enough"))
		want := deleted
		if many > childrenBudget {
			want = begun
		}
		if got := w.one(purgeCmd("p")).GetPurge().GetState(); got != want {
			t.Errorf("%d children: purged: %v", many, got)
		}
		w.sound(w.parts[0])
		w.tick()
		w.sound(w.parts[0])
		n := 0
		for objectID, h := range takeCensus(w.parts[0].state).headers {
			if h.Function == "h" {
				if n++; h.Status != journal.StatusCancelled {
					t.Errorf("%s of %s is %s", objectID, h.Function, h.Status)
				}
			}
		}
		if n != many {
			t.Errorf("%d children, want %d", n, many)
		}
	}
}

// A purge of more keys than one command reads goes on in parts. The state is sound between them, and nothing begins under the id
// before all that is below is gone.
func TestPurgeInParts(t *testing.T) {
	w := newWorld(t, 1)
	w.unaudited, w.effectsUnchecked = true, true
	const children = 1600
	v := w.begin("a", "f")
	for range 4 {
		w.commit(v, strings.TrimSuffix(strings.Repeat("child g; ", children/4), "; "))
	}
	for range 4 {
		for _, child := range w.take("w2", children/4, "g") {
			w.commit(child, "return 1")
		}
	}
	w.commit(v, "return x")
	if got := w.purge("a"); got != begun {
		t.Fatalf("purged: %v", got)
	}
	parts := 0
	for ; w.describeOrNil("a") != nil; parts++ {
		w.sound(w.parts[0])
		if got := w.purge("a"); got != begun {
			t.Fatalf("purged again: %v", got)
		}
		w.refusedNow(restartCmd(w.request(), "a", fromStart, 0), perdurev1.Reason_REASON_TRY_LATER)
		w.refusedNow(reuseCmd(w.request(), "a", "f", "in", perdurev1.Reuse_REUSE_ALWAYS), perdurev1.Reason_REASON_TRY_LATER)
		w.open(w.parts[0]) // a replica that starts again goes on
		if parts > 100 {
			t.Fatal("the purge does not end")
		}
		w.do(tickCmd(1))
	}
	if parts < 3 {
		t.Errorf("%d parts", parts)
	}
	w.begin("a", "f") // its former rows are still being deleted
	w.sound(w.parts[0])
	w.tick()
	w.sound(w.parts[0])
	if left := w.left("a", w.describe("a").Incarnation); len(left) != 5 {
		t.Errorf("left: %q", left) // promise, task, header, listing, and the retry timer or place in the queue
	}
}

// Purges in four partitions at once, each in parts, in turn and with replicas that start again between them: each partition is
// sound all the time, and in the end nothing of what was purged is left anywhere, and all of the rest is there.
func TestPurgeInFourPartitions(t *testing.T) {
	const partitions, children = 4, 300
	w := newWorld(t, partitions)
	w.unaudited, w.effectsUnchecked = true, true
	roots := map[int]string{}
	for n := 0; len(roots) < partitions; n++ {
		id := fmt.Sprintf("tree-%d-", n)
		if p := int(state.PartitionOf(ns, id, partitions)); roots[p] == "" {
			roots[p] = id
		}
	}
	kept := map[string]string{}
	for p := range partitions {
		v := w.begin(roots[p], "f")
		for range 3 {
			w.commit(v, strings.TrimSuffix(strings.Repeat("child g; ", children/3-1), "; ")+"; child g spread; step s -> x")
		}
		w.commit(v, "return x")
	}
	w.ship()
	for p := range partitions {
		for {
			some := w.takeFrom(w.parts[p], grant("w2", 50, "g"))
			for _, child := range some {
				w.commit(child, "step s -> y; return 1")
				if root := roots[p]; !strings.HasPrefix(child.token.Id, root) {
					kept[child.token.Id] = w.course(child.token.Id) // a spread child, which is no part of its parent
				}
			}
			if len(some) == 0 {
				break
			}
		}
	}
	w.ship()
	w.tick()
	if len(kept) == 0 {
		t.Fatal("no child was placed elsewhere")
	}
	for p := range partitions {
		if got := w.purge(roots[p]); got != begun {
			t.Fatalf("partition %d: %v", p, got)
		}
	}
	for turn := 0; ; turn++ {
		open := 0
		for p := range partitions {
			if w.describeOrNil(roots[p]) != nil {
				open++
			}
			w.apply(w.parts[p], &commandv1.Entry{Commands: []*commandv1.Command{tickCmd(1)}})
			w.sound(w.parts[p])
			if turn%2 == 1 {
				w.open(w.parts[p])
			}
		}
		if open == 0 {
			break
		}
		if turn > 100 {
			t.Fatalf("%d purges do not end", open)
		}
	}
	w.tick()
	for p := range partitions {
		if left := w.left(roots[p], 0); len(left) > 0 {
			t.Errorf("partition %d: %d left: %q", p, len(left), left[0])
		}
	}
	for id, was := range kept { //lint:sorted each is checked
		if got := w.course(id); got != was {
			t.Errorf("%s was %s, is %s", id, was, got)
		}
	}
}

// A long journal, and the rows of a retried graph run, are deleted behind the execution.
func TestPurgeRows(t *testing.T) {
	w := newWorldAt(t, state.LevelPromise, 1) // an open journal has rows
	w.unaudited, w.effectsUnchecked = true, true
	v := w.begin("a", "f")
	for range 12 {
		w.commit(v, strings.TrimSuffix(strings.Repeat("step s -> x; ", 50), "; "))
	}
	w.commit(v, "return x")
	if got := w.purge("a"); got != deleted {
		t.Fatalf("purged: %v", got)
	}
	w.sound(w.parts[0])
	remains := func() bool {
		_, ok, _ := w.parts[0].state.Get(keys.Of(keys.Remains, ns, "a"))
		return ok
	}
	if !remains() {
		t.Fatal("a journal of 1,200 entries was deleted by one command")
	}
	v = w.begin("a", "f")
	w.commit(v, "step s -> y")
	w.sound(w.parts[0])
	w.tick()
	if remains() {
		t.Error("rows remain")
	}
	w.sound(w.parts[0])
	if got := w.course("a"); got != "started scheduled started completed" {
		t.Errorf("the new incarnation is %s", got)
	}
	w.commit(v, "return y")
	w.purge("a")
	if left := w.left("a", 0); len(left) > 0 {
		t.Errorf("left: %q", left)
	}

	var nodes []string
	for n := range 300 {
		nodes = append(nodes, fmt.Sprintf("n%d", n))
	}
	w.submit("run", graphOf(strings.Join(nodes, "; ")), "")
	w.tick()
	w.end("run", "n0", "fail app:broken")
	for n := 1; n < 300; n++ {
		w.end("run", nodes[n], "return 1")
	}
	w.do(retryCmd(w.request(), "run"))
	w.tick()
	w.end("run", "n0", "return 1")
	w.sound(w.parts[0])
	for range 100 {
		if w.purge("run"); w.describeOrNil("run") == nil {
			break
		}
		w.sound(w.parts[0])
		w.do(tickCmd(1))
	}
	w.sound(w.parts[0])
	w.tick()
	if left := w.left("run", 0); len(left) > 0 {
		t.Errorf("%d left: %q", len(left), left[0])
	}
}

// A settled promise of no execution is purged; one that is pending is not.
func TestPurgePromise(t *testing.T) {
	w := newWorld(t, 1)
	w.do(createPromiseCmd("p", 5000))
	w.refused(purgeCmd("p"), perdurev1.Reason_REASON_RULE_BROKEN)
	w.do(settlePromiseCmd("p", perdurev1.PromiseState_PROMISE_STATE_RESOLVED, "1"))
	if got := w.purge("p"); got != deleted {
		t.Errorf("purged: %v", got)
	}
	if left := w.left("p", 0); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	w.do(createPromiseCmd("p", 5000))
}

// The result of a child in another partition stays with its parent when the child is purged, and its message is sent.
func TestPurgeSpreadChild(t *testing.T) {
	w := newWorld(t, 2)
	v := w.begin("a", "f")
	w.commit(v, "child g in spread")
	w.ship()
	child := w.only("w2", "g")
	w.commit(child, "return 1")
	if got := w.purge(child.token.Id); got != deleted {
		t.Errorf("purged: %v", got)
	}
	for _, p := range w.parts {
		w.sound(p)
	}
	w.ship()
	if got := w.course("a"); got != "started scheduled started completed" {
		t.Errorf("the parent is %s", got)
	}
}

// describeOrNil is the execution of an id, nil if there is none.
func (w *world) describeOrNil(objectID string) *perdurev1.Execution {
	return w.query(&commandv1.Query{Id: objectID, Kind: &commandv1.Query_Describe{Describe: &perdurev1.DescribeRequest{}}}).GetDescribe().GetExecution()
}

// refusedNow applies a command that must be refused, and leaves what has expired as it is.
func (w *world) refusedNow(cmd *commandv1.Command, reason perdurev1.Reason) {
	w.t.Helper()
	before := content(w.parts[0].state)
	if e := wire.ReplyError(w.one(cmd)); e == nil || e.Reason != reason {
		w.t.Fatalf("%v: answered %v, must be refused with %v", cmd, e, reason)
	}
	if after := content(w.parts[0].state); before != after {
		w.t.Fatalf("%v: refused, and yet the state has changed:\n%s", cmd, difference(before, after))
	}
}
