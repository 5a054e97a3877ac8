// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// brokenSites are site files that must be refused, by what is wrong with them.
var brokenSites = []struct{ what, old, next, message string }{
	{"unknown key", "{id: feed-a, line_volts", "{id: feed-a, line_volt", `site.yml:4: feeds[0].line_volt: unknown key`},
	{"no YAML", "rows: [{id: row, room: hall}]", "rows: [{id: row, room: hall}", `site.yml:2: did not find expected`},
	{"duplicate node", "{id: gpu002, rack: r01, u: 5", "{id: gpu001, rack: r01, u: 5", `site.yml:16: nodes[1].id: duplicate id "gpu001" (first in nodes[0] at line 15)`},
	{"outlet used twice", "outlets: [r01-a/2]", "outlets: [r01-a/1]", `site.yml:16: nodes[1].outlets[0]: outlet "r01-a/1" is used twice`},
	{"unknown rack", "{id: cpu001, rack: r02", "{id: cpu001, rack: r09", `site.yml:18: nodes[3].rack: unknown rack "r09"`},
}

func brokenSite(t *testing.T, old, next string) string {
	t.Helper()
	if strings.Count(smallSite, old) != 1 {
		t.Fatalf("%q is not once in the site file", old)
	}
	return strings.Replace(smallSite, old, next, 1)
}

// TestE2EInputStart starts the roles with configurations that they must refuse.
func TestE2EInputStart(t *testing.T) {
	t.Parallel()
	s := prepareSmall(t, "")
	registry := []string{"registry", "--config.file=registry.yml", "--web.listen-address=" + s.web}
	agent := []string{"agent", "--config.file=agent.yml", "--web.listen-address=127.0.0.1:0"}
	refused := func(what string, args []string, messages ...string) {
		t.Helper()
		out := refuses(t, s.dir, args...)
		last := out[max(0, strings.LastIndex(out, "rackpulse: ")):] // it may have several lines
		t.Logf("%s: %s", what, strings.TrimSpace(last))
		if !holdsAll(last, messages) {
			t.Errorf("%s: it said\n%swant %q", what, out, messages)
		}
		if strings.Contains(out, "goroutine ") || strings.Contains(out, "panic") {
			t.Errorf("%s: it crashed:\n%s", what, out)
		}
	}
	for _, b := range brokenSites {
		s.write("site.yml", brokenSite(t, b.old, b.next))
		refused("site file, "+b.what, registry, b.message)
	}
	s.write("site.yml", smallSite)
	s.write("registry.yml", s.registryYAML("leese: {ttl: 30s}\n"))
	refused("registry.yml, unknown key", registry, `registry.yml:4: unknown key "leese"`)
	s.write("registry.yml", s.registryYAML("lease: {ttl: 10s}\n"))
	refused("registry.yml, bad number", registry, "registry.yml:4", "ttl 10s")
	s.write("registry.yml", s.registryYAML("")+"auth: {tokens_file: none.yml}\n")
	refused("registry.yml, no tokens file", registry, "auth.tokens_file", "none.yml")
	s.write("agent.yml", "node: gpu001\ngpu: {source: dcgm, intervall: 1s}\n")
	refused("agent.yml, unknown key", agent, `agent.yml:2: unknown key "intervall"`)
	s.write("agent.yml", "node: gpu001\ngpu: {source: cuda}\n")
	refused("agent.yml, unknown source", agent, "gpu.source", "cuda")
	s.write("agent.yml", "facility:\n- device: r01-a\n  driver: exec\n  exec:\n    command: /bin/true\n    format: keyvalue\n    fields:\n    - {name: watts, quantity: power, scael: 2}\n")
	refused("agent.yml, unknown key of a driver", agent, "r01-a", "agent.yml:8", `unknown key "scael"`)
	s.write("agent.yml", "facility:\n- {device: r01-a, driver: exek}\n")
	refused("agent.yml, unknown driver", agent, "facility[0] r01-a", `"exek"`)

	s.write("web.yml", "tls_server_config: {cert_file: none.pem, key_file: none.key}\n")
	s.write("agent.yml", "node: gpu001\ngpu: {source: dcgm}\n")
	s.write("registry.yml", s.registryYAML(""))
	refused("web config of the agent, no certificate", append(agent, "--web.config.file=web.yml"), "web.yml", "none.pem")
	refused("web config of the registry, no certificate", append(registry, "--web.config.file=web.yml"), "web.yml", "none.pem")
	s.write("web.yml", "basic_auth_user: {eve: x}\n")
	refused("web config, unknown key", append(agent, "--web.config.file=web.yml"), "web.yml", "basic_auth_user")

	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := taken.Addr().String()
	refused("port of the agent in use", []string{"agent", "--config.file=agent.yml", "--web.listen-address=" + port}, port, "address already in use")
	refused("port of the registry's pages in use", []string{"registry", "--config.file=registry.yml", "--web.listen-address=" + port}, port, "address already in use")
	s.write("registry.yml", fmt.Sprintf("site_file: site.yml\nstore: {dir: ledger}\ngrpc: {listen: %q}\n", port))
	refused("port for beats in use", registry, port, "address already in use")
	s.write("registry.yml", s.registryYAML(""))
	s.startReg() // nothing of all that left a trace
	refused("second registry on the same ledger", []string{"registry", "--config.file=registry.yml", "--web.listen-address=127.0.0.1:0"}, "ledger")
}

