// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/query"
	"github.com/rackpulse/rackpulse/testtool"
)

// TestE2ERecipes runs recipes with the real Prometheus: two sites with the same rack
// ids, one found by HTTP and one by files, a Prometheus that federates both, and an
// agent that writes to a store.
func TestE2ERecipes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Symlink(filepath.Join(testtool.Root(), "rules", "generated"), filepath.Join(dir, "rules")); err != nil {
		t.Fatal(err)
	}
	put := func(name, text string) string {
		t.Helper()
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	put("secrets/rackpulse-read", "nobody asks for it")
	sites := map[string]string{}
	for _, id := range []string{"ams1", "fra1"} {
		sites[id] = freePort(t)
		put(id+"-site.yml", strings.Replace(smallHall, "id: ams1", "id: "+id, 1))
		config := put(id+".yml", "node: here\nsite_file: "+id+"-site.yml\n")
		start(t, dir, "standalone "+id, binary(t), "standalone", "--simulate", "--config.file="+config, "--web.listen-address="+sites[id], "--scenario=cooling-loss", "--speed=5")
	}
	fast := strings.NewReplacer("scrape_interval: 15s", "scrape_interval: 3s", "evaluation_interval: 15s", "evaluation_interval: 3s",
		"scrape_interval: 30s", "scrape_interval: 3s", "scrape_timeout: 25s", "scrape_timeout: 3s", "refresh_interval: 15s", "refresh_interval: 2s", "refresh_interval: 30s", "refresh_interval: 2s")
	prometheus := func(name, text string, flags ...string) (string, query.Querier) {
		t.Helper()
		addr := freePort(t)
		args := append([]string{"--config.file=" + put("prometheus-"+name+".yml", fast.Replace(text)), "--web.listen-address=" + addr}, flags...)
		start(t, dir, "prometheus "+name, testtool.Binary(t, "prometheus"), args...)
		q, err := query.NewHTTP(query.Config{URL: "http://" + addr})
		if err != nil {
			t.Fatal(err)
		}
		return addr, q
	}
	at := strings.NewReplacer("http://registry:9401", "http://"+sites["ams1"]).Replace
	ams, _ := prometheus("ams1", at(recipe(t, "http.yml")), "--storage.tsdb.path=ams1")

	awaitPage(t, "http://"+sites["fra1"]+"/api/v1/sd/agents", func(text string) { put("targets/agents.json", text) })
	put("targets/node_exporter.json", "[]")
	fra, _ := prometheus("fra1", strings.ReplaceAll(recipe(t, "file.yml"), "ams1", "fra1"), "--storage.tsdb.path=fra1")

	_, global := prometheus("global", strings.NewReplacer("prometheus.ams1.example.com:9090", ams, "prometheus.fra1.example.com:9090", fra).Replace(recipe(t, "federation.yml")), "--storage.tsdb.path=global")
	store, stored := prometheus("store", "scrape_configs: []\n", "--storage.tsdb.path=store", "--web.enable-remote-write-receiver")
	prometheus("agent", strings.ReplaceAll(at(recipe(t, "agent.yml")), "store:9090", store), "--agent", "--storage.agent.path=agent")

	want := func(q query.Querier, expr string, value float64) {
		t.Helper()
		holds(t, q, expr, value)
	}
	// Both sites have racks r01 and r02, which stay apart.
	want(global, `count(count by (site, rack_id) (rackpulse:rack:inlet{site=~"ams1|fra1",rack_id=~"r01|r02"}))`, 4)
	want(global, `count(max by (site, node) (rackpulse_lease_up))`, 10)
	want(global, `count(max by (site) (ALERTS{alertname="CoolingFault",cooling_unit="crah1",site=~"ams1|fra1"}))`, 2)
	want(global, `count({__name__=~".+",exported_site!=""} or {__name__=~".+",exported_instance!=""}) or vector(0)`, 0)
	want(global, `count({__name__=~"DCGM_.+"}) or vector(0)`, 0)
	want(global, `sum(up{job="federate"})`, 2)
	want(stored, `count(DCGM_FI_DEV_GPU_TEMP{site="ams1",rack_id="r01"})`, 16)
	want(stored, `sum(up{job="rackpulse",site="ams1"})`, 1)
}

// holds waits until an expression has a value.
func holds(t *testing.T, q query.Querier, expr string, value float64) {
	t.Helper()
	last := "no answer yet"
	for deadline := time.Now().Add(4 * time.Minute); time.Now().Before(deadline); time.Sleep(500 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		samples, err := q.Instant(ctx, expr, time.Now())
		cancel()
		if err == nil && len(samples) == 1 && samples[0].Value == value {
			return
		}
		last = fmt.Sprint(samples, " ", err)
	}
	t.Fatalf("%s is %s, want %v", expr, last, value)
}

// awaitPage waits until a page is there and hands it over.
func awaitPage(t *testing.T, url string, take func(string)) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(200 * time.Millisecond) {
		resp, err := http.Get(url)
		if err == nil {
			data, readErr := io.ReadAll(resp.Body)
			_ = resp.Body.Close() // it was read
			if readErr == nil && resp.StatusCode == http.StatusOK {
				take(string(data))
				return
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", url, err)
		}
	}
}
