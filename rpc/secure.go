package rpc

import (
	"crypto/tls"
	"log"
	"log/slog"
	"net"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/callstream"
	"perdure/internal/ingress"
)

// interceptors run before every call, in this order: metrics, so that they count refusals; authorization; the
// check whether the node stops.
func (s *Server) interceptors() []grpc.ServerOption {
	stream := []grpc.StreamServerInterceptor{s.metrics.stream}
	if s.cfg.Auth != nil {
		stream = append(stream, s.cfg.Auth.Stream)
	}
	stream = append(stream, s.admitStream)
	for i := range stream {
		stream[i] = ingress.ForKnown(stream[i])
	}
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(s.aroundCalls()...), grpc.ChainStreamInterceptor(stream...)}
}

// aroundCalls are the interceptors of calls with one request, also of those that a stream carries.
func (s *Server) aroundCalls() []grpc.UnaryServerInterceptor {
	around := []grpc.UnaryServerInterceptor{s.metrics.unary}
	if s.cfg.Auth != nil {
		around = append(around, s.cfg.Auth.Unary)
	}
	return append(around, s.admitUnary)
}

// carried answers the calls that streams carry: those of the services for executions, promises, client tasks and entities.
func (s *Server) carried() *callstream.Server {
	methods := s.commandMethods()
	methods[perdurev1.Executions_Start_FullMethodName], methods[perdurev1.Executions_Result_FullMethodName] = s.beginStart, s.beginResult
	calls := callstream.NewServer(callstream.ServerOptions{
		Name: callstream.ForClients, Intercept: s.aroundCalls(), Keep: s.gate.KeepParts, WithPart: ingress.WithPart,
		Overloaded: func(message string) error { return overloaded(message, overloadPause) }, Holds: beyondQuota, Hold: refusalHold, Rest: s.gate.Rest,
		Stopping: s.stopping, MaxCalls: maxNodeCalls, MaxAnswer: maxMessageBytes - 1024,
		Async: methods,
	})
	perdurev1.RegisterExecutionsServer(calls, &executions{s: s})
	perdurev1.RegisterPromisesServer(calls, &promises{s: s})
	perdurev1.RegisterClientTasksServer(calls, &clientTasks{s: s})
	perdurev1.RegisterEntitiesServer(calls, &entities{s: s})
	return calls
}

// beyondQuota reports a refusal by a quota. A namespace that begins ten times what it may gets little but these.
func beyondQuota(err error) bool { return api.Is(err, perdurev1.Reason_REASON_QUOTA_EXCEEDED) }

// refusalHold is how long the answer of such a call may wait for others.
const refusalHold = 50 * time.Millisecond

// overloadPause is when a call that was refused for the number of those under way may come again.
const overloadPause = 250 * time.Millisecond

// credentials secure the connections of the gRPC port.
func (s *Server) credentials() credentials.TransportCredentials {
	if s.cfg.TLS == nil {
		return insecure.NewCredentials()
	}
	return credentials.NewTLS(s.cfg.TLS.ServerConfig("h2"))
}

// httpTransport is the HTTP port's listener, with TLS where the configuration has it.
func (s *Server) httpTransport() net.Listener {
	if s.cfg.TLS == nil {
		return s.httpListener
	}
	return tls.NewListener(s.httpListener, s.cfg.TLS.ServerConfig("http/1.1"))
}

// connectionLog takes net/http's messages about single connections, such as a failed handshake or a malformed
// request. It logs them at debug level.
func (s *Server) connectionLog() *log.Logger {
	return slog.NewLogLogger(s.log.Handler(), slog.LevelDebug)
}
