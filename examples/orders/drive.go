package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// Drive starts every order of the book and waits for its result, at most inFlight of them at once. Orders
// that were started before are the same executions: their completed steps do not run again. It returns the
// results that it has when ctx ends or the cluster refuses a call.
func Drive(ctx context.Context, c *client.Client, order *durable.Function[Order, Result], book Book, inFlight int, p *Progress) (map[string]Result, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var (
		mu      sync.Mutex
		results = map[string]Result{}
		workers sync.WaitGroup
		next    = make(chan Order)
	)
	for range min(inFlight, len(book.Orders)) {
		workers.Go(func() {
			for o := range next {
				result, err := driveOne(ctx, c, order, o, p)
				if err != nil {
					cancel(err)
					return
				}
				mu.Lock()
				results[o.ID()] = result
				mu.Unlock()
			}
		})
	}
hand:
	for _, o := range book.Orders {
		select {
		case next <- o:
		case <-ctx.Done():
			break hand
		}
	}
	close(next)
	workers.Wait()
	if len(results) == len(book.Orders) {
		return results, nil
	}
	return results, context.Cause(ctx)
}

// driveOne starts one order and waits for its result.
func driveOne(ctx context.Context, c *client.Client, order *durable.Function[Order, Result], o Order, p *Progress) (Result, error) {
	h, err := order.Start(ctx, c, o.ID(), o, durable.AllowUnknownFunction(), durable.StartTags(map[string]string{"customer": o.Customer.Email}))
	if err != nil {
		return Result{}, fmt.Errorf("starting %s: %w", o.ID(), err)
	}
	p.started.Add(1)
	earlier := over(h.Started().Status)
	result, err := h.Result(ctx)
	var ended *client.ExecutionError
	switch {
	case errors.As(err, &ended): // it should never fail; the check will say so
		result = Result{Order: o.ID(), Status: StatusFailed, Reason: ended.Error(), Currency: o.Currency}
	case err != nil:
		return Result{}, fmt.Errorf("waiting for %s: %w", o.ID(), err)
	}
	p.Ended(result.Status == StatusShipped, earlier)
	return result, nil
}

// over reports whether an execution has ended.
func over(s client.Status) bool {
	switch s {
	case perdurev1.ExecutionStatus_EXECUTION_STATUS_COMPLETED, perdurev1.ExecutionStatus_EXECUTION_STATUS_FAILED, perdurev1.ExecutionStatus_EXECUTION_STATUS_CANCELLED:
		return true
	}
	return false
}
