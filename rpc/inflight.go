package rpc

import (
	"context"
	"strings"
	"sync"

	"google.golang.org/grpc"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

// inflight counts the calls whose end an orderly stop waits for.
type inflight struct {
	mu      sync.Mutex
	n       int
	waiting []chan struct{}
}

func (c *inflight) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.n++
}

func (c *inflight) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n--; c.n > 0 {
		return
	}
	for _, w := range c.waiting {
		close(w)
	}
	c.waiting = nil
}

// ended is closed as soon as no call is under way.
func (c *inflight) ended() <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := make(chan struct{})
	if c.n == 0 {
		close(w)
		return w
	}
	c.waiting = append(c.waiting, w)
	return w
}

func errStopping() *api.Error {
	return api.Errorf(perdurev1.Reason_REASON_SHUTTING_DOWN, "the node is stopping")
}

// ours distinguishes calls of the node's own services from those of the standard ones (health, reflection). The
// standard ones answer to the end, and their streams end when the client closes them; a stop does not wait
// for them.
func ours(method string) bool { return strings.HasPrefix(method, "/perdure.") }

// admit counts a call, and refuses one that comes while the node stops. Each admitted call must be ended.
func (s *Server) admit() error {
	s.calls.begin()
	if s.isStopping() {
		s.calls.end()
		return errStopping()
	}
	return nil
}

func (s *Server) admitUnary(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if ours(info.FullMethod) {
		if err := s.admit(); err != nil {
			return nil, err
		}
		defer s.calls.end()
	}
	return handler(ctx, req)
}

func (s *Server) admitStream(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler) error {
	if ours(info.FullMethod) {
		if err := s.admit(); err != nil {
			return err
		}
		defer s.calls.end()
	}
	return handler(srv, stream)
}
