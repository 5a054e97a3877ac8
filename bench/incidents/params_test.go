// SPDX-License-Identifier: Apache-2.0

// Package incidents is the incident benchmark: seeded faults with known causes in
// the simulated hall, in virtual time, judged by the rules, by explain, and by
// two baselines over the same data. See docs/incidents.md.
package incidents

import (
	"bytes"
	"crypto/sha256"
	_ "embed" // parameters.yml
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/rackpulse/rackpulse/site"
)

//go:embed parameters.yml
var parametersFile []byte

// span is a uniform range.
type span [2]float64

func (s span) draw(r *rand.Rand) float64 { return s[0] + (s[1]-s[0])*r.Float64() }

func (s span) minutes(r *rand.Rand) time.Duration { return seconds(60 * s.draw(r)) }

func seconds(v float64) time.Duration {
	return time.Duration(v * float64(time.Second)).Round(time.Second)
}

func minutes(v float64) time.Duration { return seconds(60 * v) }

// confounder is something else that goes on beside an incident.
type confounder struct {
	Chance  float64 `yaml:"chance"`
	To      span    `yaml:"to"`
	Seconds span    `yaml:"seconds"`
	From    span    `yaml:"from_onset_minutes"`
	For     span    `yaml:"for_minutes"`
}

// kindParams is one kind of incident.
type kindParams struct {
	Load            span    `yaml:"load"`
	Size            span    `yaml:"size"`
	SilentChance    float64 `yaml:"silent_chance"`
	UnscrapedChance float64 `yaml:"unscraped_chance"`
}

// parameters is parameters.yml.
type parameters struct {
	Hall struct {
		Racks        int      `yaml:"racks"`
		RacksPerUnit int      `yaml:"racks_per_unit"`
		NodesPerRack int      `yaml:"nodes_per_rack"`
		GPUsPerNode  int      `yaml:"gpus_per_node"`
		GPUModel     string   `yaml:"gpu_model"`
		InletSensors []string `yaml:"inlet_sensors"`
		PDUAmperes   float64  `yaml:"pdu_rated_amperes"`
		FeedDerate   float64  `yaml:"feed_derate"`
	} `yaml:"hall"`
	Time struct {
		Scrape float64 `yaml:"scrape_seconds"`
		Onset  span    `yaml:"onset_minutes"`
		Fault  float64 `yaml:"fault_minutes"`
		After  float64 `yaml:"after_minutes"`
		Ask    float64 `yaml:"ask_minutes"`
	} `yaml:"time"`
	Noise struct {
		ScrapeLoss  float64 `yaml:"scrape_loss_ratio"`
		InletKelvin float64 `yaml:"inlet_kelvin"`
		GPUKelvin   float64 `yaml:"gpu_kelvin"`
		PDURatio    float64 `yaml:"pdu_ratio"`
	} `yaml:"noise"`
	Confounders struct {
		LoadStep    confounder `yaml:"load_step"`
		Maintenance confounder `yaml:"maintenance"`
		DeadSensor  confounder `yaml:"dead_sensor"`
		MovedNode   confounder `yaml:"moved_node"`
		ClockSkew   confounder `yaml:"clock_skew"`
		DeadCard    confounder `yaml:"dead_card"`
		Freeze      float64    `yaml:"freeze_seconds"`
	} `yaml:"confounders"`
	Kinds map[string]kindParams `yaml:"kinds"`
	Blind map[string]string     `yaml:"blind"`
	Pairs struct {
		PerSeed int  `yaml:"per_seed"`
		Apart   span `yaml:"apart_seconds"`
	} `yaml:"pairs"`
	Quiet struct {
		Days           int     `yaml:"days"`
		LoadSteps      int     `yaml:"load_steps_per_day"`
		LoadTo         span    `yaml:"load_to"`
		LoadFor        span    `yaml:"load_for_minutes"`
		Maintenance    int     `yaml:"maintenance_per_day"`
		MaintenanceFor span    `yaml:"maintenance_for_minutes"`
		DeadSensors    int     `yaml:"dead_sensors_per_day"`
		DeadSensorFor  float64 `yaml:"dead_sensor_for_minutes"`
	} `yaml:"quiet"`
}

func loadParameters(tb testing.TB) *parameters {
	tb.Helper()
	p := &parameters{}
	d := yaml.NewDecoder(bytes.NewReader(parametersFile))
	d.KnownFields(true)
	if err := d.Decode(p); err != nil {
		tb.Fatal(err)
	}
	return p
}

// sum is the SHA-256 of the parameters' file.
func sum() string { return fmt.Sprintf("%x", sha256.Sum256(parametersFile)) }

// kinds lists the kinds, sorted.
func (p *parameters) kinds() []string {
	var out []string
	for k := range p.Kinds {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// site is the hall as its site file says.
func (p *parameters) site(tb testing.TB) *site.Site {
	tb.Helper()
	var b strings.Builder
	line := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	h := p.Hall
	line("site: {id: bench}\nrooms: [{id: hall1}]\nrows: [{id: row1, room: hall1}]")
	line("feeds:\n- {id: feed-a, line_volts: 400, rated_amperes: 400, derate: %g}\n- {id: feed-b, line_volts: 400, rated_amperes: 400, derate: %g}", h.FeedDerate, h.FeedDerate)
	line("racks: [{id: \"r[01-%02d]\", row: row1, height_u: 48, power_limit_watts: 44000}]", h.Racks)
	line("pdus:")
	for _, side := range []string{"a", "b"} {
		line("- {id: \"r[01-%02d]-%s\", rack: \"r[01-%02d]\", feed: feed-%s, phases: 3, rated_amperes: %g, outlets: 24}", h.Racks, side, h.Racks, side, h.PDUAmperes)
	}
	line("cooling_units:")
	for i := 0; i*h.RacksPerUnit < h.Racks; i++ {
		line("- {id: crah%d, room: hall1, serves: [\"r[%02d-%02d]\"]}", i+1, i*h.RacksPerUnit+1, (i+1)*h.RacksPerUnit)
	}
	line("switches: [{id: \"tor[01-%02d]\", rack: \"r[01-%02d]\", u: 47}]", h.Racks, h.Racks)
	line("sensors:")
	for _, at := range h.InletSensors {
		line("- {id: \"r[01-%02d]-in-%s\", rack: \"r[01-%02d]\", measures: inlet_temperature, position: %s}", h.Racks, at[:3], h.Racks, at)
	}
	line("node_classes: [{id: gpu, height_u: 8, gpus: %d, gpu_model: %s}]\nnodes:", h.GPUsPerNode, h.GPUModel)
	for i := range h.Racks {
		first, n := i*h.NodesPerRack+1, h.NodesPerRack
		line("- {id: \"gpu[%03d-%03d]\", rack: r%02d, u: 1, class: gpu, outlets: [\"r%02d-a/[1-%d]\", \"r%02d-b/[1-%d]\"], ports: [\"tor%02d/Ethernet[1-%d]\"]}",
			first, first+n-1, i+1, i+1, n, i+1, n, i+1, n)
	}
	s, err := site.Parse("bench.yml", []byte(b.String()))
	if err != nil {
		tb.Fatal(err)
	}
	return s
}
