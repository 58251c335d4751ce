package rpc

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// callOnce makes one call with a client of its own.
func callOnce(t *testing.T, ctx context.Context, in outboundRequest) ([]byte, *perdurev1.Failure) {
	t.Helper()
	client := newOutboundClient(&loopback)
	defer client.CloseIdleConnections()
	input, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	return callService(ctx, client, &loopback, "perdure/test", input)
}

// fails makes a call that must fail with a type.
func fails(t *testing.T, in outboundRequest, kind string) *perdurev1.Failure {
	t.Helper()
	result, failed := callOnce(t, t.Context(), in)
	if failed.GetType() != kind || failed.GetMessage() == "" || len(failed.GetMessage()) > 3*maxFailureBytes {
		t.Fatalf("result %.100q, failure %v, want %s with a message of bounded length", result, failed, kind)
	}
	return failed
}

func serve(t *testing.T, h http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// TestOutboundRequest checks the request that a service gets.
func TestOutboundRequest(t *testing.T) {
	var got *http.Request
	var body []byte
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(context.Background())
		body, _ = io.ReadAll(r.Body)
	})
	result, failed := callOnce(t, t.Context(), outboundRequest{URL: s.URL + "/charge?a=1", Method: "PUT", IdempotencyKey: "run:1",
		Headers: map[string]string{"x-api": "k", "Host": "shop.example", "Idempotency-Key": "another"}, Body: json.RawMessage(`{"n":1}`)})
	if failed != nil || string(result) != "null" {
		t.Fatalf("result %q, %v; want null for an empty body", result, failed)
	}
	if got.Method != "PUT" || got.URL.String() != "/charge?a=1" || got.Host != "shop.example" || string(body) != `{"n":1}` {
		t.Errorf("%s %s at %s with %q", got.Method, got.URL, got.Host, body)
	}
	for name, want := range map[string]string{"Idempotency-Key": "run:1", "User-Agent": "perdure/test", "Content-Type": "application/json", "X-Api": "k"} {
		if v := got.Header[name]; len(v) != 1 || v[0] != want {
			t.Errorf("%s is %q, want %q once", name, v, want)
		}
	}
	if _, failed := callOnce(t, t.Context(), outboundRequest{URL: s.URL, Method: "GET", IdempotencyKey: "k"}); failed != nil {
		t.Fatal(failed)
	}
	if got.Header.Get("Content-Type") != "" || len(body) != 0 {
		t.Errorf("without inputs a body of type %q was sent: %q", got.Header.Get("Content-Type"), body)
	}
}

// TestOutboundResults checks the result that each kind of body becomes.
func TestOutboundResults(t *testing.T) {
	for _, c := range []struct{ body, want string }{
		{"", "null"},
		{`{"a":[1,2.50]}`, `{"a":[1,2.50]}`},
		{"7\n", "7\n"},
		{"<b>hello</b>\n", `"<b>hello</b>\n"`},
		{"{broken", `"{broken"`},
		{"\xff\x00", `"/wA="`},
		{"\"\xff\"", `"Iv8i"`},
	} {
		s := serve(t, func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(http.StatusCreated)
			_, _ = io.WriteString(w, c.body)
		})
		result, failed := callOnce(t, t.Context(), outboundRequest{URL: s.URL, Method: "GET"})
		if failed != nil || string(result) != c.want || !json.Valid(result) {
			t.Errorf("%q became %q, %v; want %q", c.body, result, failed, c.want)
		}
	}
}

func TestOutboundTooLarge(t *testing.T) {
	t.Parallel() // it waits most of the time
	var size atomic.Int64
	fill := byte('1')
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = w.Write(bytes.Repeat([]byte{fill}, int(size.Load())))
	})
	in := outboundRequest{URL: s.URL, Method: "GET"}
	size.Store(maxResponseBytes)
	if result, failed := callOnce(t, t.Context(), in); failed != nil || len(result) != maxResponseBytes {
		t.Errorf("the largest answer became %d bytes, %v", len(result), failed)
	}
	size.Store(maxResponseBytes + 1)
	fails(t, in, failureTooLarge)
	// Text that fits, and does not as a JSON string; bytes that do not in base64.
	size.Store(maxResponseBytes)
	for _, fill = range []byte{'a', 0xff} {
		fails(t, in, failureTooLarge)
	}
}

func TestOutboundStatuses(t *testing.T) {
	long := strings.Repeat("ä", maxFailureBytes)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/304" {
			w.WriteHeader(http.StatusNotModified)
			return
		}
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = io.WriteString(w, "try later "+long)
	})
	f := fails(t, outboundRequest{URL: s.URL, Method: "GET"}, "http_503")
	if !strings.HasPrefix(f.Message, "503 Service Unavailable\ntry later ä") || strings.Contains(f.Message, long) || f.NonRetryable {
		t.Errorf("the failure is %v", f)
	}
	fails(t, outboundRequest{URL: s.URL + "/304", Method: "GET"}, "http_304")
}

