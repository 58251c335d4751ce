package group

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/partition/stable"
)

// A far is the other end of a replica's channels: the test takes each shipment and says what becomes of it.
type far struct {
	t         *testing.T
	r         *Replica
	began     bool
	shipments chan *commandv1.Deliver
	answers   chan farAnswer
}

type farAnswer struct {
	through uint64
	full    []string // entities with full backlogs
	err     error
}

// replaceFar replaces the partitions that a replica ships to by the test.
func replaceFar(t *testing.T, r *Replica) *far {
	f := &far{t: t, r: r, shipments: make(chan *commandv1.Deliver), answers: make(chan farAnswer)}
	r.env.Deliver = func(ctx context.Context, _ uint32, cmd *commandv1.Command) (*commandv1.Reply, error) {
		select {
		case f.shipments <- cmd.GetDeliver():
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		select {
		case a := <-f.answers:
			reply := &commandv1.DeliverReply{Through: a.through}
			for _, one := range a.full {
				reply.Full = append(reply.Full, &commandv1.EntityRef{Namespace: ns, Id: one})
			}
			return &commandv1.Reply{Kind: &commandv1.Reply_Deliver{Deliver: reply}}, a.err
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return f
}

// next takes the next shipment. The number of its first message must be first, the others must follow without a gap.
func (f *far) next(what string, first uint64) *commandv1.Deliver {
	f.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(time.Minute); ; {
		select {
		case d := <-f.shipments:
			f.began = true
			for i, m := range d.Messages {
				if m.Seq != first+uint64(i) {
					f.t.Fatalf("%s: message %d of the shipment has number %d, must have %d", what, i, m.Seq, first+uint64(i))
				}
			}
			return d
		case <-tick.C:
			if f.began && givenUp(f.t, f.r) {
				f.t.Fatalf("%s: the outbox holds %v and is not shipped", what, outbox(f.t, f.r))
			}
			if have := outbox(f.t, f.r); f.began && !slices.Contains(have, first) {
				f.t.Fatalf("%s: message %d was removed, the outbox holds %v", what, first, have)
			}
			if time.Now().After(deadline) {
				f.t.Fatalf("%s: no shipment comes", what)
			}
		}
	}
}

// givenUp reports whether a replica that leads has messages for partition 1 and does not ship them. Nothing may be
// sent meanwhile.
func givenUp(t *testing.T, r *Replica) bool {
	t.Helper()
	s := r.serving().ship
	s.mu.Lock()
	idle := !s.busy[1] && !s.pending[1] && !s.trimming[1]
	s.mu.Unlock()
	return idle && len(outbox(t, r)) > 0
}

// outbox lists the numbers of the messages that a replica's state holds for any partition.
func outbox(t *testing.T, r *Replica) (numbers []uint64) {
	t.Helper()
	if err := r.store.View(func(state state.Reader) error {
		return state.Scan([]byte{byte(keys.Outbox)}, []byte{byte(keys.Outbox) + 1}, func(key, _ []byte) bool {
			n, _, err := keys.CutUint64(key[len(key)-8:])
			if err != nil {
				t.Error(err)
			}
			numbers = append(numbers, n)
			return true
		})
	}); err != nil {
		t.Fatal(err)
	}
	return numbers
}

// emptied waits until a replica that leads has shipped all it has.
func emptied(t *testing.T, r *Replica) {
	t.Helper()
	waitFor(t, "the outbox to be empty", func() bool {
		if givenUp(t, r) {
			t.Fatalf("the outbox holds %v and is not shipped", outbox(t, r))
		}
		return len(outbox(t, r)) == 0
	}, func() string { return fmt.Sprint(outbox(t, r)) })
}

// signals has an execution of partition 0 send n signals to one of partition 1, which there need not be.
func signals(t *testing.T, n *node, to string, count uint32) {
	t.Helper()
	w := n.Dispatcher().Attach(spec("w", 1, "f"))
	defer w.Detach()
	id := startIn(t, n.Router(), 0, "sender")
	c := &perdurev1.Commit{Task: deliver(t, w), KnownSeq: 1}
	for k := range count {
		c.Events = append(c.Events, &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
			PromiseId: childID(id, k), Kind: perdurev1.InvokeKind_INVOKE_KIND_SEND, FunctionName: "signal", Input: []byte(fmt.Sprint(k))}}})
		c.Sends = append(c.Sends, &perdurev1.Send{PromiseId: childID(id, k), What: &perdurev1.Send_Signal{
			Signal: &perdurev1.SignalSend{Id: to, Name: "go", Payload: []byte(fmt.Sprint(k))}}})
	}
	c.Events = append(c.Events, returnEvent("sent"))
	must(t, n.Router(), commitCmd("send", c))
}

