// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/query"
	"github.com/rackpulse/rackpulse/site"
)

// Strengths of facts that no correlation judges. They are own choices, ordered
// by how much the fact says of its own cause: a flapping port names its link, a
// silent card says nothing of the power behind it.
const (
	strengthLink   = 0.7
	strengthUnit   = 0.6
	strengthNode   = 0.5
	strengthDevice = 0.5
	strengthLoad   = 0.5
)

// strengthXID is by the catalogue's severity.
var strengthXID = map[string]float64{"critical": 0.8, "error": 0.6, "warning": 0.4, "info": 0.2}

// benignShare is what is left of a code that the application makes or that
// follows another one.
const benignShare = 0.25

// alertXID stands for the XIDs of a GPU among the symptoms of a candidate.
const alertXID = "xid"

// plain makes the candidates of facts without a correlation.
func (c *casebook) plain() []Candidate {
	return slices.Concat(c.devices(), c.units(), c.nodes(), c.xids(), c.ports(), c.overloads(), c.load())
}

// fact makes the candidate of one fact.
func (c *casebook) fact(name string, e Entity, o onset, strength float64, cause, why string) Candidate {
	return Candidate{
		Cause: cause, Entity: e, Correlation: name, Onset: o.at, Before: o.before,
		Factors: []Factor{{"strength", strength, why}},
		domain:  func(x Entity) bool { return x == e },
	}
}

// down lists the entities near the focus for which a fact is 0 now, or was.
func (c *casebook) down(fact string, each func(Entity, onset)) {
	for _, e := range c.entities(fact) {
		if o, ok := c.window.onsetOf(c.data[fact][e].points, isZero); ok && c.nearFocus(e) {
			each(e, o)
		}
	}
}

// devices: a device that does not answer is a dead card or cable until something
// else says that its power is gone.
func (c *casebook) devices() []Candidate {
	var out []Candidate
	c.down(factDevice, func(e Entity, o onset) {
		one := c.fact("device-silent", e, o, strengthDevice, "management card or network of "+e.ID, "it does not answer; nothing says that its power is lost")
		one.alerts = []string{"FacilityDeviceDown"}
		one.Evidence = []Evidence{{Text: "the device does not answer its poller", Entity: e.ID, At: o.at, Signal: factDevice}}
		if d, _ := c.Site.Device(e.ID); d.Kind == site.KindPDU {
			c.supplied(&one, e, o, d.Rack)
		} else if d.Kind == site.KindSensor && d.Rack != "" {
			c.blinded(&one, o, d.Rack)
		}
		one.NextSteps = []string{
			"Look at the management card of " + e.ID + ": cable, address, power light; restart the card.",
			"Do not touch the load: what hangs on it still runs.",
		}
		one.Verdict = "The device is silent; what it feeds or serves still works."
		one.finish()
		out = append(out, one)
	})
	return out
}

// blinded lowers a silent sensor that was the last of its rack: what it would
// have shown may matter more than the sensor.
func (c *casebook) blinded(one *Candidate, o onset, rack string) {
	lost := c.unknown("inlet_up", Entity{"rack", rack}, o.at, c.window.to)
	if len(lost) == 0 {
		return
	}
	one.Missing = append(one.Missing, lost...)
	one.Factors = append(one.Factors, Factor{"unknown", 0.5, "what it measured is not known without it"})
}

// supplied adds what tells a silent PDU from a dead one: the other feed's step
// and the nodes that live on.
func (c *casebook) supplied(one *Candidate, pdu Entity, o onset, rack string) {
	const step, load = "other_feed_step", "step_by_load"
	at := Entity{site.KindPDU, pdu.ID}
	s, where, ok := c.seen(step, at)
	if by, _, loaded := c.seen(load, at); ok && loaded && by.at.Sub(s.at).Abs() <= c.lag() {
		ok = false // the load grew by as much
		one.Evidence = append(one.Evidence, c.evidence(load, where, by))
	}
	if ok && s.at.Sub(o.at).Abs() <= quiet {
		one.Factors = append(one.Factors, Factor{"against", 1 - strengthUnit, "the other PDU of rack " + rack + " took over load, as when power is lost"})
		one.Counter = append(one.Counter, c.evidence(step, where, s))
	} else if len(c.unknown(step, at, o.at, c.window.to)) == 0 {
		one.Evidence = append(one.Evidence, Evidence{Text: "the other PDU of the rack did not take over any load", Entity: "rack " + rack, Signal: step})
	} else {
		one.Missing = append(one.Missing, "pdu_current of the other PDU of rack "+rack)
		one.Factors = append(one.Factors, Factor{"unknown", 0.5, "whether the other PDU took over load is not known"})
	}
	alive, all := 0, 0
	for _, n := range c.graph.below(at, "node") {
		t := c.data[factLease][n]
		if t == nil {
			continue
		}
		all++
		if last := t.points[len(t.points)-1]; last.Value != 0 {
			alive++
		}
	}
	if all > 0 {
		one.Evidence = append(one.Evidence, Evidence{Text: fmt.Sprintf("%d of the %d nodes that it feeds are alive", alive, all), Entity: pdu.ID, Signal: factLease})
	}
}

