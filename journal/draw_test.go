package journal

import (
	"perdure/id"

	"pgregory.net/rapid"
)

// drawEvent draws the next event for a journal. Most draws fit what the journal could take next, so that
// runs get deep; the rest are arbitrary.
func drawEvent(t *rapid.T, s *State) Event {
	pick := func(from ...string) string { return among(t, from...) }
	number := func(max uint32) uint32 { return even(t, max+1) }
	next := s.NextChild()
	// child draws mostly a number that is taken, fresh mostly the one that is next.
	child := func() id.PromiseID {
		if oneIn(t, 30) {
			return among(t, "", eid, "order-4:0", kid(next), kid(next+1), kid(0).Child(0))
		}
		return kid(number(max(next, 1) - 1))
	}
	// taken draws mostly a child of that call.
	taken := func(c call) id.PromiseID {
		p := child()
		for range 4 {
			if known := s.child(p); known == nil || known.call == c {
				break
			}
			p = child()
		}
		return p
	}
	fresh := func() id.PromiseID {
		if oneIn(t, 15) {
			return child()
		}
		return kid(next)
	}
	payload := func() []byte { return []byte(pick("p1", "p2", "")) }
	attempt := func(p id.PromiseID) uint32 {
		info, ok := s.Invoke(p)
		switch {
		case oneIn(t, 15):
			return number(4)
		case ok && info.Open > 0:
			return info.Open
		case ok:
			return info.Retries + 1
		}
		return 1
	}
	switch among(t, weightedKinds(s.Status())...) {
	case KindExecutionStarted:
		return ExecutionStarted{ComponentDigest: "d", Input: payload(), Parent: "p:1"}
	case KindExecutionCompleted:
		return ExecutionCompleted{Result: payload()}
	case KindExecutionFailed:
		return ExecutionFailed{Error: payload()}
	case KindCancelRequested:
		return CancelRequested{Reason: pick("r", "")}
	case KindExecutionCancelled:
		return ExecutionCancelled{Reason: pick("r", "")}
	case KindInvokeScheduled:
		return InvokeScheduled{Promise: fresh(), Invoke: InvokeKind(1 + number(5)), Function: "f", Input: payload(),
			RetryPolicy: pick("p", "never", "once")}
	case KindInvokeStarted:
		p := taken(callInvoke)
		return InvokeStarted{Promise: p, Attempt: attempt(p)}
	case KindInvokeCompleted:
		p := taken(callInvoke)
		return InvokeCompleted{Promise: p, Result: payload(), Attempt: attempt(p)}
	case KindInvokeRetrying:
		p := taken(callInvoke)
		return InvokeRetrying{Promise: p, FailedAttempt: attempt(p), Error: payload(), RetryAt: int64(number(9))}
	case KindRandomGenerated:
		return RandomGenerated{Promise: fresh(), Value: payload()}
	case KindTimeRecorded:
		return TimeRecorded{Promise: fresh(), Time: -int64(number(9))}
	case KindTimerScheduled:
		return TimerScheduled{Promise: fresh(), Duration: int64(number(9)), FireAt: int64(number(9))}
	case KindTimerFired:
		return TimerFired{Promise: taken(callTimer)}
	case KindSignalDelivered:
		name := pick("a", "b")
		due := s.Deliveries(name) + 1
		if oneIn(t, 15) {
			due = uint64(number(4))
		}
		return SignalDelivered{Name: name, Payload: payload(), DeliveryID: due}
	case KindSignalReceived:
		return drawReceipt(t, s, fresh(), pick("a", "b"), payload())
	case KindExecutionAwaiting:
		if p := taken(callInvoke); oneIn(t, 4) {
			if c := s.child(p); c != nil && c.submitted {
				return ExecutionAwaiting{On: []id.PromiseID{p}, Wait: AwaitJoinSet, Set: set(c.set)}
			}
		}
		return drawWait(t, fresh, child, func() id.PromiseID { return taken(callJoinSet) }, pick("a", "b"))
	case KindJoinSetCreated:
		return JoinSetCreated{Set: JoinSetID(fresh())}
	case KindJoinSetSubmitted:
		return JoinSetSubmitted{Set: JoinSetID(taken(callJoinSet)), Promise: taken(callInvoke)}
	case KindJoinSetAwaited:
		e := JoinSetAwaited{Set: JoinSetID(taken(callJoinSet)), Promise: taken(callInvoke), Result: payload()}
		if c := s.child(e.Promise); c != nil && c.submitted && !oneIn(t, 5) {
			e.Set, e.Result = set(c.set), append([]byte(nil), c.result.bytes[:c.result.size]...)
		}
		return e
	}
	return ExecutionResumed{}
}

