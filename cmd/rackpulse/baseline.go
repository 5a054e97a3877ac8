// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/go-kit/log"

	"github.com/rackpulse/rackpulse/collector"
	"github.com/rackpulse/rackpulse/collector/gpu"
	"github.com/rackpulse/rackpulse/site"
)

// baselineVerb is "rackpulse baseline check".
type baselineVerb struct {
	configFile, siteFile, class string
	gpuWait                     time.Duration
	asJSON                      bool
}

// exitOutside is the exit status for a machine outside its baseline.
const exitOutside = exitCode(2)

func registerBaseline(app *kingpin.Application) []verb {
	v := &baselineVerb{}
	cmd := app.Command("baseline", "The baseline of a node class: driver, CUDA, toolkit, kernel, modes.").
		Command("check", "Hold this machine against the baseline of a class. Status 2: outside.")
	cmd.Flag("config.file", "Agent configuration: node, site_file, gpu, baseline, state_dir.").StringVar(&v.configFile)
	cmd.Flag("site", "Site file; by default the configuration's.").StringVar(&v.siteFile)
	cmd.Flag("class", "Node class; by default that of this node.").StringVar(&v.class)
	cmd.Flag("gpu.wait", "How long the GPUs may take to answer.").Default("30s").DurationVar(&v.gpuWait)
	cmd.Flag("json", "Print JSON.").BoolVar(&v.asJSON)
	return []verb{{cmd: cmd, run: v.run}}
}

// baselineReport is what the verb found, and its JSON.
type baselineReport struct {
	Class string             `json:"class"`
	Met   bool               `json:"met"`
	Lines []site.Requirement `json:"requirements"`
	Facts site.Facts         `json:"facts"`
}

func (v *baselineVerb) run(ctx context.Context, std stdio) error {
	cfg, err := loadAgentConfig(v.configFile)
	if err != nil {
		return err
	}
	class, err := v.classOf(cfg)
	if err != nil {
		return err
	}
	facts, err := v.gather(ctx, cfg, &class.Baseline, std)
	if err != nil {
		return err
	}
	report := baselineReport{Class: class.ID, Met: true, Facts: facts, Lines: class.Baseline.Requirements(facts)}
	for _, line := range report.Lines {
		report.Met = report.Met && line.Met
	}
	if err := report.write(std, v.asJSON); err != nil {
		return err
	}
	if !report.Met {
		return exitOutside
	}
	return nil
}

// classOf finds the class to check against.
func (v *baselineVerb) classOf(cfg *agentConfig) (*site.NodeClass, error) {
	path := v.siteFile
	if path == "" {
		path = cfg.SiteFile
	}
	if path == "" {
		return nil, errors.New("no site file: name one with --site, or site_file in the configuration")
	}
	s, err := site.Load(path)
	if err != nil {
		return nil, err
	}
	if v.class == "" {
		if class, ok := s.Class(cfg.Node); ok {
			return class, nil
		}
		return nil, fmt.Errorf("%s: node %q is not in it; name a class with --class", path, cfg.Node)
	}
	i := slices.IndexFunc(s.NodeClasses, func(c site.NodeClass) bool { return c.ID == v.class })
	if i < 0 {
		return nil, fmt.Errorf("%s: no node class %q", path, v.class)
	}
	return &s.NodeClasses[i], nil
}

// gather asks the machine for its facts: the GPUs, the kernel, and the commands of the
// configuration that b asks for. A burn-in is not run; what the agent keeps of it counts.
func (v *baselineVerb) gather(ctx context.Context, cfg *agentConfig, b *site.Baseline, std stdio) (site.Facts, error) {
	f := &nodeFacts{cfg: cfg.Baseline.withDefaults(), logger: log.NewNopLogger(), stateDir: cfg.StateDir, boot: bootID()}
	driver := "none"
	if cfg.wantsGPU() {
		facts, err := v.gpuFacts(ctx, cfg, std)
		if err != nil {
			return site.Facts{}, err
		}
		f.gpu = func() site.Facts { return facts }
		driver = facts.Driver
	}
	f.toolkit(ctx)
	if b.ContainerCUDA {
		f.container(ctx, driver)
	}
	if b.BurnIn && f.passed("burn_in", f.cfg.BurnIn.Command, driver) {
		f.tell(func(facts *site.Facts) { facts.BurnIn = site.Passed })
	}
	f.look()
	return f.facts(), nil
}

// gpuFacts samples the GPUs until they tell their driver.
func (v *baselineVerb) gpuFacts(ctx context.Context, cfg *agentConfig, std stdio) (site.Facts, error) {
	runner, err := gpu.New(cfg.gpuConfig(), gpu.Deps{Store: collector.NewStore(), Hostname: cfg.Node})
	if err != nil {
		return site.Facts{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, v.gpuWait)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() { _ = runner.Run(ctx) })
	for runner.Facts().Driver == "" {
		if !wait(ctx, 100*time.Millisecond) {
			fmt.Fprintf(std.err, "rackpulse: the GPUs did not answer: %s\n", runner.Inventory().Reason)
			break
		}
	}
	return runner.Facts(), nil
}

// write prints the report: what the class asks for, then what else is known.
func (r *baselineReport) write(std stdio, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(std.out)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false) // >=1.14.3
		return enc.Encode(r)
	}
	w := tabwriter.NewWriter(std.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "FACT\tWANT\tGOT\tPASS")
	rest := r.Facts.Texts()
	for _, line := range r.Lines {
		got := line.Got
		if got == "" {
			got = "not told"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", line.Name, line.Want, got, map[bool]string{true: "yes", false: "NO"}[line.Met])
		delete(rest, line.Name)
	}
	for _, name := range slices.Sorted(maps.Keys(rest)) {
		fmt.Fprintf(w, "%s\t-\t%s\t-\n", name, rest[name])
	}
	return w.Flush()
}
