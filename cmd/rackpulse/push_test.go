// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"

	"github.com/rackpulse/rackpulse/collector/facility"
	"github.com/rackpulse/rackpulse/collector/gpu"
	"github.com/rackpulse/rackpulse/sim"
)

// pushFile writes an agent.yml of a simulated node that pushes to a URL.
func pushFile(t *testing.T, url, more string) string {
	t.Helper()
	dir := t.TempDir()
	text := "node: gpu003\nfacility: [{device: r01-a, driver: sim, interval: 1s}]\ngpu: {source: sim}\npush:\n  url: " + url + "\n" + more
	for name, data := range map[string]string{"agent.yml": text, "password": "pw\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return filepath.Join(dir, "agent.yml")
}

// TestAgentPushes runs a simulated agent with push and looks at what arrives.
func TestAgentPushes(t *testing.T) {
	type request struct {
		user, password string
		body           []byte
	}
	requests := make(chan request, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		compressed, _ := io.ReadAll(r.Body)
		body, err := snappy.Decode(nil, compressed)
		if err != nil || r.URL.Path != "/api/v1/write" {
			t.Errorf("%s: %v", r.URL, err)
		}
		user, password, _ := r.BasicAuth()
		w.Header().Set("X-Prometheus-Remote-Write-Samples-Written", "1")
		requests <- request{user, password, body}
	}))
	defer srv.Close()
	file := pushFile(t, srv.URL+"/api/v1/write", "  interval: 200ms\n  basic_auth: {username: node, password_file: password}\n  labels: {zone: z9}\n")
	ctx, cancel := context.WithCancel(t.Context())
	var log bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- execute(ctx, []string{"agent", "--simulate", "--config.file=" + file, "--web.listen-address=127.0.0.1:0"}, stdio{nil, io.Discard, &log})
	}()
	missing := []string{
		"DCGM_FI_DEV_GPU_TEMP", "pdu_current_ampere", "up", "gpu003", "r01", "ams1", "rackpulse", "zone", "z9",
		"rackpulse_build_info", "process_cpu_seconds_total", "rackpulse_push_samples_total", "rackpulse_source_up",
	}
	for deadline := time.After(20 * time.Second); len(missing) > 0; {
		select {
		case r := <-requests:
			if r.user != "node" || r.password != "pw" {
				t.Fatalf("user %q, password %q", r.user, r.password)
			}
			var left []string
			for _, text := range missing {
				if !bytes.Contains(r.body, []byte(text)) {
					left = append(left, text)
				}
			}
			missing = left
		case <-deadline:
			cancel()
			<-ended
			t.Fatalf("not pushed: %q\n%s", missing, tailOf(log.String(), 20))
		}
	}
	cancel()
	if code := <-ended; code != 0 {
		t.Errorf("exit status %d\n%s", code, tailOf(log.String(), 20))
	}
}

// TestPushConfigCheck holds what config check-agent says of the key push.
func TestPushConfigCheck(t *testing.T) {
	for _, c := range []struct{ url, more, want string }{
		{"https://prom/api/v1/write", "  protocol: \"1.0\"\n  basic_auth: {username: n, password_file: password}\n  labels: {site: ams1}\n", "is good"},
		{"https://prom/api/v1/write", "  retries: 3\n", "retries"},
		{"https://prom/api/v1/write", "  interval: 15\n", "agent.yml:6: want a duration"},
		{"https://prom/api/v1/write", "  interval: 1ms\n", "push: interval"},
		{"https://prom/api/v1/write", "  protocol: \"3.0\"\n", "push: protocol"},
		{"https://prom/api/v1/write", "  bearer_token_file: none\n", "agent.yml: push: open"},
		{"https://prom/api/v1/write", "  tls: {ca_file: none}\n", "none"},
		{"https://prom/api/v1/write", "  labels: {__name__: x}\n", "push: labels"},
		{"prom:9090", "", "push: url"},
	} {
		var out, log bytes.Buffer
		file := pushFile(t, c.url, c.more)
		code := execute(t.Context(), []string{"config", "check-agent", "--simulate", file}, stdio{nil, &out, &log})
		want := strings.Replace(c.want, "agent.yml: push: open", "push: open "+filepath.Dir(file), 1)
		if (code == 0) != (c.want == "is good") || !strings.Contains(out.String()+log.String(), want) {
			t.Errorf("%s%s: status %d, %s%s", c.url, c.more, code, out.String(), log.String())
		}
	}
}

// TestPushIsNoTarget holds that the registry is told no address to scrape, unless
// the configuration has one.
func TestPushIsNoTarget(t *testing.T) {
	at := []net.Addr{&net.TCPAddr{IP: net.IPv4(10, 0, 0, 3), Port: 9400}}
	for _, c := range []struct {
		cfg  agentConfig
		want string
	}{
		{agentConfig{}, "10.0.0.3:9400"},
		{agentConfig{Push: &pushConfig{}}, ""},
		{agentConfig{Push: &pushConfig{}, Advertise: "gw:1"}, "gw:1"},
	} {
		a := &agent{cfg: &c.cfg}
		a.listening(at)
		if a.advertised.address != c.want {
			t.Errorf("advertised %q, want %q", a.advertised.address, c.want)
		}
	}
}

// TestPushNeedsRestart holds that a reload does not silently leave push as it was.
func TestPushNeedsRestart(t *testing.T) {
	load := func(interval string) *agentConfig {
		cfg, err := loadAgentConfig(pushFile(t, "http://prom/api/v1/write", "  interval: "+interval+"\n"))
		if err != nil {
			t.Fatal(err)
		}
		return cfg
	}
	a := &agent{cfg: load("15s"), gpu: &gpu.Runner{}, facility: &facility.Runner{}, hall: &sim.Hall{}}
	if err := a.reload(load("15s")); err == nil || !strings.Contains(err.Error(), "simulated") {
		t.Errorf("the same push: %v", err)
	}
	if err := a.reload(load("30s")); err == nil || !strings.Contains(err.Error(), "push") {
		t.Errorf("another interval of push: %v", err)
	}
	if code := execute(t.Context(), []string{"standalone", "--simulate", "--config.file=" + pushFile(t, "http://prom/w", "")}, stdio{nil, io.Discard, io.Discard}); code == 0 {
		t.Error("standalone takes push")
	}
}
