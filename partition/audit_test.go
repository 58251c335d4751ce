package partition

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"perdure/fsm"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/journal"
	"perdure/recovery"
)

// auditStore checks a whole state by the rules' own checkers: the server invariants of the recovery protocol,
// the journal invariants of every journal, and that the two agree. It returns what it found and how much it
// checked.
func auditStore(s *fsm.Store) (problems []string, promises, journals int, err error) {
	c := &census{promises: map[string]recovery.Promise{}, tasks: map[string]recovery.Task{}, journals: map[string][]journal.Entry{}}
	var st fsm.Status
	err = s.View(func(r state.Reader) error {
		if err := c.take(r); err != nil {
			return err
		}
		st, err = statusOf(contentOf(r))
		return err
	})
	if err != nil {
		return nil, 0, 0, err
	}
	for _, v := range recovery.Invariants(c, st.ClockMS) {
		problems = append(problems, v.String())
	}
	for _, name := range slices.Sorted(maps.Keys(c.journals)) {
		entries := c.journals[name]
		for _, v := range journal.Check(id.PromiseID(name), entries, journal.WithRetryBound(retryBound)) {
			problems = append(problems, fmt.Sprintf("%v", &v))
		}
		status := journal.StatusOf(entries)
		if p := c.promises[name]; p.State.Settled() != status.Terminal() {
			problems = append(problems, fmt.Sprintf("%q: the journal is %v, the promise %v", name, status, p.State))
		}
		if t := c.tasks[name]; (t.State == recovery.TaskSuspended) != (status == journal.StatusBlocked) {
			problems = append(problems, fmt.Sprintf("%q: the journal is %v, the task %v", name, status, t.State))
		}
	}
	for _, t := range c.tasks {
		if _, ok := c.journals[t.ID]; !ok {
			problems = append(problems, fmt.Sprintf("task %q and no journal", t.ID))
		}
		if _, queued := c.ready[t.ID]; queued != (t.State == recovery.TaskPending) {
			problems = append(problems, fmt.Sprintf("task %q is %v, in its queue: %v", t.ID, t.State, queued))
		}
	}
	slices.Sort(problems)
	return problems, len(c.promises), len(c.journals), nil
}

// retryBound is the rules' own, for steps that name no policy.
func retryBound(string) int { return 3 }

// census is a state as a recovery.Snapshot.
type census struct {
	promises  map[string]recovery.Promise
	tasks     map[string]recovery.Task
	journals  map[string][]journal.Entry
	callbacks [][2]string
	awaitedBy [][2]string
	listeners [][2]string
	notifies  []string
	timers    map[string]int64
	ready     map[string]struct{}
	taskTimer []recovery.TaskTimer
}

func (c *census) take(r state.Reader) error {
	c.timers, c.ready = map[string]int64{}, map[string]struct{}{}
	var bad error
	err := r.Scan(nil, nil, func(key, value []byte) bool {
		if bad = c.one(key, value); bad != nil {
			bad = fmt.Errorf("key %q: %w", key, bad)
		}
		return bad == nil
	})
	if err == nil {
		err = bad
	}
	c.callWithoutRow()
	slices.SortFunc(c.taskTimer, func(a, b recovery.TaskTimer) int { return strings.Compare(a.ID, b.ID) })
	return err
}

// callWithoutRow adds the callbacks of suspended executions on their own operations, which have no rows.
func (c *census) callWithoutRow() {
	for _, p := range c.promises {
		owner, ok := state.ParentOf(p.ID)
		if ok && c.tasks[owner].State == recovery.TaskSuspended && p.State == recovery.PromisePending && p.Awaitable() {
			c.callbacks, c.awaitedBy = append(c.callbacks, [2]string{p.ID, owner}), append(c.awaitedBy, [2]string{owner, p.ID})
		}
	}
	for _, list := range []*[][2]string{&c.callbacks, &c.awaitedBy} {
		slices.SortFunc(*list, func(a, b [2]string) int { return cmp.Or(strings.Compare(a[0], b[0]), strings.Compare(a[1], b[1])) })
		*list = slices.Compact(*list)
	}
}

