// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/go-kit/log"
	"github.com/prometheus/common/expfmt"

	"github.com/rackpulse/rackpulse/collector"
	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/site"
)

// hall is the site of the tests: one rack with a PDU, two sensors, a leak
// sensor, a cooling unit, a switch, a UPS and a meter.
var hall = map[string]site.Device{
	"r01-a":      device1(site.KindPDU, "r01-a", "pdu_id", "r01-a", "rack_id", "r01"),
	"r01-in-top": device1(site.KindSensor, "r01-in-top", "sensor", "r01-in-top", "rack_id", "r01", "position", "top"),
	"r01-out":    device1(site.KindSensor, "r01-out", "sensor", "r01-out", "rack_id", "r01"),
	"r01-rh":     device1(site.KindSensor, "r01-rh", "sensor", "r01-rh", "rack_id", "r01"),
	"row-a-leak": device1(site.KindSensor, "row-a-leak", "sensor", "row-a-leak"),
	"crah1":      device1(site.KindCooling, "crah1", "cooling_unit", "crah1"),
	"tor1":       device1(site.KindSwitch, "tor1", "switch", "tor1", "rack_id", "r01"),
	"ups1":       device1(site.KindUPS, "ups1", "ups", "ups1"),
	"main":       device1(site.KindMeter, "main", "meter", "main", "role", "total"),
}

func device1(kind, id string, labels ...string) site.Device {
	d := site.Device{Entity: site.Entity{Kind: kind, ID: id}, Labels: map[string]string{}}
	for i := 0; i < len(labels); i += 2 {
		d.Labels[labels[i]] = labels[i+1]
	}
	d.Rack = d.Labels["rack_id"]
	return d
}

func hallDevice(id string) (site.Device, bool) {
	d, ok := hall[id]
	return d, ok
}

func hallKind(id string) string { return hall[id].Kind }

// hallIdentity is what the registry would tell the agent.
func hallIdentity() collector.Identity {
	id := collector.Identity{Devices: map[string]map[string]string{}, Origin: collector.OriginRegistry}
	for name, d := range hall {
		id.Devices[name] = d.Labels
	}
	return id
}

// entries reads the facility list of an agent.yml.
func entries(t testing.TB, text string) []DeviceConfig {
	t.Helper()
	var file struct {
		Facility []DeviceConfig `yaml:"facility"`
	}
	if err := config.Strict("agent.yml", []byte(text), &file); err != nil {
		t.Fatal(err)
	}
	return file.Facility
}

// planOf makes the plan of a configuration's only entry.
func planOf(t testing.TB, text string) (Plan, error) {
	t.Helper()
	return planWith(t, text, log.NewNopLogger())
}

func planWith(t testing.TB, text string, logger log.Logger) (Plan, error) {
	t.Helper()
	c := entries(t, text)[0]
	if err := c.check(); err != nil {
		return Plan{}, err
	}
	f, err := factoryOf(c.Driver)
	if err != nil {
		return Plan{}, err
	}
	dev := hall[c.Device]
	dev.ID = c.Device
	return f(FactoryConfig{
		Device: dev, Kind: hallKind, Interval: c.Interval, Deadline: c.Deadline,
		Profile: c.Profile, ProfileFile: c.ProfileFile, Address: c.Address,
		Decode: c.Blocks[c.Driver].Decode, Resolve: c.Blocks[c.Driver].Resolve, Logger: logger,
	})
}

// openOf opens the only entry's device and closes it at the end of the test.
func openOf(t testing.TB, text string) Driver {
	t.Helper()
	return openWith(t, text, log.NewNopLogger())
}

func openWith(t testing.TB, text string, logger log.Logger) Driver {
	t.Helper()
	p, err := planWith(t, text, logger)
	if err != nil {
		t.Fatal(err)
	}
	d, err := p.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// show writes readings as "device quantity[part] value", sorted.
func show(list []Reading) string {
	slices.SortFunc(list, func(a, b Reading) int {
		return cmp.Or(cmp.Compare(a.Device, b.Device), cmp.Compare(a.Quantity, b.Quantity), cmp.Compare(a.Part, b.Part))
	})
	var b strings.Builder
	for _, r := range list {
		part := ""
		if r.Part != "" {
			part = "[" + r.Part + "]"
		}
		value := round(r.Value)
		if r.Text != "" {
			value = r.Text
		}
		fmt.Fprintf(&b, "%s %s%s %s\n", r.Device, r.Quantity, part, value)
	}
	return b.String()
}

// round hides the last digits of floating point conversions.
func round(v float64) string { return fmt.Sprint(math.Round(v*1e6) / 1e6) }

// wantErr checks that err holds all of the texts.
func wantErr(t testing.TB, err error, texts ...string) {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want one with %q", texts)
	}
	for _, text := range texts {
		if !strings.Contains(err.Error(), text) {
			t.Errorf("error %q does not hold %q", err, text)
		}
	}
}

// page renders a store as text.
func page(t testing.TB, s *collector.Store) string {
	t.Helper()
	families, err := s.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&b, f); err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// wantLines checks that the page has these series.
func wantLines(t testing.TB, s *collector.Store, lines ...string) {
	t.Helper()
	text := page(t, s)
	for _, l := range lines {
		if !strings.Contains("\n"+text, "\n"+l+"\n") {
			t.Errorf("the page has no line\n  %s\nit is\n%s", l, text)
		}
	}
}

// noLines checks that the page has no line that begins so.
func noLines(t testing.TB, s *collector.Store, prefixes ...string) {
	t.Helper()
	text := page(t, s)
	for _, p := range prefixes {
		if strings.Contains("\n"+text, "\n"+p) {
			t.Errorf("the page has %s\nit is\n%s", p, text)
		}
	}
}

// runText runs the entries of a configuration in real time; stop ends them and
// waits for all of it.
func runText(t testing.TB, text string) (store *collector.Store, stop func()) {
	t.Helper()
	store = collector.NewStore()
	store.SetIdentity(hallIdentity())
	r, err := New(entries(t, text), Deps{Store: store, Logger: log.NewNopLogger(), Device: hallDevice})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); r.Run(ctx) }()
	return store, func() { cancel(); <-done }
}
