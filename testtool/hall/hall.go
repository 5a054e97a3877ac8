// SPDX-License-Identifier: Apache-2.0

package hall

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/sim"
	"github.com/rackpulse/rackpulse/site"
)

// View is what agents, registry and lease server know of one hall. Its fields
// may be set before the first call; it is for one goroutine.
type View struct {
	Site *site.Site
	// Maintenance says that a node is declared in maintenance; nil: none is.
	Maintenance func(node string) bool
	// Skew is how far a node's clock is ahead, seconds; nil: none is.
	Skew func(node string) float64
	// Noise is added to readings before they are rounded: relative for watts and
	// amperes, kelvins for temperatures; nil: none.
	Noise func(what Noise) float64

	heard map[string]time.Time
	gpus  map[string]*gpuLabels
	xids  map[string]map[int]*xidSeen // by UUID
	peaks map[string]*trail
}

// Noise is the kind of a reading that noise is asked for.
type Noise int

// The kinds of noise.
const (
	GPUKelvin Noise = iota
	InletKelvin
	PDURatio
)

// New returns the view of a site's hall.
func New(s *site.Site) *View {
	return &View{Site: s, heard: map[string]time.Time{}, gpus: map[string]*gpuLabels{}, xids: map[string]map[int]*xidSeen{}, peaks: map[string]*trail{}}
}

// criticalXIDs start at 0, as the agent shows them; others appear when seen. They
// are the codes of the simulator among those that the catalogue calls critical.
var criticalXIDs = []int{48, 74, 79}

type gpuLabels struct {
	id, model Labels
	throttle  [4]Labels
}

var throttleReasons = [4]string{"gpu_idle", "sw_power_cap", "sw_thermal", "hw_power_brake"}

type xidSeen struct {
	labels Labels
	count  int
	last   time.Time
}

// trail holds the currents of one PDU's phases over the last minute.
type trail struct {
	at    []time.Time
	amps  [][]float64
	parts []Labels
}

// peakWindow is how far the peaks and troughs of phase currents look back; the
// facility agents' own (docs/facility.md).
const peakWindow = time.Minute

// Beat is one second of the lease server and of the PDUs' fast samples. Nodes
// that a partition of their rack cuts off are not heard.
func (v *View) Beat(st *sim.State) {
	for i := range v.Site.Nodes {
		n := &v.Site.Nodes[i]
		if st.Nodes[n.ID].Up && !Cut(st, n) {
			v.heard[n.ID] = st.Wall
		}
	}
	for _, d := range v.Site.PDUs {
		v.sample(&d, st)
	}
}

// Cut says that a partition keeps a node from the registry.
func Cut(st *sim.State, n *site.Node) bool {
	return slices.ContainsFunc(st.Faults, func(f sim.Fault) bool {
		return f.Kind == "partition" && (f.Entity.ID == n.Rack || f.Entity.ID == n.ID)
	})
}

func (v *View) sample(d *site.PDU, st *sim.State) {
	t := v.peaks[d.ID]
	if t == nil {
		t = &trail{}
		for i := range max(1, d.Phases) {
			t.parts = append(t.parts, L("pdu_id", d.ID, "rack_id", d.Rack, "phase", strconv.Itoa(i+1)))
		}
		v.peaks[d.ID] = t
	}
	for len(t.at) > 0 && st.Wall.Sub(t.at[0]) >= peakWindow {
		t.at, t.amps = t.at[1:], t.amps[1:]
	}
	now := st.PDUs[d.ID]
	if !now.Manageable {
		t.at, t.amps = nil, nil
		return
	}
	amps := make([]float64, len(now.Phases))
	for i, ph := range now.Phases {
		amps[i] = ph.Amperes
	}
	t.at, t.amps = append(t.at, st.Wall), append(t.amps, amps)
}

func (v *View) noise(what Noise) float64 {
	if v.Noise == nil {
		return 0
	}
	return v.Noise(what)
}

// Registry writes what the registry says: the site's edges and the leases.
func (v *View) Registry(p Page, st *sim.State) {
	v.Edges(p)
	for i := range v.Site.Nodes {
		n := &v.Site.Nodes[i]
		id := L("node", n.ID, "rack_id", n.Rack)
		state, up := "READY", true
		switch silence := st.Wall.Sub(v.heard[n.ID]); {
		case v.Maintenance != nil && v.Maintenance(n.ID):
			state = "MAINT"
		case silence >= 30*time.Second: // the lease's times, docs/lease.md
			state, up = "EXPIRED", false
		case silence > 10*time.Second:
			state = "SUSPECT"
		}
		p.Set("rackpulse_lease_state", 1, id.And("state", state))
		p.Set("rackpulse_lease_up", bit(up), id)
		p.Set("rackpulse_lease_last_beat_timestamp_seconds", float64(v.heard[n.ID].Unix()), id)
		if v.Skew != nil {
			p.Set("rackpulse_clock_skew_seconds", v.Skew(n.ID), L("node", n.ID))
		}
	}
}

