package machine

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/entity"
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/internal/testkit"
)

// refinement runs executions, entities and clients through the machine's commands, over several partitions.
// Shipments are late, repeated and cut; workers are lost, slow and doubled; executions are terminated;
// replicas restart. Each command that has an effect is a step of the model, which must have it, and what can
// be seen must be what the model shows.
type refinement struct {
	*world
	draw  func(n int) int
	model *entityModel
	all   []string
	runs  map[string]*refinedRun
	held  []*holding
	// doomed counts the attempts in a row that an entity's workers have failed.
	doomed map[string]int
	late   []*commandv1.Command
	words  int
	stats  map[string]int
}

// refinedRun is an execution: its open calls by child number, and the child that waits for locks.
type refinedRun struct {
	turns int
	calls []uint32
	lock  string
	over  bool
}

func (s *refinement) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("the model refuses: %v", err)
	}
}

func pickOf[T any](s *refinement, list []T) T { return list[s.draw(len(list))] }

func (s *refinement) word() string {
	s.words++
	return string(rune('a' + s.words%26))
}

// work draws an operation and its argument.
func (s *refinement) work() (op, arg string) {
	switch s.draw(9) {
	case 0:
		return "clear", "-"
	case 1:
		return "fail", "-"
	case 2:
		return "relay", pickOf(s, s.all)
	case 3:
		return "remind", fmt.Sprint(1 + s.draw(40))
	case 4:
		return "get", "-"
	}
	return "append", s.word()
}

// turn makes one commit of an execution that holds its task.
func (s *refinement) turn(v *view) {
	x := v.token.Id
	run, now := s.runs[x], s.at(x).m.Clock()
	run.turns++
	var text []string
	var steps []func()
	next := v.nextChild
	add := func(op string, step func()) uint32 {
		text, steps = append(text, op), append(steps, step)
		next++
		return next - 1
	}
	call := func(k string, section bool) {
		op, arg := s.work()
		n := next
		r := modelRequest{sender: x, request: fmt.Sprintf("%s:%d", x, n), op: op, arg: arg, call: true, section: section}
		run.calls = append(run.calls, add("ecall "+k+" "+op+" "+arg, func() { s.model.send(k, r) }))
	}
	tell := func(k string) {
		op, arg := s.work()
		r := modelRequest{sender: x, request: fmt.Sprintf("%s:%d", x, next), op: op, arg: arg}
		at := ""
		if s.draw(3) == 0 {
			delay := int64(1 + s.draw(50))
			r.due, at = now+delay, fmt.Sprintf(" at=%d", delay)
		}
		add("etell "+k+" "+op+" "+arg+at, func() { s.model.send(k, r) })
	}
	set := s.model.inside[x]
	finish := func() {
		text = append(text, "return ok")
		steps = append(steps, func() { s.model.end(x); run.over = true })
	}
	wait := func() {
		if len(run.calls) == 0 {
			text = append(text, "step s"+fmt.Sprint(run.turns)+" -> 1; sleep 1; await "+fmt.Sprint(next+1))
			return
		}
		var list []string
		for _, n := range run.calls {
			list = append(list, fmt.Sprint(n))
		}
		if len(list) > 1 {
			text = append(text, "all "+strings.Join(list, ","))
		} else {
			text = append(text, "await "+list[0])
		}
		run.calls = nil
	}
	switch {
	case set != nil && run.turns%3 != 0:
		for _, k := range set {
			if s.draw(3) > 0 {
				call(k, true)
			}
		}
		if k := pickOf(s, s.all); !slices.Contains(set, k) {
			tell(k)
		}
		if s.draw(6) == 0 {
			finish() // with its calls under way
		} else {
			wait()
		}
	case set != nil:
		add("unlock", func() { s.model.end(x); s.stats["sections left"]++ })
		if s.draw(2) == 0 {
			finish()
		} else {
			tell(pickOf(s, s.all))
			wait()
		}
	case run.turns > 12:
		finish()
	default:
		for range s.draw(3) {
			if s.draw(2) == 0 {
				call(pickOf(s, s.all), false)
			} else {
				tell(pickOf(s, s.all))
			}
		}
		if s.draw(2) == 0 {
			wait()
			break
		}
		var ask []string
		for range 1 + s.draw(3) {
			if k := pickOf(s, s.all); !slices.Contains(ask, k) {
				ask = append(ask, k)
			}
		}
		run.calls = nil // their results come when they come
		run.lock = fmt.Sprintf("%s:%d", x, next)
		n := add("lock "+strings.Join(ask, ","), func() { s.model.asking[x] = ask })
		text = append(text, fmt.Sprint("await ", n))
	}
	cmd := s.commitCmd(v, strings.Join(text, "; "))
	for _, step := range steps {
		step()
	}
	reply := s.do(cmd)
	if s.draw(4) == 0 {
		if again := s.one(cmd); wire.ReplyError(again) != nil && !run.over {
			s.t.Fatalf("repeated: %v", wire.ReplyError(again))
		}
	}
	if reply.GetCommit().State == acquired {
		s.learn(v, cmd.GetCommit(), reply.GetCommit())
		s.granted()
		s.turn(v) // the wait was satisfied
	}
}

