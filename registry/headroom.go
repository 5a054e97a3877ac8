// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"math"
	"strconv"
	"strings"

	"github.com/rackpulse/rackpulse/lease"
)

// Headroom says, of each node that may be acted on, what a scheduler wants to
// know: "health" (its lease's state in lower case), "rack", "power-headroom-kw"
// (whole kilowatts that its rack may still draw, power_limit_watts less what its
// PDUs give) and "thermal-headroom-celsius" (whole kelvins from the rack's warmest
// inlet to ASHRAE's recommended maximum). What is not known is absent; simulated
// halls tell health and rack only.
func (r *Registry) Headroom(ctx context.Context) (map[string]map[string]string, error) {
	view, err := r.View(ctx)
	if err != nil {
		return nil, err
	}
	class, _ := r.site.Load().Limits.ASHRAE("")
	out := map[string]map[string]string{}
	add := func(n *NodeView, rack map[string]string) {
		if n.State == "" || !r.acts(n.Class) {
			return
		}
		labels := map[string]string{"health": strings.ToLower(n.State)}
		for k, v := range rack {
			labels[k] = v
		}
		out[n.ID] = labels
	}
	for i := range view.Racks {
		rack := &view.Racks[i]
		labels := map[string]string{"rack": rack.ID}
		if rack.PowerWatts != nil && rack.PowerLimitWatts > 0 && !view.Simulated {
			labels["power-headroom-kw"] = whole((rack.PowerLimitWatts - *rack.PowerWatts) / 1000)
		}
		if rack.InletC != nil && !view.Simulated {
			labels["thermal-headroom-celsius"] = whole(class.RecommendedMaxCelsius - *rack.InletC)
		}
		for j := range rack.Nodes {
			add(&rack.Nodes[j], labels)
		}
	}
	for i := range view.Rackless {
		add(&view.Rackless[i], nil)
	}
	return out, nil
}

// whole is v rounded down, at least 0: a label that seldom changes.
func whole(v float64) string { return strconv.Itoa(max(0, int(math.Floor(v)))) }

// acts says whether nodes of a class may be changed at all.
func (r *Registry) acts(class string) bool {
	mode := r.cfg.Actions.Mode
	if p, ok := r.cfg.Actions.Classes[class]; ok && p.Mode != "" {
		mode = p.Mode
	}
	return mode == lease.ModeSoft || mode == lease.ModeHard
}
