// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-kit/log"

	"github.com/rackpulse/rackpulse/sim"
)

// SourceConfig is what a source needs to know. It goes to the child process as a
// whole but for Sim, which serves sources in the agent's own process.
type SourceConfig struct {
	// Fields are the metric names to read, such as DCGM_FI_DEV_GPU_TEMP. A source
	// leaves out those that it does not know.
	Fields []string
	// Labels are the fields whose text goes into Device.Labels.
	Labels []string
	// Interval is how often Read will be called.
	Interval time.Duration
	// SlowInterval is how often the slow fields are to be read; 0: every time.
	SlowInterval time.Duration
	// ProcessInterval is how often the processes are listed; 0: never.
	ProcessInterval time.Duration
	// DCGMAddress is the nv-hostengine to connect to, "tcp://host:port" or
	// "unix:///path"; empty: DCGM runs inside the process.
	DCGMAddress string
	// HealthInterval is how often DCGM is to check the health of each GPU; 0: never.
	HealthInterval time.Duration
	// P2P says that the ways between GPUs over NVLink are to be read.
	P2P bool
	// CallBudget is how long a call beside the passes may take before it is overdue.
	CallBudget time.Duration
	// Devices and Exclude say which devices to read, see Config. What a source reads
	// beyond them is not shown.
	Devices string
	Exclude []string
	// Sim returns this node in the simulated hall; nil: no simulation. Functions
	// do not travel to a child.
	Sim SimFunc
}

// reconfigurer is a Source that can be told to read other fields, or at other
// intervals, while it runs. After an error it is to be closed.
type reconfigurer interface {
	Reconfigure(ctx context.Context, cfg SourceConfig) error
}

// slowDue tells whether the slow fields, last read at a time, are to be read again.
// Half an interval of tolerance keeps a tick that comes early from costing a whole one.
func (c *SourceConfig) slowDue(last, now time.Time) bool {
	return last.IsZero() || now.Sub(last) >= c.SlowInterval-c.Interval/2
}

// SimFunc returns the simulated node's state at a time, or false where the hall
// has no such node.
type SimFunc func(now time.Time) (*sim.Node, bool)

// Factory opens a source. It fails at once and says why where the source cannot
// work on this machine. It keeps to ctx's deadline as far as its library lets it.
type Factory func(ctx context.Context, cfg SourceConfig, logger log.Logger) (Source, error)

// registration is one kind of source.
type registration struct {
	name string
	// priority orders the kinds that "auto" tries; the lowest first.
	priority int
	// child says that the source runs in the child process, because its library
	// may hang or crash.
	child bool
	open  Factory
}

var registry = map[string]registration{}

// register adds a kind of source; for init functions only.
func register(r registration) {
	if _, dup := registry[r.name]; dup {
		panic("gpu: source " + r.name + " registered twice")
	}
	registry[r.name] = r
}

// SourceNames returns the kinds of sources of this build, in the order in which
// "auto" tries them.
func SourceNames() []string {
	list := make([]registration, 0, len(registry))
	for _, r := range registry {
		list = append(list, r)
	}
	slices.SortFunc(list, func(a, b registration) int { return a.priority - b.priority })
	names := make([]string, len(list))
	for i, r := range list {
		names[i] = r.name
	}
	return names
}

// simName is the simulator's source; "auto" takes it only when a simulation was
// asked for.
const simName = "sim"

// candidates returns the kinds that a configured source name stands for.
func candidates(source string, simulate bool) ([]registration, error) {
	if source != "auto" {
		r, ok := registry[source]
		if !ok {
			return nil, fmt.Errorf("unknown GPU source %q (this build has auto, %s)", source, strings.Join(SourceNames(), ", "))
		}
		if source == simName && !simulate {
			return nil, fmt.Errorf("GPU source sim: no simulation was asked for (--simulate)")
		}
		return []registration{r}, nil
	}
	var list []registration
	for _, name := range SourceNames() {
		if name != simName || simulate {
			list = append(list, registry[name])
		}
	}
	return list, nil
}
