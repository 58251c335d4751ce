package rpc

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestNotReadyPaths: a node that has no cluster yet is alive, and not ready at any other path, whatever it will serve there, and says why.
func TestNotReadyPaths(t *testing.T) {
	h := notReady(func() error { return errors.New("no cluster yet") })
	for _, c := range []struct {
		method, path string
		status       int
	}{
		{http.MethodGet, "/healthz", http.StatusOK},
		{http.MethodGet, "/health", http.StatusOK}, // of the Resonate protocol: always 200
		{http.MethodGet, "/readyz", http.StatusServiceUnavailable},
		{http.MethodPost, "/", http.StatusServiceUnavailable}, // requests of the Resonate protocol
		{http.MethodGet, "/poll/group/pid", http.StatusServiceUnavailable},
		{http.MethodGet, "/ready", http.StatusServiceUnavailable},
		{http.MethodGet, "/metrics", http.StatusServiceUnavailable},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(c.method, c.path, nil))
		if w.Code != c.status || c.status != http.StatusOK && !strings.Contains(w.Body.String(), "no cluster yet") {
			t.Errorf("%s %s: %d %s", c.method, c.path, w.Code, w.Body)
		}
	}
}
