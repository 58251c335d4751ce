package ingress

import (
	"encoding/binary"
	"net"
	"sync/atomic"
	"time"
)

// the parts of HTTP/2 that the gate reads (RFC 9113).
const (
	prefaceBytes  = 24
	frameHead     = 9
	frameData     = 0
	frameHeaders  = 1
	flagEndStream = 1
	flagPadded    = 8
	// readBuffer is what one read of the network takes at most when the reader asks for less.
	readBuffer = 4 << 10
	// refusedTimeout bounds how long a connection is not read while a refused call of it ends.
	refusedTimeout = time.Second
	// restFor is how long a connection that rests is not read once everything was read that had arrived.
	restFor = 20 * time.Millisecond
)

// Conn is a connection whose reads pass through the Gate, frame by frame. No read passes the end of the frame
// that it begins in. So gRPC, which reads without a buffer of its own, handles a frame before the Gate parses
// the next one.
type Conn struct {
	net.Conn
	gate *Gate
	peer *Peer // nil if the connection did not come from a Listener
	// rests is set while what arrives is read together, see Gate.Rest.
	rests atomic.Bool

	// Guarded by the gate's lock.
	account account
	calls   map[uint32]*call

	// Used by the one goroutine that reads.
	buffer     []byte
	read, end  int // of the buffer
	preface    int // bytes of it that are still to come
	head       [frameHead]byte
	headN      int
	left       int   // bytes of the frame's payload that are still to come
	data       *call // the call of the current DATA frame
	padHead    bool  // the next byte says how much padding there is
	padding    int
	headers    uint32 // the stream of the latest HEADERS frame
	headersEnd bool   // and whether it says that the caller has sent everything
	opened     *call  // the latest call
	more       bool   // the last read of the network got all that it asked for
}

func newConn(c net.Conn, g *Gate, p *Peer) *Conn {
	return &Conn{Conn: c, gate: g, peer: p, calls: map[uint32]*call{}, buffer: make([]byte, readBuffer), preface: prefaceBytes}
}

// Read implements net.Conn for one goroutine.
func (c *Conn) Read(p []byte) (int, error) {
	switch {
	case len(p) == 0:
		return 0, nil
	case c.preface > 0:
		n, err := c.take(p[:min(len(p), c.preface)])
		c.preface -= n
		return n, err
	case c.left == 0:
		n, err := c.take(p[:min(len(p), frameHead-c.headN)])
		copy(c.head[c.headN:], p[:n])
		if c.headN += n; c.headN == frameHead {
			c.headN = 0
			c.begin()
		}
		return n, err
	default:
		n, err := c.take(p[:min(len(p), c.left)])
		c.left -= n
		if c.data != nil {
			c.payload(p[:n])
		}
		return n, err
	}
}

// take reads from the buffer, or from the network.
func (c *Conn) take(p []byte) (int, error) {
	if c.read == c.end {
		if c.rests.Load() && !c.more {
			time.Sleep(restFor)
		}
		if len(p) >= len(c.buffer) {
			n, err := c.Conn.Read(p)
			c.more = n == len(p)
			return n, err
		}
		n, err := c.Conn.Read(c.buffer)
		c.read, c.end, c.more = 0, n, n == len(c.buffer)
		if n == 0 {
			return 0, err
		}
	}
	n := copy(p, c.buffer[c.read:c.end])
	c.read += n
	return n, nil
}

// begin reads a frame's header, before gRPC does.
func (c *Conn) begin() {
	c.left = int(c.head[0])<<16 | int(c.head[1])<<8 | int(c.head[2])
	kind, flags := c.head[3], c.head[4]
	stream := binary.BigEndian.Uint32(c.head[5:]) & (1<<31 - 1)
	c.data, c.padHead, c.padding = nil, false, 0
	if c.opened != nil {
		// gRPC opens no stream for a call that was over before it began.
		if c.opened.ctx.Err() != nil {
			c.gate.abandon(c.opened)
		}
		c.opened = nil
	}
	switch kind {
	case frameHeaders:
		c.headers, c.headersEnd = stream, flags&flagEndStream != 0
		if c.headersEnd {
			c.gate.ended(c, stream) // trailers; a stream that is new is not known yet
		}
	case frameData:
		c.data = c.gate.frame(c, stream, int64(min(c.left, maxFrame)), flags&flagEndStream != 0)
		c.padHead = flags&flagPadded != 0
	}
}

// payload passes a piece of a DATA frame's payload on, without its padding.
func (c *Conn) payload(b []byte) {
	if c.padHead && len(b) > 0 {
		c.padHead, c.padding = false, int(b[0])
		b = b[1:]
	}
	// c.left bytes come after b; the last of them, c.padding in all, are padding.
	if beyond := c.padding - c.left; beyond > 0 {
		b = b[:max(len(b)-beyond, 0)]
	}
	if len(b) > 0 {
		c.gate.payload(c.data, b)
	}
}

// Close implements net.Conn.
func (c *Conn) Close() error {
	c.gate.closed(c)
	return c.Conn.Close()
}
