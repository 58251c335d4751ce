package callstream

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"perdure/internal/callstream/async"
)

// Async begins a call and returns what answers it, or the error that does. It must not block: it runs on the goroutine
// that reads the stream. It has c notified when the first step can be done.
type Async func(c *Call) (Handler, error)

// Handler answers one call.
type Handler interface {
	// Step returns the answer if next is async.Done. It must not block.
	Step() (out proto.Message, next async.Next, err error)
	// Block answers the call instead of further steps, as the handler of a unary call: ctx has the call's deadline and ends
	// when the call is cancelled or the stream ends.
	Block(ctx context.Context) (proto.Message, error)
}

// Call is a call of a stream.
type Call struct {
	async.Call
	w        *session
	number   uint64
	method   string // "" for an Async one
	message  []byte
	deadline time.Time // zero: none
	release  func()    // may be nil
	handler  Handler

	// Guarded by the session's lock.
	cancel  context.CancelFunc // set when there is a context
	stopped bool               // the client waits no more
}

// Request returns the encoded request, once. It shares memory with other requests.
func (c *Call) Request() []byte {
	b := c.message
	c.message = nil
	return b
}

// Decode decodes the request, once.
func (c *Call) Decode(in proto.Message) error {
	if err := proto.Unmarshal(c.Request(), in); err != nil {
		return status.Errorf(codes.Internal, "cannot decode the request: %v", err)
	}
	return nil
}

// Stream returns the context of the stream, with its peer and its headers.
func (c *Call) Stream() context.Context { return c.w.stream.Context() }

// Release gives the request's bytes back before the answer. It may be called again.
func (c *Call) Release() {
	if c.release != nil {
		c.release()
	}
}

// context makes the context of a call that blocks.
func (c *Call) context() context.Context {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	var ctx context.Context
	if c.deadline.IsZero() {
		ctx, c.cancel = context.WithCancel(c.w.ctx)
	} else {
		ctx, c.cancel = context.WithDeadline(c.w.ctx, c.deadline)
	}
	if c.stopped {
		c.cancel()
	}
	return ctx
}

// stop cancels the call.
func (c *Call) stop() {
	c.w.mu.Lock()
	c.stopped = true
	cancel := c.cancel
	c.w.mu.Unlock()
	if cancel != nil {
		cancel()
		return
	}
	c.Interrupt()
}

// end answers the call, and reports whether the writer can send the answer now.
func (c *Call) end(out any, err error) (send bool) {
	w := c.w
	if c.cancel != nil {
		c.cancel()
	}
	c.Release()
	send = w.queue(c, out, err)
	w.s.under.Add(-1)
	w.calls.Done()
	return send
}

// answer ends the call on another goroutine than the writer's.
func (c *Call) answer(out any, err error) {
	if c.end(out, err) {
		c.w.signal()
	}
}

// asyncCall is a Call as async.Calls run it.
type asyncCall struct{ *Call }

// Step implements async.Handler. The writer, which runs steps, sends the answer.
func (c asyncCall) Step() async.Next {
	out, next, err := c.handler.Step()
	if next == async.Done {
		c.end(out, err)
	}
	return next
}

// Block implements async.Handler.
func (c asyncCall) Block() {
	c.answer(c.handler.Block(c.context()))
}
