package membership

import (
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"perdure/internal/clock"
)

// Config configures a node's gossip.
type Config struct {
	// BindAddr is host:port for TCP and UDP alike; port 0 takes a free one. A host name is resolved once,
	// at the start.
	BindAddr string
	// Advertise is the host:port at which the others reach this node, if BindAddr does not name it. Port 0 or
	// none means the bound port. Advertise is required when BindAddr is [::]; for 0.0.0.0 the default is a
	// private address of the host.
	Advertise string
	// Join are gossip addresses to try, host:port. Gossip tries them for ever in the background, so no node
	// needs to listen there yet; the node's own address may be among them. Each try resolves the names again.
	Join []string
	// Keys seal all messages: 16, 24 or 32 bytes each. The first seals, each of them opens. To rotate, append
	// the new key, then put it first, then drop the old one, each time on all nodes. Without keys gossip is
	// neither secret nor protected from attackers.
	Keys [][]byte
	// Self describes this node to the others.
	Self Member
	// Logger gets the events; nil discards them.
	Logger *slog.Logger
	// Clock is compared with the other members' clocks and paces what memberlist does not; nil is the machine's.
	Clock clock.Clock
	// Rand names this run of the node; nil is the machine's.
	Rand io.Reader
	// Timing is how quick gossip is; its zero value suits a local network.
	Timing Timing

	// drop, in tests, loses packets to an address.
	drop func(to string) bool
}

// Timing is how quick gossip is. A zero field takes its default.
type Timing struct {
	// ProbeInterval is the interval of probes, one member after the other; ProbeTimeout is how long its direct answer
	// may take before others are asked to probe it. A member that does not answer is given up about four
	// ProbeIntervals later. 1 s, 500 ms.
	ProbeInterval, ProbeTimeout time.Duration
	// GossipInterval is how often news are passed on. 200 ms.
	GossipInterval time.Duration
	// SyncInterval is how often the whole view is exchanged with one member. 10 s.
	SyncInterval time.Duration
	// DeadInterval is how long gossip is still sent to a dead member, so that it can refute its death. 30 s.
	DeadInterval time.Duration
	// StreamTimeout bounds one exchange over TCP. 5 s.
	StreamTimeout time.Duration
	// RejoinMin and RejoinMax bound the pause between tries to reach an address. 250 ms, 5 s.
	RejoinMin, RejoinMax time.Duration
}

func (t Timing) withDefaults() Timing {
	set := func(d *time.Duration, value time.Duration) {
		if *d <= 0 {
			*d = value
		}
	}
	set(&t.ProbeInterval, time.Second)
	set(&t.ProbeTimeout, 500*time.Millisecond)
	set(&t.GossipInterval, 200*time.Millisecond)
	set(&t.SyncInterval, 10*time.Second)
	set(&t.DeadInterval, 30*time.Second)
	set(&t.StreamTimeout, 5*time.Second)
	set(&t.RejoinMin, 250*time.Millisecond)
	set(&t.RejoinMax, 5*time.Second)
	return t
}

// ConfigError lists everything that is wrong with a Config.
type ConfigError struct{ Problems []string }

func (e *ConfigError) Error() string {
	return "membership: gossip cannot start: " + strings.Join(e.Problems, "; ")
}

// addresses are a Config's addresses, resolved.
type addresses struct {
	bind      netip.AddrPort
	advertise netip.AddrPort // its Addr is invalid if it follows from bind
}

// check returns the resolved addresses, or a *ConfigError.
func (c *Config) check() (addresses, error) {
	var p addresses
	var bad ConfigError
	complain := func(format string, args ...any) { bad.Problems = append(bad.Problems, fmt.Sprintf(format, args...)) }
	var err error
	if p.bind, err = resolveOne(c.BindAddr, "0.0.0.0"); err != nil {
		complain("BindAddr %q: %v", c.BindAddr, err)
	}
	if c.Advertise != "" {
		if p.advertise, err = resolveOne(c.Advertise, ""); err != nil {
			complain("Advertise %q: %v", c.Advertise, err)
		} else if p.advertise.Addr().IsUnspecified() {
			complain("Advertise %q: no node can reach that address", c.Advertise)
		}
	} else if p.bind.Addr().Is6() && p.bind.Addr().IsUnspecified() {
		complain("BindAddr %q takes all addresses, so Advertise must name the one that the others use", c.BindAddr)
	}
	for _, join := range c.Join {
		host, port, err := net.SplitHostPort(join)
		if n, perr := strconv.ParseUint(port, 10, 16); err != nil || host == "" || perr != nil || n == 0 {
			complain("Join %q is not host:port", join)
		}
	}
	for i, key := range c.Keys {
		if n := len(key); n != 16 && n != 24 && n != 32 {
			complain("Keys[%d] has %d bytes, a key has 16, 24 or 32", i, n)
		}
	}
	if err := c.Self.check(); err != nil {
		complain("Self: %v", err)
	}
	if t := c.Timing; t.ProbeTimeout > t.ProbeInterval {
		complain("ProbeTimeout %v is longer than ProbeInterval %v", t.ProbeTimeout, t.ProbeInterval)
	}
	if t := c.Timing; t.RejoinMin > t.RejoinMax {
		complain("RejoinMin %v is longer than RejoinMax %v", t.RejoinMin, t.RejoinMax)
	}
	if bad.Problems != nil {
		return addresses{}, &bad
	}
	return p, nil
}

// resolveTimeout bounds the resolution of a name.
const resolveTimeout = 5 * time.Second

// resolveOne resolves host:port, or host alone, to one address; IPv4 is preferred, for memberlist takes only one.
func resolveOne(hostport, emptyHost string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(hostport)
	if err != nil {
		host, port = strings.Trim(hostport, "[]"), "0"
	}
	if host == "" {
		host = emptyHost
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("%q is not a port", port)
	}
	ctx, cancel := context.WithTimeout(context.Background(), resolveTimeout)
	defer cancel()
	ips, err := lookup(ctx, host)
	if err != nil {
		return netip.AddrPort{}, err
	}
	for _, ip := range ips {
		if ip.Is4() {
			return netip.AddrPortFrom(ip, uint16(n)), nil
		}
	}
	return netip.AddrPortFrom(ips[0], uint16(n)), nil
}

// lookup finds the addresses of a host, at least one if there is no error.
func lookup(ctx context.Context, host string) ([]netip.Addr, error) {
	if host == "" {
		return nil, fmt.Errorf("the host is missing")
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{ip.Unmap()}, nil
	}
	ips, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	if len(ips) == 0 {
		return nil, fmt.Errorf("host %q has no address", host)
	}
	for i := range ips {
		ips[i] = ips[i].Unmap()
	}
	return ips, nil
}

// publicKey seals the gossip of clusters without a key of their own. It is no secret: it makes the seal an
// integrity check, so that noise never reaches a decoder.
func publicKey() []byte {
	sum := sha256.Sum256([]byte("perdure gossip, no key configured"))
	return sum[:]
}
