// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"embed"
	"errors"
	"io/fs"
	"regexp"
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
	labelName   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
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
