// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"
)

// authority signs certificates for a test.
type authority struct {
	s    *small
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// newAuthority writes NAME.pem.
func newAuthority(s *small, name string) *authority {
	s.t.Helper()
	a := &authority{s: s}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	a.cert, a.key = a.make(template, nil, nil)
	a.writePEM(name+".pem", "CERTIFICATE", a.cert.Raw)
	return a
}

// make signs a certificate with parent's key, or with its own for nil.
func (a *authority) make(template, parent *x509.Certificate, parentKey *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey) {
	a.s.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.s.t.Fatal(err)
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, parentKey)
	if err != nil {
		a.s.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.s.t.Fatal(err)
	}
	return cert, key
}

func (a *authority) writePEM(name, kind string, der []byte) {
	a.s.t.Helper()
	a.s.write(name, string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})))
}

// issue writes NAME.pem and NAME.key for a server or client of that name.
func (a *authority) issue(name string) {
	a.s.t.Helper()
	cert, key := a.make(&x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore:   time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, a.cert, a.key)
	a.writePEM(name+".pem", "CERTIFICATE", cert.Raw)
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		a.s.t.Fatal(err)
	}
	a.writePEM(name+".key", "PRIVATE KEY", der)
}

// TestE2EInputWebAuth puts TLS and a password before an agent's page.
func TestE2EInputWebAuth(t *testing.T) {
	t.Parallel()
	s := prepareSmall(t, "")
	ca := newAuthority(s, "ca")
	ca.issue("agent")
	hash, err := bcrypt.GenerateFromPassword([]byte("correct horse"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	s.write("web.yml", fmt.Sprintf("tls_server_config: {cert_file: agent.pem, key_file: agent.key}\nbasic_auth_users: {prometheus: %q}\n", hash))
	s.write("agent.yml", "node: gpu001\ngpu: {source: dcgm}\n")
	addr := freePort(t)
	agent := start(t, s.dir, "agent", binary(t), "agent", "--config.file=agent.yml", "--web.listen-address="+addr, "--web.config.file=web.yml")
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool}}}
	t.Cleanup(client.CloseIdleConnections)
	ask := func(user, password string) (int, error) {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+addr+"/metrics", nil)
		if err != nil {
			return 0, err
		}
		if user != "" {
			req.SetBasicAuth(user, password)
		}
		resp, err := client.Do(req)
		if err != nil {
			return 0, err
		}
		return resp.StatusCode, resp.Body.Close()
	}
	s.eventually(10*time.Second, "the agent serves", func() error {
		_, err := ask("", "")
		return err
	})
	for _, c := range []struct {
		user, password string
		want           int
	}{{"prometheus", "correct horse", 200}, {"prometheus", "wrong", 401}, {"eve", "correct horse", 401}, {"", "", 401}, {"prometheus", "correct horse", 200}} {
		got, err := ask(c.user, c.password)
		t.Logf("user %q, password %q: %d", c.user, c.password, got)
		if err != nil || got != c.want {
			t.Errorf("user %q, password %q: %d (%v), want %d", c.user, c.password, got, err, c.want)
		}
	}
	resp, err := http.Get("http://" + addr + "/metrics") // plain text to a TLS port
	if err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("the page is there without TLS")
		}
	}
	if _, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("https://" + addr + "/metrics"); err == nil || !strings.Contains(err.Error(), "certificate") {
		t.Errorf("a client that does not know the authority: %v", err)
	}
	for _, line := range agent.said("") {
		if strings.Contains(line, "correct horse") || strings.Contains(line, string(hash)) {
			t.Errorf("the log shows a secret: %s", line)
		}
	}
}

// TestE2EInputNodeCertificates lets nodes prove who they are by certificates:
// their own is taken; another node's, another authority's and none are not.
func TestE2EInputNodeCertificates(t *testing.T) {
	t.Parallel()
	s := prepareSmall(t, "")
	ca := newAuthority(s, "ca")
	for _, name := range []string{"registry", "gpu001", "cpu001"} {
		ca.issue(name)
	}
	if err := os.Mkdir(s.dir+"/foreign", 0o700); err != nil {
		t.Fatal(err)
	}
	foreign := newAuthority(s, "foreign/ca")
	foreign.issue("foreign/cpu002")
	s.write("registry.yml", fmt.Sprintf("site_file: site.yml\nstore: {dir: ledger}\ngrpc: {listen: %q, tls: {cert_file: registry.pem, key_file: registry.key, client_ca_file: ca.pem}}\n", s.grpc))
	s.startReg()
	agent := func(node, tls string) *process {
		return s.agent(node, fmt.Sprintf("node: %s\ngpu: {source: dcgm}\nregistry: {addresses: [%q], tls: {%s}}\n", node, s.grpc, tls))
	}
	agent("gpu001", "ca_file: ca.pem, cert_file: gpu001.pem, key_file: gpu001.key")
	s.awaitState("gpu001", "READY", 20*time.Second)
	beats := s.watchLease("gpu001")

	thief := agent("gpu002", "ca_file: ca.pem, cert_file: cpu001.pem, key_file: cpu001.key")
	s.awaitSaid(10*time.Second, thief, "registry refused a beat", `not allowed to beat as \"gpu002\": the certificate is that of \"cpu001\"`)
	s.awaitSaid(10*time.Second, s.reg, "beat refused", "node=gpu002", "PermissionDenied")
	s.awaitSeries(5*time.Second, "", []string{"1"}, "rackpulse_registry_refused_requests_total", `reason="wrong_certificate"`)
	stranger := agent("cpu002", "ca_file: ca.pem, cert_file: foreign/cpu002.pem, key_file: foreign/cpu002.key")
	s.awaitSaid(10*time.Second, stranger, "connection to registry ended", "tls: ")
	bare := agent("pair1", "ca_file: ca.pem")
	s.awaitSaid(10*time.Second, bare, "connection to registry ended", "certificate required")
	deceived := agent("cpu001", "ca_file: foreign/ca.pem, cert_file: cpu001.pem, key_file: cpu001.key")
	s.awaitSaid(10*time.Second, deceived, "connection to registry ended", "certificate signed by unknown authority")
	for _, node := range []string{"gpu002", "cpu002", "pair1", "cpu001"} {
		if n := s.node(node); n.State != "" {
			t.Errorf("%s: %+v", node, n)
		}
	}
	beats.check(t, "READY")
	out := refuses(t, s.dir, "agent", "--config.file="+s.write("half.yml", fmt.Sprintf("node: gpu001\nregistry: {addresses: [%q], tls: {ca_file: ca.pem, cert_file: gpu001.pem}}\n", s.grpc)))
	if !strings.Contains(out, "registry.tls: cert_file and key_file belong together") {
		t.Errorf("half a key pair: %s", out)
	}
}
