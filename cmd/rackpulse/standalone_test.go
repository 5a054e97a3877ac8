// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/rules"
	"github.com/rackpulse/rackpulse/testtool"
)

// runStandalone starts the simulated hall and returns its address; it ends, and
// must end in order, with the test.
func runStandalone(t *testing.T, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	out, in := io.Pipe()
	var log bytes.Buffer
	ended := make(chan int, 1)
	go func() {
		ended <- execute(ctx, append([]string{"standalone", "--simulate", "--web.listen-address=127.0.0.1:0"}, args...), stdio{nil, in, &log})
	}()
	t.Cleanup(func() {
		cancel()
		select {
		case code := <-ended:
			if code != 0 {
				t.Errorf("exit status %d\n%s", code, tailOf(log.String(), 20))
			}
		case <-time.After(2 * stopTimeout):
			t.Error("did not stop")
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("no address printed: %v\n%s", err, tailOf(log.String(), 20))
	}
	_, url, ok := strings.Cut(strings.TrimSpace(line), "open ")
	if !ok {
		t.Fatalf("printed %q, want the address to open", line)
	}
	return strings.TrimSuffix(url, "/")
}

func tailOf(s string, n int) string {
	lines := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

func fetchPage(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s: %s", url, resp.Status, tailOf(string(data), 3))
	}
	return string(data)
}

// await asks until check holds.
func await(t *testing.T, limit time.Duration, what string, check func() bool) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for !check() {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", limit, what)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// TestStandalone starts everything in one process and looks at it as a user
// does: the page, both layers and the leases on /metrics, the API.
func TestStandalone(t *testing.T) {
	url := runStandalone(t)
	await(t, time.Minute, "all leases up and all devices read", func() bool {
		page := fetchPage(t, url+"/metrics")
		return strings.Count(page, "\nrackpulse_lease_up{") == 17 && strings.Contains(page, "\npdu_power_watt{") &&
			strings.Count(page, "\nDCGM_FI_DEV_GPU_TEMP{") == 16*8+1 && strings.Contains(page, "\nsite_meter_energy_joules_total{")
	})
	page := fetchPage(t, url+"/metrics")
	for _, want := range []string{
		`rackpulse_simulated{layer="gpu",instance="gpu001"} 1`, `rackpulse_simulated{layer="facility",instance="facility"} 1`,
		`rackpulse_rack_feed_info{feed="feed-a",pdu_id="r01-a",rack_id="r01",instance="registry"} 1`,
	} {
		if !strings.Contains(page, want) {
			t.Errorf("/metrics lacks %s", want)
		}
	}
	// Two series of the same name and labels would make a scraper drop one.
	seen := map[string]bool{}
	for _, line := range strings.Split(page, "\n") {
		series, _, _ := strings.Cut(line, "} ")
		if seen[series] && !strings.HasPrefix(line, "#") && line != "" {
			t.Errorf("series twice: %s", series)
		}
		seen[series] = true
	}
	for _, want := range []string{"SIMULATED", "gpu001", "r04", "crah2", "READY"} {
		if html := fetchPage(t, url+"/"); !strings.Contains(html, want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	await(t, time.Minute, "the engine answers", func() bool {
		return strings.Contains(fetchPage(t, url+"/api/v1/query?query=count(DCGM_FI_DEV_GPU_TEMP)"), `"129"`)
	})
	checkMetricNames(t, page)
	checkPromtool(t, page)
}

// checkMetricNames holds that rules/metrics.txt, by which rules are linted, knows
// what the program really shows.
func checkMetricNames(t *testing.T, page string) {
	t.Helper()
	// The instance label is a scrape's, not the exporters' own.
	page = regexp.MustCompile(`,instance="[^"]*"|instance="[^"]*",?`).ReplaceAllString(page, "")
	want, err := rules.Metrics(rules.KnownMetrics(), []byte(page))
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(filepath.Join(testtool.Root(), "rules", "metrics.txt"), want, 0o644); err != nil {
			t.Fatal(err)
		}
	} else if !bytes.Equal(want, rules.KnownMetrics()) {
		t.Error("rules/metrics.txt is stale; run 'go test ./cmd/rackpulse -run TestStandalone -update'")
	}
}

// checkPromtool has the real linter look at the names that are ours.
func checkPromtool(t *testing.T, page string) {
	t.Helper()
	cmd := exec.Command(testtool.Binary(t, "promtool"), "check", "metrics")
	cmd.Stdin = strings.NewReader(page)
	out, err := cmd.CombinedOutput()
	if err == nil {
		return
	}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		// dcgm-exporter's names and labels are a contract.
		if !strings.HasPrefix(line, "DCGM_") {
			t.Errorf("promtool: %s", line)
		}
	}
}
