// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/query"
)

// Facts that no rule records; the rest of the data has the names of signals.
const (
	factDevice   = "facility_device_up"
	factUnit     = "cooling_unit_up"
	factLease    = "rackpulse_lease_up"
	factXID      = "xid"
	factFlaps    = "port_flaps"
	factNodeLost = "node_lease_lost"
	factOverload = "phase_over_rated"
)

// track is what one signal says of one entity over time.
type track struct {
	labels map[string]string
	points []query.Point
}

// ranged asks one range query over the window and keeps it for the report.
func (c *casebook) ranged(ctx context.Context, expr string) ([]query.Series, error) {
	if !slices.Contains(c.queries, expr) {
		c.queries = append(c.queries, expr)
	}
	list, err := c.Querier.Range(ctx, expr, c.window.begin, c.window.to, c.window.step)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStore, err)
	}
	return slices.DeleteFunc(list, func(s query.Series) bool { return len(s.Points) == 0 }), nil
}

// read asks everything: one query for all signals of a level, one for each fact.
func (c *casebook) read(ctx context.Context) error {
	c.data, c.sorted = map[string]map[Entity]*track{}, map[string][]Entity{}
	near := c.near()
	names := c.wanted()
	for _, level := range slices.Sorted(maps.Keys(names)) {
		where := c.atSite()
		if level == "gpu" {
			where += "," + near
		}
		byRecord := map[string]string{}
		var records []string
		for _, n := range names[level] {
			byRecord[c.signals[n].Series] = n
			records = append(records, regexp.QuoteMeta(c.signals[n].Series))
		}
		list, err := c.ranged(ctx, fmt.Sprintf("{__name__=~%q,%s}", strings.Join(records, "|"), where))
		if err != nil {
			return err
		}
		for _, s := range list {
			of := level
			if of == "phase" { // one PDU is one thing to look at
				of = "pdu"
			}
			c.add(byRecord[s.Labels["__name__"]], of, s)
		}
	}
	for _, f := range []struct{ fact, level, expr string }{
		{factDevice, "device", "max by (device) (facility_device_up{" + c.atSite() + "})"},
		{factUnit, "cooling_unit", "max by (cooling_unit) (cooling_unit_up{" + c.atSite() + "})"},
		{factLease, "node", "max by (node) (rackpulse_lease_up{" + near + "})"},
		{factXID, "gpu", "max by (UUID, gpu, node, rack_id, xid) (rackpulse_gpu_xid_last_timestamp_seconds{" + near + "})"},
		{factFlaps, "port", "max by (switch, port) (increase(switch_port_flaps_total{" + c.atSite() + "}[2m])) > 0"},
	} {
		list, err := c.ranged(ctx, f.expr)
		if err != nil {
			return err
		}
		for _, s := range list {
			c.add(f.fact, f.level, s)
		}
	}
	return c.readAlerts(ctx)
}

// atSite selects the series of the site, and those that carry no site.
func (c *casebook) atSite() string { return fmt.Sprintf("site=~%q", "|"+regexp.QuoteMeta(c.Site.ID)) }

// near selects the series of the racks of the focus.
func (c *casebook) near() string {
	racks := c.graph.racks(c.focus)
	if len(racks) > 64 { // a feed of the whole hall: no list
		return c.atSite()
	}
	if slices.Equal(racks, []string{""}) {
		for _, e := range c.focus {
			if l := c.graph.labels(e); l["node"] != "" {
				return fmt.Sprintf("node=%q", l["node"])
			}
		}
	}
	for i, r := range racks {
		racks[i] = regexp.QuoteMeta(r)
	}
	return fmt.Sprintf("rack_id=~%q", strings.Join(racks, "|"))
}

// context signals are read for their values, not for whether they hold.
var measured = []string{"inlet", "gpu_temperature", "gpu_power", "pdu_current"}

// wanted lists the signals to read by level: those that correlations name and
// those that say whether their absence means anything.
func (c *casebook) wanted() map[string][]string {
	all := append([]string{factNodeLost, factOverload, "load_rising", "cooling_unit_down", "other_feed_step"}, measured...)
	for _, r := range c.rules {
		for _, b := range r.Branches {
			all = append(all, b.Symptom)
			for _, k := range b.Causes {
				all = append(all, k.Signal)
			}
		}
		if g := r.Group; g != nil {
			all = append(all, g.Of)
			for _, k := range slices.Concat(g.Supporting, g.Contradicting) {
				all = append(all, k.Signal)
			}
		}
	}
	for _, n := range slices.Clone(all) {
		all = append(all, c.signals[n].Needs...)
	}
	out := map[string][]string{}
	slices.Sort(all)
	for _, n := range slices.Compact(all) {
		if s, ok := c.signals[n]; ok {
			out[s.Level] = append(out[s.Level], n)
		}
	}
	return out
}

// add files one series; two of one entity, such as before and after a move, are
// one track.
func (c *casebook) add(name, level string, s query.Series) {
	e, ok := entityAt(level, s.Labels)
	if !ok {
		return
	}
	c.graph.learn(s.Labels)
	key := name
	if name == factXID {
		key += s.Labels["xid"]
	}
	if c.data[key] == nil {
		c.data[key] = map[Entity]*track{}
	}
	t := c.data[key][e]
	if t == nil {
		c.data[key][e] = &track{labels: s.Labels, points: s.Points}
		return
	}
	t.points = append(t.points, s.Points...)
	slices.SortStableFunc(t.points, func(a, b query.Point) int { return a.At.Compare(b.At) })
}

// FiredAlert is one alert that fired in the window.
type FiredAlert struct {
	Name   string    `json:"name"`
	Entity string    `json:"entity"`
	Since  time.Time `json:"since"`
	// MutedBy is the correlation whose symptom it is; it reaches nobody then.
	MutedBy string `json:"muted_by,omitempty"`

	of          Entity
	correlation string
}

// readAlerts lists the alerts of people's concern that fired around the focus.
func (c *casebook) readAlerts(ctx context.Context) error {
	list, err := c.ranged(ctx, fmt.Sprintf(`ALERTS{alertstate="firing",severity!="none",%s}`, c.atSite()))
	if err != nil {
		return err
	}
	for _, s := range list {
		e, ok := entityOf(s.Labels)
		last := s.Points[len(s.Points)-1].At
		if !ok || last.Before(c.window.from) || s.Labels["role"] == "inhibitor" || !c.nearFocus(e) {
			continue
		}
		c.alerts = append(c.alerts, FiredAlert{
			Name: s.Labels["alertname"], Entity: c.graph.show(e), Since: s.Points[0].At, of: e, correlation: s.Labels["correlation"],
		})
	}
	slices.SortStableFunc(c.alerts, func(a, b FiredAlert) int {
		if d := a.Since.Compare(b.Since); d != 0 {
			return d
		}
		return strings.Compare(a.Name+a.Entity, b.Name+b.Entity)
	})
	return nil
}

// nearFocus says that an entity lies on one line with what is asked for.
func (c *casebook) nearFocus(e Entity) bool {
	return slices.ContainsFunc(c.focus, func(f Entity) bool { return c.graph.meets(f, e) })
}
