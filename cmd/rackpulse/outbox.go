// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rackpulse/rackpulse/action"
	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/registry"
)

// openTargets opens the systems that a registry.yml names to act in.
func openTargets(file string, cfg *registry.Config, logger log.Logger) ([]action.Named, error) {
	return action.Open(cfg.Actions.Targets, action.Deps{
		Logger:  log.With(logger, "component", "action"),
		Resolve: func(name string) string { return config.Resolve(filepath.Clean(file), name) },
	})
}

// addOutbox lets the registry act in the targets, and shows the results. Without
// targets it only notes what would be done.
func addOutbox(reg *registry.Registry, targets []action.Named, perMinute int, metrics prometheus.Registerer, logger log.Logger) error {
	runner := action.NewRunner(action.Options{
		Outbox: reg, Targets: targets, Witness: reg.Witness, Labels: reg.Headroom, Maintain: reg.Maintain, EndMaintenance: reg.EndMaintenance, PerMinute: perMinute, Logger: log.With(logger, "component", "action"),
		Place: func(node string) (rack, class string) {
			n, _ := reg.Site().Node(node)
			return n.Rack, n.Class
		},
	})
	reg.Act(runner.Run)
	return metrics.Register(runner)
}