// units: a cooling unit that says that it does not run.
func (c *casebook) units() []Candidate {
	var out []Candidate
	c.down(factUnit, func(e Entity, o onset) {
		one := c.fact("cooling-unit-down", e, o, strengthUnit, "cooling unit "+e.ID+" does not run", "the unit says so itself; whether racks warm is judged apart")
		one.alerts = []string{"CoolingUnitDown"}
		one.Evidence = []Evidence{{Text: "the cooling unit reports that it does not run", Entity: e.String(), At: o.at, Signal: factUnit}}
		one.Missing = c.withoutInlet(e, o.at)
		one.Verdict = "The unit reports a stop; no rack is known to be warm for it yet."
		one.NextSteps = []string{"Look at " + e.String() + " on site or in the building management system; start the standby unit."}
		one.finish()
		out = append(out, one)
	})
	return out
}

// withoutInlet lists the racks of a unit whose inlet is not known since a time.
func (c *casebook) withoutInlet(unit Entity, since time.Time) []string {
	var out []string
	for _, r := range c.graph.below(unit, "rack") {
		if t := c.data["inlet"][r]; t == nil || !c.window.covered(t.points, since, c.window.to) {
			out = append(out, "inlet for "+r.String()+" ("+c.signals["inlet"].Description+")")
		}
	}
	return out
}

// nodes: a node whose lease ran out, unless its rack went with it.
func (c *casebook) nodes() []Candidate {
	var out []Candidate
	c.down(factLease, func(e Entity, o onset) {
		one := c.fact("node-down", e, o, strengthNode, "node "+e.ID+" itself: crash, power supplies, agent or its own link", "it stopped beating")
		one.alerts = []string{"NodeLeaseLost"}
		one.Evidence = []Evidence{{Text: "the lease of the node is lost", Entity: e.String(), At: o.at, Signal: factLease}}
		rack, alive, all := "", 0, 0
		if n, ok := c.Site.Node(e.ID); ok {
			rack = n.Rack
		}
		for _, n := range c.Site.NodesIn(rack) {
			if t := c.data[factLease][Entity{"node", n.ID}]; t != nil && n.ID != e.ID {
				all++
				if t.points[len(t.points)-1].Value != 0 {
					alive++
				}
			}
		}
		if all > 0 {
			one.Evidence = append(one.Evidence, Evidence{Text: fmt.Sprintf("%d of the %d other nodes of the rack are alive", alive, all), Entity: "rack " + rack, Signal: factLease})
			if alive == 0 {
				one.Factors = append(one.Factors, Factor{"against", explained, "no other node of the rack is alive either"})
			}
		}
		one.Verdict = "The node is silent; whether what it shares with others fails too is said below."
		one.NextSteps = []string{"Look at the console and the management controller of " + e.ID + ": power state, last kernel messages.", "If it runs, look at its link and at the agent's log."}
		one.finish()
		out = append(out, one)
	})
	return out
}

// event is one XID of one GPU.
type event struct {
	gpu  Entity
	code int
	at   time.Time
	what XID
}

// events lists the XIDs of the window near the focus, by GPU and code.
func (c *casebook) events() []event {
	var out []event
	for name := range c.data {
		var code int
		if n, err := fmt.Sscanf(name, factXID+"%d", &code); n != 1 || err != nil {
			continue
		}
		for _, e := range c.entities(name) {
			points := c.data[name][e].points
			at := unixTime(points[len(points)-1])
			if at.Before(c.window.from.Add(-quiet)) || at.After(c.window.to) || !c.nearFocus(e) {
				continue
			}
			one := event{gpu: e, code: code, at: at, what: XID{Name: "unknown code", Severity: "error"}}
			if c.XID != nil {
				if x, ok := c.XID(code); ok {
					one.what = x
				}
			}
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b event) int {
		if d := a.at.Compare(b.at); d != 0 {
			return d
		}
		if a.code != b.code {
			return a.code - b.code
		}
		return strings.Compare(a.gpu.ID, b.gpu.ID)
	})
	return out
}

func unixTime(p query.Point) time.Time { return time.UnixMilli(int64(p.Value * 1000)).UTC() }

func (x event) evidence(c *casebook) Evidence {
	return Evidence{Text: fmt.Sprintf("XID %d: %s", x.code, x.what.Name), Entity: c.graph.show(x.gpu), At: x.at, Signal: "rackpulse_gpu_xid_last_timestamp_seconds"}
}

