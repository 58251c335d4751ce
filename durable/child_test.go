package durable

import (
	"context"
	"errors"
	"strings"
	"testing"

	"perdure/client"
)

// Parents and children of one worker, several levels deep, with one slot: waiting takes none.
func TestChildren(t *testing.T) {
	f := newFake(t)
	var fib *Function[int, int]
	fib = NewFunction("fib", func(ctx Context, n int) (int, error) {
		if n < 2 {
			return n, nil
		}
		a, err := Go(ctx, fib, n-1)
		if err != nil {
			return 0, err
		}
		b, err := Call(ctx, fib, n-2)
		if err != nil {
			return 0, err
		}
		c, err := a.Get(ctx)
		return b + c, err
	})
	f.worker(WorkerOptions{Concurrency: 1}, fib)
	c := f.client(client.Options{})
	h, err := fib.Start(t.Context(), c, "fib", 7, StartTags(map[string]string{"a": "b"}))
	if err != nil || !h.Started().Created || h.ID() != "fib" {
		t.Fatal(h, err)
	}
	if n, err := h.Result(t.Context()); n != 13 || err != nil {
		t.Error(n, err)
	}
	again, err := fib.Start(t.Context(), c, "fib", 7)
	if err != nil || again.Started().Created {
		t.Error(again, err)
	}
	for id := range f.execs {
		f.finished(id)
	}
}

// A failure crosses from step to child to parent to the caller that asked for the result.
func TestFailureCrosses(t *testing.T) {
	f := newFake(t)
	inner := NewFunction("inner", func(ctx Context, _ string) (string, error) {
		return Run(ctx, "s", func(context.Context) (string, error) {
			return "", &Error{Type: "broke", Message: "no money", Details: []byte{1, 2}, NonRetryable: true}
		})
	})
	outer := NewFunction("outer", func(ctx Context, in string) (string, error) {
		fs := []Awaitable{}
		for range 2 {
			future, err := Go(ctx, inner, in)
			if err != nil {
				return "", err
			}
			fs = append(fs, future)
		}
		return "", AwaitAll(ctx, fs...)
	})
	f.worker(WorkerOptions{}, inner, outer)
	h, err := outer.Start(t.Context(), f.client(client.Options{}), "x", "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = h.Result(t.Context())
	var e *Error
	var ended *client.ExecutionError
	if !errors.As(err, &e) || e.Type != "broke" || e.Message != "no money" || string(e.Details) != "\x01\x02" {
		t.Errorf("%#v", e)
	}
	if !errors.As(err, &ended) || ended.ID != "x" || !strings.Contains(err.Error(), "no money") {
		t.Errorf("%v", err)
	}
	if _, err := outer.Attach(f.client(client.Options{}), "missing").Result(t.Context()); err == nil {
		t.Error("a result of nothing")
	}
}