// Edges writes the site file as the registry shows it.
func (v *View) Edges(p Page) {
	s := v.Site
	for _, r := range s.Racks {
		p.Set("rackpulse_rack_info", 1, L("rack_id", r.ID, "row", r.Row))
	}
	for _, d := range s.PDUs {
		id := L("rack_id", d.Rack, "pdu_id", d.ID)
		p.Set("rackpulse_rack_feed_info", 1, id.And("feed", d.Feed))
		p.Set("rackpulse_pdu_rated_ampere", d.RatedAmperes, id.And("phases", strconv.Itoa(d.Phases)))
		if f, ok := s.Feed(d.Feed); ok && f.Derate > 0 {
			p.Set("rackpulse_pdu_usable_ampere", d.RatedAmperes*f.Derate, id)
		}
	}
	for _, c := range s.CoolingUnits {
		for _, r := range c.Serves {
			p.Set("rackpulse_rack_cooling_info", 1, L("rack_id", r, "cooling_unit", c.ID))
		}
	}
	for _, n := range s.Nodes {
		id := L("node", n.ID, "rack_id", n.Rack)
		if n.Rack == "" {
			p.Set("rackpulse_node_info", 1, id.And("class", n.Class, "rackless", "true"))
			continue
		}
		p.Set("rackpulse_node_info", 1, id.And("class", n.Class))
		for _, o := range n.Outlets {
			pdu, outlet, _ := strings.Cut(o, "/")
			p.Set("rackpulse_node_outlet_info", 1, id.And("pdu_id", pdu, "outlet", outlet))
		}
		for _, o := range n.Ports {
			sw, port, _ := strings.Cut(o, "/")
			p.Set("rackpulse_node_port_info", 1, id.And("switch", sw, "port", port))
		}
	}
}

// Node writes the page of one node's agent. It is for nodes that are up.
func (v *View) Node(p Page, n *site.Node, st *sim.State) {
	for i := range st.Nodes[n.ID].GPUs {
		g := &st.Nodes[n.ID].GPUs[i]
		l := v.gpus[g.UUID]
		if l == nil {
			l = &gpuLabels{id: L("node", n.ID, "rack_id", n.Rack, "gpu", strconv.Itoa(g.Index), "UUID", g.UUID)}
			l.model = l.id.And("modelName", g.Model)
			for k, reason := range throttleReasons {
				l.throttle[k] = l.id.And("reason", reason)
			}
			v.gpus[g.UUID] = l
		}
		p.Set("rackpulse_gpu_up", bit(g.Present), l.id)
		// DCGM keeps the last code of a GPU that it no longer reaches.
		p.Set("DCGM_FI_DEV_XID_ERRORS", float64(g.LastXID), l.model)
		v.errors(p, n.ID, g, l.id, st.Wall)
		if g.Present {
			v.gpu(p, g, l)
		}
	}
}

func (v *View) gpu(p Page, g *sim.GPU, l *gpuLabels) {
	t := math.Round(g.TempC + v.noise(GPUKelvin))
	p.Set("DCGM_FI_DEV_GPU_TEMP", t, l.model)
	p.Set("DCGM_FI_DEV_POWER_USAGE", g.PowerWatts, l.model)
	p.Set("DCGM_FI_DEV_GPU_UTIL", math.Round(g.Util*100), l.model)
	p.Set("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", math.Floor(g.NVLinkCRC), l.model)
	p.Set("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", math.Floor(g.ECCSBE), l.model)
	p.Set("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", math.Floor(g.ECCDBE), l.model)
	p.Set("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", math.Floor(g.RemapUncorr), l.model)
	p.Set("rackpulse_gpu_thermal_margin_celsius", g.MarginC, l.id)
	for k, on := range [4]bool{g.Util == 0, g.PowerCap, g.ThermalSlowdown, g.PowerBrake} {
		p.Set("rackpulse_gpu_throttle", bit(on), l.throttle[k])
	}
}

// errors counts XIDs and dates them by the node's own clock.
func (v *View) errors(p Page, node string, g *sim.GPU, id Labels, now time.Time) {
	seen := v.xids[g.UUID]
	if seen == nil {
		seen = map[int]*xidSeen{}
		v.xids[g.UUID] = seen
		for _, code := range criticalXIDs {
			seen[code] = &xidSeen{labels: id.And("xid", strconv.Itoa(code))}
		}
	}
	for code, times := range g.XIDs {
		x := seen[code]
		if x == nil {
			x = &xidSeen{labels: id.And("xid", strconv.Itoa(code))}
			seen[code] = x
		}
		if times > x.count {
			x.count, x.last = times, now
			if v.Skew != nil {
				x.last = now.Add(time.Duration(v.Skew(node) * float64(time.Second)))
			}
		}
	}
	for _, x := range seen {
		p.Set("rackpulse_gpu_xid_errors_total", float64(x.count), x.labels)
		if x.count > 0 {
			p.Set("rackpulse_gpu_xid_last_timestamp_seconds", float64(x.last.Unix()), x.labels)
		}
	}
}
