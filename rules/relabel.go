// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
)

// relabelStep is one step of relabelling. Values must need no escapes within
// single quotes.
type relabelStep struct {
	action  string // empty: replace
	sources []string
	regex   string
	target  string
	value   string // replacement; empty: the default, $1
}

// writeRelabel writes steps under a key. The operator of Kubernetes has the keys
// of Prometheus in camel case.
func writeRelabel(b *strings.Builder, indent, key string, steps []relabelStep, camel bool) {
	if len(steps) == 0 {
		return
	}
	source, target := "source_labels", "target_label"
	if camel {
		source, target = "sourceLabels", "targetLabel"
	}
	fmt.Fprintf(b, "%s%s:\n", indent, key)
	for _, s := range steps {
		var parts []string
		if s.action != "" {
			parts = append(parts, "action: "+s.action)
		}
		if len(s.sources) > 0 {
			parts = append(parts, fmt.Sprintf("%s: [%s]", source, strings.Join(s.sources, ", ")))
		}
		if s.regex != "" {
			parts = append(parts, "regex: "+quote(s.regex))
		}
		if s.target != "" {
			parts = append(parts, target+": "+s.target)
		}
		if s.value != "" {
			parts = append(parts, "replacement: "+quote(s.value))
		}
		fmt.Fprintf(b, "%s  - {%s}\n", indent, strings.Join(parts, ", "))
	}
}

// targetSteps hand the target to the exporter that asks it.
func (a *Adapter) targetSteps() []relabelStep {
	if a.Scrape.Through == "" {
		return nil
	}
	regex := "(.*)"
	if a.Scrape.Bare {
		regex = "(.+):[0-9]+"
	}
	return []relabelStep{
		{sources: []string{"__address__"}, regex: regex, target: "__param_target"},
		{target: "__address__", value: a.Scrape.Through},
	}
}

// metricSteps are the aliases, and drop what would stand against the topology.
func (a *Adapter) metricSteps() []relabelStep {
	var out []relabelStep
	var gone []string
	for _, l := range a.Labels {
		if l.Replace {
			out = append(out, relabelStep{sources: []string{l.From}, regex: "(.+)", target: l.Name})
			gone = append(gone, l.From)
			continue
		}
		out = append(out, relabelStep{sources: []string{l.Name, l.From}, regex: ";(.+)", target: l.Name})
	}
	out = append(out, relabelStep{action: "labeldrop", regex: "exported_(" + strings.Join(topologyLabels, "|") + ")"})
	if len(gone) > 0 {
		out = append(out, relabelStep{action: "labeldrop", regex: strings.Join(gone, "|")})
	}
	return out
}
