package journal

// SignalDelivered records that a signal has arrived. It is buffered until the program consumes it; it takes
// no child number and a replay does not see it.
type SignalDelivered struct {
	Name    string
	Payload []byte
	// DeliveryID counts the deliveries of this name, from 1.
	DeliveryID uint64
}

// Kind returns KindSignalDelivered.
func (SignalDelivered) Kind() Kind { return KindSignalDelivered }

// Signals arrive in every status that is not terminal; each name counts its own (K12).
func (e SignalDelivered) guard(s *State) *Violation {
	if next := s.Deliveries(e.Name) + 1; e.DeliveryID != next {
		return broken(RuleDeliveryID, "",
			"the next delivery of signal "+quoted(e.Name)+" is "+num(next)+", not "+num(e.DeliveryID))
	}
	return nil
}

func (e SignalDelivered) apply(s *State) {
	q := s.changeSignal(e.Name)
	q.delivered++
	q.buffered = append(q.buffered, unconsumed{s.seq, fingerprintOf(e.Payload)})
	s.heldBytes += perDelivery
}

func (e SignalDelivered) encode(dst []byte) []byte {
	return appendNumber(appendBytes(appendText(dst, e.Name), e.Payload), e.DeliveryID)
}

func decodeSignalDelivered(d *decoder) Event {
	return SignalDelivered{Name: d.text(), Payload: d.bytes(), DeliveryID: d.uvarint()}
}
