package machine

import (
	"bytes"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// A census holds all objects of a state, read from its keys alone, for the rules' own checks. It shares only
// the decoders with the machine.
type census struct {
	promises   map[string]recovery.Promise
	tasks      map[string]recovery.Task
	callbacks  [][2]string
	awaitedBy  [][2]string
	listeners  [][2]string
	notifies   map[string]int64
	headers    map[string]state.Header
	journals   map[string][]journal.Entry
	timers     map[keys.DeadlineKind][]timer
	ready      map[string]int64
	visibility map[string]keys.VisibilityClass
	problems   []string
	// rows is how many callbacks have rows.
	rows uint64
	// formerEvents are those of earlier incarnations of graph runs.
	formerEvents uint64
}

type timer struct {
	id string
	at int64
}

func (c *census) problem(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

// take takes the census of a state's default namespace.
func takeCensus(r state.Reader) *census {
	c := &census{
		promises: map[string]recovery.Promise{}, tasks: map[string]recovery.Task{}, headers: map[string]state.Header{},
		journals: map[string][]journal.Entry{}, timers: map[keys.DeadlineKind][]timer{}, ready: map[string]int64{},
		visibility: map[string]keys.VisibilityClass{}, notifies: map[string]int64{},
	}
	replies, ages, sized := map[string]bool{}, 0, uint64(0)
	_ = r.Scan(nil, nil, func(key, value []byte) bool {
		var err error
		switch keys.Family(key[0]) {
		case keys.Promise:
			var p recovery.Promise
			p, err = recovery.DecodePromise(value)
			c.promises[p.ID] = p
			c.named(key, keys.Of(keys.Promise, ns, p.ID))
		case keys.Task:
			var t recovery.Task
			t, err = recovery.DecodeTask(value)
			c.tasks[t.ID] = t
			c.named(key, keys.Of(keys.Task, ns, t.ID))
		case keys.Callback:
			c.callbacks = append(c.callbacks, c.pair(key))
		case keys.AwaitedBy:
			c.awaitedBy = append(c.awaitedBy, c.pair(key))
		case keys.Listener:
			c.listeners = append(c.listeners, c.pair(key))
		case keys.Notify:
			var n state.Notification
			n, err = state.DecodeNotification(value)
			c.notifies[idOfKey(key)] = n.AtMS
		case keys.Header:
			var h state.Header
			h, err = state.DecodeHeader(value)
			c.headers[h.ID] = h
			c.named(key, keys.Of(keys.Header, ns, h.ID))
			if !bytes.Equal(h.Encode(), value) {
				c.problem("the header of %q is not encoded canonically", h.ID)
			}
			if t, ok := h.InlineTask(); ok {
				if _, twice := c.tasks[h.ID]; twice {
					c.problem("the task of %q is inline, and has a row", h.ID)
				}
				c.tasks[h.ID] = t
			}
			if p, ok := h.InlinePromise(); ok {
				if _, twice := c.promises[h.ID]; twice {
					c.problem("the promise of %q is inline, and has a row", h.ID)
				}
				c.promises[h.ID] = p
			}
			for seq, value := range append(h.InlineEntries(), h.OpenEntries()...) {
				c.entry(keys.JournalEntry(ns, h.ID, h.Incarnation, uint64(seq)), value)
			}
		case keys.Journal:
			c.entry(key, value)
		case keys.Deadline:
			var kind keys.DeadlineKind
			var t timer
			kind, t.at, _, t.id, err = keys.ParseDeadline(key)
			c.timers[kind] = append(c.timers[kind], t)
		case keys.Ready:
			_, rest, _ := keys.CutString(key[1:])
			fn, _, _ := keys.CutString(rest)
			var at int64
			var objectID string
			at, objectID, err = keys.ParseReady(key, keys.Of(keys.Ready, ns, fn))
			if _, twice := c.ready[objectID]; twice {
				c.problem("task %q is queued twice", objectID)
			}
			c.ready[objectID] = at
			if state.RetryInPlace(value) {
				c.timers[keys.DeadlineRetry] = append(c.timers[keys.DeadlineRetry], timer{id: objectID, at: at})
			} else if len(value) > 0 {
				c.problem("task %q has a place with the value %x", objectID, value)
			}
			if t, ok := c.tasks[objectID]; !ok || t.State != recovery.TaskPending || t.RetryAt != at || t.Target != fn {
				c.problem("task %q is in the queue of %q at %d, and is %+v", objectID, fn, at, t)
			}
		case keys.Reply:
			replies[string(key[1:])] = true
		case keys.ReplyAge:
			ages++
			_, rid, _ := keys.CutUint64(key[1:])
			size, serr := state.ReplySize(value)
			sized, err = sized+size, serr
			if !replies[string(rid)] {
				c.problem("the age of a reply that is not there: %q", rid)
			}
		case keys.Visibility:
			_, rest, _ := keys.CutString(key[1:])
			class := keys.VisibilityClass(rest[0])
			_, objectID, verr := keys.ParseVisibility(key, keys.VisibilityPrefix(ns, class))
			err = verr
			if _, twice := c.visibility[objectID]; twice {
				c.problem("%q is listed twice", objectID)
			}
			c.visibility[objectID] = class
		}
		if err != nil {
			c.problem("key %x: %v", key, err)
		}
		return true
	})
	c.rows = uint64(len(c.callbacks))
	if level, err := state.Level(r); err != nil || level >= state.LevelFunctions {
		c.callWithoutRow()
	}
	if n, err := state.MetaNumber(r, state.MetaReplyBytes); err != nil || n != sized {
		c.problem("replies of %d bytes, %d are counted (%v)", sized, n, err)
	}
	stored, err := state.MetaNumber(r, state.MetaReplies)
	if err != nil || ages != len(replies) || stored != uint64(ages) {
		c.problem("%d replies, %d ages, %d counted (%v)", len(replies), ages, stored, err)
	}
	return c
}

// callWithoutRow adds the callbacks of suspended executions on their own operations, which have no rows.
func (c *census) callWithoutRow() {
	for p := range c.Promises() {
		owner, ok := state.ParentOf(p.ID)
		if _, journaled := c.headers[owner]; !ok || !journaled || c.tasks[owner].State != recovery.TaskSuspended {
			continue
		}
		if p.State == recovery.PromisePending && p.Awaitable() && !slices.Contains(c.callbacks, [2]string{p.ID, owner}) {
			c.callbacks, c.awaitedBy = append(c.callbacks, [2]string{p.ID, owner}), append(c.awaitedBy, [2]string{owner, p.ID})
		}
	}
}

func (c *census) named(key, want []byte) {
	if !bytes.Equal(key, want) {
		c.problem("the value at %q belongs at %q", key, want)
	}
}

func (c *census) pair(key []byte) (out [2]string) {
	_, rest, err := keys.CutString(key[1:])
	for i := range out {
		if err == nil {
			out[i], rest, err = keys.CutString(rest)
		}
	}
	if err != nil || len(rest) > 0 {
		c.problem("key %x: %v", key, err)
	}
	return out
}

// swept reports whether a sweep in progress is to delete a journal.
func (c *census) swept(objectID string, incarnation uint64) bool {
	if h, ok := c.headers[objectID]; ok {
		return h.SweepAt != 0 && incarnation < h.Incarnation
	}
	for p, ok := id.PromiseID(objectID).Parent(); ok; p, ok = p.Parent() {
		if c.headers[string(p)].SweepAt != 0 {
			return true
		}
	}
	return false
}

func (c *census) entry(key, value []byte) {
	_, rest, err := keys.CutString(key[1:])
	var objectID string
	if err == nil {
		objectID, rest, err = keys.CutString(rest)
	}
	var incarnation, seq uint64
	if err == nil {
		incarnation, rest, err = keys.CutUint64(rest)
	}
	if err == nil {
		seq, _, err = keys.CutUint64(rest)
	}
	var e journal.Entry
	if err == nil {
		e, err = journal.DecodeEntry(value)
	}
	if h := c.headers[objectID]; err == nil && h.Kind == state.KindGraph && h.Generation > 0 && incarnation < h.Incarnation {
		c.formerEvents++
		return
	}
	if err == nil && c.swept(objectID, incarnation) {
		c.formerEvents++
		return
	}
	if err != nil || e.Seq != seq || c.headers[objectID].Incarnation != incarnation {
		c.problem("journal entry %q: %v", key, err)
	}
	c.journals[objectID] = append(c.journals[objectID], e)
}

// The census as a recovery.Snapshot.

func (c *census) Promise(objectID string) (recovery.Promise, bool) {
	p, ok := c.promises[objectID]
	return p, ok
}

func (c *census) Task(objectID string) (recovery.Task, bool) {
	t, ok := c.tasks[objectID]
	return t, ok
}

func seconds(pairs [][2]string, first string) (out []string) {
	for _, p := range pairs {
		if p[0] == first {
			out = append(out, p[1])
		}
	}
	return out
}

func (c *census) Callbacks(awaited string) []string { return seconds(c.callbacks, awaited) }
func (c *census) AwaitedBy(awaiter string) []string { return seconds(c.awaitedBy, awaiter) }
func (c *census) Listeners(objectID string) []string {
	return seconds(c.listeners, objectID)
}

func (c *census) Notifies(objectID string) bool {
	_, ok := c.notifies[objectID]
	return ok
}

func sorted[V any](m map[string]V) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(m[k]) {
				return
			}
		}
	}
}

