package group

import (
	"context"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
)

// entered waits until a replica's state is in a cut.
func entered(t *testing.T, r *Replica, want uint64) {
	t.Helper()
	if in, err := r.Cut(); err != nil || in != want {
		t.Fatalf("partition %d is in cut %d, %v; want cut %d", r.id, in, err, want)
	}
}

// A partition enters the cut of a shipment's messages before it applies them. The acknowledgement carries that cut, and
// that of a repeated shipment, which does not enter the log, too.
func TestShipmentEntersItsCut(t *testing.T) {
	n := newMemNode(t, 2)
	r := n.router.Replicas()[1]
	target := idIn(n.Router(), 1, "target")
	must(t, n.Router(), startCmd("start", target, "absent", ""))
	d := &commandv1.Deliver{Source: 0, Epoch: 1}
	for seq, in := range []uint64{0, 2, 2, 3} {
		d.Messages = append(d.Messages, &commandv1.Message{Seq: uint64(seq + 1), Cut: in, Namespace: ns, FromId: "s", ToId: target,
			Kind: &commandv1.Message_Signal{Signal: &perdurev1.SignalSend{Id: target, Name: "go"}}})
	}
	for _, what := range []string{"a shipment", "the same shipment"} {
		got, err := n.Router().Deliver(bg(t), 1, &commandv1.Command{Kind: &commandv1.Command_Deliver{Deliver: d}})
		if err != nil || got.GetDeliver().GetThrough() != 4 || got.GetDeliver().GetCut() != 3 {
			t.Fatalf("%s: %v, %v; want all messages, in cut 3", what, got, err)
		}
		entered(t, r, 3)
	}
	if c, has, missed, err := r.Checkpoint(3); err != nil || !has || missed || c.Cut != 3 {
		t.Errorf("its checkpoint: %v, %v, %v, %v", c, has, missed, err)
	}
	for _, other := range []uint64{2, 4} {
		if _, has, missed, err := r.Checkpoint(other); err != nil || has || missed != (other < 3) {
			t.Errorf("a checkpoint of cut %d: %v, %v, %v", other, has, missed, err)
		}
	}
}

// A partition enters the cut of an acknowledgement before it trims its outbox.
func TestTrimEntersItsCut(t *testing.T) {
	n := newMemNode(t, 2)
	r := n.router.Replicas()[0]
	r.env.Deliver = func(_ context.Context, _ uint32, cmd *commandv1.Command) (*commandv1.Reply, error) {
		msgs := cmd.GetDeliver().Messages
		return &commandv1.Reply{Kind: &commandv1.Reply_Deliver{Deliver: &commandv1.DeliverReply{Through: msgs[len(msgs)-1].Seq, Cut: 5}}}, nil
	}
	signals(t, n, idIn(n.Router(), 1, "absent"), 5)
	emptied(t, r)
	entered(t, r, 5)
}
