package machine

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/internal/testkit"
	"perdure/journal"
)

// executionRefinement runs executions through the machine's commands, over several partitions, with workers
// that are lost, slow and doubled, shipments that are late and repeated, and clients that cancel, restart and
// signal. After each entry it reads what is new of every execution in the entry's partition; that must be
// steps of the model, in some order.
type executionRefinement struct {
	*world
	draw  func(n int) int
	model *executionModel
	held  []*view
	late  []*commandv1.Command
	names int
	stats map[string]int
	// settles is the value that the command gives to a promise.
	settles [2]string
	// calm: no more executions begin.
	calm bool
}

func pick[T any](draw func(int) int, list []T) T { return list[draw(len(list))] }

// novelty is what is new of one execution.
type novelty struct {
	h       state.Header
	entries []journal.Entry
	outcome string
	begins  bool
	why     error
}

// observe maps what an entry did to steps of the model.
func (s *executionRefinement) observe(p *part, entry *commandv1.Entry, res *Result) {
	m := s.model
	m.now = s.now
	refused := len(res.Replies) > 0 && wire.ReplyError(res.Replies[0]) != nil
	s.answered(refused, entry, res)
	news, ids := map[string]*novelty{}, []string{}
	here := map[string]bool{}
	prefix := []byte{byte(keys.Header)}
	_ = p.state.Scan(prefix, keys.After(prefix), func(key, value []byte) bool {
		h, err := state.DecodeHeader(value)
		if err != nil {
			s.t.Fatalf("header %q: %v", key, err)
		}
		here[h.ID] = true
		from, r := uint64(0), m.runs[h.ID]
		if r != nil && r.incarnation == h.Incarnation {
			if from = uint64(len(r.log)); from == h.Events {
				return true
			}
		}
		n := &novelty{h: h, begins: from == 0}
		for seq := from; seq < h.Events; seq++ {
			b, _ := state.Must{From: p.state}.Entry(ns, &h, seq)
			e, err := journal.DecodeEntry(b)
			if err != nil {
				s.t.Fatalf("entry %d of %s: %v", seq, h.ID, err)
			}
			n.entries = append(n.entries, e)
		}
		n.outcome, _ = outcomeIn(p.state, h.ID)
		news[h.ID], ids = n, append(ids, h.ID)
		return true
	})
	var assigned []Assignment
	for _, a := range res.Effects.Assigned {
		if _, entity := id.EntityOfTask(a.Token.Id); !entity {
			assigned = append(assigned, a)
		}
	}
	for moved := true; moved; {
		moved = false
		for _, objectID := range ids {
			n := news[objectID]
			for len(n.entries) > 0 {
				if n.why = s.explain(n); n.why != nil {
					break
				}
				moved = true
			}
		}
		assigned = slices.DeleteFunc(assigned, func(a Assignment) bool {
			if n := news[a.Token.Id]; n != nil && len(n.entries) > 0 {
				return false
			}
			if err := m.acquired(a.Token.Incarnation, a.Token.Version, entry.Grants[0].LeaseMs, m.runs[a.Token.Id]); err != nil {
				s.t.Fatalf("%v", err)
			}
			moved = true
			return true
		})
		for objectID, r := range m.runs {
			if s.at(objectID) == p && !here[objectID] && m.erased(r) == nil {
				moved = true
				s.stats["erased"]++
			}
		}
	}
	s.explained(p, entry, res, news, ids, here)
}

// outcomeIn is the result that an execution's promise holds; ok is false while it is pending.
func outcomeIn(r state.Reader, objectID string) (outcome string, ok bool) {
	p, found, err := state.ReadPromise(r, ns, objectID)
	if !found || err != nil || !p.State.Settled() {
		return "", false
	}
	return shown(state.OutcomeOf(p)), true
}

