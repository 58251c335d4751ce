package group

import (
	"errors"
	"fmt"
	"testing"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// A leader holds back the functions that signal an entity whose partition says that its backlog is full, asks
// until it is full no more, and admits them then. A critical section's signals pass. What was sent before is
// shipped.
func TestHoldBack(t *testing.T) {
	n := newMemNode(t, 2)
	r := n.router.Replicas()[0]
	f := replaceFar(t, r)
	full, other, mine := idIn(n.Router(), 1, "acc@full"), idIn(n.Router(), 1, "acc@other"), idIn(n.Router(), 0, "acc@mine")
	w := n.Dispatcher().Attach(spec("w", 1, "f"))
	defer w.Detach()
	sender := startIn(t, n.Router(), 0, "sender")
	task := deliver(t, w)
	next := uint32(0)
	commit := func(sends ...*perdurev1.Send) error {
		c := &perdurev1.Commit{Task: task, KnownSeq: 1, NextChild: next}
		for k, s := range sends {
			s.PromiseId = childID(sender, next+uint32(k))
			c.Sends = append(c.Sends, s)
			name := "send"
			if s.GetEntityUnlock() != nil {
				name = "unlock"
			}
			c.Events = append(c.Events, &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
				PromiseId: s.PromiseId, Kind: perdurev1.InvokeKind_INVOKE_KIND_SEND, FunctionName: name, RetryPolicy: "attempts=1"}}})
		}
		_, err := n.Router().Propose(bg(t), commitCmd(fmt.Sprint("commit ", next), c))
		if err == nil {
			next += uint32(len(sends))
		}
		return err
	}
	signal := func(to string) *perdurev1.Send {
		return &perdurev1.Send{What: &perdurev1.Send_EntitySignal{EntitySignal: &perdurev1.EntitySignal{Id: to, Operation: "add"}}}
	}
	admitted := func(what string, sends ...*perdurev1.Send) {
		t.Helper()
		if err := commit(sends...); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	admitted("before anything is known", signal(full))
	f.next("the first", 1)
	f.answers <- farAnswer{through: 1, full: []string{full}}
	waitFor(t, "the leader to know of the backlog", func() bool { return commitHeld(r, full) }, func() string { return "" })
	refusals := counted(t, r.metrics.Backlogs)
	call := &perdurev1.Send{What: &perdurev1.Send_EntityCall{EntityCall: &perdurev1.EntityCall{Id: full, Operation: "add"}}}
	for what, err := range map[string]error{"a signal": commit(signal(other), signal(full)), "a call": commit(call)} {
		var refused *api.Error
		if !errors.As(err, &refused) || refused.Reason != perdurev1.Reason_REASON_OVERLOADED || refused.Meta["rule"] != state.RuleEntityBacklog || refused.Meta["id"] != full {
			t.Fatalf("%s to a full backlog: %v", what, err)
		}
	}
	entitySignals := func(to ...string) *commandv1.Command {
		c := &perdurev1.CommitEntity{}
		for _, one := range to {
			c.Signals = append(c.Signals, &perdurev1.EntitySignal{Id: one, Operation: "add"})
		}
		return &commandv1.Command{Namespace: ns, Kind: &commandv1.Command_CommitEntity{CommitEntity: c}}
	}
	ship := r.serving().ship
	if refused := ship.holdBack(entitySignals(other, mine, full)); refused == nil || refused.Meta["id"] != full {
		t.Errorf("signals of an entity to a full backlog: %v", refused)
	}
	if refused := ship.holdBack(entitySignals(other, mine)); refused != nil {
		t.Errorf("signals of an entity to others: %v", refused)
	}
	if got := counted(t, r.metrics.Backlogs) - refusals; got != 2 {
		t.Errorf("%d refusals were counted, must be 2", got)
	}
	ask := func(what string, stillFull ...string) {
		t.Helper()
		if d := <-f.shipments; len(d.Messages) != 0 || len(d.Asked) != 1 || d.Asked[0].Id != full || d.Epoch != 1 {
			t.Fatalf("%s: not a question about %s: %v", what, full, d)
		}
		f.answers <- farAnswer{through: 1, full: stillFull}
	}
	ask("while it is full", full)
	admitted("the lock of an entity", &perdurev1.Send{What: &perdurev1.Send_EntityLocks{EntityLocks: &perdurev1.EntityLocks{Ids: []string{mine}}}})
	if !commitHeld(r, full) {
		t.Fatal("the backlog is full, and the leader does not know it any more")
	}
	admitted("a signal of a critical section", signal(full))
	for asked := false; ; {
		d := <-f.shipments
		if len(d.Messages) == 0 {
			asked = true
			f.answers <- farAnswer{through: 1}
			continue
		}
		f.answers <- farAnswer{through: 2}
		if asked {
			break
		}
		// The signal came first; the question that ends the hold comes.
		if d := <-f.shipments; len(d.Asked) != 1 {
			t.Fatalf("not a question: %v", d)
		}
		f.answers <- farAnswer{through: 2}
		break
	}
	waitFor(t, "the hold to end", func() bool { return !commitHeld(r, full) }, func() string { return "" })
	admitted("an unlock", &perdurev1.Send{What: &perdurev1.Send_EntityUnlock{EntityUnlock: &perdurev1.EntityUnlock{}}})
	admitted("after the backlog was emptied", signal(full))
}

