package embed

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"perdure/internal/certs"
	"perdure/rpc/auth"
)

// checkGroups refuses settings of which one makes no sense without another.
func (c *Config) checkGroups(add func(flag, reason string)) {
	needs := func(flag string, others ...string) {
		if *settingByFlag(flag).at(c).(*string) == "" {
			return
		}
		for _, other := range others {
			if *settingByFlag(other).at(c).(*string) == "" {
				add(flag, "needs --"+other+" as well")
			}
		}
	}
	needs("tls-cert", "tls-key")
	needs("tls-key", "tls-cert")
	needs("tls-client-ca", "tls-cert", "tls-key")
	needs("peer-tls-cert", "peer-tls-key", "peer-tls-ca")
	needs("peer-tls-key", "peer-tls-cert", "peer-tls-ca")
	needs("peer-tls-ca", "peer-tls-cert", "peer-tls-key")
	needs("jwt-issuer", "jwt-key-file")
	needs("jwt-audience", "jwt-key-file")
}

// checkReach refuses addresses that other machines can reach and whose traffic is not secured, unless
// Insecure accepts them.
func (c *Config) checkReach(add func(flag, reason string)) {
	if c.Insecure {
		return
	}
	clients := ""
	switch {
	case c.TLSCert == "":
		clients = "--tls-cert, and --tokens-file, --jwt-key-file or --tls-client-ca"
	case c.TokensFile == "" && c.JWTKeyFile == "" && c.TLSClientCA == "":
		clients = "--tokens-file, --jwt-key-file or --tls-client-ca"
	}
	lacks := map[string]string{"grpc-addr": clients, "http-addr": clients}
	if c.PeerTLSCert == "" {
		lacks["peer-addr"] = "--peer-tls-cert, --peer-tls-key and --peer-tls-ca"
	}
	if c.GossipKeyFile == "" {
		lacks["gossip-addr"] = "--gossip-key-file"
	}
	for _, flag := range addrFlags {
		host, _, ok := splitAddr(*settingByFlag(flag).at(c).(*string))
		if ok && !isLoopback(host) && lacks[flag] != "" {
			add(flag, "other machines can reach it and it is not secured: give "+lacks[flag]+
				"; or use a loopback address, or accept that with --insecure")
		}
	}
}

// security is the result of the settings about TLS, keys and tokens. A nil field is off.
//
// The peer port takes peerTLS, which follows the files; the not-ready server on the HTTP port takes httpTLS.
type security struct {
	clients *certs.Handle // of the gRPC and HTTP ports
	peers   *certs.Handle // of the peer port, for mutual TLS
	guard   *auth.Guard
	// gossipKeys are the keys of the gossip; the first one encrypts.
	gossipKeys [][]byte
	// pushToken is what messages of the Resonate protocol to HTTP addresses carry; "" for none.
	pushToken string
}