func (c *census) one(key, value []byte) error {
	switch keys.Family(key[0]) {
	case keys.Promise:
		p, err := recovery.DecodePromise(value)
		c.promises[p.ID] = p
		if p.TimeoutAt == state.Never && p.State == recovery.PromisePending {
			c.timers[p.ID] = p.TimeoutAt // the index leaves it out
		}
		return err
	case keys.Task:
		t, err := recovery.DecodeTask(value)
		c.tasks[t.ID] = t
		return err
	case keys.Callback:
		return pair(&c.callbacks, key)
	case keys.AwaitedBy:
		return pair(&c.awaitedBy, key)
	case keys.Listener:
		return pair(&c.listeners, key)
	case keys.Notify:
		name, _, err := cut2(key)
		c.notifies = append(c.notifies, name)
		return err
	case keys.Header:
		h, err := state.DecodeHeader(slices.Clone(value))
		if t, ok := h.InlineTask(); err == nil && ok {
			c.tasks[h.ID] = t
		}
		if p, ok := h.InlinePromise(); err == nil && ok {
			c.promises[h.ID] = p
		}
		for _, value := range append(h.InlineEntries(), h.OpenEntries()...) {
			e, bad := journal.DecodeEntry(value)
			err = errors.Join(err, bad)
			c.journals[h.ID] = append(c.journals[h.ID], e)
		}
		return err
	case keys.Journal:
		e, err := journal.DecodeEntry(slices.Clone(value))
		if err != nil {
			return err
		}
		name, _, err := cut2(key)
		c.journals[name] = append(c.journals[name], e)
		return err
	case keys.Ready:
		_, rest, err := cut2(key)
		if err != nil {
			return err
		}
		at, rest, err := keys.CutUint64(rest)
		if err != nil {
			return err
		}
		name, _, err := keys.CutString(rest)
		c.ready[name] = struct{}{}
		if state.RetryInPlace(value) {
			c.taskTimer = append(c.taskTimer, recovery.TaskTimer{ID: name, Kind: recovery.RetryTimer, At: int64(at)})
		}
		return err
	case keys.Deadline:
		kind, at, _, name, err := keys.ParseDeadline(key)
		switch kind {
		case keys.DeadlinePromise:
			c.timers[name] = at
		case keys.DeadlineLease:
			c.taskTimer = append(c.taskTimer, recovery.TaskTimer{ID: name, Kind: recovery.LeaseTimer, At: at})
		case keys.DeadlineRetry:
			c.taskTimer = append(c.taskTimer, recovery.TaskTimer{ID: name, Kind: recovery.RetryTimer, At: at})
		}
		return err
	}
	return nil
}

// cut2 answers the second string of a key and what follows it.
func cut2(key []byte) (second string, rest []byte, err error) {
	if _, rest, err = keys.CutString(key[1:]); err != nil {
		return "", nil, err
	}
	return keys.CutString(rest)
}

func pair(list *[][2]string, key []byte) error {
	first, rest, err := cut2(key)
	if err != nil {
		return err
	}
	second, _, err := keys.CutString(rest)
	*list = append(*list, [2]string{first, second})
	return err
}

func (c *census) Promise(name string) (recovery.Promise, bool) {
	p, ok := c.promises[name]
	return p, ok
}
func (c *census) Task(name string) (recovery.Task, bool)   { t, ok := c.tasks[name]; return t, ok }
func (c *census) Callbacks(awaited string) []string        { return seconds(c.callbacks, awaited) }
func (c *census) AwaitedBy(awaiter string) []string        { return seconds(c.awaitedBy, awaiter) }
func (c *census) Listeners(name string) []string           { return seconds(c.listeners, name) }
func (c *census) Notifies(name string) bool                { return slices.Contains(c.notifies, name) }
func (c *census) Promises() iter.Seq[recovery.Promise]     { return ordered(c.promises) }
func (c *census) Tasks() iter.Seq[recovery.Task]           { return ordered(c.tasks) }
func (c *census) AllCallbacks() iter.Seq2[string, string]  { return pairs(c.callbacks) }
func (c *census) AllAwaitedBy() iter.Seq2[string, string]  { return pairs(c.awaitedBy) }
func (c *census) AllListeners() iter.Seq2[string, string]  { return pairs(c.listeners) }
func (c *census) TaskTimers() iter.Seq[recovery.TaskTimer] { return slices.Values(c.taskTimer) }

func (c *census) PromiseTimers() iter.Seq2[string, int64] {
	return func(yield func(string, int64) bool) {
		for _, k := range slices.Sorted(maps.Keys(c.timers)) {
			if !yield(k, c.timers[k]) {
				return
			}
		}
	}
}

// seconds relies on the pairs being in the order of the keys, which is by the first.
func seconds(list [][2]string, first string) (out []string) {
	at, _ := slices.BinarySearchFunc(list, first, func(p [2]string, f string) int { return strings.Compare(p[0], f) })
	for ; at < len(list) && list[at][0] == first; at++ {
		out = append(out, list[at][1])
	}
	return out
}

func ordered[V any](m map[string]V) iter.Seq[V] {
	return func(yield func(V) bool) {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			if !yield(m[k]) {
				return
			}
		}
	}
}

func pairs(list [][2]string) iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, p := range list {
			if !yield(p[0], p[1]) {
				return
			}
		}
	}
}
