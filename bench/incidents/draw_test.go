// SPDX-License-Identifier: Apache-2.0

package incidents

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/explain"
	"github.com/rackpulse/rackpulse/sim"
	"github.com/rackpulse/rackpulse/site"
)

// truth is one incident: what is at fault, since when, and what an operator asks.
type truth struct {
	kind   string
	entity explain.Entity // the cause, as explain should name it
	gpu    int            // index, where the cause is one GPU of a node; else -1
	node   string         // of that GPU
	place  site.Entity    // the entity of the site that is struck
	onset  time.Duration
	ask    explain.Request
	silent bool // the cooling unit believes that it runs
}

// interval is a part of a run.
type interval struct{ from, until time.Duration }

func (i interval) has(t time.Duration) bool { return t >= i.from && t < i.until }

// play is one run of the hall.
type play struct {
	name        string
	seed        int64
	events      []sim.Event
	truths      []truth
	maintenance map[string][]interval
	skew        map[string]float64
	unscraped   string // rack whose metrics are cut off with its partition
	mended, end time.Duration
	confounders []string
	side        []string // devices that confounders break: what names them is right
}

// draw makes plays out of parameters and seeds. Equal seeds give equal plays.
type draw struct {
	*parameters
	site *site.Site
}

func stream(seed int64, name string) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprint(h, name)
	return rand.New(rand.NewPCG(uint64(seed), h.Sum64()))
}

func pick[T any](r *rand.Rand, list []T) T { return list[r.IntN(len(list))] }

// alone is one incident with its confounders.
func (d *draw) alone(kind string, seed int64) *play {
	r := stream(seed, kind)
	p := d.begin(kind, seed)
	d.strike(r, p, kind, d.Time.Onset.minutes(r))
	d.confound(r, p)
	return d.finish(p)
}

// pair is two incidents at about the same time, none of which holds the other.
func (d *draw) pair(seed int64, nth int) *play {
	r := stream(seed, fmt.Sprint("pair", nth))
	for {
		first, second := pick(r, d.kinds()), pick(r, d.kinds())
		p := d.begin(first+" + "+second, seed)
		onset := d.Time.Onset.minutes(r)
		d.strike(r, p, first, onset)
		d.strike(r, p, second, onset+seconds(d.Pairs.Apart.draw(r)))
		if a, b := p.truths[0].place, p.truths[1].place; first == second || a == b || d.holds(a, b) || d.holds(b, a) {
			continue
		}
		d.confound(r, p)
		return d.finish(p)
	}
}

// blind is one incident whose deciding sensors die at its onset.
func (d *draw) blind(kind string, seed int64) *play {
	r := stream(seed, "blind "+kind)
	p := d.begin("blind "+kind, seed)
	onset := d.Time.Onset.minutes(r)
	d.strike(r, p, kind, onset)
	t := p.truths[0]
	var racks []string
	switch kind {
	case "cooling-loss":
		u, _ := d.site.CoolingUnit(t.place.ID)
		racks = u.Serves
	case "airflow-loss":
		racks = []string{t.place.ID}
	case "fan-failure":
		racks = []string{d.rackOf(t.place.ID)}
	case "breaker-trip":
		pdu, _ := d.site.PDU(t.place.ID)
		for _, other := range d.site.PDUsOf(pdu.Rack) {
			if other.ID != pdu.ID {
				p.events = append(p.events, sim.Event{Scenario: "dead-pdu-management", Target: other.ID, Onset: onset})
			}
		}
	}
	for _, rack := range racks {
		for _, s := range d.site.SensorsIn(rack) {
			p.events = append(p.events, sim.Event{Scenario: "stale-sensor", Target: s.ID, Onset: onset, Size: 1})
		}
	}
	d.confound(r, p)
	return d.finish(p)
}

