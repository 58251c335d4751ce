package embed_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"perdure/client"
	"perdure/durable"
)

// TestLargeValues moves values of the largest size through every door at once.
func TestLargeValues(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const size = 4 << 20
	children := 8
	if testing.Short() {
		children = 3
	}
	blob := func(c byte) []byte { return bytes.Repeat([]byte{c}, size) }
	child := durable.NewFunction("child", func(ctx durable.Context, in string) ([]byte, error) { return blob(in[0]), nil })
	parent := durable.NewFunction("parent", func(ctx durable.Context, in []byte) (string, error) {
		var futures []*durable.Future[[]byte]
		for i := range children {
			f, err := durable.Go(ctx, child, string(rune('a'+i)))
			if err != nil {
				return "", err
			}
			futures = append(futures, f)
		}
		// All children end while this one runs, so the reply to its next commit is large.
		if _, err := durable.Run(ctx, "watch", func(step context.Context) (int, error) {
			for _, f := range futures {
				if _, err := w.Result(step, f.ID()); err != nil {
					return 0, err
				}
			}
			return 0, nil
		}); err != nil {
			return "", err
		}
		var sum strings.Builder
		for _, f := range futures {
			out, err := f.Get(ctx)
			if err != nil {
				return "", err
			}
			fmt.Fprintf(&sum, "%c%d ", out[0], len(out))
		}
		sig, err := durable.WaitSignal[[]byte](ctx, "blob")
		return fmt.Sprintf("%s%c%d %c%d", sum.String(), in[0], len(in), sig[0], len(sig)), err
	})
	x := w.work(durable.WorkerOptions{}, parent, child)
	h := begin(w, parent, "large", blob('z'))
	w.waitsFor("large", "blob")
	if err := w.Signal(soon(t), "large", "blob", blob('s')); err != nil {
		t.Fatal(err)
	}
	want := ""
	for i := range children {
		want += fmt.Sprintf("%c%d ", 'a'+i, size)
	}
	want += fmt.Sprintf("z%d s%d", size, size)
	if got := result(t, h); got != want {
		t.Errorf("the result is %.200q, want %q", got, want)
	}
	x.noProblems()
	w.validJournal("large")
}

// TestWideAndDeep starts many children at once, and children of children.
func TestWideAndDeep(t *testing.T) {
	t.Parallel()
	width, depth := 300, 40
	if testing.Short() {
		width, depth = 60, 20
	}
	w := newWorld(t)
	leaf := durable.NewFunction("leaf", func(ctx durable.Context, n int) (int, error) { return n, nil })
	wide := durable.NewFunction("wide", func(ctx durable.Context, spread bool) (int, error) {
		var opts []durable.CallOption
		if spread {
			opts = append(opts, durable.Spread())
		}
		var all []durable.Awaitable
		var futures []*durable.Future[int]
		for i := range width {
			f, err := durable.Go(ctx, leaf, i, opts...)
			if err != nil {
				return 0, err
			}
			futures, all = append(futures, f), append(all, f)
		}
		if err := durable.AwaitAll(ctx, all...); err != nil {
			return 0, err
		}
		sum := 0
		for _, f := range futures {
			v, err := f.Get(ctx)
			if err != nil {
				return 0, err
			}
			sum += v
		}
		return sum, nil
	})
	var deep *durable.Function[int, int]
	deep = durable.NewFunction("deep", func(ctx durable.Context, n int) (int, error) {
		if n == 0 {
			return 0, nil
		}
		v, err := durable.Call(ctx, deep, n-1)
		return v + 1, err
	})
	// One function at a time: a waiting function frees its slot.
	x := w.work(durable.WorkerOptions{Concurrency: 1}, leaf, wide, deep)
	near := begin(w, wide, "near", false)
	far := begin(w, wide, "far", true)
	down := begin(w, deep, "down", depth)
	want := width * (width - 1) / 2
	if got := result(t, near); got != want {
		t.Errorf("near: %d, want %d", got, want)
	}
	if got := result(t, far); got != want {
		t.Errorf("far: %d, want %d", got, want)
	}
	if got := result(t, down); got != depth {
		t.Errorf("down: %d, want %d", got, depth)
	}
	if got := len(w.list(client.ListOptions{})); got != 3+2*width+depth {
		t.Errorf("%d executions, want %d", got, 3+2*width+depth)
	}
	x.noProblems()
}

// TestLongIDs uses the longest ids there are: their operations have longer ones.
func TestLongIDs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	child := durable.NewFunction("child", func(ctx durable.Context, in int) (int, error) {
		return durable.Run(ctx, "step", func(context.Context) (int, error) { return in, nil })
	})
	parent := durable.NewFunction("parent", func(ctx durable.Context, in int) (int, error) {
		a, err := durable.Run(ctx, "step", func(context.Context) (int, error) { return in, nil })
		if err != nil {
			return 0, err
		}
		b, err := durable.Call(ctx, child, in)
		if err != nil {
			return 0, err
		}
		c, err := durable.Call(ctx, child, in, durable.Spread())
		if err != nil {
			return 0, err
		}
		if err := durable.Sleep(ctx, time.Millisecond); err != nil {
			return 0, err
		}
		d, err := durable.WaitSignal[int](ctx, "go")
		return a + b + c + d, err
	})
	x := w.work(durable.WorkerOptions{}, parent, child)
	long := strings.Repeat("é", 512)
	h := begin(w, parent, long, 1)
	w.signal(long, "go", "10")
	if got := result(t, h); got != 13 {
		t.Errorf("the result is %d", got)
	}
	if p, err := w.GetPromise(soon(t), long+":0"); err != nil || p.GetState() != resolved {
		t.Errorf("its step: %v, %v", p, err)
	}
	if got, err := w.Result(soon(t), long+":1"); err != nil || string(got) != "1" {
		t.Errorf("its child: %q, %v", got, err)
	}
	x.noProblems()
	w.validJournals()
}
