// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"slices"
)

//go:embed generated
var generatedFiles embed.FS

// generatedDir is where the compiled files lie in the repository.
const generatedDir = "rules/generated/"

// Generated returns the committed rule files, tests and inhibition fragment that
// the built-in pack compiles to with the default limits. Its root holds
// *.rules.yml, inhibit.yml and tests/.
func Generated() fs.FS {
	sub, _ := fs.Sub(generatedFiles, "generated") // fails for malformed names only
	return sub
}

// Build compiles the pack. The keys are paths from the repository's root:
// rules/generated/*.rules.yml, rules/generated/inhibit.yml,
// rules/generated/tests/ID_test.yml and docs/correlations/ID.md. The same pack
// and limits always give the same bytes.
func (p *Pack) Build(limits Limits) (map[string][]byte, error) {
	b := &builder{pack: p, limits: limits}
	groups, err := b.groups()
	if err != nil {
		return nil, flatten(err)
	}
	if err := p.checkInhibitions(groups); err != nil {
		return nil, flatten(err)
	}
	out := map[string][]byte{generatedDir + "inhibit.yml": renderInhibit(p.inhibitions())}
	for _, g := range groups {
		out[generatedDir+fileOf(g)] = renderGroup(g)
	}
	for _, f := range p.specs() {
		tests, err := b.tests(f)
		if err != nil {
			return nil, err
		}
		out[generatedDir+"tests/"+f.Correlation.ID+"_test.yml"] = tests
		page, err := b.page(f, groups)
		if err != nil {
			return nil, err
		}
		out[docPath(f.Correlation.ID)] = page
	}
	return out, nil
}

// fileOf names the rule file of a group: "rackpulse-coverage" is in
// coverage.rules.yml.
func fileOf(g ruleGroup) string { return g.name[len("rackpulse-"):] + ".rules.yml" }

// Change is one file that differs from what Build gives.
type Change struct {
	Path string // from the repository's root
	Kind string // "missing", "changed" or "unknown" (there, but not built)
}

// String is the kind and the path.
func (c Change) String() string { return c.Kind + " " + c.Path }

// Diff compares built files with those in root (the repository's root), sorted
// by path. Only generated folders are looked at.
func Diff(built map[string][]byte, root fs.FS) ([]Change, error) {
	var out []Change
	for _, path := range slices.Sorted(maps.Keys(built)) {
		have, err := fs.ReadFile(root, path)
		switch {
		case err != nil:
			out = append(out, Change{path, "missing"})
		case !bytes.Equal(have, built[path]):
			out = append(out, Change{path, "changed"})
		}
	}
	for _, pattern := range []string{"rules/generated/*.yml", "rules/generated/tests/*.yml", "docs/correlations/*.md"} {
		paths, err := fs.Glob(root, pattern)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", pattern, err)
		}
		for _, path := range paths {
			if _, ok := built[path]; !ok {
				out = append(out, Change{path, "unknown"})
			}
		}
	}
	return out, nil
}
