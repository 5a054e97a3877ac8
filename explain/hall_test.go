// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"io/fs"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/proto"

	"github.com/rackpulse/rackpulse/engine"
	"github.com/rackpulse/rackpulse/rules"
	"github.com/rackpulse/rackpulse/sim"
	"github.com/rackpulse/rackpulse/site"
)

var epoch = time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)

// onsetAfter is when the fault of every scenario sets in.
const onsetAfter = 6 * time.Minute

// page is one scrape of everything.
type page map[string]*dto.MetricFamily

// set adds a sample; pairs are label names and values, empty values left out.
func (p page) set(name string, v float64, pairs ...string) {
	m := &dto.Metric{Gauge: &dto.Gauge{Value: &v}}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			m.Label = append(m.Label, &dto.LabelPair{Name: proto.String(pairs[i]), Value: proto.String(pairs[i+1])})
		}
	}
	if p[name] == nil {
		p[name] = &dto.MetricFamily{Name: proto.String(name), Type: dto.MetricType_GAUGE.Enum()}
	}
	p[name].Metric = append(p[name].Metric, m)
}

func (p page) Gather() ([]*dto.MetricFamily, error) {
	var out []*dto.MetricFamily
	for _, f := range p {
		out = append(out, f)
	}
	return out, nil
}

var _ prometheus.Gatherer = page{}

