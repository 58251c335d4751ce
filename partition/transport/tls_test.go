package transport

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"net"
	"testing"
	"time"
)

// authority signs a certificate for 127.0.0.1 and returns a configuration for both directions.
func authority(t testing.TB) *tls.Config {
	t.Helper()
	caKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour)}
	caDER, err := x509.CreateCertificate(rand.Reader, ca, ca, caKey.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	if ca, err = x509.ParseCertificate(caDER); err != nil {
		t.Fatal(err)
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	leaf := &x509.Certificate{SerialNumber: big.NewInt(2), IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		NotBefore:   ca.NotBefore, NotAfter: ca.NotAfter}
	der, err := x509.CreateCertificate(rand.Reader, leaf, ca, key.Public(), caKey)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(ca)
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		RootCAs:      pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	}
}

func TestTLS(t *testing.T) {
	ours, theirs := authority(t), authority(t)
	short := 500 * time.Millisecond
	a := listen(t, Options{ServerID: "a", TLS: ours})
	b := listen(t, Options{ServerID: "b", TLS: ours})
	stranger := listen(t, Options{ServerID: "x", TLS: theirs})
	plain := listen(t, Options{ServerID: "p", HandshakeTimeout: short})
	addr := b.Addr().String()
	go echo(b.Service("ship"), "ship")
	ctx := context.Background()
	c, err := a.Dial(ctx, addr, "ship")
	if err != nil {
		t.Fatal(err)
	}
	ask(t, c, "ship?\n")
	_, err = a.Dial(ctx, addr, "nothing")
	wantRefused(t, err, CodeUnknownService)
	if _, err := stranger.Dial(ctx, addr, "ship"); err == nil {
		t.Error("a stranger's certificate was accepted")
	}
	if _, err := plain.Dial(ctx, addr, "ship"); err == nil {
		t.Error("a connection without TLS was accepted")
	}
	if _, err := a.Dial(ctx, plain.Addr().String(), "ship"); err == nil {
		t.Error("a node without TLS was accepted")
	}
	ask(t, c, "ship?\n")
	if ours.ServerName != "" {
		t.Error("the caller's configuration was changed")
	}
}
