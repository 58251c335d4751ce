// Package certs turns certificate files into TLS configurations that follow the files: a certificate that
// is renewed on disk is used for the next handshake, without a restart.
//
// It owns the checks of a certificate before its use: it fits its key and is valid now. For mutual
// authentication the authority has signed it, for both ends. A new file that fails a check leaves the old
// pair in use, and logs that once (event "certificate_reload_failed"). The package writes nothing; a
// crash loses nothing. Open connections stay open when the files change.
//
// A Handle is made for one purpose: ServerConfig for a port that clients call, PeerConfig for nodes that
// call each other, ClientConfig for a client.
package certs

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"time"

	"perdure/internal/certs/reload"
)

// Files names PEM files.
type Files struct {
	// Cert is a certificate and the intermediates that lead to its authority, in this order.
	Cert string
	// Key is the certificate's private key. Cert and Key are set together or not at all.
	Key string
	// CA holds the certificates of the authorities that the other end's certificate must come from.
	CA string
}

// Options of Open.
type Options struct {
	Files
	// Name says in logs what the certificate is for: "clients", "peers".
	Name string
	// Mutual is for a certificate of both a client and a server, whose authority is CA. Open then checks that
	// this authority accepts it for both; all three files are required.
	Mutual bool
	// Logger hears of reloads; nil for none.
	Logger *slog.Logger
	// Every is how often the files are read; reload.DefaultEvery if 0.
	Every time.Duration
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

// material is what the files hold.
type material struct {
	pair *tls.Certificate // nil without one; its Leaf is set
	pool *x509.CertPool   // nil without a CA
}

// Handle is a set of files that are loaded and watched. All methods are safe for concurrent use.
type Handle struct {
	opts    Options
	current *reload.Value[material]
}

// Open loads the files and watches them until Close. The error is a *FileError where a file is at fault.
func Open(opts Options) (*Handle, error) {
	if (opts.Cert == "") != (opts.Key == "") {
		return nil, errors.New("certs: a certificate needs its key, and a key its certificate")
	}
	if opts.Mutual && (opts.Cert == "" || opts.CA == "") {
		return nil, errors.New("certs: both ends need a certificate, its key and the authority")
	}
	if opts.Logger == nil {
		opts.Logger = slog.New(slog.DiscardHandler)
	}
	h := &Handle{opts: opts}
	var err error
	h.current, err = reload.Open(reload.Options[material]{
		Paths: []string{opts.Cert, opts.Key, opts.CA}, Parse: opts.parse, Every: opts.Every,
		Changed: func(m material) {
			args := []any{"event", "certificate_reloaded", "for", opts.Name}
			if m.pair != nil {
				args = append(args, "file", opts.Cert, "not_after", m.pair.Leaf.NotAfter)
			}
			opts.Logger.Info("certificates reloaded", args...)
		},
		Failed: func(err error) {
			opts.Logger.Error("cannot use replaced certificates, keeping the old ones",
				"event", "certificate_reload_failed", "for", opts.Name, "error", err)
		},
	})
	if err != nil {
		var path *fs.PathError
		if errors.As(err, &path) {
			err = &FileError{path.Path, path.Err}
		}
		return nil, err
	}
	return h, nil
}

// Close stops watching; the configurations keep the files loaded last.
func (h *Handle) Close() { h.current.Close() }

// Reload reads the files now instead of at the next interval.
func (h *Handle) Reload() { h.current.Reload() }

// NotAfter is when the certificate in use expires; zero without one.
func (h *Handle) NotAfter() time.Time {
	if pair := h.current.Get().pair; pair != nil {
		return pair.Leaf.NotAfter
	}
	return time.Time{}
}

// parse makes material of the files' contents: certificate, key, authorities.
func (o *Options) parse(contents [][]byte) (material, error) {
	var m material
	if o.CA != "" {
		pool, err := authorities(contents[2])
		if err != nil {
			return m, &FileError{o.CA, err}
		}
		m.pool = pool
	}
	if o.Cert == "" {
		return m, nil
	}
	pair, err := keyPair(contents[0], contents[1])
	if err != nil {
		// A problem of the key is reported for the key's file.
		if _, certErr := firstCertificate(contents[0]); certErr == nil {
			return m, &FileError{o.Key, err}
		}
		return m, &FileError{o.Cert, err}
	}
	now := time.Now()
	switch leaf := pair.Leaf; {
	case now.After(leaf.NotAfter):
		return m, &FileError{o.Cert, fmt.Errorf("the certificate has expired on %s", leaf.NotAfter.UTC().Format(time.RFC3339))}
	case now.Before(leaf.NotBefore):
		return m, &FileError{o.Cert, fmt.Errorf("the certificate is not valid before %s", leaf.NotBefore.UTC().Format(time.RFC3339))}
	}
	m.pair = pair
	if o.Mutual {
		for use, what := range map[x509.ExtKeyUsage]string{x509.ExtKeyUsageServerAuth: "server", x509.ExtKeyUsageClientAuth: "client"} {
			if err := verify(chainOf(pair), m.pool, use, ""); err != nil {
				return m, &FileError{o.Cert, fmt.Errorf("the authorities in %s do not accept it as a %s's: %w", o.CA, what, err)}
			}
		}
	}
	return m, nil
}

// keyPair is tls.X509KeyPair with the words for what people get wrong.
func keyPair(cert, key []byte) (*tls.Certificate, error) {
	if _, err := firstCertificate(cert); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		return nil, err
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return nil, err
		}
	}
	return &pair, nil
}

func firstCertificate(content []byte) (*x509.Certificate, error) {
	for rest := content; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return nil, errors.New("holds no certificate in PEM form")
		}
		if block.Type == "CERTIFICATE" {
			return x509.ParseCertificate(block.Bytes)
		}
	}
}

// authorities reads every certificate of a file; one that cannot be read is an error, not left out.
func authorities(content []byte) (*x509.CertPool, error) {
	pool, n := x509.NewCertPool(), 0
	for rest := content; ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			break
		}
		if block.Type != "CERTIFICATE" {
			return nil, fmt.Errorf("holds a %s and certificates; it must hold certificates of authorities only", block.Type)
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		pool.AddCert(cert)
		n++
	}
	if n == 0 {
		return nil, errors.New("holds no certificate in PEM form")
	}
	return pool, nil
}

func chainOf(pair *tls.Certificate) []*x509.Certificate {
	chain := []*x509.Certificate{pair.Leaf}
	for _, der := range pair.Certificate[1:] {
		if cert, err := x509.ParseCertificate(der); err == nil {
			chain = append(chain, cert)
		}
	}
	return chain
}

// verify is what crypto/tls does with a chain that the other end has shown. An empty host checks no name.
func verify(chain []*x509.Certificate, pool *x509.CertPool, use x509.ExtKeyUsage, host string) error {
	if len(chain) == 0 {
		return errors.New("the peer has sent no certificate")
	}
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{Roots: pool, Intermediates: between, DNSName: host, KeyUsages: []x509.ExtKeyUsage{use}})
	return err
}
