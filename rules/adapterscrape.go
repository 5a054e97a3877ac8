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

// registryURL is a path of the registry.
func registryURL(registry, path string, query url.Values) (string, error) {
	u, err := url.Parse(registry)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return "", fmt.Errorf("registry %q: want http://HOST:PORT or https://HOST:PORT", registry)
	}
	u = u.JoinPath(path)
	u.RawQuery = query.Encode()
	return u.String(), nil
}

// discovery is the URL by which the adapter's targets are found.
func (a *Adapter) discovery(registry string) (string, error) {
	query := url.Values{"job": {a.Job}}
	if a.Scrape.Port > 0 && a.Scrape.Through == "" {
		query.Set("port", strconv.Itoa(a.Scrape.Port))
	}
	return registryURL(registry, "api/v1/sd/exporters", query)
}

// writeParams writes the parameters of requests.
func (a *Adapter) writeParams(b *strings.Builder, indent string) {
	if len(a.Scrape.Params) == 0 {
		return
	}
	b.WriteString(indent + "params:\n")
	for _, name := range slices.Sorted(maps.Keys(a.Scrape.Params)) {
		fmt.Fprintf(b, "%s  %s: [%s]\n", indent, name, quote(a.Scrape.Params[name]))
	}
}

// scrapeConfig is the adapter's entry of scrape_configs.
func (a *Adapter) scrapeConfig(registry string) (string, error) {
	sd, err := a.discovery(registry)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	fmt.Fprintf(&b, "  # %s\n", strings.ReplaceAll(a.Title, "\n", " "))
	fmt.Fprintf(&b, "  - job_name: %s\n", quote(a.Job))
	if a.Scrape.Path != "" {
		fmt.Fprintf(&b, "    metrics_path: %s\n", quote(a.Scrape.Path))
	}
	a.writeParams(&b, "    ")
	fmt.Fprintf(&b, "    http_sd_configs:\n      - url: %s\n", quote(sd))
	writeRelabel(&b, "    ", "relabel_configs", a.targetSteps(), false)
	writeRelabel(&b, "    ", "metric_relabel_configs", a.metricSteps(), false)
	return b.String(), nil
}
