// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/testtool"
)

// TestE2EBreaches lets a GPU of a real agent get hot, then count an uncorrectable
// memory error: the node is limited, then isolated, with the GPU and the numbers
// named, and sound again when both are gone.
func TestE2EBreaches(t *testing.T) {
	t.Parallel()
	library := fakeLibrary(t)
	s := newSmall(t, "lease: {beat_interval: 1s, ttl: 8s, cooldown: 6s}\n")
	fake := newFakeGPUs(t, "gpus 8")
	s.agent("gpu001", "node: gpu001\nregistry: {addresses: ['"+s.grpc+"']}\ngpu: {source: dcgm, slow_interval: 1s}\n", fake.env(library)...)
	s.awaitState("gpu001", "READY", 30*time.Second)
	check := func(state, reason string) {
		t.Helper()
		s.awaitState("gpu001", state, 30*time.Second)
		n := s.node("gpu001")
		t.Logf("%s: %s", n.State, n.Reason)
		if !strings.Contains(n.Reason, reason) || n.Schedulable || n.LeaseUp == nil || !*n.LeaseUp {
			t.Errorf("reason %q, schedulable %t, lease up %v; want %q", n.Reason, n.Schedulable, n.LeaseUp, reason)
		}
	}
	fake.say("gpus 8", "value 3 150 91")
	check("LIMITED", "breach of gpu_hot "+uuid(3)+" 91 C of 8")
	fake.say("gpus 8", "value 3 150 91", "value 3 311 2")
	check("ISOLATED", "ecc_uncorrected "+uuid(3)+" 2")
	fake.say("gpus 8")
	s.awaitState("gpu001", "READY", 40*time.Second)
}

// TestE2EAlertIsolates lets a real Alertmanager tell the registry of an alert: the
// node is isolated while it fires, and sound again when it is resolved.
func TestE2EAlertIsolates(t *testing.T) {
	t.Parallel()
	const token = "alertmanager-0123456789"
	s := prepareSmall(t, "lease: {beat_interval: 1s, ttl: 8s, cooldown: 3s}\nauth: {tokens_file: tokens.yml}\n")
	s.token = token
	s.write("tokens.yml", "- {token: "+token+", role: operate, name: alertmanager}\n")
	s.write("token", token)
	s.write("am.yml", "route: {receiver: registry, group_wait: 1s, group_interval: 1s, repeat_interval: 5m}\n"+
		"receivers: [{name: registry, webhook_configs: [{url: '"+s.stack.registry+"/api/v1/alerts', send_resolved: true, http_config: {authorization: {credentials_file: token}}}]}]\n")
	s.startReg()
	newCrew(s, "cpu001")
	s.awaitState("cpu001", "READY", 20*time.Second)
	am := freePort(t)
	start(t, s.dir, "alertmanager", testtool.Binary(t, "alertmanager"), "--config.file=am.yml", "--storage.path=am-data", "--web.listen-address="+am, "--cluster.listen-address=")
	send := func(ends time.Time) {
		t.Helper()
		body := fmt.Sprintf(`[{"labels":{"alertname":"NodeDiskBad","node":"cpu001"},"annotations":{"rackpulse_breach":"ecc_uncorrected"},"endsAt":%q}]`, ends.Format(time.RFC3339))
		s.eventually(20*time.Second, "Alertmanager takes the alert", func() error {
			resp, err := http.Post("http://"+am+"/api/v2/alerts", "application/json", strings.NewReader(body))
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				return fmt.Errorf("%s", resp.Status)
			}
			return nil
		})
	}
	send(time.Now().Add(time.Hour))
	s.awaitState("cpu001", "ISOLATED", 30*time.Second)
	if n := s.node("cpu001"); n.Reason != "breach of ecc_uncorrected alert NodeDiskBad" {
		t.Errorf("reason %q", n.Reason)
	}
	send(time.Now().Add(-time.Second))
	s.awaitState("cpu001", "READY", 30*time.Second)
}