// openSecurity reads every file that the settings name. Problems come in one *ConfigError
// that names flags and files. close ends the following of the files.
func (c *Config) openSecurity(log *slog.Logger, registry prometheus.Registerer) (*security, error) {
	s := &security{}
	var problems []Problem
	note := func(err error, flags ...string) {
		if err != nil {
			problems = append(problems, c.fileProblem(err, flags...))
		}
	}
	var err error
	if c.TLSCert != "" {
		s.clients, err = certs.Open(certs.Options{Name: "clients", Logger: log, Every: c.reloadEvery,
			Files: certs.Files{Cert: c.TLSCert, Key: c.TLSKey, CA: c.TLSClientCA}})
		note(err, "tls-cert", "tls-key", "tls-client-ca")
	}
	if c.PeerTLSCert != "" {
		s.peers, err = certs.Open(certs.Options{Name: "peers", Mutual: true, Logger: log, Every: c.reloadEvery,
			Files: certs.Files{Cert: c.PeerTLSCert, Key: c.PeerTLSKey, CA: c.PeerTLSCA}})
		note(err, "peer-tls-cert", "peer-tls-key", "peer-tls-ca")
	}
	if c.TokensFile != "" || c.JWTKeyFile != "" {
		s.guard, err = auth.Open(auth.Options{TokensFile: c.TokensFile, JWTKeyFile: c.JWTKeyFile,
			JWTIssuer: c.JWTIssuer, JWTAudience: c.JWTAudience, Logger: log, Registerer: registry, Every: c.reloadEvery})
		note(err, "tokens-file", "jwt-key-file")
	}
	if c.GossipKeyFile != "" {
		s.gossipKeys, err = readGossipKeys(c.GossipKeyFile)
		note(err, "gossip-key-file")
	}
	if c.ResonatePushTokenFile != "" {
		s.pushToken, err = readPushToken(c.ResonatePushTokenFile)
		note(err, "resonate-push-token-file")
	}
	if err = problemsError(problems); err == nil {
		err = s.register(registry)
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// peerTLS is for the peer port, both directions; nil if peers talk in the clear.
func (s *security) peerTLS() *tls.Config {
	if s.peers == nil {
		return nil
	}
	return s.peers.PeerConfig()
}

// httpTLS is for the HTTP port; nil for plain HTTP.
func (s *security) httpTLS() *tls.Config {
	if s.clients == nil {
		return nil
	}
	return s.clients.ServerConfig("http/1.1")
}

// fileProblem is an error of a file, with the flag that names the file.
func (c *Config) fileProblem(err error, flags ...string) Problem {
	path, reason := "", err.Error()
	var (
		ofCerts *certs.FileError
		ofAuth  *auth.FileError
	)
	switch {
	case errors.As(err, &ofCerts):
		path, reason = ofCerts.Path, ofCerts.Err.Error()
	case errors.As(err, &ofAuth):
		path, reason = ofAuth.Path, ofAuth.Err.Error()
	}
	for _, flag := range flags {
		if value := *settingByFlag(flag).at(c).(*string); value != "" && (value == path || path == "") {
			return Problem{Flag: flag, Value: value, Reason: reason}
		}
	}
	return Problem{Reason: err.Error()}
}

// register shows when the certificates in use expire.
func (s *security) register(registry prometheus.Registerer) error {
	for name, handle := range map[string]*certs.Handle{"clients": s.clients, "peers": s.peers} {
		if handle == nil {
			continue
		}
		if err := registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "perdure", Subsystem: "certificate", Name: "expires_seconds",
			Help:        "When the certificate in use expires, in seconds since 1970, by whom it is for.",
			ConstLabels: prometheus.Labels{"for": name},
		}, func() float64 { return float64(handle.NotAfter().Unix()) })); err != nil {
			return err
		}
	}
	return nil
}

// close stops reloading the files. Credentials in use stay valid.
func (s *security) close() {
	if s.clients != nil {
		s.clients.Close()
	}
	if s.peers != nil {
		s.peers.Close()
	}
	if s.guard != nil {
		s.guard.Close()
	}
}

// readSecret reads a file; the error is without the path, which the problem names.
func readSecret(path string) ([]byte, error) {
	content, err := os.ReadFile(path)
	if cannotRead, ok := errors.AsType[*os.PathError](err); ok {
		err = cannotRead.Err
	}
	return content, err
}

// readGossipKeys reads base64 keys, one for each line; empty lines and those that begin with # are passed
// over. Its errors never contain a key.
func readGossipKeys(path string) ([][]byte, error) {
	content, err := readSecret(path)
	if err != nil {
		return nil, err
	}
	var keys [][]byte
	lines := bufio.NewScanner(bytes.NewReader(content))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		key, err := base64.StdEncoding.DecodeString(line)
		if err != nil {
			return nil, fmt.Errorf("line %d is not base64", n)
		}
		if len(key) != 16 && len(key) != 24 && len(key) != 32 {
			return nil, fmt.Errorf("line %d has a key of %d bytes; 16, 24 or 32 are allowed", n, len(key))
		}
		keys = append(keys, key)
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	if len(keys) == 0 {
		return nil, errors.New("holds no key; openssl rand -base64 32 makes one")
	}
	return keys, nil
}
