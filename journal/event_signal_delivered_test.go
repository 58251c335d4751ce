package journal

import "testing"

// Each name counts its own deliveries, from 1 (K12); the empty name is a name.
func TestSignalDelivered(t *testing.T) {
	b := started(t)
	b.refuse(RuleDeliveryID, delivered("a", 0, "x"))
	b.refuse(RuleDeliveryID, delivered("a", 2, "x"))
	b.accept(delivered("a", 1, "x"), delivered("a", 2, "y"), delivered("", 1, "z"))
	b.refuse(RuleDeliveryID, delivered("a", 2, "y"))
	b.refuse(RuleDeliveryID, delivered("b", 3, "y"))
	if n := b.state.Deliveries("a"); n != 2 {
		t.Errorf("%d deliveries of a", n)
	}
	if n := b.state.Deliveries("none"); n != 0 {
		t.Errorf("%d deliveries of a name that never came", n)
	}
	b.accept(scheduled(0), awaiting(AwaitAny, 0), delivered("a", 3, ""), CancelRequested{}, delivered("b", 1, ""))
	unlessOpen(t, delivered("a", 1, "x"))
}
