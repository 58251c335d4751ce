package entity

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strconv"
	"testing"

	"pgregory.net/rapid"

	"perdure/internal/testkit"
)

// The claim of this file is that of theorem 5.3 (durable functions semantics): the high-level model can do
// each step of the message-based implementation. A world runs random executions of the implementation:
// messages are delayed and repeated, workers are lost, slow and doubled, records are dropped and created
// again, holders die in any phase. Each of its steps is mapped to steps of the reference, which must be
// enabled, and afterwards the two states must be the same under the abstraction of [world.abstract].
//
// The effects of a step happen as follows: an operation happens at the commit of its batch; a section is
// entered when its holder learns of the last lock, and left when its holder sends the unlocks. An operation
// that the holder had sent to a locked entity before it entered happens just before it enters (world.ahead).

// channel carries the messages of one pair in order. It remembers delivered messages, to repeat them.
type channel struct {
	from, to  Party
	messages  []Message
	delivered int
}

type aheadKey struct {
	entity  ID
	request string
}

type world struct {
	t        *rapid.T
	now      int64
	ids      []ID
	born     uint64
	entities map[ID]*State // absent: there is no record of it
	holders  []*Holder
	clients  []Party
	results  map[Party]map[string]string
	channels []*channel
	batches  []Batch // with workers
	// hasty lets messages of locking overtake operations.
	hasty    bool
	repeats  int
	repeated map[Section]Kind
	requests int
	ref      *highLevel
	// ahead are the operations that the reference has run already, with the holder they belong to.
	ahead map[aheadKey]Party
	stats map[string]int
}

func newWorld(t *rapid.T, stats map[string]int) *world {
	w := &world{t: t, now: 100, ids: []ID{"a", "b", "c"}, entities: map[ID]*State{}, results: map[Party]map[string]string{},
		repeated: map[Section]Kind{},
		ahead:    map[aheadKey]Party{}, stats: stats}
	var executions []Party
	for _, name := range []string{"x", "y", "z"} {
		h, err := NewHolder(name, 7)
		if err != nil {
			t.Fatal(err)
		}
		w.holders = append(w.holders, h)
		executions = append(executions, h.Self)
	}
	w.clients = []Party{{PartyClient, "p", 0}, {PartyClient, "q", 3}}
	w.ref = newHighLevel(w.ids, executions)
	w.ref.now = w.now
	return w
}

func (w *world) must(err error, what string) {
	if err != nil {
		w.t.Fatalf("%s: the high-level model refuses: %v", what, err)
	}
}

func (w *world) send(out ...Message) {
	for _, m := range out {
		w.t.Logf("  sent: %s %+v", m.Kind(), m)
		i := slices.IndexFunc(w.channels, func(c *channel) bool { return c.from == m.From() && c.to == m.To() })
		if i < 0 {
			i = len(w.channels)
			w.channels = append(w.channels, &channel{from: m.From(), to: m.To()})
		}
		w.channels[i].messages = append(w.channels[i].messages, m)
	}
}

func (w *world) request() string {
	w.requests++
	return "r" + strconv.Itoa(w.requests)
}

// pick draws from 0 to n-1, all alike: rapid's own numbers prefer the ends of a range.
func (w *world) pick(n int) int {
	v := 0
	for range bits.Len(uint(n-1)) + 2 {
		v <<= 1
		if rapid.Bool().Draw(w.t, "bit") {
			v++
		}
	}
	return v % n
}

func of[T any](w *world, list []T) T { return list[w.pick(len(list))] }

// drawWork draws an operation and its argument.
func (w *world) drawWork() (op, arg string) {
	switch w.pick(10) {
	case 0, 6:
		return "clear", ""
	case 1:
		return "fail", ""
	case 2, 3:
		return "relay", string(of(w, w.ids)) + " " + w.letter()
	case 4:
		return "remind", strconv.FormatInt(w.now+int64(w.pick(8)-2), 10)
	case 5:
		return "get", ""
	}
	return "append", w.letter()
}

func (w *world) letter() string { return string(rune('A' + w.requests%26)) }

// step does one random thing and holds the two sides against each other.
func (w *world) step() {
	switch n := w.pick(100); {
	case n < 37:
		w.deliver()
	case n < 53:
		w.act(of(w, w.holders))
	case n < 60:
		w.section(of(w, w.holders))
	case n < 65:
		w.client(of(w, w.clients))
	case n < 77:
		w.fetch(of(w, w.ids))
	case n < 91:
		w.work()
	case n < 95:
		w.repeat()
	case n < 97:
		w.pass(int64(w.pick(4) + 1))
	case n < 98:
		w.collect(of(w, w.ids))
	case n < 99:
		w.restart()
	default:
		w.end(of(w, w.holders))
	}
	w.check()
}

