package transport

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"perdure/internal/clock"
)

// Bounds of the requests that the connections of groups receive. The library decodes a request whole and answers it
// before it takes the next one from the same connection. The first smallMessage bytes of a request are free, so
// heartbeats and votes wait for nothing. More than that needs one of a bounded number of permits, and so does more than
// mediumMessage. A member's snapshot is exempt: it goes to the disk as it arrives.
//
//	bytes in memory <= connections * (smallMessage + 256 KiB, the library's buffer) + medium * mediumMessage + large * maxMessage
const (
	smallMessage  = 64 << 10
	mediumMessage = 2 << 20
	// maxMessage is more than the largest entry takes.
	maxMessage = 32 << 20
	// The permits of members, and those of servers that are not known to be members: a new member that is not
	// in this node's directory yet, or a stranger.
	memberMedium, memberLarge     = 32, 2
	strangerMedium, strangerLarge = 4, 1
	// permitTimeout bounds the wait for a permit; the sender waits no longer for an answer.
	permitTimeout = 10 * time.Second
)

// rpcInstallSnapshot is the first byte of the library's request to install a snapshot (v1.7.3, net_transport.go).
const rpcInstallSnapshot = 2

// permits bound the large requests that are being received.
type permits struct {
	clock         clock.Clock
	medium, large chan struct{}
	held          atomic.Int64 // bytes that the permits cover
}

func newPermits(c clock.Clock, medium, large int) *permits {
	return &permits{clock: c, medium: make(chan struct{}, medium), large: make(chan struct{}, large)}
}

// take waits for a permit; false when over closes or it takes too long.
func (p *permits) take(of chan struct{}, bytes int64, over <-chan struct{}) bool {
	select {
	case of <- struct{}{}:
	default:
		late, stop := p.clock.After(permitTimeout)
		defer stop()
		select {
		case of <- struct{}{}:
		case <-over:
			return false
		case <-late:
			return false
		}
	}
	p.held.Add(bytes)
	return true
}

func (p *permits) put(of chan struct{}, bytes int64) {
	p.held.Add(-bytes)
	<-of
}

// meter counts the bytes of the request that an accepted connection of a group receives. Read and Write are called by
// the one goroutine that serves the connection, close by any.
type meter struct {
	permits *permits
	// snapshots says that they are exempt.
	snapshots bool
	// admitted is asked before each request of a server that is no member: its permits are those of members once it
	// is one. It is nil of a member.
	admitted func() *permits
	over     chan struct{}

	taken    int64 // since the last answer
	snapshot bool  // the request is one to install a snapshot

	mu            sync.Mutex
	closed        bool
	medium, large bool // the permits that are held
}

func newMeter(p *permits, snapshots bool) *meter {
	return &meter{permits: p, snapshots: snapshots, over: make(chan struct{})}
}

var (
	errReceivers = errors.New("too many large requests are being received")
	errMeterDone = errors.New("the connection is closed")
)

// before admits that more is read.
func (m *meter) before() error {
	if m.snapshot || m.taken < smallMessage {
		return nil
	}
	if m.taken >= maxMessage {
		return fmt.Errorf("a request of more than %d bytes, which no entry needs", int64(maxMessage))
	}
	if err := m.hold(&m.medium, m.permits.medium, mediumMessage); err != nil {
		return err
	}
	if m.taken >= mediumMessage {
		return m.hold(&m.large, m.permits.large, maxMessage)
	}
	return nil
}

// hold takes a permit unless it is held. It blocks for permitTimeout at most.
func (m *meter) hold(held *bool, of chan struct{}, bytes int64) error {
	m.mu.Lock()
	has, closed := *held, m.closed
	m.mu.Unlock()
	if has {
		return nil
	}
	if closed || !m.permits.take(of, bytes, m.over) {
		if closed {
			return errMeterDone
		}
		return errReceivers
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		m.permits.put(of, bytes)
		return errMeterDone
	}
	*held = true
	return nil
}

// took counts what was read.
func (m *meter) took(b []byte) {
	if m.taken == 0 && len(b) > 0 {
		if m.admitted != nil {
			if p := m.admitted(); p != nil {
				m.permits, m.snapshots, m.admitted = p, true, nil // no permit is held between requests
			}
		}
		m.snapshot = m.snapshots && b[0] == rpcInstallSnapshot
	}
	m.taken += int64(len(b))
}

// answered ends a request.
func (m *meter) answered() {
	m.taken, m.snapshot = 0, false
	m.release(false)
}

// close ends the request and every wait for a permit.
func (m *meter) close() { m.release(true) }

func (m *meter) release(closes bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.medium {
		m.permits.put(m.permits.medium, mediumMessage)
	}
	if m.large {
		m.permits.put(m.permits.large, maxMessage)
	}
	m.medium, m.large = false, false
	if closes && !m.closed {
		m.closed = true
		close(m.over)
	}
}
