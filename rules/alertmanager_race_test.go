// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// receiver starts a webhook. received is what an Alertmanager sent: one entry for each alert in each message.
func receiver(t *testing.T) (url string, received <-chan string) {
	t.Helper()
	out := make(chan string, 1000)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var message struct {
			Alerts []struct {
				Status string            `json:"status"`
				Labels map[string]string `json:"labels"`
			} `json:"alerts"`
		}
		if err := json.NewDecoder(r.Body).Decode(&message); err != nil {
			out <- err.Error()
			return
		}
		for _, a := range message.Alerts {
			out <- a.Status + " " + a.Labels["alertname"] + " " + a.Labels["pair"]
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, out
}

// notifying is a configuration with the generated inhibition rules that tells a
// receiver of each alert by itself.
func notifying(t *testing.T, hook, groupWait string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "alertmanager.yml")
	text := fmt.Sprintf("route: {receiver: hook, group_by: [...], group_wait: %s, group_interval: 1s, repeat_interval: 1h}\n"+
		"receivers: [{name: hook, webhook_configs: [{url: %q, send_resolved: true}]}]\n%s", groupWait, hook, build(t)[generatedDir+"inhibit.yml"])
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// pairs are an alert of each cause of the pack and one of the symptom that it
// mutes, with the labels that join them.
func pairs(t *testing.T) (causes, symptoms []string) {
	t.Helper()
	pack, err := DefaultPack()
	if err != nil {
		t.Fatal(err)
	}
	for i, in := range pack.inhibitions() {
		for j, source := range in.sources {
			id := fmt.Sprintf("p%d.%d", i, j)
			labels := " pair=" + id
			for _, l := range in.equal {
				if l != "site" {
					labels += " " + l + "=" + id
				}
			}
			causes = append(causes, source+labels)
			symptoms = append(symptoms, in.target+labels+" symptom=yes")
		}
	}
	return causes, symptoms
}

// TestInhibitionRace posts to a real Alertmanager, for every inhibition of the
// pack, the symptom before its cause. While group_wait lasts the cause still mutes
// it; after it, which is what the symptoms' "for" guards against (lint C011), it
// has been sent, is muted from then on, and its end is not told before the cause's.
func TestInhibitionRace(t *testing.T) {
	hook, received := receiver(t)
	url := startAlertmanager(t, notifying(t, hook, "4s"))
	causes, symptoms := pairs(t)
	if len(causes) < 10 {
		t.Fatalf("only %d pairs", len(causes))
	}
	postAlerts(t, url, symptoms)
	postAlerts(t, url, causes)
	// A symptom's group was opened before its cause's, so its group_wait has ended
	// too when the cause's message comes.
	got := take(t, received, len(causes))
	var want []string
	for _, c := range causes {
		labels := parseLabels(c)
		want = append(want, "firing "+labels["alertname"]+" "+labels["pair"])
	}
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("messages %q\nwant only the causes %q", got, want)
	}
}

// TestInhibitionRaceLost holds what happens when a cause is later than group_wait.
func TestInhibitionRaceLost(t *testing.T) {
	hook, received := receiver(t)
	url := startAlertmanager(t, notifying(t, hook, "1s"))
	const symptom, cause = "GPUHot rack_id=r07 UUID=GPU-1 pair=x", "RackAirflowLost rack_id=r07 pair=x"
	postAlerts(t, url, []string{symptom})
	if got := take(t, received, 1); got[0] != "firing GPUHot x" {
		t.Fatalf("message %q, want the symptom", got)
	}
	postAlerts(t, url, []string{cause, symptom})
	if got := take(t, received, 1); got[0] != "firing RackAirflowLost x" {
		t.Fatalf("message %q, want the cause", got)
	}
	// The symptom goes on; it is in no further message, also not when another
	// alert of the rack comes.
	postAlerts(t, url, []string{symptom, cause, "GPUHot rack_id=r07 UUID=GPU-2 pair=y", "GPUHot rack_id=r08 UUID=GPU-3 pair=z"})
	if got := take(t, received, 1); got[0] != "firing GPUHot z" {
		t.Errorf("message %q, want only that of the other rack", got)
	}
}

// take waits for n entries.
func take(t *testing.T, received <-chan string, n int) []string {
	t.Helper()
	var out []string
	for range n {
		select {
		case one := <-received:
			out = append(out, one)
		case <-time.After(time.Minute):
			t.Fatalf("only %q came", out)
		}
	}
	return out
}
