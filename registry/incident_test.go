// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/site"
)

// ward is a book of the example site, and what it told.
type ward struct {
	t    *testing.T
	book *incidentBook
	now  time.Time
}

func newWard(t *testing.T) *ward {
	s := example(t)
	explains := map[string][]string{"cooling-fault": {"RackAirflowLost", "GPUHot", "RackInletHot", "CoolingUnitDown"}, "feed-lost": {"PDULost", "FacilityDeviceDown"}, "rack-silent": {"NodeLeaseLost"}, "gpu-lost": {"GPUHot"}}
	return &ward{t: t, book: newIncidentBook(func() *site.Site { return s }, explains), now: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)}
}

// fire tells of an alert; pairs are labels, annotations have the prefix "@".
func (w *ward) fire(name string, pairs ...string) *webhookAlert {
	w.t.Helper()
	a := &webhookAlert{Status: "firing", StartsAt: w.now, Labels: map[string]string{"alertname": name, "site": "ams1", "severity": "warning", "correlation": "symptom"}, Annotations: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		if k, ok := strings.CutPrefix(pairs[i], "@"); ok {
			a.Annotations[k] = pairs[i+1]
			continue
		}
		a.Labels[pairs[i]] = pairs[i+1]
	}
	a.Fingerprint = fmt.Sprint(a.Labels)
	w.take(a)
	return a
}

func (w *ward) take(a *webhookAlert) {
	w.t.Helper()
	if err := w.book.take(a, w.now); err != nil {
		w.t.Error(err)
	}
}

// end resolves an alert.
func (w *ward) end(a *webhookAlert) {
	w.t.Helper()
	over := *a
	over.Status = "resolved"
	w.take(&over)
}

// told goes on by d and returns what is told then.
func (w *ward) told(d time.Duration) []Digest {
	var out []Digest
	for end := w.now.Add(d); w.now.Before(end); {
		w.now = w.now.Add(time.Second)
		due, _ := w.book.due(w.now, "https://reg", "https://grafana/", "http://am:9093")
		out = append(out, due...)
	}
	return out
}

// want holds the titles of what is told within d.
func (w *ward) want(d time.Duration, titles ...string) []Digest {
	w.t.Helper()
	got := w.told(d)
	var have []string
	for _, one := range got {
		have = append(have, one.Title())
	}
	if !slices.Equal(have, titles) {
		w.t.Errorf("told %q, want %q", have, titles)
	}
	return got
}

var crah1 = []string{"severity", "critical", "team", "facility", "correlation", "cooling-fault", "cooling_unit", "crah1",
	"@summary", "Cooling fault at crah1", "@cause", "cooling unit crah1", "@racks", "r01,r02", "@runbook_url", "https://docs/cooling-fault.md"}

// gpusHot fires GPUHot for n GPUs of the racks of crah1.
func (w *ward) gpusHot(n int) (out []*webhookAlert) {
	for i := range n {
		node := i % 8
		out = append(out, w.fire("GPUHot", "node", fmt.Sprintf("gpu%03d", node+1), "rack_id", fmt.Sprintf("r%02d", node/4+1), "UUID", fmt.Sprint(i), "@summary", "GPU is hot"))
	}
	return out
}