// quiet is one day without a fault.
func (d *draw) quiet(day int64) *play {
	const length = 24 * time.Hour
	r := stream(day, "quiet")
	p := d.begin("quiet", day)
	q := d.Quiet
	at := func() time.Duration { return seconds(r.Float64() * length.Seconds()) }
	for range q.LoadSteps {
		from := at()
		p.events = append(p.events, sim.Event{Scenario: "load-only", Target: pick(r, d.site.Racks).ID, Onset: from, Until: from + q.LoadFor.minutes(r), Size: q.LoadTo.draw(r), Load: -1})
	}
	for range q.Maintenance {
		from := at()
		d.maintain(p, pick(r, d.site.Nodes).ID, from, from+q.MaintenanceFor.minutes(r))
	}
	for range q.DeadSensors {
		from := at()
		p.events = append(p.events, sim.Event{Scenario: "stale-sensor", Target: pick(r, d.site.Sensors).ID, Onset: from, Until: from + minutes(q.DeadSensorFor), Size: d.Confounders.Freeze})
	}
	p.end = length
	return p
}

func (d *draw) begin(name string, seed int64) *play {
	return &play{name: name, seed: seed, maintenance: map[string][]interval{}, skew: map[string]float64{}}
}

func (d *draw) finish(p *play) *play {
	p.mended = p.truths[len(p.truths)-1].onset + minutes(d.Time.Fault)
	p.end = p.mended + minutes(d.Time.After)
	return p
}

func (d *draw) rackOf(node string) string {
	n, _ := d.site.Node(node)
	return n.Rack
}

// holds says that b hangs on a.
func (d *draw) holds(a, b site.Entity) bool { return slices.Contains(d.site.Dependents(a), b) }

// strike adds one incident of a kind with a random target.
func (d *draw) strike(r *rand.Rand, p *play, kind string, onset time.Duration) {
	k := d.Kinds[kind]
	t := truth{kind: kind, onset: onset, gpu: -1}
	ev := sim.Event{Scenario: kind, Onset: onset, Until: onset + minutes(d.Time.Fault), Load: -1}
	if k.Load != (span{}) {
		ev.Load = k.Load.draw(r)
	}
	if k.Size != (span{}) {
		ev.Size = k.Size.draw(r)
	}
	rack, node := pick(r, d.site.Racks).ID, pick(r, d.site.Nodes)
	index := r.IntN(d.Hall.GPUsPerNode)
	switch kind {
	case "cooling-loss":
		u := pick(r, d.site.CoolingUnits)
		t.silent = r.Float64() < k.SilentChance
		if !t.silent {
			ev.Size = 0
		}
		d.aim(&t, &ev, site.KindCooling, u.ID, explain.Request{Rack: pick(r, u.Serves)})
	case "airflow-loss", "partition":
		d.aim(&t, &ev, site.KindRack, rack, explain.Request{Rack: rack})
		if kind == "partition" {
			t.ask = explain.Request{Node: pick(r, d.site.NodesIn(rack)).ID}
			if r.Float64() < k.UnscrapedChance {
				p.unscraped = rack
			}
		}
	case "fan-failure", "node-crash":
		d.aim(&t, &ev, site.KindNode, node.ID, explain.Request{Node: node.ID})
	case "feed-loss":
		d.aim(&t, &ev, site.KindFeed, pick(r, d.site.Feeds).ID, explain.Request{Rack: rack})
	case "sag":
		d.aim(&t, &ev, site.KindFeed, pick(r, d.site.Feeds).ID, explain.Request{Node: node.ID})
		if ev.Load > 0 { // of all nodes: every rack hangs on the feed
			for _, rack := range d.site.Racks {
				p.events = append(p.events, sim.Event{Scenario: "load-only", Target: rack.ID, Onset: 0, Until: onset + minutes(d.Time.Fault), Size: ev.Load, Load: -1})
			}
		}
	case "breaker-trip", "dead-pdu-management", "phase-overload":
		pdu := pick(r, d.site.PDUs)
		d.aim(&t, &ev, site.KindPDU, pdu.ID, explain.Request{Rack: pdu.Rack})
		if kind == "dead-pdu-management" {
			t.entity.Level = "device"
		}
	case "port-flap":
		d.aim(&t, &ev, site.KindNode, node.ID, explain.Request{Node: node.ID})
		ev.Target = node.Ports[0]
		t.entity = explain.Entity{Level: "port", ID: node.Ports[0]}
	case "gpu-lost", "ecc-escalation", "nvlink-errors":
		d.aim(&t, &ev, site.KindNode, node.ID, explain.Request{Node: node.ID})
		ev.Target, t.gpu, t.node = node.ID+"/"+strconv.Itoa(index), index, node.ID
		t.entity.Level, t.entity.ID = "gpu", "" // the UUID is known in the hall
	}
	p.events, p.truths = append(p.events, ev), append(p.truths, t)
}

