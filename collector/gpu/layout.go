// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"github.com/rackpulse/rackpulse/collector"
)

// layout is how the counters look on the page: one Desc per line of the file, all
// with the same labels. Labels without a value, such as those of MIG on a whole GPU,
// are left out by the page.
type layout struct {
	descs  map[string][]*collector.Desc // by field: a file may have a field under two names
	slow   map[*collector.Desc]bool     // those of slowFields
	labels []labelField                 // in file order
	hosts  int                          // how many labels carry the host name
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
	for _, label := range c.labels {
		names = append(names, label.name)
	}
	l := &layout{descs: make(map[string][]*collector.Desc, len(c.metrics)), labels: c.labels, hosts: len(hosts),
		slow: make(map[*collector.Desc]bool)}
	for _, m := range c.metrics {
		gate := gateOf(m.field, m.typ)
		d := &collector.Desc{Name: m.name, Help: m.help, Type: m.typ, Labels: names, Min: gate[0], Max: gate[1]}
		l.descs[m.field] = append(l.descs[m.field], d)
		if isSlow(m.field) {
			l.slow[d] = true
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
	for _, label := range l.labels {
		text := d.Labels[label.field]
		if label.field == fieldDriver && text == "" {
			text = driver
		}
		v = append(v, text)
	}
	return v
}
