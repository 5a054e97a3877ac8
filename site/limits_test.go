// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	"reflect"
	"slices"
	"strings"
	"testing"
)

func TestLimitsFile(t *testing.T) {
	l, err := parseLimits()
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]float64{
		"gpu.default.hot_celsius":                           85,
		"gpu.default.idle_utilisation_percent":              10,
		"gpu.NVIDIA A100-SXM4-80GB.shutdown_celsius":        92,
		"gpu.NVIDIA H100 80GB HBM3.slowdown_celsius":        89,
		"gpu.NVIDIA H100 80GB HBM3.shutdown_margin_celsius": -8,
		"inlet.correlation_hot_celsius":                     28,
		"inlet.correlation_clear_celsius":                   27,
		"ashrae.H1.recommended_max_celsius":                 22,
		"ashrae.A1.allowable_max_celsius":                   32,
		"correlation.rack_gpu_share_ratio":                  0.25,
		"pdu.load_warn_ratio":                               0.8,
	} {
		if got, ok := l.Value(key); !ok || got != want {
			t.Errorf("%s: got %v %v, want %v", key, got, ok, want)
		}
	}
	if _, ok := l.Value("gpu.default"); ok {
		t.Error("a mapping has a value")
	}
	keys := l.Keys()
	if !slices.IsSorted(keys) || !slices.Contains(keys, "pdu.load_warn_ratio") {
		t.Errorf("keys %v", keys)
	}
}

// TestLimitsAreTyped holds the file against the structs: no key of a GPU model
// or class may be missing from its struct, nor a field from the file.
func TestLimitsAreTyped(t *testing.T) {
	l := DefaultLimits()
	for prefix, fields := range map[string]map[string]int{
		"gpu.":    yamlFields(reflect.TypeFor[GPULimits]()),
		"ashrae.": yamlFields(reflect.TypeFor[ClassLimits]()),
	} {
		seen := map[string]bool{}
		for _, key := range l.Keys() {
			if _, field, ok := cutKey(key, prefix); ok {
				seen[field] = true
				if _, known := fields[field]; !known {
					t.Errorf("%s has no field", key)
				}
			}
		}
		for field := range fields {
			if !seen[field] {
				t.Errorf("%s*.%s is never set", prefix, field)
			}
		}
	}
	for _, class := range ashraeClasses {
		c, ok := l.ASHRAE(class)
		if !ok || c.InletMinCelsius > c.RecommendedMinCelsius || c.RecommendedMinCelsius >= c.RecommendedMaxCelsius ||
			c.RecommendedMaxCelsius > c.InletMaxCelsius {
			t.Errorf("%s: %+v", class, c)
		}
	}
	if len(l.ASHRAEClasses) != len(ashraeClasses) {
		t.Errorf("classes %v", l.ASHRAEClasses)
	}
	for model := range l.GPUModels {
		g := l.GPU(model)
		if g.SlowdownCelsius != 0 && (g.HotCelsius > g.SlowdownCelsius || g.ShutdownCelsius != 0 && g.SlowdownCelsius > g.ShutdownCelsius) {
			t.Errorf("%s: hot %g slowdown %g shutdown %g", model, g.HotCelsius, g.SlowdownCelsius, g.ShutdownCelsius)
		}
	}
}

// TestLimitsHaveSources: every number of limits.yml has a comment, on its own
// line or at the head of its block.
func TestLimitsHaveSources(t *testing.T) {
	commented := false // the block's head had a comment
	for i, line := range strings.Split(string(bytes.TrimSpace(limitsFile)), "\n") {
		switch trimmed := strings.TrimSpace(line); {
		case strings.HasPrefix(trimmed, "#"):
			commented = true
		case trimmed == "":
			commented = false
		case strings.HasSuffix(trimmed, ":"), strings.Contains(line, "#"), commented:
		default:
			t.Errorf("line %d has no source: %s", i+1, line)
		}
	}
}

func TestLimitsOfModel(t *testing.T) {
	l := DefaultLimits()
	h100 := l.GPU("NVIDIA H100 80GB HBM3")
	if h100.HotCelsius != 85 || h100.SlowdownCelsius != 89 || h100.ShutdownMarginCelsius != -8 || h100.IdleUtilisationPercent != 10 {
		t.Errorf("%+v", h100)
	}
	if other := l.GPU("Some GPU"); other != l.GPUModels["default"] || other.SlowdownCelsius != 0 {
		t.Errorf("%+v", other)
	}
	if a2, ok := l.ASHRAE(""); !ok || a2.InletMaxCelsius != 35 {
		t.Errorf("%+v", a2)
	}
	if _, ok := l.ASHRAE("B9"); ok {
		t.Error("unknown class")
	}
}

func TestLimitsOverride(t *testing.T) {
	s := parse(t, `
site: {id: s1}
limits:
  gpu:
    default: {hot_celsius: 80}
    NVIDIA X1.5 PCIe: {slowdown_celsius: 101, shutdown_margin_celsius: -9}
  inlet: {correlation_hot_celsius: 30}
`)
	if v, ok := s.Limits.Value("inlet.correlation_hot_celsius"); !ok || v != 30 {
		t.Errorf("inlet %v %v", v, ok)
	}
	x1 := s.Limits.GPU("NVIDIA X1.5 PCIe")
	if x1.HotCelsius != 80 || x1.SlowdownCelsius != 101 || x1.ShutdownMarginCelsius != -9 {
		t.Errorf("%+v", x1)
	}
	if DefaultLimits().GPU("").HotCelsius != 85 {
		t.Error("an override leaked into the defaults")
	}
}
