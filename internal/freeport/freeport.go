// Package freeport gives tests addresses to listen on that no other test gets. The tests of several packages
// run at once, each in its own process, and some reuse an address later. So every package has a span of its
// own, below the ports that the system assigns. The package does not protect against processes other than
// this project's tests.
package freeport

import (
	"fmt"
	"math/rand/v2"
	"net"
	"sync/atomic"
	"testing"
)

// The spans, one for each package whose tests need ports. 25000 to 31999 are those of the clusters that package
// jepsen starts, in tests and elsewhere.
var (
	Backup     = span(9900, 50)
	Bench      = span(9950, 50)
	RPC        = span(10000, 2000)
	Embed      = span(12000, 6000)
	Partition  = span(18000, 5000)
	Transport  = span(23000, 2000)
	Membership = span(32000, 750)
)

// A Span is a package's ports. It walks through them from a random one, so that none is given twice before all
// have been, and two runs of the same tests rarely meet.
type Span struct {
	first, count uint32
	next         atomic.Uint32
}

func span(first, count uint32) *Span {
	s := &Span{first: first, count: count}
	s.next.Store(rand.Uint32N(count))
	return s
}

// Addr returns an address of this host without a listener, by TCP or UDP. A test that finds none fails.
func (s *Span) Addr(t testing.TB) string {
	t.Helper()
	for range s.count {
		addr := fmt.Sprintf("127.0.0.1:%d", s.first+s.next.Add(1)%s.count)
		if free(t, addr) {
			return addr
		}
	}
	t.Fatalf("no free port from %d to %d", s.first, s.first+s.count-1)
	return ""
}

func free(t testing.TB, addr string) bool {
	t.Helper()
	stream, err := net.Listen("tcp", addr)
	if err != nil {
		return false
	}
	packet, busy := net.ListenPacket("udp", addr)
	if busy == nil {
		err = packet.Close()
	}
	if closed := stream.Close(); err != nil || closed != nil {
		t.Fatal(err, closed)
	}
	return busy == nil
}
