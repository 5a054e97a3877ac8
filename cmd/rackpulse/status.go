// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rackpulse/rackpulse/query"
	"github.com/rackpulse/rackpulse/site"
)

// statusVerb is "rackpulse status".
type statusVerb struct {
	from     sources
	target   string
	gpu      string // UUID, where one was asked for; target is its node then
	asJSON   bool
	watch    bool
	interval time.Duration
}

func registerStatus(app *kingpin.Application) []verb {
	v := &statusVerb{}
	cmd := app.Command("status", "GPUs, leases, power, switch ports, inlet air and firing alerts of a node, rack or GPU on one screen.")
	cmd.Arg("target", "Node, rack, or UUID of a GPU.").Required().StringVar(&v.target)
	cmd.Flag("json", "Print JSON; with --watch one object a line.").BoolVar(&v.asJSON)
	cmd.Flag("watch", "Print again and again until interrupted.").BoolVar(&v.watch)
	cmd.Flag("interval", "How often with --watch.").Default("5s").DurationVar(&v.interval)
	v.from.flags(cmd)
	return []verb{{cmd, v.run}}
}

// nodeStatus is one node of the screen. Pointers are nil for what is not known.
type nodeStatus struct {
	Node       string       `json:"node"`
	LeaseState string       `json:"lease_state,omitempty"`
	LeaseUp    *bool        `json:"lease_up,omitempty"`
	GPUs       []gpuStatus  `json:"gpus,omitempty"`
	Ports      []portStatus `json:"ports,omitempty"`
}

// gpuStatus is one GPU.
type gpuStatus struct {
	GPU       string   `json:"gpu"`
	UUID      string   `json:"uuid"`
	Up        *bool    `json:"up,omitempty"`
	Celsius   *float64 `json:"celsius,omitempty"`
	Watts     *float64 `json:"watts,omitempty"`
	Percent   *float64 `json:"utilisation_percent,omitempty"`
	Throttles []string `json:"throttles,omitempty"`
}

// portStatus is a node's switch port.
type portStatus struct {
	Port  string   `json:"port"`
	Up    *bool    `json:"up,omitempty"`
	Flaps *float64 `json:"flaps_15m,omitempty"` // within 15 minutes
}

// pduStatus is one PDU of the rack.
type pduStatus struct {
	PDU     string   `json:"pdu"`
	Feed    string   `json:"feed,omitempty"`
	Answers *bool    `json:"answers,omitempty"`
	Watts   *float64 `json:"watts,omitempty"`
	Amperes *float64 `json:"amperes,omitempty"` // highest line
	Rated   float64  `json:"rated_amperes,omitempty"`
}

// inletStatus is one inlet sensor of the rack; no value: it does not report.
type inletStatus struct {
	Sensor   string   `json:"sensor"`
	Position string   `json:"position,omitempty"`
	Celsius  *float64 `json:"celsius,omitempty"`
}

// unitStatus is a cooling unit that serves the rack.
type unitStatus struct {
	Unit string `json:"cooling_unit"`
	Up   *bool  `json:"up,omitempty"`
}

// alertStatus is one firing alert.
type alertStatus struct {
	Alert       string    `json:"alert"`
	Correlation string    `json:"correlation,omitempty"`
	Severity    string    `json:"severity,omitempty"`
	Summary     string    `json:"summary,omitempty"`
	Since       time.Time `json:"since"`
}

// screen is all that is shown.
type screen struct {
	At   time.Time `json:"at"`
	Site string    `json:"site"`
	Rack string    `json:"rack_id,omitempty"`
	// PowerWatts is the sum of the rack's PDUs, nil unless all of them tell theirs.
	PowerWatts *float64      `json:"power_watts,omitempty"`
	LimitWatts float64       `json:"power_limit_watts,omitempty"` // 0: not declared
	Inlet      []inletStatus `json:"inlet,omitempty"`
	PDUs       []pduStatus   `json:"pdus,omitempty"`
	Units      []unitStatus  `json:"cooling_units,omitempty"`
	Nodes      []nodeStatus  `json:"nodes"`
	Alerts     []alertStatus `json:"alerts"`
	// From says where it comes from, if not from the store; Problems what of it
	// could not be read.
	From     string   `json:"from,omitempty"`
	Problems []string `json:"problems,omitempty"`
}

