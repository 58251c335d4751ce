package ingress

import (
	"context"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// wire is a connection on which bytes arrive. A read waits for one, and takes all that have arrived.
type wire struct {
	net.Conn
	arrived chan byte
}

func (w wire) Read(p []byte) (n int, err error) {
	b, open := <-w.arrived
	for open {
		p[n] = b
		if n++; n == len(p) {
			break
		}
		select {
		case b, open = <-w.arrived:
		default:
			return n, nil
		}
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// TestRest: what arrives at a connection that rests is read together, but for what arrives after a silence; with a second call on it
// the connection does not rest.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pass := func(d time.Duration) { <-time.After(d) } // of the clock of synctest
		g := New(Options{Limits: Limits{Node: 1 << 20, Connection: 1 << 20, Class: 1 << 20, Calls: 10}})
		far := wire{arrived: make(chan byte, 3*readBuffer)}
		conn := newConn(far, g, nil)
		defer close(far.arrived)
		var read []time.Duration // when each byte was read
		begun := time.Now()
		go func() {
			for b := make([]byte, 1); ; {
				if _, err := conn.take(b); err != nil {
					return
				}
				read = append(read, time.Since(begun))
			}
		}()
		// arrive sends five bytes, one each two milliseconds, and returns at how many instants they were read, and after what time the
		// first one was.
		arrive := func() (instants int, first time.Duration) {
			pass(time.Second)
			synctest.Wait()
			read = nil
			sent := time.Since(begun)
			for range 5 {
				far.arrived <- 1
				pass(2 * time.Millisecond)
			}
			pass(10 * restFor)
			synctest.Wait()
			if len(read) != 5 {
				t.Fatalf("%d bytes were read, want 5", len(read))
			}
			for i, at := range read {
				if i == 0 || at != read[i-1] {
					instants++
				}
			}
			return instants, read[0] - sent
		}
		conn.headers = 1
		ctx := g.open(context.Background(), conn)
		if n, first := arrive(); n != 5 || first != 0 {
			t.Errorf("without rest: read at %d instants, the first after %v", n, first)
		}
		g.Rest(ctx, true)
		arrive() // it waits for the network already
		if n, first := arrive(); n != 2 || first != 0 {
			t.Errorf("with rest: read at %d instants, want one for the first byte and one for the rest; the first after %v", n, first)
		}
		read, begun = nil, time.Now()
		for range 3 * readBuffer {
			far.arrived <- 1
		}
		synctest.Wait()
		pass(2 * restFor)
		synctest.Wait()
		if n := len(read); n != 3*readBuffer || read[n-1] > restFor {
			t.Errorf("%d bytes that came together were read after %v, want %d after one rest", n, read[n-1], 3*readBuffer)
		}
		conn.headers = 3
		g.open(context.Background(), conn)
		for range 2 {
			arrive()
			if n, _ := arrive(); n != 5 {
				t.Errorf("with a second call: read at %d instants", n)
			}
			g.Rest(ctx, true)
		}
		g.Rest(context.Background(), true) // of no call
	})
}
