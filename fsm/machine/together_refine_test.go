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
	"perdure/fsm/state"
	"perdure/fsm/wire"
	"perdure/id"
	"perdure/internal/testkit"
)

// together runs executions that call, signal and lock entities, and ends their holders in every way: by their own
// result, a cancel, a deadline, a terminate, a restart, a continue-as-new, and with their parent. Its model is what
// a user counts on: an entity's value is the list of the requests that it has run, each under a tag of its own.
//
//   - A signal runs once, a call at most once, and once if its execution ended by itself.
//   - The requests of one origin to one entity run in their order.
//   - A result in a journal is that of the operation's own request, at its place in the list.
//   - Between the grant of its locks and its end a section's entities run its requests only.
//   - When all messages have come, only an open section has locks.
type together struct {
	*world
	draw     func(n int) int
	stats    map[string]int
	entities []string
	requests map[string]*taggedRequest
	roots    []string
	held     []*view
	accounts []*holding
	doomed   map[string]int
	late     []*commandv1.Command
	numbered int
	calm     bool
}

// taggedRequest is one request to an entity, by its tag.
type taggedRequest struct {
	entity, promise string
	// origin is the execution's incarnation, the client, or the entity.
	origin string
	call   bool
	number int
	// moved: the commit that made it began another incarnation, whose journal does not have it.
	moved bool
}

// progress is what an execution's journal says of its requests.
type progress struct {
	incarnation uint64
	status      perdurev1.ExecutionStatus
	open, calls []string // operations without a result, by number; calls: of the section's entities
	inside      []string // entities of the section that it is in
	asking      bool
	scheduled   map[string]bool
	ops         int
}

func (s *together) progress(x string) (p progress) {
	e := s.describe(x)
	p.incarnation, p.status, p.scheduled = e.Incarnation, e.Status, map[string]bool{}
	locks, done, calls := map[string][]string{}, map[string]bool{}, map[string]bool{}
	var order []string
	for _, entry := range s.journal(x) {
		switch ev := entry.Event; {
		case ev.GetInvokeScheduled() != nil:
			o := ev.GetInvokeScheduled()
			order = append(order, o.PromiseId)
			p.scheduled[o.PromiseId] = true
			p.ops++
			switch o.FunctionName {
			case "lock":
				locks[o.PromiseId], p.asking = strings.Split(string(o.Input), ","), true
				clear(calls) // one from before may wait for another section
			case "unlock":
				p.inside, p.asking = nil, false
			case "ecall":
				calls[o.PromiseId] = true
			}
		case ev.GetTimerScheduled() != nil:
			order = append(order, ev.GetTimerScheduled().PromiseId)
		case ev.GetTimerFired() != nil:
			done[ev.GetTimerFired().PromiseId] = true
		case ev.GetInvokeCompleted() != nil:
			c := ev.GetInvokeCompleted()
			done[c.PromiseId] = true
			if set := locks[c.PromiseId]; set != nil {
				if p.asking = false; c.Result.GetFailure() == nil {
					p.inside = set
				}
			}
		}
	}
	for _, promise := range order {
		if !done[promise] {
			n, _ := id.PromiseID(promise).IsChildOf(id.PromiseID(x))
			p.open = append(p.open, fmt.Sprint(n))
			if calls[promise] {
				p.calls = append(p.calls, fmt.Sprint(n))
			}
		}
	}
	return p
}

// executions lists every execution that is there.
func (s *together) executions() (out []string) {
	for _, p := range s.parts {
		for x := range takeCensus(p.state).headers {
			out = append(out, x)
		}
	}
	slices.Sort(out)
	return out
}

// request notes a request to an entity, and returns the operation and its argument.
func (s *together) request(r taggedRequest) (op, tag string) {
	s.numbered++
	r.number = s.numbered
	tag = fmt.Sprint("t", r.number)
	switch s.draw(8) {
	case 0:
		tag = fmt.Sprintf("r%d>%d", r.number, s.draw(len(s.entities))) // that entity is sent two signals
	case 1:
		tag = fmt.Sprint("f", r.number)
	}
	s.requests[tag] = &r
	return "run", tag
}

