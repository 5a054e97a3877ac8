// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"

	"github.com/rackpulse/rackpulse/site"
)

func planLoadOnly(h *Hall) ([]Fault, func(int64), error) {
	r, err := h.gpuRack()
	if err != nil {
		return nil, nil, err
	}
	setLoad(r.nodes, .45)
	return at(site.KindRack, r.id), func(int64) { setLoad(r.nodes, .97) }, nil
}

func planCoolingLoss(h *Hall) ([]Fault, func(int64), error) {
	for _, u := range h.units {
		for _, r := range u.racks {
			if len(r.zone.units) > 1 || !r.hasGPUs() {
				continue
			}
			for k, r := range u.racks {
				for i, nd := range r.nodes {
					nd.load = .8 + .03*float64((i+k)%5) // busy, all of them
				}
			}
			return at(site.KindCooling, u.id), func(int64) { u.stopped = true }, nil
		}
	}
	return nil, nil, errors.New("no cooling unit of the site is the only one of a rack with GPU nodes")
}

// The rack's airflow falls to an eighth, its fans stir the trapped air, and a
// good part of the exhaust returns to the front: idle GPUs settle near 90 C.
const blockedFlow, blockedStir, blockedRecirc = .2, 1., .475

const blocking = 180

func planAirflowLoss(h *Hall) ([]Fault, func(int64), error) {
	r, err := h.gpuRack()
	if err != nil {
		return nil, nil, err
	}
	setLoad(r.nodes, .07) // allocated but idle: clocks up, next to no work
	act := func(since int64) {
		share := min(1, float64(since)/blocking)
		r.recirc = share * blockedRecirc
		for _, nd := range r.nodes {
			nd.airflow = 1 - share*(1-blockedFlow)
			nd.stir = share * blockedStir
		}
	}
	return at(site.KindRack, r.id), act, nil
}

// brokenFans is the share of a node's fans that still turn.
const brokenFans = .2

func planFanFailure(h *Hall) ([]Fault, func(int64), error) {
	nd, err := h.gpuNode(1)
	if err != nil {
		return nil, nil, err
	}
	nd.load = .92
	return at(site.KindNode, nd.id), func(int64) { nd.fans = brokenFans }, nil
}

func planStaleSensor(h *Hall) ([]Fault, func(int64), error) {
	const vanishes = 300
	for _, s := range h.sensors {
		if s.Measures != "inlet_temperature" {
			continue
		}
		act := func(since int64) {
			if s.frozen == nil {
				if v, ok := s.read(h.now); ok {
					s.frozen = &v
				}
			}
			s.gone = since >= vanishes
		}
		return at(site.KindSensor, s.ID), act, nil
	}
	return nil, nil, errors.New("the site has no inlet temperature sensor")
}
