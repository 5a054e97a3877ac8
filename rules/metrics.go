// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	_ "embed" // metrics.txt
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

//go:embed metrics.txt
var metricsFile []byte

// KnownMetrics returns the committed list of metrics, rules/metrics.txt, in the
// form that Lint takes: one metric on a line, a space, its labels with commas.
func KnownMetrics() []byte { return bytes.Clone(metricsFile) }

// Metrics makes the list for Lint from pages in the Prometheus text format. It
// merges them with known, so that metrics which no page shows at the moment stay.
func Metrics(known []byte, pages ...[]byte) ([]byte, error) {
	all := parseMetrics(known)
	for i, page := range pages {
		p := expfmt.NewTextParser(model.UTF8Validation)
		families, err := p.TextToMetricFamilies(bytes.NewReader(page))
		if err != nil {
			return nil, fmt.Errorf("page %d: %w", i+1, err)
		}
		for name, family := range families {
			all[name] = union(all[name])
			for _, m := range family.Metric {
				for _, pair := range m.Label {
					all[name] = union(all[name], pair.GetName())
				}
			}
		}
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		list := slices.Sorted(slices.Values(all[name]))
		b.WriteString(strings.TrimSpace(name+" "+strings.Join(list, ",")) + "\n")
	}
	return []byte(b.String()), nil
}

// parseMetrics reads the list: labels by metric name.
func parseMetrics(data []byte) map[string][]string {
	out := map[string][]string{}
	for line := range strings.SplitSeq(string(data), "\n") {
		name, list, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "" || strings.HasPrefix(name, "#") {
			continue
		}
		out[name] = strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
	}
	return out
}

// metricNames returns the metric names in an expression, sorted; none where it
// does not parse.
func metricNames(expr string) []string {
	parsed, err := promParser.ParseExpr(expr)
	if err != nil {
		return nil
	}
	var out []string
	parser.Inspect(parsed, func(node parser.Node, _ []parser.Node) error {
		if vs, ok := node.(*parser.VectorSelector); ok && vs.Name != "" && !slices.Contains(out, vs.Name) {
			out = append(out, vs.Name)
		}
		return nil
	})
	slices.Sort(out)
	return out
}

// Series returns everything that a query may ask for, with its labels: the
// exporters' metrics and the series that the compiled rules record.
func (p *Pack) Series(limits Limits) (map[string][]string, error) {
	groups, err := (&builder{pack: p, limits: limits}).groups()
	if err != nil {
		return nil, err
	}
	out := parseMetrics(metricsFile)
	for _, g := range groups {
		for _, r := range g.rules {
			if parts := strings.Split(r.record, ":"); len(parts) == 3 {
				out[r.record] = slices.Clone(p.levels[parts[1]].Labels)
			}
		}
	}
	return out, nil
}
