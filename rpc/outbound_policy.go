package rpc

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"

	"perdure/api"
	perdurev1 "perdure/api/perdure/v1"
)

// Rules of an OutboundPolicy, as refusals name them.
const (
	ruleHTTPNodes    = "http_nodes"    // HTTP nodes are off
	ruleHTTPHosts    = "http_hosts"    // the host is not on the list
	ruleHTTPNetworks = "http_networks" // the address is private, or special otherwise
)

// OutboundPolicy limits the calls of graphs from a node. The zero value refuses every call.
type OutboundPolicy struct {
	// Enabled runs HTTP nodes at all.
	Enabled bool
	// Hosts are those that may be called: "host", "host:port", "*.suffix" or "*.suffix:port". An entry
	// without a port means every port. An empty list means every host.
	Hosts []string
	// Networks may be reached although their addresses are not public: private, loopback, link-local and so on.
	Networks []netip.Prefix
}

// forbiddenError names the rule of the policy that a call breaks. Repeating the call does not help.
type forbiddenError struct {
	rule string
	text string
}

// Error names the rule.
func (e *forbiddenError) Error() string { return e.rule + ": " + e.text }

// CheckHost returns the problem of an entry of Hosts, or "".
func CheckHost(entry string) string {
	host, port, err := splitHost(entry)
	switch {
	case err != nil:
		return err.Error()
	case port != "" && !isPort(port):
		return fmt.Sprintf("the port %q is not a number from 1 to 65535", port)
	case strings.TrimPrefix(host, "*.") == "":
		return "there is no host"
	case strings.ContainsAny(strings.TrimPrefix(host, "*."), "*/ "):
		return fmt.Sprintf("%q is no host; a name, an address or *.suffix is", host)
	}
	return ""
}

func isPort(text string) bool {
	n, err := strconv.ParseUint(text, 10, 16)
	return err == nil && n > 0
}

// splitHost takes host or host:port apart. An IPv6 address with a port needs brackets; without a port they
// are optional.
func splitHost(text string) (host, port string, err error) {
	if addr, err := netip.ParseAddr(strings.Trim(text, "[]")); err == nil {
		return addr.String(), "", nil
	}
	if !strings.Contains(text, ":") {
		return canonicalHost(text), "", nil
	}
	host, port, err = net.SplitHostPort(text)
	if err != nil {
		return "", "", errors.New("neither host nor host:port")
	}
	return canonicalHost(host), port, nil
}

// canonicalHost is a host as it is compared: names have no case and no dot at the end.
func canonicalHost(host string) string {
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.String()
	}
	return strings.TrimSuffix(strings.ToLower(host), ".")
}

// checkURL checks an address against Enabled and Hosts.
func (p *OutboundPolicy) checkURL(u *url.URL) *forbiddenError {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return p.checkHost(u.Hostname(), port)
}

func (p *OutboundPolicy) checkHost(host, port string) *forbiddenError {
	if !p.Enabled {
		return &forbiddenError{ruleHTTPNodes, "HTTP nodes are off on the node that leads the run's partition (--http-nodes)"}
	}
	if len(p.Hosts) == 0 {
		return nil
	}
	host = canonicalHost(host)
	for _, entry := range p.Hosts {
		allowed, onPort, err := splitHost(entry)
		if err != nil || onPort != "" && onPort != port {
			continue
		}
		if suffix, wild := strings.CutPrefix(allowed, "*"); wild && strings.HasSuffix(host, suffix) && len(host) > len(suffix) || host == allowed {
			return nil
		}
	}
	return &forbiddenError{ruleHTTPHosts, fmt.Sprintf("%s is not a host that graphs may call (--http-hosts)", short(net.JoinHostPort(host, port)))}
}

// checkRequest checks a request against the policy, before it is sent or a redirect is followed: the called
// host, and the one in its header.
func (p *OutboundPolicy) checkRequest(req *http.Request) *forbiddenError {
	if err := p.checkURL(req.URL); err != nil {
		return err
	}
	if req.Host == "" || req.Host == req.URL.Host {
		return nil
	}
	named := *req.URL
	named.Host = req.Host
	return p.checkURL(&named)
}

// control checks the address of a connection against the policy. It runs after the name was resolved, so an
// earlier resolution of the name does not matter.
func (p *OutboundPolicy) control(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return &forbiddenError{ruleHTTPNetworks, "the address cannot be read"}
	}
	if err := p.checkAddr(at.Addr()); err != nil {
		return err // not a nil *forbiddenError in an error
	}
	return nil
}

