package durable

import (
	"context"
	"fmt"
	"testing"
)

// BenchmarkThreeSteps runs executions of three steps, one after the other; the fake cluster's work is included.
func BenchmarkThreeSteps(b *testing.B) {
	f := newFake(b)
	f.worker(WorkerOptions{}, NewFunction("f", func(ctx Context, _ string) (int, error) {
		for range 3 {
			if _, err := Run(ctx, "s", func(context.Context) (int, error) { return 1, nil }); err != nil {
				return 0, err
			}
		}
		return 1, nil
	}))
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		n++
		id := fmt.Sprint("x", n)
		f.start(id, "f", `""`)
		f.wait("the end", func() bool { return f.execs[id].j.Status().Terminal() })
	}
}
