// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Test writes built files (see Build) to a temporary folder and runs promtool
// over them: check rules with all lints fatal, then the generated tests. It
// returns promtool's output; the error says which step failed.
func Test(ctx context.Context, promtool string, built map[string][]byte) (output []byte, err error) {
	dir, err := os.MkdirTemp("", "rackpulse-rules-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	var ruleFiles, tests []string
	for _, path := range slices.Sorted(maps.Keys(built)) {
		name, ok := strings.CutPrefix(path, generatedDir)
		if !ok {
			continue
		}
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700); err != nil {
			return nil, err
		}
		if err := os.WriteFile(filepath.Join(dir, name), built[path], 0o600); err != nil {
			return nil, err
		}
		switch {
		case strings.HasSuffix(name, ".rules.yml"):
			ruleFiles = append(ruleFiles, name)
		case strings.HasPrefix(name, "tests/"):
			tests = append(tests, name)
		}
	}
	var out bytes.Buffer
	for _, args := range [][]string{
		append([]string{"check", "rules", "--lint=all", "--lint-fatal"}, ruleFiles...),
		append([]string{"test", "rules"}, tests...),
	} {
		cmd := exec.CommandContext(ctx, promtool, args...)
		cmd.Dir, cmd.Stdout, cmd.Stderr = dir, &out, &out
		if err := cmd.Run(); err != nil {
			return out.Bytes(), fmt.Errorf("promtool %s %s: %w", args[0], args[1], err)
		}
	}
	return out.Bytes(), nil
}
