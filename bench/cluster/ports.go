package cluster

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
)

// The ports that Reserve draws from: below those of the project's tests and those that systems hand out.
const firstPort, ports = 7500, 2400

// Ports are reserved for the processes that a benchmark starts.
type Ports struct {
	// Addrs are on loopback, host:port, and nobody else listens there, by TCP or UDP.
	Addrs []string
	held  []io.Closer
}

// Reserve reserves n ports until Close. Linux refuses them to every other Reserve, of this process or another, while
// a node may listen on them, and again after it was killed. Other systems have no means for it: two benchmarks at
// once may meet on a port there.
func Reserve(n int) (*Ports, error) { return reserve(n, firstPort, ports) }

// reserve is Reserve, among count ports.
func reserve(n, first, count int) (*Ports, error) {
	p := &Ports{}
	begin := rand.IntN(count)
	for i := 0; len(p.Addrs) < n; i++ {
		if i == count {
			return nil, errors.Join(fmt.Errorf("no %d free ports from %d to %d", n, first, first+count-1), p.Close())
		}
		port := first + (begin+i)%count
		held, err := hold(port)
		if err != nil {
			continue // somebody has it
		}
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		packet, err := net.ListenPacket("udp", addr)
		if err != nil {
			_ = held.Close() // nothing was sent
			continue
		}
		_ = packet.Close() // nothing was sent
		p.Addrs, p.held = append(p.Addrs, addr), append(p.held, held)
	}
	return p, nil
}

// Close gives the ports back.
func (p *Ports) Close() error {
	var errs []error
	for _, h := range p.held {
		errs = append(errs, h.Close())
	}
	p.held = nil
	return errors.Join(errs...)
}
