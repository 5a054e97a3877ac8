// SPDX-License-Identifier: Apache-2.0

package alerting

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackpulse/rackpulse/testtool"
)

func amtool(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(testtool.Binary(t, "amtool"), args...).CombinedOutput()
	if err != nil {
		t.Fatalf("amtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

func TestConfigIsValid(t *testing.T) {
	out := amtool(t, "check-config", "alertmanager.yml")
	if !strings.Contains(out, "9 receivers") || !strings.Contains(out, "1 templates") {
		t.Errorf("amtool check-config:\n%s", out)
	}
}

// TestRoutes asks the real router where alerts go.
func TestRoutes(t *testing.T) {
	for _, tc := range []struct{ labels, want string }{
		{"alertname=Watchdog severity=none", "deadman"},
		{"alertname=CoolingFault severity=critical team=facility cooling_unit=crah1", "facility-page"},
		{"alertname=FeedLost severity=critical team=facility feed=feed-a", "facility-page"},
		{"alertname=RackSilent severity=critical team=network rack_id=r01", "network-page"},
		{"alertname=GPULost severity=critical team=compute rack_id=r01", "compute-page"},
		{"alertname=GPUHot severity=warning team=compute rack_id=r01", "compute-notice"},
		{"alertname=RackInletHot severity=warning team=facility rack_id=r01", "facility-notice"},
		{"alertname=LoadHeat severity=info team=compute", "null"},
		{"alertname=CoolingFaultRack severity=critical team=facility role=inhibitor rack_id=r01", "null"},
		{"alertname=SomebodyElses severity=critical", "operations"},
	} {
		args := append([]string{"config", "routes", "test", "--config.file=alertmanager.yml", "--verify.receivers=" + tc.want}, strings.Fields(tc.labels)...)
		if out := strings.TrimSpace(amtool(t, args...)); out != tc.want {
			t.Errorf("%s: goes to %q, want %q", tc.labels, out, tc.want)
		}
	}
}

// TestTemplates renders a notification with the real template engine.
func TestTemplates(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data.json")
	err := os.WriteFile(data, []byte(`{"status":"firing","receiver":"facility-page",
 "alerts":[{"status":"firing","labels":{"alertname":"CoolingFault","cooling_unit":"crah1"},"annotations":{"summary":"Cooling fault at crah1","cause":"cooling unit crah1","racks":"r01,r02","description":"inlet 31 C"},"startsAt":"2026-01-02T03:04:05Z"}],
 "groupLabels":{"alertname":"CoolingFault"},"commonLabels":{"alertname":"CoolingFault","team":"facility","severity":"critical"},
 "commonAnnotations":{"summary":"Cooling fault at crah1","cause":"cooling unit crah1","racks":"r01,r02","muted":"37","runbook_url":"https://docs/x.md"},"externalURL":"http://am"}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	render := func(name string) string {
		kind := "text"
		if strings.HasSuffix(name, ".html") {
			kind = "html"
		}
		return amtool(t, "template", "render", "--template.type="+kind, "--template.glob=templates/*.tmpl", "--template.data="+data, "--template.text={{ template \""+name+"\" . }}")
	}
	if got := strings.TrimSpace(render("rackpulse.title")); got != "[FIRING 1] Cooling fault at crah1" {
		t.Errorf("title %q", got)
	}
	explain := "https://rackpulse.example.com/api/v1/explain?format=text&alert=CoolingFault&at=2026-01-02T03:04:05Z"
	silence := "http://am/#/silences/new?filter=%7Balertname%3D%22CoolingFault%22%7D"
	for name, wants := range map[string][]string{
		"rackpulse.text": {"Cause: cooling unit crah1", "Affected: 1 firing, 37 muted", "Racks: r01,r02", "Team: facility, severity critical", "inlet 31 C", "Since 2026-01-02 03:04:05 UTC",
			"Explain: " + explain, "Silence: " + silence, "Dashboard: https://grafana.example.com/d/rackpulse-correlation-v1\n"},
		"rackpulse.slack": {"*Cause* cooling unit crah1", "1 firing, 37 muted", "• Cooling fault at crah1: inlet 31 C, since 03:04:05 UTC", "<" + explain + "|explain>", "<https://docs/x.md|runbook>", "<" + silence + "|silence>"},
		"rackpulse.html":  {"<b>cooling unit crah1</b>", "1 firing, 37 muted", "Cooling fault at crah1<br>inlet 31 C", `<a href="https://docs/x.md">Runbook</a>`, `<a href="` + silence + `">Silence</a>`},
	} {
		text := render(name)
		for _, want := range wants {
			if !strings.Contains(text, want) {
				t.Errorf("%s lacks %q:\n%s", name, want, text)
			}
		}
	}
}

// TestNoSecrets holds that every secret is read from a file.
func TestNoSecrets(t *testing.T) {
	for _, key := range []string{"api_url:", "routing_key:", "service_key:", "password:", "url: http"} {
		for n, line := range strings.Split(read(t, "base.yml"), "\n") {
			if strings.Contains(line, key) {
				t.Errorf("base.yml:%d: %s holds a secret in clear", n+1, key)
			}
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestJoinRefusesForeignKeys(t *testing.T) {
	if _, err := Join([]byte("inhibit_rules: []\nroute: {}\n")); err == nil || !strings.Contains(err.Error(), "2 keys") {
		t.Errorf("error %v, want one that counts 2 keys", err)
	}
	out, err := Join([]byte("inhibit_rules: []\n"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.HasSuffix(string(out), "inhibit_rules: []\n") || !strings.HasPrefix(string(out), "# Generated") {
		t.Errorf("joined file:\n%s", out)
	}
}
