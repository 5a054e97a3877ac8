// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
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
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/rackpulse/rackpulse/lease"
	"github.com/rackpulse/rackpulse/lease/leasepb"
	"github.com/rackpulse/rackpulse/site"
)

// authority issues certificates for a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	a := &authority{}
	a.cert = &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test CA"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign}
	a.key = newKey(t)
	a.pem = string(sign(t, a.cert, a.cert, a.key.Public(), a.key))
	return a
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func sign(t *testing.T, cert, parent *x509.Certificate, public any, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, cert, parent, public, key)
	if err != nil {
		t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// issue makes a certificate and its key, in PEM.
func (a *authority) issue(t *testing.T, name string, dns ...string) (cert, key []byte) {
	t.Helper()
	c := &x509.Certificate{SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: dns,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth}}
	k := newKey(t)
	der, err := x509.MarshalECPrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	return sign(t, c, a.cert, k.Public(), a.key), pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der})
}

// serverTLS writes the files of the registry.
func (a *authority) serverTLS(t *testing.T) ServerTLS {
	t.Helper()
	dir := t.TempDir()
	cert, key := a.issue(t, "registry")
	return ServerTLS{
		CertFile: writeFile(t, dir, "c.pem", string(cert)), KeyFile: writeFile(t, dir, "k.pem", string(key)),
		ClientCAFile: writeFile(t, dir, "ca.pem", a.pem),
	}
}

// client are credentials with a certificate of that name; "": without one.
func (a *authority) client(t *testing.T, name string, dns ...string) credentials.TransportCredentials {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(mustParse(t, a.pem))
	c := &tls.Config{RootCAs: pool, ServerName: "127.0.0.1"}
	if name != "" {
		cert, key := a.issue(t, name, dns...)
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			t.Fatal(err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return credentials.NewTLS(c)
}

func mustParse(t *testing.T, text string) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode([]byte(text))
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// sent is a token sent with each stream.
type sent string

func (s sent) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return map[string]string{"authorization": "Bearer " + string(s)}, nil
}

func (sent) RequireTransportSecurity() bool { return true }

// beatOnce beats once for a node and returns the error of it.
func beatOnce(t *testing.T, r *running, node string, opts ...grpc.DialOption) error {
	t.Helper()
	conn, err := grpc.NewClient(r.grpc, opts...)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	stream, err := leasepb.NewLeaseClient(conn).Heartbeat(t.Context())
	if err != nil {
		return err
	}
	a := &agent{stream: stream}
	a.beat.NodeId = node
	reply, err := a.once()
	if err == nil && reply.GetError() != "" { // the reason comes before the end of the stream
		if _, end := stream.Recv(); end != nil {
			return end
		}
	}
	return err
}

func TestBeatsWithCertificates(t *testing.T) {
	ca, other := newAuthority(t), newAuthority(t)
	cfg := testConfig(t.TempDir())
	cfg.GRPC.TLS = ca.serverTLS(t)
	r := start(t, cfg, Deps{})
	with := grpc.WithTransportCredentials
	if err := beatOnce(t, r, "gpu001", with(ca.client(t, "gpu001"))); err != nil {
		t.Errorf("its own name: %v", err)
	}
	if err := beatOnce(t, r, "gpu002", with(ca.client(t, "some host", "gpu002"))); err != nil {
		t.Errorf("its DNS name: %v", err)
	}
	err := beatOnce(t, r, "gpu003", with(ca.client(t, "gpu004", "*.example")))
	if status.Code(err) != codes.PermissionDenied || !strings.Contains(err.Error(), `the certificate is that of "gpu004"`) {
		t.Errorf("another node's certificate: %v", err)
	}
	if err := beatOnce(t, r, "gpu005", with(ca.client(t, ""))); status.Code(err) != codes.Unavailable {
		t.Errorf("no certificate: %v", err)
	}
	if err := beatOnce(t, r, "gpu006", with(insecureTLS(t, other))); status.Code(err) != codes.Unavailable {
		t.Errorf("certificate of another authority: %v", err)
	}
	_, page := r.request(t, "GET", "/metrics", "", "")
	for _, want := range []string{`rackpulse_registry_refused_requests_total{reason="wrong_certificate"} 1`, `rackpulse_lease_beats_refused_total{reason="unauthorized"} 1`} {
		if !strings.Contains(page, want+"\n") {
			t.Errorf("no %s in metrics", want)
		}
	}
}

// insecureTLS is a client that trusts any server, with another authority's
// certificate for gpu006.
func insecureTLS(t *testing.T, a *authority) credentials.TransportCredentials {
	t.Helper()
	cert, key := a.issue(t, "gpu006")
	pair, err := tls.X509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	return credentials.NewTLS(&tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{pair}})
}

