// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"slices"

	"github.com/rackpulse/rackpulse/collector"
)

// layout is how the counters look on the page: one Desc per line of the file, all
// with the same labels. Labels without a value, such as those of MIG on a whole GPU,
// are left out by the page.
type layout struct {
	descs  map[string][]*collector.Desc // by field: a file may have a field under two names
	slow   map[*collector.Desc]bool     // those of slowFields
	exp    map[string]*collector.Desc   // DCGM_EXP_*
	counts bool                         // exp has one that expCounts makes
	// entities are the families of each kind of entity by field.
	entities map[string]map[string][]*collector.Desc
	labels   []labelField // in file order
	hosts    int          // how many labels carry the host name
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
	common := slices.Clone(hosts)
	for _, label := range c.labels {
		common = append(common, label.name)
	}
	names = append(names, common...)
	l := &layout{descs: make(map[string][]*collector.Desc, len(c.metrics)), labels: c.labels, hosts: len(hosts),
		slow: make(map[*collector.Desc]bool), exp: make(map[string]*collector.Desc),
		entities: make(map[string]map[string][]*collector.Desc)}
	for _, m := range c.metrics {
		d := m.desc(names)
		l.descs[m.field] = append(l.descs[m.field], d)
		if isSlow(m.field) {
			l.slow[d] = true
		}
	}
	for kind, own := range entityLabels {
		l.entities[kind] = make(map[string][]*collector.Desc, len(c.metrics))
		labels := slices.Concat(own, common)
		for _, m := range c.metrics {
			l.entities[kind][m.field] = append(l.entities[kind][m.field], m.desc(labels))
		}
	}
	for _, m := range c.exp {
		l.exp[m.name] = m.desc(slices.Concat(names, expLabels[m.name]))
	}
	l.counts = l.exp[expXIDs] != nil || l.exp[expClocks] != nil
	return l
}

// desc returns the family of a line.
func (m *counter) desc(labels []string) *collector.Desc {
	gate := gateOf(m.field, m.typ)
	return &collector.Desc{Name: m.name, Help: m.help, Type: m.typ, Labels: labels, Min: gate[0], Max: gate[1]}
}

// values returns the label values of a device, for every Desc of the layout.
func (l *layout) values(d *Device, driver, host string) []string {
	v := []string{d.Index, d.UUID, d.PCIBusID, d.Name, d.Model, d.MIGProfile, d.MIGID}
	return l.common(v, d.Labels, driver, host)
}

// common appends the values of the labels that all series have.
func (l *layout) common(v []string, texts map[string]string, driver, host string) []string {
	for range l.hosts {
		v = append(v, host)
	}
	for _, label := range l.labels {
		text := texts[label.field]
		if label.field == fieldDriver && text == "" {
			text = driver
		}
		v = append(v, text)
	}
	return v
}
