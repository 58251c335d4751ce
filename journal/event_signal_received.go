package journal

import "perdure/id"

// SignalReceived records that the program consumed a delivered signal. While Running it takes the next
// child number; while Blocked it answers the open signal wait, whose number was taken by the wait (R11).
type SignalReceived struct {
	Promise    id.PromiseID
	Name       string
	Payload    []byte
	DeliveryID uint64
}

// Kind returns KindSignalReceived.
func (SignalReceived) Kind() Kind { return KindSignalReceived }

// The oldest unconsumed delivery of the name is consumed, once, with its payload (CF-2, CF-3, K13).
func (e SignalReceived) guard(s *State) *Violation {
	if v := e.guardStatus(s); v != nil {
		return v
	}
	next, _, buffered := s.NextReceipt(e.Name)
	delivered := s.Deliveries(e.Name)
	switch {
	case e.DeliveryID == 0 || e.DeliveryID > delivered:
		return broken(RuleReceivedRequiresDelivered, e.Promise,
			"delivery "+num(e.DeliveryID)+" of signal "+quoted(e.Name)+" has not arrived; "+num(delivered)+" have")
	case !buffered || e.DeliveryID < next:
		return broken(RuleSignalConsumedOnce, e.Promise,
			"delivery "+num(e.DeliveryID)+" of signal "+quoted(e.Name)+" was consumed before")
	case e.DeliveryID != next:
		return broken(RuleSignalFIFO, e.Promise,
			"the oldest unconsumed delivery of signal "+quoted(e.Name)+" is "+num(next)+", not "+num(e.DeliveryID))
	case !s.brought(e.Name, e.Payload):
		return broken(RuleReceivedRequiresDelivered, e.Promise,
			"delivery "+num(e.DeliveryID)+" of signal "+quoted(e.Name)+" brought another payload")
	}
	return nil
}

// guardStatus decides which call the event answers.
func (e SignalReceived) guardStatus(s *State) *Violation {
	switch {
	case s.status == StatusCancelling:
		return s.running(KindSignalReceived)
	case s.status == StatusRunning:
		return s.takesNext(RuleNextChild, e.Promise)
	case s.waitKind != AwaitSignal:
		return broken(RuleSignalWait, e.Promise, "the execution is Blocked, and not on a signal")
	case e.Promise != s.waitOn[0] || e.Name != s.waitSignal:
		return broken(RuleSignalWait, e.Promise,
			"the open wait is for signal "+quoted(s.waitSignal)+" at "+string(s.waitOn[0]))
	case s.waitResolved > 0:
		return broken(RuleSignalWait, e.Promise, "signal wait "+string(e.Promise)+" was answered before")
	}
	return nil
}

func (e SignalReceived) apply(s *State) {
	if s.status == StatusRunning {
		s.take(child{call: callSignal, resolved: true})
	} else {
		s.resolve(s.change(e.Promise))
	}
	q := s.changeSignal(e.Name)
	q.received++
	q.buffered = q.buffered[1:]
	s.heldBytes -= perDelivery
}

func (e SignalReceived) encode(dst []byte) []byte {
	dst = appendBytes(appendText(appendText(dst, e.Promise), e.Name), e.Payload)
	return appendNumber(dst, e.DeliveryID)
}

func decodeSignalReceived(d *decoder) Event {
	return SignalReceived{Promise: d.promise(), Name: d.text(), Payload: d.bytes(), DeliveryID: d.uvarint()}
}