// deliver takes the next message out of a random channel.
func (w *world) deliver() {
	ready := w.ready()
	if len(ready) == 0 {
		return
	}
	if w.hasty {
		if fast := slices.DeleteFunc(slices.Clone(ready), func(c *channel) bool {
			_, slow := c.messages[c.delivered].(operation)
			return slow
		}); len(fast) > 0 {
			ready = fast
		}
	}
	c := of(w, ready)
	m := c.messages[c.delivered]
	c.delivered++
	w.receive(m, false)
}

func (w *world) ready() []*channel {
	var ready []*channel
	for _, c := range w.channels {
		if c.delivered < len(c.messages) {
			ready = append(ready, c)
		}
	}
	return ready
}

// repeat delivers a message a second time. Operations are repeated only while they wait, and are refused
// then: after that, the channel is what keeps a repetition away.
func (w *world) repeat() {
	if w.repeats >= 8 || len(w.channels) == 0 {
		return
	}
	c := of(w, w.channels)
	if c.delivered == 0 {
		return
	}
	m := c.messages[w.pick(c.delivered)]
	if o, ok := m.(operation); ok {
		s := w.entities[ID(m.To().ID)]
		if s == nil || !waiting(s, o) {
			return
		}
		before := AppendState(nil, s)
		_, err := s.Deliver(w.now, m)
		if call, ok := m.(Call); !ok || call.Section == "" || !ruleIs(err, RuleUnderLock) {
			w.refused(err, RuleRequestOnce)
		}
		w.unchanged(before, s)
		w.stats["operations repeated"]++
		return
	}
	switch m := m.(type) { // of a request and its withdrawal only one may be repeated
	case LockRequest:
		if kind, ok := w.repeated[m.Section]; ok && kind != m.Kind() {
			return
		}
		w.repeated[m.Section] = m.Kind()
	case Withdraw:
		if kind, ok := w.repeated[m.Section]; ok && kind != m.Kind() {
			return
		}
		w.repeated[m.Section] = m.Kind()
	}
	w.repeats++
	w.stats["lock messages and replies repeated"]++
	w.receive(m, true)
}

func waiting(s *State, o operation) bool {
	code, rule, _ := s.refuseTwin(o)
	return code == Conflict && rule == RuleRequestOnce
}

func ruleIs(err error, rule string) bool {
	var refused *Error
	return errors.As(err, &refused) && refused.Rule == rule
}

func (w *world) refused(err error, rule string) {
	if !ruleIs(err, rule) {
		w.t.Fatalf("got %v, want rule %s", err, rule)
	}
}

func (w *world) unchanged(before []byte, s *State) {
	if after := AppendState(nil, s); !bytes.Equal(before, after) {
		w.t.Fatalf("a refusal changed\n%q to\n%q", before, after)
	}
}

func (w *world) receive(m Message, again bool) {
	w.t.Logf("arrives (again: %v): %s %+v", again, m.Kind(), m)
	switch m := m.(type) {
	case LockGranted:
		h := w.holder(m.Section.Holder)
		out, entered, err := h.Granted(m)
		if err != nil {
			w.t.Fatal(err)
		}
		w.send(out...)
		if entered {
			w.enter(h)
		} else if len(out) > 0 {
			w.stats["locks given back unclaimed"]++
		}
	case Reply:
		if h := w.holder(m.Caller); h != nil {
			if _, err := h.Replied(m); err != nil {
				w.t.Fatal(err)
			}
		}
		w.reply(w.results, m)
	default:
		k := ID(m.To().ID)
		if w.entities[k] == nil {
			w.born++
			s, err := New(k, w.born)
			if err != nil {
				w.t.Fatal(err)
			}
			w.entities[k] = s
			w.stats["records made"]++
		}
		out, err := w.entities[k].Deliver(w.now, m)
		if err != nil {
			w.t.Fatalf("%#v (again: %v): %v", m, again, err)
		}
		w.send(out...)
	}
}

func (w *world) holder(p Party) *Holder {
	for _, h := range w.holders {
		if h.Self == p {
			return h
		}
	}
	return nil
}

func (w *world) reply(results map[Party]map[string]string, m Reply) {
	if results[m.Caller] == nil {
		results[m.Caller] = map[string]string{}
	}
	text := fmt.Sprint(m.Failed, string(m.Output))
	if old, ok := results[m.Caller][m.Request]; ok && old != text {
		w.t.Fatalf("%v got %q and %q for %s", m.Caller, old, text, m.Request)
	}
	results[m.Caller][m.Request] = text
}

