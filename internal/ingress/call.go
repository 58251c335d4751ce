package ingress

import (
	"context"
	"encoding/binary"
)

// messageHeader is the number of bytes before a gRPC message: a flag and the length.
const messageHeader = 5

// call is one call from its headers to its end. The gate's lock guards it, except for the fields that only
// the connection's reader uses.
//
//	charged = base + cost + reserved + held + retained
type call struct {
	conn   *Conn
	stream uint32
	ctx    context.Context
	cancel context.CancelFunc

	class    string
	stranger bool // without credentials

	charged  int64
	base     int64 // until the first message was received
	cost     int64 // of frames that arrived and were not taken by the handler
	reserved int64 // of the message that is being received: what has not arrived yet
	held     int64 // of the message that the handler has
	retained int64 // of messages that outlive the next receive (Keep)
	wants    int64 // waits for such a reservation

	raw     int64    // payload bytes that arrived and were not taken
	lengths []uint32 // of the messages that have begun and were not taken
	arrived int64    // payload bytes since the message was asked for
	taking  int64    // bytes of the message that gRPC is being asked for

	// The parser of the stream's messages.
	head   [messageHeader]byte
	headN  int
	remain int64

	ended   bool   // the caller has sent everything
	refused error  // no byte more is taken
	why     string // RefusedBytes and so on
	begun   bool   // a handler runs
	over    bool
	// wake is signalled when the handler that waits has something to handle; done closes when the call ends.
	wake chan struct{}
	done chan struct{}
}

// arrive notes payload bytes.
func (c *call) arrive(b []byte) {
	c.raw += int64(len(b))
	c.arrived += int64(len(b))
	for len(b) > 0 {
		if c.remain > 0 {
			n := min(c.remain, int64(len(b)))
			c.remain -= n
			b = b[n:]
			continue
		}
		n := copy(c.head[c.headN:], b)
		c.headN += n
		b = b[n:]
		if c.headN == messageHeader {
			length := binary.BigEndian.Uint32(c.head[1:])
			c.lengths = append(c.lengths, length)
			c.headN, c.remain = 0, int64(length)
			c.signal()
		}
	}
}

func (c *call) signal() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}