// again reads whether a child's proxy promise, or the child, is of this incarnation of its caller.
func (s *executionRefinement) again(promise string, incarnation uint64) bool {
	r := s.at(promise).state
	if h, ok, _ := r.Get(keys.Of(keys.Header, ns, promise)); ok {
		child, err := state.DecodeHeader(h)
		return err == nil && child.ParentIncarnation == incarnation
	}
	p, ok, err := state.ReadPromise(r, ns, promise)
	return ok && err == nil && p.Incarnation == incarnation
}

// explain takes the next new entry as a step of the model.
func (s *executionRefinement) explain(n *novelty) error {
	m, r := s.model, s.model.runs[n.h.ID]
	if n.begins {
		first, ok := n.entries[0].Event.(journal.ExecutionStarted)
		if !ok {
			return fmt.Errorf("%s begins with %s", n.h.ID, showModel(n.entries[0].Event))
		}
		took := 1
		var err error
		if r == nil {
			err = m.begins(&n.h, first)
			s.stats["begun"]++
		} else if took, err = m.beginsAgain(r, &n.h, n.entries); err == nil {
			s.stats["begun again"]++
		}
		if err != nil {
			return err
		}
		n.begins, n.entries = false, n.entries[took:]
		return nil
	}
	if err := m.step(r, n.entries[0], n.outcome, n.h.GraceAt); err != nil {
		return err
	}
	s.stats[n.entries[0].Event.Kind().String()]++
	if wait, ok := n.entries[0].Event.(journal.ExecutionAwaiting); ok && wait.Wait == journal.AwaitJoinSet {
		s.stats["waits for a set"]++
	}
	n.entries = n.entries[1:]
	return nil
}

// explained checks that nothing is left to explain, and what must hold at each moment.
func (s *executionRefinement) explained(p *part, entry *commandv1.Entry, res *Result, news map[string]*novelty, ids []string, here map[string]bool) {
	m := s.model
	var why []string
	for _, objectID := range ids {
		if n := news[objectID]; len(n.entries) > 0 {
			why = append(why, n.why.Error(), fmt.Sprintf("%d entries are left of\n%s", len(n.entries), strings.Join(showEntries(s.journal(objectID)), "\n")))
			if r := m.runs[objectID]; r != nil {
				for n, op := range r.ops {
					why = append(why, fmt.Sprintf("%d %+v %+v %+v", n, *op, *op.modelWorld, op.child))
				}
			}
		}
	}
	for objectID, r := range m.runs {
		if s.at(objectID) != p {
			continue
		}
		if !here[objectID] {
			why = append(why, fmt.Sprint(m.erased(r)))
			continue
		}
		outcome, ended := outcomeIn(p.state, objectID)
		if ended != (r.phase == modelEnded) || outcome != r.outcome {
			why = append(why, fmt.Sprintf("%s has the result %q (%t), in the model %q", objectID, outcome, ended, r.outcome))
		}
		if err := m.settled(r); err != nil {
			why = append(why, err.Error())
		}
	}
	if err := m.committed(); err != nil {
		why = append(why, err.Error())
	}
	if r := m.act.commit; r != nil && res.Replies[0].GetCommit().GetState() == acquired && m.runs[r.id] == r {
		// A wait that was over at once leaves the task with its worker.
		if r.phase == modelBlocked || r.phase == modelEnded {
			why = append(why, fmt.Sprintf("%s is in phase %d, and its worker goes on", r.id, r.phase))
		}
		r.holder = entry.Commands[0].GetCommit().Task.Version
	}
	if m.act.signal != nil {
		m.act.promised = append(m.act.promised, m.act.signal)
	}
	for _, f := range m.act.promised {
		if f.done {
			continue
		}
		why = append(why, fmt.Sprintf("signal %q was answered, and not delivered", f.payload))
	}
	m.act, s.settles = modelAct{}, [2]string{}
	if len(why) > 0 {
		s.t.Fatalf("the model does not have what %v did at %d:\n%s", entry, s.now, strings.Join(why, "\n"))
	}
}

