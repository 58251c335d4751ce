// Package auth decides who may call what: bearer tokens, from a file of hashes or signed by an identity
// provider (JWT), each with a role in one namespace or in all.
//
// It owns the table of methods and the roles they need, and the texts of refusals. A method missing from the
// table is refused. A token is never logged or shown. Removing a token from the file ends its streams too. It
// keeps counters only; a crash loses nothing.
//
// # Roles
//
// A role includes those below it: read sees, write starts, signals, cancels and works, admin operates the
// cluster. Methods that concern all namespaces (cluster operations, profiles of the process) need admin in
// namespace "*".
//
// # Order
//
// tokens.go reads the file, jwt.go checks signatures, methods.go is the table, grpc.go and http.go guard the
// ports, refusal.go logs and counts.
package auth

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"perdure/internal/certs/reload"
)

// AllNamespaces is the namespace of a token that is good in every one.
const AllNamespaces = "*"

// maxTokenBytes bounds a token; a longer one is refused unread.
const maxTokenBytes = 16 << 10

// Role is the rights of a token. A higher role includes the lower ones.
type Role int

// The roles.
const (
	Read  Role = 1
	Write Role = 2
	Admin Role = 3
)

var roleNames = map[Role]string{Read: "read", Write: "write", Admin: "admin"}

// String is the role as files and claims have it.
func (r Role) String() string {
	if name, ok := roleNames[r]; ok {
		return name
	}
	return fmt.Sprintf("role %d", int(r))
}

// ParseRole reads "read", "write" or "admin".
func ParseRole(text string) (Role, error) {
	for role, name := range roleNames {
		if text == name {
			return role, nil
		}
	}
	return 0, fmt.Errorf("the role %.20q is none of read, write, admin", text)
}

// Principal is the holder of a token.
type Principal struct {
	// Name is the token's name in the file, or the subject of a signed token.
	Name string
	// Namespace is the one the token is good in, or AllNamespaces.
	Namespace string
	Role      Role
}

// Options of Open. At least one of TokensFile and JWTKeyFile must be set.
type Options struct {
	// TokensFile is a YAML list of tokens; see tokens.go for its form.
	TokensFile string
	// JWTKeyFile holds public keys in PEM form: tokens signed by one of them are good.
	JWTKeyFile string
	// JWTIssuer and JWTAudience, if not empty, must be the token's "iss" and among its "aud".
	JWTIssuer, JWTAudience string
	// Logger gets refusals and reloads; nil for none.
	Logger *slog.Logger
	// Registerer gets the counter of refusals; nil for none.
	Registerer prometheus.Registerer
	// Every is the interval at which the files are read; reload.DefaultEvery if 0.
	Every time.Duration
	// Now is the clock for expiry; time.Now if nil.
	Now func() time.Time
}

// A FileError says which file is at fault.
type FileError struct {
	Path string
	Err  error
}

// Error names the file.
func (e *FileError) Error() string { return e.Path + ": " + e.Err.Error() }

// Unwrap is the cause.
func (e *FileError) Unwrap() error { return e.Err }

// Guard checks calls. All methods are safe for concurrent use.
type Guard struct {
	opts     Options
	tokens   *reload.Value[*tokenList] // nil without a file
	keys     *reload.Value[*keyring]   // nil without a file
	refusals *refusals
}

// Open reads the files and follows them until Close. The error is a *FileError where a file is at fault.
func Open(opts Options) (*Guard, error) {
	if opts.TokensFile == "" && opts.JWTKeyFile == "" {
		return nil, errors.New("auth: neither a file of tokens nor one of keys")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	if opts.Now == nil {
		opts.Now = time.Now
	}
	g := &Guard{opts: opts}
	var err error
	if opts.TokensFile != "" {
		if g.tokens, err = follow(opts, opts.TokensFile, "tokens", parseTokens); err != nil {
			return nil, err
		}
	}
	if opts.JWTKeyFile != "" {
		if g.keys, err = follow(opts, opts.JWTKeyFile, "jwt_keys", parseKeys); err != nil {
			g.Close()
			return nil, err
		}
	}
	if g.refusals, err = newRefusals(opts); err != nil {
		g.Close()
		return nil, err
	}
	return g, nil
}

// follow reloads a file when it changes; name is the prefix of its events in the log.
func follow[T any](opts Options, path, name string, parse func([]byte) (T, error)) (*reload.Value[T], error) {
	at := func(err error) error {
		var cannotRead *fs.PathError
		if errors.As(err, &cannotRead) {
			err = cannotRead.Err
		}
		return &FileError{path, err}
	}
	v, err := reload.Open(reload.Options[T]{
		Paths: []string{path}, Every: opts.Every,
		Parse: func(contents [][]byte) (T, error) { return parse(contents[0]) },
		Changed: func(T) {
			opts.Logger.Info("credentials reloaded", "event", name+"_reloaded", "file", path)
		},
		Failed: func(err error) {
			opts.Logger.Error("cannot use replaced credentials, keeping the old ones",
				"event", name+"_reload_failed", "error", at(err))
		},
	})
	if err != nil {
		return nil, at(err)
	}
	return v, nil
}

// Close stops reloading the files; the Guard keeps their last content.
func (g *Guard) Close() {
	if g.tokens != nil {
		g.tokens.Close()
	}
	if g.keys != nil {
		g.keys.Close()
	}
}

// Reload reads the files now instead of at the next interval.
func (g *Guard) Reload() {
	if g.tokens != nil {
		g.tokens.Reload()
	}
	if g.keys != nil {
		g.keys.Reload()
	}
}

// authenticate finds the holder of a token.
func (g *Guard) authenticate(token string) (Principal, *denial) {
	if len(token) > maxTokenBytes {
		return Principal{}, unauthenticated(reasonBadToken, "the token has %d bytes, at most %d are read", len(token), maxTokenBytes)
	}
	sum := sha256.Sum256([]byte(token))
	if g.tokens != nil {
		if p, ok := g.tokens.Get().find(sum); ok {
			return p, nil
		}
	}
	if g.keys != nil && looksSigned(token) {
		return g.keys.Get().verify(token, sum, &g.opts)
	}
	return Principal{}, unauthenticated(reasonUnknownToken, "the token is not known here")
}

// authorize checks that p may call a method that needs role within namespace, or everywhere if namespace is
// AllNamespaces. An empty namespace is none in particular.
func authorize(p Principal, method string, role Role, namespace string) *denial {
	switch {
	case p.Role < role:
		return forbidden(reasonRole, p, "token %q may %s; %s needs %s", p.Name, p.Role, method, role).with("needs", role.String())
	case namespace == "" || p.Namespace == AllNamespaces || p.Namespace == namespace:
		return nil
	case namespace == AllNamespaces:
		return forbidden(reasonNamespace, p, "token %q is for namespace %q; %s needs one for all (%q)", p.Name, p.Namespace, method, AllNamespaces).
			with("namespace", namespace)
	default:
		return forbidden(reasonNamespace, p, "token %q is for namespace %q, not %q", p.Name, p.Namespace, shorten(namespace)).
			with("namespace", shorten(namespace))
	}
}

// shorten bounds a caller's text in logs and answers.
func shorten(s string) string {
	if len(s) > 64 {
		return s[:64] + "…"
	}
	return s
}
