// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// nodeDesc is a family with a node's labels: a rackless node has no rack_id, so
// that it never joins another one.
type nodeDesc struct{ racked, rackless *prometheus.Desc }

func newNodeDesc(name, help string, labels ...string) nodeDesc {
	return nodeDesc{
		racked:   prometheus.NewDesc(name, help, append([]string{"node", "rack_id"}, labels...), nil),
		rackless: prometheus.NewDesc(name, help, append([]string{"node"}, labels...), nil),
	}
}

// gauge makes a series of the family.
func (d nodeDesc) gauge(value float64, node, rack string, labels ...string) prometheus.Metric {
	if rack == "" {
		return prometheus.MustNewConstMetric(d.rackless, prometheus.GaugeValue, value, append([]string{node}, labels...)...)
	}
	return prometheus.MustNewConstMetric(d.racked, prometheus.GaugeValue, value, append([]string{node, rack}, labels...)...)
}

var (
	descUp = newNodeDesc("rackpulse_lease_up",
		"1 while the node holds its lease, 0 after it expired and until it has recovered; absent while it joins, after it left, and in a maintenance that it entered without a lease.")
	descState       = newNodeDesc("rackpulse_lease_state", "1 for the present state of the node's lease.", "state")
	descLast        = newNodeDesc("rackpulse_lease_last_beat_timestamp_seconds", "When the node's last beat was accepted, on the registry's clock.")
	descSkew        = prometheus.NewDesc("rackpulse_clock_skew_seconds", "The node's clock less the registry's at the last beat, the beat's way included.", []string{"node"}, nil)
	descTransitions = prometheus.NewDesc("rackpulse_lease_transitions_total", "Changes of lease states.", []string{"from", "to"}, nil)
	descBeats       = prometheus.NewDesc("rackpulse_lease_beats_total", "Beats accepted.", nil, nil)
	descRefused     = prometheus.NewDesc("rackpulse_lease_beats_refused_total", "Beats refused.", []string{"reason"}, nil)
	descConflicts   = prometheus.NewDesc("rackpulse_lease_conflicts_total", "Beats by which two agents claimed one node, device or name.", []string{"kind"}, nil)
	descStreams     = prometheus.NewDesc("rackpulse_lease_streams", "Open streams of agents.", nil, nil)
	descPauses      = prometheus.NewDesc("rackpulse_registry_pauses_total", "How often the registry itself stood still for more than a second; all deadlines were moved.", nil, nil)
	descEpoch       = prometheus.NewDesc("rackpulse_registry_epoch", "Grows with each start or fail-over of the registry.", nil, nil)
	descBreaker     = prometheus.NewDesc("rackpulse_breaker_open", "1 while a breaker holds actions back.", []string{"scope"}, nil)
	descRackBreaker = prometheus.NewDesc("rackpulse_breaker_open", "1 while a breaker holds actions back.", []string{"scope", "rack_id"}, nil)
	descFeedBreaker = prometheus.NewDesc("rackpulse_breaker_open", "1 while a breaker holds actions back.", []string{"scope", "feed"}, nil)
	descIntents     = prometheus.NewDesc("rackpulse_outbox_intents", "Actions asked for and not done, held ones included.", nil, nil)
	descHealth      = prometheus.NewDesc("rackpulse_registry_health_score", "0 while the registry trusts itself; each pause of its own adds 1, each 30 s without one takes 1 away. Above 0 it waits longer before it acts.", nil, nil)
	descPending     = prometheus.NewDesc("rackpulse_ledger_pending_changes", "Changes that are not in the ledger yet.", nil, nil)
	descFailures    = prometheus.NewDesc("rackpulse_ledger_commit_failures_total", "Transactions that the ledger did not take; they are repeated.", nil, nil)
	descShed        = prometheus.NewDesc("rackpulse_ledger_shed_events_total", "Old events given up because the ledger took none for too long.", nil, nil)
)

