package rpc

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"

	perdurev1 "perdure/api/perdure/v1"
)

// loopback is the policy of tests whose services run here.
var loopback = OutboundPolicy{Enabled: true, Networks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}}

// callWith makes one call under a policy.
func callWith(t *testing.T, p OutboundPolicy, in outboundRequest) ([]byte, *perdurev1.Failure) {
	t.Helper()
	client := newOutboundClient(&p)
	defer client.CloseIdleConnections()
	input, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	return callService(t.Context(), client, &p, "perdure/test", input)
}

// forbidden makes a call that a rule must refuse, for good.
func forbidden(t *testing.T, p OutboundPolicy, in outboundRequest, rule string) {
	t.Helper()
	result, f := callWith(t, p, in)
	if f.GetType() != failureForbidden || !f.GetNonRetryable() || !strings.HasPrefix(f.GetMessage(), rule+": ") {
		t.Errorf("%s: result %.100q, failure %v; want one for good that names %s", in.URL, result, f, rule)
	}
}

// TestSpecialAddresses lists what is not public.
func TestSpecialAddresses(t *testing.T) {
	public := &OutboundPolicy{Enabled: true}
	for _, addr := range []string{
		"127.0.0.1", "127.255.1.2", "::1", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1", "169.254.169.254", "fe80::1", "fe80::1%eth0",
		"fd00:ec2::254", "fc00::1", "fec0::1", "224.0.0.1", "239.1.1.1", "ff02::1", "0.0.0.0", "0.1.2.3", "::", "100.64.0.1", "100.127.255.255",
		"255.255.255.255", "240.0.0.1", "192.0.0.8", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "2001:db8::1", "2001::1",
		"::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::a9fe:a9fe", "64:ff9b::10.0.0.1",
		"64:ff9b:1::1", "2002:7f00:1::", "2002:a9fe:a9fe::1", "100::1",
	} {
		a := netip.MustParseAddr(addr)
		if err := public.control("tcp", netip.AddrPortFrom(a, 80).String(), nil); err == nil {
			t.Errorf("%s may be reached", addr)
		}
	}
	for _, addr := range []string{"1.1.1.1", "8.8.8.8", "172.32.0.1", "100.128.0.1", "192.169.0.1", "2606:4700::1111", "::ffff:1.1.1.1", "64:ff9b::1.1.1.1", "2002:101:101::1"} {
		if err := public.checkAddr(netip.MustParseAddr(addr)); err != nil {
			t.Errorf("%s may not be reached: %v", addr, err)
		}
	}
	some := &OutboundPolicy{Enabled: true, Networks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/64")}}
	for addr, allowed := range map[string]bool{"10.1.2.3": true, "::ffff:10.1.2.3": true, "64:ff9b::10.1.2.3": true, "fd00::1": true, "10.2.0.1": false, "fd01::1": false} {
		if err := some.checkAddr(netip.MustParseAddr(addr)); (err == nil) != allowed {
			t.Errorf("%s: %v", addr, err)
		}
	}
}

// TestHostList compares hosts with the list.
func TestHostList(t *testing.T) {
	p := &OutboundPolicy{Enabled: true, Hosts: []string{"api.example.com", "*.internal.example", "pay.example:8443", "1.1.1.1", "[2606:4700::1]:443", "*.ports.example:81"}}
	for address, allowed := range map[string]bool{
		"http://api.example.com/x": true, "https://API.Example.Com.:9000/": true, "http://evil.api.example.com/": false, "http://api.example.com.evil/": false,
		"http://a.internal.example/": true, "http://a.b.internal.example:1/": true, "http://internal.example/": false, "http://xinternal.example/": false,
		"https://pay.example:8443/": true, "https://pay.example/": false, "http://1.1.1.1/": true, "http://1.0.0.1/": false,
		"https://[2606:4700::1]/": true, "http://[2606:4700::1]/": false, "http://a.ports.example:81/": true, "http://a.ports.example/": false,
		"http://user@api.example.com/": true, "http://api.example.com@evil.example/": false,
	} {
		u, err := url.Parse(address)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.checkURL(u); (err == nil) != allowed {
			t.Errorf("%s: %v", address, err)
		}
	}
	for entry, good := range map[string]bool{"a": true, "a:80": true, "*.a": true, "*.a:80": true, "::1": true, "[::1]:80": true, "": false, "*": false, "*.": false,
		"a:0": false, "a:x": false, "a.*": false, "http://a": false, "a/b": false, "a:1:2": false} {
		if why := CheckHost(entry); (why == "") != good {
			t.Errorf("%q: %q", entry, why)
		}
	}
}

// TestOutboundPolicy makes real calls: to addresses, to names that lead to them, and over redirects.
func TestOutboundPolicy(t *testing.T) {
	var hits int
	s := serve(t, func(w http.ResponseWriter, r *http.Request) {
		hits++
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusFound)
			return
		}
		_, _ = io.WriteString(w, `"here"`)
	})
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	public := OutboundPolicy{Enabled: true}
	get := func(address string) outboundRequest { return outboundRequest{URL: address, Method: "GET"} }
	forbidden(t, OutboundPolicy{}, get(s.URL), ruleHTTPNodes)
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "127.1.2.3"} {
		forbidden(t, public, get("http://"+net.JoinHostPort(strings.Trim(host, "[]"), port)), ruleHTTPNetworks)
	}
	forbidden(t, public, get("http://169.254.169.254/latest/meta-data/"), ruleHTTPNetworks)
	if hits != 0 {
		t.Fatalf("a forbidden call has reached the service %d times", hits)
	}

	if result, f := callWith(t, loopback, get(s.URL)); f != nil || string(result) != `"here"` {
		t.Errorf("an allowed call: %q, %v", result, f)
	}
	listed := loopback
	listed.Hosts = []string{"127.0.0.1:" + port, "localhost"}
	if result, f := callWith(t, listed, get(s.URL+"?to="+url.QueryEscape("http://localhost:"+port))); f != nil || string(result) != `"here"` {
		t.Errorf("an allowed redirect: %q, %v", result, f)
	}
	forbidden(t, listed, get("http://127.0.0.2:"+port), ruleHTTPHosts)
	other := get(s.URL)
	other.Headers = map[string]string{"Host": "metadata.internal"}
	forbidden(t, listed, other, ruleHTTPHosts)

	// Redirects.
	elsewhere := serve(t, func(w http.ResponseWriter, r *http.Request) { hits = -1 })
	hits = 0
	forbidden(t, listed, get(s.URL+"?to="+url.QueryEscape(elsewhere.URL)), ruleHTTPHosts)
	forbidden(t, loopback, get(s.URL+"?to="+url.QueryEscape("http://169.254.169.254/")), ruleHTTPNetworks)
	forbidden(t, loopback, get(s.URL+"?to="+url.QueryEscape("http://[fd00:ec2::254]/")), ruleHTTPNetworks)
	if hits != 3 {
		t.Errorf("%d calls, or a redirect has reached where it must not", hits)
	}
	if _, f := callWith(t, loopback, get(s.URL+"?to="+url.QueryEscape("file:///etc/passwd"))); f.GetType() != failureRedirects {
		t.Errorf("a redirect to a file: %v", f)
	}
}

