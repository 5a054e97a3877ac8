// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/version"

	"github.com/rackpulse/rackpulse/registry"
	"github.com/rackpulse/rackpulse/sim"
	"github.com/rackpulse/rackpulse/site"
)

// facilityName is the agent that polls all devices of a simulated hall.
const facilityName = "facility"

// standaloneVerb is "rackpulse standalone": agents, registry and an embedded
// Prometheus in one process.
type standaloneVerb struct {
	configFile    string
	dataDir       string
	alertmanagers []string
	sim           simFlags
	web           webFlags
	log           logFlags
}

func registerStandalone(app *kingpin.Application) []verb {
	v := &standaloneVerb{}
	cmd := app.Command("standalone", "Everything in one process on one machine: agent, registry, rules, pages.")
	cmd.Flag("config.file", "Agent configuration; its site_file is the site. Without one this machine's GPUs are shown.").StringVar(&v.configFile)
	cmd.Flag("data-dir", "Folder for leases and series; without one they end with the process.").StringVar(&v.dataDir)
	cmd.Flag("alertmanager.url", "Alertmanager to send alerts to; may be repeated.").StringsVar(&v.alertmanagers)
	v.sim.register(cmd)
	v.web.register(cmd, ":9400")
	v.log.register(cmd)
	return []verb{{cmd: cmd, run: v.run}}
}

// standalone is the wired parts.
type standalone struct {
	site     *site.Site
	hall     *sim.Hall // nil: real hardware
	agents   []*agent
	registry *registry.Registry
	own      *prometheus.Registry
	engine   embedded
	beats    net.Listener
}

// engineConfig is what the embedded Prometheus is made of.
type engineConfig struct {
	dir           string
	keep          bool // the data outlives the process
	site          *site.Site
	alertmanagers []string
	parts         func() []part
	logger        *slog.Logger
}

// embedded is the Prometheus in the process; see engine.go and noengine.go.
type embedded interface {
	actors() []actor
	handler() http.Handler // nil: no query API
	close() error
}

func (v *standaloneVerb) run(ctx context.Context, std stdio) error {
	logger, slogger, err := v.log.loggers(std.err)
	if err != nil {
		return err
	}
	dir := v.dataDir
	if dir == "" {
		if dir, err = os.MkdirTemp("", "rackpulse-"); err != nil {
			return err
		}
		defer os.RemoveAll(dir)
	}
	s, err := v.build(dir, logger, slogger)
	if err != nil {
		return err
	}
	defer lean()()
	level.Info(logger).Log("msg", "starting standalone", "site", s.site.ID, "nodes", len(s.agents), "simulated", s.hall != nil, "version", version.Info())
	actors := []actor{v.web.serve(s.pages(), slogger, func(addrs []net.Addr) {
		for _, a := range addrs {
			fmt.Fprintf(std.out, "RackPulse: open http://%s/\n", advertisedAddress(a, "localhost"))
		}
	})}
	for i, a := range s.agents {
		for _, act := range a.actors() {
			act.name = fmt.Sprintf("%s of agent %d", act.name, i)
			actors = append(actors, act)
		}
	}
	actors = append(actors, actor{name: "registry", run: func(ctx context.Context) error { return s.registry.Run(ctx, s.beats) }})
	return runActors(ctx, append(actors, s.engine.actors()...)...)
}

