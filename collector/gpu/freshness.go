// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"time"

	"github.com/rackpulse/rackpulse/collector"
)

// The classes of fields.
const (
	classFast = iota
	classSlow
)

var classNames = [...]string{classFast: "fast", classSlow: "slow"}

// freshness is when the newest values of the GPUs of one pass were measured.
type freshness []gpuFreshness

type gpuFreshness struct {
	uuid   string
	labels *deviceLabels
	newest [len(classNames)]time.Time
}

// gpu returns the entry of a device's GPU: the instances of one come one after another.
func (f *freshness) gpu(uuid string, l *deviceLabels) *gpuFreshness {
	if n := len(*f); n == 0 || uuid == "" || (*f)[n-1].uuid != uuid {
		*f = append(*f, gpuFreshness{uuid: uuid, labels: l})
	}
	return &(*f)[len(*f)-1]
}

func (g *gpuFreshness) saw(class int, at time.Time) {
	if at.After(g.newest[class]) {
		g.newest[class] = at
	}
}

// points appends the times, each with the values of its class.
func (f freshness) points(points, slow []collector.Point) (_, _ []collector.Point) {
	lists := [len(classNames)]*[]collector.Point{classFast: &points, classSlow: &slow}
	for i := range f {
		for class, at := range f[i].newest {
			if !at.IsZero() {
				*lists[class] = append(*lists[class], collector.Point{Desc: descSampleTime,
					Values: f[i].labels.classes[class], Value: float64(at.UnixMilli()) / 1e3})
			}
		}
	}
	return points, slow
}

// supportPoints appends the fields of the counters file that the device does not have.
func (c *converter) supportPoints(points []collector.Point, d *Device, l *deviceLabels) []collector.Point {
	for _, field := range d.Unsupported {
		for _, desc := range c.layout.descs[field] {
			values := l.denied[desc]
			if values == nil {
				values = []string{d.UUID, d.Index, desc.Name}
				l.denied[desc] = values
			}
			points = append(points, collector.Point{Desc: descSupported, Values: values})
		}
	}
	return points
}

// rejected returns what the source left out, under the names of the counters file.
func (c *converter) rejected(list []Rejection) []collector.Rejection {
	rejected := make([]collector.Rejection, 0, len(list))
	for _, r := range list {
		name := r.Field
		if descs := c.layout.descs[r.Field]; len(descs) > 0 {
			name = descs[0].Name
		}
		rejected = append(rejected, collector.Rejection{Field: name, Reason: r.Reason, Count: r.Count})
	}
	return rejected
}
