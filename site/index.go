// SPDX-License-Identifier: Apache-2.0

package site

// index holds the look-up tables of a Site, built once after validation.
type index struct {
	nodes   map[string]*Node
	racks   map[string]*Rack
	classes map[string]*NodeClass
	devices map[string]Device
	order   []string // device ids in file order
}
