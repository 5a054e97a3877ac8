// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/rackpulse/rackpulse/collector"
	"github.com/rackpulse/rackpulse/site"
)

// Names under which the runner publishes. Slow fields are apart from the others
// because they may be older, driver errors and restarts because they do not grow old.
const (
	sourceName = "gpu"
	slowName   = "gpu_slow"
	eventsName = "gpu_events"
	// What is learned beside the passes comes more seldom still.
	entitiesName = "gpu_entities"
	healthName   = "gpu_health"
	p2pName      = "gpu_p2p"
)

const (
	// staleAfter is the age of the latest sample at which the inventory is stale.
	staleAfter = 30 * time.Second
	// maxFailures is how many failed passes in a row end a source.
	maxFailures = 5
	// neverOld is the interval of snapshots that do not grow old.
	neverOld = time.Duration(1<<63 - 1)
)

// Store takes what the runner publishes; *collector.Store is one.
type Store interface {
	Put(snap collector.Snapshot)
	SetStatus(source string, st collector.Status)
	SetSimulated(layer string, simulated bool)
	Remove(source string)
}

// Deps are what a Runner needs from its surroundings.
type Deps struct {
	Logger log.Logger
	Store  Store
	// Hostname is the value of the host name label.
	Hostname string
	// StateDir is where the list of known GPUs is kept; empty: nowhere.
	StateDir string
	// ExpectedCount returns how many GPUs the node should have, 0 when nobody
	// knows (yet). nil: nobody will.
	ExpectedCount func() int
	// Sim returns this node in the simulated hall; nil: no simulation was asked for.
	Sim SimFunc
	// ChildCommand starts a child process that calls ChildMain; empty: this
	// program with the argument "gpu-child".
	ChildCommand []string

	quietLog bool // for tests: auto reads no kernel log
}

// Runner samples the GPUs of this node: it chooses the source, reads it every
// interval and publishes what it read.
type Runner struct {
	deps     Deps
	logger   log.Logger
	launcher *launcher
	settings atomic.Pointer[settings]
	wake     chan struct{} // Apply has new settings
	inv      atomic.Pointer[inventory]
	facts    atomic.Pointer[site.Facts]
	commands chan command
	released atomic.Pointer[release] // nil: they are ours
	log      *KernelLog
	xids     *xidBook

	// The rest belongs to Run's goroutine.
	sel       *selector
	converter *converter
	slow      slowValues
	derived   *derived
	known     *knownGPUs
	owners    *owners
	simKnown  *knownGPUs             // never written to the state directory
	health    map[string]HealthCheck // the latest by UUID
	simulated bool                   // the latest sample came from the simulator
	restarts  map[string]float64
	status    collector.Status
	events    eventState // last published
	watch     *countersWatch
	counters  countersState
	unmatched []string // ids of the selection that no device has
}

// eventState tells whether the events have to be published again.
type eventState struct {
	published bool
	abandoned int
	changed   bool
}

// New validates a configuration and returns a Runner that does nothing until Run.
// Errors name the key of the configuration, or file and line of the counters.
func New(cfg Config, deps Deps) (*Runner, error) {
	s, err := newSettings(cfg, deps.Sim)
	if err != nil {
		return nil, err
	}
	if deps.Logger == nil {
		deps.Logger = log.NewNopLogger()
	}
	argv := deps.ChildCommand
	if len(argv) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("child process: %w", err)
		}
		argv = []string{self, "gpu-child"}
	}
	r := &Runner{
		deps:     deps,
		logger:   log.With(deps.Logger, "component", "gpu"),
		wake:     make(chan struct{}, 1),
		commands: make(chan command),
		simKnown: &knownGPUs{gpus: make(map[string]*knownGPU)},
		xids:     newXIDBook(),
		derived:  newDerived(),
		restarts: make(map[string]float64),
		health:   make(map[string]HealthCheck),
	}
	r.launcher = newLauncher(argv, r.logger)
	r.settings.Store(s)
	r.owners = newOwners(r.logger, deps.Store, func() *Config { return &r.settings.Load().cfg })
	r.known, err = loadKnown(deps.StateDir)
	if err != nil { // a cache: go on without
		level.Warn(r.logger).Log("msg", "list of known GPUs not read", "err", err)
	}
	r.xids.remember(r.known)
	r.log = newKernelLog(s, deps, r.xids)
	r.inv.Store(&inventory{reason: "not sampled yet"})
	r.facts.Store(&site.Facts{})
	return r, nil
}

