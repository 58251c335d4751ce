// Command hello is the example of the README: one durable function, a worker that runs it, and a start of it.
// It needs a node (go run ./cmd/node dev).
//
// It owns the code of the function. A second run finds the execution of the first. It stores nothing itself,
// so a crash loses nothing: run it again and it continues.
package main

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

type Order struct {
	ID    string
	Cents int
}

// order charges a card, waits up to two days for the warehouse, and refunds the money if it does not answer.
var order = durable.NewFunction("order", func(ctx durable.Context, in Order) (string, error) {
	payment, err := durable.Run(ctx, "charge", func(ctx context.Context) (string, error) {
		return charge(ctx, in.Cents, durable.StepInfo(ctx).PromiseID)
	})
	if err != nil {
		return "", err
	}
	shelf, err := durable.WaitSignal[string](ctx, "picked", durable.Timeout(48*time.Hour))
	if errors.Is(err, durable.ErrTimeout) {
		_, err := durable.Run(ctx, "refund", func(ctx context.Context) (string, error) {
			return charge(ctx, -in.Cents, durable.StepInfo(ctx).PromiseID)
		})
		return "refunded", err
	}
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%s, from shelf %s", payment, shelf), nil
})

// charge simulates a payment service. The key is the same at every attempt, so the service can ignore
// repetitions.
func charge(_ context.Context, cents int, key string) (string, error) {
	return fmt.Sprintf("paid %d cents under %s", cents, key), nil
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, "127.0.0.1:7400"); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, addr string) error {
	c, err := client.Dial(client.Options{Addrs: []string{addr}})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()

	working, stopWorker := context.WithCancel(ctx)
	defer stopWorker()
	w := durable.NewWorker(c, durable.WorkerOptions{})
	w.Register(order)
	stopped := make(chan error, 1)
	go func() { stopped <- w.Run(working) }()
	select {
	case <-w.Ready():
	case err := <-stopped:
		return err // the cluster refused the worker, or ctx ended
	}

	h, err := order.Start(ctx, c, "order-42", Order{ID: "order-42", Cents: 1999})
	if err != nil {
		return err
	}
	fmt.Println(`waiting for: perdure signal order-42 picked --payload '"B7"'`)
	receipt, err := h.Result(ctx)
	if err != nil {
		return err
	}
	fmt.Println(receipt)
	stopWorker()
	return <-stopped
}
