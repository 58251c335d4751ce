package machine

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/audit"
	"perdure/fsm/query"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/id"
	"perdure/internal/testkit"
	"perdure/journal"
	"perdure/recovery"
)

// fullState is a state with something of every kind in it, and commands that touch all of it.
func fullState(t *testing.T) (w *world, touch []*commandv1.Command, ids []string) {
	w = newWorldAt(t, state.LevelPromise, 2)
	v := w.begin("e", "f")
	home := w.at("e")
	// A message from the other partition, received already.
	far := w.begin(apart(w, "e"), "f")
	w.commit(far, "signal e t x")
	w.ship()
	w.commit(v, "step a -> 1; child g; intent s policy=attempts=3; sleep 5000; random r; time 7; set; submit 6 1; any 1,3")
	child := w.takeFrom(home, grant("w2", 1, "g"))[0]
	w.commit(child, "wait s timeout=4000")
	for _, p := range w.parts {
		w.raise(p, state.FeatureLevel) // the journals so far are rows, the next ones are in headers
	}
	spread := startCmd(w.request(), near(w, home, "s"), "f", "")
	w.do(spread)
	other := w.takeFrom(home, grant("w3", 1, "f"))[0]
	w.commit(other, strings.Repeat("child h spread; ", 8)+"step x")
	signal := signalCmd(w.request(), "e", "s", "x")
	w.do(signal)
	w.do(createPromiseCmd(near(w, home, "p"), 60_000))
	w.do(cancelCmd(other.token.Id, "why", 50_000))
	ended := startCmd(w.request(), near(w, home, "d"), "f", "in")
	w.do(ended)
	w.commit(w.takeFrom(home, grant("w4", 1, "f"))[0], "step z; return done")
	w.do(startCmd(w.request(), near(w, home, "m"), "f", ""))
	sender := w.takeFrom(home, grant("w5", 1, "f"))[0]
	touch = []*commandv1.Command{
		w.commitCmd(sender, "signal "+apart(w, "e")+" s x"), w.deliverCmd(int(1-home.cfg.Partition), int(home.cfg.Partition), 1),
		signal, signalCmd([]byte("new"), "e", "s", "y"), signalCmd(nil, "e:1", "s", "y"), ended, spread,
		w.commitCmd(other, "done 0#1 -> x; cancelled ok"), heartbeatCmd("w3", other.token),
		createPromiseCmd(near(w, home, "p"), 1), settlePromiseCmd(near(w, home, "p"), resolve, "v"),
		startCmd(nil, "e", "f", "in"), cancelCmd("e:1", "", 10), terminateCmd("e", ""), assignCmd(),
	}
	return w, touch, slices.Sorted(maps.Keys(takeCensus(home.state).promises))
}

// near is an id that begins so and lives in a partition.
func near(w *world, p *part, prefix string) string {
	for i := 0; ; i++ {
		if objectID := fmt.Sprint(prefix, i); w.at(objectID) == p {
			return objectID
		}
	}
}

// tidy notices a scan that was left by a panic: a real Reader would have kept something open.
type tidy struct {
	state.Reader
	open int
}

func (t *tidy) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	t.open++
	err := t.Reader.Scan(lower, upper, fn)
	t.open--
	return err
}

// probe opens a machine over a state, applies commands now and ticks later, and reads everything; at an
// even time the commands come first. It returns the first error; a panic is the test's failure.
func probe(below *state.MemReader, cfg Config, ids []string, index uint64, now int64, cmds []*commandv1.Command) error {
	cfg.CheckInvariants = false
	st := &tidy{Reader: below}
	defer func() {
		if st.open != 0 {
			panic("a scan was left open")
		}
	}()
	m, err := New(cfg, st)
	if err != nil {
		return err
	}
	if now%2 == 0 {
		if err := probeCommands(m, index, now, cmds); err != nil {
			return err
		}
		cmds = nil
	}
	for _, objectID := range ids {
		for _, q := range []*commandv1.Query{
			{Kind: &commandv1.Query_Describe{Describe: &perdurev1.DescribeRequest{}}},
			{Kind: &commandv1.Query_Promise{Promise: &perdurev1.GetPromiseRequest{}}},
			{Kind: &commandv1.Query_Journal{Journal: &perdurev1.JournalRequest{}}},
			{Kind: &commandv1.Query_Result{Result: &perdurev1.ResultRequest{}}},
			{Kind: &commandv1.Query_Task{Task: &commandv1.TaskQuery{Incarnation: 1, Version: 1}}},
			{Kind: &commandv1.Query_List{List: &perdurev1.ListRequest{}}},
			{Kind: &commandv1.Query_Held{Held: &commandv1.HeldQuery{}}},
		} {
			q.Namespace, q.Id = ns, objectID
			if _, err := query.Answer(st, 0, q); err != nil {
				return err
			}
		}
	}
	if _, _, err := query.NextExpiration(st); err != nil {
		return err
	}
	if _, _, err := query.Outgoing(st, 1-cfg.Partition, state.Channel{}, 100, 1<<30); err != nil {
		return err
	}
	if cmds == nil {
		return nil
	}
	return probeCommands(m, index, now, cmds)
}

