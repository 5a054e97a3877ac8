// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/query"
	"github.com/rackpulse/rackpulse/registry"
	"github.com/rackpulse/rackpulse/site"
	"github.com/rackpulse/rackpulse/testtool"
)

// stack is a registry, agents, Prometheus, Alertmanager and node_exporter, all
// real processes on loopback.
type stack struct {
	t        *testing.T
	dir      string
	site     *site.Site
	hook     *hook
	registry string // base URL
	token    string // of its API; empty: none is needed
	prom     query.Querier
	promURL  string
	am       string
	agents   map[string]*process
	started  time.Time
}

type stackConfig struct {
	scenario string
	speed    float64
	onset    time.Duration // physics
	// nodes limits the GPU agents to these; nil: all of the site.
	nodes []string
}

// starting lets one hall start at a time: that twenty processes start at once is
// enough for two cores.
var starting sync.Mutex

func newStack(t *testing.T, cfg stackConfig) *stack {
	t.Helper()
	starting.Lock()
	defer starting.Unlock()
	s := &stack{t: t, dir: t.TempDir(), hook: newHook(t), agents: map[string]*process{}, started: time.Now()}
	s.writeSite(s.startNodeExporter())
	grpc := s.startRegistry()
	s.startAgents(cfg, grpc)
	s.startAlertmanager()
	s.startPrometheus()
	s.waitReady()
	return s
}

// binary is the program under test, made by "make build".
func binary(t *testing.T) string {
	t.Helper()
	path := filepath.Join(testtool.Root(), "build", "rackpulse")
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v; run 'make build'", err)
	}
	return path
}

