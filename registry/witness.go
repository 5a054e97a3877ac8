// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
)

const (
	// deadShare is the share of the most that a node drew within a day below
	// which it is without power. A GPU server stands by at 1 to 3 %, and idles at
	// 20 to 30 % of what it draws under load (evidence: 8 H100 idle at 2 of
	// 8.4 kW); the border between is our own choice.
	deadShare = 0.10
	// leastPeak is the least that a node must have drawn within a day for its
	// draw to say anything, watts: below it nobody can tell idle from off.
	leastPeak = 200
)

// Witness says what the racks know of a silent node: the power at its outlets,
// or of its whole rack, and the switch ports that it hangs on. Power counts more
// than a port: a node that draws as much as one at work is alive, however silent;
// one whose ports are down and whose power is unknown is as good as dead.
// Simulated racks say nothing.
func (r *Registry) Witness(ctx context.Context, node string) (ledger.Witness, string) {
	if r.deps.Querier == nil {
		return ledger.WitnessSilent, "no Prometheus is configured to ask"
	}
	n, ok := r.site.Load().Node(node)
	if !ok {
		return ledger.WitnessSilent, ""
	}
	if v, found, err := r.ask(ctx, `max(rackpulse_simulated{layer="facility"})`); err != nil || found && v > 0 {
		if err != nil {
			return ledger.WitnessSilent, "the racks cannot be asked: " + err.Error()
		}
		return ledger.WitnessSilent, "the racks are simulated"
	}
	said, words := ledger.WitnessSilent, "neither outlets nor rack tell of its power"
	if len(n.Outlets) > 0 {
		said, words = r.powerOf(ctx, "pdu_outlet_power_watt", outletsOf(n.Outlets), "its outlets")
	}
	if said == ledger.WitnessSilent && n.Rack != "" {
		// A whole rack without power tells of each of its nodes; one with power
		// tells nothing of a single one.
		if w, text := r.powerOf(ctx, "pdu_power_watt", r.pdusOf(n.Rack), "the PDUs of its rack"); w == ledger.WitnessDead {
			said, words = w, text
		}
	}
	if said == ledger.WitnessSilent && len(n.Ports) > 0 {
		said, words = r.portsOf(ctx, n.Ports, words)
	}
	return said, words
}

// powerOf compares what the selected series draw together with the most they
// drew within a day. All of them must be there, and at least one: one that
// tells nothing may carry all.
func (r *Registry) powerOf(ctx context.Context, metric string, selectors []string, what string) (ledger.Witness, string) {
	var now, peak float64
	if len(selectors) == 0 {
		return ledger.WitnessSilent, "nothing tells of the power of " + what
	}
	for _, sel := range selectors {
		series := fmt.Sprintf("%s{%s}", metric, sel)
		v, found, err := r.ask(ctx, "sum("+series+")")
		if err != nil || !found {
			return ledger.WitnessSilent, fmt.Sprintf("the power of %s is not known", what)
		}
		most, found, err := r.ask(ctx, "sum(max_over_time("+series+"[1d]))")
		if err != nil || !found {
			return ledger.WitnessSilent, fmt.Sprintf("the power of %s is not known", what)
		}
		now, peak = now+v, peak+most
	}
	switch {
	case peak < leastPeak:
		return ledger.WitnessSilent, fmt.Sprintf("%s gave at most %.0f W within a day: too little to tell", what, peak)
	case now < deadShare*peak:
		return ledger.WitnessDead, fmt.Sprintf("%s give %.0f W of up to %.0f W", what, now, peak)
	}
	return ledger.WitnessAlive, fmt.Sprintf("%s give %.0f W", what, now)
}

// portsOf says that a node is dead when all its ports are down.
func (r *Registry) portsOf(ctx context.Context, ports []string, words string) (ledger.Witness, string) {
	for _, ref := range ports {
		sw, port, _ := strings.Cut(ref, "/")
		up, found, err := r.ask(ctx, fmt.Sprintf("max(switch_port_up{switch=%q,port=%q})", sw, port))
		if err != nil || !found || up != 0 {
			return ledger.WitnessSilent, words
		}
	}
	return ledger.WitnessDead, "all its switch ports are down"
}

// pdusOf are the selectors of a rack's PDUs.
func (r *Registry) pdusOf(rack string) []string {
	var out []string
	for _, p := range r.site.Load().PDUsOf(rack) {
		out = append(out, fmt.Sprintf("pdu_id=%q", p.ID))
	}
	return out
}

// outletsOf are the selectors of outlets, "PDU/OUTLET".
func outletsOf(refs []string) []string {
	out := make([]string, 0, len(refs))
	for _, ref := range refs {
		pdu, outlet, _ := strings.Cut(ref, "/")
		out = append(out, fmt.Sprintf("pdu_id=%q,outlet=%q", pdu, outlet))
	}
	return out
}

// ask evaluates an expression of one value.
func (r *Registry) ask(ctx context.Context, expr string) (v float64, found bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	samples, err := r.deps.Querier.Instant(ctx, expr, time.Now())
	if err != nil || len(samples) != 1 {
		return 0, false, err
	}
	return samples[0].Value, true, nil
}
