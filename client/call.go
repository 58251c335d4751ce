package client

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"io"
	mathrand "math/rand/v2"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

const (
	backoffMin = 25 * time.Millisecond
	backoffMax = time.Second
	// overloadMax bounds the pause before a call that was refused because the node is overloaded.
	overloadMax = 5 * time.Second
)

// verdict is the consequence of one attempt for the call.
type verdict int

const (
	// final: the error is the answer.
	final verdict = iota
	// refused: not applied; retry after a pause.
	refused
	// unsent: the request never left; the next node can be asked at once.
	unsent
	// unclear: it may have been applied; repeating it with the same request id is safe.
	unclear
	// broken: the server failed while it answered; the write may have been applied, and repeating does not
	// help.
	broken
)

// classify reads the error of one attempt; sent says whether the request was handed to the network.
func classify(err error, sent bool) (verdict, error) {
	if e, ok := api.FromStatus(err); ok {
		switch {
		case api.NotApplied(e.Reason):
			return refused, e
		case api.Retryable(e.Reason):
			return unclear, e
		}
		return final, e
	}
	switch status.Code(err) {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled:
		// Canceled comes from a server that stops; the caller's own cancelling is seen in its context.
		if sent {
			return unclear, err
		}
		return unsent, err
	case codes.Internal, codes.Unknown, codes.DataLoss:
		if sent {
			return broken, err
		}
	}
	return final, err
}

// ofMachine reports whether an error is the state machine's own answer to the request. It holds for all attempts: a
// machine that has applied one repeats its answer, and one that has not keeps the refusal of a retry. Every other
// refusal (of a token, of a node that is damaged or too old) is of one attempt only.
func ofMachine(err error) bool {
	e, ok := api.FromStatus(err)
	if !ok {
		return false
	}
	switch api.Code(e.Reason) {
	case codes.InvalidArgument, codes.NotFound, codes.AlreadyExists, codes.Aborted, codes.FailedPrecondition:
		return e.Reason != perdurev1.Reason_REASON_MEMBERSHIP_REFUSED && e.Reason != perdurev1.Reason_REASON_NODE_NOT_FOUND &&
			e.Reason != perdurev1.Reason_REASON_PARTITION_NOT_FOUND && e.Reason != perdurev1.Reason_REASON_FEATURE_LEVEL
	}
	return false
}

// call runs one call with retries. attempt is called with a context of its own and the node to ask. It must
// build the request each time, because the request's age grows. write means that an unanswered attempt may
// have changed something. wait is how long the server may hold the answer back (a long poll).
func (c *Client) call(ctx context.Context, op, id string, write bool, wait time.Duration, attempt func(context.Context, *node) error) error {
	deadline, bounded := ctx.Deadline()
	if !bounded {
		deadline = time.Now().Add(c.opts.Timeout + wait)
	}
	var (
		pause  = backoffMin
		maybe  bool               // an attempt may have been applied
		fresh  = len(c.nodes) - 1 // nodes not tried yet
		hinted int                // refusals in a row that said when to try again
		gone   = &callError{op: op, id: id}
	)
	gaveUp := func() error {
		gone.kind, gone.ended = ErrUnavailable, ctx.Err()
		if maybe && write {
			gone.kind = ErrOutcomeUnknown
		}
		return gone
	}
	leader := c.leaders.of(id)
	for ctx.Err() == nil {
		n, led := leader.n, leader.n != nil
		if !led {
			n = c.node()
		}
		gone.attempts++
		sent, err := c.once(ctx, n, leader, earlier(deadline, time.Now().Add(attemptTimeout+wait)), attempt)
		if err == nil {
			return nil
		}
		if !bounded { // until here the attempt's deadline was enough
			limited, cancel := context.WithDeadline(ctx, deadline)
			defer cancel() // once: it is bounded now
			ctx, bounded = limited, true
		}
		v, err := classify(err, sent)
		if _, answered := api.FromStatus(err); led && !answered && v != final && ctx.Err() == nil {
			c.leaders.failed(n)
		}
		// The next attempt goes to another leader, if one is known by now, else to any node.
		if led {
			leader = c.leaders.of(id)
		}
		if !led || leader.n == n {
			leader = slotLeader{}
		}
		if v == final {
			if !write || !maybe || ofMachine(err) {
				return err
			}
			// The last attempt was refused; the outcome of earlier ones is still unknown.
			gone.cause = err
			return gaveUp()
		}
		// A passed deadline says less than the error before it. The server may notice the deadline first.
		if gone.cause == nil || ctx.Err() == nil && status.Code(err) != codes.DeadlineExceeded {
			gone.cause = err
		}
		maybe = maybe || v == unclear || v == broken
		if v == broken {
			return gaveUp()
		}
		if c.closed.Load() {
			gone.cause = ErrClosed
			return gaveUp()
		}
		c.leave(n)
		c.log.DebugContext(ctx, "call failed, will retry", "op", op, "id", id, "node", n.addr, "attempt", gone.attempts, "err", err)
		if v == unsent && fresh > 0 {
			fresh-- // there is a node that was not asked yet: no reason to wait
			continue
		}
		rest := c.jitter(pause)
		if after := retryAfter(err); after > 0 {
			rest = c.overloaded(after, hinted)
			hinted++
		} else {
			hinted = 0
		}
		select {
		case <-c.clock.After(rest):
		case <-ctx.Done():
		}
		pause = min(2*pause, backoffMax)
	}
	return gaveUp()
}

