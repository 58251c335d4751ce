package group

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/testkit"
	"perdure/partition/peers"
	"perdure/partition/refusal"
	"perdure/partition/workers"
)

// shipped notes what a partition's shipper hands over, and can refuse it.
type shipped struct {
	mu       sync.Mutex
	messages []int
	bytes    []int
	refuse   int // as many from now on
}

// spy has s see every shipment of a partition from now on. Nothing may have been sent before.
func (s *shipped) spy(r *Replica) {
	deliver := r.env.Deliver
	r.env.Deliver = func(ctx context.Context, partition uint32, cmd *commandv1.Command) (*commandv1.Reply, error) {
		s.mu.Lock()
		s.messages = append(s.messages, len(cmd.GetDeliver().Messages))
		s.bytes = append(s.bytes, proto.Size(cmd))
		refuse := s.refuse > 0
		s.refuse--
		s.mu.Unlock()
		if refuse {
			return nil, refusal.Unknown(partition, "a test says so")
		}
		return deliver(ctx, partition, cmd)
	}
}

func (s *shipped) seen() (messages, bytes []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int(nil), s.messages...), append([]int(nil), s.bytes...)
}

// sendSignals has an execution of one partition signal one of another, in one commit, and returns the target.
func sendSignals(t *testing.T, n *node, from, to uint32, count, size int) (target string) {
	t.Helper()
	r := n.Router()
	sender, target := idIn(r, from, "sender"), idIn(r, to, "target")
	must(t, r, startCmd("start "+target, target, "absent", ""))
	w := n.Dispatcher().Attach(workers.Spec{ID: "w", Namespace: ns, Functions: []string{"send"}, LeaseMS: 600_000, Capacity: 1})
	t.Cleanup(w.Detach)
	must(t, r, startCmd("start "+sender, sender, "send", ""))
	token := deliver(t, w)
	c := &perdurev1.Commit{Task: token, KnownSeq: 1}
	for i := range count {
		p := fmt.Sprint(sender, ":", i)
		c.Events = append(c.Events, &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
			PromiseId: p, Kind: perdurev1.InvokeKind_INVOKE_KIND_SEND, FunctionName: "go", RetryPolicy: "attempts=1"}}})
		c.Sends = append(c.Sends, &perdurev1.Send{PromiseId: p, What: &perdurev1.Send_Signal{Signal: &perdurev1.SignalSend{
			Id: target, Name: "go", Payload: []byte(strings.Repeat(fmt.Sprint(i%10), size))}}})
	}
	must(t, r, commitCmd("sends", c))
	return target
}

func delivered(t *testing.T, n *node, target string, want int) {
	t.Helper()
	testkit.EventuallyNil(t, waitLimit, "all signals to be delivered", func() error {
		reply, _, err := n.Router().Query(bg(t), Linearizable, describeQuery(target)) // a busy leader may not be confirmed in time
		if err != nil {
			return err
		}
		if events := reply.GetDescribe().GetExecution().GetJournalEvents(); events != uint64(1+want) {
			return fmt.Errorf("%d events", events)
		}
		return nil
	})
}

// A shipment is bounded by bytes; one message above the bound travels by itself. All arrive once.
func TestShipmentsByBytes(t *testing.T) {
	t.Parallel() // it waits most of the time
	n := newMemNode(t, 2)
	var s shipped
	s.spy(n.router.Replicas()[0])
	delivered(t, n, sendSignals(t, n, 0, 1, 12, 300<<10), 12)
	messages, bytes := s.seen()
	for i := range messages {
		if bytes[i] > shipBytes+1<<10 && messages[i] > 1 {
			t.Errorf("shipment %d: %d messages, %d bytes, the bound is %d", i, messages[i], bytes[i], shipBytes)
		}
	}
	if len(messages) > 6 {
		t.Errorf("12 messages of 300 KiB took %d shipments: %v", len(messages), messages)
	}

	n = newMemNode(t, 2)
	s = shipped{}
	s.spy(n.router.Replicas()[0])
	delivered(t, n, sendSignals(t, n, 0, 1, 3, 4<<20-1), 3)
	if messages, bytes := s.seen(); fmt.Sprint(messages) != "[1 1 1]" || bytes[0] >= peers.MaxMessage {
		t.Errorf("messages above the bound were shipped as %v of %v bytes", messages, bytes)
	}
}

// A shipment that is not known to have arrived is tried again with half of it, down to one message, and grows again.
func TestShipmentsHalve(t *testing.T) {
	t.Parallel() // it waits most of the time
	n := newMemNode(t, 2)
	s := shipped{refuse: 5}
	s.spy(n.router.Replicas()[0])
	delivered(t, n, sendSignals(t, n, 0, 1, 20, 10), 20)
	if messages, _ := s.seen(); !strings.HasPrefix(fmt.Sprint(messages), "[20 10 5 2 1 1 2 4 ") {
		t.Errorf("they were shipped as %v", messages)
	}
}

// The ledger of one destination stays within its bounds whatever happens.
func TestShipmentLedger(t *testing.T) {
	s := newShipment()
	for range 30 {
		s.failed(256, 64<<20)
	}
	if s != (shipment{1, shipSmall}) {
		t.Errorf("after many failures %+v", s)
	}
	for range 30 {
		s.arrived()
	}
	if s != newShipment() {
		t.Errorf("after many successes %+v", s)
	}
	s.failed(1, 4<<20)
	if s != (shipment{1, shipBytes / 2}) {
		t.Errorf("one large message failed: %+v", s)
	}
}

// A shipment that is repeated while the first attempt waits for the log does not enter the log again.
func TestShipmentEntersTheLogOnce(t *testing.T) {
	n, disk := newGatedNode(t, 2)
	r := n.router.Replicas()[1]
	target := idIn(n.Router(), 1, "target")
	must(t, n.Router(), startCmd("start", target, "absent", ""))
	shipment := func(from, to uint64) *commandv1.Command {
		d := &commandv1.Deliver{Source: 0, Epoch: 1}
		for seq := from; seq <= to; seq++ {
			d.Messages = append(d.Messages, &commandv1.Message{Seq: seq, Namespace: ns, FromId: "s", ToId: target,
				Kind: &commandv1.Message_Signal{Signal: &perdurev1.SignalSend{Id: target, Name: "go", Payload: []byte("v")}}})
		}
		return &commandv1.Command{Kind: &commandv1.Command_Deliver{Deliver: d}}
	}
	stuck(t, n, disk, 1)
	before := counted(t, r.metrics.Commands)
	for range 4 {
		ctx, cancel := context.WithTimeout(bg(t), 30*time.Millisecond)
		if _, err := n.Router().Deliver(ctx, 1, shipment(1, 3)); err == nil {
			t.Fatal("it is answered while the log is held back")
		}
		cancel()
	}
	disk.Release()
	for _, c := range []struct{ from, to, through uint64 }{{1, 3, 3}, {1, 2, 3}, {2, 5, 5}, {1, 5, 5}} {
		got, err := n.Router().Deliver(bg(t), 1, shipment(c.from, c.to))
		if err != nil || got.GetDeliver().GetThrough() != c.through {
			t.Errorf("messages %d to %d: %v, %v", c.from, c.to, got, err)
		}
	}
	delivered(t, n, target, 5)
	// The first shipment, and what the third one adds to it.
	if got := counted(t, r.metrics.Commands) - before - maxInFlight; got != 2 {
		t.Errorf("%v commands were applied for two new shipments", got)
	}
}
