// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/rackpulse/rackpulse/site"
)

func planGPULost(h *Hall, ev Event) (deed, error) {
	nd, g, fault, err := h.oneGPU(ev, 0)
	if err != nil {
		return deed{}, err
	}
	setLoad(nd.group.nodes, ev.load(.85)) // its job is made to run
	act := func(int64) {
		g.lost = true
		g.xid(79, 1)
		setLoad(nd.group.nodes, 0) // the job dies on all its nodes
	}
	mend := func() {
		g.lost = false
		setLoad(nd.group.nodes, ev.load(.85))
	}
	return deed{fault, act, mend}, nil
}

// ECC escalation: corrected errors from the onset, the chain 48 -> 63 -> 94
// (within 50 ms in a real log, so one step) after chainAfter and then every
// chainEvery seconds. Each kills the job, which restarts.
const (
	sbeRate                = 40. // per wall second (a bad GPU of a public report: far more)
	chainAfter, chainEvery = 60, 300
	restart                = 45
)

func planECC(h *Hall, ev Event) (deed, error) {
	nd, g, fault, err := h.oneGPU(ev, 0)
	if err != nil {
		return deed{}, err
	}
	setLoad(nd.group.nodes, ev.load(.85)) // its job is made to run
	act := func(since int64) {
		g.sbe += cmp.Or(ev.Size, sbeRate) * h.dt
		nd.group.stall = 1
		if since < chainAfter {
			return
		}
		since -= chainAfter
		chains := int(since/chainEvery) + 1
		for _, code := range []int{48, 63, 94} {
			g.xid(code, chains)
		}
		g.dbe, g.remapUncorr = float64(chains), float64(chains)
		if since%chainEvery < restart {
			nd.group.stall = 0
		}
	}
	return deed{fault, act, func() { nd.group.stall = 1 }}, nil
}

// crcRate is above the 100 CRC errors per second from which DCGM warns.
const crcRate, linkShare, xid74After = 150., .7, 60

func planNVLink(h *Hall, ev Event) (deed, error) {
	for _, nd := range h.nodes {
		if nd.rack == nil || len(nd.gpus) < 2 || nd.model.nvlinkMiBs == 0 {
			continue
		}
		if ev.Target == "" {
			ev.Target = nd.id + "/1"
		}
		nd, g, fault, err := h.oneGPU(ev, 1)
		if err != nil {
			return deed{}, err
		}
		nd.load = ev.load(.85)
		act := func(since int64) {
			g.crc += cmp.Or(ev.Size, crcRate) * h.dt
			g.nvlink = linkShare
			if since >= xid74After {
				g.xid(74, 1)
			}
		}
		return deed{fault, act, func() { g.nvlink = 1 }}, nil
	}
	return deed{}, errors.New("the site has no node with NVLink in a rack")
}

func planNodeCrash(h *Hall, ev Event) (deed, error) {
	nd, err := h.gpuNode(ev.Target, 1)
	if err != nil {
		return deed{}, err
	}
	return deed{at(site.KindNode, nd.id), func(int64) { nd.down = true }, func() { nd.down = false }}, nil
}

func planPartition(h *Hall, ev Event) (deed, error) {
	r, err := h.gpuRack(ev.Target)
	if err != nil {
		return deed{}, err
	}
	return deed{faults: at(site.KindRack, r.id)}, nil
}

// clockStep is how far the clock of scenario clock-step jumps, seconds.
const clockStep = 90

func planClockStep(h *Hall, ev Event) (deed, error) {
	nd, err := h.gpuNode(ev.Target, 1)
	if err != nil {
		return deed{}, err
	}
	fault := at(site.KindNode, nd.id)
	fault[0].Value = cmp.Or(ev.Size, clockStep)
	return deed{faults: fault}, nil
}

// A port that flaps goes down for flapDown of every flapEvery seconds; frames
// that it garbles on the way up count as errors.
const flapDown, flapEvery, flapErrors = 5, 30., 4.

func planPortFlap(h *Hall, ev Event) (deed, error) {
	every := int64(cmp.Or(ev.Size, flapEvery))
	if every <= flapDown {
		return deed{}, fmt.Errorf("a flap every %d s, each lasts %d s", every, flapDown)
	}
	for _, s := range h.switches {
		for _, p := range s.ports {
			if len(p.node.gpus) == 0 || ev.Target != "" && s.id+"/"+p.name != ev.Target {
				continue
			}
			setLoad(p.node.group.nodes, ev.load(.85))
			act := func(since int64) {
				p.down = since%every < flapDown
				p.flaps = float64(since/every + 1)
				p.errors = flapErrors
				p.node.group.stall = 1
				if p.down { // a synchronous job waits for its slowest node
					p.node.group.stall = .3
				}
			}
			mend := func() { p.down, p.errors, p.node.group.stall = false, 0, 1 }
			return deed{append(at(site.KindSwitch, s.id), at(site.KindNode, p.node.id)...), act, mend}, nil
		}
	}
	return deed{}, errors.New("no switch port of the site leads to a GPU node, or none that was asked for")
}

// moving is how long a moved node is off, seconds.
const moving = 120

func planMovedNode(h *Hall, ev Event) (deed, error) {
	nd, to, err := h.mover(ev.Target)
	if err != nil {
		return deed{}, err
	}
	nd.load = ev.load(.8)
	moved := false
	act := func(since int64) {
		if !moved {
			moved = true
			h.move(nd, to)
		}
		nd.down = since < moving
	}
	return deed{faults: at(site.KindNode, nd.id), act: act}, nil
}

// mover is the node and the rack of NODE/RACK; without, the last node of the
// first rack with GPUs goes to the last rack.
func (h *Hall) mover(target string) (*node, *rack, error) {
	if id, rack, ok := strings.Cut(target, "/"); ok {
		nd, err := h.gpuNode(id, 0)
		if err != nil {
			return nil, nil, err
		}
		to, err := h.gpuRack(rack)
		return nd, to, err
	}
	from, err := h.gpuRack("")
	if err != nil {
		return nil, nil, err
	}
	to := h.racks[len(h.racks)-1]
	if to == from {
		return nil, nil, errors.New("the site has no second rack")
	}
	return from.nodes[len(from.nodes)-1], to, nil
}

// move takes a node to the top of another rack: power from the PDUs there on
// outlets of its own, network from the switch there; its old port stays dark.
func (h *Hall) move(nd *node, to *rack) {
	for i, other := range nd.rack.nodes {
		if other == nd {
			nd.rack.nodes = append(nd.rack.nodes[:i:i], nd.rack.nodes[i+1:]...)
			break
		}
	}
	nd.rack, nd.height = to, .9
	to.nodes = append(to.nodes, nd)
	old := nd.plugs
	nd.plugs = nil
	for _, pl := range old {
		for _, p := range h.pdus {
			if p.rack == to && p.feed == pl.pdu.feed {
				nd.plugIn(p, p.free(), len(old))
				break
			}
		}
	}
	for _, s := range h.switches {
		for _, p := range s.ports {
			p.down = p.down || p.node == nd
		}
	}
	for _, s := range h.switches {
		if s.rack == to.id && len(s.ports) > 0 {
			last := s.ports[len(s.ports)-1].name
			s.plug(strings.TrimRight(last, "0123456789")+strconv.Itoa(len(s.ports)+1), nd)
			break
		}
	}
}
