// SPDX-License-Identifier: Apache-2.0

package redisconn

import (
	"context"
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
	"strings"
	"testing"
	"time"

	"github.com/ringmaster-dev/ringmaster/test/testredis"
)

const secret = "a-secret-of-the-test"

// write makes a file of the test.
func write(t *testing.T, name string, content []byte) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestWhatIsWrongIsSaid(t *testing.T) {
	junk := write(t, "junk", []byte("junk\n"))
	empty := write(t, "empty", []byte("\n"))
	large := write(t, "large", make([]byte, maxSecret+1))
	missing := filepath.Join(t.TempDir(), "missing")
	const plain, secure = "redis://user:" + secret + "@127.0.0.1:1", "rediss://user:" + secret + "@127.0.0.1:1"
	for name, c := range map[string]struct {
		options Options
		want    string
	}{
		"no URL":                              {Options{}, "give redis://HOST:PORT"},
		"another kind of URL":                 {Options{URL: "http://:" + secret + "@host"}, "give redis://HOST:PORT"},
		"a password's file that is not there": {Options{URL: plain, PasswordFile: missing}, missing},
		"a password's file that is empty":     {Options{URL: plain, PasswordFile: empty}, "is empty"},
		"a password's file that is large":     {Options{URL: plain, PasswordFile: large}, "bytes"},
		"certificates without TLS":            {Options{URL: plain, CAFile: junk}, "rediss://"},
		"certificates that are not there":     {Options{URL: secure, CAFile: missing}, missing},
		"certificates that are none":          {Options{URL: secure, CAFile: junk}, "no certificate"},
		"a client's certificate that is none": {Options{URL: secure, CertFile: junk, KeyFile: junk}, "certificate"},
		"nobody there":                        {Options{URL: plain, Timeout: time.Second}, "connect to Redis at 127.0.0.1:1"},
	} {
		client, err := Open(context.Background(), c.options)
		if err == nil {
			client.Close()
			t.Errorf("%s: it is opened", name)
			continue
		}
		if !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v; want %q", name, err, c.want)
		}
	}
}

func TestAPasswordIsReadAnew(t *testing.T) {
	s := testredis.Start(t)
	if out, err := s.CLI("acl", "setuser", "ringmaster", "on", ">first", "~*", "+@all"); err != nil {
		t.Fatal(out, err)
	}
	file := write(t, "password", []byte("first\n"))
	open := func() error {
		c, err := Open(context.Background(), Options{URL: s.URL(), Username: "ringmaster", PasswordFile: file})
		if err != nil {
			return err
		}
		defer c.Close()
		who, err := c.Do(context.Background(), c.B().AclWhoami().Build()).ToString()
		if err == nil && who != "ringmaster" {
			t.Errorf("it is %s", who)
		}
		return err
	}
	if err := open(); err != nil {
		t.Fatal(err)
	}
	if out, err := s.CLI("acl", "setuser", "ringmaster", "<first", ">second"); err != nil {
		t.Fatal(out, err)
	}
	if err := open(); err == nil || strings.Contains(err.Error(), "first") {
		t.Fatalf("with the old password: %v", err)
	}
	if err := os.WriteFile(file, []byte("second"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := open(); err != nil {
		t.Fatal(err)
	}
}

// issue makes a certificate for the loopback address, which signs itself, and its key.
func issue(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	b, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, "cert.pem", pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		write(t, "key.pem", pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: b}))
}

func TestTLS(t *testing.T) {
	cert, key := issue(t)
	port := testredis.FreePort(t)
	testredis.Start(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-cert-file", cert)
	url := "rediss://127.0.0.1:" + port
	for name, c := range map[string]struct {
		options Options
		ok      bool
	}{
		"both know each other":            {Options{URL: url, CAFile: cert, CertFile: cert, KeyFile: key}, true},
		"the server is not known":         {Options{URL: url, CertFile: cert, KeyFile: key}, false},
		"the client has no certificate":   {Options{URL: url, CAFile: cert}, false},
		"it is not TLS that is asked for": {Options{URL: "redis://127.0.0.1:" + port, Timeout: time.Second}, false},
	} {
		client, err := Open(context.Background(), c.options)
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			client.Close()
		}
	}
}
