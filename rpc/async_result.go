package rpc

import (
	"context"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/callstream"
	"perdure/internal/callstream/async"
	"perdure/partition/group"
	"perdure/partition/watch"
)

// resultCall is a Result that a stream carries. It needs no goroutine while it waits for a short time for the result of
// an incarnation, at the node that leads its partition: that result never changes, so no leadership is confirmed.
type resultCall struct {
	s       *Server
	in      *perdurev1.ResultRequest
	ns      string
	notify  async.Notifier
	began   time.Time
	watch   *watch.Watch // nil if the call may not wait so
	settled atomic.Bool
}

// Notify implements async.Notifier: the execution may have ended.
func (c *resultCall) Notify() {
	c.settled.Store(true)
	c.notify.Notify()
}

// beginResult is the callstream.Async of Executions.Result.
func (s *Server) beginResult(call *callstream.Call) (callstream.Handler, error) {
	c := &resultCall{s: s, in: &perdurev1.ResultRequest{}, notify: call, began: time.Now()}
	if err := c.begin(call); err != nil {
		s.metrics.result.count(api.CodeOf(err), time.Since(c.began))
		return nil, err
	}
	return c, nil
}

func (c *resultCall) begin(call *callstream.Call) (err error) {
	if err := call.Decode(c.in); err != nil {
		return err
	}
	if err := c.s.checkStreamed(call, perdurev1.Executions_Result_FullMethodName, c.in); err != nil {
		return err
	}
	if c.ns, err = resultForm(c.in); err != nil {
		return err
	}
	if err := c.s.admit(); err != nil {
		return err
	}
	if c.in.WaitMs > 0 && c.in.Incarnation > 0 && level(c.in.Level) == group.Linearizable {
		// Before the first read: what ends the execution after it notifies.
		c.watch = c.s.router.NotifySettled(c.ns, c.in.Id, c)
	}
	c.Notify()
	return nil
}

// Step implements callstream.Handler.
func (c *resultCall) Step() (proto.Message, async.Next, error) {
	switch {
	case c.watch == nil || !c.watch.Registered():
		return nil, async.Blocks, nil
	case !c.settled.Swap(false):
		return nil, async.Waits, nil
	}
	reply, index, found := c.s.router.ReadSettled(c.query())
	switch found {
	case group.Final:
		out := reply.GetResult()
		out.ReadIndex = index
		c.end(nil)
		return out, async.Done, nil
	case group.Pending:
		return nil, async.Waits, nil
	default:
		return nil, async.Blocks, nil
	}
}

// Block implements callstream.Handler.
func (c *resultCall) Block(ctx context.Context) (proto.Message, error) {
	if c.watch != nil {
		c.watch.Stop()
		c.watch = nil
	}
	waitMS := c.in.WaitMs
	if waitMS > 0 {
		waitMS = max(waitMS-time.Since(c.began).Milliseconds(), 1)
	}
	out, err := c.s.result(ctx, level(c.in.Level), c.query(), waitMS)
	c.end(err)
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (c *resultCall) query() *commandv1.Query {
	return &commandv1.Query{Namespace: c.ns, Id: c.in.Id, Kind: &commandv1.Query_Result{Result: c.in}}
}

// end ends the call with an error or nil.
func (c *resultCall) end(err error) {
	if c.watch != nil {
		c.watch.Stop()
	}
	c.s.calls.end()
	c.s.metrics.result.count(api.CodeOf(err), time.Since(c.began))
}
