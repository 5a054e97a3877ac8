// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	versioncollector "github.com/prometheus/client_golang/prometheus/collectors/version"

	"github.com/rackpulse/rackpulse/collector"
)

// webFlags are the flags of every role that serves HTTP.
type webFlags struct {
	addresses       []string
	configFile      string
	enableLifecycle bool
}

func (f *webFlags) register(cmd *kingpin.CmdClause, address string) {
	cmd.Flag("web.listen-address", "Address to serve HTTP on; may be repeated.").Default(address).StringsVar(&f.addresses)
	cmd.Flag("web.config.file", "TLS, client certificates and basic auth, in exporter-toolkit's format.").StringVar(&f.configFile)
	cmd.Flag("web.enable-lifecycle", "Allow POST /-/reload, /-/release and /-/acquire.").BoolVar(&f.enableLifecycle)
}

// serve is the actor that serves handler.
func (f *webFlags) serve(handler http.Handler, logger *slog.Logger, onListen func([]net.Addr)) actor {
	cfg := collector.ServeConfig{ListenAddresses: f.addresses, WebConfigFile: f.configFile, OnListen: onListen}
	return actor{name: "http", drain: true, run: func(ctx context.Context) error {
		return collector.Serve(ctx, cfg, handler, logger)
	}}
}

// lifecycle returns the reload request's action, nil where it is not enabled.
func (f *webFlags) lifecycle(reload func() error) func(context.Context) error {
	if !f.enableLifecycle {
		return nil
	}
	return func(context.Context) error { return reload() }
}

// reloadOnHangup reloads at each SIGHUP. A bad file changes nothing and is logged.
func reloadOnHangup(reload func() error, logger log.Logger) actor {
	return actor{name: "reload", run: func(ctx context.Context) error {
		hup := make(chan os.Signal, 1)
		signal.Notify(hup, syscall.SIGHUP)
		defer signal.Stop(hup)
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-hup:
				if err := reload(); err != nil {
					level.Error(logger).Log("msg", "configuration not reloaded", "err", err)
				} else {
					level.Info(logger).Log("msg", "configuration reloaded")
				}
			}
		}
	}}
}

// newRegistry returns a registry with the metrics that every role has: process,
// runtime, build, and the state of the configuration.
func newRegistry(reloadStatus func() (bool, time.Time)) *prometheus.Registry {
	reg := prometheus.NewRegistry()
	reg.MustRegister(
		collectors.NewGoCollector(),
		newProcessCollector(),
		versioncollector.NewCollector("rackpulse"),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "rackpulse_config_last_reload_successful",
			Help: "Whether the last attempt to read the configuration succeeded.",
		}, func() float64 {
			if good, _ := reloadStatus(); good {
				return 1
			}
			return 0
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "rackpulse_config_last_reload_success_timestamp_seconds",
			Help: "Unix time of the last successful reading of the configuration.",
		}, func() float64 {
			_, at := reloadStatus()
			return float64(at.UnixMilli()) / 1000
		}),
	)
	return reg
}
