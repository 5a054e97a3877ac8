// SPDX-License-Identifier: Apache-2.0

package site

// Limits are the thresholds that rules, node states and pages share. They live
// in limits.yml and nowhere else; a site file may override single values.
type Limits struct {
	// GPUModels holds the limits by GPU model name; "default" applies to the rest.
	GPUModels map[string]GPULimits `yaml:"gpu_models"`
	// ASHRAEClasses holds the inlet limits by thermal class.
	ASHRAEClasses map[string]ClassLimits `yaml:"ashrae_classes"`
}

// GPULimits are the thresholds of one GPU model.
type GPULimits struct {
	HotCelsius float64 `yaml:"hot_celsius"` // GPU temperature that counts as hot
}

// ClassLimits are the inlet air limits of one ASHRAE class.
type ClassLimits struct {
	InletMaxCelsius float64 `yaml:"inlet_max_celsius"` // allowable maximum, dry bulb
}
