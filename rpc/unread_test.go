package rpc_test

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/embed"
	"perdure/internal/ingress/ingresstest"
	"perdure/rpc/auth"
)

const unreadToken = "a-token-of-more-than-24-bytes"

// unfinished begins n requests of size bytes, each on a connection of its own, sends of each as much as the server
// takes, and answers how much that was.
func unfinished(t *testing.T, addr string, n int, size int64) int64 {
	t.Helper()
	var wg sync.WaitGroup
	var mu sync.Mutex
	total := int64(0)
	for range n {
		c, err := ingresstest.Dial(addr, 0)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		wg.Go(func() {
			r := c.Begin(perdurev1.Executions_Start_FullMethodName, "")
			r.Announce(uint32(size))
			r.Push(size-1, time.Second)
			mu.Lock()
			defer mu.Unlock()
			total += r.Sent()
		})
	}
	wg.Wait()
	return total
}

// TestUnfinishedRequests has callers begin requests that they do not finish: without a token the node takes no more
// of each than a window; where no token is asked for, no more of all together than Config.RequestBytes. Others are
// served meanwhile.
func TestUnfinishedRequests(t *testing.T) {
	const callers, size = 50, 20 << 20
	for name, c := range map[string]struct {
		secure bool
		most   int64
	}{
		"without a token":       {true, callers * (64<<10 + 16<<10)},
		"no token is asked for": {false, 64<<20 + 8<<20},
	} {
		t.Run(name, func(t *testing.T) {
			n := startNode(t, func(cfg *embed.Config) {
				if !c.secure {
					return
				}
				row, err := auth.Row("worker", unreadToken, "*", auth.Write)
				if err != nil {
					t.Fatal(err)
				}
				cfg.TokensFile = filepath.Join(t.TempDir(), "tokens")
				if err := os.WriteFile(cfg.TokensFile, []byte(row), 0o600); err != nil {
					t.Fatal(err)
				}
			})
			before := heap()
			sent := unfinished(t, n.GRPCAddr(), callers, size)
			after := heap()
			t.Logf("%d requests of %d MiB: %d KiB were taken of them; the heap has grown by %d KiB", callers, size>>20, sent>>10, (after-before)>>10)
			// The server takes a refused request off the wire and drops it: the bytes sent are bounded only
			// if the caller heeds the refusal, as this one does.
			if sent > c.most {
				t.Errorf("%d bytes were taken, at most %d should be", sent, c.most)
			}
			if grown := after - before; grown > 2*c.most+32<<20 {
				t.Errorf("the heap has grown by %d bytes", grown)
			}
			w := connect(t, n)
			_, err := w.executions.Describe(soon(t), &perdurev1.DescribeRequest{Namespace: w.ns, Id: "x"})
			if code := status.Code(err); code != codes.NotFound && code != codes.Unauthenticated {
				t.Errorf("an innocent caller: %v", err)
			}
			if c.secure {
				return
			}
			// A large request is served, too: the unfinished ones give way.
			until(t, "a large request to be taken", func() error {
				_, err := w.executions.Start(soon(t), &perdurev1.StartRequest{Namespace: w.ns, Id: "large", Function: "f", AllowUnknownFunction: true,
					Input: []byte(`"` + strings.Repeat("x", 3<<20) + `"`)})
				return err
			})
		})
	}
}

// heap is how much the heap holds.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
