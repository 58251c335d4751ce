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

// WaitingRoom answers on the HTTP port of a node that has no cluster yet: that it is alive, and why it is not
// ready. leave closes the port, so that the node itself can open it.
func WaitingRoom(addr string, secure *tls.Config, why func() error) (leave func(), err error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("HTTP port %s: %w", addr, err)
	}
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "not ready\n"+why().Error(), http.StatusServiceUnavailable)
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 10 * time.Second}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.Serve(l) // it ends when the node leaves
	}()
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), httpLinger)
		defer cancel()
		if err := s.Shutdown(ctx); errors.Is(err, context.DeadlineExceeded) {
			_ = s.Close() // whoever still asks is cut off
		}
		<-done
	}, nil
}
