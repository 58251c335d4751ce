package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm"
	"perdure/internal/callstream"
	"perdure/internal/callstream/async"
	"perdure/partition"
)

// signalCall is a Signal that a stream carries. It needs no goroutine while its command is in the log of a partition that
// this node leads.
type signalCall struct {
	s        *Server
	began    time.Time
	proposal partition.Proposal
}

// beginSignal is the callstream.Async of Executions.Signal.
func (s *Server) beginSignal(call *callstream.Call) (callstream.Handler, error) {
	c := &signalCall{s: s, began: time.Now()}
	if err := c.begin(call); err != nil {
		s.metrics.signal.count(api.CodeOf(err), time.Since(c.began))
		return nil, err
	}
	return c, nil
}

func (c *signalCall) begin(call *callstream.Call) error {
	s, in := c.s, &perdurev1.SignalRequest{}
	if err := fsm.UnmarshalSignal(call.Request(), in); err != nil {
		return status.Errorf(codes.Internal, "cannot decode the request: %v", err)
	}
	if err := s.checkStreamed(call, perdurev1.Executions_Signal_FullMethodName, in); err != nil {
		return err
	}
	cmd, err := signalCommand(in)
	if err != nil {
		return err
	}
	if err := s.admit(); err != nil {
		return err
	}
	c.proposal.Begin(s.router, cmd, c.began, call)
	return nil
}

// checkStreamed checks an asynchronous call of a stream against the stream's token.
func (s *Server) checkStreamed(call *callstream.Call, method string, in proto.Message) error {
	if s.cfg.Auth == nil {
		return nil
	}
	return s.cfg.Auth.Check(call.Stream(), method, in)
}

// Step implements callstream.Handler.
func (c *signalCall) Step() (proto.Message, async.Next, error) {
	reply, next, err := c.proposal.Outcome()
	if next != async.Done {
		return nil, next, nil
	}
	c.end(err)
	if err != nil {
		return nil, next, err
	}
	return reply.GetSignal(), next, nil
}

// Block implements callstream.Handler.
func (c *signalCall) Block(ctx context.Context) (proto.Message, error) {
	ctx, cancel := withWriteTimeout(ctx)
	defer cancel()
	reply, err := c.proposal.Wait(ctx)
	c.end(err)
	if err != nil {
		return nil, err
	}
	return reply.GetSignal(), nil
}

// end ends the call with an error or nil.
func (c *signalCall) end(err error) {
	c.s.calls.end()
	c.s.metrics.signal.count(api.CodeOf(err), time.Since(c.began))
}
