// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/rackpulse/rackpulse/config"
)

//go:embed adapters/*.yml
var embeddedAdapters embed.FS

// Adapter feeds RackPulse's metrics from the series of an exporter that a site
// keeps: one file of adapters/.
type Adapter struct {
	Name   string `yaml:"adapter"`
	Title  string `yaml:"title"`
	Source string `yaml:"source"` // where the exporter's metrics are described
	// Target is what one target of the exporter is: "node", or the kind of a
	// facility device (pdu, cooling_unit, switch).
	Target string `yaml:"target"`
	// Job is the job label of its series; default: the name.
	Job string `yaml:"job"`
	// Order decides between adapters that feed the same metric: the lower one.
	Order  int           `yaml:"order"`
	Scrape adapterScrape `yaml:"scrape"`
	Labels []alias       `yaml:"labels"`
	// Passes are metrics that need labels only: the exporter uses our names.
	Passes  []string  `yaml:"passes"`
	Metrics []mapping `yaml:"metrics"`

	pos positions
}

// adapterScrape says how the exporter is asked.
type adapterScrape struct {
	Port   int               `yaml:"port"` // of an exporter on each node
	Path   string            `yaml:"path"`
	Params map[string]string `yaml:"params"`
	// Through is host:port of an exporter that asks the targets itself, which it
	// is given as parameter "target".
	Through string `yaml:"through"`
	// Bare targets are given to it without their port.
	Bare bool `yaml:"bare_target"`
}

// alias makes a label from another one at the scrape: where it is empty, or with
// Replace always.
type alias struct {
	Name    string `yaml:"name"`
	From    string `yaml:"from"`
	Replace bool   `yaml:"replace"`
}

// mapping makes one of our metrics.
type mapping struct {
	Metric string `yaml:"metric"`
	// From is an expression over the exporter's series. Job and target guards are
	// added to its selectors; those that match "adapter" are left as they are.
	From  string     `yaml:"from"`
	Unit  string     `yaml:"unit"`  // of the raw value
	Drop  []float64  `yaml:"drop"`  // raw values that mean "none"
	Scale float64    `yaml:"scale"` // to our unit
	Range []float64  `yaml:"range"` // plausible values in our unit
	Is    *float64   `yaml:"is"`    // 1 where the raw value is this one, else 0
	Fn    string     `yaml:"fn"`    // over several series of one entity; default max
	Label []labelMap `yaml:"labels"`
	// Static labels of the result.
	Static map[string]string `yaml:"static"`
	// Served is the metric whose presence says that RackPulse has this already;
	// default: the metric itself.
	Served string `yaml:"served"`

	at position
}

// labelMap makes a label of ours: from one label of the exporter, from several
// joined by "-", or a fixed text.
type labelMap struct {
	Name  string   `yaml:"name"`
	From  []string `yaml:"from"`
	Value string   `yaml:"value"` // "$1" stands for the value of From; default "$1"
}

// adapterTargets are the kinds of targets with the label that identifies one.
var adapterTargets = map[string]string{"node": "node", "pdu": "pdu_id", "cooling_unit": "cooling_unit", "switch": "switch"}

var (
	adapterName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,40}$`)
	jobPattern  = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`) // the registry takes no others
	ourMetric   = regexp.MustCompile(`^(pdu|rack|switch_port|cooling_unit|facility|DCGM_FI|rackpulse)_[A-Za-z0-9_]+$|^node_power_watt$`)
	hostPort    = regexp.MustCompile(`^[A-Za-z0-9_.-]+:[0-9]{1,5}$`)
)

// Adapters returns the adapters that come with the program, by name.
func Adapters() ([]*Adapter, error) {
	names, err := fs.Glob(embeddedAdapters, "adapters/*.yml")
	if err != nil {
		return nil, err
	}
	var out []*Adapter
	var errs []error
	for _, name := range names {
		data, err := embeddedAdapters.ReadFile(name)
		if err != nil {
			return nil, err
		}
		a, err := ReadAdapter(name, data)
		out, errs = append(out, a), append(errs, err)
	}
	return out, errors.Join(errs...)
}

// ReadAdapter reads and checks one adapter file; every error names file and line.
func ReadAdapter(name string, data []byte) (*Adapter, error) {
	a := &Adapter{}
	if err := config.Strict(name, data, a); err != nil {
		return nil, err
	}
	var err error
	if a.pos, err = strict(name, data, a); err != nil {
		return nil, err
	}
	if a.Job == "" {
		a.Job = a.Name
	}
	for i := range a.Metrics {
		a.Metrics[i].at = a.pos.find("metrics", i)
	}
	return a, errors.Join(a.check(), a.checkMetrics())
}

