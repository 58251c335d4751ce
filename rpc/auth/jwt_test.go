package auth

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"perdure/internal/certs/certstest"
)

func TestSignedTokens(t *testing.T) {
	ec, ed := ecKey(t, elliptic.P256()), edKey(t)
	second := ecKey(t, elliptic.P256())
	w := newWorld(t, func(o *Options) { o.JWTIssuer, o.JWTAudience = "https://id", "perdure" }, rsaKey(), ec, second, ed)
	now := w.clock()
	base := func(change func(jwt.MapClaims)) jwt.MapClaims {
		c := jwt.MapClaims{"sub": "ann", "iss": "https://id", "aud": []string{"perdure", "else"}, "exp": now.Add(time.Hour).Unix(),
			"namespace": "a", "role": "write"}
		if change != nil {
			change(c)
		}
		return c
	}
	ann := Principal{Name: "ann", Namespace: "a", Role: Write}
	for name, c := range map[string]struct {
		token string
		want  Principal
	}{
		"RS256":          {sign(t, jwt.SigningMethodRS256, rsaKey(), base(nil)), ann},
		"ES256":          {sign(t, jwt.SigningMethodES256, ec, base(nil)), ann},
		"the second key": {sign(t, jwt.SigningMethodES256, second, base(nil)), ann},
		"EdDSA":          {sign(t, jwt.SigningMethodEdDSA, ed, base(nil)), ann},
		"claims within perdure": {sign(t, jwt.SigningMethodEdDSA, ed, base(func(c jwt.MapClaims) {
			c["perdure"] = map[string]string{"namespace": "*", "role": "admin"}
			delete(c, "sub")
		})), Principal{Name: "jwt", Namespace: "*", Role: Admin}},
		"expired within the leeway": {sign(t, jwt.SigningMethodEdDSA, ed, base(func(c jwt.MapClaims) { c["exp"] = now.Add(-jwtLeeway / 2).Unix() })), ann},
	} {
		for range 2 { // the second time it is known already
			if p, d := w.authenticate(c.token); d != nil || p != c.want {
				t.Errorf("%s: %+v, %v, want %+v", name, p, d, c.want)
			}
		}
	}

	// An unsigned token, and one signed with the public key as if that were a secret.
	unsigned := sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, base(nil))
	confused := sign(t, jwt.SigningMethodHS256, publicPEM(t, rsaKey()), base(nil))
	crit := jwt.NewWithClaims(jwt.SigningMethodEdDSA, base(nil))
	crit.Header["crit"] = []string{"b64"}
	critical, err := crit.SignedString(ed)
	if err != nil {
		t.Fatal(err)
	}
	good := sign(t, jwt.SigningMethodEdDSA, ed, base(nil))
	parts := strings.Split(good, ".")
	other := strings.Split(sign(t, jwt.SigningMethodEdDSA, ed, base(func(c jwt.MapClaims) { c["role"] = "admin" })), ".")
	header := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	with := func(key string, value any) string {
		return sign(t, jwt.SigningMethodEdDSA, ed, base(func(c jwt.MapClaims) {
			if value == nil {
				delete(c, key)
			} else {
				c[key] = value
			}
		}))
	}
	for name, c := range map[string]struct{ token, reason string }{
		"unsigned":               {unsigned, reasonBadSignature},
		"none, spelt otherwise":  {header(`{"alg":"nOnE"}`) + "." + parts[1] + ".", reasonBadSignature},
		"a public key as secret": {confused, reasonBadSignature},
		"another algorithm":      {sign(t, jwt.SigningMethodRS512, rsaKey(), base(nil)), reasonBadSignature},
		"PSS":                    {sign(t, jwt.SigningMethodPS256, rsaKey(), base(nil)), reasonBadSignature},
		"an unknown key":         {sign(t, jwt.SigningMethodES256, ecKey(t, elliptic.P256()), base(nil)), reasonBadSignature},
		"claims exchanged":       {parts[0] + "." + other[1] + "." + parts[2], reasonBadSignature},
		"algorithm exchanged":    {header(`{"alg":"RS256"}`) + "." + parts[1] + "." + parts[2], reasonBadSignature},
		"unknown extensions":     {critical, reasonBadSignature},
		"no signature":           {parts[0] + "." + parts[1] + ".", reasonBadSignature},
		"not base64":             {"a.b!.c", reasonBadToken},
		"empty parts":            {"..", reasonBadToken},
		"expired":                {with("exp", now.Add(-jwtLeeway-time.Second).Unix()), reasonExpired},
		"for ever":               {with("exp", nil), reasonClaims},
		"an exp that is none":    {with("exp", "tomorrow"), reasonBadToken},
		"not yet":                {with("nbf", now.Add(time.Hour).Unix()), reasonClaims},
		"another issuer":         {with("iss", "https://else"), reasonClaims},
		"no issuer":              {with("iss", nil), reasonClaims},
		"another audience":       {with("aud", "else"), reasonClaims},
		"no audience":            {with("aud", nil), reasonClaims},
		"no namespace":           {with("namespace", nil), reasonClaims},
		"no role":                {with("role", nil), reasonClaims},
		"an unknown role":        {with("role", "root"), reasonClaims},
		"too long":               {strings.Repeat("x", maxTokenBytes+1), reasonBadToken},
		"of no kind":             {"guess", reasonUnknownToken},
		"empty perdure": {sign(t, jwt.SigningMethodEdDSA, ed, base(func(c jwt.MapClaims) {
			c["perdure"] = map[string]string{}
		})), reasonClaims},
	} {
		for range 2 {
			if p, d := w.authenticate(c.token); d == nil {
				t.Errorf("%s: let in as %+v", name, p)
			} else if d.reason != c.reason {
				t.Errorf("%s: refused for %s (%v), want %s", name, d.reason, d.err, c.reason)
			}
		}
	}

	// A verified token is still checked against the clock, and is forgotten when the keys change.
	w.pass(time.Hour - time.Minute)
	if _, d := w.authenticate(good); d != nil {
		t.Error(d.err)
	}
	w.pass(time.Minute + jwtLeeway + time.Second)
	if _, d := w.authenticate(good); d == nil || d.reason != reasonExpired {
		t.Errorf("an hour later: %v", d)
	}
	w.pass(-time.Hour)
	if _, d := w.authenticate(good); d != nil {
		t.Error(d.err)
	}
	certstest.Write(t, w.dir, "keys.pem", publicPEM(t, ec))
	w.Reload()
	if _, d := w.authenticate(good); d == nil || d.reason != reasonBadSignature {
		t.Errorf("after its key was taken away: %v", d)
	}
	if _, d := w.authenticate(sign(t, jwt.SigningMethodES256, ec, base(nil))); d != nil {
		t.Errorf("by the key that stays: %v", d.err)
	}
}