func (c *census) Promises() iter.Seq[recovery.Promise] { return sorted(c.promises) }
func (c *census) Tasks() iter.Seq[recovery.Task]       { return sorted(c.tasks) }

func pairs(list [][2]string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, p := range list {
			if !yield(p[0], p[1]) {
				return
			}
		}
	}
}

func (c *census) AllCallbacks() iter.Seq2[string, string] { return pairs(c.callbacks) }
func (c *census) AllAwaitedBy() iter.Seq2[string, string] { return pairs(c.awaitedBy) }
func (c *census) AllListeners() iter.Seq2[string, string] { return pairs(c.listeners) }

// PromiseTimers are those of the index, and those at Never, which the index leaves out.
func (c *census) PromiseTimers() iter.Seq2[string, int64] {
	all := map[string]int64{}
	for _, t := range c.timers[keys.DeadlinePromise] {
		if _, twice := all[t.id]; twice {
			c.problem("two timers of promise %q", t.id)
		}
		all[t.id] = t.at
	}
	for _, p := range c.promises {
		if p.TimeoutAt == state.Never && p.State == recovery.PromisePending {
			all[p.ID] = state.Never
		}
	}
	return func(yield func(string, int64) bool) {
		for _, k := range slices.Sorted(maps.Keys(all)) {
			if !yield(k, all[k]) {
				return
			}
		}
	}
}

