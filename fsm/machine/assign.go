package machine

import (
	"cmp"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/recovery"
)

// applyAssign does nothing: the command carries an entry's grants when the leader has nothing else to
// propose.
func applyAssign(*txn, *commandv1.Command) (*commandv1.Reply, *api.Error) {
	return &commandv1.Reply{Kind: &commandv1.Reply_Assign{Assign: &commandv1.AssignReply{}}}, nil
}

// receiver is a grant with the credit that this entry has not used.
type receiver struct {
	*commandv1.Grant
	credit int
	hash   uint64
}

// assign gives pending tasks to the entry's grants: see waiting.
func (t *txn) assign(grants []*commandv1.Grant) {
	defer t.m.reads.forgetAhead()
	for len(grants) > 0 {
		var group []*receiver
		credit := 0
		group, grants = t.alike(grants)
		for _, r := range group {
			credit += r.credit
		}
		if credit == 0 {
			continue
		}
		o := group[0].Grant
		tasks := t.waiting(o, credit)
		for i, w := range tasks {
			t.tasksAhead(o.Namespace, tasks, i)
			task, ok := t.store(o.Namespace).Task(w.id)
			if !ok {
				continue
			}
			t.place = lastPlace{ns: o.Namespace, target: w.target, id: w.id, order: w.order, timed: w.timed, known: true}
			// The task's expirations run first; they may end it.
			t.runExpirations(o.Namespace, w.id)
			r := preferred(group, w.id)
			held, err := recovery.Acquire(t.store(o.Namespace), t.now, recovery.TaskRef{
				ID: w.id, Incarnation: task.Incarnation, Version: task.Version,
			}, r.Worker, r.LeaseMs)
			if err != nil {
				continue
			}
			r.credit--
			assigned := Assignment{Worker: r.Worker, Function: w.function, Token: wire.Token(o.Namespace, held.Task)}
			if held.Task.Version == 1 {
				t.firstAcquired(o.Namespace, w.id)
				assigned.First = t.first(o.Namespace, w.id)
			} else {
				assigned.First = t.afterWait(o.Namespace, w.id)
			}
			t.fx.Assigned = append(t.fx.Assigned, assigned)
		}
		// Unused capacity does not imply an empty queue: a picked task may have ended.
		for _, q := range t.queuesOf(o) {
			if t.pending(q) > 0 {
				t.fx.Ready = append(t.fx.Ready, q)
			}
		}
	}
	t.deliverPosted()
	// A task's expirations may have ended the graph run of a task assigned before it.
	t.fx.Assigned = slices.DeleteFunc(t.fx.Assigned, func(a Assignment) bool {
		task, ok := t.store(a.Token.Namespace).Task(a.Token.Id)
		return !ok || task.State != recovery.TaskAcquired || task.Incarnation != a.Token.Incarnation || task.Version != a.Token.Version
	})
}

// alike takes the first grant out, and those that serve the same queues. A grant that nothing can be assigned to has no
// credit.
func (t *txn) alike(grants []*commandv1.Grant) (group []*receiver, others []*commandv1.Grant) {
	first := grants[0]
	for i, o := range grants {
		if i > 0 && (t.m.feature < state.LevelFunctions || o.Namespace != first.Namespace ||
			!slices.Equal(o.Functions, first.Functions) || !slices.Equal(o.Digests, first.Digests)) {
			others = append(others, o)
			continue
		}
		r := &receiver{Grant: o, hash: xxhash.Sum64String(o.Worker)}
		if o.Worker != "" && o.LeaseMs >= 1 {
			r.credit = int(o.Credit)
		}
		group = append(group, r)
	}
	return group, others
}

// preferred returns the receiver of a task among those with credit. While the same workers have credit, an execution's
// tasks go to the same one, which may have its function in memory (rendezvous hashing).
func preferred(group []*receiver, id string) (best *receiver) {
	if len(group) == 1 {
		return group[0]
	}
	task, most := xxhash.Sum64String(id), uint64(0)
	for _, r := range group {
		rank := r.hash ^ task
		rank = (rank ^ rank>>32) * 0x9e3779b97f4a7c15
		if r.credit > 0 && (best == nil || rank > most) {
			best, most = r, rank
		}
	}
	return best
}

