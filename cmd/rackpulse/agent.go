// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/version"

	"github.com/rackpulse/rackpulse/collector"
	"github.com/rackpulse/rackpulse/collector/facility"
	"github.com/rackpulse/rackpulse/collector/gpu"
	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/lease"
	"github.com/rackpulse/rackpulse/sim"
	"github.com/rackpulse/rackpulse/site"
)

// agent is the parts of one agent, wired but not running.
type agent struct {
	cfg      *agentConfig
	logger   log.Logger
	store    *collector.Store
	ids      *identities
	gpu      *gpu.Runner         // nil: samples no GPUs
	klog     *gpu.KernelLog      // nil: no GPUs and no log, or gpu reads it
	facility *facility.Runner    // nil: polls no devices
	beater   *lease.Beater       // nil: no registry
	facts    *nodeFacts          // with the beater only
	pusher   *collector.Pusher   // nil: is scraped
	self     prometheus.Gatherer // the process' own metrics, once there are any
	hall     *sim.Hall           // nil: not simulated
	// simulatedRack is the node's rack in the simulated hall.
	simulatedRack string
	// expected is how many GPUs the registry says the node has; 0: not told.
	expected atomic.Int64
	// claims keeps this agent off devices that the registry gave to another.
	claims *claims
	// limits are what the GPUs are held against.
	limits gpu.BreachLimits
	// away is the maintenance that the beater declares; its goroutine's only.
	away string
	// seen is the node's state as the registry sees it, a lease.State.
	seen atomic.Uint32
	// advertised is the address told to the registry, once it is known.
	advertised struct {
		sync.Mutex
		address string
	}
}

