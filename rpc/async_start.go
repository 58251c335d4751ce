package rpc

import (
	"context"
	"sync/atomic"
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
	"perdure/partition/group"
	"perdure/partition/watch"
)

// startCall is a Start that a stream carries. It needs no goroutine while its command is in the log of a partition that this
// node leads, nor while it waits for the result for a short time.
type startCall struct {
	s         *Server
	call      *callstream.Call
	began     time.Time
	namespace string
	id        string
	waitMS    int64
	repeated  bool // an earlier attempt may have started it
	proposal  partition.Proposal
	// settled is set when the execution may have ended; watch reports it. Nil if the caller does not wait.
	watch   *watch.Watch
	settled atomic.Bool
	// out is the answer once the command was applied.
	out *perdurev1.StartResponse
}

// startSettled notifies a startCall that its execution may have ended.
type startSettled startCall

// Notify implements async.Notifier.
func (c *startSettled) Notify() {
	c.settled.Store(true)
	c.call.Notify()
}

// beginStart is the callstream.Async of Executions.Start.
func (s *Server) beginStart(call *callstream.Call) (callstream.Handler, error) {
	c := &startCall{s: s, call: call, began: time.Now()}
	if err := c.begin(); err != nil {
		c.count(err)
		return nil, err
	}
	return c, nil
}

func (c *startCall) begin() error {
	s, in := c.s, &perdurev1.StartRequest{}
	if err := fsm.UnmarshalStart(c.call.Request(), in); err != nil {
		return status.Errorf(codes.Internal, "cannot decode the request: %v", err)
	}
	if err := s.checkStreamed(c.call, perdurev1.Executions_Start_FullMethodName, in); err != nil {
		return err
	}
	ns, rid, err := startForm(in)
	if err != nil {
		return err
	}
	if err := s.admit(); err != nil {
		return err
	}
	c.namespace, c.id, c.waitMS, c.repeated = ns, in.Id, in.WaitMs, rid.GetAgeMs() > 0
	in.Request, in.WaitMs = nil, 0
	if c.waitMS > 0 { // before the command is in the log: it may end the execution, too
		c.watch = s.router.NotifySettled(ns, c.id, (*startSettled)(c))
	}
	c.proposal.Begin(s.router, &commandv1.Command{Request: rid, Namespace: ns, Id: in.Id, Kind: &commandv1.Command_Start{Start: in}}, c.began, c.call)
	if err := c.proposal.Refused(); err != nil {
		c.abandon()
		return err
	}
	return nil
}

// Step implements callstream.Handler.
func (c *startCall) Step() (proto.Message, async.Next, error) {
	if c.out == nil {
		reply, next, err := c.proposal.Outcome()
		if next != async.Done {
			return nil, next, nil
		}
		if err != nil {
			c.end(err)
			return nil, async.Done, err
		}
		c.applied(reply)
		if c.waitMS > 0 && (!c.out.Created || c.repeated) {
			return nil, async.Blocks, nil // it may have ended before
		}
	}
	switch {
	case c.waitMS == 0:
	case !c.settled.Load():
		return nil, async.Waits, nil
	default:
		reply, index, found := c.s.router.ReadSettled(resultQuery(c.namespace, c.id, c.out.Incarnation))
		if found != group.Final {
			return nil, async.Blocks, nil
		}
		c.out.Result = reply.GetResult()
		c.out.Result.ReadIndex = index
	}
	c.end(nil)
	return c.out, async.Done, nil
}

// applied notes the reply. What the caller sent is in the log: while it waits it holds none of it.
func (c *startCall) applied(reply *commandv1.Reply) {
	c.out, c.proposal = reply.GetStart(), partition.Proposal{}
	c.call.Release()
}

// Block implements callstream.Handler.
func (c *startCall) Block(ctx context.Context) (out proto.Message, err error) {
	if c.watch != nil {
		c.watch.Stop()
		c.watch = nil
	}
	defer func() { c.end(err) }()
	waitMS := max(c.waitMS-time.Since(c.began).Milliseconds(), min(c.waitMS, 1))
	if c.out == nil {
		waitMS = c.waitMS
		ctx, cancel := withWriteTimeout(ctx)
		reply, err := c.proposal.Wait(ctx)
		cancel()
		if err != nil {
			return nil, err
		}
		c.applied(reply)
	}
	if waitMS > 0 {
		c.out.Result = c.s.resultOf(ctx, c.namespace, c.id, c.out.Incarnation, waitMS)
	}
	return c.out, nil
}

// end ends the call with an error or nil.
func (c *startCall) end(err error) {
	c.abandon()
	c.count(err)
}

// abandon gives back what an admitted call holds.
func (c *startCall) abandon() {
	if c.watch != nil {
		c.watch.Stop()
	}
	c.s.calls.end()
}

func (c *startCall) count(err error) {
	c.s.metrics.start.count(api.CodeOf(err), time.Since(c.began))
}