// turn is what a worker commits next; its requests have happened if the journal has them afterwards.
func (s *together) turn(v *view) {
	x, d := v.token.Id, s.draw
	s.read(v)
	p := s.progress(x)
	origin := fmt.Sprint(x, "#", v.token.Incarnation)
	var text, made []string
	next := v.nextChild
	ask := func(op, k string) {
		promise := string(id.PromiseID(x).Child(next))
		_, tag := s.request(taggedRequest{entity: k, promise: promise, origin: origin, call: op == "ecall"})
		made = append(made, tag)
		text = append(text, op+" "+k+" run "+tag)
		p.open = append(p.open, fmt.Sprint(next))
		if op == "ecall" {
			p.calls = append(p.calls, fmt.Sprint(next))
		}
		next++
	}
	wait := func() {
		on := p.open
		if p.inside != nil {
			on = p.calls // a child may wait for the section's locks
		}
		if len(on) > 0 {
			text = append(text, "all "+strings.Join(on, ","))
		}
	}
	over := func() {
		switch k := d(6); {
		case k == 0 && len(text) == 0 && p.inside == nil && !p.asking && !s.calm:
			text = append(text, "continue again")
		case k == 1:
			text = append(text, "fail bad:no")
		default:
			text = append(text, "return r")
		}
	}
	switch {
	case p.status == perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLING:
		text = append(text, "cancelled by request")
	case p.inside != nil && d(3) > 0 && !s.calm && p.ops < 24:
		for _, k := range p.inside {
			if d(3) > 0 {
				ask("ecall", k)
			}
		}
		if k := pick(d, s.entities); !slices.Contains(p.inside, k) {
			ask("etell", k)
		}
		if d(5) == 0 {
			over()
		} else {
			wait()
		}
	case p.inside != nil:
		text = append(text, "unlock")
		next++
		if d(2) == 0 {
			ask("etell", pick(d, s.entities))
		}
		over()
	case s.calm || p.ops >= 20:
		if d(2) == 0 {
			wait()
		}
		over()
	default:
		for range 1 + d(3) {
			switch d(4) {
			case 0:
				ask("ecall", pick(d, s.entities))
			case 1, 2:
				ask("etell", pick(d, s.entities))
			case 3:
				if !strings.Contains(x, ":") && len(s.executions()) < 20 {
					text = append(text, pick(d, []string{"child f in", "child f in spread close=2", "child f in attempts=3 pause=40"}))
					p.open = append(p.open, fmt.Sprint(next))
					next++
				}
			}
		}
		switch k := d(6); {
		case k < 3 && !p.asking:
			var set []string
			for range 1 + d(3) {
				if k := pick(d, s.entities); !slices.Contains(set, k) {
					set = append(set, k)
				}
			}
			text = append(text, "lock "+strings.Join(set, ","), fmt.Sprint("await ", next))
		case k == 3:
			over()
		default:
			wait()
		}
	}
	if len(text) == 0 {
		text = []string{"return r"}
	}
	cmd := s.commitCmd(v, strings.Join(text, "; "))
	reply := s.one(cmd)
	if d(4) == 0 {
		s.one(proto.CloneOf(cmd))
	}
	now := progress{}
	if s.there(x) {
		now = s.progress(x)
	}
	e := wire.ReplyError(reply)
	for _, tag := range made {
		r := s.requests[tag]
		if r.moved = e == nil && now.incarnation != v.token.Incarnation; !r.moved && !now.scheduled[r.promise] {
			delete(s.requests, tag)
		}
	}
	if e != nil {
		s.stats["refused "+e.Reason.String()]++
	} else if reply.GetCommit().State == acquired {
		s.held = append(s.held, v)
	}
}

func (s *together) there(x string) bool {
	_, ok := takeCensus(s.at(x).state).headers[x]
	return ok
}

// tags are the requests that an entity has run.
func (s *together) tags(k string) []string { return strings.Fields(string(s.entity(k).Value)) }

