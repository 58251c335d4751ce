package credit

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
)

var events = flag.Int("credit.events", 200_000, "the events of TestWalk")

// A walk is a ledger among all that it deals with: a worker, holders of its credit, and messages between
// them, which are lost, doubled and overtaken.
type walk struct {
	t    *testing.T
	rng  *rand.Rand
	now  int64
	l    *Ledger
	seen int
	wake int64
	last []any // what happened last, the newest last

	holders []*holder
	tasks   int
	queue   []Task // to be sent to the worker
	// The worker: what it can take, what it works on, and what it believes to have announced.
	slots    int
	busy     []Task
	believed int
	// excess counts the tasks that came without credit, or with credit that a damaged message has made.
	excess int
}

// A holder is a node's session with the worker.
type holder struct {
	name     Link
	open     bool
	share    Share
	entries  []int // what each entry under way has reserved
	wants    bool
	revoking int
	up, down []message
	// damaged: messages were lost, doubled or overtaken since the link opened.
	damaged bool
	// assigned are tasks that an entry acquired when the session was over; they are delivered again.
	assigned []Task
}

type message struct {
	grant, revoke int
	down          Event
	grants        bool // it represents a unit that the ledger counts with the link
}

const capacity = 12

func newWalk(t *testing.T, seed uint64) *walk {
	w := &walk{t: t, rng: rand.New(rand.NewPCG(seed, 1)), slots: 1 + int(seed)%capacity, l: New(Config{SilentAfter: 500, Rest: 20}, 0)}
	names := []Link{Home, "a", "b", "c"}
	if seed%3 == 2 {
		names = names[1:] // the worker itself splits its capacity
	}
	for _, name := range names {
		w.holders = append(w.holders, &holder{name: name})
	}
	return w
}

func (w *walk) step(e Event) {
	w.seen++
	if w.last = append(w.last, e); len(w.last) > 1000 {
		w.last = append(w.last[:0], w.last[len(w.last)-50:]...)
	}
	for _, a := range w.l.Step(w.now, e) {
		w.last = append(w.last, a)
		switch a := a.(type) {
		case Grant:
			if w.l.silent(w.now) {
				w.fail("a silent worker gets %d units", a.N)
			}
			w.of(a.Link).up = append(w.of(a.Link).up, message{grant: a.N})
		case Revoke:
			w.of(a.Link).up = append(w.of(a.Link).up, message{revoke: a.N})
		case Wake:
			if a.At < w.now {
				w.fail("wake at %d", a.At)
			}
			w.wake = a.At
		}
	}
	w.check()
}

func (w *walk) of(name Link) *holder {
	for _, h := range w.holders {
		if h.name == name {
			return h
		}
	}
	panic(name)
}

func (w *walk) fail(format string, args ...any) {
	w.t.Helper()
	for _, e := range w.last[max(0, len(w.last)-50):] {
		w.t.Logf("%#v", e)
	}
	w.t.Fatalf("event %d: %s", w.seen, fmt.Sprintf(format, args...))
}

// check checks every inequality, and that an undamaged link's credit is where the ledger thinks: on its way, with its
// holder, or used by a task that is on its way back.
func (w *walk) check() {
	if err := w.l.Check(); err != nil {
		w.fail("%v", err)
	}
	for _, h := range w.holders {
		if err := h.share.Check(); err != nil {
			w.fail("%v", err)
		}
		if !h.open || h.damaged {
			continue
		}
		n := h.share.Granted()
		for _, m := range h.up {
			n += m.grant
		}
		for _, m := range h.down {
			if r, ok := m.down.(Returned); ok {
				n += r.N
			} else if m.grants {
				n++
			}
		}
		if n != w.l.Granted(h.name) {
			w.fail("link %q: %d units are somewhere, the ledger has %d", h.name, n, w.l.Granted(h.name))
		}
	}
	if len(w.busy) > w.slots+w.excess {
		w.fail("the worker has %d tasks, it has announced %d", len(w.busy), w.slots)
	}
}

