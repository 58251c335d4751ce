package durable

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

// ties records what the function of this test got from others, over two incarnations.
type ties struct {
	Turn, Version, Balance, Sum    int
	First                          string
	Signal, Promise, Awaited, Step string
	Joined                         []string
}

// tied is connected with others in every way: entities, a critical section, signals and promises that are selected,
// a join set of them, a version. Its second incarnation returns what the first one passes on.
func tied(c *counter) *Function[ties, ties] {
	return NewFunction("tied", func(ctx Context, in ties) (out ties, err error) {
		check := func(e error) {
			if err == nil {
				err = e
			}
		}
		out = in
		out.Turn++
		v, e := Version(ctx, "change", 0, 2)
		check(e)
		out.Version += v
		if in.Turn > 0 {
			text, e := WaitSignal[string](ctx, "left over")
			check(e)
			out.Signal += " " + text
			return out, err
		}
		promise, e := NewPromise[string](ctx)
		check(e)
		awaited, e := AwaitPromise[string](ctx, "bare")
		check(e)
		call, e := GoCallEntity[int](ctx, "acc@a", "get", 0)
		check(e)
		signal, e := NextSignal[string](ctx, "go")
		check(e)
		if err != nil {
			return out, err
		}
		seen := func(what string) func(string, error) error {
			return func(_ string, err error) error { out.First = what; return err }
		}
		check(Select(ctx, On(promise.Future, seen("promise")), On(awaited, seen("awaited")), On(signal, seen("signal")),
			On(call, func(int, error) error { out.First = "call"; return nil })))
		out.Step, e = Run(ctx, "step", func(context.Context) (string, error) { return fmt.Sprint("run ", c.hit("step") > 0), nil })
		check(e)
		out.Signal, e = signal.Get(ctx)
		check(e)
		out.Balance, e = call.Get(ctx)
		check(e)
		unlock, e := Lock(ctx, "acc@b", "acc@a")
		check(e)
		if err != nil {
			return out, err
		}
		n, e := CallEntity[int](ctx, "acc@a", "add", 1)
		check(e)
		m, e := CallEntity[int](ctx, "acc@b", "add", 2)
		check(e)
		check(SignalEntity(ctx, "acc@c", "add", n))
		check(unlock())
		out.Sum = n + m
		set, e := NewJoinSet[string](ctx)
		check(e)
		child, e := Go(ctx, echo, "child")
		check(e)
		for _, f := range []*Future[string]{child, promise.Future, awaited} {
			check(set.Submit(ctx, f))
		}
		for err == nil && set.Len() > 0 {
			f, e := set.Next(ctx)
			if e != nil {
				return out, e
			}
			text, e := f.Get(ctx)
			check(e)
			out.Joined = append(out.Joined, text)
		}
		if err != nil {
			return out, err
		}
		return out, ContinueAsNew(ctx, out)
	})
}

func tiedServer(t *testing.T) *fakeServer {
	f := everythingServer(t)
	f.signals["left over"] = []string{`"rest"`}
	for name, result := range map[string]string{"promise": `"given"`, "await promise": `"found"`, "call get": "7", "call add": "8"} {
		f.children[name] = func([]byte) *perdurev1.Outcome { return value(result) }
	}
	return f
}

