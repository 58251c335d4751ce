package auth

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

func TestHTTP(t *testing.T) {
	w := newWorld(t, nil)
	mux := http.NewServeMux()
	for _, path := range []string{"/", "/metrics", "/healthz", "/readyz", "/debug/pprof/", "/console/"} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "let in") })
	}
	server := httptest.NewServer(w.HTTP(mux))
	defer server.Close()
	for _, c := range []struct {
		path, token string
		want        int
	}{
		{"/healthz", "", 200}, {"/readyz", "", 200},
		{"/metrics", "", 401}, {"/metrics", "guess", 401}, {"/metrics", readerToken, 200}, {"/metrics", operatorToken, 200},
		{"/", "", 401}, {"/", readerToken, 200},
		{"/debug/pprof/", "", 401}, {"/debug/pprof/heap", readerToken, 403}, {"/debug/pprof/heap", adminToken, 403},
		{"/debug/pprof/heap", operatorToken, 200}, {"/console/", readerToken, 403}, {"/console/", operatorToken, 200},
		{"/nothing", readerToken, 403}, {"/healthz/x", "", 401}, {"/healthz/", "", 401},
	} {
		request, err := http.NewRequest(http.MethodGet, server.URL+c.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		if c.token != "" {
			request.Header.Set("Authorization", "Bearer "+c.token)
		}
		response, err := server.Client().Do(request)
		if err != nil {
			t.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != c.want || (c.want == 401) != (response.Header.Get("WWW-Authenticate") == "Bearer") {
			t.Errorf("%s with %q: %s, want %d", c.path, c.token, response.Status, c.want)
		}
	}
	// Detours that a mux would straighten.
	for _, target := range []string{"/healthz/../debug/pprof/", "//debug/pprof/", "/healthz/%2e%2e/debug/pprof/", "/metrics/../debug/pprof/heap",
		"http://else/debug/pprof/", "/%64ebug/pprof/"} {
		conn, err := net.DialTimeout("tcp", server.Listener.Addr().String(), testTimeout)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.SetDeadline(time.Now().Add(testTimeout))
		fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", target)
		line, err := bufio.NewReader(conn).ReadString('\n')
		conn.Close()
		if err != nil || !strings.HasPrefix(line, "HTTP/1.1 401 ") {
			t.Errorf("%s: %q, %v", target, line, err)
		}
	}
	if log := w.logged(); !strings.Contains(log, `method="GET /debug/pprof/heap"`) || strings.Contains(log, readerToken) {
		t.Errorf("log:\n%s", log)
	}
}
