package entity

import (
	"crypto/sha256"
	"slices"
	"strconv"
	"strings"
	"testing"

	"perdure/internal/canonical"
	"perdure/internal/testkit"
)

// This file searches, without chance, every interleaving of small systems: executions that enter one critical
// section each, entities, and the messages between them, delivered in every order that keeps each pair's
// own. A state in which nothing can happen must be one in which everything is done. As every run of such a
// system is finite (each step uses up an action or a message, and makes finitely many), this shows that all
// runs end well: no deadlock, no lost lock, no lock left behind.

// action is a step that an execution takes when it can.
type action byte

const (
	enter action = 'E'
	call  action = 'C' // of the first entity of its set
	exit  action = 'X'
	end   action = 'D' // also taken before its turn: an operator terminates the execution
	quit  action = 'Q' // ends, at its turn
)

// script is what one execution does.
type script struct {
	set     []ID
	actions []action
	mortal  bool // may be ended at any moment, instead of its next action
}

// node is one state of a system. Its parts are never changed in place, so nodes share them.
type node struct {
	entities []*State
	holders  []*Holder
	next     []int // per execution: the next action
	channels [][]Message
	signals  int // signals of a client that are still to be sent, to the first entity
	parts    []string
}

// system is what all nodes have in common.
type system struct {
	t       *testing.T
	ids     []ID
	scripts []script
	// unchecked delivers lock requests without checking them.
	unchecked bool
	visited   map[[sha256.Size]byte]struct{}
	// sound are the encodings of entities whose invariants have been checked.
	sound map[string]string
	// pairs numbers the channels as they come into use.
	pairs     map[[2]int]int
	buffer    []byte
	finals    int
	deadlocks int
	edges     int
}

// index numbers the parties: entities, then executions.
func (s *system) index(p Party) int {
	if p.Kind == PartyEntity {
		return slices.Index(s.ids, ID(p.ID))
	}
	n, _ := strconv.Atoi(p.ID)
	return len(s.ids) + n
}

func (s *system) initial(signals int) *node {
	// Messages go from executions to entities, back, and from entities to later ones.
	channels := 2*len(s.ids)*len(s.scripts) + len(s.ids)*(len(s.ids)-1)
	n := &node{signals: signals, channels: make([][]Message, channels)}
	for _, k := range s.ids {
		e, err := New(k, 1)
		if err != nil {
			s.t.Fatal(err)
		}
		n.entities = append(n.entities, e)
	}
	for i := range s.scripts {
		h, err := NewHolder(strconv.Itoa(i), 1)
		if err != nil {
			s.t.Fatal(err)
		}
		n.holders = append(n.holders, h)
		n.next = append(n.next, 0)
	}
	n.parts = make([]string, len(n.entities)+len(n.holders)+len(n.channels))
	for i := range n.entities {
		s.noteEntity(n, i)
	}
	for i := range n.holders {
		s.noteHolder(n, i)
	}
	return n
}

func (n *node) fork() *node {
	c := *n
	c.entities = slices.Clone(n.entities)
	c.holders = slices.Clone(n.holders)
	c.next = slices.Clone(n.next)
	c.channels = slices.Clone(n.channels)
	c.parts = slices.Clone(n.parts)
	return &c
}

// note keeps the bytes of what has changed. Numbers that only say how much has happened before are left
// out, so that states from which the same can happen are one.
func (s *system) noteEntity(n *node, i int) {
	e := *n.entities[i]
	e.Version, e.NextSeq = 0, 0
	e.Queue = slices.Clone(e.Queue)
	until := uint64(0)
	for j := range e.Queue {
		if e.Lock.Until != 0 && e.Queue[j].Seq < e.Lock.Until {
			until = uint64(j + 2)
		}
		e.Queue[j].Seq = uint64(j + 1)
	}
	e.Lock.Until = until
	b := AppendState(nil, &e)
	part, known := s.sound[string(b)]
	if !known {
		part = string(b)
		for _, v := range n.entities[i].Invariants() {
			if !s.unchecked {
				s.t.Fatal(v)
			}
		}
		s.sound[part] = part
	}
	n.parts[i] = part
}

func (s *system) noteHolder(n *node, i int) {
	n.parts[len(n.entities)+i] = string(AppendHolder([]byte{byte(n.next[i])}, n.holders[i]))
}

func (s *system) noteChannel(n *node, i int) {
	var b []byte
	for _, m := range n.channels[i] {
		b = AppendMessage(b, m)
	}
	n.parts[len(n.entities)+len(n.holders)+i] = string(b)
}

func (s *system) send(n *node, out ...Message) {
	for _, m := range out {
		pair := [2]int{s.index(m.From()), s.index(m.To())}
		i, known := s.pairs[pair]
		if !known {
			i = len(s.pairs)
			s.pairs[pair] = i
		}
		n.channels[i] = append(slices.Clone(n.channels[i]), m)
		s.noteChannel(n, i)
	}
}