// enter is the step of the reference that goes with the news of the last lock. Operations that the holder had
// sent to these entities before are still on their way or wait there, and run under the lock: they happen
// now.
func (w *world) enter(h *Holder) {
	for _, k := range h.Set {
		for {
			i := slices.IndexFunc(w.ref.entities[k].queue, func(r hlRequest) bool { return r.origin == h.Self && r.due == 0 })
			if i < 0 {
				break
			}
			r := w.ref.entities[k].queue[i]
			w.must(w.ref.take(k, r), "run ahead")
			w.ahead[aheadKey{k, r.id}] = h.Self
			w.stats["operations of the holder under its lock"]++
		}
	}
	w.must(w.ref.enter(h.Self), "enter")
	w.stats["sections entered"]++
	w.stats["locks taken"] += len(h.Set)
}

// act lets an execution call or signal. Each side refuses exactly what the other refuses.
func (w *world) act(h *Holder) {
	k := of(w, w.ids)
	if h.Phase == Inside && w.pick(4) != 0 {
		k = of(w, h.Set)
	}
	id := w.request()
	op, arg := w.drawWork()
	r := hlRequest{origin: h.Self, id: id, op: op, arg: arg}
	before := AppendHolder(nil, h)
	var m Message
	var err error
	if r.call = w.pick(2) == 0; r.call {
		m, err = message(h.Call(k, id, op, []byte(arg)))
	} else {
		if w.pick(5) == 0 {
			r.due = w.now + int64(w.pick(6))
		}
		m, err = message(h.Signal(k, id, op, []byte(arg), r.due))
	}
	inside := h.Phase == Inside
	if w.early(h, before, err) {
		return
	}
	w.agree(h, before, err, w.ref.send(k, r))
	if err == nil {
		if inside && r.call {
			w.stats["section calls"]++
		}
		w.send(m)
	}
}

func message[M Message](m M, err error) (Message, error) { return m, err }

// early reports whether the holder refused a step only because the reply to a call of its section is still
// on its way to it. In the high-level model replies have no way to go, so the step is possible there.
func (w *world) early(h *Holder, before []byte, err error) bool {
	if !ruleIs(err, RuleOneCall) && !ruleIs(err, RuleExitIdle) {
		return false
	}
	if after := AppendHolder(nil, h); !bytes.Equal(before, after) {
		w.t.Fatalf("a refusal changed %q to %q", before, after)
	}
	var refused *Error
	errors.As(err, &refused)
	i, _ := h.pending(refused.Entity)
	for _, c := range w.ready() {
		for _, m := range c.messages[c.delivered:] {
			if r, ok := m.(Reply); ok && c.to == h.Self && r.Request == h.Pending[i].Request {
				w.stats["steps of holders early"]++
				return true
			}
		}
	}
	return false
}

// agree fails unless both sides did the step, or both refused it and the holder is as before.
func (w *world) agree(h *Holder, before []byte, err, refErr error) {
	if (err == nil) != (refErr == nil) {
		w.t.Fatalf("implementation: %v; high-level model: %v", err, refErr)
	}
	if err == nil {
		return
	}
	w.stats["steps of holders refused"]++
	var refused *Error
	if !errors.As(err, &refused) {
		w.t.Fatalf("untyped error %v", err)
	}
	if after := AppendHolder(nil, h); !bytes.Equal(before, after) {
		w.t.Fatalf("a refusal changed %q to %q", before, after)
	}
}

// section lets an execution enter, leave, or do what it may not inside.
func (w *world) section(h *Holder) {
	n := w.pick(10)
	if n < 3 && h.Phase == Outside {
		w.act(h) // which the lock request may overtake
	}
	before := AppendHolder(nil, h)
	switch {
	case n < 6 && h.Phase != Inside, n == 0:
		section := w.request()
		set := make([]ID, 1+w.pick(4))
		for i := range set {
			set[i] = of(w, w.ids)
		}
		m, err := h.Enter(section, set)
		w.agree(h, before, err, w.ref.ask(h.Self, Section{h.Self, section}, LockSet(set)))
		if err == nil {
			w.send(m)
		}
	case n < 4, n < 8 && h.Phase != Inside:
		out, err := h.Exit()
		if w.early(h, before, err) {
			return
		}
		w.agree(h, before, err, w.ref.exit(h.Self))
		w.send(out...)
	case n < 7:
		w.agree(h, before, h.MayStartChild(), w.ref.outside(h.Self))
	default:
		w.agree(h, before, h.MayContinueAsNew(), w.ref.outside(h.Self))
	}
}

