package rpc

import (
	"crypto/tls"
	"log"
	"log/slog"
	"net"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"perdure/internal/ingress"
)

// interceptors run before every call, in this order: metrics, so that they count refusals; authorization; the
// check whether the node stops.
func (s *Server) interceptors() []grpc.ServerOption {
	unary := []grpc.UnaryServerInterceptor{s.metrics.unary}
	stream := []grpc.StreamServerInterceptor{s.metrics.stream}
	if s.cfg.Auth != nil {
		unary, stream = append(unary, s.cfg.Auth.Unary), append(stream, s.cfg.Auth.Stream)
	}
	stream = append(stream, s.admitStream)
	for i := range stream {
		stream[i] = ingress.ForKnown(stream[i])
	}
	return []grpc.ServerOption{grpc.ChainUnaryInterceptor(append(unary, s.admitUnary)...), grpc.ChainStreamInterceptor(stream...)}
}

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