// steps returns the states that can follow n.
func (s *system) steps(n *node) []*node {
	var out []*node
	for i := range s.scripts {
		for _, c := range s.acts(n, i) {
			s.noteHolder(c, i)
			out = append(out, c)
		}
	}
	for i := range n.channels {
		if len(n.channels[i]) > 0 {
			out = append(out, s.deliver(n, i))
		}
	}
	for i, e := range n.entities {
		if b, ok := e.Batch(1, 0); ok {
			c := n.fork()
			c.entities[i] = e.Clone()
			sent, err := c.entities[i].Commit(0, Commit{Incarnation: b.Incarnation, Version: b.Version, Results: []Result{{Request: b.Operations[0].Request}}})
			s.check(err)
			sent = slices.DeleteFunc(sent, func(m Message) bool { return m.To().Kind == PartyClient })
			s.send(c, sent...)
			s.noteEntity(c, i)
			out = append(out, c)
		}
	}
	if n.signals > 0 {
		c := n.fork()
		c.entities[0] = c.entities[0].Clone()
		_, err := c.entities[0].Deliver(0, Signal{Origin: Party{PartyClient, "p", 0}, Entity: s.ids[0], Request: strconv.Itoa(n.signals), Operation: "o"})
		s.check(err)
		c.signals--
		s.noteEntity(c, 0)
		out = append(out, c)
	}
	return out
}

func (s *system) check(err error) {
	if err != nil {
		s.t.Fatal(err)
	}
}

// acts returns what execution i may do next.
func (s *system) acts(n *node, i int) []*node {
	sc := s.scripts[i]
	var out []*node
	if sc.mortal && n.holders[i].Phase != Ended {
		out = append(out, s.act(n, i, end))
	}
	if n.next[i] == len(sc.actions) || n.holders[i].Phase == Ended || n.holders[i].Phase == Acquiring {
		return out
	}
	a := sc.actions[n.next[i]]
	if a == exit && len(n.holders[i].Pending) > 0 {
		return out // it waits for its calls
	}
	return append(out, s.act(n, i, a))
}

func (s *system) act(n *node, i int, a action) *node {
	c := n.fork()
	h := n.holders[i].Clone()
	c.holders[i] = h
	c.next[i]++
	switch a {
	case enter:
		m, err := h.Enter("s", s.scripts[i].set)
		s.check(err)
		if s.unchecked {
			m.Set = s.scripts[i].set
			h.Set = m.Set
		}
		s.send(c, m)
	case call:
		m, err := h.Call(h.Set[0], "c"+strconv.Itoa(n.next[i]), "o", nil)
		s.check(err)
		s.send(c, m)
	case exit:
		out, err := h.Exit()
		s.check(err)
		s.send(c, out...)
	case end, quit:
		s.send(c, h.End()...)
		c.next[i] = len(s.scripts[i].actions)
	}
	return c
}

func (s *system) deliver(n *node, channel int) *node {
	c := n.fork()
	m := n.channels[channel][0]
	c.channels[channel] = n.channels[channel][1:]
	s.noteChannel(c, channel)
	to := s.index(m.To())
	if to < len(s.ids) {
		e := c.entities[to].Clone()
		c.entities[to] = e
		if s.unchecked {
			s.send(c, m.(arrival).arrive(e, 0)...)
		} else {
			out, err := e.Deliver(0, m)
			s.check(err)
			s.send(c, out...)
		}
		s.noteEntity(c, to)
		return c
	}
	i := to - len(s.ids)
	h := c.holders[i].Clone()
	c.holders[i] = h
	switch m := m.(type) {
	case LockGranted:
		if s.unchecked {
			h.Phase = Inside
			break
		}
		out, _, err := h.Granted(m)
		s.check(err)
		s.send(c, out...)
	case Reply:
		_, err := h.Replied(m)
		s.check(err)
	}
	s.noteHolder(c, i)
	return c
}

// verify checks one state.
func (s *system) verify(n *node, final bool) {
	if s.unchecked {
		if final && !s.done(n) {
			s.deadlocks++
		}
		return
	}
	for i, h := range n.holders {
		for _, k := range h.Set {
			if e := n.entities[slices.Index(s.ids, k)]; h.Phase == Inside && e.Lock != (Lock{Section: h.section()}) {
				s.t.Fatalf("execution %d is inside %v and %s is %v", i, h.Set, k, e.Lock)
			}
		}
	}
	if final {
		s.finals++
		if !s.done(n) {
			var b strings.Builder
			for _, e := range n.entities {
				b.WriteString("\n" + string(e.ID) + " " + e.Lock.String() + ", waiting: " + strconv.Itoa(len(e.Queue)))
			}
			for i, h := range n.holders {
				b.WriteString("\nexecution " + strconv.Itoa(i) + " " + h.Phase.String())
			}
			s.t.Fatalf("nothing can happen, and not all is done:%s", b.String())
		}
	}
}

