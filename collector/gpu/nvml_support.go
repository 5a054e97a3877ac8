// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"slices"
	"time"
)

// support sets what a GPU does not give on its devices, after a pass with all calls:
// fields without a value that no call reads, or only calls that the library lacks or
// that the card has just refused.
func (s *nvmlSource) support(devices []Device, g *nvmlGPU, now time.Time) {
	if g.lost != "" {
		return
	}
	var names []string
	for _, field := range s.cfg.Fields {
		if field == fieldXID || slices.ContainsFunc(devices, func(d Device) bool { return d.value(field) != nil }) {
			continue
		}
		able := false
		for i := range s.calls {
			c := &s.calls[i]
			able = able || slices.Contains(c.fields, field) && c.scope.covers(g) && !c.missing && !now.Before(g.off[i])
		}
		if !able {
			names = append(names, field)
		}
	}
	for i := range devices {
		devices[i].Unsupported = names
	}
}