// Run samples until ctx is done and then gives all handles back. Its error is
// always nil: whatever fails is published and tried again.
func (r *Runner) Run(ctx context.Context) error {
	logDone := make(chan struct{})
	go func() {
		defer close(logDone)
		r.log.Run(ctx)
	}()
	defer func() { <-logDone }()
	s := r.settings.Load()
	r.use(ctx, s)
	ticker := time.NewTicker(s.cfg.Interval)
	defer ticker.Stop()
	defer func() { r.watch.stop(); r.sel.stop() }()
	if r.deps.Sim == nil { // the simulated hall has no processes
		var wg sync.WaitGroup
		defer wg.Wait()
		wg.Go(func() { r.owners.run(ctx) })
	}
	r.tick(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-r.wake:
			if next := r.settings.Load(); next != s {
				s = next
				r.change(ctx, s)
				ticker.Reset(s.cfg.Interval)
			}
		case c := <-r.commands:
			c.done <- r.obey(ctx, c)
		case change := <-r.watch.changes:
			if next := r.countersChanged(s, change); next != s {
				s = next
				r.change(ctx, s)
			}
		case result := <-r.sel.results:
			for _, end := range result.dead {
				r.restarted(end)
			}
			r.sel.opened(result, time.Now())
			r.tick(ctx)
		case <-ticker.C:
			r.tick(ctx)
		}
	}
}

// tick is one pass: look for a source if need be, read it, publish.
func (r *Runner) tick(ctx context.Context) {
	now := time.Now()
	if !r.away(now) {
		r.sel.look(ctx, now)
		if r.sel.active == nil {
			r.idle(now)
		} else {
			r.read(ctx, now)
		}
	}
	r.publishEvents()
}

// idle publishes that there is no source.
func (r *Runner) idle(now time.Time) {
	reason := r.sel.refusals()
	if reason == "" {
		r.down("looking for GPUs", now)
		return
	}
	r.status.Consecutive = max(r.status.Consecutive, 1)
	r.down(reason, now)
}

func (r *Runner) read(ctx context.Context, now time.Time) {
	readCtx, cancel := context.WithTimeout(ctx, r.settings.Load().cfg.ReadTimeout)
	defer cancel()
	sample, err := r.sel.active.Read(readCtx)
	if ctx.Err() != nil {
		return // the end, not a failure
	}
	end := time.Now()
	r.status.Duration = end.Sub(now)
	if err == nil {
		r.sel.wellRead()
		r.publish(sample, end)
		return
	}
	r.status.Errors++
	name := r.sel.name()
	var dead *deadError
	switch {
	case errors.As(err, &dead):
		if dead.end == endHang {
			r.status.Abandoned++
		}
		r.restarted(dead.end)
		r.sel.drop(err.Error(), end)
		level.Error(r.logger).Log("msg", "GPU source ended, starting anew", "source", name, "reason", dead.end, "err", err)
	case r.status.Consecutive+1 >= maxFailures:
		r.restarted(endError)
		r.sel.drop(err.Error(), end)
		level.Error(r.logger).Log("msg", "GPU source fails, starting anew", "source", name, "err", err)
	}
	r.status.Consecutive++
	r.down(name+": "+err.Error(), end)
}

// restarted counts the end of a source.
func (r *Runner) restarted(end string) {
	r.restarts[end]++
	r.events.changed = true
}

// down publishes a pass without a sample. The points of the last one stay.
func (r *Runner) down(reason string, now time.Time) {
	if r.status.Up || r.status.Since.IsZero() {
		r.status.Since = now
	}
	r.status.Up = false
	last := r.inv.Load()
	r.inv.Store(&inventory{uuids: last.uuids, at: last.at, reason: reason})
	r.publishStatus(reason)
}

func (r *Runner) publishStatus(reason string) {
	st := r.status
	st.Reason = reason
	r.deps.Store.SetStatus(sourceName, st)
}

