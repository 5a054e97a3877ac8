// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// topologyLabels come from the discovery alone: an exporter's own of that name
// would stand beside them as exported_NAME.
var topologyLabels = []string{"site", "node", "rack_id", "device"}

// scrapeConfig is the adapter's entry of scrape_configs.
func (a *Adapter) scrapeConfig(registry string) (string, error) {
	sd, err := url.Parse(registry)
	if err != nil || sd.Scheme != "http" && sd.Scheme != "https" || sd.Host == "" {
		return "", fmt.Errorf("registry %q: want http://HOST:PORT or https://HOST:PORT", registry)
	}
	sd = sd.JoinPath("api/v1/sd/exporters")
	query := url.Values{"job": {a.Job}}
	if a.Scrape.Port > 0 && a.Scrape.Through == "" {
		query.Set("port", strconv.Itoa(a.Scrape.Port))
	}
	sd.RawQuery = query.Encode()
	var b strings.Builder
	fmt.Fprintf(&b, "  # %s\n", a.Title)
	fmt.Fprintf(&b, "  - job_name: %s\n", a.Job)
	if a.Scrape.Path != "" {
		fmt.Fprintf(&b, "    metrics_path: %s\n", quote(a.Scrape.Path))
	}
	if len(a.Scrape.Params) > 0 {
		b.WriteString("    params:\n")
		for _, name := range slices.Sorted(maps.Keys(a.Scrape.Params)) {
			fmt.Fprintf(&b, "      %s: [%s]\n", name, quote(a.Scrape.Params[name]))
		}
	}
	fmt.Fprintf(&b, "    http_sd_configs:\n      - url: %s\n", quote(sd.String()))
	a.targetRelabels(&b)
	a.metricRelabels(&b)
	return b.String(), nil
}

// targetRelabels hands the target to the exporter that asks it.
func (a *Adapter) targetRelabels(b *strings.Builder) {
	if a.Scrape.Through == "" {
		return
	}
	b.WriteString("    relabel_configs:\n")
	regex := "(.*)"
	if a.Scrape.Bare {
		regex = "(.+):[0-9]+"
	}
	fmt.Fprintf(b, "      - {source_labels: [__address__], regex: %s, target_label: __param_target}\n", quote(regex))
	fmt.Fprintf(b, "      - {target_label: __address__, replacement: %s}\n", quote(a.Scrape.Through))
}

// metricRelabels writes the aliases, and drops what would stand against the
// topology.
func (a *Adapter) metricRelabels(b *strings.Builder) {
	b.WriteString("    metric_relabel_configs:\n")
	var gone []string
	for _, l := range a.Labels {
		if l.Replace {
			fmt.Fprintf(b, "      - {source_labels: [%s], regex: '(.+)', target_label: %s}\n", l.From, l.Name)
			gone = append(gone, l.From)
			continue
		}
		fmt.Fprintf(b, "      - {source_labels: [%s, %s], regex: ';(.+)', target_label: %s}\n", l.Name, l.From, l.Name)
	}
	fmt.Fprintf(b, "      - {action: labeldrop, regex: 'exported_(%s)'}\n", strings.Join(topologyLabels, "|"))
	if len(gone) > 0 {
		fmt.Fprintf(b, "      - {action: labeldrop, regex: '%s'}\n", strings.Join(gone, "|"))
	}
}