// answered turns the answer of a command into a licence, or withdraws it.
func (s *executionRefinement) answered(refused bool, entry *commandv1.Entry, res *Result) {
	m := s.model
	if f := m.act.signal; f != nil && refused {
		m.flights = slices.DeleteFunc(m.flights, func(o *modelFlight) bool { return o == f })
	}
	if refused {
		m.act, s.settles = modelAct{}, [2]string{}
		return
	}
	if len(res.Replies) == 0 {
		return
	}
	if r := m.act.commit; r != nil && m.act.cleanupMS != 0 {
		r.armed = max(m.act.cleanupMS, 0)
	}
	if restarted := res.Replies[0].GetRestart(); restarted != nil {
		m.act.kept = restarted.KeptEvents
	}
	if s.settles[0] != "" {
		if m.values[s.settles[0]] == "" && res.Replies[0].GetPromise().GetPromise().GetState() != perdurev1.PromiseState_PROMISE_STATE_REJECTED_TIMEDOUT {
			m.values[s.settles[0]] = s.settles[1]
		}
	}
	if create := entry.Commands[0].GetCreatePromise(); create != nil && m.runs[create.Id] == nil {
		if _, made := m.values[create.Id]; !made {
			m.values[create.Id] = ""
		}
	}
	m.look()
}

func (s *executionRefinement) name(kind string) string {
	s.names++
	return fmt.Sprint(kind, s.names)
}

func (s *executionRefinement) ids() (out []string) {
	for objectID := range s.model.runs {
		out = append(out, objectID)
	}
	slices.Sort(out)
	return out
}

// target is somebody to signal or to ask: mostly a root, now and then nobody.
func (s *executionRefinement) target() string {
	switch s.draw(5) {
	case 0:
		return fmt.Sprint("spawned-", s.draw(2))
	case 1:
		if ids := s.ids(); len(ids) > 0 {
			return pick(s.draw, ids)
		}
	}
	return fmt.Sprint("root-", s.draw(4))
}

// operation draws one operation of an execution, as text; taken says that it takes a child number.
func (s *executionRefinement) operation(r *modelRun, next uint32) string {
	d := s.draw
	child := func() string {
		text := "child g " + s.name("in")
		if d(3) == 0 {
			text += " spread"
		} else if d(6) == 0 {
			text += fmt.Sprint(" id=own-", d(3))
		}
		if d(3) == 0 {
			text += fmt.Sprintf(" attempts=%d pause=%d", 2+d(2), 1+d(2000))
		}
		if d(2) == 0 {
			text += fmt.Sprint(" close=", d(4))
		}
		if d(6) == 0 {
			text += fmt.Sprint(" delay=", 1+d(3000))
		}
		if d(6) == 0 {
			text += fmt.Sprint(" timeout=", 1+d(6000))
		}
		return text
	}
	switch k := d(16); {
	case k < 3 && len(s.model.runs) < 24 && !s.calm:
		return child()
	case k == 3:
		return "signal " + s.target() + " " + string("ab"[d(2)]) + " " + s.name("p")
	case k == 4 && len(s.model.runs) < 24 && !s.calm:
		return fmt.Sprint("spawn spawned-", d(2), " f ", s.name("in"))
	case k == 5:
		return fmt.Sprint("promise timeout=", d(2)*(1+d(9000)))
	case k == 6:
		target := s.target()
		if d(2) == 0 {
			target = fmt.Sprint("bare-", d(3))
		}
		if strings.Contains(target, ":") {
			return "random x"
		}
		return "value " + target
	case k == 7:
		return "future " + string("ab"[d(2)])
	case k == 8 && next > 0:
		return fmt.Sprint("cancel ", d(int(next)))
	case k == 9:
		return fmt.Sprint("sleep ", d(5000))
	case k == 10:
		return "intent " + s.name("step")
	case k == 11 && r.cleanupOf == nil:
		return fmt.Sprint("cleanup ", 2000+d(9000))
	case k == 12:
		return "time 4"
	case k == 13:
		return "set"
	}
	return "step " + s.name("step") + pick(d, []string{" -> x", " -> y", " !bad:no"})
}

