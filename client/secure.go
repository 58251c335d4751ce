package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"perdure/internal/certs"
	"perdure/internal/certs/reload"
)

// TLSOptions configures the authorities that a client trusts, and its own certificate. The zero value trusts the
// authorities of the system and presents no certificate. The client reads a changed file again before the next
// connection.
type TLSOptions struct {
	// CAFile holds the authorities (PEM) of the nodes' certificates, instead of the system's.
	CAFile string
	// CertFile and KeyFile (PEM) are the client's certificate, for nodes that ask for one. Both, or none.
	CertFile, KeyFile string
	// ServerName is the name that the nodes' certificates must have, instead of the host of each address.
	ServerName string
	// Config replaces all of the above.
	Config *tls.Config
}

// Environment variables that OptionsFromEnv reads.
const (
	EnvAddr      = "PERDURE_ADDR"      // addresses, with commas between
	EnvNamespace = "PERDURE_NAMESPACE" // Options.Namespace
	EnvToken     = "PERDURE_TOKEN"     // Options.Token
	EnvTokenFile = "PERDURE_TOKEN_FILE"

	EnvTLS           = "PERDURE_TLS" // true or false; true is implied by the three below
	EnvTLSCA         = "PERDURE_TLS_CA"
	EnvTLSClientCert = "PERDURE_TLS_CLIENT_CERT" // not PERDURE_TLS_CERT, which is a node's
	EnvTLSClientKey  = "PERDURE_TLS_CLIENT_KEY"
)

// OptionsFromEnv reads the settings of a cluster from the environment: its addresses, TLS, a token. lookup is
// os.LookupEnv if nil. A variable that is set but empty counts as not set.
func OptionsFromEnv(lookup func(name string) (string, bool)) (Options, error) {
	if lookup == nil {
		lookup = os.LookupEnv
	}
	get := func(name string) string {
		value, _ := lookup(name)
		return strings.TrimSpace(value)
	}
	opts := Options{Namespace: get(EnvNamespace), Token: get(EnvToken), TokenFile: get(EnvTokenFile)}
	for _, addr := range strings.Split(get(EnvAddr), ",") {
		if addr = strings.TrimSpace(addr); addr != "" {
			opts.Addrs = append(opts.Addrs, addr)
		}
	}
	files := TLSOptions{CAFile: get(EnvTLSCA), CertFile: get(EnvTLSClientCert), KeyFile: get(EnvTLSClientKey)}
	on := files != TLSOptions{}
	if text := get(EnvTLS); text != "" {
		said, err := strconv.ParseBool(text)
		if err != nil {
			return opts, fmt.Errorf("client: %s is %q; write true or false", EnvTLS, text)
		}
		if on && !said {
			return opts, fmt.Errorf("client: %s is false, but there are files for TLS", EnvTLS)
		}
		on = said
	}
	if on {
		opts.TLS = &files
	}
	return opts, nil
}

// secured is the state behind the options about TLS and tokens.
type secured struct {
	certs *certs.Handle         // nil without files
	file  *reload.Value[string] // nil without a file
	token func() string         // nil without a token
	tls   credentials.TransportCredentials
}

