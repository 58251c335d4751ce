package embed

import (
	"fmt"
	"net/netip"

	"perdure/rpc"
)

// checkHTTPHosts checks that each entry is a host, host:port or *.suffix.
func checkHTTPHosts(value any) string {
	for _, host := range *value.(*[]string) {
		if why := rpc.CheckHost(host); why != "" {
			return fmt.Sprintf("%q: %s", host, why)
		}
	}
	return ""
}

// checkHTTPNetworks checks that each entry is a network in CIDR form.
func checkHTTPNetworks(value any) string {
	for _, text := range *value.(*[]string) {
		if _, err := netip.ParsePrefix(text); err != nil {
			return fmt.Sprintf("%q is no network; one is written 10.1.0.0/16 or fd00::/8", text)
		}
	}
	return ""
}

// outbound is the policy of the settings about HTTP nodes.
func (c *Config) outbound() rpc.OutboundPolicy {
	p := rpc.OutboundPolicy{Enabled: c.HTTPNodes == On, Hosts: c.HTTPHosts}
	for _, text := range c.HTTPNetworks {
		if network, err := netip.ParsePrefix(text); err == nil { // checked
			p.Networks = append(p.Networks, network.Masked())
		}
	}
	return p
}
