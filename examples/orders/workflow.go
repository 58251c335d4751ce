package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"perdure/durable"
)

// Shop is the shop's durable functions. They read like code that never crashes: recorded results survive the
// process, and the functions continue from there.
//
// To copy them, leave out World.Acked: it only keeps the books by which this example is checked.
type Shop struct {
	// Order fulfils one order, or undoes what it had done and says why. Its execution id is Order.ID.
	Order *durable.Function[Order, Result]
	// Shipment brings one parcel to the carrier. Every order that gets so far has one, as a child.
	Shipment *durable.Function[Parcel, Shipment]

	world *World
	// timeout is how long an order waits for the warehouse before it calls (flag --pick-timeout).
	timeout time.Duration
}

// Parcel is the input of a shipment.
type Parcel struct {
	Order  Order  `json:"order"`
	Picker string `json:"picker"`
}

// Shipment is the result of a shipment.
type Shipment struct {
	Tracking string    `json:"tracking"`
	At       time.Time `json:"at"`
}

// Picked is the warehouse's signal: the goods lie on the packing table.
type Picked struct {
	By string `json:"by"`
}

// SignalPicked is its name.
const SignalPicked = "picked"

// NewShop makes the functions. Their steps act on world.
func NewShop(world *World, timeout time.Duration) *Shop {
	s := &Shop{world: world, timeout: timeout}
	s.Order = durable.NewFunction("order", s.order)
	s.Shipment = durable.NewFunction("shipment", s.shipment)
	return s
}

// retryLong is the retry policy of the steps: an outage must not fail an order. A step with an intent also
// spends an attempt on every crash of its worker, so the number of attempts is a large one.
var retryLong = durable.WithRetry(durable.RetryPolicy{MaxAttempts: 100, Initial: 50 * time.Millisecond, Max: 5 * time.Second})

// maxCall bounds one attempt of a step that moves money or goods.
const maxCall = 30 * time.Second

// order fulfils an order. If that fails, it undoes all its completed steps, last things first, and notifies
// the customer. If it is cancelled, its clean-up execution undoes them.
func (s *Shop) order(ctx durable.Context, o Order) (Result, error) {
	result := Result{Order: o.ID(), Status: StatusShipped, Currency: o.Currency}
	done := saga{ctx: ctx, world: s.world, Saga: durable.NewSaga(ctx)}
	err := s.fulfil(ctx, o, &done, &result)
	if err == nil {
		return result, nil
	}
	var failure *durable.Error
	if !errors.As(err, &failure) {
		return result, err // cancelled: nothing more is recorded here
	}
	if err := done.Rollback(ctx); err != nil {
		return result, err // a person has to look into it
	}
	result.Status, result.Reason = StatusFailed, failure.Type
	result.Refunded = result.Charged
	_, err = s.world.Acked(durable.Run(ctx, StepApologize, func(ctx context.Context) (Receipt, error) {
		return s.world.Apologize(ctx, o, failure.Type)
	}, retryLong))
	return result, err
}

// fulfil runs an order's steps when every step succeeds.
func (s *Shop) fulfil(ctx durable.Context, o Order, done *saga, result *Result) error {
	// 1. Put the goods aside, line by line.
	for _, line := range o.Lines {
		err := done.do(StepReserve, func(ctx context.Context) (Receipt, error) { return s.world.Reserve(ctx, o, line) },
			StepRelease, func(ctx context.Context) (Receipt, error) { return s.world.Release(ctx, o, line) })
		if err != nil {
			return err
		}
	}

	// 2. Take the money.
	total := o.Total()
	err := done.do(StepCharge, func(ctx context.Context) (Receipt, error) { return s.world.Charge(ctx, o, total) },
		StepRefund, func(ctx context.Context) (Receipt, error) { return s.world.Refund(ctx, o, total) })
	if err != nil {
		return err
	}
	result.Charged = total

	// 3. Have it picked.
	picked, err := s.pick(ctx, o)
	if err != nil {
		return err
	}

	// 4. Ship it: a function of its own, with its own journal, as a child of this one.
	shipment, err := durable.Call(ctx, s.Shipment, Parcel{Order: o, Picker: picked.By})
	if err != nil {
		return err
	}
	result.Tracking = shipment.Tracking

	// 5. Notify the customer.
	_, err = s.world.Acked(durable.Run(ctx, StepConfirm, func(ctx context.Context) (Receipt, error) {
		return s.world.Confirm(ctx, o, shipment.Tracking)
	}, retryLong))
	return err
}

// pick asks the warehouse to pick the goods and waits for its signal. A time-out alone proves nothing: the
// signal may be late because this side was down. So the shop asks before it fails the order.
func (s *Shop) pick(ctx durable.Context, o Order) (Picked, error) {
	_, err := s.world.Acked(durable.Run(ctx, StepPick, func(ctx context.Context) (Receipt, error) {
		return s.world.RequestPick(ctx, o)
	}, retryLong))
	if err != nil {
		return Picked{}, err
	}
	for {
		picked, err := durable.WaitSignal[Picked](ctx, SignalPicked, durable.Timeout(s.timeout))
		if !errors.Is(err, durable.ErrTimeout) {
			return picked, err
		}
		_, err = s.world.Acked(durable.Run(ctx, StepCall, func(ctx context.Context) (Receipt, error) {
			return s.world.CallWarehouse(ctx, o)
		}, retryLong))
		if err != nil {
			return Picked{}, err
		}
	}
}

// shipment books a parcel and hands it over when the carrier comes by.
func (s *Shop) shipment(ctx durable.Context, p Parcel) (Shipment, error) {
	number, err := durable.Random(ctx)
	if err != nil {
		return Shipment{}, err
	}
	tracking := fmt.Sprintf("PX%010d", number%1e10)
	_, err = s.world.Acked(durable.Run(ctx, StepBook, func(ctx context.Context) (Receipt, error) {
		return s.world.Book(ctx, p.Order, tracking)
	}, retryLong))
	if err != nil {
		return Shipment{}, err
	}
	if err := durable.Sleep(ctx, 100*time.Millisecond); err != nil { // the carrier's van is on its way
		return Shipment{}, err
	}
	_, err = s.world.Acked(durable.Run(ctx, StepHandOver, func(ctx context.Context) (Receipt, error) {
		return s.world.HandOver(ctx, p.Order, tracking, p.Picker)
	}, retryLong))
	if err != nil {
		return Shipment{}, err
	}
	now, err := durable.Now(ctx)
	return Shipment{Tracking: tracking, At: now}, err
}

// saga is the SDK's, whose steps are calls of the outside world.
type saga struct {
	*durable.Saga
	ctx   durable.Context
	world *World
}

// action is a call of the outside world.
type action func(ctx context.Context) (Receipt, error)

// do runs a step that can be undone.
func (s *saga) do(name string, step action, undoName string, undoStep action) error {
	_, err := s.world.Acked(durable.DoFunc(s.ctx, s.Saga, name, step, func(ctx durable.Context, _ durable.Done[Receipt]) error {
		_, err := s.world.Acked(durable.Run(ctx, undoName, undoStep, durable.WithIntent(), durable.WithTimeout(maxCall), retryLong))
		return err
	}, durable.WithTimeout(maxCall), retryLong))
	return err
}