func probeCommands(m *Machine, index uint64, now int64, cmds []*commandv1.Command) error {
	for _, cmd := range cmds {
		index++
		if _, err := m.Apply(index, &commandv1.Entry{TimeMs: now, Commands: []*commandv1.Command{cmd}, Grants: []*commandv1.Grant{grant("w9", 9, "f", "g", "h")}}); err != nil {
			return err
		}
	}
	for _, later := range []int64{1, 100_000, retryMS, 2 * retryMS} {
		index++
		if _, err := m.Apply(index, &commandv1.Entry{TimeMs: now + later, Commands: []*commandv1.Command{tickCmd(0)}}); err != nil {
			return err
		}
	}
	return nil
}

// Damage stops the machine with an error that names the damaged value. The machine never panics and never
// continues from an unreadable value. Values are cut, grown, and flipped byte by byte.
func TestDamage(t *testing.T) {
	w, touch, ids := fullState(t)
	p := w.at("e")
	if err := probe(p.state.Clone(), p.cfg, ids, p.index, w.now, touch); err != nil {
		t.Fatalf("undamaged: %v", err)
	}
	families := map[keys.Family]int{}
	var all []state.Write
	_ = p.state.Scan(nil, nil, func(key, value []byte) bool {
		all = append(all, state.Write{Key: bytes.Clone(key), Value: bytes.Clone(value)})
		return true
	})
	flips, noticed := 0, 0
	for _, was := range all {
		family := keys.Family(was.Key[0])
		switch family {
		case keys.Promise, keys.Task, keys.Header, keys.Journal, keys.Channel, keys.Inbox, keys.Reply, keys.Outbox:
		case keys.Meta:
			if string(was.Key[1:]) == state.MetaFeature {
				continue // its own test: TestOpen
			}
		default:
			continue // its value is empty, or only for people
		}
		families[family]++
		now := w.now
		try := func(what string, value []byte) error {
			now++
			st := p.state.Clone()
			st.Apply([]state.Write{{Key: was.Key, Value: value}})
			defer func() {
				if r := recover(); r != nil {
					t.Fatalf("%s of %q: %q became %q: panic: %v", what, was.Key, was.Value, value, r)
				}
			}()
			err := probe(st, p.cfg, ids, p.index, now, touch)
			var damage *state.CorruptError
			var broken *audit.InvariantError
			var rule *journal.Violation
			if family == keys.Meta && err != nil || err != nil && strings.Contains(err.Error(), "invalid UTF-8") {
				return err // a newer feature level, or a text that is none
			}
			if err != nil && !errors.As(err, &damage) && !errors.As(err, &broken) && !errors.As(err, &rule) {
				t.Errorf("%s of %q: stopped with %v (%T)", what, was.Key, err, err)
			}
			return err
		}
		must := func(what string, value []byte) {
			var damage *state.CorruptError
			if err := try(what, value); !errors.As(err, &damage) {
				t.Errorf("%s of %q went unnoticed: %v", what, was.Key, err)
			}
		}
		if family != keys.Outbox && (family != keys.Meta || len(was.Value) == 8) {
			must("cutting", was.Value[:len(was.Value)-1])
			must("growing", append(bytes.Clone(was.Value), 0))
			must("emptying", []byte{})
		}
		for i := range was.Value {
			masks := []byte{0x01, 0x80, 0xff}
			switch {
			case !testkit.Long() && i%4 != len(was.Key)%4:
				continue
			case !testkit.Long() || i >= 16:
				masks = masks[i%3 : i%3+1]
			}
			for _, mask := range masks {
				flipped := bytes.Clone(was.Value)
				flipped[i] ^= mask
				flips++
				if err := try("flipping", flipped); err != nil {
					noticed++
				}
			}
		}
	}
	for _, f := range []keys.Family{keys.Promise, keys.Task, keys.Header, keys.Journal, keys.Channel, keys.Inbox, keys.Reply, keys.Meta, keys.Outbox} {
		if families[f] == 0 {
			t.Errorf("nothing of family %#x was damaged", f)
		}
	}
	t.Logf("%d values, %d flips, %d of them noticed", len(all), flips, noticed)
}

