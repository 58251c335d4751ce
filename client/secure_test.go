package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/internal/certs"
	"perdure/internal/certs/certstest"
)

// vault is a node with TLS on loopback that keeps what it was shown.
type vault struct {
	perdurev1.UnimplementedExecutionsServer
	addr string

	mu     sync.Mutex
	tokens []string
}

func (v *vault) Describe(ctx context.Context, r *perdurev1.DescribeRequest) (*perdurev1.DescribeResponse, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	v.mu.Lock()
	defer v.mu.Unlock()
	v.tokens = append(v.tokens, strings.Join(md.Get("authorization"), "|"))
	return &perdurev1.DescribeResponse{Execution: &perdurev1.Execution{Id: r.Id}}, nil
}

// shown is the token of the last call.
func (v *vault) shown() string {
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.tokens) == 0 {
		return "no call"
	}
	return v.tokens[len(v.tokens)-1]
}

// newVault serves with a pair in dir, which the test may replace; with clients it asks for certificates of ca.
func newVault(t *testing.T, dir string, ca *certstest.Authority, clients bool) (*vault, *certs.Handle) {
	t.Helper()
	files := certs.Files{}
	files.Cert, files.Key = certstest.WritePair(t, dir, "node", ca.Issue(t, certstest.Leaf{}))
	if clients {
		files.CA = certstest.Write(t, dir, "clients", ca.PEM)
	}
	handle, err := certs.Open(certs.Options{Files: files, Every: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(handle.Close)
	return serveVault(t, grpc.Creds(credentials.NewTLS(handle.ServerConfig("h2")))), handle
}

func serveVault(t *testing.T, opts ...grpc.ServerOption) *vault {
	t.Helper()
	v := &vault{}
	server := grpc.NewServer(opts...)
	perdurev1.RegisterExecutionsServer(server, v)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }() // until Stop
	t.Cleanup(server.Stop)
	v.addr = listener.Addr().String()
	return v
}

// ask makes one call with a client of its own.
func (v *vault) ask(t *testing.T, opts Options) error {
	t.Helper()
	return describe(v.client(t, opts))
}

func describe(c *Client) error {
	_, err := c.Describe(context.Background(), "x")
	return err
}

// refused makes calls that must fail, each a fixed number of times. The first attempt may have to wait for a
// handshake on a busy machine; the last one has its outcome.
func (v *vault) refused(t *testing.T, opts Options) error {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	opts.Timeout, opts.Clock = time.Hour, &endingClock{left: 4, end: cancel}
	_, err := v.client(t, opts).Describe(ctx, "x")
	return err
}

// endingClock lets a number of pauses pass at once, and ends the call instead of the next one.
type endingClock struct {
	mu   sync.Mutex
	left int
	end  context.CancelFunc
}

func (c *endingClock) Now() time.Time { return time.Unix(0, 0) }

func (c *endingClock) After(time.Duration) <-chan time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	ch := make(chan time.Time, 1)
	if c.left--; c.left < 0 {
		c.end()
		return ch
	}
	ch <- c.Now()
	return ch
}

