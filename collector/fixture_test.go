// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
)

// gpuLabels are dcgm-exporter's labels of a GPU series, in its order.
var gpuLabels = []string{
	"gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_PROFILE", "GPU_I_ID", "Hostname", "DCGM_FI_DRIVER_VERSION",
}

var (
	descTemp   = &Desc{Name: "DCGM_FI_DEV_GPU_TEMP", Help: "GPU temperature (in C).", Labels: gpuLabels, Min: -20, Max: 130}
	descPower  = &Desc{Name: "DCGM_FI_DEV_POWER_USAGE", Help: "Power draw (in W).", Labels: gpuLabels, Max: 3000}
	descEnergy = &Desc{
		Name: "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", Help: "Total energy consumption since boot (in mJ).",
		Labels: gpuLabels, Type: Counter,
	}
	descInlet = &Desc{Name: "rack_inlet_temperature_celsius", Help: "Air temperature at the front of the rack.", Min: -40, Max: 80}
	descPhase = &Desc{Name: "pdu_phase_current_ampere", Help: "Current of a phase.", Labels: []string{"phase"}, Max: 400}
	descUp    = &Desc{Name: "facility_device_up", Help: "Whether the device answers.", Labels: []string{"device", "driver"}}
)

// gpuValues are the label values of GPU i of the recorded dcgm-exporter page.
func gpuValues(i int) []string {
	bus := []string{"1A", "1B", "4A", "4B", "8A", "8B", "CA", "CB"}[i%8]
	return []string{
		fmt.Sprint(i), fmt.Sprintf("GPU-01000100-0000-0000-0000-00000000000%d", i), "00000000:" + bus + ":00.0",
		fmt.Sprintf("nvidia%d", i), "NVIDIA H100 80GB HBM3", "", "", "vm", "550.163.01",
	}
}

var testIdentity = Identity{
	Node: map[string]string{"node": "gpu001", "rack_id": "r01"},
	Devices: map[string]map[string]string{
		"r01-a":      {"pdu_id": "r01-a", "rack_id": "r01"},
		"r01-in-top": {"sensor": "r01-in-top", "position": "top", "rack_id": "r01"},
	},
	Origin: OriginRegistry,
}

// text is what a scrape of the store shows.
func text(t testing.TB, s *Store) string {
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

// samples are the sample lines of the store's page whose name has the prefix.
func samples(t testing.TB, s *Store, prefix string) []string {
	t.Helper()
	lines := []string{}
	for line := range strings.Lines(text(t, s)) {
		if strings.HasPrefix(line, prefix) {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
	}
	return lines
}

// wantSamples compares the sample lines under a prefix with those expected.
func wantSamples(t testing.TB, s *Store, prefix string, want ...string) {
	t.Helper()
	got := samples(t, s, prefix)
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("samples %s*:\n got %q\nwant %q", prefix, got, want)
	}
}

func inlet(source string, v float64) Snapshot {
	return Snapshot{Source: source, Interval: time.Second, Points: []Point{{Desc: descInlet, Subject: "r01-in-top", Value: v}}}
}
