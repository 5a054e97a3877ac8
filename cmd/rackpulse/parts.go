// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rackpulse/rackpulse/action"
	"github.com/rackpulse/rackpulse/collector/facility"
	"github.com/rackpulse/rackpulse/collector/gpu"
	"github.com/rackpulse/rackpulse/rules"
	"github.com/rackpulse/rackpulse/sim"
)

// Marks around the generated list in the README.
const (
	partsBegin = "<!-- parts: written by \"rackpulse parts\", do not edit -->\n"
	partsEnd   = "<!-- end of parts -->\n"
)

// registerParts is "rackpulse parts": the lists in the README come from the
// program, so that they cannot rot.
func registerParts(app *kingpin.Application) []verb {
	var file string
	cmd := app.Command("parts", "List the sources, drivers, actions, correlations and scenarios of this build, as Markdown.")
	cmd.Flag("write", "Put the list between the marks of this file instead of printing it.").StringVar(&file)
	return []verb{{cmd: cmd, run: func(_ context.Context, std stdio) error {
		list, err := partsList()
		if err != nil {
			return err
		}
		if file == "" {
			_, err = fmt.Fprint(std.out, list)
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		next, err := replaceParts(data, list)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		return os.WriteFile(file, next, 0o644)
	}}}
}

func partsList() (string, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "GPU sources: %s. Actions: %s.\n\n| driver | reads |\n|---|---|\n",
		strings.Join(gpu.SourceNames(), ", "), strings.Join(action.Names(), ", "))
	for _, d := range facility.Drivers() {
		fmt.Fprintf(&b, "| %s | %s |\n", d.Name, d.About)
	}
	pack, err := rules.DefaultPack()
	if err != nil {
		return "", err
	}
	b.WriteString("\n| correlation | says |\n|---|---|\n")
	for _, c := range pack.Correlations() {
		fmt.Fprintf(&b, "| [%s](%s) | %s |\n", c.ID, c.Runbook, c.Title)
	}
	b.WriteString("\n| scenario | what happens in the simulated hall |\n|---|---|\n")
	for _, s := range sim.Scenarios() {
		fmt.Fprintf(&b, "| %s | %s |\n", s.Name, s.Summary)
	}
	return b.String(), nil
}

// replaceParts puts list between the marks of a document.
func replaceParts(doc []byte, list string) ([]byte, error) {
	before, rest, ok := bytes.Cut(doc, []byte(partsBegin))
	_, after, ok2 := bytes.Cut(rest, []byte(partsEnd))
	if !ok || !ok2 {
		return nil, fmt.Errorf("has no marks for the list of parts")
	}
	return bytes.Join([][]byte{before, []byte(partsBegin), []byte(list), []byte(partsEnd), after}, nil), nil
}
