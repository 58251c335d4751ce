package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"
)

// ServeNotReady serves the HTTP port of a node that has no cluster yet: /healthz, Resonate's /health, and 503 with the reason
// for every other path. leave closes the port, so that the node can open it.
func ServeNotReady(addr string, secure *tls.Config, why func() error) (leave func(), err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("HTTP port %s: %w", addr, err)
	}
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	s := &http.Server{Handler: notReady(why), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // it ends when the node leaves
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), httpLinger)
		defer cancel()
		if err := s.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
			_ = s.Close() // cut off the remaining requests
		}
		<-done
	}, nil
}

// notReady is the handler of ServeNotReady. It knows no path as unknown: a client that is told 404 takes the node for one that
// will never serve it.
func notReady(why func() error) http.Handler {
	mux := http.NewServeMux()
	for _, alive := range []string{"GET /healthz", "GET /health"} {
		mux.HandleFunc(alive, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not ready\n"+why().Error(), http.StatusServiceUnavailable)
	})
	return mux
}
