// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/rackpulse/rackpulse/query"
	"github.com/rackpulse/rackpulse/registry"
	"github.com/rackpulse/rackpulse/site"
)

const (
	// agentTimeout bounds the reading of one agent's page.
	agentTimeout = 5 * time.Second
	// maxAgentPage bounds a page, bytes: an agent's has about 100 kB, that of a
	// registry of 10,000 nodes some MB.
	maxAgentPage = 32 << 20
	// agentsAtOnce is how many pages are read at a time, maxAgentsAsked how many in
	// all: the nodes of a rack, and the agents that poll devices.
	agentsAtOnce   = 16
	maxAgentsAsked = 256
	// agentPort is where agents serve that no discovery names.
	agentPort = "9400"
)

// fromAgents reads the screen from the pages of the agents and of the registry.
// There are neither alerts nor flaps: those take rules and time.
func (v *statusVerb) fromAgents(ctx context.Context, s *site.Site, now time.Time, away error) (*screen, error) {
	st, nodes, err := newScreen(s, v.target, now)
	if err != nil {
		return nil, err
	}
	samples, failed := readAgents(ctx, v.agentsOf(ctx, nodes))
	if len(samples) == 0 {
		return nil, errors.Join(append([]error{away}, failed...)...)
	}
	st.From = fmt.Sprintf("the agents themselves, without alerts: %v", away)
	for _, err := range failed {
		st.Problems = append(st.Problems, err.Error())
	}
	slices.Sort(st.Problems)
	st.fill(s, &reading{samples}, nodes)
	return st, nil
}

// agentsOf are the addresses of the agents of nodes, of those that poll devices
// and of the registry: as the registry discovers them, or, where it does not
// answer, those that the site file gives the nodes.
func (v *statusVerb) agentsOf(ctx context.Context, nodes []*site.Node) []string {
	wanted, all := map[string]bool{}, map[string]bool{}
	var out []string
	c, err := v.from.registry.client()
	var groups []registry.TargetGroup
	var known []registry.Node
	if err == nil && len(v.from.registry.urls) > 0 {
		ctx, cancel := context.WithTimeout(ctx, agentTimeout)
		defer cancel()
		if groups, err = c.Agents(ctx); err == nil {
			known, err = c.Nodes(ctx)
		}
	}
	for _, n := range nodes {
		wanted[n.ID] = true
	}
	for _, n := range known {
		all[n.Node] = true
	}
	for _, g := range groups { // agents that are no node poll devices
		if id := g.Labels["instance"]; err == nil && (wanted[id] || !all[id]) {
			out = append(out, g.Targets...)
		}
	}
	if len(out) == 0 {
		for _, n := range nodes {
			host := n.Address
			if host == "" {
				host = n.ID
			}
			out = append(out, net.JoinHostPort(host, agentPort))
		}
	}
	return out[:min(len(out), maxAgentsAsked)]
}

// readAgents reads pages side by side. What one does not answer is an error; the
// others count all the same.
func readAgents(ctx context.Context, addresses []string) (samples []query.Sample, failed []error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	slots := make(chan struct{}, agentsAtOnce)
	for _, address := range addresses {
		all.Go(func() {
			slots <- struct{}{}
			defer func() { <-slots }()
			list, err := readAgent(ctx, address)
			mu.Lock()
			defer mu.Unlock()
			samples = append(samples, list...)
			if err != nil {
				failed = append(failed, fmt.Errorf("agent %s: %w", address, err))
			}
		})
	}
	all.Wait()
	return samples, failed
}

// readAgent reads those series of a page that the screen shows.
func readAgent(ctx context.Context, address string) ([]query.Sample, error) {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+"/metrics", nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, errors.New(resp.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(io.LimitReader(resp.Body, maxAgentPage))
	if err != nil {
		return nil, fmt.Errorf("its page: %w", err)
	}
	var out []query.Sample
	for _, name := range append(strings.Split(statusMetrics, "|"), "cooling_unit_up") {
		for _, m := range families[name].GetMetric() {
			labels := map[string]string{"__name__": name}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			out = append(out, query.Sample{Labels: labels, Value: m.GetGauge().GetValue() + m.GetCounter().GetValue() + m.GetUntyped().GetValue()})
		}
	}
	return out, nil
}
