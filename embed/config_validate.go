package embed

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// The bounds of settings. Raft's own bounds lie inside these.
const (
	minLease            = time.Second
	maxLease            = 10 * time.Minute
	minRaftTimeout      = 5 * time.Millisecond
	maxRaftTimeout      = time.Minute
	minCommitTimeout    = time.Millisecond
	maxCommitTimeout    = 10 * time.Second
	minSnapshotInterval = 100 * time.Millisecond
	maxSnapshotInterval = 24 * time.Hour
	minGrace            = 100 * time.Millisecond
	maxGrace            = 10 * time.Minute
	minPartitions       = 3
	maxAppendEntries    = 1024
	maxNodeIDBytes      = 64
	minStoreBytes       = 1 << 20
	maxQueue            = 1 << 20
	minMemoryLimit      = 128 << 20
	maxAuditShare       = 50
	minAuditInterval    = time.Second
	maxAuditInterval    = 7 * 24 * time.Hour
)

// Validate reports every problem of the configuration in one *ConfigError, or nil. It checks values only:
// whether the data folder is writable and the ports are free shows at start. It takes zero fields literally:
// call WithDefaults first where they mean the default.
func (c Config) Validate() error {
	return problemsError(c.problems(nil))
}

// problems collects what Validate reports. skip names the settings whose text could not even be read:
// they hold a default, so no further check applies.
func (c Config) problems(skip map[string]bool) []Problem {
	found := map[string]string{}
	add := func(flag, reason string) {
		if reason != "" && found[flag] == "" && !skip[flag] {
			found[flag] = reason
		}
	}
	for i := range settings {
		if s := &settings[i]; s.check != nil {
			add(s.Flag, s.check(s.at(&c)))
		}
	}
	c.checkGroups(add)
	if !skip["insecure"] {
		c.checkReach(add)
	}
	c.checkDistinct(add)
	c.checkCluster(add, skip)
	c.checkRaftOrder(add, skip)
	if c.ResonateDebug && (c.clustered() || len(c.Join) > 0) {
		add("resonate-debug", "for a node that is alone: its promises are in the memory of one node, and no cluster can turn its clock back")
	}

	var problems []Problem
	for i := range settings {
		s := &settings[i]
		if reason := found[s.Flag]; reason != "" {
			problems = append(problems, Problem{Flag: s.Flag, Value: formatValue(s.at(&c)), Reason: reason})
		}
	}
	return problems
}

// addrFlags are the settings that are addresses to listen on.
var addrFlags = []string{"grpc-addr", "http-addr", "peer-addr", "gossip-addr"}

// checkDistinct refuses two listeners that would take each other's port.
func (c *Config) checkDistinct(add func(flag, reason string)) {
	for i, flag := range addrFlags {
		host, port, ok := splitAddr(*settingByFlag(flag).at(c).(*string))
		if !ok || port == 0 {
			continue
		}
		for _, earlier := range addrFlags[:i] {
			otherHost, otherPort, ok := splitAddr(*settingByFlag(earlier).at(c).(*string))
			if ok && port == otherPort && hostsOverlap(host, otherHost) {
				add(flag, "the port is that of --"+earlier+"; each needs one of its own")
				break
			}
		}
	}
}

// checkRaftOrder checks leader lease <= heartbeat timeout <= election timeout: a leader should have stepped down
// before the time-outs replace it. One that is replaced sooner, or later, can commit nothing and confirm no read.
func (c *Config) checkRaftOrder(add func(flag, reason string), skip map[string]bool) {
	if skip["heartbeat-timeout"] {
		return
	}
	if c.LeaderLease > c.HeartbeatTimeout {
		add("leader-lease", "at most --heartbeat-timeout "+formatValue(&c.HeartbeatTimeout)+", so that a leader cut off gives up before it is replaced")
	}
	if c.ElectionTimeout < c.HeartbeatTimeout {
		add("election-timeout", "at least --heartbeat-timeout "+formatValue(&c.HeartbeatTimeout))
	}
}