func (w *world) end(h *Holder) {
	w.t.Logf("end of %s", h.Self.ID)
	if h.Phase != Ended {
		w.stats["ended "+h.Phase.String()]++
		w.ref.end(h.Self)
	}
	w.send(h.End()...)
}

func (w *world) client(p Party) {
	k := of(w, w.ids)
	op, arg := w.drawWork()
	r := hlRequest{origin: p, id: w.request(), op: op, arg: arg, call: w.pick(2) == 0}
	w.must(w.ref.send(k, r), "client")
	if r.call {
		w.send(Call{Origin: p, Entity: k, Request: r.id, Operation: op, Input: []byte(arg)})
	} else {
		w.send(Signal{Origin: p, Entity: k, Request: r.id, Operation: op, Input: []byte(arg)})
	}
}

// fetch gives a worker a batch. Several may have the same.
func (w *world) fetch(k ID) {
	if s := w.entities[k]; s != nil {
		b, ok := s.Batch(1+w.pick(4), 100)
		if ok != s.Runnable() {
			w.t.Fatalf("batch: %v, runnable: %v", ok, s.Runnable())
		}
		if ok {
			w.batches = append(w.batches, b)
		}
	}
}

// work lets a worker commit what it has, all of it or the first part, or lose it.
func (w *world) work() {
	if len(w.batches) == 0 {
		return
	}
	i := w.pick(len(w.batches))
	b := w.batches[i]
	fate := w.pick(10)
	if fate != 9 { // else it has it still and commits again later
		w.batches = slices.Delete(w.batches, i, i+1)
	}
	if fate == 0 {
		w.stats["batches lost"]++
		return
	}
	w.commit(b, 1+w.pick(len(b.Operations)))
}

