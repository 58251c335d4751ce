package journal

import "testing"

func TestInvokeScheduled(t *testing.T) {
	b := started(t)
	for n, kind := range []InvokeKind{InvokeFunction, InvokeHTTP, InvokeStep, InvokeSend, InvokeSignal} {
		b.accept(InvokeScheduled{Promise: kid(uint32(n)), Invoke: kind, Function: "f"})
		if info, ok := b.state.Invoke(kid(uint32(n))); !ok || info.Kind != kind || info.Bound != DefaultRetryBound {
			t.Errorf("%v is known as %+v, %v", kind, info, ok)
		}
	}
	for _, kind := range []InvokeKind{0, 6, 255} {
		b.refuse(RuleVocabulary, InvokeScheduled{Promise: kid(5), Invoke: kind})
	}
	unlessRunning(t, scheduled(1))
}

// The next call takes the next child number, whatever took the one before (R4).
func TestInvokeScheduledTakesNextChild(t *testing.T) {
	b := started(t, scheduled(0), timer(1))
	for _, p := range []InvokeScheduled{
		{Promise: kid(1)}, {Promise: kid(3)}, {Promise: eid}, {Promise: ""}, {Promise: kid(2).Child(0)},
		{Promise: "order-4:2"}, {Promise: "order-42:02"}, {Promise: "order-42.2"},
	} {
		p.Invoke = InvokeStep
		if v := b.refuse(RuleNextChild, p); v.Promise != p.Promise {
			t.Errorf("the refusal of %q is about %q", p.Promise, v.Promise)
		}
	}
	b.accept(scheduled(2))
}
