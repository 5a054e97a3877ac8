// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"slices"

	"github.com/rackpulse/rackpulse/collector"
)

// The families about entities besides the GPUs. UUID, gpu and pci_bus_id of a GPU's
// link are those of the GPU's own series.
var (
	descLinkUp = &collector.Desc{Name: "rackpulse_nvlink_up",
		Help:   "Whether the NVLink is up: 1, or 0 when it is down. Disabled ones are absent.",
		Labels: []string{"nvlink", "nvswitch", "gpu", "UUID", "pci_bus_id"}}
	descLinks = &collector.Desc{Name: "rackpulse_nvlinks",
		Help:   "NVLinks of the GPU or NVSwitch in this state.",
		Labels: []string{"nvswitch", "gpu", "UUID", "pci_bus_id", "state"}}
	descSwitchUp = &collector.Desc{Name: "rackpulse_nvswitch_up",
		Help:   "Whether DCGM could read the NVSwitch, 0 or 1.",
		Labels: []string{"nvswitch"}}
	descHealthTime = &collector.Desc{Name: "rackpulse_gpu_health_check_timestamp_seconds",
		Help:   "When DCGM last finished a health check of the GPU, Unix time.",
		Labels: []string{"UUID", "gpu"}}
	descOverdue = &collector.Desc{Name: "rackpulse_gpu_call_overdue",
		Help:   "Whether a call into DCGM beside the passes has not returned in time, 0 or 1.",
		Labels: []string{"call", "UUID", "gpu"}}
)

// entityLabels are dcgm-exporter's labels of each kind, and UUID.
var entityLabels = map[string][]string{
	kindSwitch: {"nvswitch"},
	kindLink:   {"nvlink", "nvswitch", "gpu", "gpu_uuid", "UUID", "pci_bus_id", "device", "model_name"},
	kindCPU:    {"cpu"},
	kindCore:   {"cpucore", "cpu"},
}

// noDevice stands for a link's parent that is no GPU.
var noDevice Device

// linkParent is a GPU or an NVSwitch and its links.
type linkParent struct {
	nvswitch, gpu string
	device        *Device
	states        map[string]int
}

// entityPoints returns the points of one reading; devices are those of the sample.
func (c *converter) entityPoints(devices []Device, p *EntityPass) []collector.Point {
	var points []collector.Point
	var parents []*linkParent
	for i := range p.List {
		e := &p.List[i]
		d := &noDevice
		if k := slices.IndexFunc(devices, func(d Device) bool { return d.Index == e.GPU }); k >= 0 {
			d = &devices[k]
		}
		switch e.Kind {
		case kindSwitch:
			points = append(points, collector.Point{Desc: descSwitchUp, Values: []string{e.ID}, Value: oneIf(!e.Lost)})
		case kindLink:
			k := slices.IndexFunc(parents, func(l *linkParent) bool { return l.nvswitch == e.Parent && l.gpu == e.GPU })
			if k < 0 {
				k = len(parents)
				parents = append(parents, &linkParent{e.Parent, e.GPU, d, make(map[string]int)})
			}
			parents[k].states[e.State]++
			if e.State != "disabled" {
				labels := []string{e.ID, e.Parent, e.GPU, d.UUID, d.PCIBusID}
				points = append(points, collector.Point{Desc: descLinkUp, Value: oneIf(e.State == "up"), Values: labels},
					collector.Point{Desc: descFlaps, Value: c.derived.flaps(e, d), Values: labels})
			}
		}
		if !d.Lost {
			points = c.entityValues(points, e, d)
		}
	}
	for _, l := range parents {
		for _, state := range linkStates {
			points = append(points, collector.Point{Desc: descLinks, Value: float64(l.states[state]),
				Values: []string{l.nvswitch, l.gpu, l.device.UUID, l.device.PCIBusID, state}})
		}
	}
	return points
}

// entityValues appends the DCGM_FI_ families of an entity.
func (c *converter) entityValues(points []collector.Point, e *Entity, d *Device) []collector.Point {
	var labels []string
	switch e.Kind {
	case kindSwitch, kindCPU:
		labels = []string{e.ID}
	case kindCore:
		labels = []string{e.ID, e.Parent}
	case kindLink:
		labels = []string{e.ID, e.Parent, e.GPU, d.UUID, d.UUID, d.PCIBusID, d.Name, d.Model}
	}
	labels = c.layout.common(labels, e.Labels, c.driver, c.host)
	for _, v := range e.Values {
		for _, desc := range c.layout.entities[e.Kind][v.Field] {
			points = append(points, collector.Point{Desc: desc, Values: labels, Value: v.V, At: v.At})
		}
	}
	return points
}

// oneIf is 1 for true.
func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
