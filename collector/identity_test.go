// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"bytes"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

func TestIdentityCache(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "identity.json")
	none, err := LoadIdentity(path)
	if err != nil || none.Origin != "none" || len(none.Node) != 0 {
		t.Errorf("no file: %+v, %v", none, err)
	}
	for range 2 { // the second replaces the first
		if err := SaveIdentity(path, testIdentity); err != nil {
			t.Fatal(err)
		}
	}
	got, err := LoadIdentity(path)
	want := testIdentity
	want.Origin = "cache"
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v (%v), want %+v", got, err, want)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v (%v)", info.Mode(), err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
}

func TestSaveIdentityKeepsTheOldFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "identity.json")
	if err := os.Mkdir(path, 0o700); err != nil { // cannot be replaced by a file
		t.Fatal(err)
	}
	if err := SaveIdentity(path, testIdentity); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("error %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*.tmp*")); len(left) != 0 {
		t.Errorf("left behind: %v", left)
	}
	huge := Identity{Node: map[string]string{"node": strings.Repeat("x", maxIdentityFile)}}
	if err := SaveIdentity(filepath.Join(dir, "other"), huge); err == nil {
		t.Error("no error for a huge identity")
	}
}

func TestBadIdentityCache(t *testing.T) {
	for content, want := range map[string]string{
		"":                              "unexpected end of JSON input",
		`{"node":{"node":"gpu001"}`:     "unexpected end of JSON input",
		`{"node":["gpu001"]}`:           "cannot unmarshal",
		`{"node":{"rack id":"r1"}}`:     `node: invalid label name "rack id"`,
		`{"devices":{"d":{"a-b":"x"}}}`: `device d: invalid label name "a-b"`,
		string(bytes.Repeat([]byte(" "), maxIdentityFile+1)): "larger than 1048576 bytes",
	} {
		path := filepath.Join(t.TempDir(), "identity.json")
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		id, err := LoadIdentity(path)
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), path) || id.Origin != "none" {
			t.Errorf("%.40q: %+v, %v; want %q", content, id, err, want)
		}
	}
	// A file of a later version may say more.
	path := filepath.Join(t.TempDir(), "identity.json")
	if err := os.WriteFile(path, []byte(`{"format":2,"node":{"node":"gpu001"}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if id, err := LoadIdentity(path); err != nil || id.Node["node"] != "gpu001" {
		t.Errorf("%+v, %v", id, err)
	}
}

func node(origin string, labels ...string) Identity {
	id := Identity{Origin: origin, Node: map[string]string{}}
	for i := 0; i < len(labels); i += 2 {
		id.Node[labels[i]] = labels[i+1]
	}
	return id
}

func TestMergeIdentity(t *testing.T) {
	own := node("config", "node", "gpu001")
	registry := node("registry", "node", "gpu001", "rack_id", "r01")
	cache := node("cache", "node", "gpu001", "rack_id", "r07")
	for name, c := range map[string]struct{ own, registry, cache, want Identity }{
		"nothing":             {Identity{}, Identity{}, Identity{}, node("none")},
		"configuration alone": {own, Identity{}, Identity{}, node("config", "node", "gpu001")},
		"registry":            {own, registry, cache, node("registry", "node", "gpu001", "rack_id", "r01")},
		"cache meanwhile":     {own, Identity{Origin: "none"}, cache, node("cache", "node", "gpu001", "rack_id", "r07")},
		"configured rack":     {node("", "node", "gpu001", "rack_id", "r09"), registry, cache, node("config", "node", "gpu001", "rack_id", "r09")},
		"no rack any more":    {own, node("registry", "node", "gpu001"), cache, node("config", "node", "gpu001")},
		"cache of another":    {node("", "node", "gpu002"), Identity{}, cache, node("config", "node", "gpu002")},
		"registry knows name": {Identity{}, registry, Identity{}, node("registry", "node", "gpu001", "rack_id", "r01")},
	} {
		got := MergeIdentity(c.own, c.registry, c.cache)
		if !reflect.DeepEqual(got.Node, c.want.Node) || got.Origin != c.want.Origin {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

func TestMergeIdentityOfDevices(t *testing.T) {
	own := Identity{Devices: map[string]map[string]string{"r01-a": {"pdu_id": "r01-a"}}}
	cache := Identity{Origin: "cache", Devices: map[string]map[string]string{
		"r01-a": {"pdu_id": "other", "rack_id": "r01"}, "r01-b": {"pdu_id": "r01-b", "rack_id": "r01"},
	}}
	got := MergeIdentity(own, Identity{}, cache)
	want := map[string]map[string]string{
		"r01-a": {"pdu_id": "r01-a", "rack_id": "r01"}, "r01-b": {"pdu_id": "r01-b", "rack_id": "r01"},
	}
	if !reflect.DeepEqual(got.Devices, want) || got.Origin != "cache" {
		t.Errorf("got %+v", got)
	}
	if len(own.Devices["r01-a"]) != 1 {
		t.Error("the argument was changed")
	}
}