func (p *OutboundPolicy) checkAddr(addr netip.Addr) *forbiddenError {
	addr = addr.WithZone("").Unmap()
	kind := special(addr)
	if kind == "" {
		return nil
	}
	inner, translated := embeddedIPv4(addr)
	for _, n := range p.Networks {
		if n.Contains(addr) || translated && n.Contains(inner) {
			return nil
		}
	}
	return &forbiddenError{ruleHTTPNetworks, fmt.Sprintf("%s is a %s address, which graphs may not reach (--http-networks)", addr, kind)}
}

// specialNetworks are networks that are not public by the registries of special-purpose addresses (RFC 6890), in
// addition to those that package netip knows.
var specialNetworks = []struct {
	prefix netip.Prefix
	kind   string
}{
	{netip.MustParsePrefix("0.0.0.0/8"), "unspecified"},
	{netip.MustParsePrefix("100.64.0.0/10"), "carrier-grade NAT"},
	{netip.MustParsePrefix("192.0.0.0/24"), "reserved"},
	{netip.MustParsePrefix("192.0.2.0/24"), "documentation"},
	{netip.MustParsePrefix("192.88.99.0/24"), "reserved"},
	{netip.MustParsePrefix("198.18.0.0/15"), "benchmarking"},
	{netip.MustParsePrefix("198.51.100.0/24"), "documentation"},
	{netip.MustParsePrefix("203.0.113.0/24"), "documentation"},
	{netip.MustParsePrefix("240.0.0.0/4"), "reserved"},
	{netip.MustParsePrefix("::/96"), "reserved"},
	{netip.MustParsePrefix("64:ff9b:1::/48"), "local NAT64"},
	{netip.MustParsePrefix("100::/64"), "reserved"},
	{netip.MustParsePrefix("2001::/23"), "reserved"}, // Teredo among them
	{netip.MustParsePrefix("2001:db8::/32"), "documentation"},
	{netip.MustParsePrefix("3fff::/20"), "documentation"},
	{netip.MustParsePrefix("5f00::/16"), "reserved"},
	{netip.MustParsePrefix("fec0::/10"), "private"},
}

// special names the kind of an address that is not public, or returns "". addr is no IPv4 address in the form
// of an IPv6 one.
func special(addr netip.Addr) string {
	if !addr.IsValid() {
		return "unknown"
	}
	if inner, translated := embeddedIPv4(addr); translated {
		return special(inner)
	}
	switch {
	case addr.IsUnspecified():
		return "unspecified"
	case addr.IsLoopback():
		return "loopback"
	case addr.IsPrivate():
		return "private"
	case addr.IsLinkLocalUnicast():
		return "link-local"
	case addr.IsMulticast():
		return "multicast"
	}
	for _, n := range specialNetworks {
		if n.prefix.Contains(addr) {
			return n.kind
		}
	}
	return ""
}

var (
	nat64     = netip.MustParsePrefix("64:ff9b::/96")
	sixToFour = netip.MustParsePrefix("2002::/16")
)

// embeddedIPv4 is the IPv4 address that an IPv6 address leads to by translation (NAT64) or by a tunnel (6to4).
func embeddedIPv4(addr netip.Addr) (netip.Addr, bool) {
	b := addr.As16()
	switch {
	case !addr.Is6():
		return netip.Addr{}, false
	case nat64.Contains(addr):
		return netip.AddrFrom4([4]byte(b[12:16])), true
	case sixToFour.Contains(addr):
		return netip.AddrFrom4([4]byte(b[2:6])), true
	}
	return netip.Addr{}, false
}

// checkGraph refuses a graph with an HTTP node that this node could not run. Problems that show only when the
// graph's node runs (what a name resolves to, redirects) fail that node then.
func (p *OutboundPolicy) checkGraph(g *perdurev1.Graph) *api.Error {
	for _, n := range g.GetNodes() {
		if sub := n.GetSubgraph(); sub != nil {
			if err := p.checkGraph(sub); err != nil {
				return err
			}
		}
		call := n.GetHttp()
		if call == nil {
			continue
		}
		u, err := url.Parse(call.Url)
		if err != nil {
			continue // the graph's form was checked
		}
		refused := p.checkURL(u)
		if addr, err := netip.ParseAddr(u.Hostname()); err == nil && refused == nil {
			refused = p.checkAddr(addr)
		}
		if refused != nil {
			text := refused.text
			if refused.rule == ruleHTTPNodes {
				text = "HTTP nodes are off on this node (--http-nodes)"
			}
			return api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "node %q cannot be carried out: %s", n.Id, text).
				With("rule", refused.rule).With("node", n.Id)
		}
	}
	return nil
}
