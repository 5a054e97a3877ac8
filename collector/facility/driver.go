// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"

	"github.com/go-kit/log"

	"github.com/rackpulse/rackpulse/sim"
	"github.com/rackpulse/rackpulse/site"
)

// Factory checks a device's configuration and says how to open it. It touches
// no device, so that a whole configuration can be checked before any of it is
// used. An error is a configuration error.
type Factory func(FactoryConfig) (Plan, error)

// Plan is a checked configuration of one device.
type Plan struct {
	// Open opens the device; it keeps to ctx's deadline. The driver outlives ctx.
	Open func(ctx context.Context) (Driver, error)
	// Serves are the ids of other devices whose values come through this one.
	Serves []string
	// Exclusive names what can be open only once, such as the path of a serial
	// line: a reload closes it before it opens it again, and no two entries may
	// share it. Empty: nothing.
	Exclusive string
	// Shared names a line that several entries may use, one at a time, such as a
	// bus with many devices. SharedAs are its settings; they must be equal.
	Shared, SharedAs string
	// Fastest is the shortest time between two reads where the device may be
	// sampled fast; 0: it may not.
	Fastest time.Duration
	// Simulated says that the values are not real.
	Simulated bool
}

// ErrGone is wrapped by the error of Driver.Read when the device has to be
// closed and opened again, such as an unplugged adapter.
var ErrGone = errors.New("device is gone")

// FactoryConfig is what a driver is made from.
type FactoryConfig struct {
	// Device is the device of the entry. Its Kind is empty as long as neither
	// the configuration nor the registry has told it.
	Device site.Device
	// Kind tells the kind of any device by its id, or "" when it is not known.
	Kind func(id string) string
	// Interval is the time between two reads, Deadline the longest time for one.
	Interval, Deadline time.Duration
	// Profile and Address are the entry's keys of that name, or empty.
	Profile, Address string
	// ProfileFile is the path of the entry's own profile, or empty.
	ProfileFile string
	// Decode decodes the block of the entry that is named after the driver into
	// v, strictly. Without such a block v stays as it is.
	Decode func(v any) error
	// Resolve returns the path that the block means: one that is not absolute
	// counts from the folder of the configuration file.
	Resolve func(path string) string
	Logger  log.Logger
	// SimState is the simulated hall at a time; nil where none runs.
	SimState func(now time.Time) *sim.State
	// Measures tells what a simulated sensor measures (site.Sensor.Measures).
	Measures func(sensor string) string

	buses *modbusBuses // of all entries of a Runner
}

// Info describes a driver for lists.
type Info struct{ Name, About string }

type driverEntry struct {
	about   string
	factory Factory
}

// drivers holds the factories of this binary, filled by init functions.
var drivers = map[string]driverEntry{}

// Register makes a driver known under its name; about is one line for lists.
// It is called from init functions and panics when a name is taken.
func Register(name, about string, f Factory) {
	if _, dup := drivers[name]; dup {
		panic("facility: driver " + name + " is registered twice")
	}
	drivers[name] = driverEntry{about: about, factory: f}
}

// Drivers lists the registered drivers by name.
func Drivers() []Info {
	list := make([]Info, 0, len(drivers))
	for name, d := range drivers {
		list = append(list, Info{Name: name, About: d.about})
	}
	sort.Slice(list, func(i, j int) bool { return list[i].Name < list[j].Name })
	return list
}

func factoryOf(name string) (Factory, error) {
	if d, ok := drivers[name]; ok {
		return d.factory, nil
	}
	var names []string
	for _, d := range Drivers() {
		names = append(names, d.Name)
	}
	return nil, fmt.Errorf("unknown driver %q; known are %s", name, strings.Join(names, ", "))
}