// commitAccount runs the first operations of a batch.
func (s *together) commitAccount(h *holding, most int) {
	b := h.batch
	ran := b.Operations[:min(most, len(b.Operations))]
	c := &perdurev1.CommitEntity{Task: h.token, Version: b.Version, Lane: b.Lane, Exists: true, Value: b.Value}
	for _, o := range ran {
		tag := string(o.Input)
		out := value(fmt.Sprint(tag, "@", len(strings.Fields(string(c.Value)))))
		if tag[0] == 'f' {
			out = failure("no:" + tag)
		} else {
			c.Value = append(slices.Clone(c.Value), tag+" "...)
		}
		if _, to, relays := strings.Cut(tag, ">"); relays && tag[0] == 'r' {
			for _, part := range "ab" {
				c.Signals = append(c.Signals, &perdurev1.EntitySignal{Id: "acc@" + to, Operation: "run", Input: []byte("s" + string(part) + tag)})
			}
		}
		c.Results = append(c.Results, &perdurev1.EntityResult{Request: o.Request, Outcome: out})
	}
	cmd := &commandv1.Command{Namespace: ns, Id: h.token.Id, Request: &perdurev1.RequestID{Id: s.world.request()}, Kind: &commandv1.Command_CommitEntity{CommitEntity: c}}
	inside := map[string]string{}
	for _, x := range s.executions() {
		if p := s.progress(x); p.status < perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED {
			for _, k := range p.inside {
				if inside[k] != "" {
					s.t.Fatalf("%s and %s are both inside sections with %s", inside[k], x, k)
				}
				inside[k] = x
			}
		}
	}
	version := s.entity(b.Id).Version
	reply := s.one(cmd)
	if e := wire.ReplyError(reply); e != nil {
		if e.Reason != perdurev1.Reason_REASON_STALE_TASK {
			s.t.Fatalf("commit of %s: %v", b.Id, e)
		}
		s.stats["stale commits"]++
		return
	}
	if s.entity(b.Id).Version != version {
		for _, o := range ran {
			if x := inside[b.Id]; x != "" && o.Sender != x {
				s.t.Fatalf("%s runs %s of %s, and %s is inside its section", b.Id, o.Input, o.Sender, x)
			}
			s.stats["operations"]++
		}
		s.doomed[b.Id] = 0
	}
	if s.draw(3) == 0 {
		s.one(proto.CloneOf(cmd))
	}
	if h.batch = reply.GetCommitEntity().Next; h.batch != nil {
		s.accounts = append(s.accounts, h)
	}
}

func (s *together) act() {
	d := s.draw
	p := pick(d, s.parts)
	x := pick(d, s.roots)
	if all := s.executions(); len(all) > 0 && d(3) == 0 {
		x = pick(d, all)
	}
	switch k := d(32); {
	case k < 4:
		o := grant("w1", 1+d(2), "f")
		if o.LeaseMs = 1_000_000; d(6) == 0 {
			o.LeaseMs = int64(1 + d(300))
		}
		s.held = append(s.held, s.takeFrom(p, o)...)
	case k < 12 && len(s.held) > 0:
		i := d(len(s.held))
		v := s.held[i]
		if s.held = slices.Delete(s.held, i, i+1); s.there(v.token.Id) {
			s.turn(v)
		}
	case k < 15:
		lease := int64(10_000_000)
		if d(8) == 0 {
			lease = 20
		}
		if h := s.takeEntity(p, "e1", lease); h != nil {
			if lease == 20 {
				if s.doomed[h.batch.Id]++; s.doomed[h.batch.Id] >= state.EntityAttempts-1 {
					s.do(releaseCmd(h.token, "", 0)) // no operation fails for good here
					s.doomed[h.batch.Id]--
					return
				}
			}
			s.accounts = append(s.accounts, h)
		}
	case k < 19 && len(s.accounts) > 0:
		i := d(len(s.accounts))
		h := s.accounts[i]
		s.accounts = slices.Delete(s.accounts, i, i+1)
		s.commitAccount(h, 1+d(4))
	case k < 23:
		src, dst := d(len(s.parts)), d(len(s.parts))
		if cmd := s.deliverCmd(src, dst, 1+d(3)); src != dst && len(cmd.GetDeliver().Messages) > 0 {
			s.apply(s.parts[dst], &commandv1.Entry{Commands: []*commandv1.Command{cmd}})
			if s.late = append(s.late, cmd); d(3) > 0 {
				s.shipOne(src, dst, 1+d(3))
			}
		}
	case k == 23 && len(s.late) > 0:
		cmd := proto.CloneOf(pick(d, s.late))
		s.apply(s.parts[state.PartitionOf(ns, cmd.GetDeliver().Messages[0].ToId, uint32(len(s.parts)))], &commandv1.Entry{Commands: []*commandv1.Command{cmd}})
	case k == 24:
		s.now += int64(d(60))
		s.settleExpired(p)
	case k == 25:
		s.open(p)
	case k == 26:
		cmd := reuseCmd(s.world.request(), pick(d, s.roots), "f", "in", perdurev1.Reuse_REUSE_ALWAYS)
		cmd.GetStart().TimeoutMs = int64(d(2) * (1 + d(400)))
		s.one(cmd)
	case k == 27:
		k := pick(d, s.entities)
		op, tag := s.request(taggedRequest{entity: k, origin: "client"})
		cmd := signalEntityCmd(s.world.request(), k, op, tag, 0)
		s.do(cmd)
		s.do(proto.CloneOf(cmd))
	case k == 28 && s.there(x):
		s.end(x)
	case k == 29 && d(4) == 0:
		s.rest()
	}
}

