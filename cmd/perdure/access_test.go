package main

import (
	"context"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"perdure/client"
	"perdure/embed"
	"perdure/internal/certs/certstest"
	"perdure/rpc/auth"
)

func TestTokenHash(t *testing.T) {
	sh := &shell{addr: "127.0.0.1:1"}
	sh.story(t, "token",
		"token hash --new --name ci --role write", "token hash --new --name ci --json",
		"<a-token-of-my-own-making-42\n", "token hash --name operator --role admin --namespace '*'",
		"<a-token-of-my-own-making-42\n", "token hash --name operator",
		"<short\n", "token hash --name ci", "<", "token hash --name ci",
		"<two words that are long enough\n", "token hash --name ci",
		"token hash --new", "token hash --new --name ci --role root", "token hash now", "token",
	)
	// A node reads the printed row.
	row, _, code := sh.run("token", "hash", "--new", "--name", "ci")
	file := certstest.Write(t, t.TempDir(), "tokens", []byte(row))
	guard, err := auth.Open(auth.Options{TokensFile: file})
	if err != nil || code != exitDone {
		t.Fatalf("exit %d, %v", code, err)
	}
	guard.Close()
}

// secured is a real node on loopback with TLS and tokens, and the files to reach it with.
type secured struct {
	dir, addr string
}

func newSecured(t *testing.T) *secured {
	t.Helper()
	s := &secured{dir: t.TempDir()}
	ca := certstest.NewAuthority(t, "ca")
	certstest.Write(t, s.dir, "ca", ca.PEM)
	certstest.Write(t, s.dir, "other-ca", certstest.NewAuthority(t, "other").PEM)
	var rows strings.Builder
	for _, token := range []struct {
		name, namespace string
		role            auth.Role
	}{{"reader", "default", auth.Read}, {"writer", "default", auth.Write}, {"operator", "*", auth.Admin}} {
		secret := "the-token-of-" + token.name
		row, err := auth.Row(token.name, secret, token.namespace, token.role)
		if err != nil {
			t.Fatal(err)
		}
		rows.WriteString(row)
		certstest.Write(t, s.dir, token.name, []byte(secret+"\n"))
	}
	cfg := embed.Config{
		DataDir: filepath.Join(s.dir, "data"), Partitions: 3, Logger: slog.New(slog.DiscardHandler),
		DiskReserve: 1 << 20, GRPCAddr: "127.0.0.1:0", HTTPAddr: "127.0.0.1:0", PeerAddr: "127.0.0.1:0", GossipAddr: "127.0.0.1:0",
		TokensFile: certstest.Write(t, s.dir, "tokens", []byte(rows.String())),
	}
	cfg.TLSCert, cfg.TLSKey = certstest.WritePair(t, s.dir, "node", ca.Issue(t, certstest.Leaf{}))
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	node, err := embed.Start(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), deadline)
		defer cancel()
		if err := node.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	s.addr = node.GRPCAddr()
	return s
}

func (s *secured) file(name string) string { return filepath.Join(s.dir, name) }

// A node without TLS is recognized by who asks it with TLS.
func TestTLSAgainstClearText(t *testing.T) {
	t.Parallel() // it waits most of the time
	sh := &shell{addr: shop().serve(t)}
	if _, stderr, code := sh.run("list", "--tls", "--timeout", "3s"); code != exitUnavailable || !strings.Contains(stderr, "omit --tls") {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// TestSecuredCluster: a user without a role gets refusals, and a token with the role is accepted.
func TestSecuredCluster(t *testing.T) {
	t.Parallel() // it waits most of the time
	s := newSecured(t)
	start := []string{"start", "charge", "--id", "order-1", "--allow-unknown-function"}
	for _, c := range []struct {
		name string
		env  map[string]string
		args []string
		exit int
		says string // on stderr
	}{
		{"flags", nil, append([]string{"--tls-ca", s.file("ca"), "--token-file", s.file("writer")}, start...), exitDone, ""},
		{"environment", map[string]string{client.EnvTLSCA: s.file("ca"), client.EnvToken: "the-token-of-reader"}, []string{"describe", "order-1"}, exitDone, ""},
		{"a flag wins", map[string]string{client.EnvTLSCA: s.file("other-ca"), client.EnvToken: "guess"},
			[]string{"list", "--tls-ca", s.file("ca"), "--token-file", s.file("reader")}, exitDone, ""},
		{"no token", nil, []string{"list", "--tls-ca", s.file("ca")}, exitFailed, "reason: UNAUTHENTICATED"},
		{"an unknown token", map[string]string{client.EnvToken: "guess"}, []string{"list", "--tls-ca", s.file("ca")}, exitFailed, "the token is not known here"},
		{"too little", map[string]string{client.EnvTLSCA: s.file("ca"), client.EnvTokenFile: s.file("reader")}, start, exitFailed, `token "reader" may read; Start needs write`},
		{"another namespace", nil, []string{"list", "--namespace", "acme", "--tls-ca", s.file("ca"), "--token-file", s.file("writer")}, exitFailed, "reason: PERMISSION_DENIED"},
		{"everywhere", nil, []string{"list", "--namespace", "acme", "--tls-ca", s.file("ca"), "--token-file", s.file("operator")}, exitDone, ""},
		{"another authority", nil, []string{"list", "--timeout", "3s", "--tls-ca", s.file("other-ca"), "--token-file", s.file("reader")}, exitUnavailable, "unknown authority"},
		{"the system's", nil, []string{"list", "--timeout", "3s", "--tls"}, exitUnavailable, "unknown authority"},
		{"no TLS", map[string]string{client.EnvTLSCA: s.file("ca")}, []string{"list", "--timeout", "3s", "--tls=false"}, exitUnavailable, "the node may require TLS"},
		{"no such file", nil, []string{"list", "--token-file", s.file("none")}, exitUsage, "no such file"},
		{"a key alone", nil, []string{"list", "--tls-key", s.file("node.key")}, exitUsage, "without its key"},
		{"both", nil, []string{"list", "--tls=false", "--tls-ca", s.file("ca")}, exitUsage, "--tls=false"},
		{"an odd environment", map[string]string{client.EnvTLS: "perhaps"}, []string{"list"}, exitUsage, client.EnvTLS},
	} {
		t.Run(c.name, func(t *testing.T) {
			if slices.Contains(c.args, "--timeout") {
				t.Parallel() // it waits for that time
			}
			sh := &shell{addr: s.addr, env: c.env}
			_, stderr, code := sh.run(c.args...)
			if code != c.exit || !strings.Contains(stderr, c.says) || strings.Contains(stderr, "the-token-of") {
				t.Errorf("exit %d, want %d: %s", code, c.exit, stderr)
			}
		})
	}
}