// An entry of a journal that is gone, doubled or exchanged is noticed when the journal is read.
func TestJournalHoles(t *testing.T) {
	w, touch, ids := fullState(t)
	p := w.at("e")
	h := takeCensus(p.state).headers["e"]
	for seq := range h.Events {
		st := p.state.Clone()
		key := keys.JournalEntry(ns, "e", h.Incarnation, seq)
		next := keys.JournalEntry(ns, "e", h.Incarnation, (seq+1)%h.Events)
		value, _, _ := st.Get(next)
		for what, writes := range map[string][]state.Write{"missing": {{Key: key, Value: nil}}, "exchanged": {{Key: key, Value: value}}} {
			damaged := st.Clone()
			damaged.Apply(writes)
			var damage *state.CorruptError
			if err := probe(damaged, p.cfg, ids, p.index, w.now, touch); !errors.As(err, &damage) {
				t.Errorf("entry %d %s: %v", seq, what, err)
			}
		}
	}
}

// Keys that are no keys are damage, too.
func TestDamagedKeys(t *testing.T) {
	w, touch, ids := fullState(t)
	p := w.at("e")
	for what, key := range map[string][]byte{
		"deadline":   append(keys.DeadlineOf(keys.DeadlinePromise, 5, ns, "x")[:15], 0, 9),
		"queue":      append(keys.Of(keys.Ready, ns, "f"), 1, 2),
		"callback":   append(keys.Of(keys.Callback, ns, "e:1"), 'x'),
		"awaited by": append(keys.Of(keys.AwaitedBy, ns, "e"), 0, 3),
		"reply age":  {byte(keys.ReplyAge), 1},
		"listing":    append(keys.VisibilityPrefix(ns, keys.Open), 1),
		"outbox":     append(keys.Number(keys.Outbox, 1-p.cfg.Partition), 1),
	} {
		st := p.state.Clone()
		st.Apply([]state.Write{{Key: key, Value: []byte{}}})
		var damage *state.CorruptError
		if err := probe(st, p.cfg, ids, p.index, w.now, touch); !errors.As(err, &damage) {
			t.Errorf("%s: %v", what, err)
		} else if damage.What == "" || damage.Detail == "" {
			t.Errorf("%s: %+v", what, damage)
		}
	}
}

// A Reader that fails stops the machine with its error.
type failing struct {
	state.Reader
	after int
	err   error
}

func (f *failing) fails() bool {
	f.after--
	return f.after < 0
}

func (f *failing) Get(key []byte) ([]byte, bool, error) {
	if f.fails() {
		return nil, false, f.err
	}
	return f.Reader.Get(key)
}

func (f *failing) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	if f.fails() {
		return f.err
	}
	return f.Reader.Scan(lower, upper, fn)
}

func TestStorageErrors(t *testing.T) {
	w, touch, _ := fullState(t)
	p := w.at("e")
	bad := errors.New("the disk is gone")
	stopped, reads := 0, 0
	for _, cmd := range append(touch, tickCmd(0)) {
		for after := 0; ; after++ {
			f := &failing{Reader: p.state, after: 1 << 30, err: bad}
			m, err := New(p.cfg, f)
			if err != nil {
				t.Fatal(err)
			}
			f.after = after
			_, err = m.Apply(p.index+1, &commandv1.Entry{TimeMs: w.now + 70_000, Commands: []*commandv1.Command{proto.Clone(cmd).(*commandv1.Command)},
				Grants: []*commandv1.Grant{grant("w9", 9, "f", "g")}})
			if err == nil {
				break
			}
			if !errors.Is(err, bad) || len(m.Writes()) != 0 {
				t.Fatalf("read %d of %v: %v, %d writes", after, cmd, err, len(m.Writes()))
			}
			stopped++
		}
		reads++
	}
	for after := range 40 {
		f := &failing{Reader: p.state, after: after, err: bad}
		if _, err := query.Answer(f, 0, &commandv1.Query{Namespace: ns, Id: "e", Kind: &commandv1.Query_Describe{Describe: &perdurev1.DescribeRequest{}}}); err != nil && !errors.Is(err, bad) {
			t.Errorf("query: %v", err)
		}
		f.after = after
		if _, err := New(p.cfg, f); err != nil && !errors.Is(err, bad) {
			t.Errorf("open: %v", err)
		}
		f.after = after
		if _, _, err := query.NextExpiration(f); err != nil && !errors.Is(err, bad) {
			t.Errorf("next due: %v", err)
		}
		f.after = after
		if _, err := query.Destinations(f, 2); err != nil && !errors.Is(err, bad) {
			t.Errorf("destinations: %v", err)
		}
	}
	if stopped < 100 {
		t.Errorf("only %d reads of %d commands failed", stopped, reads)
	}
}