// damage loses, doubles or overtakes a message of a link.
func (w *walk) damage(h *holder) {
	box := &h.up
	if w.rng.IntN(2) == 0 {
		box = &h.down
	}
	if !h.open || len(*box) == 0 {
		return
	}
	k := w.rng.IntN(len(*box))
	h.damaged = true
	switch w.rng.IntN(3) {
	case 0:
		*box = append((*box)[:k], (*box)[k+1:]...)
	case 1:
		*box = append(*box, (*box)[k])
		w.excess += (*box)[k].grant // its holder spends credit that was never announced
	case 2:
		j := w.rng.IntN(len(*box))
		(*box)[k], (*box)[j] = (*box)[j], (*box)[k]
	}
	// A task may now use credit that the ledger has taken back already.
	w.excess += capacity
}

// act is one thing that happens.
func (w *walk) act(damages bool) {
	h := w.holders[w.rng.IntN(len(w.holders))]
	switch w.rng.IntN(20) {
	case 0, 1, 2:
		w.arriveUp(h)
	case 3, 4, 5:
		w.arriveDown(h)
	case 6, 7, 8:
		if h.open {
			if n := h.share.Reserve((h.share.Free() + 1) / 2); n > 0 {
				h.entries = append(h.entries, n)
			}
		}
	case 9, 10, 11:
		w.applied(h)
	case 12:
		w.send()
	case 13:
		w.finish()
	case 14:
		if h.open && w.rng.IntN(4) == 0 {
			h.wants = !h.wants
			h.down = append(h.down, message{down: Wants{h.name, h.wants}})
		}
	case 15:
		w.now += int64(w.rng.IntN(40))
		if w.rng.IntN(50) == 0 {
			w.now += 500 // the worker hangs
		}
		if w.wake > 0 && w.now >= w.wake {
			w.wake = 0
			w.step(Tick{})
		}
		if w.rng.IntN(3) == 0 {
			w.step(Heard{})
		}
	case 16:
		if w.rng.IntN(30) == 0 {
			w.lose(h)
		} else if !h.open {
			w.open(h)
		}
	case 17:
		w.resend(h)
	case 18:
		w.step(Leads{h.name, w.rng.IntN(3) > 0})
	case 19:
		if damages && w.rng.IntN(4) == 0 {
			w.damage(h)
		}
	}
}

func (w *walk) open(h *holder) {
	*h = holder{name: h.name, open: true, assigned: h.assigned, entries: h.entries[:0]}
	w.step(LinkOpened{h.name, w.rng.IntN(3) > 0, 1 + w.rng.IntN(4)})
}

// lose ends a link. Entries that are under way may acquire tasks still.
func (w *walk) lose(h *holder) {
	for _, n := range h.entries {
		for range w.rng.IntN(n + 1) {
			w.tasks++
			h.assigned = append(h.assigned, w.task())
		}
	}
	for _, m := range h.down {
		if a, ok := m.down.(Assigned); ok {
			h.assigned = append(h.assigned, a.Task)
		}
	}
	*h = holder{name: h.name, assigned: h.assigned}
	w.step(LinkLost{h.name})
}

func (w *walk) task() Task {
	// Executions come back in later versions.
	return Task{Namespace: "ns", ID: fmt.Sprint(w.tasks % 997), Incarnation: 1, Version: uint64(w.tasks)}
}

// resend delivers a task again: one that a lost link has left, or one that was delivered already.
func (w *walk) resend(h *holder) {
	if !h.open {
		return
	}
	var t Task
	switch {
	case len(h.assigned) > 0:
		t, h.assigned = h.assigned[0], h.assigned[1:]
	case len(w.busy) > 0 && w.rng.IntN(4) == 0:
		t = w.busy[w.rng.IntN(len(w.busy))]
	case len(w.queue) > 0 && w.rng.IntN(4) == 0:
		t = w.queue[w.rng.IntN(len(w.queue))]
	default:
		return
	}
	h.down = append(h.down, message{down: Resent{t}})
}

func (w *walk) arriveUp(h *holder) {
	if !h.open || len(h.up) == 0 {
		return
	}
	m := h.up[0]
	h.up = h.up[1:]
	h.share.Grant(m.grant)
	h.revoking += m.revoke
	h.answer()
}

// answer answers a revocation once there is credit that no entry has reserved, or none at all.
func (h *holder) answer() {
	if h.revoking > 0 && (h.share.Free() > 0 || h.share.Granted() == 0) {
		h.down = append(h.down, message{down: Returned{h.name, h.share.Withdraw(h.revoking)}})
		h.revoking = 0
	}
}

func (w *walk) arriveDown(h *holder) {
	if !h.open || len(h.down) == 0 {
		return
	}
	m := h.down[0]
	h.down = h.down[1:]
	w.take(m.down)
}

