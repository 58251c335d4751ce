package durable

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// journey records the results that the function of these tests got; every operation adds to it.
type journey struct {
	Steps   []string
	Random  uint64
	TimeMs  int64
	Child   string
	First   int
	Futures []string
	Signal  string
	Early   string
	Timeout bool
	Failed  string
	Unread  bool
}

// counter counts what ran outside the journal.
type counter struct {
	mu   sync.Mutex
	runs map[string]int
}

func (c *counter) hit(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.runs == nil {
		c.runs = map[string]int{}
	}
	c.runs[name]++
	return c.runs[name]
}

func (c *counter) of(name string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.runs[name]
}

var echo = NewFunction("echo", func(ctx Context, in string) (string, error) { return "echo " + in, nil })

// everything uses every operation there is.
func everything(c *counter) *Function[string, journey] {
	return NewFunction("everything", func(ctx Context, in string) (out journey, err error) {
		check := func(e error) {
			if err == nil {
				err = e
			}
		}
		step := func(name string, opts ...StepOption) {
			text, e := Run(ctx, name, func(ctx context.Context) (string, error) {
				c.hit(name)
				return name + " of " + StepInfo(ctx).PromiseID, nil
			}, opts...)
			check(e)
			out.Steps = append(out.Steps, text)
		}
		out.Random, err = Random(ctx)
		step("first")
		now, e := Now(ctx)
		check(e)
		out.TimeMs = now.UnixMilli()
		out.Child, e = Call(ctx, echo, in)
		check(e)
		step("intended", WithIntent())
		check(Sleep(ctx, time.Hour))
		var typed []*Future[string]
		for i := range 3 {
			f, e := Go(ctx, echo, fmt.Sprint("future ", i), CallTags(map[string]string{"n": fmt.Sprint(i)}))
			check(e)
			typed = append(typed, f)
		}
		futures := Awaitables(typed)
		out.First, e = AwaitAny(ctx, futures...)
		check(e)
		step("between")
		check(AwaitAll(ctx, futures...))
		for _, f := range typed {
			text, e := f.Get(ctx)
			check(e)
			out.Futures = append(out.Futures, text)
		}
		check(Signal(ctx, "other", "hello", map[string]int{"n": 1}))
		out.Early, e = WaitSignal[string](ctx, "early")
		check(e)
		out.Signal, e = WaitSignal[string](ctx, "go", Timeout(time.Minute))
		check(e)
		_, e = WaitSignal[string](ctx, "never", Timeout(time.Minute))
		out.Timeout = errors.Is(e, ErrTimeout)
		_, e = Run(ctx, "failing", func(context.Context) (string, error) {
			c.hit("failing")
			return "", &Error{Type: "broke", Message: "no money", Details: []byte("x")}
		}, NoRetry())
		var failed *Error
		if errors.As(e, &failed) {
			out.Failed = failed.Type + "/" + failed.Message + "/" + string(failed.Details)
		}
		_, e = GoName[int](ctx, "echo", "never asked")
		check(e)
		out.Unread = e == nil
		return out, err
	})
}

var everyStep = []string{"first", "intended", "between", "failing"}

// everythingServer is a cluster whose world does what everything waits for.
func everythingServer(t testing.TB) *fakeServer {
	f := newFake(t)
	f.children["echo"] = func(in []byte) *perdurev1.Outcome {
		var text string
		if err := json.Unmarshal(in, &text); err != nil {
			t.Error(err)
		}
		out, _ := json.Marshal("echo " + text)
		return value(string(out))
	}
	f.signals["go"] = []string{`"green"`}
	f.signals["early"] = []string{`"bird"`}
	return f
}

func wantJourney(eid string) journey {
	return journey{
		Steps:   []string{"first of " + eid + ":1", "intended of " + eid + ":4", "between of " + eid + ":9"},
		Child:   "echo in",
		First:   2,
		Futures: []string{"echo future 0", "echo future 1", "echo future 2"},
		Signal:  "green", Early: "bird", Timeout: true, Failed: "broke/no money/x", Unread: true,
	}
}

