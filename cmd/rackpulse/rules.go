// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rackpulse/rackpulse/alerting"
	"github.com/rackpulse/rackpulse/rules"
	"github.com/rackpulse/rackpulse/site"
)

// rulesVerbs are "rackpulse rules ...".
type rulesVerbs struct {
	packDir  string
	siteFile string
	root     string
	files    []string
	promtool string
	output   outputFlags
}

func registerRules(app *kingpin.Application) []verb {
	v := &rulesVerbs{}
	cmd := app.Command("rules", "Correlations: compile them, check rule files, test.")
	cmd.Flag("pack", "Folder of correlations in place of the built-in ones.").ExistingDirVar(&v.packDir)
	cmd.Flag("site.file", "Site file whose limits replace the built-in thresholds.").ExistingFileVar(&v.siteFile)
	lint := cmd.Command("lint", "Check rule files for faults of joins and labels; without files, the compiled pack.")
	lint.Arg("file", "Prometheus rule files or Alertmanager configurations.").ExistingFilesVar(&v.files)
	build := cmd.Command("build", "Compile the correlations to rules, inhibition, tests and docs.")
	build.Flag("out", "Folder to write to; rules land in rules/generated under it, objects of the operator in the folder itself.").Default(".").StringVar(&v.root)
	v.output.register(build)
	test := cmd.Command("test", "Compile, then run promtool's checks and unit tests over the result.")
	test.Flag("promtool", "The promtool to use.").Default("promtool").StringVar(&v.promtool)
	return []verb{{lint, v.lint}, {build, v.build}, {test, v.test}, registerRulesDiff(cmd, v), registerRulesInit(cmd), registerAdapters(cmd, v)}
}

// pack returns the pack of --pack, or the built-in one.
func (v *rulesVerbs) pack() (*rules.Pack, error) {
	if v.packDir != "" {
		return rules.ReadBeside(os.DirFS(v.packDir), v.packDir)
	}
	return rules.DefaultPack()
}

// compile returns the pack and all files it compiles to, Alertmanager's included.
func (v *rulesVerbs) compile() (*rules.Pack, map[string][]byte, error) {
	pack, err := v.pack()
	if err != nil {
		return nil, nil, err
	}
	limits := site.DefaultLimits()
	if v.siteFile != "" {
		s, err := site.Load(v.siteFile)
		if err != nil {
			return nil, nil, err
		}
		limits = s.Limits
	}
	built, err := pack.Build(limits)
	if err != nil {
		return nil, nil, err
	}
	joined, err := alerting.Join(built["rules/generated/inhibit.yml"])
	if err != nil {
		return nil, nil, err
	}
	built[alertmanagerFile] = joined
	return pack, built, nil
}

const alertmanagerFile = "alerting/alertmanager.yml"

func (v *rulesVerbs) lint(_ context.Context, std stdio) error {
	pack, files, err := v.compile()
	if err != nil {
		return err
	}
	metrics := rules.KnownMetrics()
	adapters, err := rules.Adapters()
	if err != nil {
		return err
	}
	if len(v.files) > 0 {
		// Foreign files may use metrics that no exporter of ours has.
		if files, adapters, err = readRuleFiles(v.files); err != nil {
			return err
		}
		metrics = nil
	}
	for name := range files {
		if strings.HasSuffix(name, ".md") || strings.HasSuffix(name, "_test.yml") {
			delete(files, name)
		}
	}
	problems := pack.Lint(files, metrics)
	if len(v.files) == 0 {
		problems = append(pack.LintSources(), problems...)
	}
	found, err := lintAdapters(pack, adapters)
	if err != nil {
		return err
	}
	problems = append(problems, found...)
	for _, p := range problems {
		fmt.Fprintln(std.out, p)
	}
	if len(problems) > 0 {
		return exitCode(1)
	}
	fmt.Fprintf(std.out, "%d files, no problems\n", len(files)+len(adapters))
	return nil
}

func (v *rulesVerbs) build(_ context.Context, std stdio) error {
	_, built, err := v.compile()
	if err != nil {
		return err
	}
	if v.output.format == formatOperator {
		if built, err = v.output.objects(built, v.siteFile, nil); err != nil {
			return err
		}
	}
	if err := writeFiles(v.root, built); err != nil {
		return err
	}
	fmt.Fprintf(std.out, "%d files written\n", len(built))
	return nil
}

func (v *rulesVerbs) test(ctx context.Context, std stdio) error {
	_, built, err := v.compile()
	if err != nil {
		return err
	}
	delete(built, alertmanagerFile)
	promtool, err := exec.LookPath(v.promtool)
	if err != nil {
		return fmt.Errorf("promtool: %w; give its path with --promtool", err)
	}
	out, err := rules.Test(ctx, promtool, built)
	_, _ = std.out.Write(out)
	return err
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