// pending is how many tasks wait in a queue, as of now.
func (t *txn) pending(q state.Queue) int {
	n := t.m.ready[q]
	for _, c := range t.ready {
		if c.queue == q {
			n += c.by
		}
	}
	return n
}

type waiting struct {
	order                int64
	function, target, id string
	timed                bool // see lastPlace
	turn                 int  // see inTurns
}

// waiting lists pending tasks of a grant's functions, up to its capacity: oldest first, and in turns among functions if
// not all fit.
func (t *txn) waiting(o *commandv1.Grant, credit int) []waiting {
	var all []waiting
	for _, q := range t.queuesOf(o) {
		if t.pending(q) <= 0 {
			continue
		}
		target, n := q.Target(), 0
		prefix := keys.Of(keys.Ready, o.Namespace, target)
		all = slices.Grow(all, min(t.pending(q), credit))
		t.scanQueue(q, prefix, func(key, value []byte) bool {
			order, taskID, err := keys.ParseReady(key, prefix)
			if err != nil {
				state.PanicCorrupt("place in a queue", key, err)
			}
			if n == 0 {
				t.m.head[q] = order
			}
			all = append(all, waiting{order: order, function: q.Function, target: target, id: taskID, timed: state.RetryInPlace(value)})
			n++
			return n < credit
		})
	}
	slices.SortFunc(all, func(a, b waiting) int {
		switch {
		case a.order != b.order:
			return int(min(max(a.order-b.order, -1), 1))
		case a.function != b.function:
			return strings.Compare(a.function, b.function)
		}
		return strings.Compare(a.id, b.id)
	})
	all = slices.Compact(all) // a grant may name a function twice
	if len(all) > credit && t.m.feature >= state.LevelFunctions {
		inTurns(all, credit, t.index)
	}
	return all[:min(len(all), credit)]
}

// scanQueue visits the places in a queue from its head on, until fn returns false. If the batch has as many as there are
// in all, it does not read the state: most tasks are assigned in the entry in which they become pending, or soon after.
func (t *txn) scanQueue(q state.Queue, prefix []byte, fn func(key, value []byte) bool) {
	from, to := keys.AppendUint64(prefix[:len(prefix):len(prefix)], uint64(t.m.head[q])), keys.After(prefix)
	if n := t.pending(q); n <= len(t.m.batch.families[keys.Ready].writes) {
		places := t.m.places[:0]
		for _, w := range t.m.batch.span(byte(keys.Ready), from, to) {
			if w.removed || w.void {
				continue
			}
			if own := t.find(w.key); own == nil || !own.removed {
				places = append(places, w)
			}
		}
		t.m.places = places
		if len(places) == n {
			for _, w := range places {
				if !fn(w.key, w.content()) {
					break
				}
			}
			clear(places)
			return
		}
		clear(places)
	}
	t.scan(from, to, fn)
}

// inTurns orders tasks, which are sorted by age, by functions: the oldest of each function, then the second of each. If
// there is less credit than there are functions, every second entry begins with another function, so that one with many
// old tasks does not keep the others waiting.
func inTurns(all []waiting, credit int, index uint64) {
	var functions []string
	seen := map[string]int{}
	for i := range all {
		w := &all[i]
		if seen[w.function] == 0 {
			functions = append(functions, w.function)
		}
		w.turn = seen[w.function]
		seen[w.function]++
	}
	place := map[string]int{} // within a turn, if not by age
	if credit < len(functions) && index%2 == 0 {
		slices.Sort(functions)
		for i, fn := range functions {
			place[fn] = (i + int(index/2%uint64(len(functions)))) % len(functions)
		}
	}
	slices.SortStableFunc(all, func(a, b waiting) int {
		return cmp.Or(cmp.Compare(a.turn, b.turn), cmp.Compare(place[a.function], place[b.function]))
	})
}