// end ends an execution, or its incarnation.
func (s *together) end(x string) {
	if s.progress(x).inside != nil {
		s.stats["holders ended"]++
	}
	switch s.draw(4) {
	case 0:
		s.one(cancelCmd(x, "by chance", int64(1+s.draw(100))))
	case 1:
		s.one(terminateCmd(x, "by chance"))
	default:
		cmd := restartCmd(s.world.request(), x, fromStart, 0)
		if s.draw(2) == 0 {
			cmd.GetRestart().From, cmd.GetRestart().Event = fromEvent, uint64(1+s.draw(len(s.journal(x))))
		}
		cmd.GetRestart().NewChildren = s.draw(3) == 0
		if wire.ReplyError(s.one(cmd)) == nil {
			s.stats["restarts"]++
		}
	}
}

// rest lets all messages come, and checks that ended holders hold nothing.
func (s *together) rest() {
	for range 6 {
		s.now += 200
		s.tick()
		s.ship()
	}
	for _, k := range s.entities {
		e := s.entity(k)
		x := e.Lock.GetHolder()
		if x == "" || e.Queued > 0 { // calls of an ended section run before its lock goes
			continue
		}
		if !s.there(x) {
			s.t.Fatalf("%s is locked by %s, which is gone", k, x)
		}
		if p := s.progress(x); p.status >= perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED || p.inside == nil && !p.asking {
			s.t.Fatalf("%s is locked by %s, which is %v and in no section: %s", k, x, p.status, s.kinds(x))
		}
	}
	s.stats["rests"]++
}

// finish brings all to its end.
func (s *together) finish() {
	s.calm = true
	for range 120 {
		s.rest()
		for range 30 {
			busy := false
			for _, p := range s.parts {
				if h := s.takeEntity(p, "e1", 10_000_000); h != nil {
					s.accounts = append(s.accounts, h)
				}
				s.held = append(s.held, s.takeFrom(p, grant("w1", 50, "f"))...)
			}
			accounts, held := s.accounts, s.held
			s.accounts, s.held = nil, nil
			for _, h := range accounts {
				s.commitAccount(h, 64)
				busy = true
			}
			for _, v := range held {
				if s.there(v.token.Id) {
					s.turn(v)
					busy = true
				}
			}
			if s.ship(); !busy {
				break
			}
		}
		open := slices.DeleteFunc(s.executions(), func(x string) bool {
			return s.progress(x).status >= perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED
		})
		idle := !slices.ContainsFunc(s.entities, func(k string) bool { e := s.entity(k); return e.Queued+e.Scheduled > 0 || e.Lock != nil })
		if len(open) == 0 && idle {
			return
		}
		s.now += 10_000_001 // leases of lost workers
	}
	for _, x := range s.executions() {
		s.t.Logf("%s: %s %+v", x, s.kinds(x), s.progress(x))
	}
	for _, k := range s.entities {
		s.t.Logf("%v", s.entity(k))
	}
	s.t.Fatalf("executions or requests are open without an end")
}

