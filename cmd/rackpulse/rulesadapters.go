// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/rules"
)

const maxRuleFile = 8 << 20

// defaultRegistryURL is where docker-compose.yml has the registry.
const defaultRegistryURL = "http://registry:9401"

// adaptersVerb is "rackpulse rules adapters".
type adaptersVerb struct {
	*rulesVerbs
	names  []string
	out    string
	output outputFlags
}

func registerAdapters(cmd *kingpin.CmdClause, v *rulesVerbs) verb {
	a := &adaptersVerb{rulesVerbs: v}
	sub := cmd.Command("adapters", "Rules and scrape configurations for exporters that a site keeps; without a name, the list of them.")
	sub.Arg("adapter", "Names of adapters, or adapter files (*.yml).").StringsVar(&a.names)
	sub.Flag("out", "Folder to write "+rules.AdapterRules+" and "+rules.AdapterScrape+" to; without it they are printed.").Short('o').StringVar(&a.out)
	a.output.register(sub)
	return verb{sub, a.run}
}

func (a *adaptersVerb) run(_ context.Context, std stdio) error {
	if len(a.names) == 0 {
		all, err := rules.Adapters()
		for _, one := range all {
			fmt.Fprintf(std.out, "%-20s %s\n", one.Name, one.Title)
		}
		return err
	}
	list, err := chooseAdapters(a.names)
	if err != nil {
		return err
	}
	pack, err := a.pack()
	if err != nil {
		return err
	}
	built, err := pack.BuildAdapters(list, a.output.operator.Registry)
	if err != nil {
		return err
	}
	problems := pack.LintAdapters(list, built[rules.AdapterRules])
	for _, p := range problems {
		fmt.Fprintln(std.err, p)
	}
	if len(problems) > 0 {
		return exitCode(1)
	}
	if a.output.format == formatOperator {
		if built, err = a.output.objects(built, a.siteFile, list); err != nil {
			return err
		}
	}
	if a.out == "" {
		for _, name := range sortedKeys(built) {
			fmt.Fprintf(std.out, "# %s\n%s", name, built[name])
		}
		return nil
	}
	if err := writeFiles(a.out, built); err != nil {
		return err
	}
	fmt.Fprintf(std.out, "%d files written\n", len(built))
	return nil
}

// chooseAdapters returns built-in adapters by name and others by file.
func chooseAdapters(names []string) ([]*rules.Adapter, error) {
	all, err := rules.Adapters()
	if err != nil {
		return nil, err
	}
	known := map[string]*rules.Adapter{}
	for _, one := range all {
		known[one.Name] = one
	}
	var list []*rules.Adapter
	var errs []error
	for _, name := range names {
		one := known[name]
		switch ext := filepath.Ext(name); {
		case ext == ".yml" || ext == ".yaml":
			data, err := config.ReadFile(name, maxRuleFile)
			if err == nil {
				one, err = rules.ReadAdapter(name, data)
			}
			errs = append(errs, err)
		case one == nil:
			errs = append(errs, fmt.Errorf("no adapter %q; there are %s", name, strings.Join(sortedKeys(known), ", ")))
		}
		list = append(list, one)
	}
	return list, errors.Join(errs...)
}

// adapterFile tells adapter files from rule files.
var adapterFile = regexp.MustCompile(`(?m)^adapter:`)

// readRuleFiles reads rule files, Alertmanager files and adapter files.
func readRuleFiles(names []string) (map[string][]byte, []*rules.Adapter, error) {
	files := map[string][]byte{}
	var adapters []*rules.Adapter
	var errs []error
	for _, name := range names {
		data, err := config.ReadFile(name, maxRuleFile)
		if err != nil {
			return nil, nil, err
		}
		if !adapterFile.Match(data) {
			files[name] = data
			continue
		}
		one, err := rules.ReadAdapter(name, data)
		adapters, errs = append(adapters, one), append(errs, err)
	}
	return files, adapters, errors.Join(errs...)
}

// lintAdapters lints what adapters compile to together.
func lintAdapters(pack *rules.Pack, list []*rules.Adapter) ([]rules.Problem, error) {
	if len(list) == 0 {
		return nil, nil
	}
	built, err := pack.BuildAdapters(list, defaultRegistryURL)
	if err != nil {
		return nil, err
	}
	return pack.LintAdapters(list, built[rules.AdapterRules]), nil
}