// Without issuer and audience in the settings, the claims may be anything.
func TestIssuerAndAudienceAreOptional(t *testing.T) {
	ed := edKey(t)
	w := newWorld(t, func(o *Options) { o.TokensFile = "" }, ed)
	token := sign(t, jwt.SigningMethodEdDSA, ed, jwt.MapClaims{"exp": w.clock().Add(time.Hour).Unix(), "namespace": "a", "role": "read", "iss": "x"})
	if p, d := w.authenticate(token); d != nil || p != (Principal{Name: "jwt", Namespace: "a", Role: Read}) {
		t.Errorf("%+v, %v", p, d)
	}
	if _, d := w.authenticate(readerToken); d == nil || d.reason != reasonUnknownToken {
		t.Errorf("a token of a file that is not there: %v", d)
	}
}

// The memory of verified tokens does not grow without bound.
func TestVerifiedTokensAreBounded(t *testing.T) {
	ed := edKey(t)
	w := newWorld(t, nil, ed)
	for i := range maxVerified + 10 {
		token := sign(t, jwt.SigningMethodEdDSA, ed, jwt.MapClaims{"exp": w.clock().Add(time.Hour).Unix(), "namespace": "a", "role": "read", "jti": fmt.Sprint(i)})
		if _, d := w.authenticate(token); d != nil {
			t.Fatal(d.err)
		}
	}
	if n := len(w.keys.Get().verified); n == 0 || n > maxVerified {
		t.Errorf("%d verified tokens are kept, at most %d", n, maxVerified)
	}
}

func TestKeyFiles(t *testing.T) {
	small, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(rsaKey())
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		content []byte
		says    string
	}{
		"nothing":       {nil, "holds no key"},
		"garbage":       {[]byte("ssh-rsa AAAA"), "holds no key"},
		"a private key": {pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}), "holds a private key"},
		"P-384":         {publicPEM(t, ecKey(t, elliptic.P384())), "P-256"},
		"1024 bits":     {publicPEM(t, small), "2048 at least"},
		"another block": {pem.EncodeToMemory(&pem.Block{Type: "X509 CRL"}), "X509 CRL"},
		"a broken one":  {append(publicPEM(t, rsaKey()), pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")})...), "key 2"},
	} {
		if _, err := parseKeys(c.content); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v, want %q", name, err, c.says)
		}
	}
	// A certificate is accepted in place of its key.
	pair := certstest.NewAuthority(t, "id").Issue(t, certstest.Leaf{})
	ring, err := parseKeys(pair.Cert)
	if err != nil {
		t.Fatal(err)
	}
	if keys := ring.byAlgorithm["ES256"]; len(keys) != 1 {
		t.Errorf("keys of a certificate: %v", ring.byAlgorithm)
	} else if _, ok := keys[0].(*ecdsa.PublicKey); !ok {
		t.Errorf("a key of type %T", keys[0])
	}
}
