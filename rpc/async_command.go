package rpc

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm"
	"perdure/internal/callstream"
	"perdure/internal/callstream/async"
	"perdure/partition"
)

// commandMethod is a method whose answer is the reply of one command.
type commandMethod[In, Out proto.Message] struct {
	name    string
	metrics *methodMetrics
	decode  func(b []byte) (In, error)
	// command checks a request and returns its command, which takes over the request.
	command func(In) (*commandv1.Command, error)
	out     func(*commandv1.Reply) Out
}

// commandMethods are the frequent ones.
func (s *Server) commandMethods() map[string]callstream.Async {
	return map[string]callstream.Async{
		perdurev1.Executions_Signal_FullMethodName: begins(s, &commandMethod[*perdurev1.SignalRequest, *perdurev1.SignalResponse]{
			perdurev1.Executions_Signal_FullMethodName, &s.metrics.signal, func(b []byte) (*perdurev1.SignalRequest, error) {
				in := &perdurev1.SignalRequest{}
				return in, fsm.UnmarshalSignal(b, in)
			}, signalCommand, (*commandv1.Reply).GetSignal}),
		perdurev1.Promises_Create_FullMethodName: begins(s, &commandMethod[*perdurev1.CreatePromiseRequest, *perdurev1.PromiseResponse]{
			perdurev1.Promises_Create_FullMethodName, &s.metrics.createPromise, func(b []byte) (*perdurev1.CreatePromiseRequest, error) {
				in := &perdurev1.CreatePromiseRequest{}
				return in, proto.Unmarshal(b, in)
			}, createPromiseCommand, (*commandv1.Reply).GetPromise}),
		perdurev1.Promises_Settle_FullMethodName: begins(s, &commandMethod[*perdurev1.SettlePromiseRequest, *perdurev1.PromiseResponse]{
			perdurev1.Promises_Settle_FullMethodName, &s.metrics.settlePromise, func(b []byte) (*perdurev1.SettlePromiseRequest, error) {
				in := &perdurev1.SettlePromiseRequest{}
				return in, proto.Unmarshal(b, in)
			}, settlePromiseCommand, (*commandv1.Reply).GetPromise}),
	}
}

// commandCall is a call of a commandMethod that a stream carries. It needs no goroutine while its command is in the log of a
// partition that this node leads.
type commandCall[In, Out proto.Message] struct {
	s        *Server
	m        *commandMethod[In, Out]
	began    time.Time
	proposal partition.Proposal
}

// begins makes the callstream.Async of a method.
func begins[In, Out proto.Message](s *Server, m *commandMethod[In, Out]) callstream.Async {
	return func(call *callstream.Call) (callstream.Handler, error) {
		c := &commandCall[In, Out]{s: s, m: m, began: time.Now()}
		if err := c.begin(call); err != nil {
			m.metrics.count(api.CodeOf(err), time.Since(c.began))
			return nil, err
		}
		return c, nil
	}
}

func (c *commandCall[In, Out]) begin(call *callstream.Call) error {
	s := c.s
	in, err := c.m.decode(call.Request())
	if err != nil {
		return status.Errorf(codes.Internal, "cannot decode the request: %v", err)
	}
	if err := s.checkStreamed(call, c.m.name, in); err != nil {
		return err
	}
	cmd, err := c.m.command(in)
	if err != nil {
		return err
	}
	if err := s.admit(); err != nil {
		return err
	}
	c.proposal.Begin(s.router, cmd, c.began, call)
	if err := c.proposal.Refused(); err != nil {
		s.calls.end()
		return err
	}
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
func (c *commandCall[In, Out]) Step() (proto.Message, async.Next, error) {
	reply, next, err := c.proposal.Outcome()
	if next != async.Done {
		return nil, next, nil
	}
	c.end(err)
	if err != nil {
		return nil, next, err
	}
	return c.m.out(reply), next, nil
}

// Block implements callstream.Handler.
func (c *commandCall[In, Out]) Block(ctx context.Context) (proto.Message, error) {
	ctx, cancel := withWriteTimeout(ctx)
	defer cancel()
	reply, err := c.proposal.Wait(ctx)
	c.end(err)
	if err != nil {
		return nil, err
	}
	return c.m.out(reply), nil
}

// end ends the call with an error or nil.
func (c *commandCall[In, Out]) end(err error) {
	c.s.calls.end()
	c.m.metrics.count(api.CodeOf(err), time.Since(c.began))
}
