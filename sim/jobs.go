// SPDX-License-Identifier: Apache-2.0

package sim

import "math"

// A share of idleShare of all job slots is idle; the others run at a plateau
// between minUtil and maxUtil.
const idleShare, minUtil, maxUtil = .15, .42, .93

// golden spreads a sequence evenly over [0, 1): at any time about idleShare of
// the groups is idle, whatever the seed.
const golden = 0.6180339887498949

// group is a set of nodes that work on one job at a time. Jobs start and end on
// all of them at once (synchronous training).
type group struct {
	stream uint64
	index  int
	size   int
	length int64 // seconds per job slot
	nodes  []*node

	stall  float64 // control: share of work that goes on
	util   float64 // plateau of the running job; 0: idle
	tensor float64 // share of the busy time that tensor cores work
	dram   float64
}

// step sets the plateau for step n. It is a pure function of time.
func (g *group) step(n int64) {
	at := n + int64(uniform(g.stream, -3)*float64(g.length))
	slot := at / g.length
	if at < 0 {
		slot = -1
	}
	_, idle := math.Modf(float64(g.index)*golden + float64(slot+2)*math.Sqrt2 + uniform(g.stream, -4)*.1)
	g.util = 0
	if idle >= idleShare {
		g.util = between(g.stream, 2*slot, minUtil, maxUtil) * g.stall
	}
	g.tensor = between(g.stream, 2*slot+1, .35, .7)
	g.dram = .9 - .6*g.tensor
}
