package embed

import (
	"encoding/base64"
	"errors"
	"log/slog"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"perdure/internal/certs/certstest"
	"perdure/rpc/auth"
)

// Which addresses may be reached from outside depends on what secures them.
func TestReach(t *testing.T) {
	tls := func(c *Config) { c.TLSCert, c.TLSKey = "c", "k" }
	peers := func(c *Config) { c.PeerTLSCert, c.PeerTLSKey, c.PeerTLSCA = "c", "k", "a" }
	for _, c := range []struct {
		name   string
		change func(*Config)
		want   []string
	}{
		{"nothing", func(c *Config) {}, []string{"grpc-addr", "http-addr", "peer-addr", "gossip-addr"}},
		{"tokens in the clear", func(c *Config) { c.TokensFile = "t" }, []string{"grpc-addr", "http-addr", "peer-addr", "gossip-addr"}},
		{"TLS for everybody", tls, []string{"grpc-addr", "http-addr", "peer-addr", "gossip-addr"}},
		{"TLS and tokens", func(c *Config) { tls(c); c.TokensFile = "t" }, []string{"peer-addr", "gossip-addr"}},
		{"TLS and JWT", func(c *Config) { tls(c); c.JWTKeyFile = "t" }, []string{"peer-addr", "gossip-addr"}},
		{"TLS both ways", func(c *Config) { tls(c); c.TLSClientCA = "a" }, []string{"peer-addr", "gossip-addr"}},
		{"peers", peers, []string{"grpc-addr", "http-addr", "gossip-addr"}},
		{"gossip", func(c *Config) { c.GossipKeyFile = "g" }, []string{"grpc-addr", "http-addr", "peer-addr"}},
		{"all", func(c *Config) { tls(c); peers(c); c.TokensFile, c.GossipKeyFile = "t", "g" }, nil},
		{"accepted", func(c *Config) { c.Insecure = true }, nil},
	} {
		cfg := DefaultConfig()
		cfg.GRPCAddr, cfg.HTTPAddr, cfg.PeerAddr, cfg.GossipAddr = "192.0.2.1:1", "192.0.2.1:2", "192.0.2.1:3", "192.0.2.1:4"
		c.change(&cfg)
		if got := complaints(t, cfg); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: complaints about %v, want %v", c.name, got, c.want)
		}
	}
}

func TestSettingsThatNeedOthers(t *testing.T) {
	for _, c := range []struct {
		change func(*Config)
		want   []string
	}{
		{func(c *Config) { c.TLSCert = "x" }, []string{"tls-cert"}},
		{func(c *Config) { c.TLSKey = "x" }, []string{"tls-key"}},
		{func(c *Config) { c.TLSClientCA = "x" }, []string{"tls-client-ca"}},
		{func(c *Config) { c.PeerTLSCert = "x" }, []string{"peer-tls-cert"}},
		{func(c *Config) { c.PeerTLSCert, c.PeerTLSKey = "x", "x" }, []string{"peer-tls-cert", "peer-tls-key"}},
		{func(c *Config) { c.PeerTLSCA = "x" }, []string{"peer-tls-ca"}},
		{func(c *Config) { c.JWTIssuer, c.JWTAudience = "x", "x" }, []string{"jwt-issuer", "jwt-audience"}},
	} {
		cfg := DefaultConfig()
		c.change(&cfg)
		if got := complaints(t, cfg); !reflect.DeepEqual(got, c.want) {
			t.Errorf("complaints about %v, want %v", got, c.want)
		}
	}
}

// safe is a configuration with everything on, in files of its own.
func safe(t *testing.T, dir string) Config {
	t.Helper()
	ca := certstest.NewAuthority(t, "ca")
	cfg := DefaultConfig()
	cfg.TLSCert, cfg.TLSKey = certstest.WritePair(t, dir, "clients", ca.Issue(t, certstest.Leaf{}))
	cfg.PeerTLSCert, cfg.PeerTLSKey = certstest.WritePair(t, dir, "peers", ca.Issue(t, certstest.Leaf{}))
	cfg.PeerTLSCA = certstest.Write(t, dir, "ca", ca.PEM)
	cfg.TLSClientCA = cfg.PeerTLSCA
	row, err := auth.Row("ci", "a-token-of-a-test", "*", auth.Read)
	if err != nil {
		t.Fatal(err)
	}
	cfg.TokensFile = certstest.Write(t, dir, "tokens", []byte(row))
	cfg.JWTKeyFile = certstest.Write(t, dir, "jwt", ca.Issue(t, certstest.Leaf{}).Cert)
	key := base64.StdEncoding.EncodeToString(make([]byte, 32))
	cfg.GossipKeyFile = certstest.Write(t, dir, "gossip", []byte("# the present one\n"+key+"\n\n"+key[:22]+"==\n"))
	return cfg
}

