package ingress

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// Options of a Gate.
type Options struct {
	Limits Limits
	// Check decides by a call's headers whether the caller may make it. It returns the class whose bytes are
	// counted together ("" for none), whether the caller showed no credentials (a stranger), or the error
	// that the call ends with. It runs on the call's goroutine before the request is read; ctx has the peer
	// and the metadata.
	Check func(ctx context.Context, method string) (class string, stranger bool, err error)
	// Overloaded makes the error of a call for which there are no bytes or no slot left.
	Overloaded func(message string, retryAfter time.Duration) error
	// Refused is called for each call that ends before its request was read, with the method, the error, and
	// the reason: RefusedCheck and so on. It must not block.
	Refused func(method string, err error, why string)
}

// Why a call was ended before its request was read.
const (
	RefusedCheck = "check"    // Options.Check
	RefusedBytes = "bytes"    // Limits.Node, Connection, Class
	RefusedCalls = "calls"    // Limits.Calls, Strangers
	RefusedSlow  = "slow"     // the request took too long to arrive
	RefusedSize  = "too_long" // Limits.StrangerMessage
)

// Bounds of waiting.
const (
	// grantTimeout is how long a request waits for others to leave bytes before it is refused.
	grantTimeout = 2 * time.Second
	// reclaimEvery is how often a request that waits has slow ones give way.
	reclaimEvery = 100 * time.Millisecond
	// A request has receiveBase, and a second more for each receiveRate bytes, to arrive whole.
	receiveBase = 15 * time.Second
	receiveRate = 256 << 10
	retryAfter  = 250 * time.Millisecond
)

// Gate counts what the calls of one server hold and ends those for which there is no capacity. All methods are safe for
// concurrent use.
type Gate struct {
	opts Options

	mu     sync.Mutex
	ledger *ledger
}

// New makes a Gate.
func New(opts Options) *Gate {
	return &Gate{opts: opts, ledger: newLedger(opts.Limits)}
}

// Stats are what a Gate counts now.
type Stats struct {
	Bytes   int64 // held by requests that are received or handled
	Calls   int   // under way
	Waiting int   // requests that wait for bytes
}

// Stats returns the counters.
func (g *Gate) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Stats{Bytes: g.ledger.node.used, Calls: g.ledger.calls, Waiting: len(g.ledger.waiting)}
}

type callKey struct{}

// callOf is the call that a context belongs to; nil for none.
func callOf(ctx context.Context) *call {
	c, _ := ctx.Value(callKey{}).(*call)
	return c
}

// open begins a call whose headers have just been read from conn. It runs on the connection's reader.
func (g *Gate) open(ctx context.Context, conn *Conn) context.Context {
	ctx, cancel := context.WithCancel(ctx)
	c := &call{conn: conn, stream: conn.headers, cancel: cancel, ended: conn.headersEnd, wake: make(chan struct{}, 1), done: make(chan struct{})}
	ctx = context.WithValue(ctx, callKey{}, c)
	c.ctx = ctx
	conn.opened = c
	g.mu.Lock()
	defer g.mu.Unlock()
	conn.calls[c.stream] = c
	conn.rests.Store(false)
	if len(conn.calls) == 1 && conn.peer != nil {
		conn.peer.SetBusy(true)
	}
	g.ledger.calls++
	if g.ledger.calls > g.opts.Limits.Calls {
		c.refused = g.opts.Overloaded(fmt.Sprintf("%d calls are under way, which is the node's limit", g.opts.Limits.Calls), retryAfter)
		c.why = RefusedCalls
	} else {
		g.afford(c, callCost)
		c.base = c.charged
	}
	return ctx
}

// afford charges the bytes that a call holds already. If they do not fit, it refuses the call, and the
// slowest request with it.
func (g *Gate) afford(c *call, n int64) {
	if g.ledger.charge(c, n, true) {
		return
	}
	g.reclaim()
	g.refuse(c, g.overloaded(), RefusedBytes)
}

