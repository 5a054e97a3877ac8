// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/lease/leasepb"
)

const operateToken = "alertmanager-0123456789"

func alertText(status, node, breach string) string {
	return fmt.Sprintf(`{"status":%q,"labels":{"alertname":"GPUXidFatal","node":%q,"severity":"critical"},"annotations":{"rackpulse_breach":%q,"summary":"s"},"startsAt":"2026-03-01T12:00:00Z","endsAt":"0001-01-01T00:00:00Z","generatorURL":"http://p","fingerprint":"abc"}`, status, node, breach)
}

func message(alerts ...string) string {
	return `{"version":"4","groupKey":"{}","truncatedAlerts":0,"status":"firing","receiver":"registry","groupLabels":{},"commonLabels":{},"commonAnnotations":{},"externalURL":"http://am","alerts":[` + strings.Join(alerts, ",") + `]}`
}

func TestAlertsIn(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Auth.TokensFile = writeFile(t, t.TempDir(), "tokens.yml", "- {token: "+operateToken+", role: operate, name: alertmanager}\n")
	r := start(t, cfg, Deps{})
	a := gpuNode(t, r, "gpu001", "10.0.0.1:9400")
	a.mustBeat(t, leasepb.State_READY)
	post := func(body, want string) {
		t.Helper()
		code, text := r.request(t, http.MethodPost, "/api/v1/alerts", operateToken, body)
		if !strings.Contains(text, want) || (code == http.StatusOK) != strings.HasPrefix(want, `{"ignored"`) {
			t.Errorf("%d %s, want %s", code, text, want)
		}
	}
	if code, _ := r.request(t, http.MethodPost, "/api/v1/alerts", "", message()); code != http.StatusUnauthorized {
		t.Errorf("without a token: %d", code)
	}
	post(`{"version":"3"}`, "version")
	post(`{"version":`, "body")
	post(message(alertText("firing", "", "x"), alertText("firing", "gpu001", "")), `{"ignored":2,"refused":0,"taken":0}`)
	post(message(alertText("firing", "gpu999", "xid_fatal"), alertText("firing", "gpu001", "a\nb")), `{"ignored":0,"refused":2,"taken":0}`)
	post(message(alertText("firing", "gpu999", "xid_fatal"), alertText("firing", "gpu001", "xid_fatal")), `{"ignored":0,"refused":1,"taken":1}`)
	a.mustBeat(t, leasepb.State_ISOLATED)
	if _, text := r.request(t, http.MethodGet, "/api/v1/nodes/gpu001", operateToken, ""); !strings.Contains(text, "breach of xid_fatal alert GPUXidFatal") {
		t.Errorf("reason not told: %s", text)
	}
	post(message(alertText("resolved", "gpu001", "xid_fatal")), `{"ignored":0,"refused":0,"taken":1}`)
	a.mustBeat(t, leasepb.State_READY)
}

// TestAlertBook: two alerts of one breach count once, and until the last is over;
// one that is not told again is forgotten.
func TestAlertBook(t *testing.T) {
	b := &alertBook{}
	now := time.Unix(1e9, 0)
	take := func(status, finger, breach, want string) {
		t.Helper()
		got, err := b.take(&webhookAlert{Status: status, Fingerprint: finger, Labels: map[string]string{"node": "n", "alertname": "A" + finger}, Annotations: map[string]string{BreachAnnotation: breach}}, now)
		if err != nil || strings.Join(got, ",") != want {
			t.Errorf("%s %s: %q, %v; want %q", status, finger, got, err, want)
		}
	}
	take("firing", "1", "hot", "hot alert A1")
	take("firing", "1", "hot", "hot alert A1")
	take("firing", "2", "hot", "hot alert A1,hot alert A2")
	take("resolved", "1", "hot", "hot alert A2")
	now = now.Add(16 * time.Minute)
	take("firing", "3", "ecc", "ecc alert A3")
	take("resolved", "3", "ecc", "")
	if len(b.nodes) != 0 {
		t.Errorf("%d nodes are remembered", len(b.nodes))
	}
}
