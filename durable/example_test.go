package durable_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"perdure/client"
	"perdure/durable"
)

// Order is what the example's function is started with.
type Order struct {
	ID     string
	Amount int
}

var ship = durable.NewFunction("ship", func(ctx durable.Context, order string) (string, error) {
	return durable.Run(ctx, "book a courier", func(context.Context) (string, error) { return "courier for " + order, nil })
})

var order = durable.NewFunction("order", func(ctx durable.Context, in Order) (string, error) {
	payment, err := durable.Run(ctx, "charge", func(ctx context.Context) (string, error) {
		// The promise id is the same at every attempt: the bank recognizes a repetition by it.
		return fmt.Sprintf("charged %d under %s", in.Amount, durable.StepInfo(ctx).PromiseID), nil
	}, durable.WithRetry(durable.RetryPolicy{MaxAttempts: 10}))
	if err != nil {
		return "", err
	}
	_, err = durable.WaitSignal[string](ctx, "packed", durable.Timeout(48*time.Hour))
	if errors.Is(err, durable.ErrTimeout) {
		return "", &durable.Error{Type: "not packed", Message: "no packer packed " + in.ID}
	}
	if err != nil {
		return "", err
	}
	courier, err := durable.Call(ctx, ship, in.ID)
	return payment + ", " + courier, err
})

// A worker and a client in one process.
func Example() {
	c, err := client.Dial(client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	w := durable.NewWorker(c, durable.WorkerOptions{Name: "shop"})
	w.Register(order, ship)
	stopped := make(chan error, 1)
	go func() { stopped <- w.Run(ctx) }()
	<-w.Ready()

	h, err := order.Start(ctx, c, "order-42", Order{ID: "order-42", Amount: 7})
	if err != nil {
		log.Fatal(err)
	}
	if err := c.Signal(ctx, h.ID(), "packed", nil); err != nil {
		log.Fatal(err)
	}
	receipt, err := h.Result(ctx)
	fmt.Println(receipt, err)
	stop()
	fmt.Println(<-stopped)
}
