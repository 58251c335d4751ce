package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/certs"
	"perdure/internal/ingress"
	"perdure/partition"
	"perdure/partition/workers"
	"perdure/rpc/auth"
)

// maxMessageBytes bounds a gRPC message either way: the largest commit and its frame.
const maxMessageBytes = 24 << 20

// maxStreams bounds the calls under way on one connection; further ones wait at the client.
const maxStreams = 10_000

// Config of a Server.
type Config struct {
	NodeID             string
	GRPCAddr, HTTPAddr string
	// Lease is the lease of a worker that asks for none.
	Lease      time.Duration
	MaxWorkers int
	Logger     *slog.Logger
	// Registry is the source of /metrics.
	Registry *prometheus.Registry
	// NotReady says why the node is not ready to serve, or nil.
	NotReady func() error
	// Version is shown on the HTTP index.
	Version string
	// TLS secures both ports; nil leaves them in the clear.
	TLS *certs.Handle
	// Auth checks every call; nil allows all.
	Auth *auth.Guard
	// Register adds a protocol's paths to the HTTP port: they check tokens, and bound requests, themselves. nil for none.
	Register func(mux *http.ServeMux)
	// Operator serves the operators' calls; nil leaves their service unimplemented.
	Operator Operator
	// Outbound limits the HTTP nodes of submitted graphs; a graph with another HTTP node is refused.
	Outbound OutboundPolicy
	// RequestBytes bounds the gRPC requests that are being received or handled, all together; one connection may
	// have half of it, one namespace's tokens three quarters. DefaultRequestBytes if 0, else MinRequestBytes at
	// least.
	RequestBytes int64
	// MaxConnections bounds the connections of the gRPC port; one address may have three quarters. If 0,
	// DefaultConnections, or less where the process may open few files.
	MaxConnections int
	// MaxStreams is how many connections the HTTP port has in addition to those of other requests: for streams of messages.
	MaxStreams int
}

// Server is a node's two client-facing ports.
type Server struct {
	cfg        Config
	log        *slog.Logger
	router     *partition.Router
	dispatcher *workers.Dispatcher

	grpc         *grpc.Server
	health       *health.Server
	http         *http.Server
	gate         *ingress.Gate
	grpcListener *ingress.Listener
	httpListener *ingress.Listener
	metrics      *serverMetrics
	calls        inflight
	workers      workerStreams

	// serving ends when the server begins to stop; stopping is closed then.
	serving  context.Context
	stop     context.CancelFunc
	stopping <-chan struct{}
	wg       sync.WaitGroup
}

// Listen opens the ports and serves. It returns at once; until the partitions are ready, the ports answer
// that they are not.
func Listen(cfg Config, router *partition.Router, dispatcher *workers.Dispatcher) (*Server, error) {
	s := &Server{cfg: cfg, log: cfg.Logger, router: router, dispatcher: dispatcher}
	s.serving, s.stop = context.WithCancel(context.Background())
	s.stopping = s.serving.Done()
	var err error
	if s.metrics, err = newServerMetrics(cfg.Registry, dispatcher); err != nil {
		return nil, err
	}
	if s.grpcListener, err = s.listen("grpc", cfg.GRPCAddr, s.connections(), s.firstBytes(prefaceBytes)); err != nil {
		return nil, fmt.Errorf("gRPC port %s: %w", cfg.GRPCAddr, err)
	}
	if s.httpListener, err = s.listen("http", cfg.HTTPAddr, s.httpConnections(), s.firstBytes(1)); err != nil {
		return nil, errors.Join(fmt.Errorf("HTTP port %s: %w", cfg.HTTPAddr, err), s.grpcListener.Close())
	}
	s.gate = s.newGate()
	if err := s.gateMetrics(cfg.Registry); err != nil {
		return nil, errors.Join(err, s.grpcListener.Close(), s.httpListener.Close())
	}
	s.grpc = grpc.NewServer(append(append(s.gate.ServerOptions(s.credentials()), s.interceptors()...),
		grpc.MaxConcurrentStreams(maxStreams), grpc.MaxRecvMsgSize(maxMessageBytes), grpc.MaxSendMsgSize(maxMessageBytes),
		grpc.ConnectionTimeout(handshakeTimeout), grpc.ForceServerCodecV2(newCodec()),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: connectionIdle, Time: 20 * time.Second, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)...)
	services := s.gate.Registrar(s.grpc)
	perdurev1.RegisterExecutionsServer(services, &executions{s: s})
	perdurev1.RegisterPromisesServer(services, &promises{s: s})
	perdurev1.RegisterClientTasksServer(services, &clientTasks{s: s})
	perdurev1.RegisterEntitiesServer(services, &entities{s: s})
	perdurev1.RegisterTasksServer(services, &tasks{s: s})
	perdurev1.RegisterClusterServer(services, &cluster{s: s})
	perdurev1.RegisterBackupsServer(services, &backups{s: s})
	perdurev1.RegisterGraphsServer(services, &graphs{s: s})
	perdurev1.RegisterRestoresServer(services, &restores{s: s})
	perdurev1.RegisterHistoriesServer(services, &historyService{s: s})
	calls := s.carried()
	services.RegisterService(calls.Service(), calls)
	s.health = health.NewServer()
	healthv1.RegisterHealthServer(services, s.health)
	reflection.Register(services)
	s.http = &http.Server{Handler: bounded(s.httpHandler()), ConnState: connState, ReadHeaderTimeout: handshakeTimeout, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 32 << 10,
		ErrorLog: s.connectionLog()}
	s.wg.Add(3)
	go s.serve("grpc", func() error { return s.grpc.Serve(s.grpcListener) })
	go s.serve("http", func() error { return s.http.Serve(s.httpTransport()) })
	go s.watchHealth()
	return s, nil
}