// awaitable are the open operations that an execution can wait for.
func (r *modelRun) awaitable() (out []string) {
	for n, op := range r.ops {
		kind := op.call == journal.KindInvokeScheduled && !local(op.invoke) || op.call == journal.KindTimerScheduled
		if kind && !op.resolved && !op.cancelled {
			out = append(out, fmt.Sprint(n))
		}
	}
	return out
}

// setOf is the join set that a child was submitted to.
func (r *modelRun) setOf(child int) (set *modelOp, n int) {
	for n, op := range r.ops {
		if slices.Contains(op.members, uint32(child)) {
			return op, n
		}
	}
	return nil, 0
}

// sets submits children to join sets from which nothing was taken, and takes results from sets. It returns the next child
// number, too.
func (s *executionRefinement) sets(r *modelRun, next uint32) (text []string, _ uint32) {
	var open []string
	for n, op := range r.ops {
		taken := slices.ContainsFunc(op.members, func(m uint32) bool { return r.ops[m].consumed })
		if op.call == journal.KindJoinSetCreated && !taken {
			open = append(open, fmt.Sprint(n))
		}
	}
	for n, op := range r.ops {
		if op.invoke != journal.InvokeFunction || op.call != journal.KindInvokeScheduled {
			continue
		}
		switch owner, set := r.setOf(n); {
		case owner == nil && !s.calm && s.draw(3) > 0:
			if len(open) == 0 {
				text, open = append(text, "set"), append(open, fmt.Sprint(next))
				next++
			}
			text = append(text, fmt.Sprintf("submit %s %d", pick(s.draw, open), n))
		case owner != nil && op.resolved && !op.consumed && op.result != "" && op.result[0] != '!':
			text = append(text, fmt.Sprintf("taken %d %d -> %s", set, n, op.result))
			open = slices.DeleteFunc(open, func(o string) bool { return o == fmt.Sprint(set) })
		}
	}
	return text, next
}

// nextOf are the waits for the next result of a join set.
func (r *modelRun) nextOf() (out []string) {
	for n, op := range r.ops {
		if set, at := r.setOf(n); set != nil && !op.resolved && !op.cancelled {
			out = append(out, fmt.Sprintf("next %d %d", at, n))
		}
	}
	return out
}

// turn is what a worker commits next.
func (s *executionRefinement) turn(r *modelRun, next uint32) string {
	d := s.draw
	if r.phase == modelCancelling && d(3) > 0 {
		return "cancelled acknowledged"
	}
	var text []string
	for n, op := range r.ops {
		if local(op.invoke) && op.call == journal.KindInvokeScheduled && !op.resolved && op.open && d(3) > 0 {
			text = append(text, fmt.Sprintf("done %d#%d -> late", n, op.started))
		}
	}
	if d(12) == 0 && r.cleanupOf == nil {
		return "continue " + s.name("in") // without anything else
	}
	sets, next := s.sets(r, next)
	text = append(text, sets...)
	if len(r.ops) < 20 && !s.calm {
		for range 1 + d(3) {
			op := s.operation(r, next)
			text = append(text, op)
			if !strings.HasPrefix(op, "cleanup") {
				next++
			}
		}
	}
	if open := r.awaitable(); len(open) > 0 && d(3) > 0 {
		if next := r.nextOf(); len(next) > 0 && d(2) == 0 {
			text = append(text, pick(d, next))
		} else if how := d(4); how == 0 {
			text = append(text, "await "+pick(d, open))
		} else {
			text = append(text, pick(d, []string{"any ", "all "})+strings.Join(open, ","))
		}
		return strings.Join(text, "; ")
	}
	over := len(r.ops) >= 12 || s.calm
	switch k := d(8); {
	case k == 0 && !s.calm:
		text = append(text, "wait "+string("ab"[d(2)])+fmt.Sprint(" timeout=", d(2)*(1+d(6000))))
	case k < 3 || over && k < 6:
		text = append(text, "return "+s.name("r"))
	case k == 3 || over:
		text = append(text, "fail bad:"+s.name("no"))
	}
	if len(text) == 0 {
		text = []string{"time 5"}
	}
	return strings.Join(text, "; ")
}

