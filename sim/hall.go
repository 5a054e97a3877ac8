// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rackpulse/rackpulse/site"
)

const (
	defaultOnset = 120 * time.Second
	maxSpeed     = 3600 // one hour of physics per wall second

	// warmUpSteps run before the epoch so that a hall starts settled: more than
	// ten times the slowest healthy time constant (60 s, rack air).
	warmUpSteps = 900
	// maxCatchUp bounds the steps of one call, 4 h of physics. A longer jump
	// leaves steps out; their wall time goes into the counters at the rates of
	// the first step after the gap. All else forgets its past sooner than that
	// (slowest: room air without cooling, 27 min).
	maxCatchUp = 4 * 3600
	// stateEvery is the wall time for which one State serves all callers when
	// the physics runs faster than the clock.
	stateEvery = 0.5
)

// Hall is a simulated hall. It is safe for concurrent callers.
type Hall struct {
	site    *site.Site
	seed    int64
	epoch   time.Time
	speed   float64
	stride  int64   // steps between states
	stepSec float64 // wall seconds per physics step of 1 s

	latest atomic.Pointer[State]
	mu     sync.Mutex // guards all below; held while stepping
	now    int64      // physics steps since the epoch
	dt     float64    // wall seconds that the present step counts for

	nodes    []*node
	gpus     []gpu
	groups   []*group
	racks    []*rack
	zones    []*zone
	units    []*unit
	pdus     []*pdu
	feeds    map[string]*feed
	switches []*netSwitch
	sensors  []*sensor
	meters   []*meter

	courses []running
}

// New builds the hall of a site, settled, at its epoch. An unknown scenario and
// a site that lacks what the scenario needs are errors.
func New(spec Spec) (*Hall, error) {
	if spec.Site == nil {
		return nil, errors.New("simulator: no site")
	}
	speed := spec.Speed
	if speed == 0 {
		speed = 1
	}
	if !(speed > 0 && speed <= maxSpeed) {
		return nil, fmt.Errorf("simulator: speed %v is not above 0 and at most %d", spec.Speed, maxSpeed)
	}
	onset := spec.Onset
	if onset == 0 {
		onset = defaultOnset
	}
	if onset < 0 {
		return nil, fmt.Errorf("simulator: onset %v lies before the epoch", spec.Onset)
	}
	h := &Hall{
		site: spec.Site, seed: spec.Seed, epoch: spec.Epoch, speed: speed,
		stride: max(1, int64(math.Ceil(stateEvery*speed))), stepSec: 1 / speed,
		now: -warmUpSteps,
	}
	if err := h.build(); err != nil {
		return nil, fmt.Errorf("simulator: %w", err)
	}
	for _, ev := range append([]Event{{Scenario: spec.Scenario, Onset: onset}}, spec.Events...) {
		if err := h.plan(ev); err != nil {
			return nil, fmt.Errorf("simulator: %w", err)
		}
	}
	for h.now < 0 {
		h.step(h.now+1, 0)
	}
	h.latest.Store(h.state())
	return h, nil
}

// At returns the hall as it is at the given time. A time before the latest
// state returns that one. Equal specs give equal states at equal times, as long
// as no two calls lie more than 4 h of physics apart; after such a jump the
// energy and traffic counters are extrapolated.
func (h *Hall) At(wall time.Time) *State {
	want := h.stepAt(wall)
	if s := h.latest.Load(); int64(s.Physics/time.Second) >= want {
		return s
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.now >= want {
		return h.latest.Load()
	}
	first := max(h.now+1, want-maxCatchUp+1)
	h.step(first, float64(first-h.now)*h.stepSec)
	for h.now < want {
		h.step(h.now+1, h.stepSec)
	}
	s := h.state()
	h.latest.Store(s)
	return s
}

// stepAt is the step of the state to show at a wall time.
func (h *Hall) stepAt(wall time.Time) int64 {
	steps := wall.Sub(h.epoch).Seconds() * h.speed
	if steps <= 0 {
		return 0
	}
	n := int64(steps + 1e-6) // 1e-6: k/speed seconds are step k, not k-1
	return n - n%h.stride
}

// step advances the physics to step n; dt is the wall time that counters count.
func (h *Hall) step(n int64, dt float64) {
	h.now, h.dt = n, dt
	for i := range h.courses {
		h.courses[i].step(n)
	}
	for _, g := range h.groups {
		g.step(n)
	}
	for _, nd := range h.nodes {
		nd.step(n, dt)
	}
	h.stepPower(dt)
	h.stepAir(n)
	h.stepNetwork(n, dt)
	h.stepMeters(dt)
}
