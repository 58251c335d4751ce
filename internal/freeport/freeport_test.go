package freeport

import (
	"net"
	"slices"
	"testing"
)

// TestSpans: no port belongs to two packages, nor to jepsen, nor to those that the system hands out.
func TestSpans(t *testing.T) {
	all := []*Span{Bench, RPC, Embed, Partition, Transport, Membership, {first: 25000, count: 7000}}
	slices.SortFunc(all, func(a, b *Span) int { return int(a.first) - int(b.first) })
	for i, s := range all {
		end := uint32(32768)
		if i+1 < len(all) {
			end = all[i+1].first
		}
		if s.count == 0 || s.first+s.count > end {
			t.Errorf("%d to %d reaches into what begins at %d", s.first, s.first+s.count-1, end)
		}
	}
}

// TestAddr: what is taken by either protocol is passed over, and nothing is given twice in a round.
func TestAddr(t *testing.T) {
	s := span(25000-20, 20) // the end of Transport's, which walks elsewhere in its own process
	stream, err := net.Listen("tcp", s.Addr(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stream.Close() }()
	packet, err := net.ListenPacket("udp", s.Addr(t))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = packet.Close() }()
	seen := map[string]bool{stream.Addr().String(): true, packet.LocalAddr().String(): true}
	for range 10 {
		addr := s.Addr(t)
		if seen[addr] {
			t.Errorf("%s is given twice", addr)
		}
		seen[addr] = true
	}
}