// The invariants notice what the rules would never do.
func TestInvariantsNotice(t *testing.T) {
	for what, breakIt := range map[string]func(t *txn, ex *execution){
		"ending": func(t *txn, ex *execution) { ex.j.Append(ex.j.NextSeq(), journal.ExecutionCompleted{}) },
		"suspended_blocked": func(t *txn, ex *execution) {
			ex.j.Append(ex.j.NextSeq(), journal.ExecutionAwaiting{On: []id.PromiseID{"e:0"}, Wait: journal.AwaitSignal, Signal: "s"})
		},
		"orphan_invokes": func(t *txn, ex *execution) { t.remove(keys.Of(keys.Task, ns, "e")) },
		"orphan_journal": func(t *txn, ex *execution) { t.remove(keys.Of(keys.Promise, ns, "e")) },
		"acquired_task_no_lease": func(t *txn, ex *execution) {
			task, _ := t.store(ns).Task("e")
			task.PID = ""
			t.store(ns).PutTask(task)
		},
		"pending_task_no_ttimeout": func(t *txn, ex *execution) {
			task, _ := t.store(ns).Task("e")
			task.State, task.PID, task.TTL, task.LeaseAt = recovery.TaskPending, "", 0, 0
			t.store(ns).PutTask(task)
		},
		"suspended_no_callback": func(t *txn, ex *execution) {
			suspend(t, ex)
			p, _ := t.store(ns).Promise("e:0")
			p.State, p.SettledAt = recovery.PromiseResolved, t.now
			t.store(ns).PutPromise(p)
		},
		"suspended_with_consumed_callbacks": func(t *txn, ex *execution) {
			suspend(t, ex)
			task, _ := t.store(ns).Task("e")
			task.Resumes = []string{"e:9"}
			t.store(ns).PutTask(task)
		},
		"satisfied_wait_resumed": func(t *txn, ex *execution) {
			suspend(t, ex)
			ex.j.Append(ex.j.NextSeq(), journal.SignalDelivered{Name: "s", DeliveryID: 1})
			ex.j.Append(ex.j.NextSeq(), journal.SignalReceived{Promise: "e:0", Name: "s", DeliveryID: 1})
		},
		recovery.SettledNotFulfilled: func(t *txn, ex *execution) {
			task, _ := t.store(ns).Task("e")
			task.State, task.PID, task.TTL, task.LeaseAt = recovery.TaskFulfilled, "", 0, 0
			t.store(ns).PutTask(task)
		},
		"listener_for_settled_promise": func(t *txn, ex *execution) {
			if err := t.cancelled(ex, "x"); err != nil {
				panic(err)
			}
			t.store(ns).AddListener("e", "somebody")
		},
		"timedout_settled_at_mismatch": func(t *txn, ex *execution) {
			ex.j.Append(ex.j.NextSeq(), journal.CancelRequested{})
			ex.j.Append(ex.j.NextSeq(), journal.ExecutionCancelled{})
			p, _ := t.store(ns).Promise("e")
			p.State, p.SettledAt = 5, 77
			t.store(ns).PutPromise(p)
			task, _ := t.store(ns).Task("e")
			task.State, task.PID, task.TTL, task.LeaseAt = 5, "", 0, 0
			t.store(ns).PutTask(task)
		},
	} {
		w := newWorld(t, 1)
		w.begin("e", "f")
		m := w.parts[0].m
		m.txn.begin(9)
		ex, _ := m.txn.execution(ns, "e")
		breakIt(m.txn, ex)
		m.txn.forgetLast()
		var broken *audit.InvariantError
		if err := m.txn.checkInvariants(); !errors.As(err, &broken) || broken.Rule != what || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// suspend puts an execution to sleep on a signal, as a commit does.
func suspend(t *txn, ex *execution) {
	if _, _, err := recovery.Create(t.store(ns), t.now, recovery.CreateRequest{ID: "e:0", Incarnation: 1, External: true, TimeoutAt: state.Never}, retryMS); err != nil {
		panic(err)
	}
	if err := t.append(ex, journal.ExecutionAwaiting{On: []id.PromiseID{"e:0"}, Wait: journal.AwaitSignal, Signal: "s"}); err != nil {
		panic(err)
	}
	task, _ := t.store(ns).Task("e")
	if _, err := recovery.Suspend(t.store(ns), t.now, recovery.TaskRef{ID: "e", Version: task.Version}, []recovery.Ref{{ID: "e:0"}}, false); err != nil {
		panic(err)
	}
}