// Describe implements prometheus.Collector. It describes nothing: racked and
// rackless nodes have different labels.
func (s *Server) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector. Before the registry leads there is
// nothing to show.
func (s *Server) Collect(ch chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	t, ok := s.totals()
	if !ok {
		return
	}
	for _, n := range s.Nodes() {
		collectNode(ch, &n)
	}
	for move, v := range t.moves {
		counter(descTransitions, v, move[0].String(), move[1].String())
	}
	for reason, v := range t.refusals {
		counter(descRefused, v, reason)
	}
	for _, b := range t.breakers {
		switch b.Scope {
		case ScopeRack:
			ch <- prometheus.MustNewConstMetric(descRackBreaker, prometheus.GaugeValue, 1, b.Scope, b.ID)
		case ScopeFeed:
			ch <- prometheus.MustNewConstMetric(descFeedBreaker, prometheus.GaugeValue, 1, b.Scope, b.ID)
		default:
			t.wide[b.Scope] = 1
		}
	}
	for scope, v := range t.wide {
		ch <- prometheus.MustNewConstMetric(descBreaker, prometheus.GaugeValue, v, scope)
	}
	gauge(descIntents, float64(t.intents))
	gauge(descHealth, float64(t.score))
	for kind, v := range t.conflicts {
		counter(descConflicts, v, kind)
	}
	counter(descBeats, s.beats.Load())
	counter(descPauses, t.pauses)
	counter(descFailures, s.ledger.failures.Load())
	counter(descShed, s.ledger.shed.Load())
	gauge(descStreams, float64(s.streams.Load()))
	gauge(descPending, float64(s.ledger.pending.Load()))
	gauge(descEpoch, float64(t.epoch))
}

// collectNode sends the series of one node.
func collectNode(ch chan<- prometheus.Metric, n *NodeStatus) {
	if n.LeaseUp != nil {
		up := 0.0
		if *n.LeaseUp {
			up = 1
		}
		ch <- descUp.gauge(up, n.Node, n.Rack)
	}
	ch <- descState.gauge(1, n.Node, n.Rack, n.State.String())
	if !n.LastBeat.IsZero() {
		ch <- descLast.gauge(seconds(n.LastBeat), n.Node, n.Rack)
	}
	if n.Skew != nil {
		ch <- prometheus.MustNewConstMetric(descSkew, prometheus.GaugeValue, n.Skew.Seconds(), n.Node)
	}
}

// totals are the core's counters.
type totals struct {
	moves               map[[2]State]uint64
	refusals, conflicts map[string]uint64
	pauses, epoch       uint64
	breakers            []BreakerStatus
	wide                map[string]float64 // breakers that are not of a rack or feed
	intents, score      int
}

// totals copies the counters; the families of refusals and conflicts start at 0.
func (s *Server) totals() (totals, bool) {
	t := totals{moves: map[[2]State]uint64{}, refusals: map[string]uint64{}, conflicts: map[string]uint64{"node": 0, "device": 0, "agent": 0}}
	for _, reason := range []string{refusedUnknown, refusedOrder, refusedSuperseded, refusedContended, refusedAuth, refusedMalformed, refusedSize, refusedStreams} {
		t.refusals[reason] = 0
	}
	for reason, v := range s.outside.copy() {
		t.refusals[reason] += v
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core == nil {
		return t, false
	}
	for move, v := range s.core.moves {
		t.moves[move] = v
	}
	for reason, v := range s.core.refusals {
		t.refusals[reason] += v
	}
	for kind, v := range s.core.conflicts {
		t.conflicts[kind] += v
	}
	t.pauses, t.epoch = s.core.pauses, s.token.Fence
	t.breakers, t.intents, t.score = s.core.breakerList(), len(s.core.intents), s.core.health.now(s.core.virtual(time.Now()))
	t.wide = map[string]float64{ScopeFull: 0, ScopePartial: 0, ScopeFault: 0, ScopeManual: 0}
	return t, true
}

// seconds is t as Unix seconds.
func seconds(t time.Time) float64 { return float64(t.UnixNano()) / 1e9 }
