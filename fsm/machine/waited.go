package machine

import (
	"bytes"

	"perdure/journal"
)

// waitedBytes bounds the texts and payloads of a waited. It is the results of some tens of small children.
const waitedBytes = 8 << 10

// waited are an execution's journal entries since the commit that waits, in memory until its task is acquired next; see
// First. It is a cache of what is stored: if it cannot have an entry, it is dropped.
//
//	entries[i].Seq == from + i
//	bytes <= waitedBytes, of the entries' texts and payloads, which are memory of their own
type waited struct {
	from    uint64
	entries []journal.Entry
	bytes   int
}

// next is the number of the entry that follows.
func (w *waited) next() uint64 { return w.from + uint64(len(w.entries)) }

// add adds an entry, and returns nil if w may not have it: a transaction that was rolled back has left another one in its
// place, or it is large, or of a kind that is not kept.
func (w *waited) add(e journal.Entry) *waited {
	n, light := sizeWaited(e.Event)
	if w == nil || !light || e.Seq != w.next() || w.bytes+n > waitedBytes {
		return nil
	}
	switch of := e.Event.(type) {
	case journal.InvokeScheduled:
		of.Input = bytes.Clone(of.Input)
		e.Event = of
	case journal.InvokeCompleted:
		of.Result = bytes.Clone(of.Result)
		e.Event = of
	case journal.InvokeRetrying:
		of.Error = bytes.Clone(of.Error)
		e.Event = of
	}
	w.entries, w.bytes = append(w.entries, e), w.bytes+n
	return w
}

// size is what w counts in the cache of executions; 0 for nil.
func (w *waited) size() int {
	if w == nil {
		return 0
	}
	return w.bytes + waitedEntryCost*cap(w.entries)
}

// waitedEntryCost is about the memory of an entry beside its texts and payloads.
const waitedEntryCost = 128

// sizeWaited is the size of an event; false for one that is not kept. Payloads of signals are memory of their own.
func sizeWaited(ev journal.Event) (bytes int, kept bool) {
	switch e := ev.(type) {
	case journal.ExecutionAwaiting:
		for _, on := range e.On {
			bytes += len(on)
		}
		return bytes + len(e.Signal) + len(e.Set), true
	case journal.InvokeScheduled:
		return len(e.Promise) + len(e.Function) + len(e.Input) + len(e.RetryPolicy), true
	case journal.InvokeStarted:
		return len(e.Promise), true
	case journal.InvokeRetrying:
		return len(e.Promise) + len(e.Error), true
	case journal.InvokeCompleted:
		return len(e.Promise) + len(e.Result), true
	case journal.TimerScheduled:
		return len(e.Promise), true
	case journal.TimerFired:
		return len(e.Promise), true
	case journal.SignalDelivered:
		return len(e.Name) + len(e.Payload), true
	case journal.SignalReceived:
		return len(e.Promise) + len(e.Name) + len(e.Payload), true
	case journal.ExecutionResumed:
		return 0, true
	}
	return 0, false
}

// waits notes the worker's entries of a commit that ended the activation with a wait, unless the whole journal is in memory. If the
// server has written others between them, the next one does not follow them.
func (c *commit) waits() {
	if c.ex.short.whole(&c.ex.h) {
		c.ex.waited = nil
		return
	}
	w := &waited{from: c.first, entries: make([]journal.Entry, 0, len(c.events)+3)}
	for i, ev := range c.events {
		w = w.add(journal.Entry{Seq: c.first + uint64(i), Time: c.t.now, Event: ev})
	}
	c.ex.waited = w
}
