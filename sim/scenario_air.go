// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/rackpulse/rackpulse/site"
)

func planLoadOnly(h *Hall, ev Event) (deed, error) {
	r, err := h.gpuRack(ev.Target)
	if err != nil {
		return deed{}, err
	}
	before, full := ev.load(.45), cmp.Or(ev.Size, .97)
	setLoad(r.nodes, before)
	return deed{
		faults: at(site.KindRack, r.id),
		act:    func(int64) { setLoad(r.nodes, full) },
		mend:   func() { setLoad(r.nodes, before) },
	}, nil
}

func planCoolingLoss(h *Hall, ev Event) (deed, error) {
	for _, u := range h.units {
		if ev.Target != "" && u.id != ev.Target {
			continue
		}
		for _, r := range u.racks {
			if ev.Target == "" && (len(r.zone.units) > 1 || !r.hasGPUs()) {
				continue
			}
			for k, r := range u.racks {
				for i, nd := range r.nodes {
					nd.load = ev.load(.8 + .03*float64((i+k)%5)) // busy, all of them
				}
			}
			return deed{
				faults: at(site.KindCooling, u.id),
				act:    func(int64) { u.stopped, u.left = ev.Size == 0, ev.Size },
				mend:   func() { u.stopped, u.left = false, 0 },
			}, nil
		}
	}
	if ev.Target != "" {
		return deed{}, fmt.Errorf("the site has no cooling unit %q with racks", ev.Target)
	}
	return deed{}, errors.New("no cooling unit of the site is the only one of a rack with GPU nodes")
}

// The rack's airflow falls to an eighth, its fans stir the trapped air, and a
// good part of the exhaust returns to the front: idle GPUs settle near 90 C.
const blockedFlow, blockedStir, blockedRecirc = .2, 1., .475

const blocking = 180

func planAirflowLoss(h *Hall, ev Event) (deed, error) {
	r, err := h.gpuRack(ev.Target)
	if err != nil {
		return deed{}, err
	}
	setLoad(r.nodes, ev.load(.07)) // allocated but idle: clocks up, next to no work
	block := func(share float64) {
		r.recirc = share * blockedRecirc
		for _, nd := range r.nodes {
			nd.airflow = 1 - share*(1-blockedFlow)
			nd.stir = share * blockedStir
		}
	}
	return deed{
		faults: at(site.KindRack, r.id),
		act:    func(since int64) { block(min(1, float64(since)/blocking) * cmp.Or(ev.Size, 1)) },
		mend:   func() { block(0) },
	}, nil
}

// brokenFans is the share of a node's fans that still turn.
const brokenFans = .2

func planFanFailure(h *Hall, ev Event) (deed, error) {
	nd, err := h.gpuNode(ev.Target, 1)
	if err != nil {
		return deed{}, err
	}
	nd.load = ev.load(.92)
	return deed{
		faults: at(site.KindNode, nd.id),
		act:    func(int64) { nd.fans = cmp.Or(ev.Size, brokenFans) },
		mend:   func() { nd.fans = 1 },
	}, nil
}

func planStaleSensor(h *Hall, ev Event) (deed, error) {
	vanishes := cmp.Or(ev.Size, 300)
	for _, s := range h.sensors {
		if s.Measures != "inlet_temperature" || ev.Target != "" && s.ID != ev.Target {
			continue
		}
		return deed{
			faults: at(site.KindSensor, s.ID),
			act: func(since int64) {
				if s.frozen == nil {
					if v, ok := s.read(h.now); ok {
						s.frozen = &v
					}
				}
				s.gone = float64(since) >= vanishes
			},
			mend: func() { s.frozen, s.gone = nil, false },
		}, nil
	}
	if ev.Target != "" {
		return deed{}, fmt.Errorf("the site has no inlet temperature sensor %q", ev.Target)
	}
	return deed{}, errors.New("the site has no inlet temperature sensor")
}
