// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/dashboards"
	"github.com/rackpulse/rackpulse/rules"
	"github.com/rackpulse/rackpulse/site"
)

// maxDashboardFile bounds a dashboard to lint, bytes.
const maxDashboardFile = 4 << 20

// dashboardVerbs write out and check Grafana dashboards.
type dashboardVerbs struct {
	dir    string
	export dashboards.ExportConfig
	files  []string
}

func registerDashboards(app *kingpin.Application) []verb {
	v := &dashboardVerbs{}
	cmd := app.Command("dashboards", "Grafana dashboards.")
	export := cmd.Command("export", "Write the dashboards, and the provisioning file by which Grafana loads them.")
	export.Flag("output", "Folder to write to; dashboards/ and provisioning/ are made in it.").Short('o').Default(".").StringVar(&v.dir)
	export.Flag("datasource", "UID of the data source that the dashboards start with.").StringVar(&v.export.Datasource)
	export.Flag("rackpulse-url", "Where browsers reach RackPulse's own pages, for the links to them.").StringVar(&v.export.Address)
	export.Flag("folder", "Grafana's folder for them.").Default("RackPulse").StringVar(&v.export.Folder)
	export.Flag("path", "Where Grafana will find the files; without it, where they are written.").StringVar(&v.export.Path)
	lint := cmd.Command("lint", "Check dashboards: queries, metrics, units, links, variables, layout.")
	lint.Arg("file", "Dashboards; without one those that come with the program.").StringsVar(&v.files)
	return []verb{{export, v.write}, {lint, v.lint}}
}

func (v *dashboardVerbs) write(_ context.Context, std stdio) error {
	if u, err := url.Parse(v.export.Address); v.export.Address != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("--rackpulse-url: %q is not an http or https URL", v.export.Address)
	}
	v.export.Address = strings.TrimSuffix(v.export.Address, "/")
	if v.export.Path == "" {
		path, err := filepath.Abs(filepath.Join(v.dir, "dashboards"))
		if err != nil {
			return err
		}
		v.export.Path = path
	}
	files, err := dashboards.Export(v.export)
	if err != nil {
		return err
	}
	if err := writeFiles(v.dir, files); err != nil {
		return err
	}
	for _, name := range sortedKeys(files) {
		fmt.Fprintln(std.out, filepath.Join(v.dir, filepath.FromSlash(name)))
	}
	return nil
}

func (v *dashboardVerbs) lint(_ context.Context, std stdio) error {
	pack, err := rules.DefaultPack()
	if err != nil {
		return err
	}
	known, err := pack.Series(site.DefaultLimits())
	if err != nil {
		return err
	}
	boards := map[string][]byte{}
	for _, name := range v.files {
		if boards[name], err = config.ReadFile(name, maxDashboardFile); err != nil {
			return err
		}
	}
	if len(v.files) == 0 {
		if boards, err = dashboards.Export(dashboards.ExportConfig{}); err != nil {
			return err
		}
		delete(boards, "provisioning/dashboards/rackpulse.yml")
	}
	problems := dashboards.Lint(boards, known)
	for _, p := range problems {
		fmt.Fprintln(std.out, p)
	}
	if len(problems) > 0 {
		return exitCode(1)
	}
	fmt.Fprintf(std.out, "%d dashboards, no problems\n", len(boards))
	return nil
}