// retryAfter is the server's hint when to retry; 0 without one.
func retryAfter(err error) time.Duration {
	if e, ok := api.FromStatus(err); ok {
		return time.Duration(e.RetryAfterMS()) * time.Millisecond
	}
	return 0
}

// overloaded is how long to wait when the server has named a time: at least that, up to half as much again,
// so that clients that were refused together do not return together. It is twice as much for each refusal
// before, up to overloadMax.
func (c *Client) overloaded(after time.Duration, refusals int) time.Duration {
	d := max(after, min(after<<min(refusals, 6), overloadMax))
	return d + time.Duration(c.fraction()*float64(d)/2)
}

// earlier is the earlier one of two times.
func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// once makes one attempt, until the deadline, at a node, as the leader if it is one, and reports whether the request was
// handed to the network.
func (c *Client) once(ctx context.Context, n *node, leader slotLeader, deadline time.Time, attempt func(context.Context, *node) error) (sent bool, err error) {
	ctx, cancel := context.WithDeadline(ctx, deadline)
	defer cancel()
	p := &probe{Context: ctx}
	if leader.n != nil {
		done := c.leaders.attempt(leader, cancel)
		defer func() {
			_, refused := api.FromStatus(err)
			done(err == nil || refused)
		}()
	}
	err = attempt(p, n)
	return p.sent.Load(), err
}

// jitter is d, or up to half of it less, so that clients that failed together do not return together.
func (c *Client) jitter(d time.Duration) time.Duration {
	return d - time.Duration(c.fraction()*float64(d)/2)
}

// fraction is a random number in [0, 1).
func (c *Client) fraction() float64 {
	var b [8]byte
	c.fill(b[:])
	return float64(binary.BigEndian.Uint64(b[:])>>11) / (1 << 53)
}

func (c *Client) fill(b []byte) {
	if _, err := io.ReadFull(c.opts.Rand, b); err != nil {
		// Without randomness no request id is unique, and retries would not be safe.
		panic("client: no randomness: " + err.Error())
	}
}

// Request is the identity of one write over all its attempts.
type Request struct {
	id    [16]byte
	first time.Time
	clock Clock
}

// NewRequest draws a request id. Its age counts from the first call of Wire.
func (c *Client) NewRequest() *Request {
	r := &Request{clock: c.clock}
	if c.opts.Rand != rand.Reader {
		c.fill(r.id[:])
		return r
	}
	// An id is unique, not secret. The runtime's generator is seeded by the system and makes no system call.
	binary.LittleEndian.PutUint64(r.id[:8], mathrand.Uint64())
	binary.LittleEndian.PutUint64(r.id[8:], mathrand.Uint64())
	return r
}

// Wire is the request as the next attempt must carry it: the same id, with its current age. It is not safe
// for concurrent use.
func (r *Request) Wire() *perdurev1.RequestID {
	now := r.clock.Now()
	if r.first.IsZero() {
		r.first = now
		return &perdurev1.RequestID{Id: r.id[:]}
	}
	// The server recognizes a repeated request by its age.
	return &perdurev1.RequestID{Id: r.id[:], AgeMs: uint64(max(1, now.Sub(r.first).Milliseconds()))}
}

// probe is an attempt's context. It records whether gRPC handed the request to the network: only then can it have been
// applied.
type probe struct {
	context.Context
	sent atomic.Bool
}

type probeKey struct{}

// Value implements context.Context.
func (p *probe) Value(key any) any {
	if key == (probeKey{}) {
		return p
	}
	return p.Context.Value(key)
}

// sentProbe is the stats handler that marks the probe in a call's context.
type sentProbe struct{}

func (sentProbe) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }
func (sentProbe) HandleRPC(ctx context.Context, s stats.RPCStats) {
	if _, ok := s.(*stats.OutPayload); ok {
		markSent(ctx)
	}
}

// markSent marks the probe in a call's context.
func markSent(ctx context.Context) {
	if p, ok := ctx.Value(probeKey{}).(*probe); ok {
		p.sent.Store(true)
	}
}

func (sentProbe) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (sentProbe) HandleConn(context.Context, stats.ConnStats)                       {}
