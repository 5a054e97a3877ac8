// SPDX-License-Identifier: Apache-2.0

package alerting

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/testtool"
)

// TestNotification sends alerts through a real Alertmanager with the shipped
// templates, and reads what a chat and a webhook get.
func TestNotification(t *testing.T) {
	got := map[string]chan []byte{"/slack": make(chan []byte, 10), "/webhook": make(chan []byte, 10)}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		got[req.URL.Path] <- body
		fmt.Fprint(w, "ok")
	}))
	defer srv.Close()
	am := startAlertmanager(t, srv.URL)
	var alerts []string
	for i := range 12 {
		alerts = append(alerts, fmt.Sprintf(`{"labels":{"alertname":"GPUHot","site":"ams1","rack_id":"r01","severity":"warning","team":"compute","gpu":"%d"},
			"annotations":{"summary":"GPU %d is at <90> C","runbook_url":"https://docs/hot.md","cause":"unknown","muted":"3"}}`, i, i))
	}
	post(t, am, "["+strings.Join(alerts, ",")+"]")
	var hook struct {
		Version string
		Alerts  []struct{ Annotations map[string]string }
	}
	if err := json.Unmarshal(wait(t, got["/webhook"]), &hook); err != nil || hook.Version != "4" || len(hook.Alerts) != 12 || hook.Alerts[0].Annotations["muted"] != "3" {
		t.Errorf("webhook got %+v, %v", hook, err)
	}
	var slack struct {
		Attachments []struct{ Title, Text string }
	}
	if err := json.Unmarshal(wait(t, got["/slack"]), &slack); err != nil || len(slack.Attachments) != 1 {
		t.Fatalf("slack got %+v, %v", slack, err)
	}
	one := slack.Attachments[0]
	if one.Title != "[FIRING 12] GPUHot in rack r01" {
		t.Errorf("title %q", one.Title)
	}
	for _, want := range []string{"*Affected* 12 firing, 3 muted; racks r01; team compute", "is at &lt;90&gt; C, since", "... 12 in all", "alert=GPUHot&at=20", "|explain>", "<https://docs/hot.md|runbook>",
		"/d/rackpulse-correlation-v1?var-rack_id=r01|dashboard>", am + "/#/silences/new?filter=%7Balertname%3D%22GPUHot%22%2Crack_id%3D%22r01%22%7D|silence>"} {
		if !strings.Contains(one.Text, want) {
			t.Errorf("text lacks %q:\n%s", want, one.Text)
		}
	}
	if n := strings.Count(one.Text, "• "); n != 10 {
		t.Errorf("%d alerts are listed, want 10", n)
	}
}

func wait(t *testing.T, from chan []byte) []byte {
	t.Helper()
	select {
	case body := <-from:
		return body
	case <-time.After(30 * time.Second):
		t.Fatal("nothing came within 30 s")
		return nil
	}
}

// startAlertmanager runs one that tells a chat and a webhook; it ends with the test.
func startAlertmanager(t *testing.T, to string) string {
	t.Helper()
	program := filepath.Join(testtool.CacheDir(), "alertmanager-v0.31.0", "alertmanager")
	addr := testtool.FreeAddress(t)
	dir := t.TempDir()
	templates, err := filepath.Abs("templates/*.tmpl")
	if err != nil {
		t.Fatal(err)
	}
	config := `templates: ["` + templates + `"]
route: {receiver: all, group_by: [alertname, rack_id], group_wait: 1s}
receivers:
- name: all
  webhook_configs: [{url: "` + to + `/webhook"}]
  slack_configs: [{api_url: "` + to + `/slack", channel: "#gpu", title: '{{ template "rackpulse.title" . }}', text: '{{ template "rackpulse.slack" . }}'}]
`
	file := filepath.Join(dir, "am.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(testtool.Binary(t, program), "--config.file="+file, "--storage.path="+dir, "--web.listen-address="+addr, "--web.external-url=http://"+addr, "--cluster.listen-address=")
	testtool.Start(t, cmd)
	return "http://" + addr
}

// post gives alerts to Alertmanager, which may not listen yet.
func post(t *testing.T, am, body string) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		resp, err := http.Post(am+"/api/v2/alerts", "application/json", strings.NewReader(body))
		if err == nil {
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return
			}
			err = fmt.Errorf("%s: %s", resp.Status, text)
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
