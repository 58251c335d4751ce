package journal

import (
	"reflect"
	"testing"

	"perdure/id"

	"pgregory.net/rapid"
)

// State, the specification's scans and Check agree on every event of random journals, and State's queries
// return what the scans find (book.propose).
func TestStateAgreesWithItsTwin(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := newBook(t)
		for range 10 + even(t, 100) {
			seq := b.state.NextSeq()
			if oneIn(t, 40) {
				seq = rapid.Uint64Range(0, seq+2).Draw(t, "seq")
			}
			b.propose(seq, drawEvent(t, b.state))
		}
	})
}

// Random runs get deep: every kind is accepted somewhere, and every status is reached. Otherwise the test
// above would compare refusals only.
func TestRandomJournalsReachEverything(t *testing.T) {
	kinds := map[Kind]int{}
	statuses := map[Status]int{}
	defer func() { t.Logf("accepted %v", kinds) }()
	rapid.Check(t, func(t *rapid.T) {
		s := New(eid, WithRetryBound(testBound))
		for range 400 {
			if s.Status().Terminal() {
				s = New(eid, WithRetryBound(testBound))
			}
			if ev := drawEvent(t, s); s.Append(s.NextSeq(), ev) == nil {
				kinds[ev.Kind()]++
			}
			statuses[s.Status()]++
		}
	})
	for k := KindExecutionStarted; k <= KindJoinSetAwaited; k++ {
		if kinds[k] == 0 {
			t.Errorf("no %v was ever accepted", k)
		}
	}
	for s := StatusRunning; s <= StatusCancelled; s++ {
		if statuses[s] == 0 {
			t.Errorf("%v was never reached", s)
		}
	}
}

// The next sequence number is the number of entries, and no other is taken (S-1, K1).
func TestSequence(t *testing.T) {
	b := newBook(t)
	b.refuseAt(1, RuleSequence, ExecutionStarted{})
	b.accept(ExecutionStarted{}, scheduled(0))
	for _, seq := range []uint64{0, 1, 3, 1<<64 - 1} {
		if v := b.refuseAt(seq, RuleSequence, scheduled(1)); v.Seq != seq {
			t.Errorf("the refusal is at %d", v.Seq)
		}
	}
	b.accept(scheduled(1))
}

func TestNoEvent(t *testing.T) {
	started(t).refuse(RuleVocabulary, nil)
}

// An execution may have an identifier of any depth (K6).
func TestDeepExecution(t *testing.T) {
	deep := id.PromiseID("order-42:0.3")
	s := New(deep)
	for seq, ev := range []Event{ExecutionStarted{Parent: "order-42:0"}, TimerScheduled{Promise: "order-42:0.3.0"}} {
		if err := s.Append(uint64(seq), ev); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Check(2, TimerScheduled{Promise: "order-42:0.4"}); err == nil {
		t.Error("a sibling's identifier was accepted")
	}
	if _, ok := s.Timer("order-42:0.3.0"); !ok || s.EID() != deep {
		t.Error("the timer is not known")
	}
}

// Rollback undoes all appends of a transaction; Commit leaves the same state as appends without one.
func TestTransactions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(eid, WithRetryBound(testBound))
		plain := New(eid, WithRetryBound(testBound))
		extend := func(to *State, steps uint32) (events []Event) {
			for range even(t, steps) {
				if ev := drawEvent(t, to); to.Append(to.NextSeq(), ev) == nil {
					events = append(events, ev)
				}
			}
			return events
		}
		for range 4 {
			for _, ev := range extend(s, 20) {
				if err := plain.Append(plain.NextSeq(), ev); err != nil {
					t.Fatal(err)
				}
			}
			before := comparable(s)
			s.Begin()
			events := extend(s, 20)
			if rapid.Bool().Draw(t, "keep") {
				s.Commit()
				for _, ev := range events {
					if err := plain.Append(plain.NextSeq(), ev); err != nil {
						t.Fatal(err)
					}
				}
			} else {
				s.Rollback()
				if after := comparable(s); !reflect.DeepEqual(before, after) {
					t.Fatalf("after the rollback of %#v:\n%+v, before:\n%+v", events, after, before)
				}
			}
			if got, want := comparable(s), comparable(plain); !reflect.DeepEqual(got, want) {
				t.Fatalf("with transactions:\n%+v, without:\n%+v", got, want)
			}
			for _, name := range []string{"a", "b"} {
				n, seq, ok := s.NextReceipt(name)
				m, due, also := plain.NextReceipt(name)
				if n != m || ok != also || seq != due || s.Deliveries(name) != plain.Deliveries(name) {
					t.Fatalf("signal %s: %d of entry %d %v, without transactions %d of entry %d %v", name, n, seq, ok, m, due, also)
				}
			}
		}
	})
}

func TestTransactionsDoNotNest(t *testing.T) {
	s := New(eid)
	s.Rollback()
	s.Begin()
	defer func() {
		if recover() == nil {
			t.Error("a transaction inside a transaction")
		}
	}()
	s.Begin()
}

