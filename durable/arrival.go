package durable

import (
	"sync"
	"sync/atomic"
	"time"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/id"
)

// Signals that arrive while the function runs. The node sends them to the worker (SignalArrived), so a function that asks for
// one goes on at once: its SignalReceived is put into the buffer and travels with the next commit, as a random number does. The
// journal has the signal already, and whichever worker repeats the operation receives the same one.
//
// A function that asks for a signal before it arrives lingers: it waits for a moment in its activation before it commits the
// wait. So start, signal and end of an execution whose signal comes soon are three commands, and its task is not given back
// between them. It lingers only if the last signals of functions of its name came so soon.
const (
	// lingerTime bounds the time for which a wait is not committed.
	lingerTime = 50 * time.Millisecond
	// A wait with a shorter timeout than this is committed at once.
	lingerTimeout = 20 * lingerTime
	// maxArrivals bounds the signals that a hold has and its function has not asked for. The journal has the others.
	maxArrivals = 64
)

// arrivals are the signals that have arrived for a hold's execution, in their order.
type arrivals struct {
	mu      sync.Mutex
	signals []*perdurev1.SignalArrived
	// more is closed when the next one arrives; nil until a function waits for that.
	more chan struct{}
}

// add adds a signal.
func (a *arrivals) add(s *perdurev1.SignalArrived) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.signals) == maxArrivals {
		return
	}
	a.signals = append(a.signals, s)
	if a.more != nil {
		close(a.more)
		a.more = nil
	}
}

// take removes and returns a delivery of a name. If it has not arrived, more is closed when another signal arrives.
func (a *arrivals) take(name string, delivery uint64) (s *perdurev1.SignalArrived, more <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for i, s := range a.signals {
		if s.GetName() == name && s.GetDeliveryId() == delivery {
			a.signals = append(a.signals[:i], a.signals[i+1:]...)
			return s, nil
		}
	}
	if a.more == nil {
		a.more = make(chan struct{})
	}
	return nil, a.more
}

// signalArrived takes a node's message.
func (w *Worker) signalArrived(s *perdurev1.SignalArrived) {
	w.lingers.pushed.Store(true)
	if t := w.holdOf(s.GetTask()); t != nil {
		t.arrived.add(s)
	}
}

// lingers predicts by function whether a signal comes within lingerTime. The zero value predicts that none does.
type lingers struct {
	// pushed: a node has sent a signal. Older nodes send none.
	pushed atomic.Bool
	mu     sync.Mutex
	// score rises by one with each signal that came so soon, up to soonest, and is halved by each other one:
	//	0 <= score <= soonest
	score map[string]int
}

const (
	soonest = 8
	// soon is the score from which on a function lingers.
	soon = 2
)

// expects reports whether a function's next signal should come soon.
func (l *lingers) expects(function string) bool {
	if !l.pushed.Load() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.score[function] >= soon
}

// waited notes how long a function has waited for a signal.
func (l *lingers) waited(function string, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.score == nil {
		l.score = map[string]int{}
	}
	if d < lingerTime {
		l.score[function] = min(l.score[function]+1, soonest)
	} else {
		l.score[function] /= 2
	}
}

// arrival returns the next signal of a name if it has arrived, or arrives while the function lingers; else nil. missed reports
// that the function has lingered in vain, which is noted. A clean-up replays the journal of another execution, whose signals were
// others.
func (t *activation) arrival(name string, timeout time.Duration) (s *perdurev1.SignalArrived, missed bool) {
	if t.cleanups.of != nil {
		return nil, false
	}
	next := t.journal.received(name) + 1
	s, more := t.arrived.take(name, next)
	if s != nil || t.journal.delivered(name) >= next || timeout > 0 && timeout < lingerTimeout || !t.w.lingers.expects(t.info.Function) {
		return s, false
	}
	for over := t.w.clock.After(lingerTime); s == nil; {
		select {
		case <-more:
			s, more = t.arrived.take(name, next)
		case <-over:
			t.w.lingers.waited(t.info.Function, lingerTime)
			return nil, true
		case <-t.w.stopping:
			return nil, false
		case <-t.ctx.Done():
			return nil, false
		}
	}
	return s, false
}

// receiveArrived consumes a signal that has arrived, as the n-th operation.
func (t *activation) receiveArrived(n uint32, s *perdurev1.SignalArrived) error {
	t.journal.receive(s.GetName(), s.GetDeliveryId())
	return t.stage(nil, nil, &perdurev1.Event{Kind: &perdurev1.Event_SignalReceived{SignalReceived: &perdurev1.SignalReceived{
		PromiseId: t.child(n), Name: s.GetName(), Payload: s.GetPayload(), DeliveryId: s.GetDeliveryId()}}})
}

// receiptsRecorded drops the records of signals that the function has received before the journal had it.
func (t *activation) receiptsRecorded(own []*perdurev1.Event) {
	for _, ev := range own {
		if s := ev.GetSignalReceived(); s != nil {
			if n, ok := id.PromiseID(s.GetPromiseId()).IsChildOf(t.journal.id); ok {
				t.journal.forget(n)
			}
		}
	}
}

// receipt counts the signals of a name: the last delivery in the journal, as far as the worker has read it, and the last one that
// the function has received.
type receipt struct {
	name            string
	delivered, last uint64
}

// receipt is the count of a name, which it adds if there is none.
func (r *history) receipt(name string) *receipt {
	for i := range r.receipts {
		if r.receipts[i].name == name {
			return &r.receipts[i]
		}
	}
	r.receipts = append(r.receipts, receipt{name: name})
	return &r.receipts[len(r.receipts)-1]
}

// received is the last delivery of a name that the execution has received; 0 for none.
func (r *history) received(name string) uint64 { return r.receipt(name).last }

// delivered is the last delivery of a name that the worker has read in the journal; 0 for none.
func (r *history) delivered(name string) uint64 { return r.receipt(name).delivered }

// receive notes that the execution has received a delivery.
func (r *history) receive(name string, delivery uint64) {
	of := r.receipt(name)
	of.last = max(of.last, delivery)
}
