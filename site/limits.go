// SPDX-License-Identifier: Apache-2.0

package site

import (
	"bytes"
	_ "embed" // limits.yml
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

//go:embed limits.yml
var limitsFile []byte

const (
	gpuPrefix    = "gpu."
	ashraePrefix = "ashrae."
	defaultModel = "default"
)

// Limits are the thresholds that rules, node states and pages share. They live
// in limits.yml and nowhere else; a site file may override single values.
type Limits struct {
	// GPUModels holds the limits by GPU model name as NVML reports it, just as
	// declared; "default" applies to the rest. GPU joins the two.
	GPUModels map[string]GPULimits
	// ASHRAEClasses holds the inlet limits by thermal class.
	ASHRAEClasses map[string]ClassLimits

	values map[string]float64
}

// GPULimits are the thresholds of one GPU model; 0 means not known. Sources are
// in limits.yml.
type GPULimits struct {
	HotCelsius             float64 `yaml:"hot_celsius"`              // GPU temperature that counts as hot
	MemoryHotCelsius       float64 `yaml:"memory_hot_celsius"`       // memory temperature that counts as hot
	MaxOperatingCelsius    float64 `yaml:"max_operating_celsius"`    // the vendor's maximum in operation
	SlowdownCelsius        float64 `yaml:"slowdown_celsius"`         // hardware slowdown
	ShutdownCelsius        float64 `yaml:"shutdown_celsius"`         // hardware shutdown
	SlowdownMarginCelsius  float64 `yaml:"slowdown_margin_celsius"`  // T.Limit margin of hardware slowdown, negative
	ShutdownMarginCelsius  float64 `yaml:"shutdown_margin_celsius"`  // T.Limit margin of hardware shutdown, negative
	IdleUtilisationPercent float64 `yaml:"idle_utilisation_percent"` // below: idle
	BusyUtilisationPercent float64 `yaml:"busy_utilisation_percent"` // above: under load
	NVLinkCRCPerSecond     float64 `yaml:"nvlink_crc_per_second"`
	PCIeReplaysPerMinute   float64 `yaml:"pcie_replays_per_minute"`
	HWSlowdownsPerMinute   float64 `yaml:"hw_slowdown_events_per_minute"`
	RetiredPages           float64 `yaml:"retired_pages"`
}

// ClassLimits are the inlet air limits of one ASHRAE class, dry bulb and dew
// point in celsius, relative humidity as a ratio.
type ClassLimits struct {
	RecommendedMinCelsius float64 `yaml:"recommended_min_celsius"`
	RecommendedMaxCelsius float64 `yaml:"recommended_max_celsius"`
	InletMinCelsius       float64 `yaml:"allowable_min_celsius"`
	InletMaxCelsius       float64 `yaml:"allowable_max_celsius"`
	DewPointMinCelsius    float64 `yaml:"recommended_dew_point_min_celsius"`
	DewPointMaxCelsius    float64 `yaml:"recommended_dew_point_max_celsius"`
	HumidityMaxRatio      float64 `yaml:"recommended_humidity_max_ratio"`

	AllowableDewPointMinCelsius float64 `yaml:"allowable_dew_point_min_celsius"`
	AllowableDewPointMaxCelsius float64 `yaml:"allowable_dew_point_max_celsius"`
	AllowableHumidityMinRatio   float64 `yaml:"allowable_humidity_min_ratio"`
	AllowableHumidityMaxRatio   float64 `yaml:"allowable_humidity_max_ratio"`
}

// DefaultLimits returns the built-in limits.yml.
func DefaultLimits() *Limits {
	l, _ := parseLimits()
	return l
}

// parseLimits reads the built-in file; its error is for the test that keeps the
// file sound.
func parseLimits() (*Limits, error) {
	l := &Limits{values: map[string]float64{}}
	p := &parser{problems: problems{file: "limits.yml"}}
	var doc yaml.Node
	if err := yaml.NewDecoder(bytes.NewReader(limitsFile)).Decode(&doc); err != nil {
		return l, err
	}
	p.limit(l, "", doc.Content[0], func(string) bool { return true })
	l.fill()
	return l, p.err()
}

// Value returns one threshold by its dotted key, such as
// "gpu.default.hot_celsius" or "inlet.correlation_hot_celsius".
func (l *Limits) Value(key string) (float64, bool) {
	v, ok := l.values[key]
	return v, ok
}

// Keys returns the keys of Value, sorted.
func (l *Limits) Keys() []string { return slices.Sorted(maps.Keys(l.values)) }

// GPU returns the limits of a GPU model, each missing one taken from "default".
func (l *Limits) GPU(model string) GPULimits {
	out := l.GPUModels[defaultModel]
	own := reflect.ValueOf(l.GPUModels[model])
	for i := range own.NumField() {
		if !own.Field(i).IsZero() {
			reflect.ValueOf(&out).Elem().Field(i).Set(own.Field(i))
		}
	}
	return out
}

// ASHRAE returns the inlet limits of a thermal class; an empty class means A2.
func (l *Limits) ASHRAE(class string) (ClassLimits, bool) {
	if class == "" {
		class = "A2"
	}
	c, ok := l.ASHRAEClasses[class]
	return c, ok
}

// limits applies the overrides of a site file.
func (p *parser) limits(l *Limits, node *yaml.Node) {
	if node.Tag == "!!null" {
		return
	}
	known := maps.Clone(l.values)
	ofGPU := yamlFields(reflect.TypeFor[GPULimits]())
	p.limit(l, "", node, func(key string) bool {
		if _, ok := known[key]; ok {
			return true
		}
		_, isField := ofGPU[key[strings.LastIndex(key, ".")+1:]]
		return isField && strings.HasPrefix(key, gpuPrefix) && strings.Count(key, ".") > 1
	})
	l.fill()
	hot, clear := l.values["inlet.correlation_hot_celsius"], l.values["inlet.correlation_clear_celsius"]
	if clear > hot {
		p.add(node.Line, "limits.inlet", "correlation_clear_celsius %g is above correlation_hot_celsius %g", clear, hot)
	}
}

// limit reads node, a mapping or a number, at a dotted key.
func (p *parser) limit(l *Limits, key string, node *yaml.Node, known func(key string) bool) {
	path := "limits"
	if key != "" {
		path += "." + key
	}
	if node.Kind == yaml.MappingNode && strings.Count(key, ".") < 3 {
		p.pairs(path, node, func(name string, value *yaml.Node) bool {
			p.limit(l, strings.TrimPrefix(key+"."+name, "."), value, known)
			return true
		})
		return
	}
	var v float64
	switch {
	case node.Kind != yaml.ScalarNode || node.Decode(&v) != nil:
		p.add(node.Line, path, "want a number, got %s", describe(node))
	case !known(key):
		p.add(node.Line, path, "unknown key")
	case !inRange(key, v):
		p.add(node.Line, path, "%s is out of range for this unit", node.Value)
	default:
		l.values[key] = v
	}
}

// inRange catches mixed-up units: 85 where a ratio is wanted, or kelvin.
func inRange(key string, v float64) bool {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return false
	case strings.HasSuffix(key, "_ratio"):
		return v >= 0 && v <= 2
	case strings.HasSuffix(key, "_percent"):
		return v >= 0 && v <= 100
	case strings.HasSuffix(key, "_celsius"):
		return v >= -100 && v <= 200
	default:
		return v >= 0 && v <= maxNumber
	}
}

// fill builds the typed tables from the values.
func (l *Limits) fill() {
	l.GPUModels = map[string]GPULimits{}
	l.ASHRAEClasses = map[string]ClassLimits{}
	for key, v := range l.values {
		if name, field, ok := cutKey(key, gpuPrefix); ok {
			one := l.GPUModels[name]
			setField(&one, field, v)
			l.GPUModels[name] = one
		}
		if name, field, ok := cutKey(key, ashraePrefix); ok {
			one := l.ASHRAEClasses[name]
			setField(&one, field, v)
			l.ASHRAEClasses[name] = one
		}
	}
}

// cutKey cuts "gpu.NVIDIA H200.hot_celsius" into its model and field.
func cutKey(key, prefix string) (name, field string, ok bool) {
	rest, ok := strings.CutPrefix(key, prefix)
	dot := strings.LastIndex(rest, ".")
	if !ok || dot < 0 {
		return "", "", false
	}
	return rest[:dot], rest[dot+1:], true
}

func setField(to any, key string, v float64) {
	s := reflect.ValueOf(to).Elem()
	if i, ok := yamlFields(s.Type())[key]; ok {
		s.Field(i).SetFloat(v)
	}
}
