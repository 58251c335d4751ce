package auth

import (
	"encoding/json"
	"strings"

	"github.com/golang-jwt/jwt/v5"
)

// ResonateCaller finds the holder of a token of the Resonate protocol: an admin, or one who may name the ids that begin
// with prefix (nil: none). A signed token has the claims role and prefix. Any other token that this node knows is good
// for all ids if it may write in namespace.
//
// The error is an *api.Error, UNAUTHENTICATED. It never holds the token.
func (g *Guard) ResonateCaller(token, namespace, from string) (admin bool, prefix *string, err error) {
	admin, prefix, d := g.resonateCaller(token, namespace)
	if d != nil {
		g.refusals.note(d, from, "resonate")
		return false, nil, d.err
	}
	return admin, prefix, nil
}

// resonateClaims are the claims of a token that was signed for Resonate's servers. A claim of another type is as if
// absent.
type resonateClaims struct {
	jwt.RegisteredClaims
	Role   json.RawMessage `json:"role"`
	Prefix json.RawMessage `json:"prefix"`
}

func (g *Guard) resonateCaller(token, namespace string) (admin bool, prefix *string, d *denial) {
	if token == "" {
		return false, nil, unauthenticated(reasonNoToken, "a token is required")
	}
	p, d := g.authenticate(token)
	here := d == nil && (p.Namespace == AllNamespaces || p.Namespace == namespace)
	if here && p.Role >= Admin {
		return true, nil, nil
	}
	if g.keys != nil && looksSigned(token) && len(token) <= maxTokenBytes {
		c, unsigned := g.keys.Get().resonate(token, &g.opts)
		var role string
		switch {
		case unsigned != nil && d != nil:
			return false, nil, unsigned
		case unsigned != nil: // a token of the file that looks signed
		case d != nil && json.Unmarshal(c.Role, &role) == nil && strings.EqualFold(role, Admin.String()):
			return true, nil, nil // it names no namespace: it was signed for Resonate
		case len(c.Prefix) > 0 || d != nil:
			_ = json.Unmarshal(c.Prefix, &prefix) // a claim that is no string leaves nil
			return false, prefix, nil
		}
	}
	if here && p.Role >= Write {
		prefix = new(string)
	}
	return false, prefix, d
}

// resonate checks a token's signature and standard claims, and returns those of Resonate.
func (k *keyring) resonate(token string, opts *Options) (c resonateClaims, d *denial) {
	parser := jwt.NewParser(append(validation(opts), jwt.WithValidMethods(algorithms), jwt.WithStrictDecoding())...)
	if _, err := parser.ParseWithClaims(token, &c, k.keysFor); err != nil {
		return c, unverified(err)
	}
	return c, nil
}
