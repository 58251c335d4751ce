package journal

import (
	"cmp"
	"slices"
	"unsafe"

	"perdure/id"
)

// The sizes that State.Size counts for a signal name (with its index entry) and for an unconsumed delivery.
const (
	perSignal   = int(unsafe.Sizeof(signal{})) + 48
	perDelivery = int(unsafe.Sizeof(unconsumed{}))
)

// unconsumed is a signal that the program has not consumed yet: its SignalDelivered entry and its payload's
// fingerprint.
type unconsumed struct {
	seq     uint64
	payload fingerprint
}

// signal counts one name's deliveries and holds the unconsumed ones.
type signal struct {
	name                string
	delivered, received uint64
	// buffered holds the deliveries received+1 … delivered, oldest first.
	buffered []unconsumed
}

// signal finds the counter of a name; nil if none was delivered yet.
func (s *State) signal(name string) *signal {
	if i, ok := s.signalIndex[name]; ok {
		return &s.signals[i]
	}
	return nil
}

// changeSignal returns the counter of a name for changing, making it if it is the first of its name.
func (s *State) changeSignal(name string) *signal {
	i, ok := s.signalIndex[name]
	if !ok {
		i = len(s.signals)
		if s.signalIndex == nil {
			s.signalIndex = make(map[string]int)
		}
		s.signalIndex[name] = i
		s.signals = append(s.signals, signal{name: name})
		s.heldBytes += perSignal + len(name)
	} else if s.undo != nil {
		s.undo.saveSignal(i, s.signals[i])
	}
	return &s.signals[i]
}

// Deliveries returns how many signals of a name were delivered; the next one's delivery id is one more.
func (s *State) Deliveries(name string) uint64 {
	if q := s.signal(name); q != nil {
		return q.delivered
	}
	return 0
}

// NextReceipt returns the oldest unconsumed delivery of a name, which is the one that the next
// SignalReceived must consume (K13), and the sequence number of its SignalDelivered, where its payload is; ok is false
// if there is none.
func (s *State) NextReceipt(name string) (deliveryID, seq uint64, ok bool) {
	q := s.signal(name)
	if q == nil || len(q.buffered) == 0 {
		return 0, 0, false
	}
	return q.received + 1, q.buffered[0].seq, true
}

// OpenSignals lists the invocations of kind InvokeSignal that have no result, in the order of their ids.
func (s *State) OpenSignals() []id.PromiseID {
	out := make([]id.PromiseID, len(s.openSignals))
	for i, n := range s.openSignals {
		out[i] = s.eid.Child(n)
	}
	return out
}

// Delivery names a signal that was delivered: by its name, and by the sequence number of its SignalDelivered.
type Delivery struct {
	Name string
	Seq  uint64
}

// Unconsumed lists the deliveries that the program has not consumed, in the order of their entries.
func (s *State) Unconsumed() []Delivery {
	var out []Delivery
	for i := range s.signals {
		for _, u := range s.signals[i].buffered {
			out = append(out, Delivery{s.signals[i].name, u.seq})
		}
	}
	slices.SortFunc(out, func(a, b Delivery) int { return cmp.Compare(a.Seq, b.Seq) })
	return out
}

// brought reports whether payload is that of the oldest unconsumed delivery of a name.
func (s *State) brought(name string, payload []byte) bool {
	q := s.signal(name)
	return q != nil && len(q.buffered) > 0 && q.buffered[0].payload.matches(payload)
}
