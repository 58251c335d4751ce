package workload

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// The workloads of namespaces that offer more than their quotas. No cell measures them: they run beside one.
const (
	OverStarts = "over-starts"
	OverBytes  = "over-bytes"
)

// HoldFor is how long an execution of OverStarts is open.
const HoldFor = 2 * time.Second

// Refused is how many operations were refused for a quota, in Result.Extra.
const Refused = "refused for a quota"

var overStarts = &Workload{Name: OverStarts, Unit: "starts", Title: "executions that are open for two seconds, beyond a quota",
	register: []durable.Registration{holdFunction}, run: runOverStarts}

var overBytes = &Workload{Name: OverBytes, Unit: "promises", Title: "promises that time out, beyond a quota", run: runOverBytes}

var holdFunction = durable.NewFunction("bench-hold", func(ctx durable.Context, text string) (string, error) {
	return text, durable.Sleep(ctx, HoldFor)
})

func runOverStarts(ctx context.Context, e *env) (*Result, error) {
	return e.excess(ctx, func(ctx context.Context, n int64) error {
		_, err := holdFunction.Start(ctx, e.client(n), e.id(n), e.text)
		return err
	})
}

func runOverBytes(ctx context.Context, e *env) (*Result, error) {
	return e.excess(ctx, func(ctx context.Context, n int64) error {
		_, err := e.client(n).CreatePromise(ctx, e.id(n), client.PromiseOptions{Param: []byte(e.text), Timeout: time.Minute})
		return err
	})
}

// excess measures operations of which a quota refuses most.
func (e *env) excess(ctx context.Context, op func(ctx context.Context, n int64) error) (*Result, error) {
	var refused atomic.Int64
	r, err := e.measure(ctx, func(ctx context.Context, n int64) error {
		err := op(ctx, n)
		if e := (*api.Error)(nil); errors.As(err, &e) && e.Reason == perdurev1.Reason_REASON_QUOTA_EXCEEDED {
			refused.Add(1)
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	r.Extra = map[string]float64{Refused: float64(refused.Load())}
	return r, nil
}
