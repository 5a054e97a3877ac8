// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/query"
	"github.com/rackpulse/rackpulse/testtool"
)

// writeFile writes a file that only its owner reads.
func writeFile(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestLoad(t *testing.T) {
	dir := t.TempDir()
	path := writeFile(t, dir, "registry.yml", `
site_file: site.yml
advertise: reg1:9401
grpc: {listen: "10.0.0.1:9402", tls: {cert_file: c.pem, key_file: /etc/k.pem, client_ca_file: ca.pem}}
store: {kind: bolt, dir: data}
lease: {beat_interval: 2s, ttl: 20s}
actions: {mode: observe}
prometheus:
  url: https://prom:9090
  basic_auth: {username: rp, password_file: pw}
auth: {tokens_file: tokens.yml}
`)
	c, err := Load(path)
	if err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{
		c.SiteFile: "site.yml", c.GRPC.TLS.CertFile: "c.pem", c.GRPC.TLS.ClientCAFile: "ca.pem", c.Store.Dir: "data",
		c.Prometheus.BasicAuth.PasswordFile: "pw", c.Auth.TokensFile: "tokens.yml",
	} {
		if got != filepath.Join(dir, want) {
			t.Errorf("path %q, want %q in %s", got, want, dir)
		}
	}
	if c.GRPC.TLS.KeyFile != "/etc/k.pem" || c.GRPC.Listen != "10.0.0.1:9402" || c.Advertise != "reg1:9401" {
		t.Errorf("%+v", c)
	}
	if c.Lease.BeatInterval != 2*time.Second || c.Lease.TTL != 20*time.Second || c.Lease.SuspectMisses != 3 || c.Lease.Cooldown != time.Minute {
		t.Errorf("lease %+v", c.Lease)
	}

	c, err = Load(writeFile(t, dir, "least.yml", "site_file: /s.yml\n"))
	if err != nil {
		t.Fatal(err)
	}
	if c.GRPC.Listen != ":9402" || c.Store.Dir != "/var/lib/rackpulse" || c.Store.Kind != "bolt" || c.Actions.Mode != "observe" || c.SiteFile != "/s.yml" {
		t.Errorf("defaults %+v", c)
	}
}

// TestComposeFile loads the file that the compose project mounts.
func TestComposeFile(t *testing.T) {
	c, err := Load(filepath.Join(testtool.Root(), "deploy", "compose", "rackpulse", "registry.yml"))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.checkExposed(c.GRPC.Listen, false); err != nil {
		t.Error(err)
	}
}

func TestLoadRefuses(t *testing.T) {
	for _, tt := range []struct{ name, text, want string }{
		{"no site", "grpc: {listen: ':1'}", "r.yml: site_file is missing"},
		{"unknown key", "site_file: s\nsitefile: s", `r.yml:2: unknown key "sitefile"`},
		{"etcd endpoint", "site_file: s\nstore:\n  kind: etcd\n  endpoints: [a]", `r.yml:4: store.endpoints: "a", want http://HOST:PORT`},
		{"etcd nowhere", "site_file: s\nstore:\n  kind: etcd", "r.yml:2: store.endpoints: 0 endpoints, 1 to 16 are wanted"},
		{"etcd unreachable", "site_file: s\nstore: {kind: etcd, endpoints: ['http://e:2379']}", "grpc.advertise: is missing"},
		{"etcd password in clear", "site_file: s\nstore: {kind: etcd, endpoints: ['http://e:2379'], username: u, password_file: p}", "r.yml:2: store.username: the password would travel in clear"},
		{"etcd user alone", "site_file: s\nstore: {kind: etcd, endpoints: ['https://e:2379'], username: u}", "r.yml:2: store: username and password_file belong together"},
		{"etcd tls in clear", "site_file: s\nstore: {kind: etcd, endpoints: ['http://e:2379'], tls: {ca_file: c}}", "r.yml:2: store.tls: wants https://"},
		{"bolt user", "site_file: s\nstore: {username: u}", "r.yml:2: store: tls, username and password_file are for kind etcd"},
		{"bolt advertise", "site_file: s\ngrpc: {advertise: 'reg1:9402'}", "r.yml:2: grpc.advertise: is for several registries"},
		{"other store", "site_file: s\nstore: {kind: sqlite}", `r.yml:2: store.kind: unknown kind "sqlite", want bolt or etcd`},
		{"bolt endpoints", "site_file: s\nstore: {endpoints: [a]}", "r.yml:2: store.endpoints: kind bolt is a local file"},
		{"soft", "site_file: s\nactions:\n\n  mode: soft", "r.yml:2: actions: a mode that acts wants targets"},
		{"class", "site_file: s\nactions: {classes: {h100: {mode: hrad}}}", `r.yml:2: actions.classes.h100.mode: unknown mode "hrad"`},
		{"witness", "site_file: s\nactions: {witness: maybe}", `r.yml:2: actions.witness: unknown witness "maybe"`},
		{"mode", "site_file: s\nactions: {mode: act}", `r.yml:2: actions.mode: unknown mode "act"`},
		{"rate", "site_file: s\nactions: {max_per_minute: 601}", "r.yml:2: actions.max_per_minute: 601 is not within"},
		{"lease", "site_file: s\nlease: {ttl: 1s}", "r.yml:2: lease: lease: ttl 1s is not above the time to suspicion"},
		{"listen", "site_file: s\ngrpc: {listen: nowhere}", `r.yml:2: grpc.listen: "nowhere" is no host:port`},
		{"half a pair", "site_file: s\ngrpc: {tls: {cert_file: c}}", "r.yml:2: grpc.tls: cert_file and key_file belong together"},
		{"ca alone", "site_file: s\ngrpc:\n  tls:\n    client_ca_file: c", "r.yml:4: grpc.tls.client_ca_file: client certificates need cert_file"},
		{"advertise", "site_file: s\nadvertise: 0.0.0.0:9401", `r.yml:2: advertise: host "0.0.0.0" is not an address of one machine`},
		{"url", "site_file: s\nprometheus: {url: prom:9090}", "r.yml:2: prometheus.url: "},
		{"password in url", "site_file: s\nprometheus: {url: 'http://u:hunter2@p'}", "r.yml:2: prometheus.url: holds a user"},
		{"both ways in", "site_file: s\nprometheus: {url: 'http://p', bearer_token_file: t, basic_auth: {username: u, password_file: p}}",
			"r.yml:2: prometheus: basic_auth and bearer_token_file exclude each other"},
		{"no password file", "site_file: s\nprometheus: {url: 'http://p', basic_auth: {username: u}}", "r.yml:2: prometheus.basic_auth: wants username and password_file"},
		{"no url", "site_file: s\nprometheus: {bearer_token_file: t}", "r.yml:2: prometheus: url is missing"},
		{"inline password", "site_file: s\nprometheus: {url: 'http://p', basic_auth: {username: u, password: x}}", `r.yml:2: unknown key "password"`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			_, err := Load(writeFile(t, dir, "r.yml", tt.text+"\n"))
			if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), dir+"/", ""), tt.want) {
				t.Fatalf("got %v\nwant %s", err, tt.want)
			}
			if strings.Contains(err.Error(), "hunter2") {
				t.Errorf("shows a password: %v", err)
			}
		})
	}
	if _, err := Load(filepath.Join(t.TempDir(), "none.yml")); err == nil {
		t.Error("a missing file is no error")
	}
}