func (v *statusVerb) run(ctx context.Context, std stdio) error {
	q, s, err := v.from.open(ctx)
	if err != nil {
		return err
	}
	if err := v.findGPU(ctx, q, s); err != nil {
		return err
	}
	tick := time.NewTicker(max(v.interval, time.Second))
	defer tick.Stop()
	for {
		st, err := v.read(ctx, q, s, time.Now())
		switch {
		case err != nil && (!v.watch || ctx.Err() != nil):
			return err
		case err != nil:
			fmt.Fprintf(std.err, "rackpulse: %v\n", err) // the store may come back
		case v.asJSON && v.watch:
			err = writeJSONLine(std.out, st)
		case v.asJSON:
			err = writeJSON(std.out, st)
		default:
			if v.watch {
				fmt.Fprint(std.out, "\x1b[H\x1b[2J")
			}
			err = st.write(std.out)
		}
		if !v.watch {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// storeTimeout bounds the reading of the store: then the agents are asked.
const storeTimeout = 8 * time.Second

// read reads the screen from the store, or from the agents where it is away.
func (v *statusVerb) read(ctx context.Context, q query.Querier, s *site.Site, now time.Time) (*screen, error) {
	own, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	st, err := readStatus(own, q, s, v.target, now)
	if err != nil && ctx.Err() == nil {
		st, err = v.fromAgents(ctx, s, now, err)
	}
	if err == nil && v.gpu != "" {
		n := &st.Nodes[0]
		n.GPUs = slices.DeleteFunc(n.GPUs, func(g gpuStatus) bool { return g.UUID != v.gpu })
	}
	return st, err
}

// findGPU makes the node of a GPU the target, as the store or the registry knows it.
func (v *statusVerb) findGPU(ctx context.Context, q query.Querier, s *site.Site) error {
	if !strings.HasPrefix(v.target, "GPU-") {
		return nil
	}
	v.gpu, v.target = v.target, ""
	own, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	list, err := q.Instant(own, fmt.Sprintf("max by (node) (last_over_time(rackpulse_gpu_up{UUID=%q}[1h]))", v.gpu), time.Now())
	for _, sample := range list {
		v.target = sample.Labels["node"]
	}
	if v.target != "" || len(v.from.registry.urls) == 0 {
		return v.noGPU(s, err)
	}
	c, err := v.from.registry.client()
	if err != nil {
		return err
	}
	nodes, err := c.Nodes(ctx)
	for _, n := range nodes {
		if slices.Contains(n.GPUs, v.gpu) {
			v.target = n.Node
		}
	}
	return v.noGPU(s, err)
}

// noGPU is the error of a GPU whose node was not found.
func (v *statusVerb) noGPU(s *site.Site, err error) error {
	if v.target == "" {
		return errors.Join(fmt.Errorf("site %s shows no GPU %s", s.ID, v.gpu), err)
	}
	return nil
}

// newScreen is the screen of a node or rack before anything was read.
func newScreen(s *site.Site, target string, now time.Time) (*screen, []*site.Node, error) {
	st := &screen{At: now.UTC(), Site: s.ID, Alerts: []alertStatus{}}
	if n, ok := s.Node(target); ok {
		st.Rack = n.Rack
		return st, []*site.Node{n}, nil
	}
	if _, ok := s.Rack(target); ok {
		st.Rack = target
		return st, s.NodesIn(target), nil
	}
	return nil, nil, fmt.Errorf("site %s has no node and no rack %q", s.ID, target)
}

// fill puts what was read into the screen.
func (st *screen) fill(s *site.Site, r *reading, nodes []*site.Node) {
	st.facility(s, r)
	for _, n := range nodes {
		st.Nodes = append(st.Nodes, r.node(n))
	}
}

// reading holds the samples of one screen.
type reading struct {
	samples []query.Sample
}

// value returns the sample of a metric whose labels match the pairs; the highest
// where several do.
func (r *reading) value(metric string, pairs ...string) *float64 {
	var out *float64
	for _, s := range r.samples {
		if s.Labels["__name__"] != metric {
			continue
		}
		match := true
		for i := 0; i < len(pairs); i += 2 {
			match = match && s.Labels[pairs[i]] == pairs[i+1]
		}
		if match && (out == nil || s.Value > *out) {
			out = &s.Value
		}
	}
	return out
}

func (r *reading) state(metric string, pairs ...string) *bool {
	v := r.value(metric, pairs...)
	if v == nil {
		return nil
	}
	up := *v != 0
	return &up
}

// statusMetrics are what the screen shows, all of one rack or node.
const statusMetrics = "rackpulse_gpu_up|DCGM_FI_DEV_GPU_TEMP|DCGM_FI_DEV_POWER_USAGE|DCGM_FI_DEV_GPU_UTIL|rackpulse_gpu_throttle|" +
	"rackpulse_lease_state|rackpulse_lease_up|rack_inlet_temperature_celsius|pdu_power_watt|pdu_current_ampere|facility_device_up|switch_port_up"

// readStatus reads everything about a node or rack at one time.
func readStatus(ctx context.Context, q query.Querier, s *site.Site, target string, now time.Time) (*screen, error) {
	st, nodes, err := newScreen(s, target, now)
	if err != nil {
		return nil, err
	}
	where := fmt.Sprintf("rack_id=%q", st.Rack)
	if st.Rack == "" {
		where = fmt.Sprintf("node=%q", target)
	}
	r := &reading{}
	queries := []string{fmt.Sprintf("{__name__=~%q,%s}", statusMetrics, where)}
	var units []string
	for _, u := range s.CoolingOf(st.Rack) {
		units = append(units, regexp.QuoteMeta(u.ID))
	}
	if len(units) > 0 {
		queries = append(queries, fmt.Sprintf("cooling_unit_up{cooling_unit=~%q}", strings.Join(units, "|")))
	}
	if st.Rack != "" {
		queries = append(queries, fmt.Sprintf(`label_replace(increase(switch_port_flaps_total{%s}[15m]), "__name__", "flaps", "", "")`, where))
	}
	for _, expr := range queries {
		list, err := q.Instant(ctx, expr, now)
		if err != nil {
			return nil, err
		}
		r.samples = append(r.samples, list...)
	}
	st.fill(s, r, nodes)
	alerts, err := q.Alerts(ctx)
	if err != nil {
		return nil, err
	}
	st.addAlerts(s, alerts, nodes)
	return st, nil
}

func (st *screen) facility(s *site.Site, r *reading) {
	for _, one := range s.SensorsIn(st.Rack) {
		if one.Measures == "inlet_temperature" {
			st.Inlet = append(st.Inlet, inletStatus{one.ID, one.Position, r.value("rack_inlet_temperature_celsius", "sensor", one.ID)})
		}
	}
	for _, p := range s.PDUsOf(st.Rack) {
		st.PDUs = append(st.PDUs, pduStatus{p.ID, p.Feed, r.state("facility_device_up", "device", p.ID),
			r.value("pdu_power_watt", "pdu_id", p.ID), r.value("pdu_current_ampere", "pdu_id", p.ID), p.RatedAmperes})
	}
	if rack, ok := s.Rack(st.Rack); ok {
		st.LimitWatts = rack.PowerLimitWatts
	}
	total := 0.0
	for _, p := range st.PDUs {
		if p.Watts == nil {
			total = -1
			break
		}
		total += *p.Watts
	}
	if len(st.PDUs) > 0 && total >= 0 {
		st.PowerWatts = &total
	}
	for _, u := range s.CoolingOf(st.Rack) {
		st.Units = append(st.Units, unitStatus{u.ID, r.state("cooling_unit_up", "cooling_unit", u.ID)})
	}
}

func (r *reading) node(n *site.Node) nodeStatus {
	out := nodeStatus{Node: n.ID, LeaseUp: r.state("rackpulse_lease_up", "node", n.ID)}
	for _, s := range r.samples {
		if s.Labels["node"] != n.ID {
			continue
		}
		switch s.Labels["__name__"] {
		case "rackpulse_lease_state":
			if s.Value == 1 {
				out.LeaseState = s.Labels["state"]
			}
		case "rackpulse_gpu_up":
			out.GPUs = append(out.GPUs, r.gpu(s.Labels))
		}
	}
	slices.SortFunc(out.GPUs, func(a, b gpuStatus) int {
		return cmp.Or(cmp.Compare(len(a.GPU), len(b.GPU)), cmp.Compare(a.GPU, b.GPU))
	})
	for _, ref := range n.Ports {
		sw, port := site.SplitRef(ref)
		out.Ports = append(out.Ports, portStatus{ref, r.state("switch_port_up", "switch", sw, "port", port), r.value("flaps", "switch", sw, "port", port)})
	}
	return out
}

func (r *reading) gpu(labels map[string]string) gpuStatus {
	uuid := labels["UUID"]
	out := gpuStatus{
		GPU: labels["gpu"], UUID: uuid, Up: r.state("rackpulse_gpu_up", "UUID", uuid),
		Celsius: r.value("DCGM_FI_DEV_GPU_TEMP", "UUID", uuid), Watts: r.value("DCGM_FI_DEV_POWER_USAGE", "UUID", uuid), Percent: r.value("DCGM_FI_DEV_GPU_UTIL", "UUID", uuid),
	}
	for _, s := range r.samples {
		if s.Labels["__name__"] == "rackpulse_gpu_throttle" && s.Labels["UUID"] == uuid && s.Value == 1 {
			out.Throttles = append(out.Throttles, s.Labels["reason"])
		}
	}
	slices.Sort(out.Throttles)
	return out
}

// addAlerts keeps the firing alerts of the nodes, their rack and what it hangs on.
func (st *screen) addAlerts(s *site.Site, alerts []query.Alert, nodes []*site.Node) {
	above := s.DependsOn(site.Entity{Kind: site.KindRack, ID: st.Rack})
	for _, a := range alerts {
		l := a.Labels
		if a.State != "firing" || l["role"] == "inhibitor" {
			continue
		}
		mine := slices.ContainsFunc(nodes, func(n *site.Node) bool { return l["node"] == n.ID })
		mine = mine || st.Rack != "" && l["node"] == "" && l["rack_id"] == st.Rack
		for _, e := range above {
			mine = mine || l["rack_id"] == "" && (e.Kind == site.KindCooling && l["cooling_unit"] == e.ID || e.Kind == site.KindFeed && l["feed"] == e.ID)
		}
		if mine {
			st.Alerts = append(st.Alerts, alertStatus{l["alertname"], l["correlation"], l["severity"], a.Annotations["summary"], a.ActiveAt})
		}
	}
	slices.SortStableFunc(st.Alerts, func(a, b alertStatus) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Summary, b.Summary))
	})
}
