package journal

import (
	"bytes"
	"slices"

	"perdure/id"
)

// twin is State's dumb twin: the ruled specification's own predicates, each a scan of the whole journal,
// written down action by action. It is slow and has no memory but the journal, so what it gets wrong it
// does not get wrong the way State would.
type twin struct {
	eid     id.PromiseID
	bound   func(string) int
	journal []Event
}

func (w *twin) exists(match func(Event) bool) bool { return slices.ContainsFunc(w.journal, match) }

func (w *twin) count(match func(Event) bool) int {
	n := 0
	for _, ev := range w.journal {
		if match(ev) {
			n++
		}
	}
	return n
}

// about matches the events of one type that satisfy a condition.
func about[E Event](condition func(E) bool) func(Event) bool {
	return func(ev Event) bool {
		e, ok := ev.(E)
		return ok && condition(e)
	}
}

func (w *twin) status() Status {
	status := StatusNone
	for _, ev := range w.journal {
		switch ev.(type) {
		case ExecutionStarted, ExecutionResumed:
			status = StatusRunning
		case ExecutionAwaiting:
			status = StatusBlocked
		case CancelRequested:
			status = StatusCancelling
		case ExecutionCompleted:
			status = StatusCompleted
		case ExecutionFailed:
			status = StatusFailed
		case ExecutionCancelled:
			status = StatusCancelled
		}
	}
	return status
}

// wait is the last ExecutionAwaiting, which is the open one while Blocked.
func (w *twin) wait() ExecutionAwaiting {
	var last ExecutionAwaiting
	for _, ev := range w.journal {
		if e, ok := ev.(ExecutionAwaiting); ok {
			last = e
		}
	}
	return last
}

func (w *twin) scheduled(p id.PromiseID) bool {
	return w.exists(about(func(e InvokeScheduled) bool { return e.Promise == p }))
}

func (w *twin) completed(p id.PromiseID) bool {
	return w.exists(about(func(e InvokeCompleted) bool { return e.Promise == p }))
}

func (w *twin) starts(p id.PromiseID) int {
	return w.count(about(func(e InvokeStarted) bool { return e.Promise == p }))
}

func (w *twin) retries(p id.PromiseID) int {
	return w.count(about(func(e InvokeRetrying) bool { return e.Promise == p }))
}

func (w *twin) openAttempt(p id.PromiseID) int {
	if starts := w.starts(p); starts == w.retries(p)+1 {
		return starts
	}
	return 0
}

func (w *twin) timer(p id.PromiseID) bool {
	return w.exists(about(func(e TimerScheduled) bool { return e.Promise == p }))
}

func (w *twin) resolved(p id.PromiseID) bool {
	return w.completed(p) ||
		w.exists(about(func(e TimerFired) bool { return e.Promise == p })) ||
		w.exists(about(func(e SignalReceived) bool { return e.Promise == p }))
}

func (w *twin) satisfied(e ExecutionAwaiting) bool {
	switch e.Wait {
	case AwaitAny:
		return slices.ContainsFunc(e.On, w.resolved)
	case AwaitJoinSet:
		return w.exists(about(func(s JoinSetSubmitted) bool {
			return s.Set == e.Set && w.resolved(s.Promise) && !w.consumed(s.Promise)
		}))
	}
	return !slices.ContainsFunc(e.On, func(p id.PromiseID) bool { return !w.resolved(p) })
}

func (w *twin) consumed(p id.PromiseID) bool {
	return w.exists(about(func(e JoinSetAwaited) bool { return e.Promise == p }))
}

func (w *twin) deliveries(name string) int {
	return w.count(about(func(e SignalDelivered) bool { return e.Name == name }))
}

func (w *twin) receipts(name string) int {
	return w.count(about(func(e SignalReceived) bool { return e.Name == name }))
}

// nextChild counts the calls: the receipt that answers a blocked wait is not a call of its own.
func (w *twin) nextChild() uint32 {
	n := uint32(0)
	for i, ev := range w.journal {
		switch e := ev.(type) {
		case InvokeScheduled, RandomGenerated, TimeRecorded, TimerScheduled, JoinSetCreated:
			n++
		case ExecutionAwaiting:
			if e.Wait == AwaitSignal {
				n++
			}
		case SignalReceived:
			if (&twin{journal: w.journal[:i]}).status() == StatusRunning {
				n++
			}
		}
	}
	return n
}

func (w *twin) next() id.PromiseID { return w.eid.Child(w.nextChild()) }

func (w *twin) retryBoundOf(p id.PromiseID) int {
	bound := 0
	for _, ev := range w.journal {
		if e, ok := ev.(InvokeScheduled); ok && e.Promise == p {
			bound = w.bound(e.RetryPolicy)
		}
	}
	return bound
}

