// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/testtool"
)

// startAlertmanager runs a real Alertmanager and returns its address.
func startAlertmanager(t *testing.T) string {
	t.Helper()
	bin := testtool.Binary(t, "alertmanager")
	dir := t.TempDir()
	conf := filepath.Join(dir, "alertmanager.yml")
	if err := os.WriteFile(conf, []byte("route: {receiver: nobody}\nreceivers: [{name: nobody}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	addr := testtool.FreeAddress(t)
	cmd := exec.Command(bin, "--config.file="+conf, "--storage.path="+dir, "--web.listen-address="+addr, "--cluster.listen-address=")
	testtool.Start(t, cmd)
	return addr
}

// eventually asks again until check says yes.
func eventually(t *testing.T, what string, check func() (bool, string)) {
	t.Helper()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(60 * time.Second)
	for {
		ok, got := check()
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("%s: %s", what, got)
		}
	}
}

// TestRealAlertmanager: amtool lists the engine's alert, with its labels.
func TestRealAlertmanager(t *testing.T) {
	amtool := testtool.Binary(t, "amtool")
	url := "http://" + startAlertmanager(t)
	query := func(want string) func() (bool, string) {
		return func() (bool, string) {
			out, err := exec.Command(amtool, "--alertmanager.url="+url, "--output=json", "alert", "query", "alertname=RackWarm", "rack_id=r01").CombinedOutput()
			return err == nil && strings.Contains(string(out), want), string(out)
		}
	}
	eventually(t, "amtool has an answer", query("[]"))
	inlet := 31.0
	e, err := New(Config{RuleFiles: map[string][]byte{"fast.yml": []byte(fastRules)}, AlertmanagerURLs: []string{url},
		ScrapeInterval: time.Hour, Sources: func() []Target { return []Target{hall(&inlet)} }})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.Run(ctx) }()
	eventually(t, "alert", query(`"summary":"rack r01"`))
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
