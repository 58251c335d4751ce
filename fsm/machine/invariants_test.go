package machine

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/recovery"
)

// The machine checks what each command touched against the thirteen invariants of the recovery protocol. It refuses
// the transaction by the invariant's name, before anything is stored.
func TestEveryInvariantIsCheckedOfWhatACommandTouches(t *testing.T) {
	_, home, name := garden(t)
	plain := func(id string) recovery.Promise {
		return recovery.Promise{ID: id, Incarnation: 1, State: recovery.PromisePending, External: true, TimeoutAt: state.Never, CreatedAt: 5}
	}
	putPromise := func(x *txn, p recovery.Promise) {
		x.put(keys.Of(keys.Promise, ns, p.ID), recovery.AppendPromise(nil, p))
	}
	putTask := func(x *txn, task recovery.Task) {
		x.put(keys.Of(keys.Task, ns, task.ID), recovery.AppendTask(nil, task))
	}
	promise := func(x *txn, id string, change func(*recovery.Promise)) {
		p, _ := x.store(ns).Promise(name(id))
		change(&p)
		putPromise(x, p)
		x.forgetLast()
	}
	task := func(x *txn, id string, change func(*recovery.Task)) {
		found, _ := x.store(ns).Task(name(id))
		change(&found)
		putTask(x, found)
		x.forgetLast()
	}
	for rule, change := range map[string]func(x *txn){
		recovery.OrphanInvokes: func(x *txn) {
			p := plain("new")
			p.Target, p.External = "f", false
			putPromise(x, p)
		},
		recovery.MissingPromiseTimeout: func(x *txn) {
			p := plain("new")
			p.TimeoutAt = 1_000_000_000
			putPromise(x, p)
		},
		recovery.StalePromiseTimeout: func(x *txn) { x.put(keys.DeadlineOf(keys.DeadlinePromise, 1_000_000_000, ns, name("done")), []byte{}) },
		recovery.TimedoutSettledAtMismatch: func(x *txn) {
			p := plain("new")
			p.State, p.TimeoutAt, p.SettledAt = recovery.PromiseRejectedTimedout, 100, 90
			putPromise(x, p)
		},
		recovery.ListenerForSettledPromise: func(x *txn) { x.put(keys.Of(keys.Listener, ns, name("done"), "somebody"), []byte{}) },
		recovery.OrphanTasks: func(x *txn) {
			putTask(x, recovery.Task{ID: "new", Incarnation: 1, State: recovery.TaskHalted, Target: "f"})
		},
		recovery.PendingTaskNoTimeout: func(x *txn) {
			task(x, "waiting", func(task *recovery.Task) { task.RetryAt++ })
		},
		recovery.AcquiredTaskNoLease: func(x *txn) {
			task(x, "working", func(task *recovery.Task) { task.LeaseAt++ })
		},
		recovery.SuspendedNoCallback: func(x *txn) {
			p, _ := x.store(ns).Promise(name("sleeping") + ":0")
			p.State, p.SettledAt = recovery.PromiseResolved, p.CreatedAt
			x.store(ns).PutPromise(p)
		},
		recovery.SuspendedWithConsumedCallback: func(x *txn) {
			task(x, "sleeping", func(task *recovery.Task) { task.Resumes = []string{"some"} })
		},
		recovery.SuspendedTaskHasTimeout: func(x *txn) {
			x.put(keys.DeadlineOf(keys.DeadlineLease, 1_000_000_000, ns, name("sleeping")), []byte{})
		},
		recovery.FulfilledTaskHasTimeout: func(x *txn) { x.put(keys.DeadlineOf(keys.DeadlineRetry, 1_000_000_000, ns, name("done")), []byte{}) },
		recovery.CallbackAwaiterNoTarget: func(x *txn) {
			putPromise(x, plain("other"))
			x.store(ns).AddCallback(name("sleeping")+":0", "other")
		},
		// The rules other than the thirteen.
		recovery.SettledNotFulfilled: func(x *txn) {
			task(x, "done", func(task *recovery.Task) { task.State = recovery.TaskHalted })
		},
		recovery.PromiseTimes: func(x *txn) {
			promise(x, "bare", func(p *recovery.Promise) { p.SettledAt = 7 })
		},
		recovery.CallbackIndex:            func(x *txn) { x.put(keys.Of(keys.AwaitedBy, ns, name("asking"), name("bare")), []byte{}) },
		recovery.CallbackOfSettledAwaiter: func(x *txn) { x.store(ns).AddCallback(name("sleeping")+":0", name("done")) },
	} {
		m, err := New(home.cfg, home.state)
		if err != nil {
			t.Fatal(err)
		}
		x := m.txn
		x.begin(home.index + 1)
		if err := x.checkInvariants(); err != nil {
			t.Fatalf("before anything was changed: %v", err)
		}
		change(x)
		var broken *audit.InvariantError
		if err := x.commitChecked(&Effects{}); !errors.As(err, &broken) || broken.Rule != rule || broken.Namespace != ns || broken.ID == "" {
			t.Errorf("%s: %v", rule, err)
		}
		if writes := m.Writes(); len(writes) > 0 {
			t.Errorf("%s: %d writes are handed on", rule, len(writes))
		}
		x.abort()
	}
}