func (a *Adapter) check() error {
	at := func(steps ...any) position { return a.pos.find(steps...) }
	s := a.Scrape
	switch _, ok := adapterTargets[a.Target]; {
	case !adapterName.MatchString(a.Name):
		return at("adapter").errorf("adapter %q: want lower case letters, digits and -", a.Name)
	case a.Title == "" || a.Source == "":
		return at().errorf("adapter %s: title and source are required", a.Name)
	case !ok:
		return at("target").errorf("adapter %s: unknown target %q, want node, pdu, cooling_unit or switch", a.Name, a.Target)
	case !jobPattern.MatchString(a.Job):
		return at("job").errorf("adapter %s: %q is no job name", a.Name, a.Job)
	case len(a.Metrics) == 0 && len(a.Passes) == 0:
		return at().errorf("adapter %s: neither metrics nor passes", a.Name)
	case s.Through != "" && !hostPort.MatchString(s.Through):
		return at("scrape", "through").errorf("adapter %s: through is %q, want host:port", a.Name, s.Through)
	case s.Through == "" && a.Target != "node":
		return at("scrape").errorf("adapter %s: a facility device is asked through an exporter, so scrape.through is required", a.Name)
	case s.Port < 0 || s.Port > 65535:
		return at("scrape", "port").errorf("adapter %s: port %d", a.Name, s.Port)
	}
	for i, l := range a.Labels {
		if !labelPattern.MatchString(l.Name) || !labelPattern.MatchString(l.From) || l.Name == l.From {
			return at("labels", i).errorf("adapter %s: labels: %q from %q, want two label names", a.Name, l.Name, l.From)
		}
	}
	for i, m := range a.Passes {
		if !ourMetric.MatchString(m) {
			return at("passes", i).errorf("adapter %s: %s is no metric of RackPulse", a.Name, m)
		}
	}
	return nil
}

var labelPattern = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

func (a *Adapter) checkMetrics() error {
	var errs []error
	seen := map[string]position{}
	for i := range a.Metrics {
		m := &a.Metrics[i]
		key := m.Metric + fmt.Sprint(m.Static)
		if first, twice := seen[key]; twice {
			errs = append(errs, m.at.errorf("metric %s is also at %s with the same static labels", m.Metric, first))
		}
		seen[key] = m.at
		errs = append(errs, a.checkMapping(m))
	}
	return errors.Join(errs...)
}

func (a *Adapter) checkMapping(m *mapping) error {
	id := adapterTargets[a.Target]
	switch {
	case !ourMetric.MatchString(m.Metric):
		return m.at.errorf("metric %q is none of RackPulse", m.Metric)
	case m.From == "":
		return m.at.errorf("metric %s: from is required", m.Metric)
	case m.Scale < 0:
		return m.at.errorf("metric %s: scale %g is negative", m.Metric, m.Scale)
	case m.Scale != 0 && m.Unit == "":
		return m.at.errorf("metric %s: scale without unit: say what the raw value is", m.Metric)
	case m.Is != nil && (m.Scale != 0 || len(m.Range) > 0):
		return m.at.errorf("metric %s: a state (is) has neither scale nor range", m.Metric)
	case len(m.Range) != 0 && (len(m.Range) != 2 || m.Range[0] >= m.Range[1]):
		return m.at.errorf("metric %s: range wants two rising numbers", m.Metric)
	case m.Fn != "" && !slices.Contains([]string{"max", "min", "avg", "sum"}, m.Fn):
		return m.at.errorf("metric %s: unknown fn %q, want max, min, avg or sum", m.Metric, m.Fn)
	case m.Served != "" && !ourMetric.MatchString(m.Served):
		return m.at.errorf("metric %s: served: %q is no metric of RackPulse", m.Metric, m.Served)
	}
	for name := range m.Static {
		if !labelPattern.MatchString(name) || name == "adapter" || name == "site" {
			return m.at.errorf("metric %s: %q cannot be a static label", m.Metric, name)
		}
	}
	for _, l := range m.Label {
		switch {
		case !labelPattern.MatchString(l.Name) || l.Name == id || l.Name == "site" || l.Name == "rack_id":
			return m.at.errorf("metric %s: label %q cannot be made", m.Metric, l.Name)
		case len(l.From) == 0 && l.Value == "":
			return m.at.errorf("metric %s, label %s: want from or value", m.Metric, l.Name)
		case len(l.From) > 1 && l.Value != "":
			return m.at.errorf("metric %s, label %s: value goes with one label of from only", m.Metric, l.Name)
		}
	}
	return checkFrom(m)
}

// checkFrom parses a mapping's expression.
func checkFrom(m *mapping) error {
	expr, err := promParser.ParseExpr(m.From)
	if err != nil {
		return m.at.errorf("metric %s: from: %v", m.Metric, err)
	}
	if expr.Type() != parser.ValueTypeVector {
		return m.at.errorf("metric %s: from gives a %s, want an instant vector", m.Metric, expr.Type())
	}
	return nil
}
