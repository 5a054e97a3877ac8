// SPDX-License-Identifier: Apache-2.0

//go:build race

package rules

// The race detector takes five times the time and memory: what measures or plays
// for long does little under it.
func init() { raced = true }