func (d *draw) aim(t *truth, ev *sim.Event, kind, id string, ask explain.Request) {
	t.place = site.Entity{Kind: kind, ID: id}
	t.entity = explain.Entity{Level: kind, ID: id}
	t.ask = ask
	ev.Target = id
}

// maintain puts a node into maintenance: declared first, then off.
func (d *draw) maintain(p *play, node string, from, until time.Duration) {
	p.maintenance[node] = append(p.maintenance[node], interval{from, until})
	off := from + 30*time.Second
	if until-30*time.Second > off {
		p.events = append(p.events, sim.Event{Scenario: "node-crash", Target: node, Onset: off, Until: until - 30*time.Second})
	}
}

// confound adds what else goes on, never at what the incidents strike themselves.
// Confounders go before the incidents, whose held loads win.
func (d *draw) confound(r *rand.Rand, p *play) {
	c, onset := d.Confounders, p.truths[0].onset
	struck := func(kind, id string) bool {
		return slices.ContainsFunc(p.truths, func(t truth) bool { return t.place == site.Entity{Kind: kind, ID: id} })
	}
	other := func(kind string, ids []string) string {
		return pick(r, slices.DeleteFunc(ids, func(id string) bool { return struck(kind, id) }))
	}
	var nodes, pdus []string
	for i := range d.site.Nodes {
		nodes = append(nodes, d.site.Nodes[i].ID)
	}
	for i := range d.site.PDUs {
		pdus = append(pdus, d.site.PDUs[i].ID)
	}
	incidents := p.events
	p.events = nil
	chance := func(name string, x confounder, do func(from time.Duration)) {
		from := max(0, onset+x.From.minutes(r))
		if r.Float64() < x.Chance {
			p.confounders = append(p.confounders, name)
			do(from)
		}
	}
	chance("load", c.LoadStep, func(from time.Duration) {
		p.events = append(p.events, sim.Event{Scenario: "load-only", Target: pick(r, d.site.Racks).ID, Onset: from, Until: from + c.LoadStep.For.minutes(r), Size: c.LoadStep.To.draw(r), Load: -1})
	})
	moved := ""
	chance("moved", c.MovedNode, func(time.Duration) {
		moved = other(site.KindNode, slices.Clone(nodes))
		to := other("none", slices.DeleteFunc(d.rackIDs(), func(id string) bool { return id == d.rackOf(moved) }))
		p.events = append(p.events, sim.Event{Scenario: "moved-node", Target: moved + "/" + to, Onset: time.Second, Load: -1})
	})
	chance("maintenance", c.Maintenance, func(from time.Duration) {
		node := other(site.KindNode, slices.DeleteFunc(slices.Clone(nodes), func(id string) bool { return id == moved }))
		d.maintain(p, node, from, from+c.Maintenance.For.minutes(r))
	})
	chance("sensor", c.DeadSensor, func(from time.Duration) {
		p.side = append(p.side, pick(r, d.site.Sensors).ID)
		p.events = append(p.events, sim.Event{Scenario: "stale-sensor", Target: p.side[len(p.side)-1], Onset: from, Size: c.Freeze})
	})
	chance("skew", c.ClockSkew, func(time.Duration) { p.skew[pick(r, nodes)] = c.ClockSkew.Seconds.draw(r) })
	chance("card", c.DeadCard, func(from time.Duration) {
		p.side = append(p.side, other(site.KindPDU, slices.Clone(pdus)))
		p.events = append(p.events, sim.Event{Scenario: "dead-pdu-management", Target: p.side[len(p.side)-1], Onset: from})
	})
	p.events = append(p.events, incidents...)
}

func (d *draw) rackIDs() []string {
	var out []string
	for i := range d.site.Racks {
		out = append(out, d.site.Racks[i].ID)
	}
	return out
}

// String names a play for people.
func (p *play) String() string {
	out := fmt.Sprintf("%s, seed %d", p.name, p.seed)
	if len(p.confounders) > 0 {
		out += " (" + strings.Join(p.confounders, " ") + ")"
	}
	return out
}