func (v *vault) client(t *testing.T, opts Options) *Client {
	t.Helper()
	if opts.Addrs == nil {
		opts.Addrs = []string{v.addr}
	}
	opts.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	c, err := Dial(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func TestTLS(t *testing.T) {
	ca, other := certstest.NewAuthority(t, "ca"), certstest.NewAuthority(t, "other")
	dir := t.TempDir()
	v, _ := newVault(t, dir, ca, false)
	caFile, otherFile := certstest.Write(t, dir, "ca", ca.PEM), certstest.Write(t, dir, "other", other.PEM)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.PEM)
	_, port, err := net.SplitHostPort(v.addr)
	if err != nil {
		t.Fatal(err)
	}
	for name, opts := range map[string]Options{
		"its authority":   {TLS: &TLSOptions{CAFile: caFile}},
		"by name":         {TLS: &TLSOptions{CAFile: caFile}, Addrs: []string{"localhost:" + port}},
		"a server's name": {TLS: &TLSOptions{CAFile: caFile, ServerName: "localhost"}},
		"a configuration": {TLS: &TLSOptions{Config: &tls.Config{RootCAs: pool}}},
		"dial options":    {DialOptions: []grpc.DialOption{grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{RootCAs: pool}))}},
		"with a token":    {TLS: &TLSOptions{CAFile: caFile}, Token: "abc"},
	} {
		if err := v.ask(t, opts); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		want := ""
		if opts.Token != "" {
			want = "Bearer " + opts.Token
		}
		if got := v.shown(); got != want {
			t.Errorf("%s: shows %q, want %q", name, got, want)
		}
	}
	for name, c := range map[string]struct {
		opts Options
		says string
	}{
		"another authority":       {Options{TLS: &TLSOptions{CAFile: otherFile}}, "unknown authority"},
		"the system's":            {Options{TLS: &TLSOptions{}}, "unknown authority"},
		"another server's name":   {Options{TLS: &TLSOptions{CAFile: caFile, ServerName: "elsewhere"}}, "elsewhere"},
		"plaintext to a TLS node": {Options{}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := v.refused(t, c.opts); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), c.says) {
				t.Error(err)
			}
		})
	}
	expired := t.TempDir()
	pair := ca.Issue(t, certstest.Leaf{NotAfter: time.Now().Add(-time.Minute)})
	stale, err := tls.X509KeyPair(pair.Cert, pair.Key)
	if err != nil {
		t.Fatal(err)
	}
	old := serveVault(t, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{stale}})))
	if err := old.refused(t, Options{TLS: &TLSOptions{CAFile: caFile}}); !errors.Is(err, ErrUnavailable) || !strings.Contains(err.Error(), "expired") {
		t.Errorf("an expired certificate: %v", err)
	}
	cert, key := certstest.WritePair(t, expired, "client", pair)
	for name, opts := range map[string]Options{
		"no such file":            {TLS: &TLSOptions{CAFile: filepath.Join(dir, "none")}},
		"a key without its pair":  {TLS: &TLSOptions{KeyFile: key}},
		"an expired certificate":  {TLS: &TLSOptions{CAFile: caFile, CertFile: cert, KeyFile: key}},
		"a token and a file":      {Token: "a", TokenFile: caFile},
		"a token of two lines":    {Token: "a\nb"},
		"a file that is no token": {TokenFile: caFile},
		"no file":                 {TokenFile: filepath.Join(dir, "none")},
	} {
		if c, err := Dial(opts); err == nil {
			c.Close()
			t.Errorf("%s: accepted", name)
		} else if strings.Contains(err.Error(), "BEGIN") {
			t.Errorf("%s: the message shows the file: %v", name, err)
		}
	}
}

// A client presents its certificate, and one that replaces it; the authority that it trusts may change, too.
func TestClientCertificate(t *testing.T) {
	ca, next := certstest.NewAuthority(t, "ca"), certstest.NewAuthority(t, "next")
	dir := t.TempDir()
	v, node := newVault(t, dir, ca, true)
	files := &TLSOptions{CAFile: certstest.Write(t, dir, "ca", ca.PEM)}
	if err := v.refused(t, Options{TLS: files}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("without a certificate: %v", err)
	}
	files.CertFile, files.KeyFile = certstest.WritePair(t, dir, "client", ca.Issue(t, certstest.Leaf{Usages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}))
	c := v.client(t, Options{TLS: files})
	if err := describe(c); err != nil {
		t.Fatal(err)
	}

	// Both ends move to the next authority. The open connection continues; the next one needs the files.
	certstest.WritePair(t, dir, "node", next.Issue(t, certstest.Leaf{}))
	certstest.Write(t, dir, "clients", next.PEM)
	node.Reload()
	if err := describe(c); err != nil {
		t.Errorf("a connection was cut by the change: %v", err)
	}
	if err := v.refused(t, Options{TLS: files}); !errors.Is(err, ErrUnavailable) {
		t.Errorf("with the old files: %v", err)
	}
	fresh := v.client(t, Options{TLS: files}) // it has the old files, and no connection yet
	certstest.WritePair(t, dir, "client", next.Issue(t, certstest.Leaf{}))
	certstest.Write(t, dir, "ca", next.PEM)
	fresh.secure.certs.Reload()
	if err := describe(fresh); err != nil {
		t.Errorf("with new files: %v", err)
	}
}