func bit(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// hall plays a scenario into an engine in virtual time.
type hall struct {
	site   *site.Site
	engine *engine.Engine
	pack   *rules.Pack
	heard  map[string]time.Time
	xids   map[string]time.Time // "UUID code" -> last event
	end    time.Time
}

// play runs a scenario until minutes after its onset; spoil may take series away.
func play(t *testing.T, scenario string, after time.Duration, spoil func(page, time.Duration)) *hall {
	t.Helper()
	s, err := site.Example()
	if err != nil {
		t.Fatal(err)
	}
	pack, err := rules.DefaultPack()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, name := range []string{"correlations.rules.yml", "coverage.rules.yml"} {
		if files[name], err = fs.ReadFile(rules.Generated(), name); err != nil {
			t.Fatal(err)
		}
	}
	e, err := engine.New(engine.Config{RuleFiles: files})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	world, err := sim.New(sim.Spec{Site: s, Scenario: scenario, Seed: 1, Epoch: epoch, Onset: onsetAfter})
	if err != nil {
		t.Fatal(err)
	}
	h := &hall{site: s, engine: e, pack: pack, heard: map[string]time.Time{}, xids: map[string]time.Time{}, end: epoch.Add(onsetAfter + after)}
	for now := epoch; !now.After(h.end); now = now.Add(15 * time.Second) {
		p := page{}
		h.mapped(p)
		h.measured(p, world.At(now))
		if spoil != nil {
			spoil(p, now.Sub(epoch)-onsetAfter)
		}
		target := engine.Target{Instance: "hall", Labels: map[string]string{"site": s.ID}, Gatherer: p}
		if err := e.Ingest(t.Context(), now, []engine.Target{target}); err != nil {
			t.Fatal(err)
		}
		if err := e.EvalAt(t.Context(), now); err != nil {
			t.Fatal(err)
		}
	}
	return h
}

// mapped is what the registry says of the site.
func (h *hall) mapped(p page) {
	for _, r := range h.site.Racks {
		p.set("rackpulse_rack_info", 1, "rack_id", r.ID, "row", r.Row)
	}
	for _, d := range h.site.PDUs {
		p.set("rackpulse_rack_feed_info", 1, "rack_id", d.Rack, "pdu_id", d.ID, "feed", d.Feed)
	}
	for _, c := range h.site.CoolingUnits {
		for _, r := range c.Serves {
			p.set("rackpulse_rack_cooling_info", 1, "rack_id", r, "cooling_unit", c.ID)
		}
	}
}

// measured is what the agents and the lease server say.
func (h *hall) measured(p page, st *sim.State) {
	cut := func(n *site.Node) bool {
		return slices.ContainsFunc(st.Faults, func(f sim.Fault) bool {
			return f.Kind == "partition" && (f.Entity.ID == n.Rack || f.Entity.ID == n.ID)
		})
	}
	for i := range h.site.Nodes {
		n := &h.site.Nodes[i]
		if st.Nodes[n.ID].Up && !cut(n) {
			h.heard[n.ID] = st.Wall
		}
		state := "READY"
		switch silence := st.Wall.Sub(h.heard[n.ID]); {
		case silence >= 30*time.Second:
			state = "EXPIRED"
		case silence > 10*time.Second:
			state = "SUSPECT"
		}
		p.set("rackpulse_lease_state", 1, "node", n.ID, "rack_id", n.Rack, "state", state)
		p.set("rackpulse_lease_up", bit(state != "EXPIRED"), "node", n.ID, "rack_id", n.Rack)
		p.set("rackpulse_lease_last_beat_timestamp_seconds", float64(h.heard[n.ID].Unix()), "node", n.ID, "rack_id", n.Rack)
		if st.Nodes[n.ID].Up {
			h.gpus(p, n, st)
		}
	}
	h.devices(p, st)
}

func (h *hall) gpus(p page, n *site.Node, st *sim.State) {
	for _, g := range st.Nodes[n.ID].GPUs {
		id := []string{"node", n.ID, "rack_id", n.Rack, "gpu", string(rune('0' + g.Index)), "UUID", g.UUID}
		p.set("rackpulse_gpu_up", bit(g.Present), id...)
		for code, times := range g.XIDs {
			key := g.UUID + string(rune(code))
			if times > 0 && h.xids[key].IsZero() {
				h.xids[key] = st.Wall
			}
			xid := append(slices.Clone(id), "xid", number(float64(code)))
			p.set("rackpulse_gpu_xid_errors_total", float64(times), xid...)
			if times > 0 {
				p.set("rackpulse_gpu_xid_last_timestamp_seconds", float64(h.xids[key].Unix()), xid...)
			}
		}
		if g.Present {
			id = append(id, "modelName", g.Model)
			p.set("DCGM_FI_DEV_GPU_TEMP", g.TempC, id...)
			p.set("DCGM_FI_DEV_POWER_USAGE", g.PowerWatts, id...)
			p.set("DCGM_FI_DEV_GPU_UTIL", float64(int(g.Util*100)), id...)
		}
	}
}

func (h *hall) devices(p page, st *sim.State) {
	for _, s := range h.site.Sensors {
		if v, ok := st.Sensors[s.ID]; ok && s.Measures == "inlet_temperature" {
			p.set("rack_inlet_temperature_celsius", v, "rack_id", s.Rack, "sensor", s.ID, "position", s.Position)
		}
	}
	for id, c := range st.Cooling {
		p.set("facility_device_up", bit(c.Manageable), "device", id, "driver", "sim")
		p.set("cooling_unit_up", bit(c.Up), "cooling_unit", id)
	}
	for _, d := range h.site.PDUs {
		now := st.PDUs[d.ID]
		p.set("facility_device_up", bit(now.Manageable), "device", d.ID, "driver", "sim", "rack_id", d.Rack)
		if now.Manageable {
			top := 0.0
			for _, ph := range now.Phases {
				top = max(top, ph.Amperes)
			}
			p.set("pdu_current_ampere", top, "pdu_id", d.ID, "rack_id", d.Rack)
		}
	}
	for id, sw := range st.Switches {
		rack := "r" + strings.TrimPrefix(id, "tor")
		p.set("facility_device_up", bit(sw.Manageable), "device", id, "driver", "sim", "rack_id", rack)
		for port, one := range sw.Ports {
			p.set("switch_port_flaps_total", one.Flaps, "switch", id, "port", port, "rack_id", rack)
		}
	}
}

// ask explains over the played hall, with a catalogue of one code.
func (h *hall) ask(t *testing.T, req Request) *Report {
	t.Helper()
	if req.To.IsZero() {
		req.To = h.end
	}
	r, err := Explain(t.Context(), Deps{Querier: h.engine, Site: h.site, Pack: h.pack, XID: func(code int) (XID, bool) {
		return XID{Name: "GPU has fallen off the bus", Severity: "critical", Do: []string{"Reset the GPU."}}, code == 79
	}}, req)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
