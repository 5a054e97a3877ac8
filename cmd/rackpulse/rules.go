// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rackpulse/rackpulse/alerting"
	"github.com/rackpulse/rackpulse/config"
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
	format   string
}

func registerRules(app *kingpin.Application) []verb {
	v := &rulesVerbs{}
	cmd := app.Command("rules", "Correlations: compile them, check rule files, test.")
	cmd.Flag("pack", "Folder of correlations that stand beside the built-in ones; with a contract.yml of its own, in place of them.").ExistingDirVar(&v.packDir)
	cmd.Flag("site.file", "Site file whose limits replace the built-in thresholds.").ExistingFileVar(&v.siteFile)
	lint := cmd.Command("lint", "Check rule files for faults of joins and labels; without files, the compiled pack and all adapters.")
	formatFlag(lint, &v.format)
	lint.Arg("file", "Prometheus rule files, Alertmanager configurations, adapter files.").ExistingFilesVar(&v.files)
	build := cmd.Command("build", "Compile the correlations to rules, inhibition, tests and docs.")
	build.Flag("out", "Folder to write to; rules land in rules/generated under it, objects of the operator in the folder itself.").Default(".").StringVar(&v.root)
	v.output.register(build)
	test := cmd.Command("test", "Compile, then run promtool's checks and unit tests over the result.")
	test.Flag("promtool", "The promtool to use.").Default("promtool").StringVar(&v.promtool)
	formatFlag(test, &v.format)
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

func formatFlag(cmd *kingpin.CmdClause, to *string) {
	cmd.Flag("format", "Output: text, one file:line:column: id message on a line, or json.").Default("text").EnumVar(to, "text", "json")
}

// lint ends with 0 when nothing was found, with 1 when something was or a file is
// not there.
func (v *rulesVerbs) lint(_ context.Context, std stdio) error {
	checked, problems, err := v.problems()
	var invalid rules.Problems
	if errors.As(err, &invalid) { // the pack itself
		problems, err = invalid, nil
	}
	if err != nil {
		return err
	}
	if v.format == "json" {
		err = json.NewEncoder(std.out).Encode(append([]rules.Problem{}, problems...))
	} else {
		for _, p := range problems {
			fmt.Fprintln(std.out, p)
		}
		if len(problems) == 0 {
			fmt.Fprintf(std.out, "%d files, no problems\n", checked)
		}
	}
	if len(problems) > 0 {
		return exitCode(1)
	}
	return err
}

// problems lints the named files, or all that the pack is and compiles to, and
// returns how many those are.
func (v *rulesVerbs) problems() (checked int, found []rules.Problem, err error) {
	pack, files, err := v.compile()
	if err != nil {
		return 0, nil, err
	}
	adapters, err := rules.Adapters()
	if err != nil {
		return 0, nil, err
	}
	if len(v.files) > 0 {
		// Foreign files may use metrics that no exporter of ours has.
		if files, adapters, err = readRuleFiles(v.files); err != nil {
			return 0, nil, err
		}
		maps.DeleteFunc(files, func(name string, _ []byte) bool { return !isRuleFile(name) })
		found = pack.Lint(files, nil)
	} else {
		metrics, err := v.metrics()
		if err != nil {
			return 0, nil, err
		}
		maps.DeleteFunc(files, func(name string, _ []byte) bool { return !isRuleFile(name) })
		found = pack.LintPack(files, metrics)
	}
	more, err := lintAdapters(pack, adapters)
	return len(files) + len(adapters), append(found, more...), err
}

// isRuleFile leaves out pages and tests.
func isRuleFile(name string) bool {
	return !strings.HasSuffix(name, ".md") && !strings.HasSuffix(name, "_test.yml")
}

// metrics are those of our exporters and those that the pack's own list adds.
func (v *rulesVerbs) metrics() ([]byte, error) {
	known := rules.KnownMetrics()
	if v.packDir == "" {
		return known, nil
	}
	own, err := config.ReadFile(filepath.Join(v.packDir, "metrics.txt"), maxRuleFile)
	if errors.Is(err, fs.ErrNotExist) {
		return known, nil
	}
	return append(append(known, '\n'), own...), err
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

// tested is what "rules test --format json" prints.
type tested struct {
	OK       bool            `json:"ok"`
	Problems []rules.Problem `json:"problems"`        // of a pack that does not compile
	Promtool string          `json:"promtool"`        // its output
	Error    string          `json:"error,omitempty"` // the step that failed
}

// test ends with 0 when all tests pass, else with 1.
func (v *rulesVerbs) test(ctx context.Context, std stdio) error {
	promtool, err := exec.LookPath(v.promtool)
	if err != nil {
		return fmt.Errorf("promtool: %w; give its path with --promtool", err)
	}
	_, built, err := v.compile()
	if err != nil && v.format == "text" {
		return err
	}
	var out []byte
	if err == nil {
		delete(built, alertmanagerFile)
		out, err = rules.Test(ctx, promtool, built)
	}
	if v.format == "text" {
		_, _ = std.out.Write(out)
		return err
	}
	result := tested{OK: err == nil, Problems: []rules.Problem{}, Promtool: string(out)}
	var invalid rules.Problems
	switch {
	case errors.As(err, &invalid):
		result.Problems = invalid
	case err != nil:
		result.Error = err.Error()
	}
	if err := json.NewEncoder(std.out).Encode(result); err != nil {
		return err
	}
	if !result.OK {
		return exitCode(1)
	}
	return nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
