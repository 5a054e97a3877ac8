// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"
)

// Phases of a Digest.
const (
	PhaseOpen   = "open"
	PhaseChange = "change"
	PhaseClear  = "clear"
)

// Digest is one message about one incident, in place of a message for each of
// its alerts. What is not known is empty.
type Digest struct {
	Version int `json:"version"` // 1
	// ID is the incident's, the same in all of its messages.
	ID          string `json:"id"`
	Phase       string `json:"phase"`
	Site        string `json:"site,omitempty"`
	Summary     string `json:"summary"`
	Description string `json:"description,omitempty"`
	Cause       string `json:"cause,omitempty"`
	Correlation string `json:"correlation,omitempty"`
	Severity    string `json:"severity,omitempty"`
	Team        string `json:"team,omitempty"`
	// Alerts fire and belong to it, Muted are symptoms that it explains.
	Alerts int      `json:"alerts"`
	Muted  int      `json:"muted"`
	Racks  []string `json:"racks,omitempty"`
	// Changed says what is different from the message before.
	Changed []string  `json:"changed,omitempty"`
	Since   time.Time `json:"since"`
	At      time.Time `json:"at"`
	// Explanation is the answer of explain in one line, Because its evidence,
	// Next what to do.
	Explanation string   `json:"explanation,omitempty"`
	Because     []string `json:"because,omitempty"`
	Next        []string `json:"next,omitempty"`
	Links       []Link   `json:"links,omitempty"`

	key      string
	labels   map[string]string // of the worst alert
	question Question
}

// Link leads from a message to a page.
type Link struct {
	Name string `json:"name"`
	URL  string `json:"url"`
}

// Title is the message in one line.
func (d *Digest) Title() string { return d.heading() + d.Summary }

func (d *Digest) heading() string {
	word := strings.ToUpper(cmp.Or(d.Severity, "alert"))
	switch d.Phase {
	case PhaseClear:
		word = "RESOLVED after " + shortDuration(d.At.Sub(d.Since))
	case PhaseChange:
		word += ", CHANGED"
	}
	return "[" + word + "] "
}

func shortDuration(d time.Duration) string {
	if d < time.Minute {
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(d.Round(time.Minute).String(), "0s")
}

// Markdown is the message, in the part of Markdown that chats know.
func (d *Digest) Markdown() string {
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n\n", args...) }
	list := func(title string, items []string) {
		if len(items) == 0 {
			return
		}
		fmt.Fprintf(&b, "**%s**\n\n", title)
		for _, item := range items {
			fmt.Fprintf(&b, "- %s\n", plainText(item))
		}
		b.WriteString("\n")
	}
	line("### %s", d.heading()+plainText(d.Summary))
	list("Changed", d.Changed)
	if d.Cause != "" && d.Cause != "unknown" {
		line("**Cause** %s", plainText(d.Cause))
	}
	if d.Phase != PhaseClear {
		line("%s", plainText(d.Description))
		if d.Explanation != "" {
			line("**Explained** %s", plainText(d.Explanation))
		}
		list("Evidence", d.Because)
		list("Do next", d.Next)
	}
	line("**Affected** %d %s, %d muted%s. Team %s, site %s.", d.Alerts, plural(d.Alerts, "alert"), d.Muted, inRacks(d.Racks), plainText(cmp.Or(d.Team, "-")), plainText(cmp.Or(d.Site, "-")))
	line("**Since** %s", d.Since.UTC().Format("2006-01-02 15:04:05 UTC"))
	var links []string
	for _, l := range d.Links {
		links = append(links, fmt.Sprintf("[%s](%s)", plainText(l.Name), l.URL))
	}
	if len(links) > 0 {
		line("%s", strings.Join(links, " · "))
	}
	return b.String()
}

// maxNamedRacks bounds the racks that a message names.
const maxNamedRacks = 12

func inRacks(racks []string) string {
	if len(racks) == 0 {
		return ""
	}
	names, more := racks, ""
	if len(racks) > maxNamedRacks {
		names, more = racks[:maxNamedRacks], fmt.Sprintf(" and %d more", len(racks)-maxNamedRacks)
	}
	return fmt.Sprintf(", %d %s (%s%s)", len(racks), plural(len(racks), "rack"), plainText(strings.Join(names, ", ")), more)
}

func plural(n int, word string) string {
	if n == 1 {
		return word
	}
	return word + "s"
}

var plainer = strings.NewReplacer("*", "\u2217", "`", "'", "[", "(", "]", ")", "<", "\u2039", "\n", " ", "\r", " ")

// plainText keeps texts of others from being Markdown: by other signs, as chats
// know no escapes.
func plainText(s string) string { return plainer.Replace(s) }

// silenceLink leads to a new silence of Alertmanager's for the alert.
func silenceLink(alertmanager string, labels map[string]string) string {
	u, err := url.Parse(alertmanager)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return ""
	}
	var matchers []string
	for _, name := range []string{"alertname", "site", "cooling_unit", "feed", "pdu_id", "rack_id", "node"} {
		if v := labels[name]; v != "" {
			matchers = append(matchers, fmt.Sprintf("%s=%q", name, v))
		}
	}
	return strings.TrimSuffix(u.String(), "/") + "/#/silences/new?filter=" + strings.ReplaceAll(url.QueryEscape("{"+strings.Join(matchers, ",")+"}"), "+", "%20")
}

// links are those of an incident. base is the registry's own address for people,
// grafana that of the dashboards; both may be empty.
func (one *incident) links(base, grafana, alertmanager string) []Link {
	var out []Link
	add := func(name, address string) {
		if u, err := url.Parse(address); err == nil && (u.Scheme == "http" || u.Scheme == "https") && !strings.ContainsAny(address, "()<> \n") {
			out = append(out, Link{name, address})
		}
	}
	l := one.first.Labels
	if base != "" {
		ask := url.Values{"format": {"text"}, "alert": {l["alertname"]}, "at": {one.since.UTC().Format(time.RFC3339)}}
		add("explain", strings.TrimSuffix(base, "/")+"/api/v1/explain?"+ask.Encode())
	}
	add("runbook", one.first.Annotations["runbook_url"])
	dashboard := one.first.Annotations["dashboard_url"]
	if dashboard == "" && grafana != "" {
		vars := url.Values{}
		racks := one.racks()
		for _, id := range racks[:min(len(racks), maxNamedRacks)] {
			vars.Add("var-rack_id", id)
		}
		dashboard = strings.TrimSuffix(grafana, "/") + "/d/rackpulse-correlation-v1?" + vars.Encode()
	}
	add("dashboard", dashboard)
	add("silence", silenceLink(alertmanager, l))
	return slices.Clip(out)
}