func TestTokenFile(t *testing.T) {
	v := serveVault(t)
	dir := t.TempDir()
	path := certstest.Write(t, dir, "token", []byte("  one\n"))
	c := v.client(t, Options{TokenFile: path})
	for _, step := range []struct{ write, want string }{
		{"", "one"}, {"two\n", "two"}, {"\n", "two"}, {"a b", "two"}, {"three", "three"},
	} {
		if step.write != "" {
			certstest.Write(t, dir, "token", []byte(step.write))
			c.secure.file.Reload()
		}
		if err := describe(c); err != nil || v.shown() != "Bearer "+step.want {
			t.Errorf("after %q: %q, %v, want %q", step.write, v.shown(), err, step.want)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	c.secure.file.Reload()
	if err := describe(c); err != nil || v.shown() != "Bearer three" {
		t.Errorf("without its file: %q, %v", v.shown(), err)
	}
}

// A token does not leave this machine in plaintext, unless that is asked for.
func TestPlaintextToken(t *testing.T) {
	v := serveVault(t)
	elsewhere := []grpc.DialOption{grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", v.addr)
	})}
	far := []string{"passthrough:///192.0.2.1:7400"}
	err := v.ask(t, Options{Addrs: far, Token: "abc", DialOptions: elsewhere})
	if status.Code(err) != codes.Unauthenticated || v.shown() != "no call" {
		t.Errorf("to another machine: %v, shown %q", err, v.shown())
	}
	if err := v.ask(t, Options{Addrs: far, Token: "abc", DialOptions: elsewhere, PlaintextToken: true}); err != nil || v.shown() != "Bearer abc" {
		t.Errorf("as asked for: %v, shown %q", err, v.shown())
	}
	if err := v.ask(t, Options{Token: "def"}); err != nil || v.shown() != "Bearer def" {
		t.Errorf("on this machine: %v, shown %q", err, v.shown())
	}
	for addr, want := range map[string]bool{
		"127.0.0.1:1": true, "[::1]:1": true, "localhost:1": true, "unix:///run/x.sock": true, "dns:///localhost:1": true,
		"[::ffff:127.0.0.1]:1": true, "db1:1": false, "192.0.2.1:1": false, "0.0.0.0:1": false, "dns:///db1:1": false, "localhost.example:1": false, "x": false,
	} {
		if got := onThisMachine(addr); got != want {
			t.Errorf("onThisMachine(%q) = %v", addr, got)
		}
	}
}

func TestOptionsFromEnv(t *testing.T) {
	from := func(vars map[string]string) (Options, error) {
		return OptionsFromEnv(func(name string) (string, bool) { value, ok := vars[name]; return value, ok })
	}
	for _, c := range []struct {
		vars map[string]string
		want Options
	}{
		{nil, Options{}},
		{map[string]string{EnvAddr: "", EnvTLS: " "}, Options{}},
		{map[string]string{EnvAddr: "a:1, b:2,", EnvNamespace: "acme", EnvToken: "t"}, Options{Addrs: []string{"a:1", "b:2"}, Namespace: "acme", Token: "t"}},
		{map[string]string{EnvTLS: "true", EnvTokenFile: "f"}, Options{TLS: &TLSOptions{}, TokenFile: "f"}},
		{map[string]string{EnvTLS: "false"}, Options{}},
		{map[string]string{EnvTLSCA: "ca"}, Options{TLS: &TLSOptions{CAFile: "ca"}}},
		{map[string]string{EnvTLS: "1", EnvTLSClientCert: "c", EnvTLSClientKey: "k"}, Options{TLS: &TLSOptions{CertFile: "c", KeyFile: "k"}}},
	} {
		if got, err := from(c.vars); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%v: %+v, %v", c.vars, got, err)
		}
	}
	for _, vars := range []map[string]string{{EnvTLS: "perhaps"}, {EnvTLS: "false", EnvTLSCA: "ca"}} {
		if _, err := from(vars); err == nil {
			t.Errorf("%v: accepted", vars)
		}
	}
}
