// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/site"
)

// course is a scenario with its plan: called once, it chooses the targets (the
// first that fit, in file order), says what is at fault, and returns what to do
// in each step from the onset on. Steps may be left out between two calls.
type course struct {
	Scenario
	plan func(h *Hall) (fault []Fault, act func(since int64), err error)
}

// courses are all scenarios. To add one, add its line here and its plan below.
var courses = []course{
	{Scenario{"steady", "mixed load, nothing at fault"}, planSteady},
	{Scenario{"load-only", "all nodes of a rack go to full load; cooling is fine"}, planLoadOnly},
	{Scenario{"cooling-loss", "a cooling unit stops under load; its racks heat up together"}, planCoolingLoss},
	{Scenario{"airflow-loss", "an idle rack's airflow is blocked; it breathes its own exhaust"}, planAirflowLoss},
	{Scenario{"fan-failure", "the fans of one node fail under load"}, planFanFailure},
	{Scenario{"feed-loss", "a feed dies with its PDUs; the other feed carries all"}, planFeedLoss},
	{Scenario{"dead-pdu-management", "a PDU's controller stops answering; power flows on"}, planDeadManagement},
	{Scenario{"phase-overload", "an unregistered load brings one phase of a PDU above its rating"}, planPhaseOverload},
	{Scenario{"sag", "a feed dips by 25 % for 2 s, again and again; power brake throttles the GPUs"}, planSag},
	{Scenario{"breaker-trip", "the inlet breaker of one PDU opens"}, planBreakerTrip},
	{Scenario{"port-flap", "a node's switch port flaps; its job stalls"}, planPortFlap},
	{Scenario{"gpu-lost", "a GPU falls off the bus (XID 79); its job dies"}, planGPULost},
	{Scenario{"ecc-escalation", "a GPU's memory degrades: corrected errors, then XID 48, 63, 94"}, planECC},
	{Scenario{"nvlink-errors", "a GPU's NVLinks count CRC errors, then XID 74"}, planNVLink},
	{Scenario{"node-crash", "a node crashes"}, planNodeCrash},
	{Scenario{"partition", "the nodes of a rack cannot reach the registry; nothing else changes"}, planPartition},
	{Scenario{"clock-step", "a node's clock jumps ahead; nothing else changes"}, planClockStep},
	{Scenario{"stale-sensor", "an inlet sensor freezes and vanishes 300 s later"}, planStaleSensor},
	{Scenario{"moved-node", "a node is moved to another rack and the site file does not say so"}, planMovedNode},
}

// Scenarios lists all scenarios, "steady" first.
func Scenarios() []Scenario {
	out := make([]Scenario, len(courses))
	for i, c := range courses {
		out[i] = c.Scenario
	}
	return out
}

func (h *Hall) plan(name string) error {
	name = cmp.Or(name, courses[0].Name)
	i := slices.IndexFunc(courses, func(c course) bool { return c.Name == name })
	if i < 0 {
		names := make([]string, len(courses))
		for k, c := range courses {
			names[k] = c.Name
		}
		return fmt.Errorf("unknown scenario %q, known: %s", name, strings.Join(names, ", "))
	}
	faults, act, err := courses[i].plan(h)
	if err != nil {
		return fmt.Errorf("scenario %s: %w", name, err)
	}
	for k := range faults {
		faults[k].Kind = strings.ReplaceAll(name, "-", "_")
		faults[k].Since = time.Duration(h.onset) * time.Second
	}
	h.faults, h.act = faults, act
	return nil
}

func planSteady(*Hall) ([]Fault, func(int64), error) { return nil, nil, nil }

func at(kind, id string) []Fault { return []Fault{{Entity: site.Entity{Kind: kind, ID: id}}} }

// gpuRack is the first rack with GPU nodes.
func (h *Hall) gpuRack() (*rack, error) {
	for _, r := range h.racks {
		if r.hasGPUs() {
			return r, nil
		}
	}
	return nil, errors.New("the site has no rack with GPU nodes")
}

func (r *rack) hasGPUs() bool {
	return slices.ContainsFunc(r.nodes, func(nd *node) bool { return len(nd.gpus) > 0 })
}

// gpuNode is the first node of at least so many GPUs in a rack.
func (h *Hall) gpuNode(gpus int) (*node, error) {
	for _, nd := range h.nodes {
		if nd.rack != nil && len(nd.gpus) >= gpus {
			return nd, nil
		}
	}
	return nil, fmt.Errorf("the site has no node of %d GPUs in a rack", gpus)
}

// workingGPU is a GPU of a node whose job is made to run.
func (h *Hall) workingGPU(index int) (*node, *gpu, []Fault, error) {
	nd, err := h.gpuNode(index + 1)
	if err != nil {
		return nil, nil, nil, err
	}
	for _, other := range nd.group.nodes {
		other.load = .85
	}
	fault := at(site.KindNode, nd.id)
	fault[0].UUID = nd.gpus[index].uuid
	return nd, &nd.gpus[index], fault, nil
}

func setLoad(nodes []*node, util float64) {
	for _, nd := range nodes {
		nd.load = util
	}
}