func (s *executionRefinement) work() {
	if len(s.held) == 0 {
		return
	}
	i := s.draw(len(s.held))
	v := s.held[i]
	r := s.model.holds(v.token)
	if r == nil {
		// Its activation is over, and it does not know.
		if s.model.runs[v.token.Id] != nil {
			v.nextChild = childrenOf(s.journal(v.token.Id))
		}
		cmd := s.commitCmd(v, pick(s.draw, []string{"step stolen -> x", "return stolen", "fail bad:stolen", "continue stolen", "child g stolen", "nothing"}))
		if e := wire.ReplyError(s.one(cmd)); e == nil || e.Reason != perdurev1.Reason_REASON_STALE_TASK {
			s.t.Fatalf("a commit without the task of %s is answered with %v", v.token.Id, e)
		}
		s.stats["stale commits"]++
		if s.draw(2) == 0 {
			s.held = slices.Delete(s.held, i, i+1)
		}
		return
	}
	s.read(v)
	cmd := s.commitCmd(v, s.turn(r, v.nextChild))
	if err := s.model.committing(r, cmd.GetCommit()); err != nil {
		s.t.Fatalf("%v", err)
	}
	reply := s.one(cmd)
	if e := wire.ReplyError(reply); e != nil {
		if e.Reason == perdurev1.Reason_REASON_STALE_TASK && s.model.holds(v.token) != nil {
			s.t.Fatalf("the worker of %s is refused: %v", v.token.Id, e)
		}
		s.stats["refused "+e.Reason.String()]++
	}
	if s.draw(4) == 0 {
		_ = s.one(proto.CloneOf(cmd)) // its answer was lost; it has no effect
		s.stats["repeated commits"]++
	}
	if s.model.holds(v.token) == nil && s.draw(3) > 0 {
		s.held = slices.DeleteFunc(s.held, func(o *view) bool { return o == v })
	}
}

var refinedFunctions = []string{"f", "g", state.FunctionCleanup + "f", state.FunctionCleanup + "g"}

func (s *executionRefinement) act() {
	d, m := s.draw, s.model
	m.now = s.now
	p := pick(d, s.parts)
	root := fmt.Sprint("root-", d(4))
	any := root
	if ids := s.ids(); len(ids) > 0 && d(2) == 0 {
		any = pick(d, ids)
	}
	switch k := d(30); {
	case k < 4:
		o := grant(fmt.Sprint("w", d(3)), 1+d(3), refinedFunctions...)
		if o.LeaseMs = 1_000_000; d(5) == 0 {
			o.LeaseMs = int64(1 + d(2000))
		}
		s.held = append(s.held, s.takeFrom(p, o)...)
	case k < 14:
		s.work()
	case k < 19:
		src, dst := d(len(s.parts)), d(len(s.parts))
		if src == dst {
			return
		}
		if cmd := s.deliverCmd(src, dst, 1+d(3)); len(cmd.GetDeliver().Messages) > 0 {
			s.apply(s.parts[dst], &commandv1.Entry{Commands: []*commandv1.Command{cmd}})
			if s.late = append(s.late, cmd); d(3) > 0 {
				s.shipOne(src, dst, 1+d(3))
			}
		}
	case k == 19 && len(s.late) > 0: // a shipment that was applied long ago comes again
		cmd := proto.CloneOf(pick(d, s.late))
		s.apply(s.parts[state.PartitionOf(ns, cmd.GetDeliver().Messages[0].ToId, uint32(len(s.parts)))], &commandv1.Entry{Commands: []*commandv1.Command{cmd}})
		s.stats["late shipments"]++
	case k == 20:
		s.now += int64(d([]int{30, 3000}[d(2)]))
		if d(2) == 0 {
			s.settleExpired(p)
		}
	case k == 21:
		s.open(p)
	case k == 22 || k == 23:
		s.start(root)
	case k == 24:
		s.signal(any)
	case k == 25 && d(2) == 0:
		grace := int64(1 + d(4000))
		m.act = modelAct{cancel: any, graceMS: grace}
		s.one(cancelCmd(any, "by chance", grace))
	case k == 25:
		m.act = modelAct{terminate: any}
		s.one(terminateCmd(any, "by chance"))
	case k == 26:
		s.restart(any)
	case k == 27:
		s.promises()
	case k == 28 && len(s.held) > 0:
		v := pick(d, s.held)
		r, cmd := m.holds(v.token), releaseCmd(v.token, "problem", int64(d(2)*d(3000)))
		if d(3) == 0 {
			cmd.GetRelease().CodeMismatch, cmd.GetRelease().Code = true, "v"
		}
		e := wire.ReplyError(s.one(cmd))
		if (e == nil) != (r != nil) {
			s.t.Fatalf("%s is released: %v, it is held: %t", v.token.Id, e, r != nil)
		}
		if r != nil {
			r.holder = 0
		}
	case k == 29 && d(3) == 0:
		s.rest()
	}
}

