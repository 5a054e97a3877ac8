// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"time"

	"github.com/rackpulse/rackpulse/collector"
)

// converter turns samples into points. Label values are made once per device, so
// that a steady node costs no strings.
type converter struct {
	layout  *layout
	host    string
	driver  string
	devices map[deviceKey]*deviceLabels
	exp     *expCounts
	derived *derived
	// How many points the last sample gave, which the next one has room for: a
	// slice that grows keeps up to twice its size.
	fast, slow int
}

// deviceKey is what may change about a device without it being another one.
type deviceKey struct {
	uuid, index, mig string
}

type deviceLabels struct {
	device   Device // Values and Labels left out
	labels   map[string]string
	series   []string // of the DCGM_FI_ families
	gpu      []string // UUID, gpu
	info     []string
	throttle [][]string                   // in throttleReasons' order
	classes  [len(classNames)][]string    // of descSampleTime
	denied   map[*collector.Desc][]string // of descSupported
}

func newConverter(l *layout, host string, exp *expCounts, d *derived) *converter {
	return &converter{layout: l, host: host, devices: make(map[deviceKey]*deviceLabels), exp: exp, derived: d}
}

// labelsOf returns the label values of a device, made anew when they changed.
func (c *converter) labelsOf(d *Device) *deviceLabels {
	key := deviceKey{d.UUID, d.Index, d.MIGID}
	l := c.devices[key]
	if l != nil && l.same(d) {
		return l
	}
	if len(c.devices) >= 2*maxGPUs { // devices that come and go
		clear(c.devices)
	}
	l = &deviceLabels{device: *d, labels: d.Labels, denied: make(map[*collector.Desc][]string)}
	l.device.Values, l.device.Labels, l.device.Unsupported = nil, nil, nil
	l.series = c.layout.values(d, c.driver, c.host)
	l.gpu = []string{d.UUID, d.Index}
	l.info = []string{d.UUID, d.Index, d.PCIBusID, d.Name, d.Model, c.driver}
	for _, r := range throttleReasons {
		l.throttle = append(l.throttle, []string{d.UUID, d.Index, r.reason})
	}
	for i, class := range classNames {
		l.classes[i] = []string{d.UUID, d.Index, class}
	}
	c.devices[key] = l
	return l
}

func (l *deviceLabels) same(d *Device) bool {
	o := &l.device
	if o.PCIBusID != d.PCIBusID || o.Name != d.Name || o.Model != d.Model || o.MIGProfile != d.MIGProfile || len(l.labels) != len(d.Labels) {
		return false
	}
	for name, text := range d.Labels {
		if l.labels[name] != text {
			return false
		}
	}
	return true
}

// points returns the points of one sample, those of slow fields apart. A lost GPU
// has rackpulse_gpu_up 0 and nothing else; missing are GPUs that the sample does
// not have.
func (c *converter) points(s *Sample, missing []*knownGPU, xids *xidBook) (points, slow []collector.Point) {
	if s.Driver != c.driver {
		c.driver = s.Driver
		clear(c.devices)
	}
	points = make([]collector.Point, 0, c.fast)
	slow = make([]collector.Point, 0, c.slow)
	told := make(map[string]bool, len(s.Devices)) // a GPU with MIG has several devices
	fresh := make(freshness, 0, len(s.Devices))
	for i := range s.Devices {
		d := &s.Devices[i]
		l := c.labelsOf(d)
		whole := d.UUID == "" || !told[d.UUID]
		told[d.UUID] = true
		if c.layout.counts { // a lost GPU keeps its counts of driver errors
			if whole {
				c.exp.look(d, xids.counts(d.UUID), s.At)
			}
			points = c.exp.points(points, d, l, c.layout, s.At)
		}
		if d.Lost {
			if whole {
				points = append(points, collector.Point{Desc: descUp, Values: l.gpu, Value: 0})
			}
			continue
		}
		points, slow = c.fieldPoints(points, slow, d, l, fresh.gpu(d.UUID, l), s.At)
		points = c.xidPoints(points, d, l, xids)
		if whole {
			points = append(points,
				collector.Point{Desc: descUp, Values: l.gpu, Value: 1},
				collector.Point{Desc: descInfo, Values: l.info, Value: 1})
			points = ownPoints(points, d, l)
			slow = c.supportPoints(slow, d, l)
		}
		points, slow = c.derived.points(points, slow, d, l, s.At, whole)
	}
	for _, g := range missing {
		points = append(points, collector.Point{Desc: descUp, Values: []string{g.UUID, g.Index}, Value: 0})
	}
	for _, call := range s.Aside.Calls {
		points = append(points, collector.Point{Desc: descOverdue, Values: []string{call.Name, call.UUID, call.Index}, Value: oneIf(call.Overdue)})
	}
	points, slow = fresh.points(points, slow)
	c.fast, c.slow = len(points), len(slow)
	return points, slow
}