// reclaim has the slowest request give way.
func (g *Gate) reclaim() {
	if slow := g.ledger.slowest(time.Now()); slow != nil {
		g.refuse(slow, g.opts.Overloaded("the request arrived too slowly while other requests wait", retryAfter), RefusedSlow)
	}
}

func (g *Gate) overloaded() error {
	return g.opts.Overloaded(fmt.Sprintf("requests of more than %d bytes are being received or handled", g.opts.Limits.Node), retryAfter)
}

// refuse has a call take no byte more.
func (g *Gate) refuse(c *call, err error, why string) {
	if c.refused != nil || c.over {
		return
	}
	c.refused, c.why = err, why
	c.signal()
	if c.taking > 0 {
		c.cancel() // gRPC waits for the rest of a message
	}
}

// frame charges a DATA frame that is about to be read. If there are no bytes for it, the call is refused, and the
// connection waits a moment until the call has ended: gRPC then drops the frame.
func (g *Gate) frame(conn *Conn, stream uint32, n int64, last bool) *call {
	g.mu.Lock()
	c := conn.calls[stream]
	if c == nil || c.over {
		g.mu.Unlock()
		return nil
	}
	cost := costOf(n)
	if n == 0 {
		cost = 0
	}
	prepaid := min(cost, c.reserved)
	if c.refused == nil && cost > prepaid {
		before := c.charged
		g.afford(c, cost-prepaid)
		c.cost += c.charged - before
	}
	if c.refused == nil {
		c.reserved -= prepaid
		c.cost += prepaid
	}
	c.ended = c.ended || last
	if last {
		c.signal()
	}
	refused, done := c.refused != nil, c.done
	g.mu.Unlock()
	if !refused {
		return c
	}
	timer := time.NewTimer(refusedTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	return nil
}

// ended notes that the caller has sent everything.
func (g *Gate) ended(conn *Conn, stream uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if c := conn.calls[stream]; c != nil {
		c.ended = true
		c.signal()
	}
}

// payload notes bytes of a call that have arrived.
func (g *Gate) payload(c *call, b []byte) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !c.over {
		c.arrive(b)
	}
}

// begin checks a call's headers on the call's goroutine. Each call that it is asked about must be ended.
func (g *Gate) begin(c *call, method string) error {
	g.mu.Lock()
	c.begun = true
	err, why := c.refused, c.why
	if c.over {
		err = c.ctx.Err()
	}
	g.mu.Unlock()
	if err == nil && g.opts.Check != nil {
		var class string
		var stranger bool
		class, stranger, err = g.opts.Check(c.ctx, method)
		why = RefusedCheck
		g.mu.Lock()
		if err == nil && !c.over {
			g.ledger.classify(c, class)
			if stranger {
				c.stranger = true
				if g.ledger.strangers++; g.ledger.strangers > g.opts.Limits.Strangers {
					err = g.opts.Overloaded(fmt.Sprintf("%d calls without credentials are under way, which is the node's limit", g.opts.Limits.Strangers), retryAfter)
					why = RefusedCalls
				}
			}
		}
		g.mu.Unlock()
	}
	if err != nil {
		g.reportRefusal(method, err, why)
	}
	return err
}

func (g *Gate) reportRefusal(method string, err error, why string) {
	if g.opts.Refused != nil {
		g.opts.Refused(method, err, why)
	}
}

// end ends a call and releases the bytes that it held.
func (g *Gate) end(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.endLocked(c)
}

func (g *Gate) endLocked(c *call) {
	if c.over {
		return
	}
	c.over = true
	close(c.done)
	g.ledger.end(c)
	c.charged = c.retained
	if c.conn.calls[c.stream] == c {
		delete(c.conn.calls, c.stream)
	}
	if len(c.conn.calls) == 0 && c.conn.peer != nil {
		c.conn.peer.SetBusy(false)
	}
	c.cancel()
	g.grant()
}

// grant wakes the calls whose reservation fits now.
func (g *Gate) grant() {
	for _, c := range g.ledger.granted() {
		c.signal()
	}
}

// abandon ends a call that no handler will run for.
func (g *Gate) abandon(c *call) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !c.begun {
		g.endLocked(c)
	}
}