// even draws a number below n, all of them alike: rapid's own numbers and samples lean to the ends of their
// range, which suits values and not the choice of what happens next. n is at most 512.
var evenBits = rapid.Custom(func(t *rapid.T) uint32 {
	bits := uint32(0)
	for range 12 {
		bits <<= 1
		if rapid.Bool().Draw(t, "bit") {
			bits++
		}
	}
	return bits
})

func even(t *rapid.T, n uint32) uint32 { return evenBits.Draw(t, "even") % n }

// among draws one of the choices, all of them alike.
func among[T any](t *rapid.T, choices ...T) T { return choices[even(t, uint32(len(choices)))] }

// oneIn is true once in n draws.
func oneIn(t *rapid.T, n uint32) bool { return even(t, n) == n-1 }

// weightedKinds lists the kinds, those that carry a run on in this status more often than those that end it
// or that it refuses.
func weightedKinds(status Status) []Kind {
	if status == StatusNone {
		return []Kind{KindExecutionStarted, KindExecutionStarted, KindExecutionStarted, KindInvokeScheduled, KindExecutionResumed}
	}
	weights := map[Kind]int{}
	switch status {
	case StatusRunning:
		weights = map[Kind]int{KindInvokeScheduled: 20, KindInvokeStarted: 40, KindInvokeCompleted: 25, KindInvokeRetrying: 15,
			KindTimerScheduled: 8, KindTimerFired: 8, KindSignalDelivered: 10, KindSignalReceived: 10, KindExecutionAwaiting: 25,
			KindJoinSetCreated: 6, KindJoinSetSubmitted: 30, KindJoinSetAwaited: 30}
	case StatusBlocked:
		weights = map[Kind]int{KindInvokeStarted: 30, KindInvokeCompleted: 25, KindInvokeRetrying: 12, KindTimerFired: 20,
			KindSignalDelivered: 15, KindSignalReceived: 20, KindExecutionResumed: 30}
	case StatusCancelling:
		weights = map[Kind]int{KindInvokeCompleted: 10, KindTimerFired: 10, KindSignalDelivered: 10}
	}
	var kinds []Kind
	for k := KindExecutionStarted; k <= KindJoinSetAwaited; k++ {
		for range weights[k] + 1 {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

// drawReceipt draws mostly the receipt that is due.
func drawReceipt(t *rapid.T, s *State, p id.PromiseID, name string, payload []byte) Event {
	e := SignalReceived{Promise: p, Name: name, Payload: payload, DeliveryID: uint64(even(t, 4))}
	if oneIn(t, 10) {
		return e
	}
	if kind, on, signal, _ := s.Wait(); kind == AwaitSignal {
		e.Promise, e.Name = on[0], signal
	}
	if n, _, ok := s.NextReceipt(e.Name); ok {
		// The payloads drawn are short, so that their fingerprints are they themselves.
		due := &s.signal(e.Name).buffered[0].payload
		e.DeliveryID, e.Payload = n, append([]byte(nil), due.bytes[:due.size]...)
	}
	return e
}

// drawWait draws a wait of any kind, mostly one that is well formed.
func drawWait(t *rapid.T, fresh, child, set func() id.PromiseID, name string) Event {
	e := ExecutionAwaiting{Wait: AwaitKind(among[uint8](t, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 5, 0, 6))}
	switch e.Wait {
	case AwaitSignal:
		e.On, e.Signal = []id.PromiseID{fresh()}, name
	case AwaitSingle:
		e.On = []id.PromiseID{child()}
	case AwaitJoinSet:
		e.On, e.Set = []id.PromiseID{child()}, JoinSetID(set())
	default:
		for range even(t, 5) {
			e.On = append(e.On, child())
		}
	}
	if oneIn(t, 10) {
		if e.On = append(e.On, child()); e.Wait != AwaitSignal {
			e.Signal = among(t, "", "a")
		}
		return e
	}
	e.On = ascending(e.On)
	return e
}

// ascending sorts children by number and drops duplicates, by the dumbest means.
func ascending(on []id.PromiseID) []id.PromiseID {
	var sorted []id.PromiseID
	for _, p := range on {
		n, _ := p.Last()
		at := 0
		duplicate := false
		for at < len(sorted) {
			m, _ := sorted[at].Last()
			duplicate = duplicate || sorted[at] == p
			if m >= n {
				break
			}
			at++
		}
		if !duplicate {
			sorted = append(sorted[:at], append([]id.PromiseID{p}, sorted[at:]...)...)
		}
	}
	return sorted
}
