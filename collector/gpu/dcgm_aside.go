// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"
	"github.com/go-kit/log/level"
)

// asideGrace is how long a disconnect waits for calls beside the passes.
const asideGrace = time.Second

// errStuck says that DCGM cannot be left because a call into it does not return.
var errStuck = errors.New("a call into DCGM does not return")

// dcgmAside are the calls into DCGM beside the passes. Each may hang: a health check
// took 45 s on a GPU with many ECC errors (DCGM #313), while the values of all GPUs
// were there. None is made again before it has returned.
type dcgmAside struct {
	entities *dcgmEntities
	find     errand[*EntityPass]
	p2p      errand[*P2PPass]
	health   map[uint]*dcgmHealth // by GPU
}

// dcgmHealth are the health checks of one GPU. The group belongs to the errand.
type dcgmHealth struct {
	errand[healthResult]
	group dcgm.GroupHandle
	set   bool // group has its health watches
}

type healthResult struct {
	check HealthCheck
	err   error
}

// newAside prepares the calls for a new connection.
func (s *dcgmSource) newAside() dcgmAside {
	budget := s.cfg.CallBudget
	return dcgmAside{
		entities: newDCGMEntities(s),
		find:     errand[*EntityPass]{every: max(s.cfg.SlowInterval, s.cfg.Interval), budget: budget},
		p2p:      errand[*P2PPass]{every: p2pInterval, budget: budget},
		health:   make(map[uint]*dcgmHealth),
	}
}

// resetAside goes over to another configuration, with the health watches that there
// are; false: a call does not return.
func (s *dcgmSource) resetAside() bool {
	old := s.aside
	if !old.end(asideGrace) {
		return false
	}
	old.entities.watches.end()
	s.aside = s.newAside()
	s.aside.health = old.health
	for _, h := range old.health {
		h.every = s.cfg.HealthInterval
	}
	return true
}

// end waits for calls under way; false: one does not return.
func (a *dcgmAside) end(limit time.Duration) bool {
	ok := a.find.end(limit) && a.p2p.end(limit)
	for _, h := range a.health {
		ok = ok && h.end(limit)
	}
	return ok
}

// sideCalls takes what the calls beside the passes brought, and makes those due.
func (s *dcgmSource) sideCalls(now time.Time) Aside {
	a := &s.aside
	var out Aside
	out.Entities, _ = a.find.take()
	if a.find.due(now) {
		a.find.begin(now, a.entities.pass)
	}
	out.Calls = append(out.Calls, Call{Name: "entities", Overdue: a.find.overdue(now)})
	if s.cfg.P2P && dcgmHas("dcgmGetNvLinkP2PStatus") {
		out.P2P, _ = a.p2p.take()
		if a.p2p.due(now) {
			a.p2p.begin(now, s.p2pPass())
		}
		out.Calls = append(out.Calls, Call{Name: "p2p", Overdue: a.p2p.overdue(now)})
	}
	if s.cfg.HealthInterval > 0 && dcgmHas("dcgmHealthSet") && dcgmHas("dcgmHealthCheck") {
		s.healthChecks(now, &out)
	}
	return out
}

// p2pPass returns the work of asking for the ways between GPUs. DCGM lists its GPUs
// in the order of their ids, and go-dcgm does not tell those.
func (s *dcgmSource) p2pPass() func() *P2PPass {
	var ids []string
	for _, g := range s.gpus {
		ids = append(ids, g.device.Index)
	}
	return func() *P2PPass {
		status, err := dcgm.GetNvLinkP2PStatus()
		if err != nil || len(status.Gpus) > len(ids) {
			return nil
		}
		p := &P2PPass{At: time.Now()}
		for i, row := range status.Gpus {
			for k, state := range row {
				if i != k {
					p.Pairs = append(p.Pairs, P2P{GPU: ids[i], Peer: ids[k], Status: int(state)})
				}
			}
		}
		return p
	}
}

// healthChecks takes finished checks and begins one that is due, a GPU in a pass: a
// check takes a megabyte. A GPU whose check is overdue does not hold up the others,
// and a lost one is not checked: DCGM would find nothing wrong with it.
func (s *dcgmSource) healthChecks(now time.Time, out *Aside) {
	busy := false
	for _, g := range s.gpus {
		if g.skipped {
			continue
		}
		h := s.aside.health[g.id]
		if h == nil {
			h = &dcgmHealth{errand: errand[healthResult]{every: s.cfg.HealthInterval, budget: s.cfg.CallBudget}}
			s.aside.health[g.id] = h
		}
		if result, ok := h.take(); ok && result.err != nil {
			level.Warn(s.logger).Log("msg", "health not checked", "gpu", g.id, "err", result.err)
		} else if ok {
			out.Health = append(out.Health, result.check)
		}
		overdue := h.overdue(now)
		busy = busy || h.underway() && !overdue
		out.Calls = append(out.Calls, Call{Name: "health", UUID: g.device.UUID, Index: g.device.Index, Overdue: overdue})
	}
	next := s.nextHealth(now)
	if busy || next == nil {
		return
	}
	h, id, uuid := s.aside.health[next.id], next.id, next.device.UUID
	h.begin(now, func() healthResult { return h.check(id, uuid) })
}

// nextHealth returns the GPU that has waited longest for a check that is due.
func (s *dcgmSource) nextHealth(now time.Time) (next *dcgmGPU) {
	for _, g := range s.gpus {
		h := s.aside.health[g.id]
		if h != nil && !g.lost && g.supported && h.due(now) && (next == nil || h.begun.Before(s.aside.health[next.id].begun)) {
			next = g
		}
	}
	return next
}

// check sets the health watches of a GPU the first time, and checks it.
func (h *dcgmHealth) check(gpu uint, uuid string) healthResult {
	if !h.set {
		group, err := dcgm.CreateGroup("rackpulse-health-" + strconv.FormatUint(uint64(gpu), 10))
		if err != nil {
			return healthResult{err: err}
		}
		err = dcgm.AddEntityToGroup(group, dcgm.FE_GPU, gpu)
		if err == nil {
			err = dcgm.HealthSet(group, dcgm.DCGM_HEALTH_WATCH_ALL)
		}
		if err != nil {
			return healthResult{err: errors.Join(err, dcgm.DestroyGroup(group))}
		}
		h.group, h.set = group, true
	}
	response, err := dcgm.HealthCheck(h.group)
	if err != nil {
		return healthResult{err: fmt.Errorf("check: %w", err)}
	}
	check := HealthCheck{UUID: uuid, At: time.Now()}
	for _, i := range response.Incidents[:min(len(response.Incidents), maxIncidents)] {
		check.Incidents = append(check.Incidents, HealthIncident{
			System: uint32(i.System), Result: int(i.Health), Code: int(i.Error.Code)})
	}
	return healthResult{check: check}
}

// maxIncidents bounds the incidents of one check of one GPU.
const maxIncidents = 64
