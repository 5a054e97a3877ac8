// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/rackpulse/rackpulse/lease"
	"github.com/rackpulse/rackpulse/query"
	"github.com/rackpulse/rackpulse/site"
)

// viewAge is how old a view may be that is given out again.
const viewAge = 2 * time.Second

// viewCache keeps the last view. turn lets one caller at a time build one; the
// others wait for it and share the outcome.
type viewCache struct {
	turn chan struct{}

	mu   sync.Mutex
	view *View
}

func newViewCache() viewCache { return viewCache{turn: make(chan struct{}, 1)} }

// fresh returns the last view if it is young enough, else nil.
func (c *viewCache) fresh(now time.Time) *View {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.view == nil || now.Sub(c.view.At) >= viewAge {
		return nil
	}
	return c.view
}

func (c *viewCache) keep(v *View) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.view = v
}

// forget makes the next caller build a view.
func (c *viewCache) forget() { c.keep(nil) }

// View joins the site, the leases and the values of Prometheus at one instant. It
// is at most 2 s old and shared between callers: do not change it. What could
// not be read is among its Problems; the error is ctx's.
func (r *Registry) View(ctx context.Context) (*View, error) {
	if v := r.views.fresh(time.Now()); v != nil {
		return v, nil
	}
	select {
	case r.views.turn <- struct{}{}:
		defer func() { <-r.views.turn }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if v := r.views.fresh(time.Now()); v != nil {
		return v, nil
	}
	now := time.Now()
	s := r.site.Load()
	val := readValues(ctx, r.deps.Querier, s, now)
	if ctx.Err() != nil { // half a view, for nobody
		return nil, ctx.Err()
	}
	v := buildView(s, r.leases(), val, now)
	if !r.Ready() {
		v.Problems = append(v.Problems, errNotReady.Error())
	}
	r.views.keep(v)
	return v, nil
}

// buildView joins what is known.
func buildView(s *site.Site, leases map[string]*lease.NodeStatus, val *values, now time.Time) *View {
	v := &View{
		Site: s.ID, At: now, Simulated: val.simulated, Racks: make([]RackView, 0, len(s.Racks)),
		Alerts: alertViews(val.alerts, s.ID), Problems: slices.Clone(val.problems),
	}
	for _, st := range leases {
		if st.Agent != nil && (st.Agent.Simulated || st.Agent.Facts.Simulated) {
			v.Simulated = true
		}
	}
	for i := range s.Racks {
		v.Racks = append(v.Racks, rackView(s, &s.Racks[i], leases, val))
	}
	for i := range s.Nodes {
		if n := &s.Nodes[i]; n.Rack == "" {
			v.Rackless = append(v.Rackless, nodeView(s, n, leases[n.ID], val))
		}
	}
	return v
}

func rackView(s *site.Site, r *site.Rack, leases map[string]*lease.NodeStatus, val *values) RackView {
	out := RackView{
		ID: r.ID, Row: r.Row, Room: s.RoomOf(r.ID), HeightU: r.HeightU, PowerLimitWatts: r.PowerLimitWatts,
		InletC: known(val.inlet, r.ID),
	}
	total, all := 0.0, true
	for _, p := range s.PDUsOf(r.ID) {
		pdu := PDUView{ID: p.ID, Feed: p.Feed, Up: known(val.up, p.ID), Amperes: known(val.amperes, p.ID), PowerWatts: known(val.power, p.ID)}
		out.PDUs = append(out.PDUs, pdu)
		if pdu.PowerWatts == nil {
			all = false
			continue
		}
		total += *pdu.PowerWatts
	}
	if all && len(out.PDUs) > 0 {
		out.PowerWatts = &total
	}
	for _, c := range s.CoolingOf(r.ID) {
		out.CoolingUnits = append(out.CoolingUnits, c.ID)
	}
	for _, n := range s.NodesIn(r.ID) {
		out.Nodes = append(out.Nodes, nodeView(s, n, leases[n.ID], val))
	}
	slices.SortStableFunc(out.Nodes, func(a, b NodeView) int { return cmp.Compare(b.U, a.U) })
	return out
}

func nodeView(s *site.Site, n *site.Node, st *lease.NodeStatus, val *values) NodeView {
	out := NodeView{ID: n.ID, Rack: n.Rack, Class: n.Class, U: n.U}
	if class, ok := s.Class(n.ID); ok {
		out.HeightU = class.HeightU
	}
	gpus := map[string]GPUView{}
	for uuid, g := range val.gpus[n.ID] {
		gpus[uuid] = *g
	}
	if st != nil {
		out.State, out.LeaseUp = st.State.String(), st.LeaseUp != nil && *st.LeaseUp
		out.Since, out.Reason = st.Since.UTC(), st.Reason
		for _, uuid := range st.GPUs {
			if _, ok := gpus[uuid]; !ok {
				gpus[uuid] = GPUView{UUID: uuid}
			}
		}
		for _, uuid := range st.Missing {
			g := gpus[uuid]
			g.UUID = uuid
			if g.Up == nil {
				g.Up = new(bool)
			}
			gpus[uuid] = g
		}
	}
	for _, g := range gpus {
		out.GPUs = append(out.GPUs, g)
	}
	slices.SortFunc(out.GPUs, compareGPUs)
	return out
}

// compareGPUs sorts by index, those without one behind, then by UUID.
func compareGPUs(a, b GPUView) int {
	index := func(g GPUView) int {
		if i, err := strconv.Atoi(g.Index); err == nil {
			return i
		}
		return 1 << 30
	}
	return cmp.Or(cmp.Compare(index(a), index(b)), cmp.Compare(a.UUID, b.UUID))
}

// known returns the value at key, nil when there is none.
func known[T any](m map[string]T, key string) *T {
	v, ok := m[key]
	if !ok {
		return nil
	}
	return &v
}

// roleInhibitor marks alerts that exist only to silence others.
const roleInhibitor = "inhibitor"

// severities sorts alerts: what must be seen first comes first.
var severities = map[string]int{"critical": 0, "warning": 1, "info": 2}

// severityRank is 0 for the worst.
func severityRank(severity string) int {
	if r, ok := severities[severity]; ok {
		return r
	}
	return len(severities)
}

// alertViews are the firing alerts of a site, critical first, then the oldest.
func alertViews(alerts []query.Alert, siteID string) []AlertView {
	out := []AlertView{}
	for i := range alerts {
		a := &alerts[i]
		if in := a.Labels["site"]; a.State != "firing" || a.Labels["role"] == roleInhibitor || in != "" && in != siteID {
			continue
		}
		out = append(out, AlertView{
			Name: a.Labels["alertname"], Correlation: a.Labels["correlation"], Severity: a.Labels["severity"], Team: a.Labels["team"],
			Cause: a.Annotations["cause"], Summary: a.Annotations["summary"], Description: a.Annotations["description"],
			Racks: splitList(a.Annotations["racks"]), Runbook: a.Annotations["runbook_url"], Labels: a.Labels, Since: a.ActiveAt,
		})
	}
	slices.SortStableFunc(out, func(a, b AlertView) int {
		return cmp.Or(cmp.Compare(severityRank(a.Severity), severityRank(b.Severity)), a.Since.Compare(b.Since), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// splitList takes a comma-separated list apart.
func splitList(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}
