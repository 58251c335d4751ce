package certs_test

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"perdure/internal/certs"
	"perdure/internal/certs/certstest"
)

// testTimeout bounds every wait, and the duration of every connection: nothing waits for it to pass.
const testTimeout = 2 * time.Minute

// place is a folder with an authority, a pair and a handle on them.
type place struct {
	dir   string
	files certs.Files
	log   bytes.Buffer
}

func newPlace(t *testing.T, ca *certstest.Authority, leaf certstest.Leaf) *place {
	t.Helper()
	p := &place{dir: t.TempDir()}
	p.files.Cert, p.files.Key = certstest.WritePair(t, p.dir, "node", ca.Issue(t, leaf))
	p.files.CA = certstest.Write(t, p.dir, "ca.crt", ca.PEM)
	return p
}

// open checks the files only on request.
func (p *place) open(t *testing.T, mutual bool) *certs.Handle {
	t.Helper()
	h, err := certs.Open(certs.Options{Files: p.files, Name: "test", Mutual: mutual, Every: time.Hour,
		Logger: slog.New(slog.NewTextHandler(&p.log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.Close)
	return h
}

// serve answers each connection with what it says, until the test ends.
func serve(t *testing.T, cfg *tls.Config) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			raw, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer raw.Close()
				_ = raw.SetDeadline(time.Now().Add(testTimeout))
				c := tls.Server(raw, cfg)
				_, _ = io.Copy(c, c)
			}()
		}
	}()
	return ln.Addr().String()
}

// dial dials as partition/transport does: a clone with the dialled host, whose address is checked after
// the handshake.
func dial(t *testing.T, addr, host string, cfg *tls.Config) (net.Conn, error) {
	t.Helper()
	cfg = cfg.Clone()
	cfg.ServerName = host
	raw, err := net.DialTimeout("tcp", addr, testTimeout)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { raw.Close() })
	_ = raw.SetDeadline(time.Now().Add(testTimeout))
	c := tls.Client(raw, cfg)
	if err := c.Handshake(); err != nil {
		return nil, err
	}
	if err := certs.VerifyPeerHost(c.ConnectionState(), host); err != nil {
		return nil, err
	}
	return c, echo(c)
}

// echo finds out whether both ends accept each other: with TLS 1.3 the accepting side verifies after the
// dialling one has finished.
func echo(c net.Conn) error {
	if _, err := c.Write([]byte("hello")); err != nil {
		return err
	}
	var b [5]byte
	_, err := io.ReadFull(c, b[:])
	return err
}

