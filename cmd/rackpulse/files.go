// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/rackpulse/rackpulse/alerting"
	"github.com/rackpulse/rackpulse/collector/gpu"
	"github.com/rackpulse/rackpulse/dashboards"
	"github.com/rackpulse/rackpulse/registry"
	"github.com/rackpulse/rackpulse/rules"
	"github.com/rackpulse/rackpulse/site"
)

// fileVerbs are the verbs that check files or write ours out.
type fileVerbs struct {
	path, other string
	simulate    bool
}

func registerFiles(app *kingpin.Application) []verb {
	v := &fileVerbs{}
	siteCmd := app.Command("site", "The site file: racks, feeds, PDUs, nodes.")
	siteCheck := siteCmd.Command("check", "Check a site file and count what it holds.")
	siteCheck.Arg("file", "Site file.").Required().StringVar(&v.path)
	siteDiff := siteCmd.Command("diff", "Show what changed from one site file to another.")
	siteDiff.Arg("old", "Site file before.").Required().StringVar(&v.path)
	siteDiff.Arg("new", "Site file after.").Required().StringVar(&v.other)
	configCmd := app.Command("config", "Configuration files.")
	checkAgent := configCmd.Command("check-agent", "Check an agent's configuration without touching a device.")
	checkAgent.Arg("file", "agent.yml.").Required().StringVar(&v.path)
	checkAgent.Flag("simulate", "Check it as it would run with --simulate.").BoolVar(&v.simulate)
	checkRegistry := configCmd.Command("check-registry", "Check a registry's configuration and its site file.")
	checkRegistry.Arg("file", "registry.yml.").Required().StringVar(&v.path)
	export := app.Command("export", "Write out what comes with the program: rules, dashboards, Alertmanager configuration.")
	export.Arg("folder", "Folder to write to; rules/, dashboards/ and alerting/ are made in it.").Required().StringVar(&v.path)
	return []verb{
		{siteCheck, v.siteCheck}, {siteDiff, v.siteDiff},
		{checkAgent, v.checkAgent}, {checkRegistry, v.checkRegistry}, {export, v.export},
	}
}

func (v *fileVerbs) siteCheck(_ context.Context, std stdio) error {
	s, err := site.Load(v.path)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.out, "%s: site %s is good: %d racks, %d nodes, %d PDUs, %d feeds, %d cooling units, %d switches, %d sensors\n",
		v.path, s.ID, len(s.Racks), len(s.Nodes), len(s.PDUs), len(s.Feeds), len(s.CoolingUnits), len(s.Switches), len(s.Sensors))
	return err
}

func (v *fileVerbs) siteDiff(_ context.Context, std stdio) error {
	old, err := site.Load(v.path)
	if err != nil {
		return err
	}
	next, err := site.Load(v.other)
	if err != nil {
		return err
	}
	for _, c := range site.Diff(old, next) {
		fmt.Fprintln(std.out, c)
	}
	return nil
}

func (v *fileVerbs) checkAgent(_ context.Context, std stdio) error {
	av := &agentVerb{configFile: v.path, sim: simFlags{on: v.simulate}}
	cfg, err := av.load()
	if err != nil {
		return err
	}
	known, hall, hallSite, err := av.surroundings(cfg)
	if err != nil {
		return err
	}
	if cfg.GPU != nil { // stricter than the agent, which leaves unknown fields out
		if err := gpu.CheckCounters(cfg.GPU.CountersFile); err != nil {
			return fmt.Errorf("gpu.counters_file: %w", err)
		}
	}
	cfg.StateDir = "" // a check leaves no traces
	if _, err := newAgent(cfg, known, hall, hallSite, log.NewNopLogger()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.out, "%s is good: node %s, %d facility devices, GPUs %t\n", v.path, cfg.Node, len(cfg.Facility), cfg.wantsGPU())
	return err
}

func (v *fileVerbs) checkRegistry(_ context.Context, std stdio) error {
	cfg, err := registry.Load(v.path)
	if err != nil {
		return err
	}
	s, err := site.Load(cfg.SiteFile)
	if err != nil {
		return err
	}
	if err := cfg.CheckSite(s); err != nil {
		return fmt.Errorf("%s: %w", v.path, err)
	}
	targets, err := openTargets(v.path, cfg, log.NewNopLogger())
	if err != nil {
		return err
	}
	for _, t := range targets {
		if err := t.Close(); err != nil {
			return err
		}
	}
	if _, err := notifies(v.path, cfg, &registry.Deps{}, prometheus.NewRegistry(), log.NewNopLogger()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(std.out, "%s is good\n", v.path)
	return err
}

func (v *fileVerbs) export(_ context.Context, std stdio) error {
	for _, part := range []struct {
		name  string
		files fs.FS
	}{{"rules", rules.Generated()}, {"dashboards", dashboards.Files()}, {"alerting", alerting.Files()}} {
		dir := filepath.Join(v.path, part.name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := copyFiles(dir, part.files); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
		fmt.Fprintln(std.out, dir)
	}
	return nil
}

// copyFiles writes all files of src under dir; those that are there already and
// differ are kept beside as NAME.old.
func copyFiles(dir string, src fs.FS) error {
	return fs.WalkDir(src, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		path := filepath.Join(dir, filepath.FromSlash(name))
		if d.IsDir() {
			return os.MkdirAll(path, 0o755)
		}
		data, err := fs.ReadFile(src, name)
		if err != nil {
			return err
		}
		there, err := os.ReadFile(path)
		switch {
		case err == nil && string(there) == string(data):
			return nil
		case err == nil:
			if err := os.Rename(path, path+".old"); err != nil {
				return err
			}
		case !errors.Is(err, fs.ErrNotExist):
			return err
		}
		return os.WriteFile(path, data, 0o644)
	})
}

// writeFiles writes files under root; their names are slash paths.
func writeFiles(root string, files map[string][]byte) error {
	for _, name := range sortedKeys(files) {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, files[name], 0o644); err != nil {
			return err
		}
	}
	return nil
}

// age says how long ago t was, for tables; "-" when it never was.
func age(t, now time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return now.Sub(t).Round(time.Second).String()
}