// TestShipping: messages leave in order and without a gap. Unacknowledged ones stay in the outbox and are
// sent again; only acknowledged ones are removed.
func TestShipping(t *testing.T) {
	n := newMemNode(t, 2)
	r := n.router.Replicas()[0]
	f := replaceFar(t, r)
	signals(t, n, idIn(n.Router(), 1, "absent"), 5)
	holds := func(what string, want ...uint64) {
		t.Helper()
		if have := outbox(t, r); !slices.Equal(have, want) {
			t.Fatalf("%s: the outbox holds %v, must hold %v", what, have, want)
		}
	}
	f.next("the first", 1)
	holds("before the first answer", 1, 2, 3, 4, 5)
	f.answers <- farAnswer{err: api.Errorf(perdurev1.Reason_REASON_OUTCOME_UNKNOWN, "as the script says")}
	f.next("after an unknown outcome", 1)
	holds("after an unknown outcome", 1, 2, 3, 4, 5)
	f.answers <- farAnswer{err: api.Errorf(perdurev1.Reason_REASON_OVERLOADED, "as the script says")}
	f.next("after a refusal", 1)
	f.answers <- farAnswer{through: 1}
	f.next("after one was acknowledged", 2)
	waitFor(t, "one to be removed", func() bool { return len(outbox(t, r)) < 5 }, func() string { return fmt.Sprint(outbox(t, r)) })
	holds("after one was acknowledged", 2, 3, 4, 5)
	// A repeated delivery acknowledges nothing new.
	f.answers <- farAnswer{through: 1}
	for through := uint64(1); through < 5; {
		d := f.next("the rest", through+1)
		through = d.Messages[len(d.Messages)-1].Seq
		f.answers <- farAnswer{through: through}
	}
	emptied(t, r)
}

// TestOutboxOutlivesItsLeader: the next leader ships what it finds in the outbox, though no entry of its own
// term has announced it. Each message is applied once.
func TestOutboxOutlivesItsLeader(t *testing.T) {
	fs, st := vfs.NewMem(), stable.NewMemory()
	n, err := open(t, memConfig(fs, st, 2))
	if err != nil {
		t.Fatal(err)
	}
	waitFor(t, "it to serve", func() bool { return n.router.all[0].Serving() && n.router.all[1].Serving() }, func() string { return "" })
	f := replaceFar(t, n.router.Replicas()[0])
	target := idIn(n.Router(), 1, "target")
	must(t, n.Router(), startCmd("target", target, "unserved", ""))
	signals(t, n, target, 5)
	d := f.next("the former leader's", 1)
	// The former leader's shipment arrives, and its answer is lost.
	if _, err := n.Router().Deliver(bg(t), 1, &commandv1.Command{Kind: &commandv1.Command_Deliver{Deliver: d}}); err != nil {
		t.Fatal(err)
	}
	closeNode(t, n)

	next := startNode(t, memConfig(fs, st.Clone(), 2))
	r := next.router.Replicas()[0]
	emptied(t, r)
	var got []string
	for _, e := range mustQuery(t, next.Router(), journalQuery(target)).GetJournal().Entries {
		if s := e.Event.GetSignalDelivered(); s != nil {
			got = append(got, string(s.Payload.GetValue()))
		}
	}
	if !slices.Equal(got, []string{"0", "1", "2", "3", "4"}) {
		t.Errorf("the signals that were delivered: %v", got)
	}
}