// fieldPoints appends the DCGM_FI_ families. DCGM_FI_DEV_XID_ERRORS has no
// err_code and err_msg here, unlike in dcgm-exporter: with them every new XID
// ends the old series and begins another, so that no rule can follow the GPU
// (dcgm-exporter #190, #500). Its value is the code; rackpulse_gpu_xid_errors_total
// counts.
func (c *converter) fieldPoints(points, slow []collector.Point, d *Device, l *deviceLabels, fresh *gpuFreshness, read time.Time) (_, _ []collector.Point) {
	for i := range d.Values {
		v := &d.Values[i]
		at := v.At
		if at.IsZero() && v.Field != fieldXID { // that is as old as the latest error
			at = read
		}
		for _, desc := range c.layout.descs[v.Field] {
			p := collector.Point{Desc: desc, Values: l.series, Value: v.V, At: v.At}
			if c.layout.slow[desc] {
				slow = append(slow, p)
				fresh.saw(classSlow, at)
			} else {
				points = append(points, p)
				fresh.saw(classFast, at)
			}
		}
	}
	return points, slow
}

// xidPoints appends the latest XID of a GPU whose source has no value of it any more.
// Like in dcgm-exporter there is none until the first XID.
func (c *converter) xidPoints(points []collector.Point, d *Device, l *deviceLabels, xids *xidBook) []collector.Point {
	code, ok := xids.last(d.UUID)
	if !ok || d.value(fieldXID) != nil {
		return points
	}
	for _, desc := range c.layout.descs[fieldXID] {
		points = append(points, collector.Point{Desc: desc, Values: l.series, Value: float64(code)})
	}
	return points
}

// ownPoints appends what is derived from the fields that are always read.
func ownPoints(points []collector.Point, d *Device, l *deviceLabels) []collector.Point {
	if v := d.value(fieldThrottle); v != nil && v.V >= 0 && v.V < 1<<53 {
		mask := uint64(v.V)
		for i, r := range throttleReasons {
			p := collector.Point{Desc: descThrottle, Values: l.throttle[i], At: v.At}
			if mask&r.bit != 0 {
				p.Value = 1
			}
			points = append(points, p)
		}
	}
	margin, temp, slowdown := d.value(fieldMargin), d.value(fieldTemp), d.value(fieldSlowdown)
	switch { // the driver's own margin knows all thresholds; else the slowdown temperature's
	case margin != nil:
		points = append(points, collector.Point{Desc: descMargin, Values: l.gpu, Value: margin.V, At: margin.At})
	case temp.inGate() && slowdown.inGate():
		points = append(points, collector.Point{Desc: descMargin, Values: l.gpu, Value: slowdown.V - temp.V, At: temp.At})
	}
	return points
}

// value returns the value of a field, nil: the device has none.
func (d *Device) value(field string) *Value {
	for i := range d.Values {
		if d.Values[i].Field == field {
			return &d.Values[i]
		}
	}
	return nil
}

// inGate tells whether there is a value and it may enter a calculation.
func (v *Value) inGate() bool {
	return v != nil && v.V >= gates[v.Field][0] && v.V <= gates[v.Field][1]
}
