// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"strings"
	"time"
)

// floodGate lets a bounded number of the driver's lines through, and beyond it
// the first of each kind in a second, so that a thousand clean-ups (XID 45) do
// not hide the fault behind them.
type floodGate struct {
	tokens int
	at     time.Time
	kinds  map[string]bool
}

const (
	floodBurst = 20000 // lines at once; one job's end wrote 11760 (NVSentinel #1748)
	floodRate  = 2000  // lines a second after that, each some microseconds of work
	floodKinds = 64
)

func (g *floodGate) pass(line string, now time.Time) bool {
	switch seconds := now.Sub(g.at) / time.Second; {
	case g.at.IsZero():
		g.tokens, g.at = floodBurst, now
	case seconds > 0:
		g.tokens = min(floodBurst, g.tokens+floodRate*int(min(seconds, floodBurst)))
		g.at = g.at.Add(seconds * time.Second)
		clear(g.kinds)
	case seconds < 0: // the clock was set back
		g.at = now
	}
	if g.tokens > 0 {
		g.tokens--
		return true
	}
	kind := lineKind(line)
	if g.kinds[kind] || len(g.kinds) >= floodKinds {
		return false
	}
	if g.kinds == nil {
		g.kinds = make(map[string]bool)
	}
	g.kinds[kind] = true
	return true
}

// lineKind is the GPU and code of a line, "(PCI:0000:0f:00): 45", or how its
// message begins.
func lineKind(line string) string {
	if i := strings.Index(line, "Xid ("); i >= 0 {
		kind := line[i:min(i+64, len(line))]
		kind, _, _ = strings.Cut(kind, ",")
		return kind
	}
	i := max(strings.Index(line, "NVRM: "), 0)
	return line[i:min(i+40, len(line))]
}