// entityCommit commits the first operations of a held batch.
func (s *refinement) entityCommit(h *holding, most int) {
	b := h.batch
	c := &perdurev1.CommitEntity{Task: h.token, Version: b.Version, Lane: b.Lane, Exists: b.Exists, Value: b.Value}
	ran := b.Operations[:min(most, len(b.Operations))]
	value := string(b.Value)
	for _, o := range ran {
		var out *perdurev1.Outcome
		var sends []*perdurev1.EntitySignal
		c.Exists, value, out, sends = applyModel(c.Exists, value, o.Name, string(o.Input))
		for _, one := range sends {
			if one.Id == "" {
				one.Id = b.Id
			}
		}
		c.Signals = append(c.Signals, sends...)
		c.Results = append(c.Results, &perdurev1.EntityResult{Request: o.Request, Outcome: out})
	}
	if c.Value = []byte(value); !c.Exists {
		c.Value = nil
	}
	cmd := &commandv1.Command{Namespace: ns, Id: h.token.Id, Request: &perdurev1.RequestID{Id: s.request()}, Kind: &commandv1.Command_CommitEntity{CommitEntity: c}}
	version := s.entity(b.Id).Version
	reply := s.one(cmd)
	if e := wire.ReplyError(reply); e != nil {
		if e.Reason != perdurev1.Reason_REASON_STALE_TASK {
			s.t.Fatalf("commit of %s: %v", h.token.Id, e)
		}
		s.stats["stale commits"]++
		return
	}
	if s.entity(b.Id).Version != version || s.entity(b.Id).Incarnation == 0 {
		// It was admitted: its operations have happened, now, on the model's value.
		if e := s.model.entity(b.Id); e.exists != b.Exists || e.value != string(b.Value) {
			s.t.Fatalf("%s ran on %t %q, the model has %t %q", b.Id, b.Exists, b.Value, e.exists, e.value)
		}
		for _, o := range ran {
			s.must(s.model.run(b.Id, o, s.at(b.Id).m.Clock(), b.Lane))
			s.stats["operations"]++
		}
		s.doomed[b.Id] = 0
	} else {
		s.stats["overtaken by a lock"]++
	}
	if s.draw(3) == 0 {
		if e := wire.ReplyError(s.one(proto.CloneOf(cmd))); e != nil && e.Reason != perdurev1.Reason_REASON_STALE_TASK {
			s.t.Fatalf("a repeated commit of %s: %v", h.token.Id, e)
		}
		s.stats["entity commits repeated"]++
	}
	if h.batch = reply.GetCommitEntity().Next; h.batch != nil {
		s.held = append(s.held, h)
	}
}

