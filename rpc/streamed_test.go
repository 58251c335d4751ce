package rpc_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/embed"
	"perdure/internal/callstream"
	"perdure/internal/testkit"
	"perdure/rpc/auth"
)

// bearer is a token on every call.
type bearer string

func (b bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(b)}, nil
}
func (bearer) RequireTransportSecurity() bool { return false }

// TestCallsOnAStream: each call on a stream is checked against the token, counted, and charged its bytes, as a unary
// call is.
func TestCallsOnAStream(t *testing.T) {
	t.Parallel()
	const token = "writer-of-namespace-a"
	row, err := auth.Row("writer", token, "a", auth.Write)
	if err != nil {
		t.Fatal(err)
	}
	tokens := filepath.Join(t.TempDir(), "tokens")
	if err := os.WriteFile(tokens, []byte(row), 0o600); err != nil {
		t.Fatal(err)
	}
	n := startNode(t, func(cfg *embed.Config) { cfg.TokensFile = tokens })
	value := func(series string) (v float64) {
		req, err := http.NewRequestWithContext(soon(t), http.MethodGet, "http://"+n.HTTPAddr()+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+token)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			if text, is := strings.CutPrefix(lines.Text(), series+" "); is {
				if v, err = strconv.ParseFloat(text, 64); err != nil {
					t.Fatal(err)
				}
			}
		}
		return v
	}
	dial := func(token bearer) (perdurev1.ExecutionsClient, *atomic.Int32) {
		conn, err := grpc.NewClient(n.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithPerRPCCredentials(token))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		carried := new(atomic.Int32)
		calls := callstream.NewConn(conn, callstream.Options{Name: callstream.ForClients, Carries: func(string) bool { return true },
			Sent: func(context.Context) { carried.Add(1) }})
		t.Cleanup(func() { calls.Close() })
		return perdurev1.NewExecutionsClient(calls), carried
	}
	var ids atomic.Int32
	start := func(ctx context.Context, c perdurev1.ExecutionsClient, ns string, wait time.Duration) error {
		number := ids.Add(1)
		rid := make([]byte, 16)
		copy(rid, fmt.Sprint(number))
		_, err := c.Start(ctx, &perdurev1.StartRequest{Request: &perdurev1.RequestID{Id: rid}, Namespace: ns, Id: fmt.Sprint("x", number),
			Function: "f", Input: make([]byte, 16<<10), AllowUnknownFunction: true, WaitMs: wait.Milliseconds()})
		return err
	}
	c, carried := dial(token)
	testkit.EventuallyNil(t, testTimeout, "a call to go by a stream", func() error {
		if err := start(soon(t), c, "a", 0); err != nil {
			t.Fatal(err)
		}
		if carried.Load() == 0 {
			return fmt.Errorf("none of %d", ids.Load())
		}
		return nil
	})
	before := carried.Load()
	if err := start(soon(t), c, "b", 0); !api.Is(err, perdurev1.Reason_REASON_PERMISSION_DENIED) {
		t.Fatalf("a start in another namespace: %v", err)
	}
	if _, err := c.Result(soon(t), &perdurev1.ResultRequest{Namespace: "a", Id: "nobody"}); !api.Is(err, perdurev1.Reason_REASON_EXECUTION_NOT_FOUND) {
		t.Errorf("the result of nothing: %v", err)
	}
	if _, err := c.Result(soon(t), &perdurev1.ResultRequest{Namespace: "b", Id: "nobody"}); !api.Is(err, perdurev1.Reason_REASON_PERMISSION_DENIED) {
		t.Errorf("a result in another namespace: %v", err)
	}
	if _, err := c.Signal(soon(t), &perdurev1.SignalRequest{Request: rid(), Namespace: "b", Id: "nobody", Name: "s"}); !api.Is(err, perdurev1.Reason_REASON_PERMISSION_DENIED) {
		t.Errorf("a signal in another namespace: %v", err)
	}
	if _, err := c.Describe(soon(t), &perdurev1.DescribeRequest{Namespace: "b", Id: "nobody"}); !api.Is(err, perdurev1.Reason_REASON_PERMISSION_DENIED) {
		t.Errorf("a description in another namespace: %v", err)
	}
	if got := carried.Load() - before; got != 5 {
		t.Errorf("%d of five calls went by the stream", got)
	}
	waits, end := context.WithCancel(soon(t))
	ended := make(chan error, 10)
	for range cap(ended) {
		if err := start(soon(t), c, "a", 0); err != nil {
			t.Fatal(err)
		}
		id := fmt.Sprint("x", ids.Load())
		go func() {
			_, err := c.Result(waits, &perdurev1.ResultRequest{Namespace: "a", Id: id, WaitMs: 60_000})
			ended <- err
		}()
	}
	// A start that waits holds no input.
	for range 3 {
		go start(waits, c, "a", time.Minute)
	}
	label := `perdure_grpc_calls_total{code="OK",method="/perdure.v1.Executions/Start"}`
	testkit.EventuallyNil(t, testTimeout, "the bytes of calls that wait", func() error {
		bytes, calls := value("perdure_request_bytes"), value(label)
		if bytes > 24<<10 || int32(calls) != ids.Load()-4 { // one was refused, three wait
			return fmt.Errorf("%v bytes; %v of %d starts are counted", bytes, calls, ids.Load())
		}
		return nil
	})
	end()
	for range cap(ended) {
		if err := <-ended; status.Code(err) != codes.Canceled {
			t.Errorf("a cancelled wait: %v", err)
		}
	}
	other, carried := dial("nobody's-token-of-some-length")
	for range 20 {
		if err := start(soon(t), other, "a", 0); status.Code(err) != codes.Unauthenticated {
			t.Fatalf("a start with an unknown token: %v", err)
		}
	}
	if carried.Load() != 0 {
		t.Error("a stream was opened with an unknown token")
	}
}