func (s *executionRefinement) start(objectID string) {
	if s.calm {
		return
	}
	cmd := reuseCmd(s.request(), objectID, "f", s.name("in"), perdurev1.Reuse(s.draw(3)))
	if s.draw(6) == 0 {
		cmd.GetStart().TimeoutMs = int64(1 + s.draw(9000))
	}
	s.settleExpired(s.at(objectID))
	s.model.act = modelAct{start: cmd.GetStart()}
	s.one(cmd)
}

func (s *executionRefinement) signal(objectID string) {
	name, payload := string("ab"[s.draw(2)]), s.name("p")
	cmd := signalCmd(s.request(), objectID, name, payload)
	s.settleExpired(s.at(objectID))
	f := &modelFlight{kind: journal.KindSignalDelivered, from: payload, target: objectID, name: name, payload: payload}
	s.model.act, s.model.flights = modelAct{signal: f}, append(s.model.flights, f)
	if s.draw(3) == 0 && !strings.Contains(objectID, ":") && !s.calm {
		start := reuseCmd(nil, objectID, "f", s.name("in"), perdurev1.Reuse(s.draw(3))).GetStart()
		cmd.GetSignal().Start, s.model.act.start = start, start
	}
	s.one(cmd)
	if s.draw(3) == 0 {
		s.one(proto.CloneOf(cmd)) // with the same request
	}
}

func (s *executionRefinement) restart(objectID string) {
	if s.calm {
		return
	}
	from := []perdurev1.RestartFrom{fromStart, fromEvent, fromEvent, fromFailure}[s.draw(4)]
	cmd := restartCmd(s.request(), objectID, from, 0)
	if r := s.model.runs[objectID]; from == fromEvent && r != nil {
		cmd.GetRestart().Event = uint64(1 + s.draw(len(r.log)))
	}
	cmd.GetRestart().NewChildren = s.draw(3) == 0
	s.settleExpired(s.at(objectID))
	s.model.act = modelAct{restart: objectID, newChildren: cmd.GetRestart().NewChildren, fromFailure: from == fromFailure}
	if e := wire.ReplyError(s.one(cmd)); e == nil {
		s.stats["restarts"]++
	}
}

// promises makes a promise, or settles one: of clients or of an execution.
func (s *executionRefinement) promises() {
	if s.draw(3) == 0 {
		s.one(createPromiseCmd(pick(s.draw, []string{"bare-0", "bare-1", "bare-2", "own-2"}), 0))
		return
	}
	var open []string
	for objectID := range s.model.values {
		open = append(open, objectID)
	}
	if slices.Sort(open); len(open) == 0 {
		return
	}
	objectID, value := pick(s.draw, open), s.name("v")
	s.settles = [2]string{objectID, value}
	s.one(settlePromiseCmd(objectID, resolve, value))
}

