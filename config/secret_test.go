// SPDX-License-Identifier: Apache-2.0

package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-kit/log"
	"gopkg.in/yaml.v3"
)

func write(t *testing.T, text string, mode os.FileMode) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, mode); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestReadSecret(t *testing.T) {
	for in, want := range map[string]string{
		"hunter2": "hunter2", "hunter2\n": "hunter2", "hunter2\r\n": "hunter2",
		"hunter2\n\n": "hunter2\n", " a b ": " a b ",
	} {
		s, err := ReadSecret(write(t, in, 0o640))
		if err != nil || s.Reveal() != want {
			t.Errorf("%q: got %q, %v", in, s.Reveal(), err)
		}
	}
	if (Secret{}).Reveal() != "" {
		t.Error("zero secret has a value")
	}
}

func TestReadSecretRefuses(t *testing.T) {
	open := write(t, "hunter2", 0o644)
	dir := t.TempDir()
	tests := []struct{ path, want string }{
		{open, open + ": everybody may read this secret (mode 0644); run: chmod o-r " + open},
		{write(t, "\n", 0o600), "the secret is empty"},
		{write(t, "", 0o600), "the secret is empty"},
		{write(t, strings.Repeat("x", 64<<10+1), 0o600), "file is larger than 65536 bytes"},
		{dir, dir + ": want a regular file"},
	}
	for _, tt := range tests {
		if _, err := ReadSecret(tt.path); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.path, err, tt.want)
		}
	}
	if _, err := ReadSecret(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if _, err := ReadSecret(write(t, strings.Repeat("x", 64<<10), 0o600)); err != nil {
		t.Errorf("largest secret: %v", err)
	}
}

// TestSecretIsNeverPrinted tries every way a value gets out by accident.
func TestSecretIsNeverPrinted(t *testing.T) {
	s, err := ReadSecret(write(t, "hunter2", 0o600))
	if err != nil {
		t.Fatal(err)
	}
	type holder struct {
		Public  Secret
		private Secret
		Ptr     *Secret
	}
	h := holder{s, s, &s}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%T", "%t", "%p"} {
		fmt.Fprintf(&out, verb+"\n", s)
		fmt.Fprintf(&out, verb+"\n", &s)
		fmt.Fprintf(&out, verb+"\n", h)
		fmt.Fprintf(&out, verb+"\n", []Secret{s})
	}
	for _, marshal := range []func(any) ([]byte, error){json.Marshal, yaml.Marshal} {
		for _, v := range []any{s, &s, h, map[string]Secret{"a": s}, []Secret{s}} {
			data, err := marshal(v)
			if err != nil {
				t.Fatal(err)
			}
			out.Write(data)
		}
	}
	for _, l := range []log.Logger{log.NewLogfmtLogger(&out), log.NewJSONLogger(&out)} {
		if err := l.Log("secret", s, "ptr", &s, "holder", fmt.Sprint(h)); err != nil {
			t.Fatal(err)
		}
	}
	text := out.String()
	for _, leak := range []string{"hunter2", "68756e74657232", "104 117 110", fmt.Sprintf("%X", "hunter2")} {
		if strings.Contains(text, leak) {
			t.Errorf("printed %q in\n%s", leak, text)
		}
	}
	if !strings.Contains(text, "<secret>") {
		t.Errorf("no <secret> in\n%s", text)
	}
}

func TestSecretEqual(t *testing.T) {
	a, b := "x", "x"
	c := "y"
	if !(Secret{&a}).Equal(Secret{&b}) || (Secret{&a}).Equal(Secret{&c}) || (Secret{&a}).Equal(Secret{}) {
		t.Error("wrong comparison")
	}
}

func TestSecretNotInline(t *testing.T) {
	var v struct {
		Password Secret `yaml:"password"`
	}
	if err := Strict("a.yml", []byte("password: hunter2\n"), &v); err == nil || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("got %v", err)
	}
}

// TestReplaceFile: the new file is whole and private; when it cannot be put in
// place the old one stays, and nothing is left behind.
func TestReplaceFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "state")
	for _, text := range []string{"one", "two"} {
		if err := ReplaceFile(path, []byte(text)); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if info, _ := os.Stat(path); err != nil || string(got) != text || info.Mode().Perm() != 0o600 {
			t.Errorf("%q, %v, %v", got, err, info.Mode())
		}
	}
	folder := filepath.Join(dir, "folder")
	if err := os.MkdirAll(filepath.Join(folder, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := ReplaceFile(folder, nil); err == nil {
		t.Error("a folder was replaced by a file")
	}
	if err := ReplaceFile(filepath.Join(dir, "none", "x"), nil); err == nil {
		t.Error("wrote into a folder that is not there")
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 2 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

func TestReadFile(t *testing.T) {
	path := write(t, "12345", 0o600)
	if data, err := ReadFile(path, 5); err != nil || string(data) != "12345" {
		t.Errorf("%q %v", data, err)
	}
	if _, err := ReadFile(path, 4); err == nil || err.Error() != path+": file is larger than 4 bytes" {
		t.Errorf("got %v", err)
	}
	if _, err := ReadFile(path+"x", 4); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
}

func TestResolve(t *testing.T) {
	for _, tt := range [][3]string{
		{"/etc/rackpulse/agent.yml", "ca.pem", "/etc/rackpulse/ca.pem"},
		{"/etc/rackpulse/agent.yml", "../ca.pem", "/etc/ca.pem"},
		{"/etc/rackpulse/agent.yml", "/ca.pem", "/ca.pem"},
		{"/etc/rackpulse/agent.yml", "", ""},
		{"agent.yml", "ca.pem", "ca.pem"},
		{"", "ca.pem", "ca.pem"},
	} {
		if got := Resolve(tt[0], tt[1]); got != tt[2] {
			t.Errorf("Resolve(%q, %q) = %q, want %q", tt[0], tt[1], got, tt[2])
		}
	}
}