func TestSecurityFiles(t *testing.T) {
	registry := prometheus.NewRegistry()
	cfg := safe(t, t.TempDir())
	s, err := cfg.openSecurity(slog.New(slog.DiscardHandler), registry)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	if s.clients == nil || s.guard == nil || s.peerTLS() == nil || s.httpTLS() == nil || len(s.gossipKeys) != 2 || len(s.gossipKeys[0]) != 32 {
		t.Errorf("%+v", s)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]float64{}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == "perdure_certificate_expires_seconds" {
				shown[m.Label[0].GetValue()] = m.Gauge.GetValue()
			}
		}
	}
	soon := float64(time.Now().Add(2 * time.Hour).Unix())
	if len(shown) != 2 || shown["clients"] == 0 || shown["clients"] > soon || shown["peers"] == 0 || shown["peers"] > soon {
		t.Errorf("perdure_certificate_expires_seconds: %v", shown)
	}

	// Off by default.
	cfg = DefaultConfig()
	off, err := cfg.openSecurity(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	if err != nil || !reflect.DeepEqual(off, &security{}) || off.peerTLS() != nil || off.httpTLS() != nil {
		t.Errorf("by default: %+v, %v", off, err)
	}
	off.close()
}

// All problems of the files are reported at once, each under the flag that names the file.
func TestProblemsOfFiles(t *testing.T) {
	dir := t.TempDir()
	cfg := safe(t, dir)
	secret := "c2VjcmV0IHNlY3JldCBzZWNyZXQ=="
	certstest.Write(t, dir, "clients.key", []byte("?"))
	certstest.Write(t, dir, "ca", []byte("?"))
	certstest.Write(t, dir, "tokens", []byte("[]"))
	certstest.Write(t, dir, "gossip", []byte(secret))
	_, err := cfg.openSecurity(slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	var all *ConfigError
	if !errors.As(err, &all) {
		t.Fatalf("%v is no *ConfigError", err)
	}
	var flags []string
	for _, p := range all.Problems {
		flags = append(flags, p.Flag)
		if filepath.Dir(p.Value) != dir || p.Reason == "" {
			t.Errorf("%+v", p)
		}
	}
	if want := []string{"tls-client-ca", "peer-tls-ca", "tokens-file", "gossip-key-file"}; !reflect.DeepEqual(flags, want) {
		t.Errorf("complaints about %v, want %v: %v", flags, want, err)
	}
	if strings.Contains(err.Error(), secret) {
		t.Errorf("the message shows a key: %v", err)
	}
	cfg.TLSClientCA = ""
	if _, err := cfg.openSecurity(slog.New(slog.DiscardHandler), prometheus.NewRegistry()); !errors.As(err, &all) || all.Problems[0].Flag != "tls-key" {
		t.Errorf("a bad key: %v", err)
	}
	cfg.JWTKeyFile = filepath.Join(dir, "none")
	cfg.TokensFile = ""
	if _, err := cfg.openSecurity(slog.New(slog.DiscardHandler), prometheus.NewRegistry()); !errors.As(err, &all) || all.Problems[2].Flag != "jwt-key-file" ||
		all.Problems[2].Reason != "no such file or directory" {
		t.Errorf("a missing file: %v", err)
	}
}

func TestGossipKeys(t *testing.T) {
	dir := t.TempDir()
	for content, says := range map[string]string{
		"":            "holds no key",
		"# later\n":   "holds no key",
		"?":           "line 1 is not base64",
		"\nAAAA\n":    "line 2 has a key of 3 bytes",
		"AAAA BBBB\n": "line 1 is not base64",
	} {
		if _, err := readGossipKeys(certstest.Write(t, dir, "keys", []byte(content))); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, want %q", content, err, says)
		}
	}
	for _, size := range []int{16, 24, 32} {
		content := base64.StdEncoding.EncodeToString(make([]byte, size)) + "\r\n"
		if keys, err := readGossipKeys(certstest.Write(t, dir, "keys", []byte(content))); err != nil || len(keys) != 1 || len(keys[0]) != size {
			t.Errorf("%d bytes: %v, %v", size, keys, err)
		}
	}
}