func (s *stack) write(name, text string) string {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// startNodeExporter runs one node_exporter on four addresses of this machine, so
// that each node of a rack has one of its own, and returns its port.
func (s *stack) startNodeExporter() string {
	_, port, _ := net.SplitHostPort(freePort(s.t))
	args := []string{"--no-collector.systemd", "--log.level=error"}
	for i := 1; i <= 4; i++ {
		args = append(args, fmt.Sprintf("--web.listen-address=127.0.0.%d:%s", i, port))
	}
	start(s.t, s.dir, "node_exporter", testtool.Binary(s.t, "prometheus-node-exporter"), args...)
	return port
}

// writeSite takes the example hall and gives every node its node_exporter.
func (s *stack) writeSite(port string) {
	data, err := os.ReadFile(filepath.Join(testtool.Root(), "site", "example.yml"))
	if err != nil {
		s.t.Fatal(err)
	}
	lines := strings.Split(string(data), "\n")
	for i, line := range lines {
		hosts := "127.0.0.[1-4]"
		if strings.HasPrefix(line, "- {id: ws01") {
			hosts = "127.0.0.1"
		} else if !strings.HasPrefix(line, "- {id: \"gpu[") {
			continue
		}
		lines[i] = strings.TrimSuffix(line, "}") + fmt.Sprintf(", exporters: {node_exporter: %q}}", hosts+":"+port)
	}
	path := s.write("site.yml", strings.Join(lines, "\n"))
	if s.site, err = site.Load(path); err != nil {
		s.t.Fatal(err)
	}
}

func (s *stack) startRegistry() string {
	web, grpc := freePort(s.t), freePort(s.t)
	s.registry = "http://" + web
	s.write("registry.yml", fmt.Sprintf("site_file: site.yml\ngrpc: {listen: %q}\nstore: {kind: bolt, dir: ledger}\nprometheus: {url: %q}\n", grpc, "http://"+s.promAddr()))
	start(s.t, s.dir, "registry", binary(s.t), "registry", "--config.file=registry.yml", "--web.listen-address="+web)
	return grpc
}

func (s *stack) promAddr() string {
	if s.promURL == "" {
		s.promURL = "http://" + freePort(s.t)
	}
	return strings.TrimPrefix(s.promURL, "http://")
}

// startAgents starts an agent for each node and ONE facility agent for all racks.
func (s *stack) startAgents(cfg stackConfig, grpc string) {
	simulate := fmt.Sprintf("simulate: {site_file: site.yml, scenario: %q, speed: %v, onset: %s, epoch: %s}\n",
		cfg.scenario, max(cfg.speed, 1), cfg.onset, s.started.UTC().Format(time.RFC3339))
	nodes := cfg.nodes
	if nodes == nil {
		for _, n := range s.site.Nodes {
			nodes = append(nodes, n.ID)
		}
	}
	for _, node := range nodes {
		s.write(node+".yml", fmt.Sprintf("node: %s\nstate_dir: state-%s\nregistry: {addresses: [%q], leave_on_stop: true}\n", node, node, grpc)+simulate)
		s.startAgent(node)
	}
	s.write("facility.yml", fmt.Sprintf("node: facility1\ngpu: {source: none}\nregistry: {addresses: [%q]}\n", grpc)+simulate)
	s.startAgent("facility")
}

// startAgent starts, or starts again, the agent of a configuration file.
func (s *stack) startAgent(name string) {
	s.agents[name] = start(s.t, s.dir, name, binary(s.t), "agent", "--config.file="+name+".yml", "--simulate", "--web.listen-address="+freePort(s.t))
}

// startAlertmanager runs the shipped configuration; only the addresses that it
// sends to are those of the hook.
func (s *stack) startAlertmanager() {
	root := testtool.Root()
	data, err := os.ReadFile(filepath.Join(root, "alerting", "alertmanager.yml"))
	if err != nil {
		s.t.Fatal(err)
	}
	text := strings.NewReplacer(
		"global:\n", "global:\n  pagerduty_url: "+s.hook.url+"/pagerduty\n",
		"smtp_smarthost: mail.example.com:587", "smtp_smarthost: 127.0.0.1:9",
		"/etc/alertmanager/secrets/", filepath.Join(s.dir, "am", "secrets")+"/",
		"templates/*.tmpl", filepath.Join(root, "alerting", "templates", "*.tmpl"),
	).Replace(string(data))
	s.write("am/alertmanager.yml", text)
	for name, value := range map[string]string{
		"slack_url": s.hook.url + "/slack", "webhook_url": s.hook.url + "/webhook", "deadman_url": s.hook.url + "/deadman",
		"smtp_password": "x", "pagerduty_key_facility": "x", "pagerduty_key_compute": "x", "pagerduty_key_network": "x",
	} {
		s.write("am/secrets/"+name, value)
	}
	addr := freePort(s.t)
	s.am = "http://" + addr
	start(s.t, s.dir, "alertmanager", testtool.Binary(s.t, "alertmanager"), "--config.file=am/alertmanager.yml",
		"--storage.path=am/data", "--web.listen-address="+addr, "--cluster.listen-address=")
}

// startPrometheus runs the shipped scrape configuration against the registry's
// discovery, with the shipped rules.
func (s *stack) startPrometheus() {
	root := testtool.Root()
	data, err := os.ReadFile(filepath.Join(root, "deploy", "compose", "prometheus", "prometheus.yml"))
	if err != nil {
		s.t.Fatal(err)
	}
	text := strings.NewReplacer(
		"http://registry:9401", s.registry,
		"alertmanager:9093", strings.TrimPrefix(s.am, "http://"),
		"rules/*.rules.yml", filepath.Join(root, "rules", "generated", "*.rules.yml"),
		"refresh_interval: 15s", "refresh_interval: 2s", "refresh_interval: 30s", "refresh_interval: 2s",
		"scrape_interval: 10s", "scrape_interval: 5s",
	).Replace(string(data))
	s.write("prometheus.yml", text)
	addr := s.promAddr()
	start(s.t, s.dir, "prometheus", testtool.Binary(s.t, "prometheus"), "--config.file=prometheus.yml",
		"--storage.tsdb.path=promdata", "--web.listen-address="+addr, "--web.enable-lifecycle")
	if s.prom, err = query.NewHTTP(query.Config{URL: s.promURL}); err != nil {
		s.t.Fatal(err)
	}
}

// waitReady waits until Prometheus has scraped every agent.
func (s *stack) waitReady() {
	s.t.Helper()
	want := len(s.agents) + 1 // and the registry
	s.eventually(90*time.Second, "all targets are up", func() error {
		got, err := s.value(`sum(up{job="rackpulse"})`)
		if err == nil && got != float64(want) {
			err = fmt.Errorf("%v targets are up, want %d", got, want)
		}
		return err
	})
}

// value evaluates an expression that yields one sample.
func (s *stack) value(expr string) (float64, error) {
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	samples, err := s.prom.Instant(ctx, expr, time.Now())
	if err != nil {
		return 0, err
	}
	if len(samples) != 1 {
		return 0, fmt.Errorf("%s: %d samples, want 1", expr, len(samples))
	}
	return samples[0].Value, nil
}

// byLabel evaluates an expression into a map by one label.
func (s *stack) byLabel(expr, label string) map[string]float64 {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 10*time.Second)
	defer cancel()
	samples, err := s.prom.Instant(ctx, expr, time.Now())
	if err != nil {
		s.t.Fatalf("%s: %v", expr, err)
	}
	out := map[string]float64{}
	for _, sample := range samples {
		out[sample.Labels[label]] = sample.Value
	}
	return out
}

// eventually asks until check has no error.
func (s *stack) eventually(limit time.Duration, what string, check func() error) {
	s.t.Helper()
	deadline := time.Now().Add(limit)
	var err error
	for time.Now().Before(deadline) {
		if err = check(); err == nil {
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
	s.t.Fatalf("not within %s: %s: %v", limit, what, err)
}

// node asks the registry for a node's lease.
func (s *stack) node(id string) registry.Node {
	s.t.Helper()
	req, err := http.NewRequest(http.MethodGet, s.registry+"/api/v1/nodes/"+id, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	if s.token != "" {
		req.Header.Set("Authorization", "Bearer "+s.token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	var st registry.Node
	if err := json.NewDecoder(resp.Body).Decode(&st); err != nil {
		s.t.Fatal(err)
	}
	return st
}
