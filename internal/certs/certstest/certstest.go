// Package certstest makes authorities and certificates for tests.
//
// Each call makes new keys. By default a certificate is for 127.0.0.1 and localhost, as server and client,
// and is valid for an hour. Keys are written only where the test says. A failure ends the test.
package certstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"
)

// Authority signs certificates.
type Authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	// PEM is its certificate.
	PEM []byte
}

// Leaf says what to sign. The zero value is for 127.0.0.1 and localhost, as server and client, now.
type Leaf struct {
	Hosts               []string
	NotBefore, NotAfter time.Time
	Usages              []x509.ExtKeyUsage
}

// Pair is a certificate and its key in PEM form.
type Pair struct {
	Cert, Key []byte
}

var serial atomic.Int64

// NewAuthority makes an authority.
func NewAuthority(t testing.TB, name string) *Authority {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial.Add(1)), Subject: pkix.Name{CommonName: name}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: time.Now().Add(2 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &Authority{cert: cert, key: key, PEM: block("CERTIFICATE", der)}
}

// Issue signs a certificate.
func (a *Authority) Issue(t testing.TB, leaf Leaf) Pair {
	t.Helper()
	if leaf.Hosts == nil {
		leaf.Hosts = []string{"127.0.0.1", "localhost"}
	}
	if leaf.NotBefore.IsZero() {
		leaf.NotBefore = time.Now().Add(-time.Hour)
	}
	if leaf.NotAfter.IsZero() {
		leaf.NotAfter = time.Now().Add(time.Hour)
	}
	if leaf.Usages == nil {
		leaf.Usages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}
	}
	key := newKey(t)
	template := &x509.Certificate{SerialNumber: big.NewInt(serial.Add(1)), Subject: pkix.Name{CommonName: "leaf"},
		ExtKeyUsage: leaf.Usages, NotBefore: leaf.NotBefore, NotAfter: leaf.NotAfter}
	for _, host := range leaf.Hosts {
		if ip := net.ParseIP(host); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, host)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return Pair{Cert: block("CERTIFICATE", der), Key: block("PRIVATE KEY", keyDER)}
}

// Write puts content into dir under name, whole or not at all, and returns the path.
func Write(t testing.TB, dir, name string, content []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path+".new", content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
	return path
}

// WritePair writes NAME.crt and NAME.key and returns their paths.
func WritePair(t testing.TB, dir, name string, pair Pair) (cert, key string) {
	t.Helper()
	return Write(t, dir, name+".crt", pair.Cert), Write(t, dir, name+".key", pair.Key)
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}
