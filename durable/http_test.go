package durable

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	perdurev1 "perdure/api/perdure/v1"
)

// A request is a step of kind HTTP: it is tried again when that may help, under one idempotency key, and not made again
// when its answer is recorded. Query, headers and body of the request are not in the journal's names.
func TestHTTP(t *testing.T) {
	var mu sync.Mutex
	var keys []string
	long := "/orders/" + strings.Repeat("long", 100)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		switch {
		case r.URL.Path == "/missing":
			http.Error(w, "no such thing", http.StatusNotFound)
		case r.URL.Path == "/large":
			_, _ = w.Write(make([]byte, maxHTTPBody+1))
		case len(keys) < 3:
			http.Error(w, "busy", http.StatusServiceUnavailable)
		default:
			w.Header().Set("X-By", "service")
			w.WriteHeader(http.StatusCreated)
			_, _ = w.Write([]byte(r.Method + " " + string(body) + " " + r.URL.RawQuery + " " + r.Header.Get("Authorization")))
		}
	}))
	defer service.Close()
	f := newFake(t)
	fn := NewFunction("order", func(ctx Context, _ string) (string, error) {
		got, err := HTTP(ctx, HTTPRequest{URL: service.URL + "/orders?key=secret", Header: http.Header{"Authorization": {"me"}}, Body: []byte("desk")},
			WithRetry(RetryPolicy{Initial: time.Millisecond}))
		if err != nil {
			return "", err
		}
		var failed *Error
		if _, err := HTTP(ctx, HTTPRequest{URL: service.URL + "/missing"}); !errors.As(err, &failed) || failed.Type != TypeHTTP || string(failed.Details) != "no such thing\n" {
			t.Errorf("a status 404: %v", err)
		}
		if _, err := HTTP(ctx, HTTPRequest{URL: service.URL + "/large"}); !errors.As(err, &failed) || failed.Type != TypeTooLarge {
			t.Errorf("a large answer: %v", err)
		}
		if _, err := HTTP(ctx, HTTPRequest{URL: "ftp://x"}); !errors.As(err, &failed) || failed.Type != TypeBadRequest {
			t.Errorf("another scheme: %v", err)
		}
		for range 2 { // the name of a long URL is shortened
			if _, err := HTTP(ctx, HTTPRequest{URL: service.URL + long}); err != nil {
				return "", err
			}
		}
		if err := Sleep(ctx, time.Millisecond); err != nil {
			return "", err
		}
		return got.Header.Get("X-By") + " " + http.StatusText(got.Status) + " " + string(got.Body), nil
	})
	f.worker(WorkerOptions{}, fn)
	f.start("o", "order", `""`)
	if got := string(f.finished("o").GetValue()); got != `"service Created POST desk key=secret me"` {
		t.Error(got)
	}
	if len(keys) != 7 || keys[0] != "o:0" || keys[2] != "o:0" || keys[3] != "o:1" || keys[4] != "o:2" {
		t.Errorf("the idempotency keys are %q", keys)
	}
	for _, e := range f.journalOf("o") {
		if s := e.GetEvent().GetInvokeScheduled(); s != nil && (len(s.GetFunctionName()) > maxName || s.GetKind() != perdurev1.InvokeKind_INVOKE_KIND_HTTP || strings.Contains(s.GetFunctionName(), "secret")) {
			t.Errorf("recorded as %v", s)
		}
	}
}