// A worker that takes over after any entry of any incarnation's journal comes to the same result, asks others for
// nothing again that is recorded, and runs no step again whose result is recorded.
func TestTiesReplayFromEveryPrefix(t *testing.T) {
	whole := tiedServer(t)
	var once counter
	whole.worker(WorkerOptions{}, tied(&once))
	whole.start("w", "tied", `{}`)
	want := tiesOf(t, whole)
	first, second := whole.former["w"], whole.journalOf("w")
	kinds := ""
	for _, e := range slices.Concat(first, second) {
		kinds += fmt.Sprintf("%T ", e.GetEvent().GetKind())
		kinds += e.GetEvent().GetInvokeScheduled().GetFunctionName() + " "
	}
	for _, kind := range []string{"call get", "call add", "lock", "unlock", "signal add", " go ", "JoinSetAwaited", "promise", "await promise", "version:change", "SignalReceived"} {
		if !strings.Contains(kinds, kind) {
			t.Fatalf("the journals have no %q: %s", kind, kinds)
		}
	}
	if len(first) < 40 || len(second) < 5 || len(want.Joined) != 3 || want.Version != 4 || want.Sum != 16 || want.Signal != "green rest" {
		t.Fatalf("%d and %d entries, result %+v", len(first), len(second), want)
	}
	for turn, full := range [][]*perdurev1.JournalEntry{first, second} {
		// Of a version and of a one-way operation the entries come in one commit, which is applied whole.
		for k := 1; k < len(full); k++ {
			if s := full[k-1].GetEvent().GetInvokeStarted(); s != nil && versionOf(full, s.GetPromiseId()) {
				continue
			}
			if s := full[k-1].GetEvent().GetInvokeScheduled(); s != nil && versionOf(full, s.GetPromiseId()) {
				continue
			}
			t.Run(fmt.Sprint(turn, " ", k), func(t *testing.T) {
				t.Parallel()
				f := tiedServer(t)
				var c counter
				asked, done := 0, false
				for _, e := range full[:k] {
					if s := e.GetEvent().GetInvokeScheduled(); s.GetKind() == perdurev1.InvokeKind_INVOKE_KIND_SEND {
						asked++
					}
					done = done || strings.Contains(string(e.GetEvent().GetInvokeCompleted().GetResult().GetValue()), "run true")
				}
				f.restore("w", "tied", full[:k])
				f.worker(WorkerOptions{}, tied(&c))
				want, got := want, tiesOf(t, f)
				if turn == 0 { // what comes behind the cut may come in another order: the journal has it
					want.First, want.Joined = orderOf(f.former["w"])
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("result %+v, must be %+v", got, want)
				}
				if ran := c.of("step"); ran != 1 && turn == 0 && !done || ran != 0 && (turn > 0 || done) {
					t.Errorf("the step ran %d times, its result was recorded: %t", ran, done)
				}
				sends := 0
				for _, e := range full {
					if s := e.GetEvent().GetInvokeScheduled(); s.GetKind() == perdurev1.InvokeKind_INVOKE_KIND_SEND {
						sends++
					}
				}
				f.mu.Lock()
				defer f.mu.Unlock()
				if len(f.sent) != sends-asked {
					t.Errorf("%d requests to others, of %d %d are recorded", len(f.sent), sends, asked)
				}
			})
		}
	}
}

// versionOf reports whether an operation is the marker of a version.
func versionOf(entries []*perdurev1.JournalEntry, promise string) bool {
	return slices.ContainsFunc(entries, func(e *perdurev1.JournalEntry) bool {
		s := e.GetEvent().GetInvokeScheduled()
		return s.GetPromiseId() == promise && strings.HasPrefix(s.GetFunctionName(), "version:")
	})
}

func tiesOf(t *testing.T, f *fakeServer) (out ties) {
	t.Helper()
	if o := f.finished("w"); json.Unmarshal(o.GetValue(), &out) != nil {
		t.Fatalf("result %v", o)
	}
	return out
}

// orderOf reads the first result of the selected operations, and the order of the join set, in a journal.
func orderOf(entries []*perdurev1.JournalEntry) (first string, joined []string) {
	names := map[string]string{"w:1": "promise", "w:2": "awaited", "w:3": "call", "w:4": "signal"}
	for _, e := range entries {
		if name := names[e.GetEvent().GetInvokeCompleted().GetPromiseId()]; first == "" {
			first = name
		}
		if a := e.GetEvent().GetJoinSetAwaited(); a != nil {
			joined = append(joined, strings.Trim(string(a.GetResult().GetValue()), `"`))
		}
	}
	return first, joined
}
