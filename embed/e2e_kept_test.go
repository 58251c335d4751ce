package embed_test

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/client"
	"perdure/durable"
)

// received counts what a worker's streams bring.
type received struct{ entries, pages, bytes atomic.Int64 }

// option makes a client count.
func (r *received) option() grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, open grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		stream, err := open(ctx, desc, cc, method, opts...)
		return counted{stream, r}, err
	})
}

type counted struct {
	grpc.ClientStream
	in *received
}

func (c counted) RecvMsg(m any) error {
	err := c.ClientStream.RecvMsg(m)
	if w, ok := m.(*perdurev1.WorkResponse); ok && err == nil {
		c.in.bytes.Add(int64(proto.Size(w)))
		c.in.entries.Add(int64(len(w.GetTask().GetEntries())))
		if page := w.GetJournal(); page != nil {
			c.in.pages.Add(1)
			c.in.entries.Add(int64(len(page.GetEntries())))
		}
	}
	return err
}

// longLived takes n random numbers, then adds up the signals "add" until it gets 0.
var longLived = durable.NewFunction("long-lived", func(ctx durable.Context, n int) (sum int, err error) {
	for range n {
		if _, err := durable.Random(ctx); err != nil {
			return 0, err
		}
	}
	for {
		add, err := durable.WaitSignal[int](ctx, "add")
		if err != nil || add == 0 {
			return sum, err
		}
		sum += add
	}
})

// A woken function that is in its worker's memory costs what is new, however long its journal is. A worker that has lost
// it asks for the whole journal.
func TestWakeCarriesNoJournal(t *testing.T) {
	w := newWorld(t)
	const long, wakes = 3000, 20
	var in received
	first := w.workVia(client.Options{DialOptions: []grpc.DialOption{in.option()}}, durable.WorkerOptions{}, longLived)
	h := begin(w, longLived, "long", long)
	w.waitsFor("long", "add")
	for i := range wakes + 1 {
		w.signal("long", "add", "1")
		first.saw(durable.EventContinued, "long", i+1)
		w.waitsFor("long", "add")
		if i == 0 {
			in.entries.Store(0) // the first wake brings the entries of the function's last commit
		}
	}
	if n, pages := in.entries.Load(), in.pages.Load(); n < wakes || n > 5*wakes || pages != 0 {
		t.Errorf("%d wakes brought %d entries and %d pages", wakes, n, pages)
	}
	first.stop()

	// This worker has room for one function, so each function makes it drop the other.
	var lost received
	second := w.workVia(client.Options{DialOptions: []grpc.DialOption{lost.option()}}, durable.WorkerOptions{StickyFunctions: 1}, longLived)
	other := begin(w, longLived, "other", 10)
	w.waitsFor("other", "add")
	w.signal("long", "add", "1")
	w.waitsFor("long", "add") // other is lost now
	second.saw(durable.EventDropped, "other", 1)
	before := lost.entries.Load()
	if before < long {
		t.Errorf("a worker that never had the function got %d entries", before)
	}
	w.signal("other", "add", "1")
	w.waitsFor("other", "add") // long is lost now
	second.saw(durable.EventDropped, "long", 1)
	w.signal("long", "add", "1")
	w.waitsFor("long", "add")
	if n := lost.entries.Load() - before; n < long {
		t.Errorf("a worker that lost the function got %d entries", n)
	}
	if second.count(durable.EventContinued, "") != 0 {
		t.Error("a lost function continued")
	}
	for _, id := range []string{"long", "other"} {
		w.signal(id, "add", "0")
	}
	if sum := result(t, h); sum != wakes+3 {
		t.Errorf("the function added up %d of %d", sum, wakes+3)
	}
	if sum := result(t, other); sum != 1 {
		t.Errorf("the other function added up %d", sum)
	}
	first.noProblems()
	second.noProblems()
}

// BenchmarkWake measures the wake of a function with 10,000 events: what the worker receives, and the allocations of the
// node and the worker together.
func BenchmarkWake(b *testing.B) {
	n, err := shared()
	if err != nil {
		b.Fatal(err)
	}
	sharedUsed.Store(true)
	var in received
	c, err := client.Dial(client.Options{Addrs: []string{n.GRPCAddr()}, Namespace: b.Name(), Logger: slog.New(slog.DiscardHandler), DialOptions: []grpc.DialOption{in.option()}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { c.Close() })
	waits := make(chan struct{}, 1)
	worker := durable.NewWorker(c, durable.WorkerOptions{OnEvent: func(e durable.Event) {
		if e.Kind == durable.EventActivationEnded {
			waits <- struct{}{}
		}
	}})
	worker.Register(longLived)
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	stop, end := context.WithCancel(ctx)
	go func() { ended <- worker.Run(stop) }()
	defer func() {
		end()
		<-ended
	}()
	<-worker.Ready()
	id := fmt.Sprint("long-", b.N)
	if _, err := longLived.Start(ctx, c, id, 10_000); err != nil {
		b.Fatal(err)
	}
	<-waits
	in.bytes.Store(0)
	b.ReportAllocs()
	for b.Loop() {
		if err := c.Signal(ctx, id, "add", []byte("1")); err != nil {
			b.Fatal(err)
		}
		<-waits
	}
	b.ReportMetric(float64(in.bytes.Load())/float64(b.N), "received-B/op")
}
