// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/testtool"
)

// secureEtcd starts an etcd that wants certificates and users. The user
// rackpulse may use the keys of the example site only. It returns the
// configuration of a store there.
func secureEtcd(t *testing.T) StoreConfig {
	t.Helper()
	program := testtool.EtcdProgram(t)
	a, dir := newAuthority(t), t.TempDir()
	ca := writeFile(t, dir, "ca.pem", a.pem)
	pair := func(name string) (cert, key string) {
		c, k := a.issue(t, name)
		return writeFile(t, dir, name+".pem", string(c)), writeFile(t, dir, name+".key", string(k))
	}
	serverCert, serverKey := pair("etcd")
	cert, key := pair("client")
	cmd, url, err := testtool.StartEtcd(program, dir, "https", "--cert-file="+serverCert, "--key-file="+serverKey, "--client-cert-auth", "--trusted-ca-file="+ca)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	mine, err := tls.LoadX509KeyPair(cert, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(mustParse(t, a.pem))
	admin, err := clientv3.New(clientv3.Config{Endpoints: []string{url}, TLS: &tls.Config{RootCAs: pool, Certificates: []tls.Certificate{mine}}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close()
	ctx := t.Context()
	prefix := "/rackpulse/" + example(t).ID + "/"
	for _, do := range []func() error{
		func() error { _, err := admin.UserAdd(ctx, "root", "root-0123"); return err },
		func() error { _, err := admin.UserGrantRole(ctx, "root", "root"); return err },
		func() error { _, err := admin.RoleAdd(ctx, "rackpulse"); return err },
		func() error {
			_, err := admin.RoleGrantPermission(ctx, "rackpulse", prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
			return err
		},
		func() error { _, err := admin.UserAdd(ctx, "rackpulse", "hunter22"); return err },
		func() error { _, err := admin.UserGrantRole(ctx, "rackpulse", "rackpulse"); return err },
		func() error { _, err := admin.AuthEnable(ctx); return err },
	} {
		if err := do(); err != nil {
			t.Fatal(err)
		}
	}
	return StoreConfig{
		Kind: storeEtcd, Endpoints: []string{url}, Dir: filepath.Join(dir, "addresses"), Username: "rackpulse",
		PasswordFile: writeFile(t, dir, "password", "hunter22\n"), TLS: ClientTLS{CAFile: ca, CertFile: cert, KeyFile: key},
	}
}

// TestSecureEtcd runs two registries over an etcd with TLS, a user and a role:
// one leads, one follows; the follower takes over when the leader stops.
func TestSecureEtcd(t *testing.T) {
	cfg := testConfig("")
	cfg.Store = secureEtcd(t)
	cfg.Advertise, cfg.GRPC.Advertise = "reg1:9401", "reg1:9402"
	first := start(t, cfg, Deps{})
	cfg.Store.Dir = t.TempDir()
	cfg.Advertise, cfg.GRPC.Advertise = "reg2:9401", "reg2:9402"
	second, err := New(cfg, Deps{Site: example(t)})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	ctx, stop := context.WithCancel(context.Background())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { ended <- second.Run(ctx, ln) }()
	api := httptest.NewServer(second.Handler())
	defer api.Close()
	follower := &running{Registry: second, api: api}
	eventually(t, "the second follows", func() error {
		if code, body := follower.request(t, http.MethodGet, "/-/ready", "", ""); code != http.StatusServiceUnavailable || !strings.Contains(body, "the leader is reg1:9401") {
			return &StatusError{code, body}
		}
		return nil
	})
	for _, path := range []string{"/api/v1/nodes", "/api/v1/events", "/api/v1/outbox", "/api/v1/sd/agents", "/api/v1/sd/exporters?job=x&port=1", "/api/v1/view"} {
		resp, body := follower.ask(t, http.MethodGet, path, "", "")
		if resp.StatusCode != http.StatusTemporaryRedirect || resp.Header.Get("Location") != "http://reg1:9401"+path || !strings.Contains(body, "the leader is reg1:9401") {
			t.Errorf("%s of the follower: %d to %q, %s", path, resp.StatusCode, resp.Header.Get("Location"), body)
		}
	}
	var groups []TargetGroup
	first.get(t, "/api/v1/sd/agents", &groups)
	if len(groups) != 1 || groups[0].Labels["instance"] != "reg1:9401" {
		t.Errorf("targets %+v", groups)
	}
	if err := first.stop(); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	eventually(t, "the second leads", func() error {
		if !second.Ready() {
			return second.notReady()
		}
		return nil
	})
	if d := time.Since(stopped); d > 5*time.Second {
		t.Errorf("handed over after %s, not at once", d)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	refusedByEtcd(t, cfg)
}

// refusedByEtcd holds what is refused: another password, no certificate, keys of
// another site.
func refusedByEtcd(t *testing.T, cfg Config) {
	t.Helper()
	bad := cfg
	bad.Store.PasswordFile = writeFile(t, t.TempDir(), "password", "wrong-0123\n")
	_, err := OpenLedger(bad, example(t).ID, nil)
	if err == nil || !strings.Contains(err.Error(), cfg.Store.Endpoints[0]) || strings.Contains(err.Error(), "wrong-0123") {
		t.Errorf("another password: %v", err)
	}
	other, err := OpenLedger(cfg, "other", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if _, _, err := other.Load(t.Context()); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("keys of another site: %v", err)
	}
	own, err := OpenLedger(cfg, example(t).ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if _, err := own.Events(t.Context(), ledger.Query{}); err != nil {
		t.Error(err)
	}
}