// take gives the ledger an event, and queues the task that it brings for the first time.
func (w *walk) take(e Event) {
	var t Task
	switch e := e.(type) {
	case Assigned:
		t = e.Task
	case Resent:
		t = e.Task
	}
	if (t == Task{} || w.l.Holds(t)) {
		w.step(e)
		return
	}
	announced, over := w.l.Announced(), w.l.Overcommitted()
	w.step(e)
	w.queue = append(w.queue, t)
	if took := announced - w.l.Announced() + w.l.Overcommitted() - over; took < 1 {
		w.excess += 1 - took // the worker has announced less than it has
	}
}

// applied resolves a holder's entry: it has acquired tasks, or it did not happen.
func (w *walk) applied(h *holder) {
	if !h.open || len(h.entries) == 0 {
		return
	}
	n := h.entries[0]
	h.entries = h.entries[1:]
	h.share.Release(n)
	for range w.rng.IntN(n + 1) {
		h.share.Use()
		w.tasks++
		m := message{down: Assigned{h.name, w.task()}, grants: true}
		if w.rng.IntN(20) == 0 {
			m.down = Dropped{h.name} // a later leader's term is known
		}
		h.down = append(h.down, m)
	}
	h.answer()
}

// send sends the worker its next task, or finds that the task is over.
func (w *walk) send() {
	if len(w.queue) == 0 {
		return
	}
	t := w.queue[0]
	w.queue = w.queue[1:]
	if w.rng.IntN(10) == 0 {
		before, by := w.l.Announced(), w.l.queued[t]
		w.step(Undelivered{t})
		if back := w.l.Announced() - before; by == covered && back > 1 || by == uncovered && back > 0 {
			w.fail("%v gives back %d units", t, back)
		}
		return
	}
	w.busy = append(w.busy, t)
	w.believed = max(w.believed-1, 0)
	w.step(Begun{t})
}

// finish has the worker finish a task and announce the capacity that its node does not know of.
func (w *walk) finish() {
	if len(w.busy) > 0 {
		k := w.rng.IntN(len(w.busy))
		t := w.busy[k]
		w.busy = append(w.busy[:k], w.busy[k+1:]...)
		w.step(Finished{t})
	}
	w.step(Heard{})
	n := w.slots - len(w.busy) - w.believed
	if n <= 0 {
		return
	}
	w.believed += n
	if h := w.holders[w.rng.IntN(len(w.holders))]; h.open && w.l.MayExtend() && w.rng.IntN(4) == 0 {
		h.up = append(h.up, message{grant: n}) // the worker's last message to that node has granted it
		w.step(Extended{h.name, n})
		return
	}
	w.step(Announced{n})
}

// drain lets all come to rest: no entry, no message and no task is left.
func (w *walk) drain() {
	for {
		w.step(Heard{})
		rest := true
		for _, h := range w.holders {
			for len(h.up)+len(h.down)+len(h.entries) > 0 && h.open {
				rest = false
				w.arriveUp(h)
				w.applied(h)
				w.arriveDown(h)
			}
		}
		for len(w.queue) > 0 {
			w.send()
			rest = false
		}
		for len(w.busy) > 0 {
			w.finish()
			rest = false
		}
		w.finish()
		if rest && w.l.Overcommitted() == 0 {
			return
		}
		// Credit that no message can revoke any more comes back with its link.
		for _, h := range w.holders {
			if h.open && w.l.Overcommitted() > 0 && h.damaged {
				w.lose(h)
			}
		}
	}
}

// TestWalk lets a ledger go through random events, with messages that are lost, doubled and overtaken in every second
// walk. Whatever comes, its inequalities hold after each event; and when all has come to rest the worker has at least
// the capacity that it announced, and not more than the tasks that came without credit explain.
func TestWalk(t *testing.T) {
	seen := 0
	for seed := uint64(0); seen < *events; seed++ {
		damages := seed%2 == 1
		w := newWalk(t, seed)
		w.finish()
		for w.seen < 2000 {
			w.act(damages)
		}
		w.drain()
		if have := w.l.Announced(); have < w.slots || have > w.slots+w.excess {
			w.fail("seed %d: %d units are left of %d, %d tasks came without credit", seed, have, w.slots, w.excess)
		}
		seen += w.seen
	}
	t.Logf("%d events", seen)
}
