// SPDX-License-Identifier: Apache-2.0

package main

import (
	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rackpulse/rackpulse/action"
	"github.com/rackpulse/rackpulse/registry"
)

// openTargets opens the systems that a registry.yml names to act in.
func openTargets(file string, cfg *registry.Config, logger log.Logger) ([]action.Named, error) {
	return action.Open(cfg.Actions.Targets, actionDeps(file, log.With(logger, "component", "action")))
}

// addOutbox lets the registry act in the targets of its registry.yml, and shows
// the results. Without targets it only notes what would be done.
func addOutbox(reg *registry.Registry, file string, cfg *registry.Config, metrics prometheus.Registerer, logger log.Logger) error {
	targets, err := openTargets(file, cfg, logger)
	if err != nil {
		return err
	}
	runner := action.NewRunner(action.Options{
		Outbox: reg, Targets: targets, Witness: reg.Witness, Labels: reg.Headroom, Maintain: reg.Maintain, EndMaintenance: reg.EndMaintenance, PerMinute: cfg.Actions.MaxPerMinute, Logger: log.With(logger, "component", "action"),
		Place: func(node string) (rack, class string) {
			n, _ := reg.Site().Node(node)
			return n.Rack, n.Class
		},
	})
	reg.Act(runner.Run)
	return metrics.Register(runner)
}