// TestIncident: two hundred symptoms and a cause, in either order, are one
// message; one more when it grows, and one when it is over.
func TestIncident(t *testing.T) {
	for _, first := range []string{"symptoms", "cause"} {
		t.Run(first+" first", func(t *testing.T) {
			w := newWard(t)
			var hot []*webhookAlert
			if first == "symptoms" {
				hot = w.gpusHot(200)
				w.want(10 * time.Second)
			}
			cause := w.fire("CoolingFault", crah1...)
			if first == "cause" {
				hot = w.gpusHot(200)
			}
			other := w.fire("GPUHot", "node", "gpu016", "rack_id", "r04", "UUID", "x", "@summary", "GPU 0 of gpu016 is hot") // not of crah1
			got := w.want(time.Minute, "[CRITICAL] Cooling fault at crah1", "[WARNING] GPU 0 of gpu016 is hot")
			d := got[0]
			if d.Alerts != 1 || d.Muted != 200 || !slices.Equal(d.Racks, []string{"r01", "r02"}) || d.Cause != "cooling unit crah1" {
				t.Errorf("got %+v", d)
			}
			if links := fmt.Sprint(d.Links); !holds(links, "explain https://reg/api/v1/explain?alert=CoolingFault", "runbook https://docs/cooling-fault.md",
				"dashboard https://grafana/d/rackpulse-correlation-v1?var-rack_id=r01&var-rack_id=r02", "silence http://am:9093/#/silences/new?filter=%7Balertname%3D%22CoolingFault%22") {
				t.Errorf("links %s", links)
			}
			cause.Annotations["racks"] = "r01,r02,r03"
			w.take(cause)
			got = w.want(10*time.Minute, "[CRITICAL, CHANGED] Cooling fault at crah1")
			if !slices.Equal(got[0].Changed, []string{"more racks: r03"}) || got[0].ID != d.ID {
				t.Errorf("changed %q, id %s", got[0].Changed, got[0].ID)
			}
			for _, a := range append(hot, other) {
				w.end(a)
			}
			w.want(5*time.Minute, "[RESOLVED after "+shortDuration(w.now.Add(30*time.Second).Sub(other.StartsAt))+"] GPU 0 of gpu016 is hot")
			w.end(cause)
			w.want(5*time.Minute, "[RESOLVED after "+shortDuration(w.now.Add(30*time.Second).Sub(cause.StartsAt))+"] Cooling fault at crah1")
			if len(w.book.open) != 0 || w.book.members != 0 {
				t.Errorf("%d incidents, %d alerts are left", len(w.book.open), w.book.members)
			}
		})
	}
}

func holds(text string, parts ...string) bool {
	for _, p := range parts {
		if !strings.Contains(text, p) {
			return false
		}
	}
	return true
}

// TestIncidentLateCause: symptoms that were told already end with the message of
// their cause.
func TestIncidentLateCause(t *testing.T) {
	w := newWard(t)
	hot := w.gpusHot(8)
	w.want(time.Minute, "[WARNING] GPU is hot (and 3 more GPUHot)", "[WARNING] GPU is hot (and 3 more GPUHot)")
	cause := w.fire("CoolingFault", crah1...)
	if got := w.want(time.Minute, "[CRITICAL] Cooling fault at crah1"); got[0].Muted != 8 {
		t.Errorf("muted %d", got[0].Muted)
	}
	for _, a := range hot {
		w.end(a)
	}
	w.end(cause)
	w.want(10*time.Minute, "[RESOLVED after 2m] Cooling fault at crah1")
}

func TestIncidentQuiet(t *testing.T) {
	w := newWard(t)
	w.fire("Watchdog", "severity", "none")
	w.fire("LoadHeat", "severity", "info", "rack_id", "r01")
	w.fire("CoolingFaultRack", "severity", "critical", "role", "inhibitor", "rack_id", "r01")
	short := w.fire("GPUHot", "rack_id", "r01", "node", "gpu001")
	w.told(10 * time.Second)
	w.end(short) // over before it was told
	w.want(10 * time.Minute)
	// A flap within the wait for the end is one incident.
	feed := w.fire("FeedLost", "severity", "critical", "correlation", "feed-lost", "feed", "feed-a", "@summary", "Feed feed-a is lost")
	w.want(time.Minute, "[CRITICAL] Feed feed-a is lost")
	w.end(feed)
	w.want(10 * time.Second)
	w.take(feed)
	w.want(time.Hour)
	// The device of a PDU on the feed is explained, one on the other feed is not.
	w.fire("FacilityDeviceDown", "device", "r01-a", "rack_id", "r01", "@summary", "r01-a is silent")
	w.fire("FacilityDeviceDown", "device", "r02-b", "rack_id", "r02", "@summary", "r02-b is silent")
	w.want(time.Hour, "[WARNING] r02-b is silent")
	// Two GPUs of a node are one incident, and explain nothing of a third.
	for _, uuid := range []string{"a", "b"} {
		lost := []string{"node", "gpu009", "rack_id", "r03", "UUID", uuid, "correlation", "gpu-lost", "severity", "critical", "@summary", "GPU " + uuid + " is lost"}
		w.fire("GPULost", lost...)
	}
	w.fire("GPUHot", "node", "gpu009", "rack_id", "r03", "UUID", "b")
	w.fire("GPUHot", "node", "gpu009", "rack_id", "r03", "UUID", "c", "@summary", "GPU c is hot")
	if got := w.want(time.Hour, "[CRITICAL] GPU a is lost", "[WARNING] GPU c is hot"); got[0].Alerts != 2 || got[0].Muted != 1 {
		t.Errorf("%d lost, %d muted", got[0].Alerts, got[0].Muted)
	}
	// Silenced: nothing more is heard of it, in the end it is over.
	w.want(6*time.Hour, "[RESOLVED after 5h2m] Feed feed-a is lost", "[RESOLVED after 5h1m] r02-b is silent", "[RESOLVED after 5h1m] GPU a is lost", "[RESOLVED after 5h1m] GPU c is hot")
}

