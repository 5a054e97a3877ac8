// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/rules"
)

// rulesDiff is "rackpulse rules diff".
type rulesDiff struct {
	*rulesVerbs
	root, old, next string
}

func registerRulesDiff(cmd *kingpin.CmdClause, v *rulesVerbs) verb {
	d := &rulesDiff{rulesVerbs: v}
	sub := cmd.Command("diff", "Show which rules and files change; exit status 1 if any. Without arguments: the compiled pack against the files of a folder.")
	sub.Flag("out", "Folder to compare with, as build wrote it.").Default(".").StringVar(&d.root)
	sub.Arg("old", "Rule file, or folder with rule files, before.").ExistingFileOrDirVar(&d.old)
	sub.Arg("new", "Rule file or folder after; without it, the compiled pack.").ExistingFileOrDirVar(&d.next)
	return verb{sub, d.run}
}

func (d *rulesDiff) run(_ context.Context, std stdio) error {
	if d.old != "" {
		return d.twoSets(std)
	}
	_, built, err := d.compile()
	if err != nil {
		return err
	}
	root := os.DirFS(d.root)
	am := built[alertmanagerFile]
	delete(built, alertmanagerFile)
	changes, err := rules.Diff(built, root)
	if err != nil {
		return err
	}
	there, err := fs.ReadFile(root, alertmanagerFile)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if string(there) != string(am) {
		changes = append(changes, rules.Change{Path: alertmanagerFile, Kind: "changed"})
	}
	if len(changes) == 0 {
		return nil
	}
	old, next := map[string][]byte{}, map[string][]byte{}
	for _, c := range changes {
		fmt.Fprintln(std.out, c)
		if !strings.HasSuffix(c.Path, ".rules.yml") {
			continue
		}
		if data, err := fs.ReadFile(root, c.Path); err == nil {
			old[c.Path], next[c.Path] = data, built[c.Path]
		}
	}
	if err := printRuleChanges(old, next, std); err != nil {
		return err
	}
	return exitCode(1)
}

// twoSets compares rule files with others, or with the compiled pack.
func (d *rulesDiff) twoSets(std stdio) error {
	old, err := readRuleSet(d.old)
	if err != nil {
		return err
	}
	next := map[string][]byte{}
	if d.next != "" {
		next, err = readRuleSet(d.next)
	} else {
		var built map[string][]byte
		if _, built, err = d.compile(); err == nil {
			for path, data := range built {
				if name := filepath.Base(path); strings.HasSuffix(path, ".rules.yml") {
					next[name] = data
				}
			}
		}
	}
	if err != nil {
		return err
	}
	alone(old, next, d.old)
	if d.next != "" {
		alone(next, old, d.next)
	}
	return printRuleChanges(old, next, std)
}

// alone lets a single file be compared with a file of the same name only, or with
// the only other one.
func alone(one, other map[string][]byte, path string) {
	info, err := os.Stat(path)
	if err != nil || info.IsDir() || len(one) != 1 {
		return
	}
	name := sortedKeys(one)[0]
	if _, same := other[name]; !same && len(other) == 1 {
		last := sortedKeys(other)[0]
		other[name] = other[last]
		delete(other, last)
	}
	for o := range other {
		if o != name {
			delete(other, o)
		}
	}
}

// readRuleSet reads a rule file, or the *.rules.yml under a folder, by base name.
func readRuleSet(path string) (map[string][]byte, error) {
	out := map[string][]byte{}
	err := filepath.WalkDir(path, func(file string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || file != path && !strings.HasSuffix(file, ".rules.yml") {
			return err
		}
		name := filepath.Base(file)
		if out[name] != nil {
			return fmt.Errorf("%s: there is another %s under %s", file, name, path)
		}
		out[name], err = config.ReadFile(file, maxRuleFile)
		return err
	})
	return out, err
}

// printRuleChanges prints what differs; with any, the error is the exit status 1.
func printRuleChanges(old, next map[string][]byte, std stdio) error {
	changes, err := rules.DiffRules(old, next)
	if err != nil {
		return err
	}
	for _, c := range changes {
		fmt.Fprintln(std.out, c)
	}
	if len(changes) > 0 {
		return exitCode(1)
	}
	return nil
}

// rulesInit is "rackpulse rules init".
type rulesInit struct{ dir string }

func registerRulesInit(cmd *kingpin.CmdClause) verb {
	v := &rulesInit{}
	sub := cmd.Command("init", "Write a commented pack to begin from; use it with --pack.")
	sub.Arg("folder", "Folder of the pack; it is made if missing.").Required().StringVar(&v.dir)
	return verb{sub, v.run}
}

func (v *rulesInit) run(_ context.Context, std stdio) error {
	if err := os.MkdirAll(v.dir, 0o755); err != nil {
		return err
	}
	path := filepath.Join(v.dir, rules.StarterName)
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(rules.Starter())
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	fmt.Fprintf(std.out, "%s written; next: rackpulse rules --pack %s lint\n", path, v.dir)
	return nil
}