// accepts reports whether the specification's action for ev is enabled.
func (w *twin) accepts(seq uint64, ev Event) bool {
	status := w.status()
	if ev == nil || seq != uint64(len(w.journal)) || status.Terminal() {
		return false
	}
	if _, start := ev.(ExecutionStarted); start || status == StatusNone {
		return start && status == StatusNone
	}
	running := status == StatusRunning
	mayWork := running || status == StatusBlocked
	switch e := ev.(type) {
	case ExecutionCompleted, ExecutionFailed:
		return running
	case CancelRequested:
		return status != StatusCancelling
	case ExecutionCancelled:
		return status == StatusCancelling
	case InvokeScheduled:
		return running && e.Promise == w.next() && e.Invoke >= 1 && e.Invoke <= 5
	case RandomGenerated:
		return running && e.Promise == w.next()
	case TimeRecorded:
		return running && e.Promise == w.next()
	case TimerScheduled:
		return running && e.Promise == w.next()
	case JoinSetCreated:
		return running && id.PromiseID(e.Set) == w.next()
	case InvokeStarted:
		return mayWork && w.scheduled(e.Promise) && !w.completed(e.Promise) && w.openAttempt(e.Promise) == 0 &&
			int(e.Attempt) == w.retries(e.Promise)+1
	case InvokeCompleted:
		return !w.completed(e.Promise) && w.openAttempt(e.Promise) > 0 && int(e.Attempt) == w.openAttempt(e.Promise)
	case InvokeRetrying:
		return mayWork && !w.completed(e.Promise) && w.openAttempt(e.Promise) > 0 &&
			int(e.FailedAttempt) == w.openAttempt(e.Promise) && w.retries(e.Promise) < w.retryBoundOf(e.Promise)
	case TimerFired:
		return w.timer(e.Promise) && !w.resolved(e.Promise)
	case SignalDelivered:
		return e.DeliveryID == uint64(w.deliveries(e.Name)+1)
	case SignalReceived:
		return w.acceptsReceipt(status, e)
	case ExecutionAwaiting:
		return running && w.acceptsWait(e)
	case ExecutionResumed:
		return status == StatusBlocked && w.satisfied(w.wait())
	case JoinSetSubmitted:
		return running && w.scheduled(e.Promise) &&
			w.exists(about(func(c JoinSetCreated) bool { return c.Set == e.Set })) &&
			!w.exists(about(func(a JoinSetAwaited) bool { return a.Set == e.Set })) &&
			!w.exists(about(func(s JoinSetSubmitted) bool { return s.Promise == e.Promise }))
	case JoinSetAwaited:
		return running &&
			w.exists(about(func(s JoinSetSubmitted) bool { return s.Set == e.Set && s.Promise == e.Promise })) &&
			w.exists(about(func(c InvokeCompleted) bool { return c.Promise == e.Promise && bytes.Equal(c.Result, e.Result) })) &&
			!w.exists(about(func(a JoinSetAwaited) bool { return a.Set == e.Set && a.Promise == e.Promise }))
	}
	return false
}

func (w *twin) acceptsReceipt(status Status, e SignalReceived) bool {
	open := w.wait()
	fresh := status == StatusRunning && e.Promise == w.next()
	waited := status == StatusBlocked && open.Wait == AwaitSignal && open.Signal == e.Name && open.On[0] == e.Promise
	delivered := w.exists(about(func(d SignalDelivered) bool {
		return d.Name == e.Name && d.DeliveryID == e.DeliveryID && bytes.Equal(d.Payload, e.Payload)
	}))
	return (fresh || waited) && !w.resolved(e.Promise) && delivered && e.DeliveryID == uint64(w.receipts(e.Name)+1)
}

func (w *twin) acceptsWait(e ExecutionAwaiting) bool {
	if e.Wait == AwaitSignal {
		return e.Set == "" && len(e.On) == 1 && e.On[0] == w.next() && w.deliveries(e.Signal) == w.receipts(e.Signal)
	}
	if (e.Wait == AwaitJoinSet) != (e.Set != "") {
		return false
	}
	if e.Wait == AwaitJoinSet {
		return e.Signal == "" && len(e.On) == 1 && !w.satisfied(e) && !w.consumed(e.On[0]) &&
			w.exists(about(func(s JoinSetSubmitted) bool { return s.Set == e.Set && s.Promise == e.On[0] }))
	}
	if e.Wait < AwaitSingle || e.Wait > AwaitAll || e.Signal != "" || len(e.On) == 0 || e.Wait == AwaitSingle && len(e.On) > 1 {
		return false
	}
	for i, p := range e.On {
		if !w.scheduled(p) && !w.timer(p) {
			return false
		}
		if i > 0 {
			before, _ := e.On[i-1].Last()
			if n, _ := p.Last(); n <= before {
				return false
			}
		}
	}
	return !w.satisfied(e)
}