// commitHeld reports whether a leader holds back signals to an entity of partition 1.
func commitHeld(r *Replica, entityID string) bool {
	return r.serving().ship.holdBack(commitCmd("probe", &perdurev1.Commit{Task: &perdurev1.TaskToken{Namespace: ns, Id: "absent"}, Sends: []*perdurev1.Send{
		{What: &perdurev1.Send_EntitySignal{EntitySignal: &perdurev1.EntitySignal{Id: entityID}}}}})) != nil
}

// A leader holds back signals of functions while the outbox to their partition is long.
func TestHoldBackOfLongOutbox(t *testing.T) {
	n := newMemNode(t, 2)
	r := n.router.Replicas()[0]
	to := idIn(n.Router(), 1, "acc@e")
	s := r.serving().ship
	for _, c := range []struct {
		last, acked uint64
		held        bool
	}{{outboxBound + 4, 5, false}, {outboxBound + 5, 5, true}, {outboxBound + 5, 0, false}} {
		st := state.NewMemReader()
		st.Apply([]state.Write{{Key: keys.Number(keys.Channel, 1), Value: state.Channel{Epoch: 1, Last: c.last}.Encode()}})
		acked := state.Channel{}
		if c.acked > 0 {
			acked = state.Channel{Epoch: 1, Last: c.acked}
		}
		if n, err := unacknowledged(st, 1, acked); err != nil || (n >= outboxBound) != c.held {
			t.Errorf("%d sent, %d acknowledged: %d count", c.last, c.acked, n)
		}
	}
	if refused := s.holdBack(commitCmd("x", &perdurev1.Commit{Task: &perdurev1.TaskToken{Namespace: ns, Id: "absent"}, Sends: []*perdurev1.Send{{What: &perdurev1.Send_EntitySignal{EntitySignal: &perdurev1.EntitySignal{Id: to}}}}})); refused != nil {
		t.Errorf("an empty outbox holds back: %v", refused)
	}
}

// A leader holds back signals to a partition while the messages for it have too many bytes, and one of them was not
// acknowledged.
func TestHoldBackOfLargeOutbox(t *testing.T) {
	for _, c := range []struct {
		bytes, last, acked uint64
		held               bool
	}{{outboxBytes - 1, 9, 5, false}, {outboxBytes, 9, 5, true}, {outboxBytes, 9, 9, false}, {outboxBytes, 9, 0, false}, {outboxBytes, 9, 8, true}} {
		st := state.NewMemReader()
		st.Apply([]state.Write{{Key: keys.Number(keys.Channel, 1), Value: state.Channel{Epoch: 1, Last: c.last, Bytes: c.bytes}.Encode()}})
		acked := state.Channel{}
		if c.acked > 0 {
			acked = state.Channel{Epoch: 1, Last: c.acked}
		}
		refused, err := outboxFull(st, 1, acked)
		if err != nil || (refused != nil) != c.held || refused != nil && refused.Reason != perdurev1.Reason_REASON_OVERLOADED {
			t.Errorf("%+v: %v", c, refused)
		}
	}
}

// A leadership that knows of no acknowledgement counts all that its outbox holds.
func TestUnacknowledgedOfNewLeadership(t *testing.T) {
	const first, last = 40, 57
	st := state.NewMemReader()
	if n, err := unacknowledged(st, 1, state.Channel{}); err != nil || n != 0 {
		t.Errorf("nothing was ever sent, and %d count", n)
	}
	st.Apply([]state.Write{{Key: keys.Number(keys.Channel, 1), Value: state.Channel{Epoch: 1, Last: last}.Encode()}})
	if n, err := unacknowledged(st, 1, state.Channel{}); err != nil || n != 0 {
		t.Errorf("all is trimmed, and %d count", n)
	}
	for n := uint64(first); n <= last; n++ {
		st.Apply([]state.Write{{Key: keys.OutboxOf(1, 1, n), Value: []byte("m")}})
	}
	if n, err := unacknowledged(st, 1, state.Channel{}); err != nil || n != last-first+1 {
		t.Errorf("%d count, must be %d", n, last-first+1)
	}
	if n, err := unacknowledged(st, 1, state.Channel{Epoch: 1, Last: 50}); err != nil || n != last-50 {
		t.Errorf("%d count after 50 were acknowledged", n)
	}
}

// A leader that has more full entities than a question names asks for all of them in turn.
func TestPagesOfQuestions(t *testing.T) {
	for _, count := range []int{1, maxAsked, maxAsked + 1, 3*maxAsked - 5} {
		var all []*commandv1.EntityRef
		for i := range count {
			all = append(all, &commandv1.EntityRef{Id: fmt.Sprint(i)})
		}
		pages := (count + maxAsked - 1) / maxAsked
		seen := map[string]int{}
		for turn := range 2 * pages {
			asked := page(all, turn)
			if len(asked) > maxAsked {
				t.Errorf("%d in one question", len(asked))
			}
			for _, e := range asked {
				seen[e.Id]++
			}
		}
		for _, e := range all {
			if seen[e.Id] != 2 {
				t.Fatalf("of %d entities %q is asked for %d times in two rounds", count, e.Id, seen[e.Id])
			}
		}
	}
}