// checkJourney compares a result with what must have happened; recorded values are read in the journal.
func checkJourney(t *testing.T, f *fakeServer, eid string) {
	t.Helper()
	o := f.finished(eid)
	var got journey
	if err := json.Unmarshal(o.GetValue(), &got); err != nil {
		t.Fatalf("result %v: %v", o, err)
	}
	want := wantJourney(eid)
	for _, e := range f.journalOf(eid) {
		if r := e.GetEvent().GetRandomGenerated(); r != nil {
			for _, b := range r.GetValue() {
				want.Random = want.Random<<8 | uint64(b)
			}
		}
		if r := e.GetEvent().GetTimeRecorded(); r != nil {
			want.TimeMs = r.GetTimeMs()
		}
	}
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Errorf("result\n got %s\nwant %s", g, w)
	}
}

// fullJournal runs everything once, without any trouble.
func fullJournal(t *testing.T) []*perdurev1.JournalEntry {
	f := everythingServer(t)
	var c counter
	f.worker(WorkerOptions{}, everything(&c))
	f.mu.Lock()
	ex := f.begin("trip", "everything", "", []byte(`"in"`))
	f.deliver(ex, "early", value(`"bird"`)) // before anybody asks: it is buffered
	f.mu.Unlock()
	checkJourney(t, f, "trip")
	for _, name := range everyStep {
		if n := c.of(name); n != 1 {
			t.Errorf("step %s ran %d times", name, n)
		}
	}
	if len(f.sent) != 1 || f.sent[0].GetId() != "other" || string(f.sent[0].GetPayload()) != `{"n":1}` {
		t.Errorf("sent %v", f.sent)
	}
	return f.journalOf("trip")
}

// A worker that takes over after any entry of the journal, of commits cut in half too, comes to the same
// result and runs no step again whose result is recorded.
func TestReplayFromEveryPrefix(t *testing.T) {
	full := fullJournal(t)
	for k := 1; k < len(full); k++ {
		for _, page := range []int{0, 3} {
			t.Run(fmt.Sprintf("%d page %d", k, page), func(t *testing.T) {
				t.Parallel()
				f := everythingServer(t)
				f.page = page
				var c counter
				done := map[string]bool{}
				names := map[string]string{}
				for _, e := range full[:k] {
					if s := e.GetEvent().GetInvokeScheduled(); s.GetKind() == perdurev1.InvokeKind_INVOKE_KIND_STEP {
						names[s.GetPromiseId()] = s.GetFunctionName()
					}
					if d := e.GetEvent().GetInvokeCompleted(); d != nil {
						done[names[d.GetPromiseId()]] = true
					}
				}
				if open := names[full[k-1].GetEvent().GetInvokeStarted().GetPromiseId()]; open == "failing" {
					// Its only attempt is lost with the worker: that is its result.
					f.restore("trip", "everything", full[:k])
					f.worker(WorkerOptions{}, everything(&c))
					o := f.finished("trip")
					var got journey
					if err := json.Unmarshal(o.GetValue(), &got); err != nil || got.Failed != "lost/worker lost/" {
						t.Errorf("result %v: %v", o, err)
					}
					return
				}
				f.restore("trip", "everything", full[:k])
				f.worker(WorkerOptions{}, everything(&c))
				checkJourney(t, f, "trip")
				for _, name := range everyStep {
					want := 1
					if done[name] {
						want = 0
					}
					if n := c.of(name); n != want {
						t.Errorf("step %s ran %d times, want %d", name, n, want)
					}
				}
				// The recorded entries are unchanged.
				for i, e := range f.journalOf("trip")[:k] {
					if e.String() != full[i].String() {
						t.Errorf("entry %d changed: %v", i, e)
					}
				}
			})
		}
	}
}

