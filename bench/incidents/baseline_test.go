// SPDX-License-Identifier: Apache-2.0

package incidents

import (
	_ "embed" // baseline.rules.yml
	"strings"

	"github.com/rackpulse/rackpulse/explain"
)

//go:embed baseline.rules.yml
var baselineFile []byte

// The baselines' Alertmanager: every alert by itself, and the same grouped by
// rack, with the waits of our own configuration.
const (
	plainConfig = `
route:
  receiver: notice
  group_by: ["..."]
  group_wait: 30s
  group_interval: 2m
  routes:
    - {matchers: ['urgency="critical"'], receiver: operations-page}
`
	groupedConfig = `
route:
  receiver: notice
  group_by: [site, rack_id]
  group_wait: 30s
  group_interval: 2m
  routes:
    - {matchers: ['urgency="critical"'], receiver: operations-page}
`
)

// plainCause is what one alert of the baseline names, in its favour: an alert on
// a thing names that thing as the cause in the way that its text does.
func plainCause(f *fired) (named, bool) {
	l := f.labels
	switch l["baseline"] {
	case "host":
		return named{"node-crash", explain.Entity{Level: "node", ID: l["instance"]}}, true
	case "snmp":
		return named{"dead-pdu-management", explain.Entity{Level: "device", ID: l["instance"]}}, true
	case "port":
		return named{"port-flap", explain.Entity{Level: "port", ID: l["switch"] + "/" + l["port"]}}, true
	case "xid":
		kind := map[string]string{"79": "gpu-lost", "48": "ecc-escalation", "63": "ecc-escalation", "94": "ecc-escalation", "74": "nvlink-errors"}[f.annotations["code"]]
		return named{kind, explain.Entity{Level: "gpu", ID: l["UUID"]}}, kind != ""
	case "ecc":
		return named{"ecc-escalation", explain.Entity{Level: "gpu", ID: l["UUID"]}}, true
	case "nvlink":
		return named{"nvlink-errors", explain.Entity{Level: "gpu", ID: l["UUID"]}}, true
	case "inlet":
		return named{"airflow-loss", explain.Entity{Level: "rack", ID: l["rack_id"]}}, true
	case "unit":
		return named{"cooling-loss", explain.Entity{Level: "cooling_unit", ID: l["cooling_unit"]}}, true
	case "load":
		return named{"phase-overload", explain.Entity{Level: "pdu", ID: l["pdu_id"]}}, true
	case "volts":
		feed := "feed-" + l["pdu_id"][strings.LastIndex(l["pdu_id"], "-")+1:]
		return named{"sag", explain.Entity{Level: "feed", ID: feed}}, true
	}
	return named{}, false // a hot or throttled GPU: what it suffers, not why
}

// rackOfHosts is how many hosts of a rack must be down in one group for it to
// name the rack.
const rackOfHosts = 3

// groupedCauses are what the groups of a rack name, in the order of their first
// messages: several hosts of one rack name the rack, else the first alert counts.
func groupedCauses(list []*fired) []named {
	type rack struct {
		causes []named
		hosts  int
	}
	var order []string
	racks := map[string]*rack{}
	for _, f := range ranked(list, "urgency") {
		id := f.labels["urgency"] + " " + f.labels["rack_id"]
		if racks[id] == nil {
			racks[id] = &rack{}
			order = append(order, id)
		}
		if f.labels["baseline"] == "host" {
			racks[id].hosts++
		}
		if c, ok := plainCause(f); ok {
			racks[id].causes = append(racks[id].causes, c)
		}
	}
	var out []named
	for _, id := range order {
		r := racks[id]
		if r.hosts >= rackOfHosts {
			out = append(out, named{"partition", explain.Entity{Level: "rack", ID: id[strings.Index(id, " ")+1:]}})
		} else if len(r.causes) > 0 {
			out = append(out, r.causes[0])
		}
	}
	return out
}