// newAgent checks the configuration as a whole and builds the parts. known is
// the site where the agent has it; hall is the simulated hall or nil.
func newAgent(cfg *agentConfig, known *site.Site, hall *sim.Hall, hallSite *site.Site, logger log.Logger) (*agent, error) {
	a := &agent{cfg: cfg, logger: logger, store: collector.NewStore(), hall: hall}
	a.ids = newIdentities(cfg, a.store, known, logger)
	errs := []error{cfg.Baseline.check(cfg.StateDir)}
	if cfg.wantsGPU() {
		errs = append(errs, a.addGPU(known, hallSite))
	}
	if cfg.wantsKernelLog() {
		errs = append(errs, a.addKernelLog())
	}
	if len(cfg.Facility) > 0 {
		errs = append(errs, a.addFacility(hallSite))
	}
	if len(cfg.Registry.Addresses) > 0 {
		var err error
		a.limits, err = breachLimits(known)
		errs = append(errs, err, a.addBeater(hallSite))
	}
	if cfg.Push != nil {
		errs = append(errs, a.addPusher(known))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *agent) addGPU(known, hallSite *site.Site) error {
	gpuCfg := a.cfg.gpuConfig()
	deps := gpu.Deps{
		Logger:   a.logger,
		Store:    a.store,
		Hostname: a.cfg.Node,
		StateDir: a.cfg.StateDir,
		ExpectedCount: func() int {
			if known == nil {
				return int(a.expected.Load())
			}
			if class, ok := known.Class(a.cfg.Node); ok {
				return class.GPUs
			}
			return 0
		},
	}
	if a.hall != nil {
		gpuCfg.Source = "sim"
		a.simulatedRack = hallSite.NodeLabels(a.cfg.Node)["rack_id"]
		deps.Sim = simNode(a.hall, a.cfg.Node)
	}
	runner, err := gpu.New(gpuCfg, deps)
	a.gpu = runner
	return err
}

// addKernelLog reads the driver's errors where nothing else of the GPUs is read.
func (a *agent) addKernelLog() error {
	reader, err := gpu.NewKernelLog(a.cfg.gpuConfig(), gpu.Deps{Logger: a.logger, Store: a.store, StateDir: a.cfg.StateDir})
	a.klog = reader
	return err
}

func (a *agent) addFacility(hallSite *site.Site) error {
	deps := facility.Deps{Store: a.store, Logger: a.logger, Device: a.ids.device}
	if a.hall != nil {
		deps.SimState = a.hall.At
		deps.Measures = sensorMeasures(hallSite)
	}
	runner, err := facility.New(a.cfg.Facility, deps)
	if err != nil {
		return err
	}
	a.facility = runner
	a.claims = newClaims(a.cfg.Facility, runner, a.logger)
	return nil
}

// actors are the running parts, without HTTP.
func (a *agent) actors() []actor {
	var out []actor
	if a.beater != nil {
		// First to end, so that the registry hears of the stop.
		out = append(out, actor{name: "beater", run: a.beater.Run, drain: true}, actor{name: "facts", run: a.facts.run})
	}
	if a.gpu != nil {
		out = append(out, actor{name: "gpu", run: a.gpu.Run})
	}
	if a.klog != nil {
		out = append(out, actor{name: "kernel log", run: a.klog.Run})
	}
	if a.facility != nil {
		out = append(out,
			actor{name: "facility", run: a.runFacility},
			actor{name: "ownership", run: a.claims.run})
	}
	if a.pusher != nil {
		out = append(out, actor{name: "push", run: a.pusher.Run})
	}
	return out
}

// runFacility reads the devices, once the registry had the chance to say which.
func (a *agent) runFacility(ctx context.Context) error {
	if a.beater != nil {
		a.claims.await(ctx)
	}
	a.facility.Run(ctx)
	return nil
}

// sources names what must have been tried once for the agent to be ready.
func (a *agent) sources() []string {
	var out []string
	if a.gpu != nil {
		out = append(out, "gpu")
	}
	if a.facility != nil {
		out = append(out, a.facility.Devices()...)
	}
	return out
}

var errNoGPUs = errors.New("this agent samples no GPUs")

// release and acquire are the lifecycle requests of the GPUs.
func (a *agent) release(ctx context.Context, d time.Duration) error {
	if a.gpu == nil {
		return errNoGPUs
	}
	return a.gpu.Release(ctx, d)
}

func (a *agent) acquire(ctx context.Context) error {
	if a.gpu == nil {
		return errNoGPUs
	}
	return a.gpu.Acquire(ctx)
}

// agentVerb is "rackpulse agent".
type agentVerb struct {
	configFile string
	gpuSource  string
	counters   string
	dataDir    string
	sim        simFlags
	web        webFlags
	log        logFlags
}

func registerAgent(app *kingpin.Application) []verb {
	v := &agentVerb{}
	cmd := app.Command("agent", "Sample GPUs and facility devices, serve /metrics, beat to the registry.")
	cmd.Flag("config.file", "Agent configuration; without one the GPUs of this node are served.").StringVar(&v.configFile)
	cmd.Flag("gpu.source", "Where GPU values come from: auto, dcgm, nvml, sim, none. Wins over the file.").StringVar(&v.gpuSource)
	cmd.Flag("collectors", "Counters file in dcgm-exporter's format. Wins over the file.").StringVar(&v.counters)
	cmd.Flag("data-dir", "Folder for what outlives a restart. Wins over the file's state_dir.").StringVar(&v.dataDir)
	v.sim.register(cmd)
	v.web.register(cmd, ":9400")
	v.log.register(cmd)
	return []verb{{cmd: cmd, run: v.run}}
}

// load reads the configuration and lays the flags over it.
func (v *agentVerb) load() (*agentConfig, error) {
	cfg, err := loadAgentConfig(v.configFile)
	if err != nil {
		return nil, err
	}
	if v.gpuSource != "" || v.counters != "" {
		if cfg.GPU == nil {
			cfg.GPU = &gpuConfig{}
		}
		if v.gpuSource != "" {
			cfg.GPU.Source = v.gpuSource
		}
		if v.counters != "" {
			cfg.GPU.CountersFile = v.counters
		}
	}
	if v.dataDir != "" {
		cfg.StateDir = v.dataDir
	}
	if cfg.StateDir != "" {
		if err := os.MkdirAll(cfg.StateDir, 0o700); err != nil {
			return nil, fmt.Errorf("state_dir: %w", err)
		}
	}
	return cfg, nil
}

func (v *agentVerb) run(ctx context.Context, std stdio) error {
	logger, slogger, err := v.log.loggers(std.err)
	if err != nil {
		return err
	}
	cfg, err := v.load()
	if err != nil {
		return err
	}
	known, hall, hallSite, err := v.surroundings(cfg)
	if err != nil {
		return err
	}
	a, err := newAgent(cfg, known, hall, hallSite, logger)
	if err != nil {
		return err
	}
	oneProcessor()
	defer lean()()
	level.Info(logger).Log("msg", "starting agent", "node", cfg.Node, "version", version.Info())
	reload := config.NewReloader(v.load, func(old, next *agentConfig) error {
		if old == nil {
			return nil
		}
		return a.reload(next)
	})
	if err := reload.Reload(); err != nil {
		return err
	}
	pages := collector.HandlerConfig{
		Store:   a.store,
		Extra:   a.selfMetrics(reload),
		Sources: a.sources,
		Version: version.Version,
		Reload:  v.web.lifecycle(reload.Reload),
		Logger:  logger,
	}
	if v.web.enableLifecycle {
		pages.Release, pages.Acquire = a.release, a.acquire
	}
	handler := collector.NewHandler(pages)
	serve := v.web.serve(a.silenceWhenDown(handler), slogger, a.listening)
	actors := append([]actor{serve}, a.actors()...)
	return runActors(ctx, append(actors, reloadOnHangup(reload.Reload, logger))...)
}

// surroundings loads the site file and builds the simulated hall, where there are any.
func (v *agentVerb) surroundings(cfg *agentConfig) (known *site.Site, hall *sim.Hall, hallSite *site.Site, err error) {
	if cfg.SiteFile != "" {
		if known, err = site.Load(cfg.SiteFile); err != nil {
			return nil, nil, nil, err
		}
	}
	if !v.sim.on {
		return known, nil, nil, nil
	}
	hall, hallSite, err = newHall(cfg.Simulate, v.sim, time.Now())
	if err != nil {
		return nil, nil, nil, err
	}
	if _, known := hallSite.Node(cfg.Node); !known && cfg.nodeIsHost && cfg.wantsGPU() && len(hallSite.Nodes) > 0 {
		cfg.Node = hallSite.Nodes[0].ID // this machine is not in the hall: play one that is
	}
	if cfg.GPU != nil && cfg.GPU.Source == "none" && len(cfg.Facility) == 0 {
		cfg.Facility = simDevices(hallSite)
	}
	if known == nil && len(cfg.Registry.Addresses) == 0 {
		known = hallSite // nobody else can tell the labels
	}
	return known, hall, hallSite, nil
}

// selfMetrics are the agent's own: the process, the build, the configuration,
// and its beats.
func (a *agent) selfMetrics(reload *config.Reloader[*agentConfig]) prometheus.Gatherer {
	reg := newRegistry(reload.Status)
	if a.beater != nil {
		reg.MustRegister(a.beater)
	}
	if a.pusher != nil {
		reg.MustRegister(a.pusher)
	}
	a.self = reg
	return reg
}

// listening learns the port that HTTP got, for the registry.
func (a *agent) listening(addrs []net.Addr) {
	address := a.cfg.Advertise
	if address == "" && len(addrs) > 0 && a.cfg.Push == nil { // whoever pushes is no target
		address = advertisedAddress(addrs[0], a.cfg.Node)
	}
	a.advertised.Lock()
	a.advertised.address = address
	a.advertised.Unlock()
	if a.beater != nil {
		a.beater.Announce()
	}
}

// advertisedAddress is the listening address, with a name in place of "any".
func advertisedAddress(addr net.Addr, host string) string {
	tcp, ok := addr.(*net.TCPAddr)
	if !ok {
		return ""
	}
	if !tcp.IP.IsUnspecified() {
		host = tcp.IP.String()
	}
	return net.JoinHostPort(host, fmt.Sprint(tcp.Port))
}