func TestPeers(t *testing.T) {
	ours, theirs := certstest.NewAuthority(t, "ours"), certstest.NewAuthority(t, "theirs")
	node := newPlace(t, ours, certstest.Leaf{}).open(t, true)
	addr := serve(t, node.PeerConfig())
	c, err := dial(t, addr, "127.0.0.1", node.PeerConfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := dial(t, addr, "localhost", node.PeerConfig()); err != nil {
		t.Error(err)
	}
	stranger := newPlace(t, theirs, certstest.Leaf{}).open(t, true)
	elsewhere := newPlace(t, ours, certstest.Leaf{Hosts: []string{"elsewhere", "127.0.0.2"}}).open(t, true)

	// A stranger that trusts us is refused by us; one that we call is refused by us as well.
	trusting := newPlace(t, theirs, certstest.Leaf{})
	certstest.Write(t, trusting.dir, "ca.crt", append(bytes.Clone(ours.PEM), theirs.PEM...))
	if _, err := dial(t, addr, "127.0.0.1", trusting.open(t, true).PeerConfig()); err == nil {
		t.Error("a node of another authority is let in")
	}
	if _, err := dial(t, serve(t, stranger.PeerConfig()), "127.0.0.1", node.PeerConfig()); !isUnknownAuthority(err) {
		t.Errorf("calling a node of another authority: %v", err)
	}
	// The right authority, another host: by address and by name.
	for _, host := range []string{"127.0.0.1", "localhost"} {
		var wrong x509.HostnameError
		if _, err := dial(t, serve(t, elsewhere.PeerConfig()), host, node.PeerConfig()); !errors.As(err, &wrong) {
			t.Errorf("a certificate for another host, called as %s: %v", host, err)
		}
	}
	// It may still call us: the address of a caller proves nothing.
	if _, err := dial(t, addr, "127.0.0.1", elsewhere.PeerConfig()); err != nil {
		t.Error(err)
	}
	// No certificate at all, and TLS 1.2.
	for name, cfg := range map[string]*tls.Config{
		"no certificate": {InsecureSkipVerify: true},
		"TLS 1.2":        {InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12, GetClientCertificate: node.PeerConfig().GetClientCertificate},
	} {
		if _, err := dial(t, addr, "127.0.0.1", cfg); err == nil {
			t.Errorf("%s: let in", name)
		}
	}
	// None of that has disturbed the first one.
	if err := echo(c); err != nil {
		t.Error(err)
	}
}

func isUnknownAuthority(err error) bool {
	var unknown x509.UnknownAuthorityError
	return errors.As(err, &unknown)
}

// An expired certificate that is in use already is refused by the others.
func TestExpiredPeer(t *testing.T) {
	ca := certstest.NewAuthority(t, "ca")
	node := newPlace(t, ca, certstest.Leaf{}).open(t, true)
	old := ca.Issue(t, certstest.Leaf{NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(-time.Minute)})
	pair, err := tls.X509KeyPair(old.Cert, old.Key)
	if err != nil {
		t.Fatal(err)
	}
	expired := &tls.Config{Certificates: []tls.Certificate{pair}, InsecureSkipVerify: true}
	if _, err := dial(t, serve(t, node.PeerConfig()), "127.0.0.1", expired); err == nil {
		t.Error("an expired certificate is let in")
	}
	var invalid x509.CertificateInvalidError
	if _, err := dial(t, serve(t, expired), "127.0.0.1", node.PeerConfig()); !errors.As(err, &invalid) || invalid.Reason != x509.Expired {
		t.Errorf("calling a node with an expired certificate: %v", err)
	}
}

// Both ends move to another authority, one file after the other, without a new configuration.
func TestPeersChangeAuthority(t *testing.T) {
	before, after := certstest.NewAuthority(t, "before"), certstest.NewAuthority(t, "after")
	pa, pb := newPlace(t, before, certstest.Leaf{}), newPlace(t, before, certstest.Leaf{})
	a, b := pa.open(t, true), pb.open(t, true)
	ca, cb := a.PeerConfig(), b.PeerConfig()
	addrA, addrB := serve(t, ca), serve(t, cb)
	meet := func(when string, ok bool) {
		t.Helper()
		for name, end := range map[string]struct {
			addr string
			cfg  *tls.Config
		}{"a calls b": {addrB, ca}, "b calls a": {addrA, cb}} {
			if _, err := dial(t, end.addr, "localhost", end.cfg); (err == nil) != ok {
				t.Errorf("%s: %s: %v", when, name, err)
			}
		}
	}
	both := append(bytes.Clone(before.PEM), after.PEM...)
	meet("at first", true)
	old, err := dial(t, addrB, "127.0.0.1", ca)
	if err != nil {
		t.Fatal(err)
	}
	certstest.Write(t, pa.dir, "ca.crt", both)
	a.Reload()
	certstest.Write(t, pb.dir, "ca.crt", both)
	b.Reload()
	meet("with both authorities", true)
	certstest.WritePair(t, pa.dir, "node", after.Issue(t, certstest.Leaf{}))
	a.Reload()
	meet("with one new certificate", true)
	certstest.Write(t, pa.dir, "ca.crt", after.PEM)
	a.Reload()
	meet("with one node that has forgotten the old authority", false)
	certstest.WritePair(t, pb.dir, "node", after.Issue(t, certstest.Leaf{}))
	certstest.Write(t, pb.dir, "ca.crt", after.PEM)
	b.Reload()
	meet("at last", true)
	if n := strings.Count(pa.log.String(), "event=certificate_reloaded"); n != 3 {
		t.Errorf("%d reloads are logged, want 3:\n%s", n, &pa.log)
	}
	if err := echo(old); err != nil {
		t.Errorf("a connection was cut by the change: %v", err)
	}
}

// A pair that cannot be used leaves the old one in use, and is reported once.
func TestBadReplacement(t *testing.T) {
	ca, other := certstest.NewAuthority(t, "ca"), certstest.NewAuthority(t, "other")
	p := newPlace(t, ca, certstest.Leaf{})
	h := p.open(t, true)
	addr := serve(t, h.PeerConfig())
	first := h.NotAfter()
	good := ca.Issue(t, certstest.Leaf{NotAfter: time.Now().Add(90 * time.Minute)})
	bad := func(what string, pair certstest.Pair) {
		t.Helper()
		p.log.Reset()
		certstest.WritePair(t, p.dir, "node", pair)
		h.Reload()
		h.Reload()
		if n := strings.Count(p.log.String(), "event=certificate_reload_failed"); n != 1 || strings.Contains(p.log.String(), "PRIVATE") {
			t.Errorf("%s: %d failures are logged, want 1:\n%s", what, n, &p.log)
		}
		if h.NotAfter() != first {
			t.Errorf("%s: taken", what)
		}
		if _, err := dial(t, addr, "127.0.0.1", h.PeerConfig()); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	bad("nothing", certstest.Pair{})
	bad("garbage", certstest.Pair{Cert: []byte("garbage"), Key: good.Key})
	bad("another's key", certstest.Pair{Cert: good.Cert, Key: ca.Issue(t, certstest.Leaf{}).Key})
	bad("expired", ca.Issue(t, certstest.Leaf{NotAfter: time.Now().Add(-time.Minute)}))
	bad("not valid yet", ca.Issue(t, certstest.Leaf{NotBefore: time.Now().Add(time.Hour)}))
	bad("another authority's", other.Issue(t, certstest.Leaf{}))
	bad("a server's only", ca.Issue(t, certstest.Leaf{Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}))
	p.log.Reset()
	certstest.WritePair(t, p.dir, "node", good)
	h.Reload()
	if h.NotAfter() == first || !strings.Contains(p.log.String(), "event=certificate_reloaded") {
		t.Errorf("a good pair is not taken:\n%s", &p.log)
	}
}

func TestOpenNamesTheFile(t *testing.T) {
	ca := certstest.NewAuthority(t, "ca")
	for name, c := range map[string]struct {
		change func(p *place)
		file   func(certs.Files) string
		says   string
	}{
		"missing": {func(p *place) { os.Remove(p.files.Key) }, func(f certs.Files) string { return f.Key }, "no such file"},
		"no CA":   {func(p *place) { certstest.Write(t, p.dir, "ca.crt", []byte("#")) }, func(f certs.Files) string { return f.CA }, "no certificate"},
		"a key for a CA": {func(p *place) { certstest.Write(t, p.dir, "ca.crt", ca.Issue(t, certstest.Leaf{}).Key) },
			func(f certs.Files) string { return f.CA }, "holds a PRIVATE KEY"},
		"a key for a certificate": {func(p *place) { certstest.Write(t, p.dir, "node.crt", ca.Issue(t, certstest.Leaf{}).Key) },
			func(f certs.Files) string { return f.Cert }, "no certificate"},
		"another's key": {func(p *place) { certstest.Write(t, p.dir, "node.key", ca.Issue(t, certstest.Leaf{}).Key) },
			func(f certs.Files) string { return f.Key }, "private key does not match"},
		"no key": {func(p *place) { certstest.Write(t, p.dir, "node.key", pem.EncodeToMemory(&pem.Block{Type: "OTHER"})) },
			func(f certs.Files) string { return f.Key }, ""},
		"expired": {func(p *place) {
			certstest.WritePair(t, p.dir, "node", ca.Issue(t, certstest.Leaf{NotAfter: time.Now().Add(-time.Minute)}))
		}, func(f certs.Files) string { return f.Cert }, "has expired on"},
		"a client's only": {func(p *place) {
			certstest.WritePair(t, p.dir, "node", ca.Issue(t, certstest.Leaf{Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}))
		}, func(f certs.Files) string { return f.Cert }, "as a server's"},
	} {
		p := newPlace(t, ca, certstest.Leaf{})
		c.change(p)
		h, err := certs.Open(certs.Options{Files: p.files, Mutual: true, Every: time.Hour})
		var at *certs.FileError
		if err == nil {
			h.Close()
			t.Errorf("%s: accepted", name)
		} else if !errors.As(err, &at) || at.Path != c.file(p.files) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want it of %s", name, err, c.file(p.files))
		}
	}
	for name, opts := range map[string]certs.Options{
		"no key":     {Files: certs.Files{Cert: "c"}},
		"mutual, no": {Files: certs.Files{Cert: "c", Key: "k"}, Mutual: true},
	} {
		if _, err := certs.Open(opts); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

// A client's port: with and without an authority for clients, over a renewal, with garbage in between.
func TestClients(t *testing.T) {
	ca, other := certstest.NewAuthority(t, "ca"), certstest.NewAuthority(t, "other")
	p := newPlace(t, ca, certstest.Leaf{})
	authority := p.files.CA
	p.files.CA = ""
	server := p.open(t, false)
	addr := serve(t, server.ServerConfig("h2"))

	client := func(files certs.Files) *certs.Handle {
		t.Helper()
		h, err := certs.Open(certs.Options{Files: files, Every: time.Hour})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(h.Close)
		return h
	}
	trusting := client(certs.Files{CA: authority})
	c, err := dial(t, addr, "127.0.0.1", trusting.ClientConfig("127.0.0.1", "h2"))
	if err != nil {
		t.Fatal(err)
	}
	if got := c.(*tls.Conn).ConnectionState(); got.NegotiatedProtocol != "h2" {
		t.Errorf("protocol %q", got.NegotiatedProtocol)
	}
	if _, err := dial(t, addr, "127.0.0.1", client(certs.Files{}).ClientConfig("127.0.0.1", "h2")); !isUnknownAuthority(err) {
		t.Errorf("by the system's authorities: %v", err)
	}
	var wrong x509.HostnameError
	if _, err := dial(t, addr, "elsewhere", trusting.ClientConfig("elsewhere", "h2")); !errors.As(err, &wrong) {
		t.Errorf("another host: %v", err)
	}
	// Garbage on the port fails its sender's connection only.
	raw, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	if _, err := raw.Write([]byte("GET / HTTP/1.1\r\n\r\n")); err != nil {
		t.Fatal(err)
	}
	_ = raw.SetReadDeadline(time.Now().Add(testTimeout))
	if _, err := io.ReadAll(raw); errors.Is(err, os.ErrDeadlineExceeded) {
		t.Error("garbage is not refused")
	}
	if err := echo(c); err != nil {
		t.Error(err)
	}

	// A renewal.
	renewed := ca.Issue(t, certstest.Leaf{NotAfter: time.Now().Add(90 * time.Minute)})
	certstest.WritePair(t, p.dir, "node", renewed)
	server.Reload()
	c, err = dial(t, addr, "127.0.0.1", trusting.ClientConfig("127.0.0.1", "h2"))
	if err != nil {
		t.Fatal(err)
	}
	if shown := c.(*tls.Conn).ConnectionState().PeerCertificates[0].NotAfter; !shown.Equal(server.NotAfter()) {
		t.Errorf("the old certificate is shown (until %s)", shown)
	}

	// Clients must show a certificate where there is an authority for them.
	p.files.CA = authority
	strict := serve(t, p.open(t, false).ServerConfig("h2"))
	if _, err := dial(t, strict, "127.0.0.1", trusting.ClientConfig("127.0.0.1", "h2")); err == nil {
		t.Error("a client without a certificate is let in")
	}
	show := func(by *certstest.Authority) *tls.Config {
		dir := t.TempDir()
		cert, key := certstest.WritePair(t, dir, "client", by.Issue(t, certstest.Leaf{Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}))
		return client(certs.Files{Cert: cert, Key: key, CA: authority}).ClientConfig("127.0.0.1", "h2")
	}
	if _, err := dial(t, strict, "127.0.0.1", show(ca)); err != nil {
		t.Error(err)
	}
	if _, err := dial(t, strict, "127.0.0.1", show(other)); err == nil {
		t.Error("a client of another authority is let in")
	}
}
