package embed_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"

	"perdure/client"
	"perdure/durable"
	"perdure/internal/testkit"
)

// streams returns how many worker streams end at each node.
func streams(t *testing.T, nodes []*running) (out []int) {
	t.Helper()
	for _, n := range nodes {
		count := -1
		if resp, err := http.Get("http://" + n.cfg.HTTPAddr + "/metrics"); err == nil {
			body, _ := io.ReadAll(resp.Body)
			_ = resp.Body.Close()
			if m := regexp.MustCompile(`(?m)^perdure_worker_streams (\d+)`).FindSubmatch(body); m != nil {
				_, _ = fmt.Sscan(string(m[1]), &count)
			}
		}
		out = append(out, count)
	}
	return out
}

func streamsBecome(t *testing.T, nodes []*running, want ...int) {
	t.Helper()
	testkit.EventuallySeen(t, testTimeout, fmt.Sprintf("worker streams %v", want), func() (string, bool) {
		got := fmt.Sprint(streams(t, nodes))
		return got, got == fmt.Sprint(want)
	})
}

// TestWorkerSessions: a worker that reaches every node has a session with each, also after one of them was
// gone. A worker that reaches one node, as behind a load balancer, has one session, and serves all partitions
// over it.
func TestWorkerSessions(t *testing.T) {
	t.Parallel()
	cfgs := memberConfigs(t)
	nodes := startAll(t, cfgs...)
	c := clusterClient(t, cfgs...)
	const concurrency = 3
	var running, highest atomic.Int64
	fn := durable.NewFunction("counted", func(ctx durable.Context, in int) (int, error) {
		return durable.Run(ctx, "step", func(context.Context) (int, error) {
			n := running.Add(1)
			defer running.Add(-1)
			for old := highest.Load(); n > old && !highest.CompareAndSwap(old, n); old = highest.Load() {
			}
			return in, nil
		})
	})
	work := func(c *client.Client) (stop func()) {
		w := durable.NewWorker(c, durable.WorkerOptions{Concurrency: concurrency})
		w.Register(fn)
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		receive(t, "the worker's welcome", w.Ready())
		return func() {
			cancel()
			if err := receive(t, "the worker's end", done); err != nil {
				t.Error(err)
			}
		}
	}
	run := func(what string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(context.Background(), 2*testTimeout)
		defer cancel()
		var handles []*durable.Handle[int]
		for i := range 60 {
			h, err := fn.Start(ctx, c, fmt.Sprintf("%s-%d", what, i), i)
			if err != nil {
				t.Fatal(err)
			}
			handles = append(handles, h)
		}
		for i, h := range handles {
			if got, err := h.Result(ctx); err != nil || got != i {
				t.Fatalf("%s-%d: %d, %v", what, i, got, err)
			}
		}
	}
	stop := work(c)
	streamsBecome(t, nodes, 1, 1, 1)
	run("all")
	if err := nodes[2].stop(); err != nil {
		t.Fatal(err)
	}
	run("two")
	streamsBecome(t, nodes[:2], 1, 1)
	nodes[2] = startAll(t, cfgs[2])[0]
	run("returning")
	streamsBecome(t, nodes, 1, 1, 1)
	stop()
	streamsBecome(t, nodes, 0, 0, 0)

	// Only one address can be reached: the nodes announce others that are behind it.
	balanced, err := client.Dial(client.Options{Addrs: []string{cfgs[0].GRPCAddr}, DialOptions: onlyAddr(cfgs[0].GRPCAddr)})
	if err != nil {
		t.Fatal(err)
	}
	defer balanced.Close()
	stop = work(balanced)
	run("balanced")
	streamsBecome(t, nodes, 1, 0, 0)
	stop()
	if n := highest.Load(); n > concurrency {
		t.Errorf("%d tasks ran at the same time, the capacity is %d", n, concurrency)
	}
}

// onlyAddr has a client reach one address and no other.
func onlyAddr(addr string) []grpc.DialOption {
	return []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, to string) (net.Conn, error) {
		if to != addr {
			return nil, errors.New("out of reach")
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", to)
	})}
}
