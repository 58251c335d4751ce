package journal

import (
	"errors"
	"reflect"
	"testing"

	"perdure/id"

	"pgregory.net/rapid"
)

func TestReplay(t *testing.T) {
	r, err := NewReplay(eid, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := r.Started(); ok || r.State().Status() != StatusNone {
		t.Error("an empty journal has been started")
	}
	scheduling := InvokeScheduled{kid(0), InvokeHTTP, "GET", []byte("in"), "p"}
	steps := []struct {
		event Event
		at    id.PromiseID
		want  Recorded
	}{
		{ExecutionStarted{ComponentDigest: "d1", Input: []byte("in")}, "", Recorded{}},
		{scheduling, kid(0), Recorded{Promise: kid(0), Call: KindInvokeScheduled, Invoke: InvokeHTTP, Function: "GET",
			Input: []byte("in"), RetryPolicy: "p"}},
		{attempted(0, 1), kid(0), Recorded{Promise: kid(0), Call: KindInvokeScheduled, Invoke: InvokeHTTP, Function: "GET",
			Input: []byte("in"), RetryPolicy: "p", Open: 1}},
		{retrying(0, 1), kid(0), Recorded{Promise: kid(0), Call: KindInvokeScheduled, Invoke: InvokeHTTP, Function: "GET",
			Input: []byte("in"), RetryPolicy: "p", Retries: 1, LastError: []byte("e"), RetryAt: 5}},
		{attempted(0, 2), kid(0), Recorded{Promise: kid(0), Call: KindInvokeScheduled, Invoke: InvokeHTTP, Function: "GET",
			Input: []byte("in"), RetryPolicy: "p", Retries: 1, LastError: []byte("e"), RetryAt: 5, Open: 2}},
		{completed(0, 2, "r"), kid(0), Recorded{Promise: kid(0), Call: KindInvokeScheduled, Invoke: InvokeHTTP, Function: "GET",
			Input: []byte("in"), RetryPolicy: "p", Retries: 1, LastError: []byte("e"), RetryAt: 5, Resolved: true, Result: []byte("r")}},
		{RandomGenerated{kid(1), []byte{7}}, kid(1), Recorded{Promise: kid(1), Call: KindRandomGenerated, Resolved: true, Result: []byte{7}}},
		{TimeRecorded{kid(2), 99}, kid(2), Recorded{Promise: kid(2), Call: KindTimeRecorded, Resolved: true, Time: 99}},
		{timer(3), kid(3), Recorded{Promise: kid(3), Call: KindTimerScheduled, Duration: 10, FireAt: 20}},
		{TimerFired{kid(3)}, kid(3), Recorded{Promise: kid(3), Call: KindTimerScheduled, Duration: 10, FireAt: 20, Resolved: true}},
		{JoinSetCreated{set(4)}, kid(4), Recorded{Promise: kid(4), Call: KindJoinSetCreated}},
		{scheduled(5), kid(5), Recorded{Promise: kid(5), Call: KindInvokeScheduled, Invoke: InvokeFunction, Function: "f",
			Input: []byte("i"), RetryPolicy: "p"}},
		{submitted(4, 5), kid(5), Recorded{Promise: kid(5), Call: KindInvokeScheduled, Invoke: InvokeFunction, Function: "f",
			Input: []byte("i"), RetryPolicy: "p", Set: set(4)}},
		{submitted(4, 0), kid(4), Recorded{Promise: kid(4), Call: KindJoinSetCreated, Submitted: []id.PromiseID{kid(5), kid(0)}}},
		{awaited(4, 0, "r"), kid(4), Recorded{Promise: kid(4), Call: KindJoinSetCreated, Submitted: []id.PromiseID{kid(5), kid(0)},
			Consumed: []id.PromiseID{kid(0)}}},
		{delivered("a", 1, "x"), kid(6), Recorded{}},
		{received(6, "a", 1, "x"), kid(6), Recorded{Promise: kid(6), Call: KindSignalReceived, Resolved: true, Result: []byte("x"),
			Signal: "a", DeliveryID: 1}},
		{awaitingSignal(7, "a"), kid(7), Recorded{Promise: kid(7), Call: KindExecutionAwaiting, Signal: "a"}},
		{delivered("a", 2, "y"), kid(8), Recorded{}},
		{received(7, "a", 2, "y"), kid(7), Recorded{Promise: kid(7), Call: KindSignalReceived, Resolved: true, Result: []byte("y"),
			Signal: "a", DeliveryID: 2}},
		{ExecutionResumed{}, kid(8), Recorded{}},
		{awaiting(AwaitSingle, 5), kid(8), Recorded{}},
	}
	for seq, step := range steps {
		if err := r.Add(Entry{Seq: uint64(seq), Event: step.event}); err != nil {
			t.Fatal(err)
		}
		got, ok := r.Lookup(step.at)
		if ok != (step.want.Call != 0) || !reflect.DeepEqual(got, step.want) {
			t.Errorf("after %#v: %s is %+v, %v; want %+v", step.event, step.at, got, ok, step.want)
		}
	}
	if s, ok := r.Started(); !ok || s.ComponentDigest != "d1" || string(s.Input) != "in" {
		t.Errorf("started with %+v, %v", s, ok)
	}
	for _, p := range []id.PromiseID{eid, "", "order-4:0", kid(0).Child(0), kid(4294967295)} {
		if got, ok := r.Lookup(p); ok {
			t.Errorf("%q is %+v", p, got)
		}
	}
	if r.State().NextSeq() != uint64(len(steps)) || r.State().NextChild() != 8 {
		t.Errorf("the state is at %d, child %d", r.State().NextSeq(), r.State().NextChild())
	}
}

func TestReplayEnds(t *testing.T) {
	for _, c := range []struct {
		events         []Event
		cancel, value  string
		canceled, over bool
	}{
		{[]Event{}, "", "", false, false},
		{[]Event{ExecutionCompleted{[]byte("r")}}, "", "r", false, true},
		{[]Event{ExecutionFailed{[]byte("e")}}, "", "e", false, true},
		{[]Event{CancelRequested{"why"}}, "why", "", true, false},
		{[]Event{CancelRequested{"why"}, ExecutionCancelled{"timed out"}}, "why", "timed out", true, true},
	} {
		r, err := NewReplay(eid, numbered(append([]Event{ExecutionStarted{}}, c.events...)...))
		if err != nil {
			t.Fatal(err)
		}
		if reason, ok := r.CancelReason(); reason != c.cancel || ok != c.canceled {
			t.Errorf("%v: cancel %q, %v", c.events, reason, ok)
		}
		if value, ok := r.Outcome(); string(value) != c.value || ok != c.over {
			t.Errorf("%v: outcome %q, %v", c.events, value, ok)
		}
	}
}

// A journal that breaks a rule is not replayed, and an entry that does not fit changes nothing.
func TestReplayRefuses(t *testing.T) {
	r, err := NewReplay(eid, numbered(ExecutionStarted{}, timer(1)))
	var v *Violation
	if !errors.As(err, &v) || v.Rule != RuleNextChild || v.Seq != 1 || r != nil {
		t.Errorf("%v, %v", r, err)
	}
	r, err = NewReplay(eid, numbered(ExecutionStarted{}, InvokeScheduled{Promise: kid(0), Invoke: InvokeStep, RetryPolicy: "never"}, attempted(0, 1)),
		WithRetryBound(testBound))
	if err != nil {
		t.Fatal(err)
	}
	before, _ := r.Lookup(kid(0))
	if err := r.Add(Entry{Seq: 3, Event: retrying(0, 1)}); !errors.As(err, &v) || v.Rule != RuleRetryBounded {
		t.Errorf("%v", err)
	}
	if err := r.Add(Entry{Seq: 9, Event: timer(1)}); !errors.As(err, &v) || v.Rule != RuleSequence {
		t.Errorf("%v", err)
	}
	if after, _ := r.Lookup(kid(0)); !reflect.DeepEqual(before, after) {
		t.Errorf("a refused entry changed %+v to %+v", before, after)
	}
	if _, ok := r.Lookup(kid(1)); ok {
		t.Error("a refused entry is recorded")
	}
}

// A replay's answers equal those of a scan of the journal.
func TestReplayAgreesWithScans(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New(eid, WithRetryBound(testBound))
		w := twin{eid: eid, bound: testBound}
		r, err := NewReplay(eid, nil, WithRetryBound(testBound))
		if err != nil {
			t.Fatal(err)
		}
		for range 60 {
			if ev := drawEvent(t, s); s.Append(s.NextSeq(), ev) == nil {
				w.journal = append(w.journal, ev)
				if err := r.Add(Entry{Seq: s.NextSeq() - 1, Event: ev}); err != nil {
					t.Fatal(err)
				}
			}
		}
		for n := range s.NextChild() + 1 {
			p := kid(n)
			got, ok := r.Lookup(p)
			if ok != (n < s.NextChild()) || ok && got.Promise != p {
				t.Fatalf("%s is %+v, %v", p, got, ok)
			}
			value := got.Call == KindRandomGenerated || got.Call == KindTimeRecorded
			if got.Resolved != (w.resolved(p) || value) || (got.Invoke != 0) != w.scheduled(p) || int(got.Retries) != w.retries(p) {
				t.Fatalf("%s is %+v after %#v", p, got, w.journal)
			}
			for _, ev := range w.journal {
				switch e := ev.(type) {
				case InvokeCompleted:
					if e.Promise == p && string(got.Result) != string(e.Result) {
						t.Fatalf("%s: result %q, recorded %q", p, got.Result, e.Result)
					}
				case SignalReceived:
					if e.Promise == p && (string(got.Result) != string(e.Payload) || got.Signal != e.Name || got.DeliveryID != e.DeliveryID) {
						t.Fatalf("%s: %+v, recorded %+v", p, got, e)
					}
				case JoinSetAwaited:
					if id.PromiseID(e.Set) == p && len(got.Consumed) == 0 {
						t.Fatalf("%s has consumed nothing", p)
					}
				}
			}
		}
		// State may be asked through the replay as well.
		if !reflect.DeepEqual(comparable(s), comparable(r.State())) {
			t.Fatal("the replay's state differs")
		}
	})
}
