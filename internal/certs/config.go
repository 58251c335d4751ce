package certs

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
)

// ServerConfig is for a port that clients call, TLS 1.2 at least. With a CA file clients must present a
// certificate of its authorities. protocols are those to announce (ALPN), as "h2". The Handle must have a
// certificate.
func (h *Handle) ServerConfig(protocols ...string) *tls.Config {
	return h.serving(tls.VersionTLS12, protocols)
}

// serving answers each handshake with what the files hold then.
func (h *Handle) serving(minVersion uint16, protocols []string) *tls.Config {
	return &tls.Config{
		MinVersion: minVersion,
		NextProtos: protocols,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
			m := h.current.Get()
			if m.pair == nil {
				return nil, errors.New("certs: no server certificate loaded")
			}
			cfg := &tls.Config{
				Certificates: []tls.Certificate{*m.pair}, MinVersion: minVersion, NextProtos: protocols,
				// A ticket would let a caller in without showing a certificate again, past a change of
				// authorities. Connections live long here; tickets would save nothing.
				SessionTicketsDisabled: true,
			}
			if m.pool != nil {
				cfg.ClientCAs, cfg.ClientAuth = m.pool, tls.RequireAndVerifyClientCert
			}
			return cfg, nil
		},
		// Some servers refuse a configuration without certificates before they call the function above.
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			if m := h.current.Get(); m.pair != nil {
				return m.pair, nil
			}
			return nil, errors.New("certs: no server certificate loaded")
		},
	}
}

// PeerConfig is for nodes that call each other, TLS 1.3: one configuration for both directions, in which each
// end must present a certificate of the authorities. The Handle must have been opened as Mutual.
//
// The dialling side sets ServerName to the host it dials. If this is a name, the handshake checks that the
// certificate names it. crypto/tls does not pass an IP address to the checks of this package: after the
// handshake the dialler must compare it by VerifyPeerHost.
func (h *Handle) PeerConfig() *tls.Config {
	cfg := h.serving(tls.VersionTLS13, nil)
	cfg.GetClientCertificate = h.clientCertificate
	// The functions below verify against the current authorities, on the dialling side only. The accepting side builds
	// its configuration for each handshake, above.
	cfg.InsecureSkipVerify = true
	cfg.VerifyConnection = func(cs tls.ConnectionState) error {
		return verify(cs.PeerCertificates, h.current.Get().pool, x509.ExtKeyUsageServerAuth, cs.ServerName)
	}
	return cfg
}

// VerifyPeerHost reports whether the certificate that the other end has shown is one for host, a name or an
// IP address. It is for a connection that was dialled by PeerConfig, after its handshake.
func VerifyPeerHost(cs tls.ConnectionState, host string) error {
	if len(cs.PeerCertificates) == 0 {
		return errors.New("the peer has sent no certificate")
	}
	return cs.PeerCertificates[0].VerifyHostname(host)
}

// ClientConfig is for one handshake of a client with host, TLS 1.2 at least: make one for each, so that it
// has the current content of the files. Without a CA file the system's authorities apply; without a
// certificate the client presents none.
func (h *Handle) ClientConfig(host string, protocols ...string) *tls.Config {
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols, ServerName: host, RootCAs: h.current.Get().pool}
	if h.opts.Cert != "" {
		cfg.GetClientCertificate = h.clientCertificate
	}
	return cfg
}

func (h *Handle) clientCertificate(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	if m := h.current.Get(); m.pair != nil {
		return m.pair, nil
	}
	return nil, errors.New("certs: no client certificate loaded")
}
