package membership

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"
)

func withKeys(keys ...byte) func(*Config) {
	return func(c *Config) {
		for _, k := range keys {
			c.Keys = append(c.Keys, bytes.Repeat([]byte{k}, 32))
		}
	}
}

func both(fs ...func(*Config)) func(*Config) {
	return func(c *Config) {
		for _, f := range fs {
			f(c)
		}
	}
}

func inCluster(id string) func(*Config) { return func(c *Config) { c.Self.ClusterID = id } }

func TestTwoClustersNeverMerge(t *testing.T) {
	t.Parallel() // it waits most of the time
	a := start(t, "a", both(calm, inCluster("one")))
	b := start(t, "b", both(calm, inCluster("one"), join(a)))
	c := start(t, "c", both(calm, inCluster("two"), join(a, b)))
	d := start(t, "d", both(calm, inCluster("two"), join(c, a)))
	fresh := start(t, "e", both(calm, inCluster(""), join(a, c)))
	for _, n := range []*node{a, b} {
		n.sees(t, "a-1", "b-1", "e-1")
	}
	for _, n := range []*node{c, d} {
		n.sees(t, "c-1", "d-1", "e-1")
	}
	fresh.sees(t, "a-1", "b-1", "c-1", "d-1", "e-1")
	for _, n := range []*node{a, c} {
		eventually(t, "the other cluster to be reported", func() (string, bool) {
			return n.log.String(), n.log.count("foreign_cluster") == 2
		})
	}
	for _, n := range []*node{a, b, c, d} {
		if k := n.list.NumMembers(); k != 3 {
			t.Errorf("%s gossips with %d nodes, want 3", n.Self().NodeID, k)
		}
	}
	// The fresh node joins one of them. The other one sees it no more, though it knew it, and it sees the other
	// one no more.
	if err := fresh.Update(func(m *Member) { m.ClusterID = "two" }); err != nil {
		t.Fatal(err)
	}
	fresh.sees(t, "c-1", "d-1", "e-1")
	a.sees(t, "a-1", "b-1")
	b.sees(t, "a-1", "b-1")
	c.sees(t, "c-1", "d-1", "e-1")
	eventually(t, "c to hear it", func() (string, bool) {
		m, _ := c.member("e-1")
		return m.ClusterID, m.ClusterID == "two"
	})
	// It stays so: its death and return concern its own cluster.
	if err := fresh.Close(); err != nil {
		t.Fatal(err)
	}
	c.sees(t, "c-1", "d-1")
	start(t, "e", both(calm, inCluster("two"), join(a, c)))
	c.sees(t, "c-1", "d-1", "e-1")
	a.sees(t, "a-1", "b-1")
	for _, n := range []*node{a, b, c, d} {
		for _, server := range []string{"a-1", "b-1", "c-1", "d-1", "e-1"} {
			if k := n.log.count("foreign_cluster", "server", server); k > 1 {
				t.Errorf("%s reported %s %d times", n.Self().NodeID, server, k)
			}
		}
		if n := n.log.count("member_failed", "cluster", "one"); n != 0 {
			t.Errorf("a member of cluster one was reported dead")
		}
	}
	if n := a.log.count("member_failed"); n != 0 {
		t.Errorf("a called a node of another cluster dead:%s", a.log)
	}
}

func TestAnotherKeyIsRefused(t *testing.T) {
	for name, keys := range map[string][2]func(*Config){
		"another key": {withKeys(1), withKeys(2)},
		"no key":      {withKeys(1), withKeys()},
		"a key alone": {withKeys(), withKeys(1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits most of the time
			a := start(t, "a", both(calm, keys[0]))
			b := start(t, "b", both(calm, keys[0], join(a)))
			a.sees(t, "a-1", "b-1")
			stranger := start(t, "s", both(keys[1], join(a, b)))
			eventually(t, "the stranger to be refused", func() (string, bool) {
				return a.log.String(), a.log.count("gossip_refused") > 0 && stranger.log.count("join_failed", "address", a.Addr()) > 2
			})
			a.sees(t, "a-1", "b-1")
			b.sees(t, "a-1", "b-1")
			stranger.sees(t, "s-1")
			if n := a.log.count("member_failed"); n != 0 {
				t.Errorf("the stranger disturbed:%s", a.log)
			}
		})
	}
}

func TestKeysRotate(t *testing.T) {
	a := start(t, "a", withKeys(1, 2))
	b := start(t, "b", both(withKeys(2, 1), join(a)))
	c := start(t, "c", both(withKeys(2, 1, 3), join(b)))
	for _, n := range []*node{a, b, c} {
		n.sees(t, "a-1", "b-1", "c-1")
	}
}

