// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rackpulse/rackpulse/action"
	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/registry"
	"github.com/rackpulse/rackpulse/rules"
)

// actionDeps are what targets and sinks of a registry.yml need.
func actionDeps(file string, logger log.Logger) action.Deps {
	return action.Deps{
		Logger:  logger,
		Resolve: func(name string) string { return config.Resolve(filepath.Clean(file), name) },
	}
}

// notifies gives the registry the sinks that its registry.yml names, and returns
// what delivers to them; nothing where there are none.
func notifies(file string, cfg *registry.Config, deps *registry.Deps, metrics prometheus.Registerer, logger log.Logger) ([]actor, error) {
	n, err := action.OpenNotifier(cfg.Notifications, actionDeps(file, log.With(logger, "component", "notifications")))
	if err != nil {
		return nil, fmt.Errorf("notifications: %w", err)
	}
	if n == nil {
		return nil, nil
	}
	pack, err := rules.DefaultPack()
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	deps.Explained = map[string][]string{}
	for _, e := range pack.Evidence() {
		deps.Explained[e.ID] = e.Mutes
	}
	deps.Notify = func(d registry.Digest, told func(bool)) {
		n.Notify(action.Notice{Key: fmt.Sprintf("%s-%s-%d", d.ID, d.Phase, d.At.Unix()), Title: d.Title(), Markdown: d.Markdown(), Body: d}, told)
	}
	return []actor{{name: "notifications", run: n.Run}}, metrics.Register(n)
}