// verify compares the lists of the entities with the requests, and the journals with the lists.
func (s *together) verify() {
	for from, k := range s.entities { // signals between entities
		for _, tag := range s.tags(k) {
			if _, to, relays := strings.Cut(tag, ">"); relays && tag[0] == 'r' {
				for i, part := range "ab" {
					s.requests["s"+string(part)+tag] = &taggedRequest{entity: "acc@" + to, origin: s.entities[from], number: len(s.requests) + i}
				}
			}
		}
	}
	ended := map[string]bool{} // incarnations that ended by themselves
	for _, x := range s.executions() {
		p := s.progress(x)
		if p.status == perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED || p.status == perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED {
			ended[fmt.Sprint(x, "#", p.incarnation)] = true
		}
		for _, e := range s.journal(x) {
			if done := e.Event.GetInvokeCompleted(); done != nil {
				s.verifyResult(x, done)
			}
		}
	}
	place := map[string]int{}
	for _, k := range s.entities {
		last := map[string]int{}
		for _, tag := range s.tags(k) {
			r := s.requests[tag]
			if r == nil || r.entity != k || place[tag] > 0 {
				s.t.Fatalf("%s has run %s, which is %+v, %d times before", k, tag, r, place[tag])
			}
			place[tag]++
			if r.number < last[r.origin] {
				s.t.Fatalf("%s has run %s of %s behind a later request: %v", k, tag, r.origin, s.tags(k))
			}
			last[r.origin] = r.number
		}
	}
	for tag, r := range s.requests {
		if place[tag] == 0 && tag[0] != 'f' && !r.moved && (!r.call || ended[r.origin]) {
			s.t.Fatalf("%s was never run by %s: %+v", tag, r.entity, r)
		}
		if r.call && place[tag] == 0 {
			s.stats["calls withdrawn"]++
		}
	}
	for _, p := range s.parts {
		s.audit(p)
	}
}

func (s *together) verifyResult(x string, done *perdurev1.InvokeCompleted) {
	tag, at, found := strings.Cut(string(done.Result.GetValue()), "@")
	if f := done.Result.GetFailure(); f != nil && f.Type == "no" {
		tag = f.Message
	} else if !found {
		return // not a call's
	} else if k := s.requests[tag].entity; fmt.Sprint(slices.Index(s.tags(k), tag)) != at {
		s.t.Fatalf("%s has %s of %s, which has run %v", x, done.Result, k, s.tags(k))
	}
	if r := s.requests[tag]; r == nil || r.promise != done.PromiseId {
		s.t.Fatalf("%s completes with the result of %s, which is %+v", done.PromiseId, tag, r)
	}
	s.stats["results"]++
}

func refineTogether(t tester, draw func(n int) int, actions int, stats map[string]int) {
	t.Helper()
	s := &together{world: bank(t, 1+draw(3)), draw: draw, stats: stats, requests: map[string]*taggedRequest{}, doomed: map[string]int{}}
	s.unaudited, s.effectsUnchecked = true, true
	for i := range 4 {
		s.entities = append(s.entities, fmt.Sprint("acc@", i))
		s.roots = append(s.roots, fmt.Sprint("run-", i))
		s.do(startCmd(s.world.request(), s.roots[i], "f", "in"))
	}
	for range actions {
		s.act()
	}
	s.finish()
	s.verify()
}

// TestExecutionsWithEntities: requests to entities run as often and in the order that users count on, and locks go
// with their holders, whatever becomes of these, of messages and of workers.
func TestExecutionsWithEntities(t *testing.T) {
	stats := map[string]int{}
	testkit.Checks(t, testkit.Choose(20, 10, 200))
	rapid.Check(t, func(t *rapid.T) { refineTogether(t, drawn(t), 300, stats) })
	for seed := range int64(testkit.Choose(4, 5, 60)) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) { refineTogether(t, seeded(seed), 500, stats) })
	}
	t.Logf("%v", stats)
	for _, what := range []string{"operations", "results", "stale commits", "restarts", "holders ended", "calls withdrawn", "rests"} {
		if stats[what] == 0 {
			t.Errorf("this test never has any %s", what)
		}
	}
}
