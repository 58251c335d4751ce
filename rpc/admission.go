package rpc

import (
	"context"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/ingress"
)

// Bounds of a caller's resources before and while its requests are read.
const (
	// DefaultRequestBytes is Config.RequestBytes if it is 0, MinRequestBytes the least that there may be: one
	// message and the memory that its frames take.
	DefaultRequestBytes = 64 << 20
	MinRequestBytes     = 32 << 20
	// requestReserve comes on top, for messages of 64 KiB at most.
	requestReserve = 8 << 20
	// maxNodeCalls bounds the gRPC calls under way on the node, maxStrangerCalls those that show no token on a
	// node that asks for tokens (health).
	maxNodeCalls       = 32_768
	maxStrangerCalls   = 1024
	maxStrangerMessage = 16 << 10

	// DefaultConnections is Config.MaxConnections if it is 0 and the process may open enough files.
	DefaultConnections = 16_384
	// maxHTTPConnections bounds those of the HTTP port without streams of messages.
	maxHTTPConnections = 1024
	// handshakeTimeout bounds the wait for the first bytes of a connection, and again for TLS and HTTP/2.
	handshakeTimeout = 10 * time.Second
	// connectionIdle is how long a gRPC connection without calls stays. Clients open it again by themselves.
	connectionIdle = 30 * time.Minute
	// prefaceBytes is how an HTTP/2 connection begins, tlsHeadBytes a TLS one.
	prefaceBytes = 24
	tlsHeadBytes = 5
	// httpTimeout bounds reading an HTTP request's body, and writing its answer unless that is a profile.
	httpTimeout = 30 * time.Second
)

// newGate bounds the requests of the gRPC port.
func (s *Server) newGate() *ingress.Gate {
	node := s.cfg.RequestBytes
	if node == 0 {
		node = DefaultRequestBytes
	}
	part := max(node/2, min(node, MinRequestBytes))
	return ingress.New(ingress.Options{
		Limits: ingress.Limits{Message: maxMessageBytes, Node: node, Connection: part, Class: max(node/4*3, part), Reserve: requestReserve,
			Calls: maxNodeCalls, Strangers: maxStrangerCalls, StrangerMessage: maxStrangerMessage},
		Check: s.checkCaller,
		Overloaded: func(message string, retryAfter time.Duration) error {
			return overloaded(message, retryAfter)
		},
		Refused: func(method string, err error, why string) {
			s.metrics.unread.WithLabelValues(why).Inc()
			if why != ingress.RefusedSlow { // those were counted when they ended
				s.metrics.calls.WithLabelValues(method, api.CodeOf(err).String()).Inc()
			}
		},
	})
}

func overloaded(message string, retryAfter time.Duration) *api.Error {
	e := api.Errorf(perdurev1.Reason_REASON_OVERLOADED, "%s", message)
	if retryAfter > 0 {
		return e.WithRetryAfterMS(retryAfter.Milliseconds())
	}
	return e
}

// checkCaller checks a call's token before its request is read. The request's namespace is checked against
// the token once the request is there.
func (s *Server) checkCaller(ctx context.Context, method string) (class string, stranger bool, err error) {
	if s.cfg.Auth == nil {
		return "", false, nil
	}
	return s.cfg.Auth.Head(ctx, method)
}

// listen opens a port for at most n connections.
func (s *Server) listen(port, addr string, n, first int) (*ingress.Listener, error) {
	return ingress.Listen(addr, ingress.ListenerOptions{
		Max: n, MaxPerAddress: n - n/4, First: first, FirstTimeout: handshakeTimeout,
		Refused: func(why string) { s.metrics.closed.WithLabelValues(port, why).Inc() },
	})
}

// connections is how many connections the gRPC port may have: the files that the process may open, less those
// that its stores need.
func (s *Server) connections() int {
	if s.cfg.MaxConnections > 0 {
		return s.cfg.MaxConnections
	}
	n := DefaultConnections
	if files := openFiles(); files > 0 {
		n = min(n, max(int(files-files/4)-s.httpConnections(), 64))
	}
	return n
}

// httpConnections is how many connections the HTTP port may have. One address may have three quarters of them: all
// streams of messages may come from one.
func (s *Server) httpConnections() int {
	return maxHTTPConnections + s.cfg.MaxStreams + s.cfg.MaxStreams/3
}

// firstBytes is how many bytes a caller must have sent before it costs more than a goroutine.
func (s *Server) firstBytes(plain int) int {
	if s.cfg.TLS != nil {
		return tlsHeadBytes
	}
	return plain
}

// connState notifies the listener which of the HTTP port's connections are idle.
func connState(c net.Conn, state http.ConnState) {
	if t, ok := c.(interface{ NetConn() net.Conn }); ok { // TLS
		c = t.NetConn()
	}
	if p, ok := c.(*ingress.Peer); ok {
		p.SetBusy(state == http.StateActive)
	}
}

// bounded bounds the time of HTTP requests whose callers send or read slowly.
func bounded(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		control := http.NewResponseController(w)
		if r.Body != nil && r.Body != http.NoBody {
			_ = control.SetReadDeadline(time.Now().Add(httpTimeout)) // a writer that knows no deadlines is a test's
		}
		if !isProfile(r.URL.Path) {
			_ = control.SetWriteDeadline(time.Now().Add(httpTimeout))
		}
		h.ServeHTTP(w, r)
	})
}

// smallRequests bounds the bodies of requests to the node's own pages, which need none.
func smallRequests(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			r.Body = http.MaxBytesReader(w, r.Body, 1<<20)
		}
		h.ServeHTTP(w, r)
	})
}

// isProfile reports whether the caller decides how long a path takes.
func isProfile(path string) bool { return strings.HasPrefix(path, "/debug/pprof/") }

// gateMetrics exports the counts of the gate and the listeners.
func (s *Server) gateMetrics(reg prometheus.Registerer) error {
	gauge := func(name, help string, labels prometheus.Labels, value func() float64) error {
		return reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "perdure", Name: name, Help: help, ConstLabels: labels}, value))
	}
	for port, l := range map[string]*ingress.Listener{"grpc": s.grpcListener, "http": s.httpListener} {
		if err := gauge("connections", "Connections of callers, by port.", prometheus.Labels{"port": port},
			func() float64 { return float64(l.Connections()) }); err != nil {
			return err
		}
	}
	if err := gauge("request_bytes", "Bytes held by gRPC requests that are being received or handled.", nil,
		func() float64 { return float64(s.gate.Stats().Bytes) }); err != nil {
		return err
	}
	if err := gauge("grpc_calls", "gRPC calls under way.", nil, func() float64 { return float64(s.gate.Stats().Calls) }); err != nil {
		return err
	}
	return gauge("requests_waiting", "gRPC requests that wait until their bytes are admitted.", nil,
		func() float64 { return float64(s.gate.Stats().Waiting) })
}
