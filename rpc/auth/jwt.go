package auth

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

const (
	// jwtLeeway is the allowed clock difference between this node and the issuer.
	jwtLeeway = 30 * time.Second
	// minRSABits is the least a key must have.
	minRSABits = 2048
	// maxVerified bounds how many verified tokens are remembered.
	maxVerified = 1024
)

// algorithms are those that are accepted. Each takes keys of its own kind only, so a token cannot have a
// public key taken for a secret.
var algorithms = []string{"RS256", "ES256", "EdDSA"}

// keyring holds the keys of the file, and the tokens they have verified: checking a signature costs
// more than the rest of most calls.
type keyring struct {
	byAlgorithm map[string][]jwt.VerificationKey

	mu       sync.Mutex
	verified map[[sha256.Size]byte]verifiedToken
}

type verifiedToken struct {
	principal Principal
	claims    jwt.RegisteredClaims
}

// claims are those that are read: the standard ones, and namespace and role either at the top or, where
// that would clash with others' claims, within "perdure".
type claims struct {
	jwt.RegisteredClaims
	grant
	Perdure *grant `json:"perdure"`
}

type grant struct {
	Namespace string `json:"namespace"`
	Role      string `json:"role"`
}

// looksSigned reports whether a token is a JWT.
func looksSigned(token string) bool { return strings.Count(token, ".") == 2 }

// parseKeys reads public keys and certificates.
func parseKeys(content []byte) (*keyring, error) {
	ring := &keyring{byAlgorithm: map[string][]jwt.VerificationKey{}, verified: map[[sha256.Size]byte]verifiedToken{}}
	n := 0
	for rest := content; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		n++
		key, err := publicKey(block)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", n, err)
		}
		algorithm, err := algorithmOf(key)
		if err != nil {
			return nil, fmt.Errorf("key %d: %w", n, err)
		}
		ring.byAlgorithm[algorithm] = append(ring.byAlgorithm[algorithm], key)
	}
	if n == 0 {
		return nil, errors.New("holds no key in PEM form")
	}
	return ring, nil
}

func publicKey(block *pem.Block) (any, error) {
	switch block.Type {
	case "PUBLIC KEY":
		return x509.ParsePKIXPublicKey(block.Bytes)
	case "RSA PUBLIC KEY":
		return x509.ParsePKCS1PublicKey(block.Bytes)
	case "CERTIFICATE":
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		return cert.PublicKey, nil
	}
	if strings.Contains(block.Type, "PRIVATE") {
		return nil, errors.New("holds a private key; a node needs the public key")
	}
	return nil, fmt.Errorf("a PEM block of type %.40q; PUBLIC KEY or CERTIFICATE is expected", block.Type)
}

func algorithmOf(key any) (string, error) {
	switch key := key.(type) {
	case *rsa.PublicKey:
		if bits := key.N.BitLen(); bits < minRSABits {
			return "", fmt.Errorf("an RSA key of %d bits; %d at least", bits, minRSABits)
		}
		return "RS256", nil
	case *ecdsa.PublicKey:
		if key.Curve != elliptic.P256() {
			return "", fmt.Errorf("a key on curve %s; P-256 is the one of ES256", key.Curve.Params().Name)
		}
		return "ES256", nil
	case ed25519.PublicKey:
		return "EdDSA", nil
	}
	return "", fmt.Errorf("key of type %T is not RSA, P-256 or Ed25519", key)
}

// verify checks a token's signature and claims. It drops the library's errors: they may quote the token.
func (k *keyring) verify(token string, sum [sha256.Size]byte, opts *Options) (Principal, *denial) {
	validator := jwt.NewValidator(validation(opts)...)
	k.mu.Lock()
	known, ok := k.verified[sum]
	k.mu.Unlock()
	if ok {
		if err := validator.Validate(known.claims); err != nil {
			return Principal{}, unverified(err)
		}
		return known.principal, nil
	}
	var c claims
	parser := jwt.NewParser(append(validation(opts), jwt.WithValidMethods(algorithms), jwt.WithStrictDecoding())...)
	if _, err := parser.ParseWithClaims(token, &c, k.keysFor); err != nil {
		return Principal{}, unverified(err)
	}
	p, err := c.principal()
	if err != nil {
		return Principal{}, unauthenticated(reasonClaims, "the token is signed, but %v", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.verified) >= maxVerified {
		clear(k.verified)
	}
	k.verified[sum] = verifiedToken{p, c.RegisteredClaims}
	return p, nil
}

// validation are the checks of the standard claims.
func validation(opts *Options) []jwt.ParserOption {
	options := []jwt.ParserOption{jwt.WithExpirationRequired(), jwt.WithLeeway(jwtLeeway), jwt.WithTimeFunc(opts.Now)}
	if opts.JWTIssuer != "" {
		options = append(options, jwt.WithIssuer(opts.JWTIssuer))
	}
	if opts.JWTAudience != "" {
		options = append(options, jwt.WithAudience(opts.JWTAudience))
	}
	return options
}

// keysFor are the keys that a token's algorithm may use.
func (k *keyring) keysFor(token *jwt.Token) (any, error) {
	if _, demands := token.Header["crit"]; demands {
		return nil, errors.New("the token demands extensions, and this node knows none")
	}
	return jwt.VerificationKeySet{Keys: k.byAlgorithm[token.Method.Alg()]}, nil
}

// unverified describes a token's problem without quoting the token.
func unverified(err error) *denial {
	switch {
	case errors.Is(err, jwt.ErrTokenExpired):
		return unauthenticated(reasonExpired, "the token has expired")
	case errors.Is(err, jwt.ErrTokenRequiredClaimMissing):
		return unauthenticated(reasonClaims, "the token lacks a claim that is needed here: exp, and iss and aud where they are asked for")
	case errors.Is(err, jwt.ErrTokenNotValidYet):
		return unauthenticated(reasonClaims, "the token is not valid yet")
	case errors.Is(err, jwt.ErrTokenInvalidIssuer):
		return unauthenticated(reasonClaims, "the token is from another issuer")
	case errors.Is(err, jwt.ErrTokenInvalidAudience):
		return unauthenticated(reasonClaims, "the token is for another audience")
	case errors.Is(err, jwt.ErrTokenMalformed):
		return unauthenticated(reasonBadToken, "the token is malformed")
	case errors.Is(err, jwt.ErrTokenInvalidClaims):
		return unauthenticated(reasonClaims, "the token's claims do not hold here")
	}
	return unauthenticated(reasonBadSignature, "the token is not signed by a key that is known here")
}

// principal is the holder that the claims describe.
func (c *claims) principal() (Principal, error) {
	g := c.grant
	if c.Perdure != nil {
		g = *c.Perdure
	}
	if g.Namespace == "" || len(g.Namespace) > 256 {
		return Principal{}, errors.New("its claim namespace does not have 1 to 256 bytes")
	}
	role, err := ParseRole(g.Role)
	if err != nil {
		return Principal{}, errors.New("its claim role is none of read, write, admin")
	}
	name := shorten(c.Subject)
	if name == "" {
		name = "jwt"
	}
	return Principal{Name: name, Namespace: g.Namespace, Role: role}, nil
}
