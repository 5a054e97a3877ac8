// SPDX-License-Identifier: Apache-2.0

package action

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/ledger"
)

// parts decodes a list of targets as registry.yml has it.
func parts(t *testing.T, text string) []config.Part {
	t.Helper()
	var c struct {
		Targets []config.Part `yaml:"targets"`
	}
	if err := config.Strict("registry.yml", []byte(text), &c); err != nil {
		t.Fatal(err)
	}
	return c.Targets
}

func deps(dir string) Deps {
	return Deps{Resolve: func(file string) string { return filepath.Join(dir, file) }}
}

func TestWebhook(t *testing.T) {
	status := http.StatusOK
	var body []byte
	var head http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ = io.ReadAll(r.Body)
		head = r.Header
		if status == http.StatusFound {
			w.Header().Set("Location", "http://192.0.2.1/")
		}
		w.WriteHeader(status)
		_, _ = io.WriteString(w, "ticket 42\n")
	}))
	defer srv.Close()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "key"), []byte("s3cret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	targets, err := Open(parts(t, "targets: [{action: webhook, name: tickets, url: '"+srv.URL+"/hook', secret_file: key}]"), deps(dir))
	if err != nil {
		t.Fatal(err)
	}
	defer targets[0].Close()
	if targets[0].Name != "tickets" {
		t.Errorf("name %q", targets[0].Name)
	}
	o := Order{ID: 7, Node: "gpu001", Rack: "r01", Class: "h100", Action: ledger.ActionEvict, Hard: true, Reason: "no beat for 30s", Actor: "registry", Created: time.Unix(1e9, 0).UTC()}
	note, err := targets[0].Apply(t.Context(), o)
	if err != nil || !strings.Contains(note, "ticket 42") {
		t.Errorf("%q, %v", note, err)
	}
	mac := hmac.New(sha256.New, []byte("s3cret"))
	mac.Write([]byte(head.Get("X-Rackpulse-Timestamp") + "." + string(body)))
	if want := "sha256=" + hex.EncodeToString(mac.Sum(nil)); head.Get("X-Rackpulse-Signature") != want {
		t.Errorf("signature %q, want %q", head.Get("X-Rackpulse-Signature"), want)
	}
	if head.Get("Idempotency-Key") != "7-evict-true" {
		t.Errorf("key %q", head.Get("Idempotency-Key"))
	}
	var got map[string]any
	if err := json.Unmarshal(body, &got); err != nil || got["node"] != "gpu001" || got["rack_id"] != "r01" || got["hard"] != true || got["action"] != "evict" {
		t.Errorf("body %s, %v", body, err)
	}
	for _, status = range []int{http.StatusFound, http.StatusForbidden, http.StatusInternalServerError} {
		if note, err := targets[0].Apply(t.Context(), o); err == nil {
			t.Errorf("status %d is taken for success: %s", status, note)
		} else if strings.Contains(err.Error(), "s3cret") {
			t.Errorf("the key is in %v", err)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"{action: web}":                                                          `registry.yml:1: action "web" is none of`,
		"{action: webhook, url: 'ftp://h'}":                                      `registry.yml:1: action webhook: url "ftp://h"`,
		"{action: webhook, url: 'http://u:pass@h'}":                              "url holds a user",
		"{action: webhook, url: 'http://h', secret_file: no}":                    "secret_file",
		"{action: webhook, url: 'http://h', sekret: no}":                         "sekret",
		"{action: webhook, url: 'http://h'}, {action: webhook, url: 'http://i'}": `two targets are named "webhook"`,
	} {
		_, err := Open(parts(t, "targets: ["+text+"]"), deps(t.TempDir()))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		} else if strings.Contains(err.Error(), "pass@") {
			t.Errorf("a password is in %v", err)
		}
	}
}