// publish shows one sample.
func (r *Runner) publish(sample *Sample, now time.Time) {
	if sample.At.IsZero() {
		sample.At = now
	}
	simulated := r.sel.name() == simName
	if simulated != r.simulated { // neither's GPUs are the other's
		r.simulated = simulated
		r.xids.reset()
	}
	known := r.known
	if simulated {
		known = r.simKnown
	}
	expected := 0
	if r.deps.ExpectedCount != nil {
		expected = r.deps.ExpectedCount()
	}
	known.name(sample.Devices)
	r.slow.complete(sample)
	r.learn(sample)
	missing, err := known.update(sample.Devices, expected)
	if err != nil {
		level.Warn(r.logger).Log("msg", "list of known GPUs not written", "err", err)
	}
	missing = r.selectDevices(sample, missing)
	r.xids.devices(sample.Devices)
	for _, e := range sample.XIDs {
		if r.xids.driver(e, sample.At) {
			level.Warn(r.logger).Log("msg", "driver error", "xid", e.Code, "gpu", e.UUID)
		}
	}
	r.xids.publish(r.deps.Store)
	uuids := present(sample.Devices)
	sample.Devices = slices.DeleteFunc(sample.Devices, func(d Device) bool { return d.Skipped })
	r.inv.Store(&inventory{uuids: uuids, at: now}) // who sees the page finds them there
	r.deps.Store.SetSimulated(sourceName, simulated)
	cfg := &r.settings.Load().cfg
	r.derived.listed(sample.Processes, r.owners.proc.hostPIDs())
	points, slow := r.converter.points(sample, missing, r.xids)
	r.deps.Store.Put(collector.Snapshot{Source: sourceName, At: sample.At, Interval: cfg.Interval, Points: points,
		Rejected: r.converter.rejected(sample.Rejected)})
	r.deps.Store.Put(collector.Snapshot{Source: slowName, At: sample.At, Interval: cfg.SlowInterval, Points: slow})
	r.publishAside(sample)
	r.inv.Store(&inventory{uuids: uuids, at: now})
	r.owners.saw(sample)
	if !r.status.Up {
		r.status.Since = now
	}
	r.status.Up, r.status.Consecutive, r.status.LastSample = true, 0, now
	reason := r.sel.name()
	if refusals := r.sel.refusals(); refusals != "" {
		reason += " (" + refusals + ")"
	}
	r.publishStatus(reason)
}

// publishAside shows what the source learned beside its passes.
func (r *Runner) publishAside(s *Sample) {
	cfg := &r.settings.Load().cfg
	put := func(name string, at time.Time, interval time.Duration, points []collector.Point) {
		r.deps.Store.Put(collector.Snapshot{Source: name, At: at, Interval: interval, Points: points})
	}
	if p := s.Aside.Entities; p != nil {
		put(entitiesName, p.At, cfg.SlowInterval, r.converter.entityPoints(s.Devices, p))
	}
	if p := s.Aside.P2P; p != nil {
		put(p2pName, p.At, p2pInterval, r.converter.p2pPoints(s.Devices, p))
	}
	changed := len(s.Aside.Health) > 0
	for _, check := range s.Aside.Health {
		if len(r.health) < maxGPUs {
			r.health[check.UUID] = check
		}
	}
	for i := range s.Devices { // a lost GPU's health is not known
		if _, ok := r.health[s.Devices[i].UUID]; ok && s.Devices[i].Lost {
			delete(r.health, s.Devices[i].UUID)
			changed = true
		}
	}
	if changed {
		put(healthName, s.At, cfg.DCGM.HealthInterval, r.converter.healthPoints(s.Devices, r.health))
	}
}

// publishEvents shows the counters of the agent itself when they changed.
func (r *Runner) publishEvents() {
	abandoned := r.launcher.stuck()
	if r.events.published && !r.events.changed && r.events.abandoned == abandoned {
		return
	}
	points := []collector.Point{{Desc: descAbandoned, Value: float64(abandoned)}}
	for _, end := range endReasons {
		points = append(points, collector.Point{Desc: descRestarts, Values: []string{end}, Value: r.restarts[end]})
	}
	r.deps.Store.Put(collector.Snapshot{Source: eventsName, At: time.Now(), Interval: neverOld, Points: r.countersPoints(points)})
	r.events = eventState{published: true, abandoned: abandoned}
}
