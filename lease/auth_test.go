// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"math/big"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/credentials"
)

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	var err error
	if a.key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "ca"}, NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *authority) issue(t *testing.T, common string, names ...string) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: common}, DNSNames: names, NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func TestWhoMayBeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ca := newAuthority(t)
		pool := x509.NewCertPool()
		pool.AddCert(ca.cert)
		b := start(t, t.TempDir(), func(d *Deps) {
			d.Credentials = credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{ca.issue(t, "", "registry")},
				ClientCAs: pool, ClientAuth: tls.VerifyClientCertIfGiven})
			d.Authorize = Authorizer{Token: func(id string) (string, bool) {
				return map[string]string{"gpu001": "s3cret", "gpu002": ""}[id], id != "gpu003"
			}}.Authorize
		})
		try := func(want bool, node, token string, certs ...tls.Certificate) {
			t.Helper()
			a := beatTo(t, oneRegistry(b.ln), func(x *Beater) {
				x.Config.Node = node
				x.Config.Credentials = credentials.NewTLS(&tls.Config{RootCAs: pool, ServerName: "registry", Certificates: certs})
				if token != "" {
					x.Config.Token = func() (string, error) { return token, nil }
				}
			}, "reg1:9402")
			time.Sleep(time.Second)
			if got := a.acks.Load() > 0; got != want {
				t.Errorf("%s with token %q and %d certificates: accepted %v, want %v", node, token, len(certs), got, want)
			}
			if err := a.stop(); err != nil {
				t.Error(err)
			}
		}
		try(true, "gpu001", "s3cret")
		try(false, "gpu001", "wrong")
		try(false, "gpu001", "")
		try(false, "gpu002", "") // an empty token is none
		try(true, "gpu003", "", ca.issue(t, "", "gpu003"))
		try(true, "gpu003", "", ca.issue(t, "gpu003"))
		try(false, "gpu003", "", ca.issue(t, "gpu003", "gpu004")) // DNS names win
		try(false, "gpu003", "", ca.issue(t, "", "gpu004"))
		if n := len(b.srv.Nodes()); n != 2 {
			t.Errorf("%d nodes have leases, want gpu001 and gpu003", n)
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
	if err := (Authorizer{}).Authorize(context.Background(), "gpu001"); err == nil {
		t.Error("a peer without anything may beat")
	}
}