// The cost of the check does not grow with what an execution waits for.
func TestInvariantsOfAWideWait(t *testing.T) {
	w := newWorld(t, 1)
	w.unaudited = true
	const children = 300
	text := ""
	on := ""
	for n := range children {
		text += "child g; "
		on += fmt.Sprintf(",%d", n)
	}
	w.do(startCmd(w.request(), "e", "f", "in"))
	w.commit(w.only("w1", "f"), text+"any "+on[1:])
	p := w.parts[0]
	reads := &keyCounter{Reader: p.state}
	m, err := New(p.cfg, reads)
	if err != nil {
		t.Fatal(err)
	}
	m.txn.begin(p.index + 1)
	settled, _ := m.txn.store(ns).Promise("e:7")
	settled.State, settled.SettledAt = recovery.PromiseResolved, settled.CreatedAt
	m.txn.store(ns).PutPromise(settled)
	task, _ := m.txn.store(ns).Task("e:7")
	task.State, task.RetryAt = recovery.TaskFulfilled, 0
	m.txn.store(ns).PutTask(task)
	reads.keys = 0
	if err := m.txn.checkWritten(); err != nil {
		t.Fatal(err)
	}
	if reads.keys > 32 {
		t.Errorf("%d keys are read", reads.keys)
	}
}

// graves is a state that counts how many removed keys its scans walk over, as a store on disk does until it
// is compacted.
type graves struct {
	*state.MemReader
	gone   []string // in order
	walked int
}

func (g *graves) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	last := upper
	err := g.MemReader.Scan(lower, upper, func(key, value []byte) bool {
		more := fn(key, value)
		if !more {
			last = bytes.Clone(key)
		}
		return more
	})
	at := func(key []byte) int { n, _ := slices.BinarySearch(g.gone, string(key)); return n }
	g.walked += max(at(last)-at(lower), 0)
	return err
}

// The cost of the check does not grow with what an execution has waited for: neither when it waits for one child after
// the other, nor when it waits for all.
func TestInvariantsAfterManyWaits(t *testing.T) {
	const children = 200
	name := func(n int) string { return fmt.Sprintf("e:%d", n) }
	for _, c := range []struct {
		what string
		all  bool
	}{{"one after the other", false}, {"all at once", true}} {
		walked := map[bool]int{}
		for _, checks := range []bool{false, true} {
			g := &graves{MemReader: state.NewMemReader()}
			m, err := New(Config{Partitions: 1, CheckInvariants: checks}, g)
			if err != nil {
				t.Fatal(err)
			}
			index := uint64(0)
			apply := func(cmd *commandv1.Command, grants ...*commandv1.Grant) []Assignment {
				t.Helper()
				index++
				res, err := m.Apply(index, &commandv1.Entry{TimeMs: int64(1_000_000 + index), Commands: []*commandv1.Command{cmd}, Grants: grants})
				if err != nil {
					t.Fatal(err)
				}
				if err := wire.ReplyError(res.Replies[0]); err != nil {
					t.Fatal(err)
				}
				for _, w := range m.Writes() {
					if at, there := slices.BinarySearch(g.gone, string(w.Key)); w.Value == nil && !there {
						g.gone = slices.Insert(g.gone, at, string(w.Key))
					}
				}
				g.Apply(m.Writes())
				m.Committed()
				return res.Effects.Assigned
			}
			commit := func(token *perdurev1.TaskToken, next, known int, events ...*perdurev1.Event) *commandv1.Command {
				return wrapCommit(fmt.Appendf(nil, "commit-%s-%d", token.Id, next), &perdurev1.Commit{Task: token, NextChild: uint32(next), KnownSeq: uint64(known), Events: events})
			}
			ask := func(n int) *perdurev1.Event {
				return scheduled(name(n), perdurev1.InvokeKind_INVOKE_KIND_FUNCTION, "child", "in", "attempts=1")
			}
			parent := apply(startCmd([]byte("start"), "e", "parent", "in"), credit("parent")...)[0].Token
			if c.all {
				var events []*perdurev1.Event
				var on []string
				for n := range children {
					events, on = append(events, ask(n)), append(on, name(n))
				}
				many := credit("child")
				many[0].Credit = children
				for _, a := range apply(commit(parent, 0, 1, append(events, awaiting(perdurev1.AwaitKind_AWAIT_KIND_ALL, "", on...))...), many...) {
					apply(commit(a.Token, 0, 1, returning("1")))
				}
			} else {
				for n := range children {
					child := apply(commit(parent, n, 1+5*n, ask(n), awaiting(perdurev1.AwaitKind_AWAIT_KIND_SINGLE, "", name(n))), credit("child")...)[0].Token
					parent = apply(commit(child, 0, 1, returning("1")), credit("parent")...)[0].Token
				}
			}
			walked[checks] = g.walked
		}
		if more := walked[true] - walked[false]; more > 4*children {
			t.Errorf("%s: the checks of %d children walk over %d keys that are gone", c.what, children, more)
		}
	}
}

// keyCounter counts what is read.
type keyCounter struct {
	state.Reader
	keys int
}

func (c *keyCounter) Get(key []byte) ([]byte, bool, error) {
	c.keys++
	return c.Reader.Get(key)
}

func (c *keyCounter) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	return c.Reader.Scan(lower, upper, func(key, value []byte) bool {
		c.keys++
		return fn(key, value)
	})
}