// TestOutboundIgnoresProxies has the environment name a proxy: calls do not go there.
func TestOutboundIgnoresProxies(t *testing.T) {
	proxy := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a call went over the proxy") }))
	defer proxy.Close()
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy"} {
		t.Setenv(name, proxy.URL)
	}
	if proxies := newOutboundClient(&OutboundPolicy{Enabled: true}).Transport.(*http.Transport).Proxy; proxies != nil {
		t.Error("calls ask for a proxy") // net/http reads the environment once, so a call alone would not show it
	}
	forbidden(t, OutboundPolicy{Enabled: true}, outboundRequest{URL: "http://10.255.255.1/", Method: "GET"}, ruleHTTPNetworks)
}

// TestGraphsUnderPolicy refuses graphs whose HTTP nodes cannot run.
func TestGraphsUnderPolicy(t *testing.T) {
	node := func(address string) *perdurev1.Graph {
		inner := &perdurev1.GraphNode{Id: "call", Kind: &perdurev1.GraphNode_Http{Http: &perdurev1.HttpNode{Url: address}}}
		return &perdurev1.Graph{Nodes: []*perdurev1.GraphNode{{Id: "outer", Kind: &perdurev1.GraphNode_Subgraph{Subgraph: &perdurev1.Graph{Nodes: []*perdurev1.GraphNode{inner}}}}}}
	}
	for _, c := range []struct {
		policy  OutboundPolicy
		address string
		rule    string
	}{
		{OutboundPolicy{}, "https://api.example.com/", ruleHTTPNodes},
		{OutboundPolicy{Enabled: true, Hosts: []string{"b"}}, "https://a/", ruleHTTPHosts},
		{OutboundPolicy{Enabled: true}, "http://169.254.169.254/", ruleHTTPNetworks},
		{OutboundPolicy{Enabled: true}, "https://api.example.com/", ""},
		{loopback, "http://127.0.0.1/", ""},
	} {
		err := c.policy.checkGraph(node(c.address))
		switch {
		case c.rule == "" && err != nil:
			t.Errorf("%s: %v", c.address, err)
		case c.rule != "" && (err == nil || err.Meta["rule"] != c.rule || err.Meta["node"] != "call"):
			t.Errorf("%s: %v, want %s", c.address, err, c.rule)
		}
	}
	if err := (&OutboundPolicy{}).checkGraph(&perdurev1.Graph{Nodes: []*perdurev1.GraphNode{{Id: "f", Kind: &perdurev1.GraphNode_Function{}}}}); err != nil {
		t.Errorf("a graph without HTTP nodes: %v", err)
	}
}
