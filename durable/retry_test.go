package durable

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

func TestRetryPolicy(t *testing.T) {
	p := RetryPolicy{}.withDefaults()
	if got := p.String(); got != "attempts=4 initial=100ms max=10s factor=2" {
		t.Errorf("the default is %q", got)
	}
	p = RetryPolicy{MaxAttempts: 9, Initial: time.Second, Max: 5 * time.Second, Factor: 1.5}.withDefaults()
	var pauses []time.Duration
	for n := range uint32(6) {
		pauses = append(pauses, p.pause(n+1))
	}
	if got := fmt.Sprint(pauses); got != "[1s 1.5s 2.25s 3.375s 5s 5s]" {
		t.Errorf("pauses %s", got)
	}
	if d := p.pause(1 << 30); d != 5*time.Second {
		t.Errorf("pause %v", d)
	}
	if huge := (RetryPolicy{MaxAttempts: 1 << 40}).withDefaults(); huge.MaxAttempts != maxAttempts {
		t.Errorf("%d attempts", huge.MaxAttempts)
	}
	for text, want := range map[string]int{"attempts=3 x": 3, "attempts=12": 12, "": 7, "attempts=0": 7, "attempts=x": 7, "tries=3": 7} {
		if got := attemptsOf(text, 7); got != want {
			t.Errorf("%q has %d attempts", text, got)
		}
	}
}

// flaky is a function with one step that fails a number of times.
func flaky(c *counter, fails int, opts ...StepOption) *Function[string, string] {
	return NewFunction("flaky", func(ctx Context, _ string) (string, error) {
		return Run(ctx, "s", func(ctx context.Context) (string, error) {
			n := c.hit("s")
			if info := StepInfo(ctx); info.PromiseID != "x:0" {
				return "", Permanent(fmt.Errorf("step info %v", info))
			}
			if n <= fails {
				return "", fmt.Errorf("failure %d of attempt %d", n, StepInfo(ctx).Attempt)
			}
			return fmt.Sprint("attempt ", StepInfo(ctx).Attempt), nil
		}, opts...)
	})
}

// kinds are the kinds of a journal's events, with attempts.
func kinds(entries []*perdurev1.JournalEntry) string {
	text := ""
	for _, e := range entries {
		switch k := e.GetEvent().GetKind().(type) {
		case *perdurev1.Event_InvokeScheduled:
			text += "S "
		case *perdurev1.Event_InvokeStarted:
			text += fmt.Sprint("s", k.InvokeStarted.GetAttempt(), " ")
		case *perdurev1.Event_InvokeRetrying:
			text += fmt.Sprint("r", k.InvokeRetrying.GetFailedAttempt(), " ")
		case *perdurev1.Event_InvokeCompleted:
			text += fmt.Sprint("c", k.InvokeCompleted.GetAttempt(), " ")
		case *perdurev1.Event_ExecutionStarted:
			text += "["
		case *perdurev1.Event_ExecutionCompleted, *perdurev1.Event_ExecutionFailed:
			text += "]"
		case *perdurev1.Event_CancelRequested:
			text += "! "
		case *perdurev1.Event_ExecutionCancelled:
			text += "x"
		default:
			text += fmt.Sprintf("%T ", k)
		}
	}
	return text
}

var threeTries = WithRetry(RetryPolicy{MaxAttempts: 3, Initial: 7 * time.Second, Max: 9 * time.Second})