// closed ends the calls of a connection that have no handler. Handlers end their calls themselves.
func (g *Gate) closed(conn *Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range conn.calls {
		if !c.begun {
			g.endLocked(c)
		}
	}
}

// receive is a handler's receive of one message: it waits until the message has begun, reserves its bytes, and has
// gRPC read it. It blocks as gRPC's own receive does, and grantTimeout more at most. A message that takes longer
// than receiveBase and a second for each receiveRate bytes ends the call.
func (g *Gate) receive(c *call, method string, read func() error) error {
	n, whole, err := g.admit(c)
	if err != nil {
		g.mu.Lock()
		why := c.why
		g.mu.Unlock()
		g.reportRefusal(method, err, why)
		return err
	}
	if n < 0 { // the end, or what gRPC refuses by itself
		return read()
	}
	if whole {
		err = read()
	} else {
		timeout := time.AfterFunc(receiveBase+time.Duration(n)*time.Second/receiveRate, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.refuse(c, g.opts.Overloaded("the request took too long to arrive", retryAfter), RefusedSlow)
		})
		err = read()
		timeout.Stop()
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil && c.refused != nil {
		err = c.refused
		go g.reportRefusal(method, err, c.why)
	}
	g.taken(c, n)
	return err
}

// admit waits for the next message's header and reserves what has not arrived of it. It answers the message's
// length, or -1 if there is nothing to reserve for, and whether the whole message has arrived.
func (g *Gate) admit(c *call) (length int64, whole bool, err error) {
	g.mu.Lock()
	g.release(c, &c.held) // the handler is done with the message before
	var waiting *time.Timer
	var tick *time.Ticker
	defer func() {
		if waiting != nil {
			waiting.Stop()
			tick.Stop()
		}
	}()
	// Until the first message has begun, the call has the time limit of a message. Streams may be idle later.
	var late <-chan time.Time
	if c.base > 0 && len(c.lengths) == 0 && !c.ended && c.refused == nil {
		timer := time.NewTimer(receiveBase)
		defer timer.Stop()
		late = timer.C
		g.ledger.receiving[c] = time.Now()
	}
	length = -1
	for {
		switch {
		case c.refused != nil:
			err = c.refused
			g.dequeue(c)
			g.mu.Unlock()
			return -1, false, err
		case length >= 0 && c.wants == 0, length < 0 && len(c.lengths) == 0 && c.ended:
			if length >= 0 {
				c.taking = messageHeader + length
				c.arrived = c.raw
				if c.raw < c.taking {
					g.ledger.receiving[c] = time.Now()
				}
			} else {
				delete(g.ledger.receiving, c)
			}
			whole = length >= 0 && c.raw >= c.taking
			g.mu.Unlock()
			return length, whole, nil
		case length < 0 && len(c.lengths) > 0:
			length = int64(c.lengths[0])
			switch {
			case length > g.opts.Limits.Message:
				g.mu.Unlock()
				return -1, false, nil
			case c.stranger && length > g.opts.Limits.StrangerMessage:
				c.refused = g.opts.Overloaded(fmt.Sprintf("a message of %d bytes from a caller without credentials, at most %d are read", length, g.opts.Limits.StrangerMessage), 0)
				c.why = RefusedSize
				continue
			}
			c.lengths = c.lengths[1:]
			delete(g.ledger.receiving, c) // what it waits for now is not its own fault
			rest := messageHeader + length - c.raw
			switch {
			case rest <= 0:
			case g.ledger.charge(c, rest, length <= small):
				c.reserved += rest
			default:
				c.wants = rest
				g.ledger.waiting = append(g.ledger.waiting, c)
				g.reclaim()
				waiting, tick = time.NewTimer(grantTimeout), time.NewTicker(reclaimEvery)
			}
			continue
		}
		g.mu.Unlock()
		var over, again <-chan time.Time
		if waiting != nil {
			over, again = waiting.C, tick.C
		}
		select {
		case <-c.wake:
			g.mu.Lock()
		case <-c.ctx.Done():
			g.mu.Lock()
			if c.refused == nil {
				g.dequeue(c)
				delete(g.ledger.receiving, c)
				g.mu.Unlock()
				return -1, false, nil // gRPC says why
			}
		case <-late:
			g.mu.Lock()
			g.refuse(c, g.opts.Overloaded(fmt.Sprintf("no request came within %s", receiveBase), retryAfter), RefusedSlow)
		case <-again:
			g.mu.Lock()
			g.reclaim()
		case <-over:
			g.mu.Lock()
			if c.wants > 0 {
				g.refuse(c, g.overloaded(), RefusedBytes)
			}
		}
	}
}

