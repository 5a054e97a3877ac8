// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/rackpulse/rackpulse/site"
)

// loadedPDU is the target, or the first PDU that feeds a GPU node.
func (h *Hall) loadedPDU(target string) (*pdu, error) {
	if target != "" {
		for _, p := range h.pdus {
			if p.id == target {
				return p, nil
			}
		}
		return nil, fmt.Errorf("the site has no PDU %q", target)
	}
	for _, nd := range h.nodes {
		if len(nd.gpus) > 0 && len(nd.plugs) > 0 {
			return nd.plugs[0].pdu, nil
		}
	}
	return nil, errors.New("no PDU of the site feeds a GPU node")
}

// feedOf is the target, or the feed of the first PDU that feeds a GPU node.
func (h *Hall) feedOf(target string) (*feed, error) {
	if target != "" {
		if f := h.feeds[target]; f != nil {
			return f, nil
		}
		return nil, fmt.Errorf("the site has no feed %q", target)
	}
	p, err := h.loadedPDU("")
	if err != nil {
		return nil, err
	}
	return p.feed, nil
}

func planFeedLoss(h *Hall, ev Event) (deed, error) {
	f, err := h.feedOf(ev.Target)
	if err != nil {
		return deed{}, err
	}
	return deed{at(site.KindFeed, f.id), func(int64) { f.dead = true }, func() { f.dead = false }}, nil
}

func planDeadManagement(h *Hall, ev Event) (deed, error) {
	p, err := h.loadedPDU(ev.Target)
	if err != nil {
		return deed{}, err
	}
	return deed{at(site.KindPDU, p.id), func(int64) { p.unmanaged = true }, func() { p.unmanaged = false }}, nil
}

func planBreakerTrip(h *Hall, ev Event) (deed, error) {
	p, err := h.loadedPDU(ev.Target)
	if err != nil {
		return deed{}, err
	}
	return deed{at(site.KindPDU, p.id), func(int64) { p.tripped = true }, func() { p.tripped = false }}, nil
}

// overload is the current of the overloaded phase over its rating, at the onset.
const overload = 1.1

func planPhaseOverload(h *Hall, ev Event) (deed, error) {
	p, err := h.loadedPDU(ev.Target)
	if err != nil {
		return deed{}, err
	}
	if p.rack != nil { // a steady load, so that the phase stays above its rating
		setLoad(p.rack.nodes, ev.load(.75))
	}
	act := func(int64) {
		if p.stray == 0 {
			p.stray = cmp.Or(ev.Size, overload)*p.rated*p.volts(0, h.now)*p.pf - p.watts[0]
		}
	}
	return deed{at(site.KindPDU, p.id), act, func() { p.stray = 0 }}, nil
}

// A sag of 10-30 % lasts 10-200 ms; here the whole of a 1 s step shows its
// lowest voltage. The brake follows one step later, so that the current shows the
// dip as it does in the milliseconds before a real brake acts, and holds on long
// enough for a 15 s scrape to see it.
const (
	sagVolts           = .75
	sagSteps, sagEvery = 2, 120
	brakeSteps         = 30
)

func planSag(h *Hall, ev Event) (deed, error) {
	f, err := h.feedOf(ev.Target)
	if err != nil {
		return deed{}, err
	}
	var fed []*node
	for _, nd := range h.nodes {
		for _, pl := range nd.plugs {
			if pl.pdu.feed == f {
				fed = append(fed, nd)
				break
			}
		}
	}
	set := func(volts float64, brake bool) {
		f.sag = volts
		for _, nd := range fed {
			nd.brake = brake
		}
	}
	act := func(since int64) {
		volts := 1.
		if since%sagEvery < sagSteps {
			volts = cmp.Or(ev.Size, sagVolts)
		}
		phase := since % sagEvery
		set(volts, phase >= 1 && phase < brakeSteps)
	}
	return deed{at(site.KindFeed, f.id), act, func() { set(1, false) }}, nil
}