// granted has the model enter the sections whose executions have got their locks.
func (s *refinement) granted() {
	for _, x := range sortedRuns(s.runs) {
		run := s.runs[x]
		if s.model.asking[x] == nil || run.over {
			continue
		}
		if h, ok, _ := state.ReadHolder(s.at(x).state, ns, x, s.incarnationOf(x)); ok && h.Phase == entity.Inside {
			s.must(s.model.enter(x))
			s.stats["sections entered"]++
		}
	}
}

func sortedRuns(runs map[string]*refinedRun) (out []string) {
	for x := range runs {
		out = append(out, x)
	}
	slices.Sort(out)
	return out
}

func (s *refinement) incarnationOf(x string) uint64 { return s.describe(x).Incarnation }

// check compares what can be seen.
func (s *refinement) check() {
	for _, k := range s.all {
		e, want := s.entity(k), s.model.entity(k)
		if e.Exists != want.exists || string(e.Value) != want.value {
			s.t.Fatalf("%s is %t %q, the model has %t %q", k, e.Exists, e.Value, want.exists, want.value)
		}
		if want.lock != "" && e.Lock.GetHolder() != want.lock {
			s.t.Fatalf("%s is locked by %q, in the model by %q", k, e.Lock.GetHolder(), want.lock)
		}
	}
	for _, x := range sortedRuns(s.runs) {
		for _, e := range s.journal(x) {
			done := e.Event.GetInvokeCompleted()
			if done == nil || s.model.results[done.PromiseId] == nil {
				continue
			}
			if !s.model.sameOutcome(done.PromiseId, done.Result) {
				s.t.Fatalf("%s has the result %v, in the model %v", done.PromiseId, done.Result, s.model.results[done.PromiseId])
			}
			want := perdurev1.PromiseState_PROMISE_STATE_RESOLVED
			if done.Result.GetFailure() != nil {
				want = perdurev1.PromiseState_PROMISE_STATE_REJECTED
			}
			if got := s.promise(done.PromiseId).State; got != want {
				s.t.Fatalf("%s is %v with the result %v", done.PromiseId, got, done.Result)
			}
			s.stats["results"]++
		}
	}
}

func (s *refinement) act(calm bool) {
	p := pickOf(s, s.parts)
	switch k := s.draw(24); {
	case k < 6:
		if got := s.takeFrom(p, grant("w1", 1, "f")); len(got) > 0 {
			s.granted()
			s.turn(got[0])
		}
	case k < 10:
		lease := int64(10_000_000)
		dooms := !calm && s.draw(6) == 0
		if dooms {
			lease = 20
		}
		if h := s.takeEntity(p, fmt.Sprint("e", s.draw(2)), lease); h != nil {
			if dooms {
				if s.doomed[h.batch.Id]++; s.doomed[h.batch.Id] >= state.EntityAttempts-1 {
					s.do(releaseCmd(h.token, "", 0)) // no operation fails for good here
					s.doomed[h.batch.Id]--
					return
				}
			}
			s.held = append(s.held, h)
		}
	case k < 15 && len(s.held) > 0:
		i := s.draw(len(s.held))
		h := s.held[i]
		s.held = slices.Delete(s.held, i, i+1)
		s.entityCommit(h, 1+s.draw(4))
	case k < 20:
		src, dst := s.draw(len(s.parts)), s.draw(len(s.parts))
		if src == dst {
			return
		}
		cmd := s.deliverCmd(src, dst, 1+s.draw(3))
		if len(cmd.GetDeliver().Messages) == 0 {
			return
		}
		s.apply(s.parts[dst], &commandv1.Entry{Commands: []*commandv1.Command{cmd}})
		s.late = append(s.late, cmd)
		if s.draw(3) > 0 {
			s.shipOne(src, dst, 1+s.draw(3))
		}
	case k == 20 && len(s.late) > 0: // a shipment that was applied long ago comes again
		cmd := proto.CloneOf(pickOf(s, s.late))
		dst := s.parts[state.PartitionOf(ns, cmd.GetDeliver().Messages[0].ToId, uint32(len(s.parts)))]
		s.apply(dst, &commandv1.Entry{Commands: []*commandv1.Command{cmd}})
		s.stats["late shipments"]++
	case k == 21:
		s.now += int64(s.draw(30))
		s.settleExpired(p)
	case k == 22:
		s.open(p)
	case k == 23 && !calm:
		x := pickOf(s, sortedRuns(s.runs))
		switch s.draw(4) {
		case 0:
			if run := s.runs[x]; !run.over {
				s.do(terminateCmd(x, "chance"))
				s.model.end(x)
				run.over = true
				s.stats["terminated"]++
			}
		default:
			k := pickOf(s, s.all)
			op, arg := s.work()
			request := s.request()
			s.do(signalEntityCmd(request, k, op, arg, 0))
			s.model.send(k, modelRequest{sender: "client", request: fmt.Sprintf("%x", request), op: op, arg: arg})
		}
	}
	s.granted()
}