// TestE2EInputReload reloads broken files: what is in force stays so.
func TestE2EInputReload(t *testing.T) {
	t.Parallel()
	s := newSmall(t, "")
	fake := newFakeGPUs(t, "gpus 8")
	config := s.gpuAgent("gpu001", "") + "facility:\n- device: r01-top\n  driver: exec\n  interval: 500ms\n" +
		"  exec: {command: /bin/echo, args: [\"t=21.5\"], format: keyvalue, fields: [{name: t, quantity: inlet_temperature}]}\n"
	agent := s.agent("gpu001", config, fake.env(fakeLibrary(t))...)
	s.awaitState("gpu001", "READY", 20*time.Second)
	inForce := func() {
		t.Helper()
		if n := s.node("gpu001"); n.State != "READY" || n.Rack != "r01" || n.LeaseUp == nil || !*n.LeaseUp {
			t.Errorf("the node: %+v", n)
		}
		s.awaitSeries(5*time.Second, "gpu001", []string{"21.5"}, "rack_inlet_temperature_celsius", `sensor="r01-top"`, `rack_id="r01"`)
		s.awaitSeries(5*time.Second, "gpu001", up(8), "rackpulse_gpu_up", `rack_id="r01"`)
	}
	beats := s.watchLease("gpu001")
	for _, b := range brokenSites {
		s.write("site.yml", brokenSite(t, b.old, b.next))
		s.reg.signal(syscall.SIGHUP)
		s.awaitSaid(5*time.Second, s.reg, "configuration not reloaded", strings.ReplaceAll(b.message, `"`, `\"`))
		s.awaitSeries(5*time.Second, "", []string{"0"}, "rackpulse_config_last_reload_successful")
		inForce()
	}
	s.write("site.yml", strings.Replace(smallSite, "{id: small}", "{id: other}", 1))
	s.reg.signal(syscall.SIGHUP)
	s.awaitSaid(5*time.Second, s.reg, "configuration not reloaded", `site id changed from \"small\" to \"other\"`)
	inForce()
	s.write("site.yml", strings.Replace(smallSite, "{id: cpu002,", "{id: cpu003,", 1))
	s.reg.signal(syscall.SIGHUP)
	s.awaitSeries(5*time.Second, "", []string{"1"}, "rackpulse_config_last_reload_successful")
	s.awaitSeries(5*time.Second, "", []string{"1"}, "rackpulse_node_info", `node="cpu003"`, `rack_id="r02"`)
	inForce()

	for _, b := range []struct{ what, old, next, message string }{
		{"unknown key", "interval: 500ms", "intervall: 500ms", `agent.yml:`},
		{"bad value", "interval: 500ms", "interval: 5ms", "facility[0] r01-top: interval 5ms"},
		{"other node", "node: gpu001", "node: gpu002", "node and registry cannot change without a restart"},
		{"other counters", "open_timeout: 5s", "open_timeout: 5s, counters_file: none.csv", "none.csv"},
	} {
		s.write("gpu001.yml", strings.Replace(config, b.old, b.next, 1))
		agent.signal(syscall.SIGHUP)
		message := strings.ReplaceAll(b.message, "agent.yml:", "gpu001.yml:")
		s.awaitSaid(5*time.Second, agent, "configuration not reloaded", message)
		s.awaitSeries(5*time.Second, "gpu001", []string{"0"}, "rackpulse_config_last_reload_successful")
		inForce()
	}
	s.write("gpu001.yml", strings.Replace(strings.Replace(config, "r01-top", "r01-out", 1), "inlet_temperature", "outlet_temperature", 1))
	agent.signal(syscall.SIGHUP)
	s.awaitSeries(5*time.Second, "gpu001", []string{"1"}, "rackpulse_config_last_reload_successful")
	s.awaitSeries(15*time.Second, "gpu001", []string{"21.5"}, "rack_outlet_temperature_celsius", `sensor="r01-out"`, `rack_id="r01"`)
	if got := series(s.fetch("gpu001"), "rack_inlet_temperature_celsius"); len(got) > 0 {
		t.Errorf("the device that was taken out: %q", got)
	}
	beats.check(t, "READY")
	if got := series(s.fetch("gpu001"), "rackpulse_gpu_child_restarts_total"); !slices.Equal(got, []string{"0", "0", "0"}) {
		t.Errorf("the GPU library was touched: %q", got)
	}
}
