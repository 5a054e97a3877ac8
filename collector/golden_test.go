// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/rackpulse/rackpulse/testtool"
)

var update = flag.Bool("update", false, "write the golden files")

// pageStore holds two GPUs, one MIG instance and a rack's PDU and sensor.
func pageStore() *Store {
	s := NewStore()
	s.SetIdentity(testIdentity)
	s.SetStatus("gpu", Status{Up: true, Duration: 2500 * time.Microsecond})
	s.SetStatus("r01-a", Status{Reason: "no answer within 2s", Consecutive: 3, Errors: 3, Abandoned: 1})
	s.SetSimulated("facility", true)
	mig := gpuValues(1)
	mig[5], mig[6] = "1g.10gb", "7"
	s.Put(Snapshot{Source: "gpu", Points: []Point{
		{Desc: descTemp, Values: gpuValues(0), Value: 34},
		{Desc: descTemp, Values: gpuValues(1), Value: 345}, // refused
		{Desc: descPower, Values: gpuValues(0), Value: 95},
		{Desc: descPower, Values: gpuValues(1), Value: 95.25},
		{Desc: descPower, Values: mig, Value: 13.5},
		{Desc: descEnergy, Values: gpuValues(0), Value: 123456789},
	}})
	s.Put(Snapshot{Source: "r01-a", Points: []Point{
		{Desc: descPhase, Subject: "r01-a", Values: []string{"1"}, Value: 12.5},
		{Desc: descPhase, Subject: "r01-a", Values: []string{"2"}, Value: 0},
		{Desc: descUp, Subject: "r01-a", Values: []string{"r01-a", "snmp"}, Value: 1},
	}})
	s.Put(inlet("r01-in-top", 24.5))
	return s
}

func TestGoldenPage(t *testing.T) {
	path := filepath.Join(testtool.Root(), "testdata", "golden", "collector.prom")
	got := text(t, pageStore())
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("page:\n%s\nwant:\n%s", got, want)
	}
}

// recorded is a line of dcgm-exporter 4.8 over DCGM 4.6. A GPU line of ours
// differs in the two labels at the end only (and in the case of Hostname, which
// older versions write so).
const recorded = `DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-01000100-0000-0000-0000-000000000000",pci_bus_id="00000000:1A:00.0",` +
	`device="nvidia0",modelName="NVIDIA H100 80GB HBM3",hostname="vm",DCGM_FI_DRIVER_VERSION="550.163.01"} 34`

func TestGPULinesAreThoseOfDCGMExporter(t *testing.T) {
	line := samples(t, pageStore(), "DCGM_FI_DEV_GPU_TEMP")[0]
	line = strings.Replace(line, `,node="gpu001",rack_id="r01"}`, "}", 1)
	line = strings.Replace(line, "Hostname", "hostname", 1)
	if line != recorded {
		t.Errorf("got  %s\nwant %s", line, recorded)
	}
}

func TestLint(t *testing.T) {
	s := NewStore()
	s.SetStatus("gpu", Status{Duration: time.Second, Reason: "x"})
	s.SetSimulated("gpu", true)
	s.Put(Snapshot{Source: "gpu", Points: []Point{{Desc: descTemp, Values: gpuValues(0), Value: 999}}})
	problems, err := testutil.GatherAndLint(s)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	if n, err := testutil.GatherAndCount(s); err != nil || n != 7 {
		t.Errorf("%d series were linted (%v), want one of each of the 7 families", n, err)
	}
}
