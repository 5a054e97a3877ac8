// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/rackpulse/rackpulse/collector/facility"
	"github.com/rackpulse/rackpulse/collector/gpu"
	"github.com/rackpulse/rackpulse/sim"
	"github.com/rackpulse/rackpulse/site"
)

// simFlags are the flags of the simulated hall.
type simFlags struct {
	on       bool
	scenario string
	speed    float64
}

func (f *simFlags) register(cmd *kingpin.CmdClause) {
	var names []string
	for _, s := range sim.Scenarios() {
		names = append(names, s.Name)
	}
	cmd.Flag("simulate", "Show the simulated hall instead of hardware; everything it shows is marked as simulated.").BoolVar(&f.on)
	cmd.Flag("scenario", "What happens in the simulated hall: "+strings.Join(names, ", ")+".").StringVar(&f.scenario)
	cmd.Flag("speed", "How much faster than real time the physics of the simulated hall run.").Float64Var(&f.speed)
}

// newHall builds the simulated hall; flags win over the file.
func newHall(cfg simulateConfig, flags simFlags, now time.Time) (*sim.Hall, *site.Site, error) {
	hallSite, err := site.Example()
	if cfg.SiteFile != "" {
		hallSite, err = site.Load(cfg.SiteFile)
	}
	if err != nil {
		return nil, nil, err
	}
	if cfg.Epoch.IsZero() {
		cfg.Epoch = now.UTC().Truncate(24 * time.Hour)
	}
	if flags.scenario != "" {
		cfg.Scenario = flags.scenario
	}
	if flags.speed != 0 {
		cfg.Speed = flags.speed
	}
	hall, err := sim.New(sim.Spec{Site: hallSite, Scenario: cfg.Scenario, Seed: cfg.Seed, Epoch: cfg.Epoch, Speed: cfg.Speed, Onset: cfg.Onset})
	if err != nil {
		return nil, nil, fmt.Errorf("simulate: %w", err)
	}
	return hall, hallSite, nil
}

// simNode returns one node of the hall as a GPU source reads it.
func simNode(hall *sim.Hall, node string) gpu.SimFunc {
	return func(now time.Time) (*sim.Node, bool) {
		n, ok := hall.At(now).Nodes[node]
		return n, ok
	}
}

// simDevices lists every facility device of the site under the simulated driver.
func simDevices(s *site.Site) []facility.DeviceConfig {
	var out []facility.DeviceConfig
	for _, d := range s.Devices() {
		one := facility.DeviceConfig{Device: d.ID, Kind: d.Kind, Driver: "sim", Interval: 5 * time.Second}
		if d.Kind == site.KindPDU {
			one.Sample = facility.MaxSample
		}
		out = append(out, one)
	}
	return out
}

// sensorMeasures tells what a sensor of the site measures.
func sensorMeasures(s *site.Site) func(string) string {
	measures := map[string]string{}
	for _, sensor := range s.Sensors {
		measures[sensor.ID] = sensor.Measures
	}
	return func(id string) string { return measures[id] }
}