func (c *census) TaskTimers() iter.Seq[recovery.TaskTimer] {
	var all []recovery.TaskTimer
	for _, t := range c.timers[keys.DeadlineLease] {
		all = append(all, recovery.TaskTimer{ID: t.id, Kind: recovery.LeaseTimer, At: t.at})
	}
	for _, t := range c.timers[keys.DeadlineRetry] {
		all = append(all, recovery.TaskTimer{ID: t.id, Kind: recovery.RetryTimer, At: t.at})
	}
	slices.SortFunc(all, func(a, b recovery.TaskTimer) int { return strings.Compare(a.ID, b.ID) })
	return slices.Values(all)
}

// auditCleanups checks that no clean-up is gone that was open before the last entry, unless that has ended it: it had
// several commands, or the clean-up's bound was over. A world that is not audited after each entry cannot tell.
func (w *world) auditCleanups(p *part, c *census, clock int64) {
	for objectID, before := range p.cleanups {
		h, ok := c.headers[objectID]
		if p.index == p.cleanupsAt+1 && (!ok || h.Incarnation != before.Incarnation) && w.commands == 1 && (before.DeadlineMS == 0 || before.DeadlineMS > clock) {
			c.problem("the clean-up %q of incarnation %d was open, and is gone", objectID, before.ParentIncarnation)
		}
	}
	p.cleanups, p.cleanupsAt = map[string]state.Header{}, p.index
	for objectID, h := range c.headers {
		if h.IsCleanup() && !h.Status.Terminal() {
			p.cleanups[objectID] = h
		}
	}
}

// audit checks a partition's whole state by every rule: the recovery protocol's invariants, the journal's,
// how the two agree, and the machine's own indexes.
func (w *world) audit(p *part) {
	w.t.Helper()
	c := takeCensus(p.state)
	clock := p.m.Clock()
	for _, v := range recovery.Invariants(c, clock) {
		c.problem("%v", v)
	}
	for _, h := range c.headers {
		c.execution(h, clock)
	}
	for objectID := range c.journals {
		if _, ok := c.headers[objectID]; !ok {
			c.problem("a journal of %q and no header", objectID)
		}
	}
	if len(c.visibility) != len(c.headers) {
		c.problem("%d executions are listed, there are %d", len(c.visibility), len(c.headers))
	}
	for _, t := range c.timers[keys.DeadlineGrace] {
		if h := c.headers[t.id]; h.GraceAt != t.at {
			c.problem("a grace timer of %q at %d, its grace ends at %d", t.id, t.at, h.GraceAt)
		}
	}
	for _, t := range c.tasks {
		_, entity := id.EntityOfTask(t.ID)
		_, client := state.AddressOf(t.Target)
		if _, ok := c.headers[t.ID]; !ok && !entity && !client {
			c.problem("task %q and no execution", t.ID)
		}
	}
	w.auditCleanups(p, c, clock)
	w.auditChannels(p, c)
	w.auditWakeSources(p, c)
	w.auditState(p, c)
	if len(c.problems) > 0 {
		slices.Sort(c.problems)
		w.t.Fatalf("at %d, after entry %d of partition %d:\n%s", w.now, p.index, p.cfg.Partition, strings.Join(c.problems, "\n"))
	}
}