// splitAddr takes host:port apart; ok is false when it is not one.
func splitAddr(addr string) (host string, port int, ok bool) {
	host, text, err := net.SplitHostPort(addr)
	if err != nil {
		return "", 0, false
	}
	port, err = strconv.Atoi(text)
	return host, port, err == nil && port >= 0 && port <= 65535
}

// isLoopback reports whether an address certainly stays on this machine. A name other than localhost may mean
// anything, and an empty host means every interface.
func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.Unmap().IsLoopback()
}

// hostsOverlap is true when listening on both hosts at one port may fail.
func hostsOverlap(a, b string) bool {
	return a == b || isWildcard(a) || isWildcard(b) || (isLocalhost(a) && isLocalhost(b))
}

func isWildcard(host string) bool {
	if host == "" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsUnspecified()
}

func isIP(host string) bool {
	_, err := netip.ParseAddr(host)
	return err == nil
}

func isLocalhost(host string) bool {
	return host == "localhost" || host == "127.0.0.1" || host == "::1"
}

func checkAddr(value any) string {
	addr := *value.(*string)
	if _, _, ok := splitAddr(addr); ok {
		return ""
	}
	_, port, err := net.SplitHostPort(addr)
	switch {
	case err != nil && !strings.Contains(addr, ":"):
		return "not host:port; there is no port"
	case err != nil:
		return "not host:port; write an IPv6 host in brackets, as in [::1]:7400"
	default:
		return fmt.Sprintf("not host:port; the port %q is not a number from 0 to 65535", port)
	}
}

func checkNodeID(value any) string {
	id := *value.(*string)
	if id == "" || len(id) > maxNodeIDBytes {
		return fmt.Sprintf("has %d characters; 1 to %d are allowed", len(id), maxNodeIDBytes)
	}
	for _, r := range id {
		if !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", r) {
			return fmt.Sprintf("has the character %q; letters, digits, '.', '_' and '-' are allowed", r)
		}
	}
	return ""
}

func checkNotEmpty(value any) string {
	if strings.TrimSpace(*value.(*string)) == "" {
		return "must not be empty"
	}
	return ""
}

func checkPartitions(value any) string {
	n := *value.(*int)
	switch {
	case n == 0: // the default, chosen when the data is made
		return ""
	case n < minPartitions:
		return fmt.Sprintf("at least %d, so that each of three members can lead one", minPartitions)
	case n > MaxPartitions:
		return fmt.Sprintf("at most %d", MaxPartitions)
	}
	return ""
}

func oneOf(allowed ...string) func(any) string {
	return func(value any) string {
		for _, a := range allowed {
			if *value.(*string) == a {
				return ""
			}
		}
		return "unknown; one of " + strings.Join(allowed, ", ")
	}
}

func durationBetween(low, high time.Duration) func(any) string {
	return func(value any) string {
		switch d := *value.(*time.Duration); {
		case d < low:
			return "at least " + formatValue(&low)
		case d > high:
			return "at most " + formatValue(&high)
		}
		return ""
	}
}

// percentUpTo admits NoShare, and values up to most.
func percentUpTo(most Percent) func(any) string {
	return func(value any) string {
		if *value.(*Percent) > most {
			return "at most " + formatValue(&most)
		}
		return ""
	}
}

func intBetween(low, high int) func(any) string {
	return func(value any) string {
		switch n := *value.(*int); {
		case n < low:
			return "at least " + strconv.Itoa(low)
		case n > high:
			return "at most " + strconv.Itoa(high)
		}
		return ""
	}
}

func bytesAtLeast(low int64) func(any) string {
	return func(value any) string {
		if *value.(*int64) < low {
			return "at least " + formatValue(&low)
		}
		return ""
	}
}

func zeroOrBytesAtLeast(low int64) func(any) string {
	return func(value any) string {
		if *value.(*int64) == 0 {
			return ""
		}
		return bytesAtLeast(low)(value)
	}
}

func positiveCount(value any) string {
	if *value.(*uint64) < 1 {
		return "at least 1"
	}
	return ""
}
