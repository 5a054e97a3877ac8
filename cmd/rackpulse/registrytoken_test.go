// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRegistryToken(t *testing.T) {
	dir := t.TempDir()
	run := func(args ...string) (int, string) {
		var out bytes.Buffer
		code := execute(t.Context(), append([]string{"registry", "token"}, args...), stdio{in: strings.NewReader(""), out: &out, err: &out})
		return code, out.String()
	}
	tokens, file := filepath.Join(dir, "tokens.yml"), filepath.Join(dir, "gpu001.token")
	if code, out := run("gpu001", "--out", file, "--tokens-file", tokens); code != 0 || strings.Contains(out, "token_sha256") {
		t.Fatalf("%d: %s", code, out)
	}
	token, err := os.ReadFile(file)
	if err != nil || len(token) != 65 {
		t.Fatalf("%q, %v", token, err)
	}
	sum := sha256.Sum256(bytes.TrimSpace(token))
	want := "- {token_sha256: " + hex.EncodeToString(sum[:]) + ", role: node, node: \"gpu001\"}\n"
	if data, err := os.ReadFile(tokens); err != nil || string(data) != want {
		t.Errorf("%q, %v; want %q", data, err, want)
	}
	for _, path := range []string{file, tokens} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", path, info.Mode(), err)
		}
	}
	if code, out := run("gpu001", "--out", file); code == 0 {
		t.Errorf("an existing file was overwritten: %s", out)
	}
	if code, out := run("--role", "operate", "--name", "eve", "--out", filepath.Join(dir, "eve")); code != 0 || !strings.HasSuffix(out, ", role: operate, name: \"eve\"}\n") {
		t.Errorf("%d: %s", code, out)
	}
	for _, args := range [][]string{{}, {"gpu001", "--role", "read"}, {"--role", "read"}, {"--name", "eve"}} {
		if code, out := run(append(args, "--out", filepath.Join(dir, "none"))...); code == 0 || !strings.Contains(out, "want a node, or --role and --name") {
			t.Errorf("%q: %d %s", args, code, out)
		}
	}
}