func (w *world) commit(b Batch, part int) {
	c := Commit{Incarnation: b.Incarnation, Version: b.Version, Lane: b.Lane, Exists: b.Exists, Value: b.Value}
	for _, o := range b.Operations[:part] {
		exists, value, output, failed, sends := app(b.Entity, c.Exists, string(c.Value), o.Name, string(o.Input))
		c.Exists, c.Value = exists, []byte(value)
		c.Results = append(c.Results, Result{Request: o.Request, Failed: failed, Output: []byte(output)})
		c.Sends = append(c.Sends, sends...)
	}
	s := w.entities[b.Entity]
	if s == nil {
		return
	}
	fresh := b.Incarnation == s.Incarnation && b.Version == s.Version
	var run []operation
	for _, o := range s.eligible(b.Lane) {
		run = append(run, o)
	}
	before := AppendState(nil, s)
	out, err := s.Commit(w.now, c)
	if !fresh {
		if !ruleIs(err, RuleIncarnation) && !ruleIs(err, RuleVersion) {
			w.t.Fatalf("stale commit: %v", err)
		}
		if b.Incarnation != s.Incarnation {
			w.stats["commits of a dropped record"]++
		}
		w.unchanged(before, s)
		w.stats["stale commits refused"]++
		return
	}
	if b.Lane && s.Lock.Held() {
		if !ruleIs(err, RuleLane) {
			w.t.Fatalf("scheduled signals under a lock: %v", err)
		}
		w.unchanged(before, s)
		return
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.stats["commits"]++
	w.t.Logf("commit of %s: %+v", b.Entity, c)
	for _, o := range run[:part] {
		w.happen(b.Entity, o)
	}
	w.send(out...)
	if w.pick(2) == 0 {
		w.collect(b.Entity)
	}
}

// happen is the step of the reference for an operation that was committed.
func (w *world) happen(k ID, o operation) {
	w.stats["operations"]++
	r := reference(o)
	key := aheadKey{k, r.id}
	if w.ahead[key] == r.origin && r.due == 0 && r.origin.Kind == PartyExecution {
		delete(w.ahead, key)
		return
	}
	if call, ok := o.(Call); ok && call.Section != "" {
		w.must(w.ref.endCall(k, r.origin, r.id), "section call")
		return
	}
	w.must(w.ref.take(k, r), "operation")
}

// reference is an operation as the reference knows it.
func reference(o operation) hlRequest {
	work := o.work()
	r := hlRequest{origin: work.Origin, id: work.Request, op: work.Name, arg: string(work.Input), call: work.Call}
	if work.Origin.Kind == PartyEntity {
		r.id = ""
	}
	if m, ok := o.(Signal); ok {
		r.due = m.DueAt
	}
	return r
}

func (w *world) pass(ms int64) {
	w.now += ms
	w.ref.now = w.now
	for _, k := range w.ids {
		s := w.entities[k]
		if s == nil {
			continue
		}
		at, armed := s.NextScheduled()
		if fired := s.Tick(w.now); fired != (armed && at <= w.now) {
			w.t.Fatalf("tick at %d: %v, due at %d: %v", w.now, fired, at, armed)
		}
	}
}

func (w *world) collect(k ID) {
	if s := w.entities[k]; s != nil && s.Collectable() {
		delete(w.entities, k)
		w.stats["records dropped"]++
	}
}

// restart brings everything back from its bytes.
func (w *world) restart() {
	for k, s := range w.entities {
		b := AppendState(nil, s)
		back, err := DecodeState(b)
		if err != nil || !bytes.Equal(AppendState(nil, back), b) {
			w.t.Fatalf("%v: %q", err, b)
		}
		w.entities[k] = back
	}
	for i, h := range w.holders {
		b := AppendHolder(nil, h)
		back, err := DecodeHolder(b)
		if err != nil || !bytes.Equal(AppendHolder(nil, back), b) {
			w.t.Fatalf("%v: %q", err, b)
		}
		w.holders[i] = back
	}
	for _, c := range w.channels {
		for i := c.delivered; i < len(c.messages); i++ {
			m, err := DecodeMessage(AppendMessage(nil, c.messages[i]))
			if err != nil {
				w.t.Fatal(err)
			}
			c.messages[i] = m
		}
	}
	w.stats["restarts"]++
}

// settle brings everything to rest: holders leave their sections, messages arrive, workers work. It fails
// if that does not end, or ends with anything undone.
func (w *world) settle() {
	for range 2000 {
		if ready := w.ready(); len(ready) > 0 {
			w.deliver()
		} else if i := slices.IndexFunc(w.ids, func(k ID) bool { return w.entities[k] != nil && w.entities[k].Runnable() }); i >= 0 {
			b, _ := w.entities[w.ids[i]].Batch(3, 100)
			w.commit(b, len(b.Operations))
		} else if i := slices.IndexFunc(w.holders, func(h *Holder) bool { return h.Phase == Inside }); i >= 0 {
			out, err := w.holders[i].Exit()
			w.must(w.ref.exit(w.holders[i].Self), "exit")
			if err != nil {
				w.t.Fatalf("all is quiet and a section cannot be left: %v", err)
			}
			w.send(out...)
		} else if w.pending() {
			w.pass(10)
		} else {
			w.quiet()
			return
		}
		w.check()
	}
	w.t.Fatal("it does not come to rest")
}

func (w *world) pending() bool {
	for _, k := range w.ids {
		if s := w.entities[k]; s != nil && len(s.Delayed) > 0 {
			return true
		}
	}
	return false
}

func (w *world) quiet() {
	for _, h := range w.holders {
		if h.Phase == Acquiring || h.Phase == Inside {
			w.t.Fatalf("all is quiet and %v is still %v %v", h.Self, h.Phase, h.Set)
		}
	}
	for _, k := range w.ids {
		if s := w.entities[k]; s != nil && (s.Lock.Held() || len(s.Queue) != 0) {
			w.t.Fatalf("all is quiet and %s is %v with %v", k, s.Lock, s.Queue)
		}
	}
	if len(w.ahead) != 0 {
		w.t.Fatalf("never run: %v", w.ahead)
	}
}

func TestSimulation(t *testing.T) {
	testkit.Checks(t, testkit.Choose(2000, 1000, 3000)) // of which -short tries a fifth
	stats := map[string]int{}
	executions, steps := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, stats)
		w.hasty = w.pick(4) == 0
		for range 40 + w.pick(80) {
			w.step()
			steps++
		}
		w.settle()
		executions++
	})
	t.Logf("%d random executions, %d steps, each mapped to the high-level model", executions, steps)
	for _, what := range slices.Sorted(maps.Keys(stats)) {
		t.Logf("%8d %s", stats[what], what)
	}
	if testing.Short() {
		return
	}
	// A simulation that never does the hard things proves nothing.
	for _, what := range []string{"sections entered", "section calls", "operations of the holder under its lock", "stale commits refused",
		"batches lost", "commits of a dropped record", "records dropped", "operations repeated", "lock messages and replies repeated",
		"locks given back unclaimed", "ended outside", "ended acquiring", "ended inside", "steps of holders refused", "restarts"} {
		if stats[what] == 0 {
			t.Errorf("never seen: %s", what)
		}
	}
}
