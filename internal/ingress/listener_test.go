package ingress_test

import (
	"io"
	"net"
	"testing"
	"time"

	"perdure/internal/ingress"
)

// Idle and silent connections are closed for others; those with calls under way do not.
func TestConnections(t *testing.T) {
	const most = 20
	s := serve(t, func(_ *ingress.Options, of *ingress.ListenerOptions) { of.Max, of.MaxPerAddress = most, most })
	s.hold = make(chan struct{})
	busy := make(chan error, 1)
	go func() { busy <- s.echo(s.conn, "a", 1) }()
	until(t, "a call under way", func() bool { return s.gate.Stats().Calls == 1 })
	for range 5 * most { // silent
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	for range 5 * most { // idle
		s.raw(0)
	}
	for range 5 * most { // slow
		c, err := net.Dial("tcp", s.addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := io.WriteString(c, "PRI * HT"); err != nil {
			t.Fatal(err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- s.echo(s.dial(), "b", 1) }()
	until(t, "the new call under way", func() bool { return s.gate.Stats().Calls == 2 })
	close(s.hold)
	for _, c := range []chan error{done, busy} {
		if err := <-c; err != nil {
			t.Error(err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed[ingress.RefusedEvicted] == 0 || s.closed[ingress.RefusedFull] != 0 {
		t.Errorf("closed: %v", s.closed)
	}
}

// When all connections are busy a new one is closed, and an address cannot take all of them.
func TestConnectionsFull(t *testing.T) {
	s := serve(t, func(_ *ingress.Options, of *ingress.ListenerOptions) { of.Max, of.MaxPerAddress = 3, 2 })
	for range 2 {
		s.raw(0).Begin(stream, "a")
	}
	until(t, "two calls under way", func() bool { return s.gate.Stats().Calls == 2 })
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.SetReadDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("the third connection of an address was taken")
	}
	until(t, "one connection counted as refused", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.closed[ingress.RefusedFull] == 1
	})
}

// A connection that says too little is closed in time.
func TestSilent(t *testing.T) {
	s := serve(t, func(_ *ingress.Options, of *ingress.ListenerOptions) { of.FirstTimeout = 50 * time.Millisecond })
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, "PRI * HTTP/2.0"); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(testTimeout)); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("read %d, %v", n, err)
	}
	if err := s.echo(s.conn, "a", 1); err != nil {
		t.Error(err)
	}
}
