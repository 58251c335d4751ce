package rpc

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/pprof"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// httpHandler serves the HTTP port: the paths of Config.Register, and the node's own.
func (s *Server) httpHandler() http.Handler {
	own := smallRequests(s.ownPages())
	if s.cfg.Auth != nil {
		own = s.cfg.Auth.HTTP(own)
	}
	if s.cfg.Register == nil {
		return own
	}
	mux := http.NewServeMux()
	s.cfg.Register(mux)
	mux.Handle("/", own)
	return mux
}

// ownPages serves metrics, liveness, readiness and profiles.
func (s *Server) ownPages() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.cfg.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintln(w, "ok")
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		err := s.cfg.NotReady()
		if s.isStopping() {
			err = errors.Join(errors.New("the node is stopping"), err)
		}
		if err != nil {
			http.Error(w, "not ready\n"+err.Error(), http.StatusServiceUnavailable)
			return
		}
		fmt.Fprintln(w, "ready")
	})
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "perdure %s, node %s\n\n/metrics       figures for Prometheus\n/healthz       is the process alive\n/readyz        does every partition serve; if not, why\n/debug/pprof/  profiles\n", s.cfg.Version, s.cfg.NodeID)
	})
	return mux
}