// xids: what the driver said of a GPU.
func (c *casebook) xids() []Candidate {
	var out []Candidate
	for _, x := range c.events() {
		strength, why := strengthXID[x.what.Severity], x.what.Severity+" in the catalogue"
		if x.what.Benign {
			strength, why = strength*benignShare, why+"; usually the application or the consequence of another code"
		}
		one := c.fact(fmt.Sprintf("xid-%d", x.code), x.gpu, onset{at: x.at}, strength, fmt.Sprintf("%s: XID %d, %s", c.graph.show(x.gpu), x.code, x.what.Name), why)
		one.alerts = []string{alertXID}
		one.Verdict, one.NextSteps = x.what.Meaning, x.what.Do
		one.Evidence = []Evidence{x.evidence(c)}
		one.finish()
		out = append(out, one)
	}
	return out
}

// withXIDs adds the XIDs of a GPU to the correlations that name it.
func (c *casebook) withXIDs(list []Candidate) []Candidate {
	for i := range list {
		one := &list[i]
		if one.Entity.Level != "gpu" {
			continue
		}
		for _, x := range c.events() {
			if x.gpu != one.Entity || x.what.Benign {
				continue
			}
			one.Evidence = merge(one.Evidence, []Evidence{x.evidence(c)})
			one.alerts = append(one.alerts, alertXID)
			one.NextSteps = slices.Concat(one.NextSteps, x.what.Do)
			if x.at.Before(one.Onset) {
				one.Onset = x.at
			}
		}
	}
	return list
}

// ports: a port that goes up and down.
func (c *casebook) ports() []Candidate {
	var out []Candidate
	for _, e := range c.entities(factFlaps) {
		o, ok := c.window.onsetOf(c.data[factFlaps][e].points, always)
		if !ok || !c.nearFocus(e) {
			continue
		}
		one := c.fact("port-flap", e, o, strengthLink, "link at "+c.graph.show(e)+": cable, transceiver or network card", "the port goes up and down")
		one.alerts = []string{"SwitchPortFlapping"}
		flaps := math.Round(o.value)
		one.Evidence = []Evidence{{Text: "link changes in two minutes", Entity: e.String(), At: o.at, Value: &flaps, Signal: "switch_port_flaps_total"}}
		one.Verdict = "The link is unstable; jobs that use this node stall with it."
		one.NextSteps = []string{"Drain the node, reseat or replace cable and transceiver, and watch the port's error counters.", "If other ports of the switch flap too, look at the switch."}
		one.finish()
		out = append(out, one)
	}
	return out
}

// overloads: a PDU that carries more than it is rated for.
func (c *casebook) overloads() []Candidate {
	var out []Candidate
	for _, e := range c.entities(factOverload) {
		o, ok := c.window.onsetOf(c.data[factOverload][e].points, always)
		if !ok || !c.nearFocus(e) {
			continue
		}
		one := c.fact("phase-overload", e, o, strengthLink, "load on "+e.String(), "a phase is over its rating")
		one.alerts = []string{"PhaseOverload", "PhaseOverloadAfterFailover"}
		one.Evidence = []Evidence{c.evidence(factOverload, e, o)}
		one.Verdict = "A phase of the PDU carries more than it is rated for; its breaker will trip."
		one.NextSteps = []string{"Cap power or move load off " + e.String() + " now.", "If the outlets do not account for it, look for what else hangs on the PDU."}
		one.finish()
		out = append(out, one)
	}
	return out
}

// load: more work, which is no fault.
func (c *casebook) load() []Candidate {
	const rising = "load_rising"
	var out []Candidate
	for _, e := range c.entities(rising) {
		o, ok := c.window.onsetOf(c.data[rising][e].points, always)
		if !ok || !c.onPath(e) {
			continue
		}
		one := c.fact("load", e, o, strengthLoad, "more load on "+e.String(), "GPU power rose")
		one.NoFault = true
		one.Evidence = []Evidence{c.evidence(rising, e, o)}
		one.Verdict = "The GPUs got more work; what rises with it is as it should be."
		one.NextSteps = []string{"Nothing to do unless the GPUs throttle or a limit is near."}
		if warm, where, ok := c.seen("inlet_up", e); ok {
			one.Factors = append(one.Factors, Factor{"against", 0.5, "the inlet air warms too"})
			one.Counter = []Evidence{c.evidence("inlet_up", where, warm)}
		} else if lost := c.unknown("inlet_up", e, o.at, c.window.to); len(lost) > 0 {
			one.Missing = lost
			one.Factors = append(one.Factors, Factor{"unknown", 0.5, "whether the inlet air warms too is not known"})
		} else {
			one.Evidence = append(one.Evidence, Evidence{Text: "inlet air is within its limit and steady", Entity: e.String(), Signal: "inlet_up"})
		}
		one.finish()
		out = append(out, one)
	}
	return out
}