func TestBeatsWithTokens(t *testing.T) {
	ca := newAuthority(t)
	cfg := testConfig(t.TempDir())
	cfg.GRPC.TLS = ca.serverTLS(t)
	cfg.Auth.TokensFile = tokensFile(t)
	r := start(t, cfg, Deps{})
	with := func(token string) []grpc.DialOption {
		opts := []grpc.DialOption{grpc.WithTransportCredentials(ca.client(t, ""))}
		if token != "" {
			opts = append(opts, grpc.WithPerRPCCredentials(sent(token)))
		}
		return opts
	}
	for _, tt := range []struct {
		node, token string
		want        codes.Code
	}{
		{"gpu001", gpu1Token, codes.OK},
		{"gpu001", "gpu001-next-token-0123456789", codes.OK}, // while tokens are exchanged
		{"gpu001", "", codes.PermissionDenied},
		{"gpu001", eveToken, codes.PermissionDenied}, // people do not beat
		{"gpu002", gpu1Token, codes.PermissionDenied},
		{"gpu003", gpu1Token, codes.PermissionDenied}, // has no token at all
	} {
		if err := beatOnce(t, r, tt.node, with(tt.token)...); status.Code(err) != tt.want {
			t.Errorf("%s with %q: %v, want %s", tt.node, tt.token, err, tt.want)
		}
	}
	// A certificate of the node does instead of a token.
	if err := beatOnce(t, r, "gpu003", grpc.WithTransportCredentials(ca.client(t, "gpu003"))); err != nil {
		t.Errorf("certificate instead of a token: %v", err)
	}
	// It cannot borrow another's name by a token.
	opts := []grpc.DialOption{grpc.WithTransportCredentials(ca.client(t, "gpu003")), grpc.WithPerRPCCredentials(sent(gpu1Token))}
	if err := beatOnce(t, r, "gpu001", opts...); status.Code(err) != codes.PermissionDenied {
		t.Errorf("gpu003's certificate with gpu001's token: %v", err)
	}
	_, page := r.request(t, "GET", "/metrics", "", "")
	for _, want := range []string{`{reason="wrong_node"} 3`, `{reason="no_token"} 1`, `{reason="wrong_certificate"} 1`} {
		if want = "rackpulse_registry_refused_requests_total" + want; !strings.Contains(page, want+"\n") {
			t.Errorf("no %s in metrics", want)
		}
	}
}

// TestRenewedCertificate reads the server's certificate again while it serves.
func TestRenewedCertificate(t *testing.T) {
	ca := newAuthority(t)
	cfg := testConfig(t.TempDir())
	cfg.GRPC.TLS = ca.serverTLS(t)
	cfg.GRPC.TLS.ClientCAFile = ""
	r := start(t, cfg, Deps{})
	served := func() string {
		conn, err := tls.Dial("tcp", r.grpc, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		return conn.ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	if got := served(); got != "registry" {
		t.Fatalf("certificate of %q", got)
	}
	cert, key := ca.issue(t, "registry renewed")
	dir := filepath.Dir(cfg.GRPC.TLS.CertFile)
	writeFile(t, dir, "c.pem", string(cert))
	if err := r.ReloadAuth(); err == nil {
		t.Error("a certificate without its key was taken")
	}
	if got := served(); got != "registry" {
		t.Errorf("half a renewal changed the certificate to %q", got)
	}
	writeFile(t, dir, "k.pem", string(key))
	if err := r.ReloadAuth(); err != nil {
		t.Fatal(err)
	}
	if got := served(); got != "registry renewed" {
		t.Errorf("certificate of %q after the renewal", got)
	}
}

// TestBeater runs the agents' own beater against the registry, over TLS with a
// token.
func TestBeater(t *testing.T) {
	ca := newAuthority(t)
	cfg := testConfig(t.TempDir())
	cfg.GRPC.TLS = ca.serverTLS(t)
	cfg.Auth.TokensFile = tokensFile(t)
	r := start(t, cfg, Deps{})
	told := make(chan lease.Identity, 16)
	b := &lease.Beater{
		Config: lease.BeaterConfig{Node: "gpu001", Addresses: []string{r.grpc}, Credentials: ca.client(t, ""), BeatInterval: patient.BeatInterval,
			Token: func() (string, error) { return gpu1Token, nil }},
		Inventory: func() lease.Inventory { return lease.Inventory{UUIDs: uuidsOf("gpu001", 8)} },
		Hello: func() lease.Hello {
			return lease.Hello{Roles: []string{lease.RoleGPU}, Advertise: "10.1.0.1:9400", Facts: site.Facts{Driver: "570.133.20"}}
		},
		OnIdentity: func(id lease.Identity) { told <- id },
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- b.Run(ctx) }()
	if id := <-told; id.Node["rack_id"] != "r01" {
		t.Errorf("identity %+v", id)
	}
	state := func(want string) {
		eventually(t, "gpu001 "+want, func() error {
			n, err := r.client(t, bobToken).Node(t.Context(), "gpu001")
			if err == nil && n.State != want {
				err = fmt.Errorf("state is %s: %s", n.State, n.Reason)
			}
			return err
		})
	}
	state("READY")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	state("MAINT") // a graceful stop
}