// endings is the ending table: what a terminal status may do to the promise.
var endings = map[journal.Status][]recovery.PromiseState{
	journal.StatusCompleted: {recovery.PromiseResolved},
	journal.StatusFailed:    {recovery.PromiseRejected},
	journal.StatusCancelled: {recovery.PromiseRejectedCanceled, recovery.PromiseRejectedTimedout},
}

var listedAs = map[journal.Status]keys.VisibilityClass{
	journal.StatusRunning: keys.Open, journal.StatusBlocked: keys.Open, journal.StatusCancelling: keys.Open,
	journal.StatusCompleted: keys.Completed, journal.StatusFailed: keys.Failed, journal.StatusCancelled: keys.Cancelled,
}

// execution checks that header, journal, promise and task of one execution agree.
func (c *census) execution(h state.Header, clock int64) {
	entries := c.journals[h.ID]
	for _, v := range journal.Check(id.PromiseID(h.ID), entries, journal.WithRetryBound(state.RetryBound)) {
		c.problem("%v", &v)
	}
	replay, err := journal.NewReplay(id.PromiseID(h.ID), entries, journal.WithRetryBound(state.RetryBound))
	if err != nil {
		c.problem("the guard refuses a stored journal: %v", err)
		return
	}
	s := replay.State()
	if s.Status() != h.Status || s.NextSeq() != h.Events || journal.StatusOf(entries) != h.Status {
		c.problem("%q: the journal is %v with %d entries, the header says %v and %d", h.ID, s.Status(), s.NextSeq(), h.Status, h.Events)
	}
	if c.visibility[h.ID] != listedAs[h.Status] {
		c.problem("%q is %v and listed in class %d", h.ID, h.Status, c.visibility[h.ID])
	}
	if (h.ClosedMS != 0) != h.Status.Terminal() {
		c.problem("%q is %v and closed at %d", h.ID, h.Status, h.ClosedMS)
	}
	hasGrace := slices.Contains(c.timers[keys.DeadlineGrace], timer{h.ID, h.GraceAt})
	if (h.GraceAt != 0) != (h.Status == journal.StatusCancelling) || (h.GraceAt != 0) != hasGrace {
		c.problem("%q is %v with grace until %d (in the index: %v)", h.ID, h.Status, h.GraceAt, hasGrace)
	}
	p, task := c.promises[h.ID], c.tasks[h.ID]
	target := h.Function
	if p.Target != target {
		target = state.Target(h.Function, h.Digest)
	}
	if _, has := c.tasks[h.ID]; h.Kind == state.KindGraph {
		target = ""
		if has {
			c.problem("%q: a graph run with a task", h.ID)
		}
	}
	if p.Incarnation != h.Incarnation || p.Target != target || p.CreatedAt > h.CreatedMS && h.Former == 0 {
		c.problem("%q: promise %+v, header %+v", h.ID, p, h)
	}
	if h.Status.Terminal() {
		if !slices.Contains(endings[h.Status], p.State) {
			c.problem("%q: the journal ended %v, the promise %v", h.ID, h.Status, p.State)
		}
		c.outcome(h, entries[len(entries)-1].Event, p)
		return
	}
	if p.State != recovery.PromisePending {
		c.problem("%q: the journal is %v, the promise %v", h.ID, h.Status, p.State)
	}
	suspended := task.State == recovery.TaskSuspended
	if suspended != (h.Status == journal.StatusBlocked) {
		c.problem("%q: the journal is %v, the task %v", h.ID, h.Status, task.State)
	}
	if h.Status == journal.StatusBlocked && s.WaitSatisfied() && p.Live(clock) {
		c.problem("%q is Blocked and its wait is satisfied", h.ID)
	}
	c.children(h, s, replay)
}

