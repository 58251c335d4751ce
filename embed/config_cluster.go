package embed

import (
	"fmt"
	"strings"
)

// Members that may create a cluster together: an even number survives no more losses than one less.
const (
	minBootstrap = 3
	maxBootstrap = 7
)

// checkJoin asks for addresses that can be called.
func checkJoin(value any) string {
	for _, addr := range *value.(*[]string) {
		host, port, ok := splitAddr(addr)
		switch {
		case !ok:
			return fmt.Sprintf("%q is %s", addr, checkAddr(&addr))
		case isWildcard(host):
			return fmt.Sprintf("%q names no host", addr)
		case port == 0:
			return fmt.Sprintf("%q names no port", addr)
		}
	}
	return ""
}

func checkBootstrapExpect(value any) string {
	switch n := *value.(*int); {
	case n == 1:
		return ""
	case n < minBootstrap || n > maxBootstrap || n%2 == 0:
		return fmt.Sprintf("1, or an odd number from %d to %d: an even one survives no more losses than one less", minBootstrap, maxBootstrap)
	}
	return ""
}

// checkAdvertiseHost takes a name or an IP address, not an address with a port.
func checkAdvertiseHost(value any) string {
	host := *value.(*string)
	switch {
	case host == "":
		return ""
	case strings.HasPrefix(host, "["):
		return "an IPv6 host without brackets"
	case isWildcard(host):
		return "is every interface; name the host that others reach"
	case isIP(host):
		return ""
	case strings.ContainsAny(host, ":/ \t"):
		return "not a host; a name or an IP address, without a port"
	}
	return ""
}

// checkCluster requires an address that others reach, and addresses of others.
func (c *Config) checkCluster(add func(flag, reason string), skip map[string]bool) {
	if skip["join"] || skip["bootstrap-expect"] {
		return
	}
	if c.BootstrapExpect > 1 && len(c.Join) == 0 {
		add("join", fmt.Sprintf("at least one gossip address of the %d members that create the cluster is needed", c.BootstrapExpect))
	}
	if c.BootstrapExpect == 1 && len(c.Join) > 0 {
		// Alone it would make a cluster of its own, which is the last thing that --join asks for.
		add("bootstrap-expect", fmt.Sprintf("with --join it says how many members the cluster has, %d to %d", minBootstrap, maxBootstrap))
	}
	if (c.BootstrapExpect <= 1 && len(c.Join) == 0) || c.AdvertiseHost != "" {
		return
	}
	for _, flag := range addrFlags {
		if host, _, ok := splitAddr(*settingByFlag(flag).at(c).(*string)); ok && isWildcard(host) {
			add("advertise-host", fmt.Sprintf("needed, because --%s listens on every interface and others must know one", flag))
		}
	}
	for _, addr := range c.Join {
		// A name may mean this machine as well.
		if host, _, ok := splitAddr(addr); !ok || !isIP(host) || isWildcard(host) || isLoopback(host) {
			continue
		}
		for _, flag := range []string{"peer-addr", "gossip-addr"} {
			if host, _, ok := splitAddr(*settingByFlag(flag).at(c).(*string)); ok && isLoopback(host) {
				add(flag, fmt.Sprintf("a loopback address, which the member at %s cannot reach", addr))
			}
		}
	}
}
