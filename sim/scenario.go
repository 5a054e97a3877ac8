// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/site"
)

// course is a scenario with its plan: called once, it finds the target (without
// one in the event the first that fits, in file order) and says what happens.
type course struct {
	Scenario
	plan func(h *Hall, ev Event) (deed, error)
}

// deed is what happens in a course. Steps may be left out between two calls.
type deed struct {
	faults []Fault
	act    func(since int64) // in each step from the onset on; nil: nothing
	mend   func()            // once, when it is over; nil: nothing to put back
}

// running is a planned course.
type running struct {
	deed
	onset, until int64 // physics steps; until 0: never mended
	mended       bool
}

func (r *running) active(n int64) bool { return n >= r.onset && (r.until == 0 || n < r.until) }

func (r *running) step(n int64) {
	switch {
	case r.active(n):
		if r.act != nil {
			r.act(n - r.onset)
		}
	case n >= r.onset && !r.mended:
		r.mended = true
		if r.mend != nil {
			r.mend()
		}
	}
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

func (h *Hall) plan(ev Event) error {
	name := cmp.Or(ev.Scenario, courses[0].Name)
	i := slices.IndexFunc(courses, func(c course) bool { return c.Name == name })
	if i < 0 {
		names := make([]string, len(courses))
		for k, c := range courses {
			names[k] = c.Name
		}
		return fmt.Errorf("unknown scenario %q, known: %s", name, strings.Join(names, ", "))
	}
	if ev.Onset < 0 || ev.Until != 0 && ev.Until <= ev.Onset {
		return fmt.Errorf("scenario %s: from %v until %v", name, ev.Onset, ev.Until)
	}
	d, err := courses[i].plan(h, ev)
	if err != nil {
		return fmt.Errorf("scenario %s: %w", name, err)
	}
	r := running{deed: d, onset: steps(ev.Onset), until: steps(ev.Until)}
	for k := range r.faults {
		r.faults[k].Kind = strings.ReplaceAll(name, "-", "_")
		r.faults[k].Since = time.Duration(r.onset) * time.Second
	}
	h.courses = append(h.courses, r)
	return nil
}

func steps(d time.Duration) int64 { return int64(math.Ceil(d.Seconds())) }

func planSteady(*Hall, Event) (deed, error) { return deed{}, nil }

func at(kind, id string) []Fault { return []Fault{{Entity: site.Entity{Kind: kind, ID: id}}} }

// gpuRack is the target, or the first rack with GPU nodes.
func (h *Hall) gpuRack(target string) (*rack, error) {
	for _, r := range h.racks {
		if r.id == target || target == "" && r.hasGPUs() {
			return r, nil
		}
	}
	if target != "" {
		return nil, fmt.Errorf("the site has no rack %q", target)
	}
	return nil, errors.New("the site has no rack with GPU nodes")
}

func (r *rack) hasGPUs() bool {
	return slices.ContainsFunc(r.nodes, func(nd *node) bool { return len(nd.gpus) > 0 })
}

// gpuNode is the target, or the first node, of at least so many GPUs in a rack.
func (h *Hall) gpuNode(target string, gpus int) (*node, error) {
	for _, nd := range h.nodes {
		if nd.rack != nil && len(nd.gpus) >= gpus && (nd.id == target || target == "") {
			return nd, nil
		}
	}
	if target != "" {
		return nil, fmt.Errorf("the site has no node %q of %d GPUs in a rack", target, gpus)
	}
	return nil, fmt.Errorf("the site has no node of %d GPUs in a rack", gpus)
}

// oneGPU is the target, or the GPU of that index of the first node.
func (h *Hall) oneGPU(ev Event, index int) (*node, *gpu, []Fault, error) {
	id, part, ok := strings.Cut(ev.Target, "/")
	if ok {
		var err error
		if index, err = strconv.Atoi(part); err != nil || index < 0 {
			return nil, nil, nil, fmt.Errorf("%q is not NODE/INDEX", ev.Target)
		}
	}
	nd, err := h.gpuNode(id, index+1)
	if err != nil {
		return nil, nil, nil, err
	}
	fault := at(site.KindNode, nd.id)
	fault[0].UUID = nd.gpus[index].uuid
	return nd, &nd.gpus[index], fault, nil
}

// load is the utilisation that the event asks for, or the scenario's own;
// negative: the jobs'.
func (ev *Event) load(own float64) float64 { return cmp.Or(ev.Load, own) }

func setLoad(nodes []*node, util float64) {
	for _, nd := range nodes {
		nd.load = util
	}
}