// TestIncidentRestart: what was told is not told again, and its end is.
func TestIncidentRestart(t *testing.T) {
	w := newWard(t)
	cause := w.fire("CoolingFault", crah1...)
	d := w.want(time.Minute, "[CRITICAL] Cooling fault at crah1")[0]
	e := ledger.Event{Time: d.At, Kind: KindNotification, Reason: d.Title(), Evidence: map[string]string{"incident": d.key, "id": d.ID, "phase": d.Phase,
		"severity": d.Severity, "racks": "r01,r02", "alerts": "1", "since": d.Since.Format(time.RFC3339), "labels": `{"alertname":"CoolingFault","site":"ams1","correlation":"cooling-fault","cooling_unit":"crah1","severity":"critical"}`}}
	for name, early := range map[string]bool{"repeated before the ledger is read": true, "repeated later": false, "never repeated": false} {
		t.Run(name, func(t *testing.T) {
			next := newWard(t)
			next.now = w.now
			if early {
				next.take(cause)
			}
			next.book.restore(d.key, e, next.now)
			if name == "never repeated" {
				next.want(6*time.Hour, "[RESOLVED after 5h2m] Cooling fault at crah1")
				return
			}
			if !early { // the symptoms are repeated first
				next.gpusHot(8)
				next.want(10 * time.Minute)
			}
			next.take(cause)
			next.gpusHot(8)
			next.want(50 * time.Minute)
			next.end(cause)
			if got := next.want(time.Hour, "[RESOLVED after "+shortDuration(next.now.Add(30*time.Second).Sub(d.Since))+"] Cooling fault at crah1"); got[0].ID != d.ID {
				t.Errorf("id %s, was %s", got[0].ID, d.ID)
			}
		})
	}
}

func TestIncidentBounds(t *testing.T) {
	w := newWard(t)
	refused := 0
	for i := range maxIncidents + 10 {
		a := &webhookAlert{Status: "firing", Labels: map[string]string{"alertname": fmt.Sprint("A", i), "severity": "warning"}, Fingerprint: fmt.Sprint(i)}
		if w.book.take(a, w.now) != nil {
			refused++
		}
	}
	if refused != 10 || len(w.book.open) != maxIncidents {
		t.Errorf("refused %d, kept %d", refused, len(w.book.open))
	}
}

func TestDigestMarkdown(t *testing.T) {
	d := Digest{Phase: PhaseOpen, Severity: "critical", Summary: "Rack *r_01* [x](http://evil)", Description: "<b>\nhot", Cause: "cooling unit crah1", Alerts: 1, Muted: 200, Racks: []string{"r01", "r02"},
		Explanation: "alert CoolingFault: cooling unit crah1 (score 0.91)", Because: []string{"r01: inlet: 31 celsius"}, Next: []string{"Start the standby unit."},
		Since: time.Unix(0, 0), Team: "facility", Site: "ams1", Links: []Link{{"explain", "https://reg/x"}}}
	want := `### [CRITICAL] Rack ∗r_01∗ (x)(http://evil)

**Cause** cooling unit crah1

‹b> hot

**Explained** alert CoolingFault: cooling unit crah1 (score 0.91)

**Evidence**

- r01: inlet: 31 celsius

**Do next**

- Start the standby unit.

**Affected** 1 alert, 200 muted, 2 racks (r01, r02). Team facility, site ams1.

**Since** 1970-01-01 00:00:00 UTC

[explain](https://reg/x)

`
	if got := d.Markdown(); got != want {
		t.Errorf("got\n%s", got)
	}
}