// Worker after worker loses its task at each commit in activation, before or after it is applied, with or
// without another worker taking over.
func TestEveryCommitIsInterrupted(t *testing.T) {
	full := fullJournal(t)
	faults := map[string]fault{
		"stream breaks before":        {before: true},
		"stream breaks after":         {after: true},
		"lost before":                 {before: true, lost: true},
		"lost after":                  {after: true, lost: true},
		"not the leader":              {reason: perdurev1.Reason_REASON_NOT_LEADER},
		"outcome unknown":             {reason: perdurev1.Reason_REASON_OUTCOME_UNKNOWN},
		"stale, and to someone else":  {reason: perdurev1.Reason_REASON_STALE_TASK, lost: true},
		"overloaded":                  {reason: perdurev1.Reason_REASON_OVERLOADED},
		"answered although it is old": {lost: true},
	}
	for name, fa := range faults {
		for n := 1; n < 17; n++ {
			t.Run(fmt.Sprint(name, " ", n), func(t *testing.T) {
				t.Parallel()
				f := everythingServer(t)
				count := 0
				f.onCommit = func(ex *fakeExec, m *perdurev1.Commit) fault {
					if count++; count != n {
						return fault{}
					}
					if fa.lost && (fa.before || fa.reason != 0) {
						f.expire(ex)
					}
					return fa
				}
				var c counter
				f.worker(WorkerOptions{Name: "a"}, everything(&c))
				f.worker(WorkerOptions{Name: "b"}, everything(&c))
				f.start("trip", "everything", `"in"`)
				checkJourney(t, f, "trip")
				for _, s := range everyStep {
					if got := c.of(s); got < 1 || got > 2 || (got == 2 && !fa.lost) {
						t.Errorf("step %s ran %d times", s, got)
					}
				}
				if got := len(f.journalOf("trip")); got < len(full)-2 {
					t.Errorf("the journal has %d entries, undisturbed it had %d", got, len(full))
				}
			})
		}
	}
}

// A repeated commit is the same request, with a greater age.
func TestCommitIsRepeatedUnderItsRequestID(t *testing.T) {
	f := everythingServer(t)
	type seen struct {
		id  string
		age uint64
	}
	var all []seen
	f.onCommit = func(_ *fakeExec, m *perdurev1.Commit) fault {
		all = append(all, seen{string(m.GetRequest().GetId()), m.GetRequest().GetAgeMs()})
		if len(all) < 3 {
			return fault{before: true}
		}
		return fault{}
	}
	var c counter
	f.worker(WorkerOptions{}, everything(&c))
	f.start("trip", "everything", `"in"`)
	checkJourney(t, f, "trip")
	if all[0].id != all[1].id || all[1].id != all[2].id || all[2].id == all[3].id {
		t.Errorf("request ids %x", all[:4])
	}
	if all[0].age != 0 || all[1].age < 40 || all[2].age <= all[1].age {
		t.Errorf("ages %d, %d, %d", all[0].age, all[1].age, all[2].age)
	}
	if len(f.hellos) != 3 || len(f.hellos[1].GetHeld()) != 1 || f.hellos[1].GetWorkerId() != f.hellos[0].GetWorkerId() {
		t.Errorf("hellos %v", f.hellos)
	}
	if capacity := f.hellos[1].GetCapacity(); capacity != 63 {
		t.Errorf("the second Hello has capacity %d", capacity)
	}
}

// The journal's order decides which future was first, however much is known when it is asked again.
func TestAwaitAnyIsStable(t *testing.T) {
	full := fullJournal(t)
	var order []string
	for _, e := range full {
		if d := e.GetEvent().GetInvokeCompleted(); slices.Contains([]string{"trip:6", "trip:7", "trip:8"}, d.GetPromiseId()) {
			order = append(order, d.GetPromiseId())
		}
	}
	if len(order) != 3 || order[0] != "trip:8" {
		t.Fatalf("order of completion %v", order)
	}
	r := history{id: "trip"}
	if err := r.ingest(full); err != nil {
		t.Fatal(err)
	}
	activation := &activation{journal: r}
	for _, set := range [][]int{{0, 1, 2}, {2, 1, 0}, {0, 1}, {1, 0}} {
		var futures []Awaitable
		for _, i := range set {
			futures = append(futures, &Future[string]{t: activation, n: uint32(6 + i)})
		}
		// Done in the order 2, 1, 0: the highest of the set is first.
		if at := firstDone(activation, futures); set[at] != slices.Max(set) {
			t.Errorf("of %v, %d was first", set, set[at])
		}
	}
}