func refine(t tester, draw func(n int) int, actions int, stats map[string]int) {
	t.Helper()
	s := &refinement{world: bank(t, 3), draw: draw, model: newEntityModel(), runs: map[string]*refinedRun{}, doomed: map[string]int{}, stats: stats}
	s.unaudited, s.effectsUnchecked = true, true
	for i := range 4 {
		s.all = append(s.all, fmt.Sprint("acc@", i))
	}
	for i := range 5 {
		x := fmt.Sprint("run-", i)
		s.runs[x] = &refinedRun{}
		s.do(startCmd(s.request(), x, "f", ""))
	}
	open := func() bool {
		return slices.ContainsFunc(sortedRuns(s.runs), func(x string) bool { return !s.runs[x].over })
	}
	for i := 0; i < actions || open(); i++ {
		s.act(i >= actions)
		if i%16 == 0 {
			s.check()
		}
		if i > 40*actions {
			s.t.Fatalf("executions are open without an end: %v, locks %v", s.model.inside, s.model.asking)
		}
	}
	for _, h := range s.held {
		s.entityCommit(h, 64)
	}
	s.held = nil
	for range 8 {
		s.now += 10_000_000
		s.tick()
		s.ship()
		for _, p := range s.parts {
			for h := s.takeEntity(p, "e1", 1000); h != nil; h = s.takeEntity(p, "e1", 1000) {
				s.entityCommit(h, 64)
				for len(s.held) > 0 {
					h := s.held[0]
					s.held = s.held[1:]
					s.entityCommit(h, 64)
				}
			}
		}
	}
	s.check()
	for _, k := range s.all {
		e, m := s.entity(k), s.model.entity(k)
		left := len(m.scheduled)
		for _, q := range m.queues {
			left += len(q)
		}
		if e.Lock != nil || e.Queued != 0 || e.Scheduled != 0 || left != 0 || m.lock != "" {
			s.t.Fatalf("%v, in the model %d wait", e, left)
		}
	}
	for _, p := range s.parts {
		s.audit(p)
	}
}

// TestEntityRefinement: whatever becomes of messages and workers, the machine does what the high-level model
// of entities and critical sections can do, and shows what that shows.
func TestEntityRefinement(t *testing.T) {
	stats := map[string]int{}
	testkit.Checks(t, testkit.Choose(10, 10, 60))
	rapid.Check(t, func(t *rapid.T) {
		refine(t, drawn(t), 250, stats)
	})
	for seed := range int64(8) {
		refine(t, seeded(seed), 400, stats)
	}
	t.Logf("%v", stats)
	for _, what := range []string{"sections entered", "sections left", "operations", "results", "stale commits", "entity commits repeated", "late shipments", "terminated", "overtaken by a lock"} {
		if stats[what] == 0 {
			t.Errorf("this test never has any %s", what)
		}
	}
}