func TestExposed(t *testing.T) {
	cert := ServerTLS{CertFile: "c", KeyFile: "k"}
	both := ServerTLS{CertFile: "c", KeyFile: "k", ClientCAFile: "ca"}
	for _, tt := range []struct {
		listen   string
		tls      ServerTLS
		tokens   bool
		insecure bool
		want     string
	}{
		{listen: "127.0.0.1:9402"},
		{listen: "localhost:9402", tokens: true},
		{listen: "[::1]:9402"},
		{listen: ":9402", want: "any machine could beat for any node"},
		{listen: "0.0.0.0:9402", tls: cert, want: "any machine could beat for any node"},
		{listen: "[::]:9402", tls: both},
		{listen: "10.0.0.1:9402", tls: cert, tokens: true},
		{listen: "10.0.0.1:9402", tokens: true, want: "tokens would travel in clear text"},
		{listen: "reg1:9402", insecure: true},
		{listen: "reg1:9402", tokens: true, insecure: true},
	} {
		c := Config{GRPC: GRPCConfig{Listen: tt.listen, TLS: tt.tls, AllowInsecure: tt.insecure}}
		err := c.checkExposed(tt.listen, tt.tokens)
		if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: %v", tt, err)
		}
	}
	// New refuses, too, and names the way out.
	_, err := New(Config{Store: StoreConfig{Dir: t.TempDir()}}, Deps{Site: example(t)})
	if err == nil || !strings.Contains(err.Error(), "grpc.allow_insecure: true") {
		t.Errorf("New on :9402 without proof: %v", err)
	}
}

func TestQuerierFromConfig(t *testing.T) {
	dir := t.TempDir()
	if q, err := (PrometheusConfig{}).Querier(); q != nil || err != nil {
		t.Errorf("no url: %v, %v", q, err)
	}
	pw := writeFile(t, dir, "pw", "hunter2\n")
	var q query.Querier
	q, err := PrometheusConfig{URL: "http://127.0.0.1:1", BasicAuth: &BasicAuth{Username: "u", PasswordFile: pw}}.Querier()
	if err != nil || q == nil {
		t.Errorf("basic auth: %v", err)
	}
	if _, err := (PrometheusConfig{URL: "http://p", BearerTokenFile: pw}).Querier(); err != nil {
		t.Errorf("token: %v", err)
	}
	if err := os.Chmod(pw, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := (PrometheusConfig{URL: "http://p", BearerTokenFile: pw}).Querier(); err == nil || !strings.Contains(err.Error(), "everybody may read") {
		t.Errorf("open token file: %v", err)
	}
	if _, err := (PrometheusConfig{URL: "http://p", TLS: ClientTLS{CAFile: filepath.Join(dir, "none")}}).Querier(); err == nil {
		t.Error("a missing CA is no error")
	}
}
