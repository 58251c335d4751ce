package journal

import (
	"bytes"
	"slices"

	"perdure/id"
)

// delivery is one signal: a name and its number.
type delivery struct {
	name   string
	number uint64
}

// CF-1: TimerFired follows a TimerScheduled of its promise.
func checkFiredRequiresScheduled(a *audit) {
	scheduled := map[id.PromiseID]bool{}
	for i, entry := range a.entries {
		switch e := entry.Event.(type) {
		case TimerScheduled:
			scheduled[e.Promise] = true
		case TimerFired:
			if !scheduled[e.Promise] {
				a.report(i, RuleFiredRequiresScheduled, e.Promise, "timer "+shownID(e.Promise)+" was never scheduled")
			}
		}
	}
}

// CF-2: SignalReceived follows a SignalDelivered of its name, delivery and payload.
func checkReceivedRequiresDelivered(a *audit) {
	delivered := map[delivery][][]byte{}
	for i, entry := range a.entries {
		switch e := entry.Event.(type) {
		case SignalDelivered:
			d := delivery{e.Name, e.DeliveryID}
			delivered[d] = append(delivered[d], e.Payload)
		case SignalReceived:
			same := func(payload []byte) bool { return bytes.Equal(payload, e.Payload) }
			if !slices.ContainsFunc(delivered[delivery{e.Name, e.DeliveryID}], same) {
				a.report(i, RuleReceivedRequiresDelivered, e.Promise,
					"no delivery "+num(e.DeliveryID)+" of signal "+quoted(e.Name)+" with this payload has arrived")
			}
		}
	}
}

// CF-3: a delivery is consumed at most once.
func checkSignalConsumedOnce(a *audit) {
	consumed := map[delivery]bool{}
	each(a, func(i int, e SignalReceived) {
		d := delivery{e.Name, e.DeliveryID}
		if consumed[d] {
			a.report(i, RuleSignalConsumedOnce, e.Promise,
				"delivery "+num(e.DeliveryID)+" of signal "+quoted(e.Name)+" was consumed before")
		}
		consumed[d] = true
	})
}

// CF-4: a signal wait is on one promise.
func checkAwaitSignalConsistent(a *audit) {
	each(a, func(i int, e ExecutionAwaiting) {
		if e.Wait == AwaitSignal && len(e.On) != 1 {
			a.report(i, RuleAwaitSignalConsistent, "", "a signal wait is on one promise, not on "+num(len(e.On)))
		}
	})
}

// R10: a timer fires at most once.
func checkTimerFiresOnce(a *audit) {
	fired := map[id.PromiseID]bool{}
	each(a, func(i int, e TimerFired) {
		if fired[e.Promise] {
			a.report(i, RuleTimerFiresOnce, e.Promise, "timer "+shownID(e.Promise)+" has fired")
		}
		fired[e.Promise] = true
	})
}

// R11: a signal is received while Blocked only as the one answer to the open wait for it.
func checkSignalWait(a *audit) {
	var open ExecutionAwaiting
	answered := false
	for i, entry := range a.entries {
		switch e := entry.Event.(type) {
		case ExecutionAwaiting:
			open, answered = e, false
		case SignalReceived:
			if a.before[i] != StatusBlocked {
				continue
			}
			waited := open.Wait == AwaitSignal && open.Signal == e.Name && slices.Contains(open.On, e.Promise)
			if !waited || answered {
				a.report(i, RuleSignalWait, e.Promise, "no open wait for signal "+quoted(e.Name)+" at "+shownID(e.Promise))
			}
			answered = answered || waited
		}
	}
}

// R12: a wait for promises is on invocations and timers of this journal, on one if Single, and on at least
// one. They are a set, written in ascending order.
func checkWaitable(a *audit) {
	position := map[id.PromiseID]int{}
	for i, entry := range a.entries {
		switch e := entry.Event.(type) {
		case InvokeScheduled:
			position[e.Promise] = i
		case TimerScheduled:
			position[e.Promise] = i
		case ExecutionAwaiting:
			if e.Wait != AwaitSignal && e.Wait != AwaitJoinSet {
				a.checkMembers(i, e, position)
			}
		}
	}
	a.checkSetWaits()
}