func (s *Server) serve(what string, run func() error) {
	defer s.wg.Done()
	if err := run(); err != nil && !errors.Is(err, http.ErrServerClosed) && !s.isStopping() {
		s.log.Error("port stopped", "event", "port_failed", "port", what, "error", err)
	}
}

func (s *Server) isStopping() bool {
	select {
	case <-s.stopping:
		return true
	default:
		return false
	}
}

// watchHealth keeps the gRPC health service up to date.
func (s *Server) watchHealth() {
	defer s.wg.Done()
	const every = 200 * time.Millisecond
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	services := s.grpc.GetServiceInfo() // all are there before any is served; it is dear for a node that idles
	for said := healthv1.HealthCheckResponse_UNKNOWN; ; {
		status := healthv1.HealthCheckResponse_SERVING
		if s.cfg.NotReady() != nil {
			status = healthv1.HealthCheckResponse_NOT_SERVING
		}
		if status != said {
			s.health.SetServingStatus("", status)
			for service := range services {
				s.health.SetServingStatus(service, status)
			}
			said = status
		}
		select {
		case <-ticker.C:
		case <-s.stopping:
			s.health.Shutdown()
			return
		}
	}
}

// GRPCAddr and HTTPAddr are the addresses the ports listen on.
func (s *Server) GRPCAddr() string { return s.grpcListener.Addr().String() }

// HTTPAddr is the address of the HTTP port.
func (s *Server) HTTPAddr() string { return s.httpListener.Addr().String() }

// Bounds of a stop once no call of ours is under way: for answers to leave, and for HTTP requests.
const (
	grpcLinger = 250 * time.Millisecond
	httpLinger = time.Second
)

// Close refuses new calls, drains the workers' sessions and waits for calls under way until ctx ends. Then it
// closes the remaining connections: calls that took too long, and those that it does not wait for (watchers
// of the health service, profiles, connections that send no valid request).
func (s *Server) Close(ctx context.Context) error {
	s.stop()
	s.grpcListener.CloseUnserved()
	s.httpListener.CloseUnserved()
	done := make(chan struct{})
	go func() {
		s.grpc.GracefulStop()
		close(done)
	}()
	select {
	case <-s.calls.ended():
		linger, cancel := context.WithTimeout(ctx, grpcLinger)
		defer cancel()
		ctx = linger
	case <-done:
	case <-ctx.Done():
	}
	select {
	case <-done:
	case <-ctx.Done():
		s.grpcListener.Evict()
		s.grpc.Stop()
		<-done
	}
	linger, cancel := context.WithTimeout(context.WithoutCancel(ctx), httpLinger)
	defer cancel()
	err := s.http.Shutdown(linger)
	if errors.Is(err, context.DeadlineExceeded) {
		err = s.http.Close()
	}
	s.wg.Wait()
	return err
}
