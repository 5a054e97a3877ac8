// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"path/filepath"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/common/version"

	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/registry"
	"github.com/rackpulse/rackpulse/site"
	"github.com/rackpulse/rackpulse/web"
)

// registryVerb is "rackpulse registry".
type registryVerb struct {
	configFile string
	dataDir    string
	web        webFlags
	log        logFlags
}

func registerRegistry(app *kingpin.Application) []verb {
	v := &registryVerb{}
	top := app.Command("registry", "Own the site file and the leases; serve the API, discovery and the rack page.")
	cmd := top.Command("run", "Do so.").Default()
	cmd.Flag("config.file", "Registry configuration.").Default("registry.yml").StringVar(&v.configFile)
	cmd.Flag("data-dir", "Folder of the ledger. Wins over the file's store.dir.").StringVar(&v.dataDir)
	v.web.register(cmd, ":9401")
	v.log.register(cmd)
	return append(registerBackup(top), registerToken(top), verb{cmd: cmd, run: v.run})
}

func (v *registryVerb) run(ctx context.Context, std stdio) error {
	logger, slogger, err := v.log.loggers(std.err)
	if err != nil {
		return err
	}
	cfg, err := registry.Load(v.configFile)
	if err != nil {
		return err
	}
	if v.dataDir != "" {
		cfg.Store.Dir = filepath.Clean(v.dataDir)
	}
	querier, err := cfg.Prometheus.Querier()
	if err != nil {
		return err
	}
	var reg *registry.Registry
	reload := config.NewReloader(func() (*site.Site, error) { return site.Load(cfg.SiteFile) },
		func(old, next *site.Site) error {
			if old == nil {
				return nil
			}
			return reg.Reload(next)
		})
	if err := reload.Reload(); err != nil {
		return err
	}
	own := newRegistry(reload.Status)
	deps := registry.Deps{
		Logger: log.With(logger, "component", "registry"), Site: reload.Value(), Querier: querier,
		Gatherer: own, Reload: v.web.lifecycle(reload.Reload),
	}
	deps.Explain, err = servedExplain(querier, func() *site.Site { return reg.Site() })
	if err != nil {
		return err
	}
	tell, err := notifies(v.configFile, cfg, &deps, own, logger)
	if err != nil {
		return err
	}
	reg, err = registry.New(*cfg, deps)
	if err != nil {
		return err
	}
	own.MustRegister(reg)
	if err := addOutbox(reg, v.configFile, cfg, own, logger); err != nil {
		return errors.Join(err, reg.Close())
	}
	ln, err := net.Listen("tcp", cfg.GRPC.Listen)
	if err != nil {
		return errors.Join(err, reg.Close())
	}
	level.Info(logger).Log("msg", "starting registry", "site", reload.Value().ID, "beats", ln.Addr(), "version", version.Info())
	return runActors(ctx, append([]actor{
		v.web.serve(registryPages(reg), slogger, nil),
		{name: "registry", run: func(ctx context.Context) error { return reg.Run(ctx, ln) }},
		reloadOnHangup(reload.Reload, logger),
	}, tell...)...)
}

// registryPages are the rack page and, beside it, the registry's API.
func registryPages(reg *registry.Registry) http.Handler {
	api := reg.Handler()
	mux := http.NewServeMux()
	mux.Handle("/", reg.Protect(web.NewHandler(web.Config{View: reg.View, Explain: reg.Explains(), Evidence: evidenceOf(reg)})))
	for _, path := range []string{"/api/", "/metrics", "/-/"} {
		mux.Handle(path, api)
	}
	return mux
}