// A clone and its original go separate ways.
func TestCloneIsIndependent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(eid, WithRetryBound(testBound))
		for range 40 {
			_ = s.Append(s.NextSeq(), drawEvent(t, s))
		}
		if rapid.Bool().Draw(t, "inTransaction") {
			s.Begin()
		}
		c := s.Clone()
		before := comparable(s)
		for range 20 {
			_ = c.Append(c.NextSeq(), drawEvent(t, c))
		}
		if !reflect.DeepEqual(before, comparable(s)) {
			t.Fatal("appending to the clone changed the original")
		}
		c = s.Clone()
		before = comparable(c)
		for range 20 {
			_ = s.Append(s.NextSeq(), drawEvent(t, s))
		}
		s.Rollback()
		if !reflect.DeepEqual(before, comparable(c)) {
			t.Fatal("appending to the original changed the clone")
		}
	})
}

// Size follows what is held: payloads of signals while they are buffered, never results.
func TestSize(t *testing.T) {
	const big = 1 << 20
	s := started(t, scheduled(0), attempted(0, 1)).state
	empty := s.Size()
	grow := func(ev Event) int {
		t.Helper()
		before := s.Size()
		if err := s.Append(s.NextSeq(), ev); err != nil {
			t.Fatal(err)
		}
		return s.Size() - before
	}
	if n := grow(completed(0, 1, string(make([]byte, big)))); n > 1000 {
		t.Errorf("a result of 1 MiB adds %d bytes", n)
	}
	if n := grow(delivered("a", 1, string(make([]byte, big)))); n <= 0 || n > 1000 {
		t.Errorf("a buffered signal of 1 MiB adds %d bytes", n)
	}
	if n := grow(received(1, "a", 1, string(make([]byte, big)))); n > 100 {
		t.Errorf("consuming it adds %d bytes", n)
	}
	if s.Size() < empty || empty <= 0 {
		t.Errorf("the size went from %d to %d", empty, s.Size())
	}
}

// A payload that waits to be consumed is not held in memory: 100 signals of 4 MiB take what 100 small ones take.
func TestBufferedPayloadsAreNotKept(t *testing.T) {
	s := started(t).state
	for i := range uint64(100) {
		if err := s.Append(s.NextSeq(), delivered("a", i+1, string(make([]byte, 4<<20)))); err != nil {
			t.Fatal(err)
		}
	}
	if n := s.Size(); n > 32<<10 {
		t.Errorf("the state takes %d bytes", n)
	}
	c := s.Clone()
	// The consumed payload is still the delivered one.
	if err := c.Append(c.NextSeq(), received(0, "a", 1, string(make([]byte, 4<<20-1)))); err == nil {
		t.Error("another payload is received")
	}
	if err := c.Append(c.NextSeq(), received(0, "a", 1, string(make([]byte, 4<<20)))); err != nil {
		t.Error(err)
	}
}

// The check of an event allocates nothing.
func TestCheckDoesNotAllocate(t *testing.T) {
	s := started(t, scheduled(0), attempted(0, 1)).state
	events := []Event{completed(0, 1, "r"), retrying(0, 1), scheduled(1), awaiting(AwaitSingle, 0), delivered("a", 1, "x")}
	allocations := testing.AllocsPerRun(100, func() {
		for _, ev := range events {
			if s.Check(s.NextSeq(), ev) != nil {
				t.Fatal("refused")
			}
		}
	})
	if allocations != 0 {
		t.Errorf("%v allocations", allocations)
	}
}

// benchmarkJournal is a running execution's state after n events: steps, and a signal now and then.
func benchmarkJournal(b *testing.B, n int) *State {
	b.Helper()
	s := New(eid)
	if err := s.Append(0, ExecutionStarted{}); err != nil {
		b.Fatal(err)
	}
	for s.NextSeq() < uint64(n) {
		appendStep(b, s)
	}
	return s
}

// appendStep appends four events: a step and its wake.
func appendStep(b *testing.B, s *State) {
	p := kid(s.NextChild())
	for _, ev := range [...]Event{
		InvokeScheduled{Promise: p, Invoke: InvokeStep, Function: "f"},
		InvokeStarted{Promise: p, Attempt: 1},
		InvokeCompleted{Promise: p, Result: []byte("result"), Attempt: 1},
		SignalDelivered{Name: "s", DeliveryID: s.Deliveries("s") + 1},
	} {
		if err := s.Append(s.NextSeq(), ev); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkAppend appends four events to journals of different lengths, and takes them back; the length
// must not matter.
func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{50, 5_000, 50_000, 500_000} {
		b.Run(num(n)+"events", func(b *testing.B) {
			s := benchmarkJournal(b, n)
			b.ReportAllocs()
			for b.Loop() {
				s.Begin()
				appendStep(b, s)
				s.Rollback()
			}
		})
	}
}

// BenchmarkCheck audits a whole journal of the length at which a warning is raised.
func BenchmarkCheck(b *testing.B) {
	s := New(eid)
	entries := []Entry{{Event: ExecutionStarted{}}}
	for n := uint32(0); len(entries) < id.JournalWarnEvents; n++ {
		for _, ev := range []Event{scheduled(n), attempted(n, 1), completed(n, 1, "result")} {
			entries = append(entries, Entry{Seq: uint64(len(entries)), Event: ev})
		}
	}
	for b.Loop() {
		if found := Check(s.EID(), entries); len(found) > 0 {
			b.Fatal(found)
		}
	}
}
