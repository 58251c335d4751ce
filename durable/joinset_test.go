package durable

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

// joining joins n children and returns their results in the order of Next.
func joining(echo *Function[int, int]) *Function[int, []int] {
	return NewFunction("joining", func(ctx Context, n int) (out []int, err error) {
		set, err := NewJoinSet[int](ctx)
		if err != nil {
			return nil, err
		}
		for i := range n {
			f, err := Go(ctx, echo, i)
			if err != nil {
				return nil, err
			}
			if err := set.Submit(ctx, f); err != nil {
				return nil, err
			}
		}
		for set.Len() > 0 {
			f, err := set.Next(ctx)
			if err != nil {
				return nil, err
			}
			v, err := f.Get(ctx)
			if err != nil {
				return nil, err
			}
			out = append(out, v)
		}
		return out, nil
	})
}

// joined are the results that a journal says were taken, in order; waits are its waits.
func joined(t *testing.T, entries []*perdurev1.JournalEntry) (taken []int, waits []*perdurev1.ExecutionAwaiting) {
	t.Helper()
	for _, e := range entries {
		if a := e.GetEvent().GetJoinSetAwaited(); a != nil {
			var v int
			if err := json.Unmarshal(a.GetResult().GetValue(), &v); err != nil {
				t.Fatal(err)
			}
			taken = append(taken, v)
		}
		if w := e.GetEvent().GetExecutionAwaiting(); w != nil {
			waits = append(waits, w)
		}
	}
	return taken, waits
}

// A wait for many members names their set, one for few names each; and whatever part of the journal a worker finds, it
// takes the members in the recorded order.
func TestJoinSetOfMany(t *testing.T) {
	const n = maxNamed + 6
	// The first child ends alone: the second wait cannot name it.
	second := make(chan struct{})
	echo := NewFunction("echo", func(_ Context, i int) (int, error) {
		if i > 0 {
			<-second
		}
		return i, nil
	})
	run := func(f *fakeServer) []int {
		f.worker(WorkerOptions{Concurrency: n + 1}, joining(echo), echo)
		var out []int
		if err := json.Unmarshal(f.finished("w").GetValue(), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	whole := newFake(t)
	whole.start("w", "joining", fmt.Sprint(n))
	go func() {
		defer close(second)
		whole.wait("the second wait", func() bool {
			_, waits := joined(t, whole.execs["w"].entries)
			return len(waits) > 1
		})
	}()
	got := run(whole)
	full := whole.journalOf("w")
	taken, waits := joined(t, full)
	if !slices.Equal(got, taken) || len(got) != n {
		t.Errorf("the function took %v, the journal says %v", got, taken)
	}
	named := 0
	for _, w := range waits {
		many := w.GetKind() == perdurev1.AwaitKind_AWAIT_KIND_JOIN_SET
		if many && (len(w.GetWaitingOn()) != 1 || w.GetJoinSetId() != "w:0") || !many && len(w.GetWaitingOn()) > maxNamed {
			t.Errorf("wait %v", w)
		}
		if many {
			named++
		}
	}
	if named == 0 {
		t.Error("no wait names the set")
	}
	for _, k := range []int{2, n, 3*n + 2, len(full) - n, len(full) - 2} {
		f := newFake(t)
		f.restore("w", "joining", full[:k])
		for _, e := range full[:k] { // the children that had begun and not ended
			if s := e.GetEvent().GetInvokeScheduled(); s != nil && !slices.ContainsFunc(full[:k], func(d *perdurev1.JournalEntry) bool {
				return d.GetEvent().GetInvokeCompleted().GetPromiseId() == s.GetPromiseId()
			}) {
				f.mu.Lock()
				f.begin(s.GetPromiseId(), "echo", "w", s.GetInput())
				f.mu.Unlock()
			}
		}
		before, _ := joined(t, full[:k])
		got := run(f)
		after, _ := joined(t, f.journalOf("w"))
		if !slices.Equal(got, after) || !slices.Equal(got[:len(before)], before) || len(got) != n {
			t.Errorf("after %d entries, which take %v, the function took %v, the journal says %v", k, before, got, after)
		}
	}
}
