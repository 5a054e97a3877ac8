// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"strconv"
	"strings"

	"github.com/rackpulse/rackpulse/site"
)

func planGPULost(h *Hall) ([]Fault, func(int64), error) {
	nd, g, fault, err := h.workingGPU(0)
	if err != nil {
		return nil, nil, err
	}
	act := func(int64) {
		g.lost = true
		g.xid(79, 1)
		setLoad(nd.group.nodes, 0) // the job dies on all its nodes
	}
	return fault, act, nil
}

// ECC escalation: corrected errors from the onset, the chain 48 -> 63 -> 94
// (within 50 ms in a real log, so one step) after chainAfter and then every
// chainEvery seconds. Each kills the job, which restarts.
const (
	sbeRate                = 40. // per wall second (a bad GPU of a public report: far more)
	chainAfter, chainEvery = 60, 300
	restart                = 45
)

func planECC(h *Hall) ([]Fault, func(int64), error) {
	nd, g, fault, err := h.workingGPU(0)
	if err != nil {
		return nil, nil, err
	}
	act := func(since int64) {
		g.sbe += sbeRate * h.dt
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
	return fault, act, nil
}

// crcRate is above the 100 CRC errors per second from which DCGM warns.
const crcRate, linkShare, xid74After = 150., .7, 60

func planNVLink(h *Hall) ([]Fault, func(int64), error) {
	for _, nd := range h.nodes {
		if nd.rack == nil || len(nd.gpus) < 2 || nd.model.nvlinkMiBs == 0 {
			continue
		}
		nd.load = .85
		g := &nd.gpus[1]
		fault := at(site.KindNode, nd.id)
		fault[0].UUID = g.uuid
		act := func(since int64) {
			g.crc += crcRate * h.dt
			g.nvlink = linkShare
			if since >= xid74After {
				g.xid(74, 1)
			}
		}
		return fault, act, nil
	}
	return nil, nil, errors.New("the site has no node with NVLink in a rack")
}

func planNodeCrash(h *Hall) ([]Fault, func(int64), error) {
	nd, err := h.gpuNode(1)
	if err != nil {
		return nil, nil, err
	}
	return at(site.KindNode, nd.id), func(int64) { nd.down = true }, nil
}

func planPartition(h *Hall) ([]Fault, func(int64), error) {
	r, err := h.gpuRack()
	if err != nil {
		return nil, nil, err
	}
	return at(site.KindRack, r.id), nil, nil
}

// clockStep is how far the clock of scenario clock-step jumps, seconds.
const clockStep = 90

func planClockStep(h *Hall) ([]Fault, func(int64), error) {
	nd, err := h.gpuNode(1)
	if err != nil {
		return nil, nil, err
	}
	fault := at(site.KindNode, nd.id)
	fault[0].Value = clockStep
	return fault, nil, nil
}

// A port that flaps goes down for flapDown of every flapEvery seconds; frames
// that it garbles on the way up count as errors.
const flapDown, flapEvery, flapErrors = 5, 30, 4.

func planPortFlap(h *Hall) ([]Fault, func(int64), error) {
	for _, s := range h.switches {
		for _, p := range s.ports {
			if len(p.node.gpus) == 0 {
				continue
			}
			setLoad(p.node.group.nodes, .85)
			act := func(since int64) {
				p.down = since%flapEvery < flapDown
				p.flaps = float64(since/flapEvery + 1)
				p.errors = flapErrors
				p.node.group.stall = 1
				if p.down { // a synchronous job waits for its slowest node
					p.node.group.stall = .3
				}
			}
			fault := at(site.KindSwitch, s.id)
			return append(fault, at(site.KindNode, p.node.id)...), act, nil
		}
	}
	return nil, nil, errors.New("no switch port of the site leads to a GPU node")
}

// moving is how long a moved node is off, seconds.
const moving = 120

func planMovedNode(h *Hall) ([]Fault, func(int64), error) {
	from, err := h.gpuRack()
	if err != nil {
		return nil, nil, err
	}
	to := h.racks[len(h.racks)-1]
	if to == from {
		return nil, nil, errors.New("the site has no second rack")
	}
	nd := from.nodes[len(from.nodes)-1]
	nd.load = .8
	moved := false
	act := func(since int64) {
		if !moved {
			moved = true
			h.move(nd, to)
		}
		nd.down = since < moving
	}
	return at(site.KindNode, nd.id), act, nil
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