// outcome compares the last entry of a journal with what the promise tells.
func (c *census) outcome(h state.Header, last journal.Event, p recovery.Promise) {
	var want []byte
	switch e := last.(type) {
	case journal.ExecutionCompleted:
		want = recovery.AppendOutcome(nil, recovery.Outcome{Data: e.Result})
	case journal.ExecutionFailed:
		want = e.Error
	case journal.ExecutionCancelled:
		if p.State == recovery.PromiseRejectedCanceled {
			want = state.EncodeFailure(state.FailureCancelled, e.Reason)
		}
		if timedOut := e.Reason == "timed out"; timedOut != (p.State == recovery.PromiseRejectedTimedout) {
			c.problem("%q: ended with %q, the promise %v", h.ID, e.Reason, p.State)
		}
	}
	if !bytes.Equal(want, p.Value) {
		c.problem("%q: the journal ends with %+v, the promise has %q", h.ID, last, p.Value)
	}
}

// children checks that each operation of an open execution without a result has a promise that will bring
// one.
func (c *census) children(h state.Header, s *journal.State, replay *journal.Replay) {
	for n := range s.NextChild() {
		child := id.PromiseID(h.ID).Child(n)
		r, ok := replay.Lookup(child)
		if !ok || r.Resolved {
			continue
		}
		p, exists := c.promises[string(child)]
		pending := exists && p.State == recovery.PromisePending
		switch {
		case r.Call == journal.KindTimerScheduled:
			if p.State == recovery.PromiseRejectedCanceled {
				continue
			}
			if !pending || !p.Timer || p.TimeoutAt != r.FireAt || !h.Belongs(p.Incarnation) {
				c.problem("%q: an open timer with the promise %+v", child, p)
			}
		case r.Call == journal.KindInvokeScheduled && h.Kind == state.KindGraph:
			// Nodes that a cancelling run has dropped stay open in the journal.
			if !pending && h.Status != journal.StatusCancelling {
				c.problem("%q: an open node with the promise %+v", child, p)
			}
		case r.Call == journal.KindInvokeScheduled && r.Invoke == journal.InvokeFunction:
			if !pending && !(r.Open == 0 && h.Status == journal.StatusCancelling) {
				c.problem("%q: an open child with the promise %+v, attempt %d", child, p, r.Open)
			}
		case r.Call == journal.KindExecutionAwaiting && h.Status == journal.StatusBlocked:
			if !pending || !p.External {
				c.problem("%q: an open signal wait with the promise %+v", child, p)
			}
		}
	}
}

// auditChannels checks that outbox messages have numbers without gaps up to the channel's number.
func (w *world) auditChannels(p *part, c *census) {
	for dst := range w.parts {
		ch := p.m.txn.channel(keys.Number(keys.Channel, uint32(dst)))
		epoch, last := ch.Epoch, ch.Last
		e, msgs, err := query.Outgoing(p.state, uint32(dst), state.Channel{}, 1<<30, 1<<40)
		if err != nil {
			c.problem("outbox: %v", err)
		}
		for i, m := range msgs {
			if e != epoch || m.Seq != last-uint64(len(msgs)-1-i) {
				c.problem("message %d of %d for partition %d has number %d in epoch %d, the channel is at %d in %d",
					i, len(msgs), dst, m.Seq, e, last, epoch)
			}
		}
	}
}

// auditWakeSources describes every execution, now and later, when more is due: none may be stuck.
func (w *world) auditWakeSources(p *part, c *census) {
	for _, h := range c.headers {
		for _, later := range []int64{0, 5_000, 1_000_000} {
			x := &query.Read{Must: state.Must{From: p.state}, ClockMS: w.now + later, Partition: p.cfg.Partition, ListBudget: query.ListBudget,
				Query: &commandv1.Query{Namespace: ns, Id: h.ID, Kind: &commandv1.Query_Describe{Describe: &perdurev1.DescribeRequest{}}}}
			reply, err := x.Answer()
			if err != nil {
				c.problem("describe %q: %v", h.ID, err)
				continue
			}
			e := reply.GetDescribe().GetExecution()
			over := e.Status >= perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED
			if e.WakeSource == "" || e.WakeSource == "stuck" || over != (e.WakeSource == "finished") {
				c.problem("%q is %v and will be woken by %q", h.ID, e.Status, e.WakeSource)
			}
		}
	}
}