func TestRetries(t *testing.T) {
	for _, c := range []struct {
		name    string
		fails   int
		opts    []StepOption
		pauses  []time.Duration
		journal string
		commits int
		outcome string
	}{
		{"at once", 0, []StepOption{threeTries}, nil, "[S s1 c1 ]", 1, `value:"\"attempt 1\""`},
		{"second", 1, []StepOption{threeTries}, []time.Duration{7 * time.Second}, "[S s1 r1 s2 c2 ]", 3, `value:"\"attempt 2\""`},
		{"third", 2, []StepOption{threeTries}, []time.Duration{7 * time.Second, 9 * time.Second}, "[S s1 r1 s2 r2 s3 c3 ]", 4, `value:"\"attempt 3\""`},
		{"never", 9, []StepOption{threeTries}, []time.Duration{7 * time.Second, 9 * time.Second}, "[S s1 r1 s2 r2 s3 c3 ]", 4,
			`failure:{type:"error" message:"failure 3 of attempt 3"}`},
		{"intent", 1, []StepOption{threeTries, WithIntent()}, []time.Duration{7 * time.Second}, "[S s1 r1 s2 c2 ]", 5, `value:"\"attempt 2\""`},
		{"no retry", 1, []StepOption{NoRetry()}, nil, "[S s1 c1 ]", 1, `failure:{type:"error" message:"failure 1 of attempt 1"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.hold = unhurried
			clock := newFakeClock()
			var n counter
			f.worker(WorkerOptions{Clock: clock, Lease: time.Minute}, flaky(&n, c.fails, c.opts...))
			begin := clock.Now()
			f.start("x", "flaky", "")
			for _, d := range c.pauses {
				clock.pass(t, d)
			}
			o := f.finished("x")
			if got := strings.ReplaceAll(o.String(), "  ", " "); got != c.outcome { // its text form varies in spaces
				t.Errorf("outcome %s, want %s", got, c.outcome)
			}
			entries := f.journalOf("x")
			if got := kinds(entries); got != c.journal {
				t.Errorf("journal %s, want %s", got, c.journal)
			}
			if len(f.commits) != c.commits {
				t.Errorf("%d commits, want %d", len(f.commits), c.commits)
			}
			at := begin
			i := 0
			for _, e := range entries {
				if r := e.GetEvent().GetInvokeRetrying(); r != nil {
					at = at.Add(c.pauses[i])
					i++
					if r.GetRetryAtMs() != at.UnixMilli() {
						t.Errorf("retry %d at %d, want %d", i, r.GetRetryAtMs(), at.UnixMilli())
					}
				}
			}
		})
	}
}

func TestPermanentAndPanicking(t *testing.T) {
	f := newFake(t)
	clock := newFakeClock()
	var n counter
	f.worker(WorkerOptions{Clock: clock}, NewFunction("f", func(ctx Context, _ string) (string, error) {
		_, err := Run(ctx, "permanent", func(context.Context) (int, error) {
			n.hit("permanent")
			return 0, Permanent(errors.New("no such card"))
		}, threeTries)
		var e *Error
		if !errors.As(err, &e) || !e.NonRetryable || e.Message != "no such card" {
			t.Errorf("permanent: %#v", err)
		}
		_, err = Run(ctx, "panicking", func(context.Context) (int, error) {
			if n.hit("panicking") == 1 {
				panic("once")
			}
			return 0, &Error{Type: "mine", NonRetryable: true}
		}, threeTries)
		if !errors.As(err, &e) || e.Type != "mine" {
			t.Errorf("panicking: %#v", err)
		}
		_, err = Run(ctx, "unencodable", func(context.Context) (chan int, error) { return make(chan int), nil }, threeTries)
		if !errors.As(err, &e) || e.Type != TypeEncoding {
			t.Errorf("unencodable: %#v", err)
		}
		_, err = Run(ctx, "too large", func(context.Context) ([]byte, error) { return make([]byte, 5<<20), nil }, threeTries)
		if !errors.As(err, &e) || e.Type != TypeTooLarge {
			t.Errorf("too large: %#v", err)
		}
		_, err = Run(ctx, "slow", func(ctx context.Context) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		}, WithTimeout(time.Millisecond), NoRetry())
		if !errors.Is(err, ErrTimeout) {
			t.Errorf("slow: %#v", err)
		}
		return "", fmt.Errorf("in all: %w", err)
	}))
	f.start("x", "f", "")
	clock.pass(t, 7*time.Second)
	o := f.finished("x").GetFailure()
	if o.GetType() != TypeTimeout || o.GetMessage() != "in all: timeout: attempt took longer than 1ms: context deadline exceeded" {
		t.Errorf("outcome %v", o)
	}
	if n.of("permanent") != 1 || n.of("panicking") != 2 {
		t.Errorf("runs %v", n.runs)
	}
}

// A distant retry does not occupy the worker: the task is delivered again at its time.
func TestLongBackoffGivesTheTaskBack(t *testing.T) {
	f := newFake(t)
	clock := newFakeClock()
	var n counter
	f.worker(WorkerOptions{Clock: clock}, flaky(&n, 1, WithRetry(RetryPolicy{MaxAttempts: 2, Initial: 20 * time.Minute, Max: time.Hour})))
	f.start("x", "flaky", "")
	r := f.released(1)
	if r.GetDelayMs() != 20*60*1000 || r.GetProblem() != "" || r.GetCredit() != 1 {
		t.Errorf("release %v", r)
	}
	clock.mu.Lock()
	clock.now = clock.now.Add(20*time.Minute - 5*time.Second) // woken a little early: the rest is waited for here
	clock.mu.Unlock()
	f.wake("x")
	clock.pass(t, 5*time.Second)
	if o := f.finished("x"); string(o.GetValue()) != `"attempt 2"` {
		t.Error(o)
	}
}

// A worker lost in an attempt costs that attempt, if it was recorded that it began; the last one ends the step.
func TestLostAttempt(t *testing.T) {
	scheduled := func(policy string) *perdurev1.Event {
		return &perdurev1.Event{Kind: &perdurev1.Event_InvokeScheduled{InvokeScheduled: &perdurev1.InvokeScheduled{
			PromiseId: "x:0", Kind: perdurev1.InvokeKind_INVOKE_KIND_STEP, FunctionName: "s", RetryPolicy: policy}}}
	}
	begun := &perdurev1.Event{Kind: &perdurev1.Event_ExecutionStarted{ExecutionStarted: &perdurev1.ExecutionStarted{}}}
	entries := func(evs ...*perdurev1.Event) (out []*perdurev1.JournalEntry) {
		for i, e := range evs {
			out = append(out, &perdurev1.JournalEntry{Seq: uint64(i), Event: e})
		}
		return out
	}
	for _, c := range []struct {
		policy, journal, outcome string
	}{
		{"attempts=2", "[S s1 r1 s2 c2 ]", `"attempt 2"`},
		{"attempts=1 by older code", "[S s1 c1 ]", ""},
	} {
		f := newFake(t)
		f.hold = unhurried
		var n counter
		f.worker(WorkerOptions{}, flaky(&n, 0, threeTries))
		f.restore("x", "flaky", entries(begun, scheduled(c.policy), started("x:0", 1)))
		o := f.finished("x")
		if got := kinds(f.journalOf("x")); got != c.journal || string(o.GetValue()) != c.outcome {
			t.Errorf("%s: journal %s, outcome %v", c.policy, got, o)
		}
		if c.outcome == "" && (o.GetFailure().GetType() != TypeLost || n.of("s") != 0) {
			t.Errorf("%s: outcome %v, %d runs", c.policy, o, n.of("s"))
		}
		if c.outcome != "" && len(f.commits) != 3 {
			t.Errorf("%d commits: the new attempt must be recorded before it runs", len(f.commits))
		}
	}
}

// A jitter that is no part of a pause is refused by every operation that takes a policy, at each replay, and takes no child
// number.
func TestJitterIsRefused(t *testing.T) {
	for _, jitter := range []float64{-0.1, 1.1, math.NaN()} {
		bad := RetryPolicy{Jitter: jitter}
		f := newFake(t)
		f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (string, error) {
			step := func(context.Context) (string, error) { return "", nil }
			_, run := Run(ctx, "s", step, WithRetry(bad))
			_, parallel := GoStep(ctx, "s", step, WithRetry(bad))
			_, call := GoName[string](ctx, "other", "", CallRetry(bad))
			_, request := HTTP(ctx, HTTPRequest{URL: "http://localhost"}, WithRetry(bad))
			for what, err := range map[string]error{"Run": run, "GoStep": parallel, "GoName": call, "HTTP": request} {
				if e := (*Error)(nil); !errors.As(err, &e) || e.Type != TypeBadRequest || !strings.Contains(e.Message, fmt.Sprint(jitter)) {
					return "", fmt.Errorf("%s with a jitter of %v: %w", what, jitter, err)
				}
			}
			return Run(ctx, "good", func(context.Context) (string, error) { return "ok", nil }, WithRetry(RetryPolicy{Jitter: 1}))
		}))
		f.start("x", "f", "")
		if o := f.finished("x"); string(o.GetValue()) != `"ok"` {
			t.Errorf("a jitter of %v: %v", jitter, o)
		}
	}
	g := NewGraph("g")
	g.FunctionName("n", "f", NodeRetry(RetryPolicy{Jitter: 2}))
	if _, err := g.Build(); err == nil || !strings.Contains(err.Error(), "jitter of 2") {
		t.Errorf("a node with a jitter of 2: %v", err)
	}
}