// Noise on the port, also noise that looks like ours at the beginning, is refused and disturbs no member.
func TestNoise(t *testing.T) {
	noLeaks(t)
	for name, keys := range map[string]func(*Config){"with a key": withKeys(1), "without": withKeys()} {
		t.Run(name, func(t *testing.T) {
			began := time.Now()
			a := start(t, "a", both(calm, keys))
			b := start(t, "b", both(calm, keys, join(a)))
			a.sees(t, "a-1", "b-1")
			before := a.Members()
			udp, err := net.Dial("udp", a.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer udp.Close()
			random := rand.New(rand.NewPCG(1, 2))
			for i := range 300 {
				noise := make([]byte, random.IntN(600))
				for j := range noise {
					noise[j] = byte(random.Uint32())
				}
				switch i % 4 {
				case 1: // labelled
					noise = append([]byte("\xf4\x07"+label), noise...)
				case 2: // labelled, and a message type
					noise = append([]byte("\xf4\x07"+label), append([]byte{byte(random.IntN(14))}, noise...)...)
				case 3: // labelled, and the form of a sealed stream with its length
					noise = append([]byte("\xf4\x07"+label+"\x0a\x00\x00\x00"), noise...)
				}
				if _, err := udp.Write(noise); err != nil {
					t.Fatal(err)
				}
				if i%3 != 0 {
					continue
				}
				tcp, err := net.Dial("tcp", a.Addr())
				if err != nil {
					t.Fatal(err)
				}
				_, _ = tcp.Write(noise) // it may be refused already
				_ = tcp.(*net.TCPConn).CloseWrite()
				_ = tcp.SetReadDeadline(time.Now().Add(testTimeout))
				_, _ = io.Copy(io.Discard, tcp)
				tcp.Close()
			}
			if err := b.Update(func(m *Member) { m.Epoch = 7 }); err != nil {
				t.Fatal(err)
			}
			eventually(t, "an update to pass in spite of the noise", func() (string, bool) {
				m, _ := a.member("b-1")
				return a.log.String(), m.Epoch == 7
			})
			after := a.Members()
			after[1].Epoch = before[1].Epoch
			if !reflect.DeepEqual(before, after) {
				t.Errorf("the noise changed %+v to %+v", before, after)
			}
			eventually(t, "the noise to be reported", func() (string, bool) {
				return a.log.String(), a.log.count("gossip_refused") > 0
			})
			if n := a.log.count("gossip_refused"); n > 2+int(time.Since(began)/quiet) {
				t.Errorf("the noise was reported %d times", n)
			}
			if n := a.log.count("member_failed"); n != 0 {
				t.Errorf("the noise disturbed:%s", a.log)
			}
		})
	}
}

// Streams that say nothing cannot keep others out for ever.
func TestIdleStreams(t *testing.T) {
	noLeaks(t)
	a := start(t, "a", nil)
	for range maxStreams + 10 {
		tcp, err := net.Dial("tcp", a.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer tcp.Close()
	}
	eventually(t, "too many streams to be refused", func() (string, bool) {
		a.log.mu.Lock()
		defer a.log.mu.Unlock()
		for _, e := range a.log.events {
			if e.name == "gossip_refused" && strings.Contains(e.attrs["reason"], "64 streams are open already") {
				return "", true
			}
		}
		return "no such event", false
	})
	b := start(t, "b", join(a)) // it comes in when the idle ones run into their time-out
	a.sees(t, "a-1", "b-1")
	b.sees(t, "a-1", "b-1")
}

// Silent streams do not keep others out, for any duration: a further stream replaces the oldest of the host
// that has the most.
func TestIdleStreamsGiveWay(t *testing.T) {
	noLeaks(t)
	a := start(t, "a", func(c *Config) { c.Timing.StreamTimeout = time.Hour })
	open, err := net.Dial("tcp", a.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	inbound := func() int {
		a.gate.mu.Lock()
		defer a.gate.mu.Unlock()
		return a.gate.inbound
	}
	eventually(t, "the first stream", func() (string, bool) { return fmt.Sprint(inbound()), inbound() == 1 })
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}}
	for range 3 * maxStreams {
		tcp, err := d.Dial("tcp", a.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer tcp.Close()
		if n := inbound(); n > maxStreams {
			t.Fatalf("%d streams are open", n)
		}
	}
	b := start(t, "b", join(a))
	a.sees(t, "a-1", "b-1")
	b.sees(t, "a-1", "b-1")
	_ = open.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
	var timeout net.Error
	if _, err := open.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("the other host's stream gave way: %v", err)
	}
}

// Close cuts streams of others; noLeaks would miss them for as long as their time-out is.
func TestCloseCutsStreams(t *testing.T) {
	var open []net.Conn
	t.Cleanup(func() { // after noLeaks has looked
		for _, tcp := range open {
			tcp.Close()
		}
	})
	noLeaks(t)
	a := start(t, "a", func(c *Config) { c.Timing.StreamTimeout = time.Hour })
	for range maxStreams / 2 {
		tcp, err := net.Dial("tcp", a.Addr())
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, tcp)
	}
	eventually(t, "the streams to be accepted", func() (string, bool) {
		a.gate.mu.Lock()
		defer a.gate.mu.Unlock()
		return "", a.gate.inbound == maxStreams/2
	})
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestLongStreamsAreCut(t *testing.T) {
	t.Parallel() // it waits most of the time
	server, client := net.Pipe()
	defer client.Close()
	g := &gate{open: make(map[*stream]struct{})}
	s, _, err := g.track(server, true)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		chunk := make([]byte, 1<<20)
		for {
			if _, err := client.Write(chunk); err != nil {
				return
			}
		}
	}()
	n, err := io.Copy(io.Discard, s)
	if n != maxStreamBytes || err != errStreamTooLong {
		t.Errorf("read %d bytes, then %v", n, err)
	}
	_ = s.Close()
	if g.inbound != 0 || len(g.open) != 0 {
		t.Errorf("a closed stream still counts: %d, %d", g.inbound, len(g.open))
	}
}
