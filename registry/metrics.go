// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"strconv"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rackpulse/rackpulse/site"
)

// Families of the site's edges. All are 1, but the power limit.
const (
	helpNode   = "A node of the site: its rack, class and tenant; rackless=\"true\" where its class needs none."
	helpRack   = "A rack of the site with its row and room."
	helpFeed   = "A PDU of a rack and the feed that it hangs on."
	helpCool   = "A cooling unit that serves a rack."
	helpOutlet = "An outlet of a PDU that a node is plugged into."
	helpPort   = "A switch port that a node is cabled to."
	helpDevice = "A facility device of the site."
	helpLimit  = "The rack's power limit in the site file, watts."
	helpRated  = "Rated current per line of the PDU in the site file; phases is their number."
	helpUsable = "Current per line that the PDU may carry all day: its rating in the site file times the share that its feed allows."
)

var descRefused = prometheus.NewDesc("rackpulse_registry_refused_requests_total",
	"Requests refused, over HTTP and when a stream of beats was opened.", []string{"reason"}, nil)

// edgeCache keeps the series of the site's edges: they change with the site only.
type edgeCache struct {
	mu     sync.Mutex
	of     *site.Site
	series []prometheus.Metric
}

// Describe implements prometheus.Collector. It describes nothing: a series has
// only those labels that have a value.
func (r *Registry) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. Leases and edges are shown by the
// leader alone.
func (r *Registry) Collect(ch chan<- prometheus.Metric) {
	for reason, n := range r.guard.refused.copy() {
		ch <- prometheus.MustNewConstMetric(descRefused, prometheus.CounterValue, float64(n), reason)
	}
	if !r.Ready() {
		return
	}
	r.lease.Collect(ch)
	for _, m := range r.edges.get(r.site.Load()) {
		ch <- m
	}
}

// get returns the edges of s.
func (c *edgeCache) get(s *site.Site) []prometheus.Metric {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.of != s {
		c.of, c.series = s, edgesOf(s)
	}
	return c.series
}

// edge makes one series from pairs of label and value; pairs without a value are
// left out, so that what is not known never joins anything.
func edge(name, help string, value float64, pairs ...string) prometheus.Metric {
	labels := make(prometheus.Labels, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			labels[pairs[i]] = pairs[i+1]
		}
	}
	return prometheus.MustNewConstMetric(prometheus.NewDesc(name, help, nil, labels), prometheus.GaugeValue, value)
}

// edgesOf makes the series of a site.
func edgesOf(s *site.Site) []prometheus.Metric {
	var out []prometheus.Metric
	add := func(name, help string, pairs ...string) { out = append(out, edge(name, help, 1, pairs...)) }
	for i := range s.Racks {
		r := &s.Racks[i]
		add("rackpulse_rack_info", helpRack, "rack_id", r.ID, "row", r.Row, "room", s.RoomOf(r.ID))
		if r.PowerLimitWatts > 0 {
			out = append(out, edge("rackpulse_rack_power_limit_watt", helpLimit, r.PowerLimitWatts, "rack_id", r.ID))
		}
		for _, c := range s.CoolingOf(r.ID) {
			add("rackpulse_rack_cooling_info", helpCool, "rack_id", r.ID, "cooling_unit", c.ID)
		}
	}
	out = append(out, pduEdges(s)...)
	for i := range s.Nodes {
		n := &s.Nodes[i]
		rackless := ""
		if class, ok := s.Class(n.ID); ok && class.Rackless && n.Rack == "" {
			rackless = "true"
		}
		add("rackpulse_node_info", helpNode, "node", n.ID, "rack_id", n.Rack, "class", n.Class, "tenant", n.Tenant, "rackless", rackless)
		for _, ref := range n.Outlets {
			pdu, outlet := site.SplitRef(ref)
			add("rackpulse_node_outlet_info", helpOutlet, "node", n.ID, "rack_id", n.Rack, "pdu_id", pdu, "outlet", outlet)
		}
		for _, ref := range n.Ports {
			sw, port := site.SplitRef(ref)
			add("rackpulse_node_port_info", helpPort, "node", n.ID, "rack_id", n.Rack, "switch", sw, "port", port)
		}
	}
	for _, d := range s.Devices() {
		add("rackpulse_facility_device_info", helpDevice, "device", d.ID, "kind", d.Kind, "rack_id", d.Rack)
	}
	return out
}

// pduEdges makes the series of a site's PDUs.
func pduEdges(s *site.Site) []prometheus.Metric {
	var out []prometheus.Metric
	for i := range s.PDUs {
		p := &s.PDUs[i]
		where := []string{"rack_id", p.Rack, "pdu_id", p.ID}
		if p.RatedAmperes > 0 {
			out = append(out, edge("rackpulse_pdu_rated_ampere", helpRated, p.RatedAmperes, append(where, "phases", strconv.Itoa(p.Phases))...))
		}
		if p.Feed == "" {
			continue
		}
		out = append(out, edge("rackpulse_rack_feed_info", helpFeed, 1, append(where, "feed", p.Feed)...))
		// The share is 0.8 for continuous loads by the NEC, or 1 where the site
		// file says that breakers are rated for 100 % (IEC practice).
		if f, ok := s.Feed(p.Feed); ok && p.RatedAmperes > 0 {
			out = append(out, edge("rackpulse_pdu_usable_ampere", helpUsable, p.RatedAmperes*f.Derate, where...))
		}
	}
	return out
}
