package ingress

import "time"

// Limits are the bounds of a Gate, in bytes unless another unit is named.
type Limits struct {
	// Message is the largest message that the server accepts. Larger ones are left to gRPC, which refuses them
	// by their header.
	Message int64
	// Node bounds the requests of all callers that are being received or handled; Connection those of one
	// connection, Class those of one class of callers. Each is at least Message.
	Node, Connection, Class int64
	// Reserve comes on top of Node for small messages, so that large ones do not shut them out.
	Reserve int64
	// Calls bounds the calls under way, in pieces.
	Calls int
	// Strangers bounds the number of calls under way of callers without credentials, StrangerMessage the
	// bytes of each of their messages.
	Strangers       int
	StrangerMessage int64
}

const (
	// small messages may use the reserve.
	small = 64 << 10
	// callCost is charged for a call until its first message was received: its goroutine and what gRPC keeps.
	callCost = 8 << 10
	// frameCost is charged in addition to the bytes of a frame that is smaller than tinyFrame.
	frameCost = 64
	tinyFrame = 1 << 10
	// maxFrame is the largest frame that gRPC accepts.
	maxFrame = 16 << 10
	// slowAge and slowRate select the requests that end when bytes are short: those that have taken longer than
	// slowAge with fewer than slowRate bytes a second.
	// maxPassedOver bounds how many waiting calls that do not fit a release passes over.
	maxPassedOver = 64
	slowAge       = time.Second
	slowRate      = 1 << 20
)

// costOf is the memory that gRPC takes for a DATA frame of n bytes: its buffers come in three sizes.
func costOf(n int64) int64 {
	switch {
	case n < tinyFrame:
		return n + frameCost
	case n <= 4<<10:
		return 4 << 10
	default:
		return maxFrame
	}
}

// account is one of the three sums that a call's bytes are charged to.
type account struct{ used int64 }

// ledger counts bytes and calls. It has no lock and no clock.
//
//	node.used = sum of classes' used = sum of connections' used
//	node.used <= Limits.Node + Limits.Reserve
type ledger struct {
	limits    Limits
	node      account
	classes   map[string]*account
	calls     int
	strangers int
	// receiving are the calls that wait for the rest of a message.
	receiving map[*call]time.Time
	// waiting are the calls whose reservation did not fit, first come first served.
	waiting []*call
}

func newLedger(limits Limits) *ledger {
	return &ledger{limits: limits, classes: map[string]*account{}, receiving: map[*call]time.Time{}}
}

// charge adds n bytes to what a call holds; false, and nothing changed, if a bound would be broken.
func (l *ledger) charge(c *call, n int64, isSmall bool) bool {
	node, conn, class := l.limits.Node, l.limits.Connection, l.limits.Class
	if isSmall {
		node, conn, class = node+l.limits.Reserve, conn+l.limits.Reserve/4, class+l.limits.Reserve/2
	}
	if l.node.used+n > node || c.conn.account.used+n > conn {
		return false
	}
	if c.class != "" {
		a := l.classes[c.class]
		if a == nil {
			a = &account{}
			l.classes[c.class] = a
		}
		if a.used+n > class {
			return false
		}
	}
	l.add(c, n)
	return true
}

// add changes the sums that a call is charged to.
func (l *ledger) add(c *call, n int64) {
	l.node.used += n
	c.conn.account.used += n
	c.charged += n
	if c.class == "" {
		return
	}
	a := l.classes[c.class]
	if a == nil {
		a = &account{}
		l.classes[c.class] = a
	}
	if a.used += n; a.used == 0 {
		delete(l.classes, c.class)
	}
}

// classify moves what a call holds to the account of its class. The class is known once its headers are checked.
func (l *ledger) classify(c *call, class string) {
	held := c.charged
	l.add(c, -held)
	c.class = class
	l.add(c, held)
}

// granted reserves for the calls that wait, in their order, passing over those whose connection or class is at
// its bound, and returns them.
func (l *ledger) granted() []*call {
	if len(l.waiting) == 0 {
		return nil
	}
	var out []*call
	rest := l.waiting[:0]
	for _, c := range l.waiting {
		if len(rest) < maxPassedOver && c.refused == nil && l.charge(c, c.wants, false) {
			c.reserved += c.wants
			c.wants = 0
			out = append(out, c)
			continue
		}
		rest = append(rest, c)
	}
	clear(l.waiting[len(rest):])
	l.waiting = rest
	return out
}

// slowest is the request that gives way next when bytes are short; nil if none is slow.
func (l *ledger) slowest(now time.Time) *call {
	var out *call
	lowest := float64(slowRate)
	for c, since := range l.receiving {
		age := now.Sub(since)
		if age < slowAge || c.refused != nil {
			continue
		}
		if rate := float64(c.arrived) / age.Seconds(); rate < lowest {
			out, lowest = c, rate
		}
	}
	return out
}

// end takes a call and what it holds out of the ledger. Held messages (see Keep) stay until they are released.
func (l *ledger) end(c *call) {
	delete(l.receiving, c)
	for i, w := range l.waiting {
		if w == c {
			l.waiting = append(l.waiting[:i], l.waiting[i+1:]...)
			break
		}
	}
	l.add(c, c.retained-c.charged)
	l.calls--
	if c.stranger {
		l.strangers--
	}
}
