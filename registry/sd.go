// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"

	"github.com/rackpulse/rackpulse/lease"
)

// registryInstance is the registry's own instance label, where there is one.
const registryInstance = "registry"

// TargetGroup is one element of Prometheus' HTTP discovery.
// https://prometheus.io/docs/prometheus/latest/http_sd/
type TargetGroup struct {
	Targets []string          `json:"targets"`
	Labels  map[string]string `json:"labels"`
}

// joinAddress is the inverse of splitAddress.
func joinAddress(host string, port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

// hasLeft are the nodes that left: their silence is no fault, so they are no
// targets.
func (r *Registry) hasLeft() map[string]bool {
	left := map[string]bool{}
	for _, n := range r.lease.Nodes() {
		if n.State == lease.Left && !n.Beating {
			left[n.Node] = true
		}
	}
	return left
}

// agentTargets are our own targets: every agent that ever told its address, and
// the registry itself, reached under the address self. They carry instance and
// site only: their series bring the other labels themselves.
func (r *Registry) agentTargets(self string) []TargetGroup {
	r.refreshAddresses()
	s, left, agents := r.site.Load(), r.hasLeft(), r.known.all()
	out := make([]TargetGroup, 0, len(agents)+1)
	shared := false
	for _, id := range slices.Sorted(maps.Keys(agents)) {
		if left[id] {
			continue
		}
		address := agents[id].Address
		shared = shared || address == self
		out = append(out, TargetGroup{Targets: []string{address}, Labels: map[string]string{"instance": id, "site": s.ID}})
	}
	if self != "" && !shared {
		instance := registryInstance
		if r.leader != nil {
			instance = self // Prometheus keeps what the former leader told: two of one name would collide
		}
		out = append(out, TargetGroup{Targets: []string{self}, Labels: map[string]string{"instance": instance, "site": s.ID}})
	}
	return out
}

// exporterTargets are the foreign exporters of one job, one a node or facility
// device, with the labels of that as target labels. port is used where the site
// file does not name a node's exporter; 0: such nodes have none.
func (r *Registry) exporterTargets(job string, port int) []TargetGroup {
	r.refreshAddresses()
	s, left, agents := r.site.Load(), r.hasLeft(), r.known.all()
	out := []TargetGroup{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		address := n.Exporters[job]
		if address == "" && port > 0 {
			host := n.Address
			if host == "" {
				host, _, _ = net.SplitHostPort(agents[n.ID].Address)
			}
			if host != "" {
				address = joinAddress(host, port)
			}
		}
		if address == "" || left[n.ID] {
			continue
		}
		labels := maps.Clone(s.NodeLabels(n.ID))
		labels["instance"], labels["site"] = n.ID, s.ID
		out = append(out, TargetGroup{Targets: []string{address}, Labels: labels})
	}
	for _, d := range s.Devices() {
		address := d.Exporters[job]
		if address == "" {
			continue
		}
		labels := map[string]string{"instance": d.ID, "site": s.ID, "device": d.ID}
		if d.Rack != "" {
			labels["rack_id"] = d.Rack
		}
		out = append(out, TargetGroup{Targets: []string{address}, Labels: labels})
	}
	return out
}

func (r *Registry) serveAgents(w http.ResponseWriter, req *http.Request) {
	self := r.cfg.Advertise
	if self == "" {
		self = hostOf(req)
	}
	r.serveTargets(w, func() []TargetGroup { return r.agentTargets(self) })
}

// hostOf is the host:port that a request was sent to, "" if it cannot be told.
func hostOf(req *http.Request) string {
	host := req.Host
	if _, _, err := net.SplitHostPort(host); err != nil {
		port := 80
		if req.TLS != nil {
			port = 443
		}
		host = joinAddress(trimBrackets(host), port)
	}
	if _, _, err := splitAddress(host); err != nil {
		return ""
	}
	return host
}

// trimBrackets takes the brackets off an IPv6 address without a port.
func trimBrackets(host string) string {
	if len(host) > 2 && host[0] == '[' && host[len(host)-1] == ']' {
		return host[1 : len(host)-1]
	}
	return host
}

// jobName is what a job may be called here: a key of the site file.
var jobName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

func (r *Registry) serveExporters(w http.ResponseWriter, req *http.Request) {
	job := req.FormValue("job")
	if !jobName.MatchString(job) {
		writeError(w, http.StatusBadRequest, errors.New("job is missing or no job name: want /api/v1/sd/exporters?job=node_exporter&port=9100"))
		return
	}
	port := 0
	if p := req.FormValue("port"); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			writeError(w, http.StatusBadRequest, fmt.Errorf("port %q is not within 1 and 65535", p))
			return
		}
		port = int(n)
	}
	r.serveTargets(w, func() []TargetGroup { return r.exporterTargets(job, port) })
}
