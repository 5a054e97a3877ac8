// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"

	"github.com/rackpulse/rackpulse/site"
)

// loadedPDU is the first PDU that feeds a GPU node.
func (h *Hall) loadedPDU() (*pdu, error) {
	for _, nd := range h.nodes {
		if len(nd.gpus) > 0 && len(nd.plugs) > 0 {
			return nd.plugs[0].pdu, nil
		}
	}
	return nil, errors.New("no PDU of the site feeds a GPU node")
}

func planFeedLoss(h *Hall) ([]Fault, func(int64), error) {
	p, err := h.loadedPDU()
	if err != nil {
		return nil, nil, err
	}
	return at(site.KindFeed, p.feed.id), func(int64) { p.feed.dead = true }, nil
}

func planDeadManagement(h *Hall) ([]Fault, func(int64), error) {
	p, err := h.loadedPDU()
	if err != nil {
		return nil, nil, err
	}
	return at(site.KindPDU, p.id), func(int64) { p.unmanaged = true }, nil
}

func planBreakerTrip(h *Hall) ([]Fault, func(int64), error) {
	p, err := h.loadedPDU()
	if err != nil {
		return nil, nil, err
	}
	return at(site.KindPDU, p.id), func(int64) { p.tripped = true }, nil
}

// overload is the current of the overloaded phase over its rating, at the onset.
const overload = 1.1

func planPhaseOverload(h *Hall) ([]Fault, func(int64), error) {
	p, err := h.loadedPDU()
	if err != nil {
		return nil, nil, err
	}
	if p.rack != nil { // a steady load, so that the phase stays above its rating
		setLoad(p.rack.nodes, .75)
	}
	act := func(int64) {
		if p.stray == 0 {
			p.stray = overload*p.rated*p.volts(0, h.now)*p.pf - p.watts[0]
		}
	}
	return at(site.KindPDU, p.id), act, nil
}

// A sag of 10-30 % lasts 10-200 ms; here the whole of a 1 s step shows its
// lowest voltage. The brake holds on long enough for a 15 s scrape to see it.
const (
	sagVolts           = .75
	sagSteps, sagEvery = 2, 120
	brakeSteps         = 30
)

func planSag(h *Hall) ([]Fault, func(int64), error) {
	p, err := h.loadedPDU()
	if err != nil {
		return nil, nil, err
	}
	f := p.feed
	var fed []*node
	for _, nd := range h.nodes {
		for _, pl := range nd.plugs {
			if pl.pdu.feed == f {
				fed = append(fed, nd)
				break
			}
		}
	}
	act := func(since int64) {
		f.sag = 1
		if since%sagEvery < sagSteps {
			f.sag = sagVolts
		}
		for _, nd := range fed {
			nd.brake = since%sagEvery < brakeSteps
		}
	}
	return at(site.KindFeed, f.id), act, nil
}
