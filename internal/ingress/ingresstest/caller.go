// Package ingresstest is a gRPC caller that misbehaves: it begins requests and does not finish them, and keeps
// connections that say nothing or little. It is for tests and harnesses; what it sends is limited by the server's
// flow control only.
package ingresstest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// maxFrame is the largest DATA frame sent.
const maxFrame = 16 << 10

// Caller is one connection.
type Caller struct {
	conn   net.Conn
	framer *http2.Framer
	chunk  []byte // what DATA frames hold

	writing sync.Mutex // the framer's writer, and the header encoder
	headers bytes.Buffer
	encoder *hpack.Encoder

	mu      sync.Mutex
	changed *sync.Cond
	window  int64 // of the connection
	initial int64 // of a new stream
	next    uint32
	streams map[uint32]*Request
	err     error
}

// Request is a request that has begun.
type Request struct {
	c      *Caller
	id     uint32
	window int64
	sent   int64
	status string // grpc-status, once answered
	over   bool
}

// Dial connects and exchanges settings. Frame is the size of the DATA frames; 16 KiB if 0.
func Dial(addr string, frame int) (*Caller, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return New(conn, frame)
}

// New is Dial over a connection that is there already.
func New(conn net.Conn, frame int) (*Caller, error) {
	if frame == 0 {
		frame = maxFrame
	}
	c := &Caller{conn: conn, framer: http2.NewFramer(conn, conn), chunk: make([]byte, frame), window: 65535, initial: 65535, next: 1, streams: map[uint32]*Request{}}
	c.changed = sync.NewCond(&c.mu)
	c.encoder = hpack.NewEncoder(&c.headers)
	c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err := io.WriteString(conn, http2.ClientPreface)
	if err == nil {
		err = c.framer.WriteSettings()
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	go c.read()
	return c, nil
}

// Close ends the connection.
func (c *Caller) Close() error { return c.conn.Close() }

func (c *Caller) read() {
	for {
		f, err := c.framer.ReadFrame()
		if err != nil {
			c.fail(err)
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if f.IsAck() {
				continue
			}
			c.mu.Lock()
			if v, ok := f.Value(http2.SettingInitialWindowSize); ok {
				for _, r := range c.streams {
					r.window += int64(v) - c.initial
				}
				c.initial = int64(v)
			}
			c.changed.Broadcast()
			c.mu.Unlock()
			c.write(func() error { return c.framer.WriteSettingsAck() })
		case *http2.PingFrame:
			if !f.IsAck() {
				data := f.Data
				c.write(func() error { return c.framer.WritePing(true, data) })
			}
		case *http2.WindowUpdateFrame:
			c.mu.Lock()
			if f.StreamID == 0 {
				c.window += int64(f.Increment)
			} else if r := c.streams[f.StreamID]; r != nil {
				r.window += int64(f.Increment)
			}
			c.changed.Broadcast()
			c.mu.Unlock()
		case *http2.MetaHeadersFrame:
			c.mu.Lock()
			if r := c.streams[f.StreamID]; r != nil {
				for _, h := range f.Fields {
					if h.Name == "grpc-status" {
						r.status = h.Value
					}
				}
				r.over = r.over || f.StreamEnded()
			}
			c.changed.Broadcast()
			c.mu.Unlock()
		case *http2.RSTStreamFrame:
			c.mu.Lock()
			if r := c.streams[f.StreamID]; r != nil {
				r.over = true
			}
			c.changed.Broadcast()
			c.mu.Unlock()
		}
	}
}

func (c *Caller) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err == nil {
		c.err = err
	}
	c.changed.Broadcast()
}

func (c *Caller) write(do func() error) {
	c.writing.Lock()
	defer c.writing.Unlock()
	if err := do(); err != nil {
		c.fail(err)
	}
}

// Begin sends a call's headers. An empty token sends none.
func (c *Caller) Begin(method, token string, more ...hpack.HeaderField) *Request {
	c.mu.Lock()
	r := &Request{c: c, id: c.next, window: c.initial}
	c.next += 2
	c.streams[r.id] = r
	c.mu.Unlock()
	c.write(func() error {
		c.headers.Reset()
		fields := []hpack.HeaderField{{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: method},
			{Name: ":authority", Value: "localhost"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"}}
		if token != "" {
			fields = append(fields, hpack.HeaderField{Name: "authorization", Value: "Bearer " + token})
		}
		for _, f := range append(fields, more...) {
			if err := c.encoder.WriteField(f); err != nil {
				return err
			}
		}
		return c.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: r.id, BlockFragment: c.headers.Bytes(), EndHeaders: true})
	})
	return r
}

// Announce sends the header of a message of n bytes, and nothing of it.
func (r *Request) Announce(n uint32) {
	var head [5]byte
	binary.BigEndian.PutUint32(head[1:], n)
	r.data(head[:])
}

// Push sends n bytes, as fast as the server's flow control permits. It returns the number sent when all are
// sent, the request is over, or it could send nothing for the duration stuck.
func (r *Request) Push(n int64, stuck time.Duration) int64 {
	sent := int64(0)
	for sent < n {
		c := r.c
		c.mu.Lock()
		timer := time.AfterFunc(stuck, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.changed.Broadcast()
		})
		began := time.Now()
		for !r.over && c.err == nil && (r.window <= 0 || c.window <= 0) && time.Since(began) < stuck {
			c.changed.Wait()
		}
		timer.Stop()
		k := min(r.window, c.window, int64(len(c.chunk)), n-sent)
		if r.over || c.err != nil || k <= 0 {
			c.mu.Unlock()
			return sent
		}
		c.mu.Unlock()
		r.data(c.chunk[:k])
		sent += k
	}
	return sent
}

func (r *Request) data(b []byte) {
	c := r.c
	c.mu.Lock()
	r.window -= int64(len(b))
	c.window -= int64(len(b))
	r.sent += int64(len(b))
	c.mu.Unlock()
	c.write(func() error { return c.framer.WriteData(r.id, false, b) })
}

// Sent is how many payload bytes were sent.
func (r *Request) Sent() int64 {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	return r.sent
}

// Wait waits until the call is over, for a while at most, and answers its grpc-status.
func (r *Request) Wait(most time.Duration) (status string, err error) {
	c := r.c
	timer := time.AfterFunc(most, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.changed.Broadcast()
	})
	defer timer.Stop()
	c.mu.Lock()
	defer c.mu.Unlock()
	for began := time.Now(); !r.over && c.err == nil; c.changed.Wait() {
		if time.Since(began) >= most {
			return "", fmt.Errorf("stream %d is not over after %s", r.id, most)
		}
	}
	if !r.over {
		return "", c.err
	}
	return r.status, nil
}