func secure(opts *Options) (_ *secured, err error) {
	s := &secured{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if opts.TLS != nil {
		if s.tls, err = s.transport(opts); err != nil {
			return nil, fmt.Errorf("client: TLS: %w", err)
		}
	}
	switch {
	case opts.Token != "" && opts.TokenFile != "":
		return nil, errors.New("client: both a token and a file of one")
	case opts.Token != "":
		if err := wellFormed(opts.Token); err != nil {
			return nil, fmt.Errorf("client: %w", err)
		}
		token := opts.Token
		s.token = func() string { return token }
	case opts.TokenFile != "":
		s.file, err = reload.Open(reload.Options[string]{
			Paths: []string{opts.TokenFile},
			Parse: func(contents [][]byte) (string, error) {
				token := strings.TrimSpace(string(contents[0]))
				return token, wellFormed(token)
			},
			Failed: func(err error) {
				opts.Logger.Warn("cannot read changed token file", "event", "token_not_reloaded",
					"file", opts.TokenFile, "err", err)
			},
		})
		if err != nil {
			return nil, fmt.Errorf("client: token file %s: %w", opts.TokenFile, err)
		}
		s.token = s.file.Get
	}
	return s, nil
}

// wellFormed checks that a token can be sent. The error does not contain it.
func wellFormed(token string) error {
	if token == "" {
		return errors.New("the token is empty")
	}
	for i := range len(token) {
		if token[i] <= ' ' || token[i] > '~' {
			return fmt.Errorf("the token has a character that none can have, at %d of %d", i+1, len(token))
		}
	}
	return nil
}

func (s *secured) close() {
	if s.certs != nil {
		s.certs.Close()
	}
	if s.file != nil {
		s.file.Close()
	}
}

func (s *secured) transport(opts *Options) (credentials.TransportCredentials, error) {
	o := opts.TLS
	switch {
	case o.Config != nil:
		return credentials.NewTLS(o.Config), nil
	case (o.CertFile == "") != (o.KeyFile == ""):
		return nil, errors.New("a certificate without its key, or a key without its certificate")
	case o.CAFile == "" && o.CertFile == "":
		return credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12, ServerName: o.ServerName}), nil
	}
	var err error
	s.certs, err = certs.Open(certs.Options{Name: "client", Logger: opts.Logger,
		Files: certs.Files{Cert: o.CertFile, Key: o.KeyFile, CA: o.CAFile}})
	if err != nil {
		return nil, err
	}
	return &following{s.certs, o.ServerName}, nil
}

// dialOptions are those of the connection to one address.
func (s *secured) dialOptions(addr string, opts *Options) []grpc.DialOption {
	var out []grpc.DialOption
	if s.tls != nil {
		out = append(out, grpc.WithTransportCredentials(s.tls))
	}
	if s.token != nil {
		out = append(out, grpc.WithPerRPCCredentials(&bearer{s.token, opts.PlaintextToken || onThisMachine(addr)}))
	}
	return out
}

// following are TLS credentials read from the files for each connection.
type following struct {
	files      *certs.Handle
	serverName string
}

func (f *following) now() credentials.TransportCredentials {
	return credentials.NewTLS(f.files.ClientConfig(f.serverName))
}

// ClientHandshake implements credentials.TransportCredentials.
func (f *following) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return f.now().ClientHandshake(ctx, authority, conn)
}

// ServerHandshake implements credentials.TransportCredentials.
func (f *following) ServerHandshake(net.Conn) (net.Conn, credentials.AuthInfo, error) {
	return nil, nil, errors.New("client: credentials of a client")
}

// Info implements credentials.TransportCredentials.
func (f *following) Info() credentials.ProtocolInfo { return f.now().Info() }

// Clone implements credentials.TransportCredentials.
func (f *following) Clone() credentials.TransportCredentials {
	c := *f
	return &c
}

// OverrideServerName implements credentials.TransportCredentials.
func (f *following) OverrideServerName(name string) error {
	f.serverName = name
	return nil
}

// bearer puts the token on every call.
type bearer struct {
	token     func() string
	plaintext bool // it may be sent without TLS
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b *bearer) GetRequestMetadata(ctx context.Context, _ ...string) (map[string]string, error) {
	if !b.plaintext {
		call, _ := credentials.RequestInfoFromContext(ctx)
		if err := credentials.CheckSecurityLevel(call.AuthInfo, credentials.PrivacyAndIntegrity); err != nil {
			return nil, status.Error(codes.Unauthenticated, "the token is not sent without TLS to a node that is not on this machine")
		}
	}
	return map[string]string{"authorization": "Bearer " + b.token()}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials: GetRequestMetadata checks by itself.
func (b *bearer) RequireTransportSecurity() bool { return false }

// onThisMachine is true for an address whose traffic certainly stays here.
func onThisMachine(addr string) bool {
	if strings.HasPrefix(addr, "unix:") || strings.HasPrefix(addr, "unix-abstract:") {
		return true
	}
	host, _, err := net.SplitHostPort(strings.TrimPrefix(strings.TrimPrefix(addr, "dns:///"), "passthrough:///"))
	if err != nil {
		return false
	}
	if host == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
