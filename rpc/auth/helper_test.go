package auth

import (
	"bytes"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/prometheus/client_golang/prometheus"

	"perdure/internal/certs/certstest"
)

// testTimeout bounds every wait of these tests; no test waits for it to pass.
const testTimeout = time.Minute

// Tokens of the tests, and the file that knows them.
const (
	readerToken   = "reader-token-of-namespace-a"
	writerToken   = "writer-token-of-namespace-a"
	otherToken    = "writer-token-of-namespace-b"
	adminToken    = "admin-token-of-namespace-a"
	operatorToken = "operator-token-of-all"
)

func tokensFile(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	for _, row := range []struct {
		name, token, namespace string
		role                   Role
	}{
		{"reader", readerToken, "a", Read}, {"writer", writerToken, "a", Write}, {"other", otherToken, "b", Write},
		{"admin", adminToken, "a", Admin}, {"operator", operatorToken, AllNamespaces, Admin},
	} {
		text, err := Row(row.name, row.token, row.namespace, row.role)
		if err != nil {
			t.Fatal(err)
		}
		b.WriteString(text)
	}
	return b.String()
}

// world is a guard on files that the test may change, with a clock it moves.
type world struct {
	*Guard
	dir      string
	registry *prometheus.Registry

	mu  sync.Mutex
	now time.Time
	log bytes.Buffer
}

func (w *world) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.Write(p)
}

func (w *world) logged() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.log.String()
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.now = w.now.Add(d)
}

func (w *world) clock() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.now
}

// newWorld opens a guard that reads its files on demand. keys, if there are any, sign JWTs.
func newWorld(t testing.TB, change func(*Options), keys ...crypto.Signer) *world {
	t.Helper()
	w := &world{dir: t.TempDir(), registry: prometheus.NewRegistry(), now: time.Now()}
	opts := Options{TokensFile: certstest.Write(t, w.dir, "tokens.yaml", []byte(tokensFile(t))), Every: time.Hour, Now: w.clock,
		Logger: slog.New(slog.NewTextHandler(w, nil)), Registerer: w.registry}
	if len(keys) > 0 {
		opts.JWTKeyFile = certstest.Write(t, w.dir, "keys.pem", publicPEM(t, keys...))
	}
	if change != nil {
		change(&opts)
	}
	g, err := Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	w.Guard = g
	return w
}

// refused is the counter of a reason.
func (w *world) refused(t testing.TB, reason string) float64 {
	t.Helper()
	families, err := w.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.Metric {
			if f.GetName() == "perdure_auth_refused_total" && m.Label[0].GetValue() == reason {
				return m.Counter.GetValue()
			}
		}
	}
	t.Fatalf("there is no perdure_auth_refused_total{reason=%q}", reason)
	return 0
}

func publicPEM(t testing.TB, keys ...crypto.Signer) []byte {
	t.Helper()
	var out []byte
	for _, key := range keys {
		der, err := x509.MarshalPKIXPublicKey(key.Public())
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})...)
	}
	return out
}

var rsaKey = sync.OnceValue(func() *rsa.PrivateKey {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return key
})

func ecKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func edKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t testing.TB, method jwt.SigningMethod, key any, c jwt.MapClaims) string {
	t.Helper()
	token, err := jwt.NewWithClaims(method, c).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return token
}