func (g *Gate) dequeue(c *call) {
	for i, w := range g.ledger.waiting {
		if w == c {
			g.ledger.waiting = append(g.ledger.waiting[:i], g.ledger.waiting[i+1:]...)
			break
		}
	}
	c.wants = 0
}

// taken notes that the handler has a message of n bytes.
func (g *Gate) taken(c *call, n int64) {
	if c.over {
		return
	}
	delete(g.ledger.receiving, c)
	g.release(c, &c.base)
	g.release(c, &c.reserved)
	share := c.cost
	if whole := messageHeader + n; whole < c.raw {
		share = int64(float64(c.cost) * float64(whole) / float64(c.raw))
		c.raw -= whole
	} else {
		c.raw = 0
	}
	c.cost -= share
	c.held += share
	c.taking = 0
}

// release releases one part of a call's charge.
func (g *Gate) release(c *call, part *int64) {
	if *part == 0 || c.over {
		return
	}
	g.ledger.add(c, -*part)
	*part = 0
	g.grant()
}

// Keep takes over the bytes of the last message that the handler of ctx's call has received. They stay
// charged until release is called, even after the next message or the end of the call. A handler that
// processes a stream's messages concurrently calls Keep for each of them. A second release does nothing.
//
// For a call that came with others in one message, see WithPart, it returns the release of that call's part.
func (g *Gate) Keep(ctx context.Context) (release func()) {
	if release, ok := ctx.Value(partKey{}).(func()); ok {
		return release
	}
	c := callOf(ctx)
	if c == nil {
		return func() {}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if c.over {
		return func() {}
	}
	n := c.held
	c.held = 0
	c.retained += n
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if n > 0 {
			c.retained -= n
			g.ledger.add(c, -n)
			n = 0
			g.grant()
		}
	}
}

type partKey struct{}

// WithPart returns the context of a call that came with others in one message of a stream. release gives its part of
// the message's bytes back.
func WithPart(ctx context.Context, release func()) context.Context {
	return context.WithValue(ctx, partKey{}, release)
}

// Rest says whether the call of ctx asks for little but what is refused. Then its connection is read at most every 20 ms, if it
// carries no other call: a message that arrives by itself costs more to receive than a refusal to make. It holds until it is
// said otherwise, or until the connection's next call begins.
func (g *Gate) Rest(ctx context.Context, rests bool) {
	c := callOf(ctx)
	if c == nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	c.conn.rests.Store(rests && len(c.conn.calls) == 1)
}

// KeepParts is Keep for a message that holds several calls of the given sizes: each part is released by itself, and a
// second time does nothing.
func (g *Gate) KeepParts(ctx context.Context, sizes []int) []func() {
	parts := make([]func(), len(sizes))
	c := callOf(ctx)
	if c == nil || len(sizes) == 0 {
		for i := range parts {
			parts[i] = func() {}
		}
		return parts
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	left, total := int64(0), int64(0)
	if !c.over {
		left = c.held
	}
	c.held -= left
	c.retained += left
	for _, n := range sizes {
		total += int64(n)
	}
	for i, size := range sizes {
		n := left
		if i < len(sizes)-1 {
			n = int64(float64(left) * float64(size) / float64(max(total, 1)))
		}
		left, total = left-n, total-int64(size)
		released := false
		parts[i] = func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			if !released {
				released = true
				c.retained -= n
				g.ledger.add(c, -n)
				g.grant()
			}
		}
	}
	return parts
}
