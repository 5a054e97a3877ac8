// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// gravity orders the states of a node that beats, from sound to grave.
func gravity(s State) int { return slices.Index([]State{Ready, Limited, Degraded, Isolated}, s) }

// allBreaches are the limits that n breaches, told by its agent or by alerts.
func (g *gpuSet) allBreaches() []string {
	if len(g.alerts) == 0 {
		return g.breaches
	}
	all := slices.Concat(g.breaches, g.alerts)
	slices.Sort(all)
	return slices.Compact(all)
}

// gradeOf is the state that breaches stand for, on top of another fault's: a
// breach is the name of a limit, then, after a blank, whatever tells more. The
// names in c.Isolate take a node's work away, all others only keep new work off.
func (c *Config) gradeOf(breaches []string, base State) State {
	grade := base
	for _, b := range breaches {
		name, _, _ := strings.Cut(b, " ")
		if slices.Contains(c.Isolate, name) {
			return Isolated
		}
		if grade == Ready {
			grade = Limited
		}
	}
	return grade
}

// alert makes breaches, told by firing alerts, those of a node: they count like
// the agent's own, from two beats on, until they are told to be over, or for the
// time life.
func (c *core) alert(id string, breaches []string, life time.Duration, now time.Time) error {
	v := c.clock(now)
	n, err := c.find(id)
	if err != nil {
		return err
	}
	if len(breaches) > maxBreaches {
		return fmt.Errorf("node %q: %d breaches, at most %d are taken", id, len(breaches), maxBreaches)
	}
	for _, b := range breaches {
		if b == "" || len(b) > maxText {
			return fmt.Errorf("node %q: a breach of %d bytes, want 1 to %d", id, len(b), maxText)
		}
	}
	g := n.health()
	g.alerts, g.alertsUntil = slices.Clone(breaches), v+int64(life)
	c.compare(n)
	return nil
}
