package main

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"perdure/client"
	"perdure/durable"
	"perdure/embed"
)

// An order that is cancelled while the warehouse picks it is refunded, and its goods are released: by its clean-up
// execution, though the worker was gone when the order was cancelled.
func TestCancelledOrderIsRefunded(t *testing.T) {
	t.Parallel() // it waits most of the time
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	node, err := embed.Start(ctx, embed.Config{DataDir: t.TempDir(), GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0",
		PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0", DiskReserve: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := node.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}()
	c, err := client.Dial(client.Options{Addrs: []string{node.GRPCAddr()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()

	dir := t.TempDir()
	work := func() (shop *Shop, stop func()) {
		world, err := OpenWorld(dir, sampleStock, "shop", 0)
		if err != nil {
			t.Fatal(err)
		}
		shop = NewShop(world, time.Hour)
		w := durable.NewWorker(c, durable.WorkerOptions{})
		w.Register(shop.Order, shop.Shipment)
		running, end := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() { done <- w.Run(running) }()
		<-w.Ready()
		return shop, func() {
			end()
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	}
	shop, stop := work()
	order := sample()
	if _, err := shop.Order.Start(ctx, c, order.ID(), order); err != nil {
		t.Fatal(err)
	}
	cents := func(step string) (sum int64) {
		effects, _, err := readLog(filepath.Join(dir, effectsFile), ParseEffect)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range effects {
			if e.Step == step && e.Outcome == outcomeDone {
				sum += max(e.Cents, 1)
			}
		}
		return sum
	}
	waitFor(t, ctx, "the wait for the warehouse", func() (bool, string) {
		e, err := c.Describe(ctx, order.ID())
		return err == nil && e.GetWaiting().GetSignalName() == SignalPicked, e.String()
	})
	stop()

	if _, err := c.Cancel(ctx, order.ID(), "the customer has withdrawn", 50*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Result(ctx, order.ID()); err == nil {
		t.Fatal("the order was cancelled, and has a result")
	}
	e, err := c.Describe(ctx, order.ID())
	if err != nil || e.GetCleanup() == nil || e.GetCancelReason() != "the customer has withdrawn" {
		t.Fatalf("%v, %v", e, err)
	}
	_, stop = work()
	defer stop()
	if _, err := c.Result(ctx, e.GetCleanup().GetId()); err != nil {
		t.Fatal(err)
	}
	if charged, refunded := cents(StepCharge), cents(StepRefund); charged != order.Total() || refunded != charged {
		t.Errorf("charged %d, refunded %d, expected %d", charged, refunded, order.Total())
	}
	if reserved, released := cents(StepReserve), cents(StepRelease); reserved != int64(len(order.Lines)) || released != reserved {
		t.Errorf("%d lines reserved, %d released, expected %d", reserved, released, len(order.Lines))
	}
}