// done reports whether everything has been done and nothing is left behind.
func (s *system) done(n *node) bool {
	for i, h := range n.holders {
		if h.Phase == Acquiring || h.Phase == Inside || n.next[i] < len(s.scripts[i].actions) {
			return false
		}
	}
	for _, e := range n.entities {
		if !e.Collectable() {
			return false
		}
	}
	return true
}

// explore visits every state that can be reached.
func (s *system) explore(signals int) {
	s.visited = map[[sha256.Size]byte]struct{}{}
	s.sound, s.pairs = map[string]string{}, map[[2]int]int{}
	first := s.initial(signals)
	stack := []*node{first}
	s.visited[s.key(first)] = struct{}{}
	for len(stack) > 0 {
		n := stack[len(stack)-1]
		stack = stack[:len(stack)-1]
		next := s.steps(n)
		s.verify(n, len(next) == 0)
		s.edges += len(next)
		for _, c := range next {
			key := s.key(c)
			if _, seen := s.visited[key]; !seen {
				s.visited[key] = struct{}{}
				stack = append(stack, c)
			}
		}
	}
}

// key is the hash of all that matters in a state.
func (s *system) key(n *node) [sha256.Size]byte {
	s.buffer = append(s.buffer[:0], byte(n.signals))
	for _, p := range n.parts {
		s.buffer = canonical.AppendBytes(s.buffer, p)
	}
	return sha256.Sum256(s.buffer)
}

// subsets returns the non-empty subsets of ids, each ascending.
func subsets(ids []ID) [][]ID {
	var out [][]ID
	for mask := 1; mask < 1<<len(ids); mask++ {
		var set []ID
		for i, k := range ids {
			if mask>>i&1 == 1 {
				set = append(set, k)
			}
		}
		out = append(out, set)
	}
	return out
}

// assignments gives n executions their lock sets, in every way. It does not matter which has which, but
// for the first ones that are mortal while others are not.
func assignments(sets [][]ID, n, mortal int) [][][]ID {
	if n == 0 {
		return [][][]ID{nil}
	}
	var out [][][]ID
	for i, set := range sets {
		rest := sets[i:]
		if mortal == 1 && n > 1 {
			rest = sets
		}
		for _, more := range assignments(rest, n-1, mortal-1) {
			out = append(out, append([][]ID{set}, more...))
		}
	}
	return out
}

func TestDeadlockFreedom(t *testing.T) {
	abc := []ID{"a", "b", "c"}
	for _, tc := range []struct {
		name       string
		ids        []ID
		executions int
		actions    []action
		mortal     int // how many of them may be ended at any moment
		signals    int
		long       bool
	}{
		{"2 executions on 3 entities", abc, 2, []action{enter, exit}, 0, 0, false},
		{"2 executions that may end at any moment, on 3 entities", abc, 2, []action{enter, exit}, 2, 0, false},
		{"2 executions that call and may end at any moment, on 2 entities with other traffic", abc[:2], 2, []action{enter, call, exit}, 2, 1, false},
		{"2 executions that end inside, on 3 entities", abc, 2, []action{enter, call, quit}, 0, 1, false},
		{"3 executions that may end at any moment, on 2 entities", abc[:2], 3, []action{enter, exit}, 3, 0, true},
		{"3 executions on 3 entities", abc, 3, []action{enter, exit}, 0, 0, false},
		{"3 executions that call, on 3 entities", abc, 3, []action{enter, call, exit}, 0, 0, true},
		{"3 executions, of which one may end at any moment, on 3 entities", abc, 3, []action{enter, exit}, 1, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.long {
				testkit.NeedsLong(t, "some seconds of search; smaller cases of the same run without the flag")
			}
			states, edges, finals, systems := 0, 0, 0, 0
			for _, sets := range assignments(subsets(tc.ids), tc.executions, tc.mortal) {
				s := &system{t: t, ids: tc.ids}
				for i, set := range sets {
					s.scripts = append(s.scripts, script{set, tc.actions, i < tc.mortal})
				}
				s.explore(tc.signals)
				systems++
				states += len(s.visited)
				edges += s.edges
				finals += s.finals
			}
			t.Logf("%d assignments of lock sets, %d states, %d steps, %d final states", systems, states, edges, finals)
			if finals < systems {
				t.Errorf("only %d final states", finals)
			}
		})
	}
}

// The search would find a deadlock: without one order for all there is one.
func TestDeadlockIsFound(t *testing.T) {
	s := &system{t: t, ids: []ID{"a", "b"}, unchecked: true, scripts: []script{
		{set: []ID{"a", "b"}, actions: []action{enter, exit}},
		{set: []ID{"b", "a"}, actions: []action{enter, exit}},
	}}
	s.explore(0)
	if s.deadlocks != 1 {
		t.Errorf("found %d deadlocks in %d states, want the one where each waits for the other", s.deadlocks, len(s.visited))
	}
}
