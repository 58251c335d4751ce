package cluster

import (
	"net"
	"runtime"
	"testing"
)

// Tests draw from ports below those of benchmarks that run meanwhile.
const (
	testPort  = firstPort - testPorts
	testPorts = 60
)

// TestReserve: a reserved port can be listened on repeatedly, and no other reservation gets it.
func TestReserve(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no other system reserves ports")
	}
	const most = testPorts / 3
	mine, err := reserve(most, testPort, testPorts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := mine.Close(); err != nil {
			t.Error(err)
		}
	}()
	theirs, err := reserve(most, testPort, testPorts)
	if err != nil {
		t.Fatal(err)
	}
	given := map[string]bool{}
	for _, addr := range append(mine.Addrs, theirs.Addrs...) {
		if given[addr] {
			t.Errorf("%s is given twice", addr)
		}
		given[addr] = true
	}
	if err := theirs.Close(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		for _, addr := range mine.Addrs[:10] {
			stream, err := net.Listen("tcp", addr)
			if err != nil {
				t.Fatal(err)
			}
			packet, err := net.ListenPacket("udp", addr)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = stream.Close(), packet.Close()
		}
	}
	if p, err := reserve(testPorts-most+1, testPort, testPorts); err == nil {
		t.Errorf("%d more ports are free, with %d of %d in use", len(p.Addrs), most, testPorts)
		_ = p.Close()
	}
}

// TestReserveNone: a port that somebody listens on, by TCP or UDP, is passed over.
func TestReserveNone(t *testing.T) {
	p, err := reserve(2, testPort, testPorts)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	stream, err := net.Listen("tcp", p.Addrs[0])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	packet, err := net.ListenPacket("udp", p.Addrs[1])
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = packet.Close() }()
	if all, err := reserve(testPorts-1, testPort, testPorts); err == nil {
		t.Errorf("%d of %d are free, with two in use", len(all.Addrs), testPorts)
		_ = all.Close()
	}
}
