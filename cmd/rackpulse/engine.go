// SPDX-License-Identifier: Apache-2.0

//go:build !noengine

package main

import (
	"net/http"
	"path/filepath"
	"time"

	"github.com/rackpulse/rackpulse/engine"
	"github.com/rackpulse/rackpulse/query"
	"github.com/rackpulse/rackpulse/rules"
)

// scrapeInterval is how often the engine reads the parts: the GPU interval of the
// shipped Prometheus configuration.
const scrapeInterval = 10 * time.Second

type embeddedEngine struct{ *engine.Engine }

func (e embeddedEngine) actors() []actor       { return []actor{{name: "engine", run: e.Run}} }
func (e embeddedEngine) handler() http.Handler { return e.Handler() }
func (e embeddedEngine) close() error          { return e.Close() }

// newEngine builds the embedded Prometheus over the parts, with the compiled
// correlations under the site's own limits.
func newEngine(cfg engineConfig) (query.Querier, embedded, error) {
	pack, err := rules.DefaultPack()
	if err != nil {
		return nil, nil, err
	}
	built, err := pack.Build(cfg.site.Limits)
	if err != nil {
		return nil, nil, err
	}
	files := map[string][]byte{}
	for name, data := range built {
		if ok, _ := filepath.Match("rules/generated/*.rules.yml", name); ok {
			files[name] = data
		}
	}
	dir := ""
	if cfg.keep {
		dir = filepath.Join(cfg.dir, "series")
	}
	e, err := engine.New(engine.Config{
		Dir: dir, RuleFiles: files, AlertmanagerURLs: cfg.alertmanagers,
		ExternalLabels: map[string]string{"site": cfg.site.ID},
		Logger:         cfg.logger,
		ScrapeInterval: scrapeInterval,
		Sources: func() []engine.Target {
			var out []engine.Target
			for _, p := range cfg.parts() {
				out = append(out, engine.Target{Instance: p.instance, Labels: map[string]string{"site": cfg.site.ID}, Gatherer: p.gatherer})
			}
			return out
		},
	})
	if err != nil {
		return nil, nil, err
	}
	return e, embeddedEngine{e}, nil
}
