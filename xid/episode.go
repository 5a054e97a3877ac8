// SPDX-License-Identifier: Apache-2.0

package xid

import (
	"slices"
	"time"
)

// The episode rule: events of one GPU within a minute, and equal codes within
// a day, are one episode. A bad link can write thousands of lines; an
// uncorrectable error writes 48, 63 and 94 within milliseconds.
const (
	// EpisodeGap is the longest time between two events of one episode.
	EpisodeGap  = time.Minute
	episodeSame = 24 * time.Hour
)

// Count is how often a code came in an episode.
type Count struct {
	Kind  Kind `json:"kind"`
	Code  int  `json:"code,omitempty"`
	Lines int  `json:"lines"`
	first clock
}

// Episode is a group of events of one GPU or switch that count as one.
type Episode struct {
	PCI    string `json:"pci,omitempty"`
	Device string `json:"device,omitempty"`
	First  Event  `json:"first"`
	Last   Event  `json:"last"`
	// Cause is the first event that is no consequence of another; when all are,
	// the first event, and Consequence is true.
	Cause       Event `json:"cause"`
	Consequence bool  `json:"consequence_only"`
	// Worst is the first event of the worst severity.
	Worst  Event   `json:"worst"`
	Counts []Count `json:"counts"`
	// Recovery is the last text of XID 154 in the episode.
	Recovery *Event `json:"recovery,omitempty"`
	last     clock
}

// clock is where an event stands in time; the log's or the one since boot.
type clock struct {
	at    time.Time
	known bool
	wall  bool
}

func clockOf(e Event) clock {
	if !e.Time.IsZero() {
		return clock{at: e.Time, known: true, wall: true}
	}
	if e.Uptime != nil {
		return clock{at: time.Time{}.Add(*e.Uptime), known: true}
	}
	return clock{}
}

// within says whether b is at most d away from a. A line without any time
// stands with the line before it. Seconds since boot that run backwards are
// those of another boot.
func (a clock) within(b clock, d time.Duration) bool {
	if !a.known || !b.known {
		return true
	}
	gap := b.at.Sub(a.at)
	if a.wall != b.wall || !a.wall && gap < -time.Second { // two CPUs may write out of order
		return false
	}
	return gap.Abs() <= d
}

// Episodes merges events, which are in the order of their log.
func (c *Catalogue) Episodes(events []Event) []Episode {
	open := map[string][]int{} // by GPU or switch, indices in out
	var out []Episode
	for _, e := range events {
		key := e.Device + " " + e.PCI
		at := clockOf(e)
		i := find(out, open[key], e, at)
		if i < 0 {
			out = append(out, Episode{PCI: e.PCI, Device: e.Device, First: e, Cause: e, Worst: e, Consequence: true})
			i = len(out) - 1
			open[key] = append(stillOpen(out, open[key], at), i)
		}
		c.join(&out[i], e, at)
	}
	return out
}

// find is the episode that the event belongs to, or -1: the newest that had
// something within a minute, else the newest with the same code within a day.
func find(episodes []Episode, open []int, e Event, at clock) int {
	for _, i := range slices.Backward(open) {
		if episodes[i].last.within(at, EpisodeGap) {
			return i
		}
	}
	for _, i := range slices.Backward(open) {
		for _, n := range episodes[i].Counts {
			if n.Code == codeOf(e) && n.Kind == kindOf(e) && n.first.within(at, episodeSame) {
				return i
			}
		}
	}
	return -1
}

// stillOpen leaves the episodes that a later event may join.
func stillOpen(episodes []Episode, open []int, at clock) []int {
	return slices.DeleteFunc(open, func(i int) bool { return !episodes[i].last.within(at, episodeSame) })
}

func (c *Catalogue) join(ep *Episode, e Event, at clock) {
	ep.Last = e
	if at.known {
		ep.last = at
	}
	if ep.Consequence && !c.consequence(e) {
		ep.Cause, ep.Consequence = e, false
	}
	if worse(c.Judge(e).Severity, c.Judge(ep.Worst).Severity) {
		ep.Worst = e
	}
	if e.Recovery != "" {
		ep.Recovery = &e
	}
	for i := range ep.Counts {
		if ep.Counts[i].Code == codeOf(e) && ep.Counts[i].Kind == kindOf(e) {
			ep.Counts[i].Lines++
			return
		}
	}
	ep.Counts = append(ep.Counts, Count{Kind: kindOf(e), Code: codeOf(e), Lines: 1, first: at})
}

// consequence says whether an event follows another one by its nature. 154
// only tells what another XID made necessary.
func (c *Catalogue) consequence(e Event) bool {
	return e.Kind == KindXID && (c.xids[e.Code].Consequence || e.Code == RecoveryCode || e.CausedBy != 0)
}

// codeOf and kindOf count a GPU that left the bus as XID 79, with or without number.
func codeOf(e Event) int {
	if e.Kind == KindOffBus {
		return OffBusCode
	}
	return e.Code
}

func kindOf(e Event) Kind {
	if e.Kind == KindOffBus {
		return KindXID
	}
	return e.Kind
}
