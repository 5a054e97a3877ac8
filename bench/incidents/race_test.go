// SPDX-License-Identifier: Apache-2.0

//go:build race

package incidents

// raceDetector makes everything ten times slower.
const raceDetector = true