// A wait for a join set names one of its members that was not consumed.
func (a *audit) checkSetWaits() {
	open := map[member]bool{}
	for i, entry := range a.entries {
		switch e := entry.Event.(type) {
		case JoinSetSubmitted:
			open[member{e.Set, e.Promise}] = true
		case JoinSetAwaited:
			delete(open, member{e.Set, e.Promise})
		case ExecutionAwaiting:
			if e.Wait == AwaitJoinSet && (len(e.On) != 1 || !open[member{e.Set, e.On[0]}]) {
				a.report(i, RuleWaitable, id.PromiseID(e.Set), "a wait for a join set names one member that was not consumed")
			}
		}
	}
}

func (a *audit) checkMembers(i int, e ExecutionAwaiting, position map[id.PromiseID]int) {
	if len(e.On) == 0 || e.Wait == AwaitSingle && len(e.On) != 1 {
		a.report(i, RuleWaitable, "", "a wait of kind "+e.Wait.String()+" on "+num(len(e.On))+" promises")
	}
	before := -1
	for _, p := range e.On {
		at, scheduled := position[p]
		switch {
		case !scheduled:
			a.report(i, RuleWaitable, p, shownID(p)+" is no invocation or timer of this journal")
			continue
		case at <= before:
			a.report(i, RuleWaitable, p, "promise "+shownID(p)+" is not in ascending order")
		}
		before = at
	}
}

// R13: no wait is satisfied already, by resolved promises or by an unconsumed delivery.
func checkNeedlessWait(a *audit) {
	so := newResults()
	buffered := map[string]int{}
	for i, entry := range a.entries {
		switch e := entry.Event.(type) {
		case SignalDelivered:
			buffered[e.Name]++
		case SignalReceived:
			buffered[e.Name]--
		case ExecutionAwaiting:
			switch {
			case len(e.On) > 0 && so.satisfied(e):
				a.report(i, RuleNeedlessWait, e.On[0], "the wait of kind "+e.Wait.String()+" is satisfied already")
			case e.Wait == AwaitSignal && buffered[e.Signal] > 0:
				a.report(i, RuleNeedlessWait, "", "a delivery of signal "+quoted(e.Signal)+" is not consumed yet")
			}
		}
		so.add(entry.Event)
	}
}

// K9: ExecutionResumed ends a wait, and a satisfied one.
func checkResumable(a *audit) {
	so := newResults()
	var open ExecutionAwaiting
	for i, entry := range a.entries {
		switch e := entry.Event.(type) {
		case ExecutionAwaiting:
			open = e
		case ExecutionResumed:
			switch {
			case a.before[i] != StatusBlocked:
				a.report(i, RuleResumable, "", "the execution is "+a.before[i].String()+", not Blocked")
			case !so.satisfied(open):
				a.report(i, RuleResumable, "", "the wait of kind "+open.Wait.String()+" is not satisfied")
			}
		}
		so.add(entry.Event)
	}
}

// K12: deliveries of a name are numbered 1, 2, 3 ….
func checkDeliveryID(a *audit) {
	deliveries := map[string]uint64{}
	each(a, func(i int, e SignalDelivered) {
		deliveries[e.Name]++
		if e.DeliveryID != deliveries[e.Name] {
			a.report(i, RuleDeliveryID, "", "delivery "+num(deliveries[e.Name])+" of signal "+quoted(e.Name)+
				" is numbered "+num(e.DeliveryID))
		}
	})
}

// K13: a name's deliveries are consumed in order.
func checkSignalFIFO(a *audit) {
	receipts := map[string]uint64{}
	each(a, func(i int, e SignalReceived) {
		receipts[e.Name]++
		if e.DeliveryID != receipts[e.Name] {
			a.report(i, RuleSignalFIFO, e.Promise, "the next delivery of signal "+quoted(e.Name)+" to consume is "+
				num(receipts[e.Name])+", not "+num(e.DeliveryID))
		}
	})
}
