// SPDX-License-Identifier: Apache-2.0

package incidents

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/explain"
)

// named is a cause as somebody names it: the kind of fault, and where.
type named struct {
	kind   string
	entity explain.Entity
}

// alertCauses are what our alerts name: the kind of incident and the label of
// the entity. Alerts that are not here are symptoms or name something else.
var alertCauses = map[string]struct{ kind, level, label string }{
	"CoolingFault":       {"cooling-loss", "cooling_unit", "cooling_unit"},
	"CoolingUnitDown":    {"cooling-loss", "cooling_unit", "cooling_unit"},
	"RackAirflowLost":    {"airflow-loss", "rack", "rack_id"},
	"NodeAirflowLost":    {"fan-failure", "node", "node"},
	"FeedLost":           {"feed-loss", "feed", "feed"},
	"PDULost":            {"breaker-trip", "pdu", "pdu_id"},
	"FacilityDeviceDown": {"dead-pdu-management", "device", "device"},
	"PhaseOverload":      {"phase-overload", "pdu", "pdu_id"},
	"FeedSag":            {"sag", "feed", "feed"},
	"SwitchPortFlapping": {"port-flap", "port", "switch"},
	"GPULost":            {"gpu-lost", "gpu", "UUID"},
	"GPUMemoryFailing":   {"ecc-escalation", "gpu", "UUID"},
	"NVLinkFailing":      {"nvlink-errors", "gpu", "UUID"},
	"NodeLeaseLost":      {"node-crash", "node", "node"},
	"RackSilent":         {"partition", "rack", "rack_id"},
}

// alertCause is the cause that an alert of ours names in its annotation; false
// where it says that the cause is unknown.
func alertCause(f *fired) (named, bool) {
	if c := f.annotations["cause"]; c == "" || strings.HasPrefix(c, "unknown") {
		return named{}, false
	}
	a, ok := alertCauses[f.labels["alertname"]]
	if !ok {
		return named{kind: f.labels["alertname"]}, true // it names something else
	}
	id := f.labels[a.label]
	if a.level == "port" {
		id += "/" + f.labels["port"]
	}
	return named{a.kind, explain.Entity{Level: a.level, ID: id}}, true
}

// correlations are the rules and facts by which explain may name a kind.
var correlations = map[string][]string{
	"cooling-loss":        {"cooling-fault", "cooling-unit-down"},
	"airflow-loss":        {"cooling-fault"},
	"fan-failure":         {"node-airflow"},
	"feed-loss":           {"feed-lost"},
	"breaker-trip":        {"feed-lost"},
	"dead-pdu-management": {"device-silent"},
	"phase-overload":      {"phase-overload"},
	"sag":                 {"feed-sag"},
	"port-flap":           {"port-flap"},
	"gpu-lost":            {"gpu-lost", "xid-79"},
	"ecc-escalation":      {"gpu-memory", "xid-48", "xid-63", "xid-94"},
	"nvlink-errors":       {"nvlink", "xid-74"},
	"node-crash":          {"node-down"},
	"partition":           {"rack-silent", "common-cause"},
}

// is says that a candidate of explain names an incident.
func (t *truth) is(c *explain.Candidate) bool {
	if t.kind == "partition" && c.Entity.Level == "switch" && c.Correlation == "common-cause" {
		return c.Entity.ID == "tor"+strings.TrimPrefix(t.entity.ID, "r") // the switch of that rack cuts it off as well
	}
	return c.Entity == t.entity && slices.Contains(correlations[t.kind], c.Correlation)
}

// placeIn is the rank of an incident among the named candidates, from 1; 0: it is
// not there.
func (t *truth) placeIn(r *explain.Report) int {
	for i := range r.Candidates {
		if c := &r.Candidates[i]; c.Score >= explain.NamedScore && t.is(c) {
			return i + 1
		}
	}
	return 0
}

// unknown says that explain answers that it does not know, and what is missing.
func unknown(r *explain.Report) bool {
	return !r.Named && strings.HasPrefix(r.Conclusion, "unknown") && len(r.Missing) > 0
}

var severities = []string{"critical", "warning", "info", "none", ""}

// ranked orders alerts as they are worked off: the graver first, then the older.
func ranked(list []*fired, severity string) []*fired {
	out := slices.Clone(list)
	slices.SortStableFunc(out, func(a, b *fired) int {
		return cmp.Or(cmp.Compare(slices.Index(severities, a.labels[severity]), slices.Index(severities, b.labels[severity])), cmp.Compare(a.seen, b.seen))
	})
	return out
}

// between are the alerts that people first saw in a part of a play, without those
// that rightly name a device which a confounder broke.
func (p *play) between(list []*fired, from, to time.Duration) []*fired {
	var out []*fired
	for _, f := range list {
		side := slices.Contains(p.side, f.labels["device"]) || f.labels["baseline"] == "snmp" && slices.Contains(p.side, f.labels["instance"])
		if !side && f.seen >= from && f.seen <= to && f.labels["role"] != "inhibitor" {
			out = append(out, f)
		}
	}
	return out
}

// causesOf are the causes that alerts name, in order, each once. An alert that
// names none does not hide what comes after.
func causesOf(list []*fired, cause func(*fired) (named, bool)) []named {
	var out []named
	for _, f := range list {
		if c, ok := cause(f); ok && !slices.Contains(out, c) {
			out = append(out, c)
		}
	}
	return out
}

// rank is the place of an incident among named causes, from 1; 0: not there.
func (t *truth) rank(list []named) int { return 1 + slices.Index(list, named{t.kind, t.entity}) }

// pages counts the messages that wake somebody, in a part of a play.
func pages(sent []notification, from, to time.Duration) int {
	n := 0
	for i := range sent {
		if at := sent[i].at.Sub(epoch); sent[i].page() && at >= from && at <= to {
			n++
		}
	}
	return n
}

// verdict is what is counted of one incident.
type verdict struct {
	explain, alert, plain, grouped int // ranks; 0: not named
	unknown                        bool
	delay, plainDelay              time.Duration // of the first alert that names it; -1: none
	incidents                      int           // in the play
}

func (o *outcome) judge(b *bench, i int) verdict {
	t := &o.truths[i]
	from, to := t.onset, t.onset+minutes(b.Time.Ask)
	if len(o.truths) > 1 { // both are on the table when the later one is asked about
		from, to = o.truths[0].onset, o.truths[1].onset+minutes(b.Time.Ask)
	}
	seen := ranked(o.between(o.ours, from, to), "severity")
	theirs := o.between(o.plain, from, to)
	return verdict{
		explain: t.placeIn(o.asked[i]), unknown: unknown(o.asked[i]),
		alert:   t.rank(causesOf(seen, alertCause)),
		plain:   t.rank(causesOf(ranked(theirs, "urgency"), plainCause)),
		grouped: t.rank(groupedCauses(theirs)),
		delay:   t.delay(o.ours, alertCause), plainDelay: t.delay(o.plain, plainCause),
		incidents: len(o.truths),
	}
}

// delay is from the onset to the first alert that names the incident; -1: none.
func (t *truth) delay(list []*fired, cause func(*fired) (named, bool)) time.Duration {
	best := time.Duration(-1)
	for _, f := range list {
		if c, ok := cause(f); ok && f.seen >= t.onset && c == (named{t.kind, t.entity}) {
			if d := f.seen - t.onset; best < 0 || d < best {
				best = d
			}
		}
	}
	return best
}