// build wires everything; on an error nothing stays open.
func (v *standaloneVerb) build(dir string, logger log.Logger, slogger *slog.Logger) (*standalone, error) {
	s := &standalone{}
	configs, err := v.configurations(s)
	if err != nil {
		return nil, err
	}
	if s.beats, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		return nil, err
	}
	closers := []func() error{s.beats.Close}
	fail := func(err error) (*standalone, error) {
		for _, c := range closers {
			err = errors.Join(err, c())
		}
		return nil, err
	}
	for _, cfg := range configs {
		cfg.Registry = registryTarget{Addresses: []string{s.beats.Addr().String()}}
		a, err := newAgent(cfg, nil, s.hall, s.site, log.With(logger, "agent", cfg.Node))
		if err != nil {
			return fail(err)
		}
		s.agents = append(s.agents, a)
	}
	started := time.Now()
	s.own = newRegistry(func() (bool, time.Time) { return true, started })
	querier, eng, err := newEngine(engineConfig{dir: dir, keep: v.dataDir != "", site: s.site, alertmanagers: v.alertmanagers, parts: s.parts, logger: slogger.With("component", "engine")})
	if err != nil {
		return fail(err)
	}
	s.engine = eng
	closers = append(closers, eng.close)
	explain, err := servedExplain(querier, func() *site.Site { return s.registry.Site() })
	if err != nil {
		return fail(err)
	}
	s.registry, err = registry.New(registry.Config{GRPC: registry.GRPCConfig{Listen: s.beats.Addr().String()}, Store: registry.StoreConfig{Dir: filepath.Join(dir, "ledger")}}, registry.Deps{
		Logger: log.With(logger, "component", "registry"), Site: s.site, Querier: querier, Explain: explain, Gatherer: union(s.parts),
	})
	if err != nil {
		return fail(err)
	}
	s.own.MustRegister(s.registry)
	return s, nil
}

// configurations says which agents run: one for each node of the simulated hall
// and one for its devices, or the one of this machine.
func (v *standaloneVerb) configurations(s *standalone) ([]*agentConfig, error) {
	cfg, err := loadAgentConfig(v.configFile)
	if err != nil {
		return nil, err
	}
	if cfg.Push != nil {
		return nil, errors.New("push: standalone has a Prometheus of its own; push is for rackpulse agent")
	}
	if !v.sim.on {
		s.site, err = standaloneSite(cfg)
		return []*agentConfig{cfg}, err
	}
	if cfg.Simulate.SiteFile == "" {
		cfg.Simulate.SiteFile = cfg.SiteFile
	}
	if cfg.Simulate.Epoch.IsZero() {
		cfg.Simulate.Epoch = time.Now()
	}
	if s.hall, s.site, err = newHall(cfg.Simulate, v.sim, time.Now()); err != nil {
		return nil, err
	}
	none := &gpuConfig{}
	none.Source = "none"
	out := []*agentConfig{{Node: facilityName, GPU: none, Facility: simDevices(s.site)}}
	for _, n := range s.site.Nodes {
		out = append(out, &agentConfig{Node: n.ID, GPU: cfg.GPU})
	}
	return out, nil
}

// standaloneSite is the configured site, or one that holds this machine alone.
func standaloneSite(cfg *agentConfig) (*site.Site, error) {
	if cfg.SiteFile != "" {
		return site.Load(cfg.SiteFile)
	}
	text := fmt.Sprintf("site: {id: local}\nnode_classes: [{id: local, rackless: true}]\nnodes: [{id: %q, class: local}]\n", cfg.Node)
	return site.Parse("built-in site", []byte(text))
}

// parts are the pages of all agents, and of the registry with the process.
func (s *standalone) parts() []part {
	out := []part{{instance: "registry", gatherer: s.own}}
	for _, a := range s.agents {
		out = append(out, part{instance: a.cfg.Node, gatherer: s.scrape(a)})
	}
	return out
}

// scrape is an agent's page, which fails while its simulated node is down.
func (s *standalone) scrape(a *agent) prometheus.Gatherer {
	return prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		if a.simulatedDown() {
			return nil, fmt.Errorf("simulated node %s is down", a.cfg.Node)
		}
		return a.store.Gather()
	})
}

// pages are the registry's pages and API, and the engine's query API.
func (s *standalone) pages() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/", registryPages(s.registry))
	if q := s.engine.handler(); q != nil {
		for _, path := range []string{"query", "query_range", "series", "labels", "label/", "alerts", "rules", "status/"} {
			mux.Handle("/api/v1/"+path, s.registry.Protect(q))
		}
	}
	return mux
}
