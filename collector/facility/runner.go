// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-kit/log"

	"github.com/rackpulse/rackpulse/collector"
	"github.com/rackpulse/rackpulse/sim"
	"github.com/rackpulse/rackpulse/site"
)

// Deps are what a Runner works with.
type Deps struct {
	// Store takes the values and the status of all devices.
	Store  *collector.Store
	Logger log.Logger
	// Device finds a device of the site by its id; it may learn more while the
	// agent runs. nil: none is known.
	Device func(id string) (site.Device, bool)
	// SimState is the simulated hall; nil where none runs.
	SimState func(now time.Time) *sim.State
	// Measures tells what a simulated sensor measures (site.Sensor.Measures); nil
	// where no hall is simulated.
	Measures func(sensor string) string
}

// Runner reads all facility devices of an agent, each in its own goroutine. A
// device that fails is retried and shown, and touches no other.
type Runner struct {
	deps  Deps
	buses modbusBuses
	apply sync.Mutex // one start, reload or stop at a time

	mu      sync.Mutex
	devices []*device // in the order of the configuration

	ctx context.Context // of Run; nil while it does not run. Guarded by apply.
}

// New checks the configuration as a whole; it touches no device. The error
// names every entry that is wrong.
func New(configs []DeviceConfig, deps Deps) (*Runner, error) {
	r := &Runner{deps: deps}
	list, err := r.prepare(configs)
	if err != nil {
		return nil, err
	}
	r.set(list)
	return r, nil
}

// Run reads the devices until ctx ends, then closes them all.
func (r *Runner) Run(ctx context.Context) {
	r.apply.Lock()
	r.ctx = ctx
	for _, d := range r.list() {
		d.start(ctx, nil)
	}
	r.apply.Unlock()
	<-ctx.Done()
	r.apply.Lock()
	defer r.apply.Unlock()
	r.ctx = nil
	stopAll(r.list())
}

// Devices lists the ids of all devices that the agent reads, those behind
// another device included, in the order of the configuration.
func (r *Runner) Devices() []string {
	var ids []string
	for _, d := range r.list() {
		ids = append(ids, d.config.Device)
		ids = append(ids, d.plan.Serves...)
	}
	return ids
}

func (r *Runner) list() []*device {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.devices
}

func (r *Runner) set(list []*device) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.devices = list
	simulated := slices.ContainsFunc(list, func(d *device) bool { return d.plan.Simulated })
	r.deps.Store.SetSimulated("facility", simulated)
}

// kindOf tells the kind of a device, "" while it is not known. The agent's own
// configuration wins over what it was told.
func (r *Runner) kindOf(id string, configs []DeviceConfig) string {
	for _, c := range configs {
		if c.Device == id && c.Kind != "" {
			return c.Kind
		}
	}
	if r.deps.Device != nil {
		if d, ok := r.deps.Device(id); ok {
			return d.Kind
		}
	}
	return ""
}

// prepare checks all entries and makes devices of them. Entries that did not
// change keep their device.
func (r *Runner) prepare(configs []DeviceConfig) ([]*device, error) {
	if len(configs) > maxDevices {
		return nil, fmt.Errorf("facility: %d devices, at most %d are allowed", len(configs), maxDevices)
	}
	old := map[string]*device{}
	for _, d := range r.list() {
		old[d.config.Device] = d
	}
	configs = slices.Clone(configs)
	var list []*device
	var errs []error
	for i := range configs {
		c := &configs[i]
		if err := c.check(); err != nil {
			errs = append(errs, fmt.Errorf("facility[%d] %s: %w", i, c.Device, err))
			continue
		}
		if d := old[c.Device]; d != nil && d.config.equal(*c) {
			list = append(list, d)
			continue
		}
		d, err := r.plan(*c, configs)
		if err != nil {
			errs = append(errs, fmt.Errorf("facility[%d] %s: %w", i, c.Device, err))
			continue
		}
		list = append(list, d)
	}
	if err := errors.Join(append(errs, conflicts(list)...)...); err != nil {
		return nil, err
	}
	return list, nil
}

func (r *Runner) plan(c DeviceConfig, configs []DeviceConfig) (*device, error) {
	factory, err := factoryOf(c.Driver)
	if err != nil {
		return nil, err
	}
	kind := func(id string) string { return r.kindOf(id, configs) }
	dev := site.Device{}
	if r.deps.Device != nil {
		dev, _ = r.deps.Device(c.Device)
	}
	dev.Entity = site.Entity{Kind: kind(c.Device), ID: c.Device}
	logger := log.With(r.deps.Logger, "component", "facility", "device", c.Device, "driver", c.Driver)
	plan, err := factory(FactoryConfig{
		Device: dev, Kind: kind, Interval: c.Interval, Deadline: c.Deadline, Profile: c.Profile, Address: c.Address,
		ProfileFile: c.ProfileFile, Decode: c.Blocks[c.Driver].Decode, Resolve: c.Blocks[c.Driver].Resolve, Logger: logger, SimState: r.deps.SimState, Measures: r.deps.Measures,
		buses: &r.buses,
	})
	if err != nil {
		return nil, err
	}
	if c.Sample > 0 {
		if plan.Fastest == 0 {
			return nil, fmt.Errorf("sample: driver %s cannot be sampled fast", c.Driver)
		}
		if c.Sample < plan.Fastest {
			return nil, fmt.Errorf("sample: %s is faster than driver %s can, %s", c.Sample, c.Driver, plan.Fastest)
		}
		plan.Open = sampled(plan.Open, c, logger)
	}
	return newDevice(c, plan, kind, r.deps.Store, logger), nil
}

// conflicts finds devices that are read twice and lines that two entries share.
func conflicts(list []*device) []error {
	var errs []error
	readers, lines, shared := map[string]string{}, map[string]string{}, map[string]*device{}
	for _, d := range list {
		id := d.config.Device
		for _, served := range append([]string{id}, d.plan.Serves...) {
			if other, taken := readers[served]; taken {
				errs = append(errs, fmt.Errorf("facility: device %s is read by the entries of %s and %s", served, other, id))
			}
			readers[served] = id
		}
		if line := d.plan.Shared; line != "" {
			if other, taken := shared[line]; taken && other.plan.SharedAs != d.plan.SharedAs {
				errs = append(errs, fmt.Errorf("facility: the entries of %s and %s give the line %s other settings", other.config.Device, id, line))
			}
			shared[line] = d
		}
		if line := d.plan.Exclusive; line != "" {
			if other, taken := lines[line]; taken {
				errs = append(errs, fmt.Errorf("facility: %s is used by the entries of %s and %s", line, other, id))
			}
			lines[line] = id
		}
	}
	for line, d := range shared {
		if other, taken := lines[line]; taken {
			errs = append(errs, fmt.Errorf("facility: %s is used by the entries of %s and %s", line, other, d.config.Device))
		}
	}
	return errs
}

func stopAll(list []*device) {
	for _, d := range list {
		if d.cancel != nil {
			d.cancel()
		}
	}
	for _, d := range list {
		d.stop()
	}
}