// rest lets every message arrive and every deadline be carried out. Then the model knows what must have happened.
func (s *executionRefinement) rest() {
	for range 20 {
		s.tick()
		s.ship()
	}
	s.tick()
	for _, objectID := range s.ids() {
		if err := s.model.calm(s.model.runs[objectID]); err != nil {
			s.t.Fatalf("when all is calm: %v\n%s", err, strings.Join(showEntries(s.journal(objectID)), "\n"))
		}
	}
	for _, p := range s.parts {
		s.audit(p)
	}
	s.stats["calm"]++
}

// finish brings every execution to its end.
func (s *executionRefinement) finish() {
	s.calm = true
	for round := range 400 {
		s.rest()
		open := slices.DeleteFunc(s.ids(), func(objectID string) bool { return s.model.runs[objectID].phase == modelEnded })
		if len(open) == 0 {
			return
		}
		for _, p := range s.parts {
			o := grant("last", 100, refinedFunctions...)
			o.LeaseMs = 1_000_000
			s.held = append(s.held, s.takeFrom(p, o)...)
		}
		for range 3 * len(s.held) {
			s.work()
		}
		s.now += 500
		s.model.now = s.now
		for _, objectID := range open {
			switch r := s.model.runs[objectID]; {
			case r == nil || r.phase != modelBlocked && round < 40:
			case round > 60:
				s.model.act = modelAct{terminate: objectID}
				s.one(terminateCmd(objectID, "over"))
			default:
				s.signal(objectID)
			}
		}
	}
	s.t.Fatalf("executions are open without an end")
}

func refineExecutions(t tester, draw func(n int) int, actions int, stats map[string]int) {
	t.Helper()
	s := &executionRefinement{world: newWorld(t, 1+draw(3)), draw: draw, model: newExecutionModel(), stats: stats}
	s.unaudited, s.effectsUnchecked, s.model.again = true, true, s.again
	for _, p := range s.parts {
		s.apply(p, &commandv1.Entry{Commands: []*commandv1.Command{tickCmd(0)}}) // raises its level
	}
	s.applied = s.observe
	for range actions {
		s.act()
	}
	s.finish()
}

var refinements = flag.Int("refinements", 0, "seeds of TestExecutionRefinement; 0: a few")

// TestExecutionRefinement: whatever becomes of messages and workers, the machine does with executions what
// their high-level model can do, and brings about what that must.
func TestExecutionRefinement(t *testing.T) {
	stats := map[string]int{}
	testkit.Checks(t, testkit.Choose(10, 10, 300))
	rapid.Check(t, func(t *rapid.T) { refineExecutions(t, drawn(t), 250, stats) })
	seeds := *refinements
	if seeds == 0 {
		seeds = testkit.Choose(8, 10, 150)
	}
	for seed := range int64(seeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { refineExecutions(t, seeded(seed), 500, stats) })
	}
	t.Logf("%v", stats)
	for _, what := range []string{"begun", "begun again", "erased", "restarts", "InvokeRetrying", "InvokeCompleted", "TimerFired", "SignalReceived",
		"ExecutionResumed", "ExecutionCancelled", "ExecutionFailed", "JoinSetSubmitted", "JoinSetAwaited", "waits for a set", "stale commits", "repeated commits", "late shipments", "calm"} {
		if stats[what] == 0 {
			t.Errorf("this test never has any %s", what)
		}
	}
}

// drawn draws the numbers of a property test.
func drawn(t *rapid.T) func(n int) int {
	numbers := map[int]*rapid.Generator[int]{}
	return func(n int) int {
		if numbers[n] == nil {
			numbers[n] = rapid.IntRange(0, n-1)
		}
		return numbers[n].Draw(t, "")
	}
}
