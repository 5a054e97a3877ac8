// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"bufio"
	_ "embed" // default counters
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/rackpulse/rackpulse/collector"
)

// Bounds of a counters file; dcgm-exporter's has 26 counters in 6 kB.
const (
	maxCountersBytes = 1 << 20
	maxCounters      = 1000
)

//go:embed default-counters.csv
var defaultCountersCSV string

// counter is one line of a counters file.
type counter struct {
	name string // metric name
	help string
	typ  collector.Type
}

// counters is a counters file: what to read and how to show it.
type counters struct {
	metrics []counter
	labels  []string // fields that become labels of all GPU series
	// skipped are lines that dcgm-exporter computes itself, with our substitute.
	skipped []string
}

// fields returns the names of all fields that the file needs and those that the
// package always reads, each once.
func (c *counters) fields() []string {
	names := make([]string, 0, len(c.metrics)+len(alwaysRead))
	for _, m := range c.metrics {
		names = append(names, m.name)
	}
	for _, name := range alwaysRead {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// expSubstitutes are dcgm-exporter's pseudo fields with the families that
// replace them here.
var expSubstitutes = map[string]string{
	"DCGM_EXP_XID_ERRORS_COUNT":   "rackpulse_gpu_xid_errors_total",
	"DCGM_EXP_CLOCK_EVENTS_COUNT": "rackpulse_gpu_throttle",
	"DCGM_EXP_GPU_HEALTH_STATUS":  "rackpulse_gpu_up",
	"DCGM_EXP_P2P_STATUS":         "no family of ours",
}

// loadCounters reads a counters file; an empty path means the built-in one.
func loadCounters(path string) (*counters, error) {
	if path == "" {
		return parseCounters(strings.NewReader(defaultCountersCSV), "default-counters.csv")
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return parseCounters(f, path)
}

// parseCounters reads dcgm-exporter's counters format: "field, type, help" with
// # comments. Unlike there, the help may have commas. Errors name file and line.
func parseCounters(r io.Reader, file string) (*counters, error) {
	c := &counters{}
	seen := make(map[string]int)
	limited := &io.LimitedReader{R: r, N: maxCountersBytes + 1}
	scanner := bufio.NewScanner(limited)
	for line := 1; scanner.Scan(); line++ {
		text := strings.TrimSpace(strings.TrimPrefix(scanner.Text(), "\ufeff"))
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		name, err := c.addLine(text)
		if err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, line, err)
		}
		if first, ok := seen[name]; ok {
			return nil, fmt.Errorf("%s:%d: field %s is already on line %d", file, line, name, first)
		}
		seen[name] = line
		if len(seen) > maxCounters {
			return nil, fmt.Errorf("%s:%d: more than %d counters", file, line, maxCounters)
		}
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	if limited.N <= 0 {
		return nil, fmt.Errorf("%s: larger than %d bytes", file, maxCountersBytes)
	}
	if len(c.metrics) == 0 {
		return nil, fmt.Errorf("%s: no counters", file)
	}
	return c, nil
}

// addLine adds one line and returns the metric name it stands for.
func (c *counters) addLine(text string) (string, error) {
	cells := strings.SplitN(text, ",", 3)
	if len(cells) != 3 {
		return "", fmt.Errorf("want 'field, type, help', got %q", text)
	}
	name, typ, help := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1]), strings.TrimSpace(cells[2])
	if n := len(help); n >= 2 && help[0] == '"' && help[n-1] == '"' {
		help = strings.ReplaceAll(help[1:n-1], `""`, `"`)
	}
	if instead, ok := expSubstitutes[name]; ok {
		c.skipped = append(c.skipped, fmt.Sprintf("%s (instead: %s)", name, instead))
		return name, nil
	}
	field, ok := fieldNames()[name]
	if !ok {
		return "", fmt.Errorf("unknown DCGM field %q", name)
	}
	switch typ {
	case "gauge":
		c.metrics = append(c.metrics, counter{field.metric, help, collector.Gauge})
	case "counter":
		c.metrics = append(c.metrics, counter{field.metric, help, collector.Counter})
	case "label":
		c.labels = append(c.labels, field.metric)
	default:
		return "", fmt.Errorf("field %s: unknown type %q (gauge, counter or label)", name, typ)
	}
	return field.metric, nil
}

// layout is how the counters look on the page: one Desc per metric, all with the
// same labels. Labels without a value, such as those of MIG on a whole GPU, are
// left out by the page.
type layout struct {
	descs  map[string]*collector.Desc
	slow   map[*collector.Desc]bool // those of slowFields
	labels []string                 // label fields, in file order
	hosts  int                      // how many labels carry the host name
}

// hostLabels are the values of hostname_label. dcgm-exporter renamed its label
// Hostname to hostname in 2026, which broke dashboards; here one chooses.
var hostLabels = map[string][]string{
	"Hostname": {"Hostname"},
	"hostname": {"hostname"},
	"both":     {"Hostname", "hostname"},
	"none":     {},
}

func newLayout(c *counters, hostLabel string) *layout {
	names := []string{"gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID"}
	hosts := hostLabels[hostLabel]
	names = append(names, hosts...)
	names = append(names, c.labels...)
	l := &layout{descs: make(map[string]*collector.Desc, len(c.metrics)), labels: c.labels, hosts: len(hosts),
		slow: make(map[*collector.Desc]bool)}
	for _, m := range c.metrics {
		gate := gateOf(m.name, m.typ)
		l.descs[m.name] = &collector.Desc{Name: m.name, Help: m.help, Type: m.typ,
			Labels: names, Min: gate[0], Max: gate[1]}
		if isSlow(m.name) {
			l.slow[l.descs[m.name]] = true
		}
	}
	return l
}

// values returns the label values of a device, for every Desc of the layout.
func (l *layout) values(d *Device, driver, host string) []string {
	v := []string{d.Index, d.UUID, d.PCIBusID, d.Name, d.Model, d.MIGProfile, d.MIGID}
	for range l.hosts {
		v = append(v, host)
	}
	for _, name := range l.labels {
		text := d.Labels[name]
		if name == fieldDriver && text == "" {
			text = driver
		}
		v = append(v, text)
	}
	return v
}