// TestOutboundConnections calls an address without a listener, one of another server, and one that does not
// speak HTTP.
func TestOutboundConnections(t *testing.T) {
	const closedAddr = "127.0.0.1:1" // the system gives this port to no one
	f := fails(t, outboundRequest{URL: "http://" + closedAddr + "/?token=secret", Method: "GET"}, failureConnect)
	if strings.Contains(f.Message, "secret") {
		t.Errorf("the message shows the query: %s", f.Message)
	}
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	fails(t, outboundRequest{URL: secure.URL, Method: "GET"}, failureTLS)
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		c, _, err := http.NewResponseController(w).Hijack()
		if err == nil {
			c.Close()
		}
	})
	fails(t, outboundRequest{URL: s.URL, Method: "POST"}, failureBroken)
	for _, url := range []string{"ftp://x/", "/relative", "http://%zz/"} {
		if f := fails(t, outboundRequest{URL: url, Method: "GET"}, failureRequest); !f.NonRetryable {
			t.Errorf("%s may be tried again: %v", url, f)
		}
	}
	if _, f := callService(t.Context(), http.DefaultClient, &loopback, "a", []byte("{")); f.GetType() != failureRequest {
		t.Errorf("an input that is no request fails with %v", f)
	}
}

// One call is one request, although the connection that was kept is closed without an answer.
func TestOutboundDoesNotRepeat(t *testing.T) {
	var calls atomic.Int64
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if calls.Add(1) == 1 {
			return
		}
		if c, _, err := http.NewResponseController(w).Hijack(); err == nil {
			c.Close()
		}
	})
	client := newOutboundClient(&loopback)
	defer client.CloseIdleConnections()
	input, _ := json.Marshal(outboundRequest{URL: s.URL, Method: "POST", Body: json.RawMessage("1"), IdempotencyKey: "k"})
	if _, f := callService(t.Context(), client, &loopback, "a", input); f != nil {
		t.Fatal(f)
	}
	if _, f := callService(t.Context(), client, &loopback, "a", input); f.GetType() != failureBroken {
		t.Errorf("it fails with %v", f)
	}
	if n := calls.Load(); n != 2 {
		t.Errorf("two calls were %d requests", n)
	}
}

func TestOutboundTimeout(t *testing.T) {
	t.Parallel() // it waits most of the time
	over := make(chan struct{})
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/body" {
			_, _ = io.WriteString(w, "so far")
			_ = http.NewResponseController(w).Flush()
		}
		select {
		case <-r.Context().Done():
		case <-over:
		}
	})
	defer close(over)
	for _, path := range []string{"/", "/body"} {
		fails(t, outboundRequest{URL: s.URL + path, Method: "GET", TimeoutMS: 500}, failureTimeout)
	}
	// A call that is ended from outside has neither result nor failure.
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(20*time.Millisecond, func() { cancel(errCallCancelled) })
	if result, failed := callOnce(t, ctx, outboundRequest{URL: s.URL, Method: "GET"}); result != nil || failed != nil {
		t.Errorf("a call that was ended has %q, %v", result, failed)
	}
}

func TestOutboundRedirects(t *testing.T) {
	var hops atomic.Int64
	var seen http.Header
	other := serve(t, func(w http.ResponseWriter, r *http.Request) { seen = r.Header.Clone() })
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/other":
			http.Redirect(w, r, other.URL, http.StatusTemporaryRedirect)
		case "/scheme":
			http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
		case "/own":
			http.Redirect(w, r, "/end", http.StatusTemporaryRedirect)
		case "/end":
			seen = r.Header.Clone()
		default:
			hops.Add(1)
			http.Redirect(w, r, "/again", http.StatusFound)
		}
	})
	call := func(path string) {
		t.Helper()
		if result, failed := callOnce(t, t.Context(), outboundRequest{URL: s.URL + path, Method: "POST", Body: json.RawMessage("{}"), IdempotencyKey: "k",
			Headers: map[string]string{"X-Api-Key": "secret", "Authorization": "Bearer secret"}}); failed != nil {
			t.Fatalf("%s: %q, %v", path, result, failed)
		}
	}
	fails(t, outboundRequest{URL: s.URL, Method: "GET"}, failureRedirects)
	if n := hops.Load(); n != maxRedirects+1 {
		t.Errorf("%d requests were made, want %d", n, maxRedirects+1)
	}
	fails(t, outboundRequest{URL: s.URL + "/scheme", Method: "GET"}, failureRedirects)
	call("/own")
	if seen.Get("X-Api-Key") != "secret" || seen.Get("Authorization") == "" || seen.Get("Idempotency-Key") != "k" {
		t.Errorf("the same server, after a redirect, gets %v", seen)
	}
	call("/other")
	if seen.Get("X-Api-Key") != "" || seen.Get("Authorization") != "" || seen.Get("Idempotency-Key") != "k" || seen.Get("Content-Type") == "" {
		t.Errorf("another server gets %v", seen)
	}
}

func TestOutboundFailureTypes(t *testing.T) {
	if got := failureType(errors.New("anything else")); got != failureBroken {
		t.Errorf("an error of no known kind is %s", got)
	}
	if got := excerpt([]byte(" \xff" + strings.Repeat("x", maxFailureBytes))); len(got) > maxFailureBytes+8 || !strings.HasSuffix(got, "…") {
		t.Errorf("an excerpt of %d bytes: %.20q", len(got), got)
	}
}
