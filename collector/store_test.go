// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

const inletSeries = `rack_inlet_temperature_celsius{position="top",sensor="r01-in-top",rack_id="r01"}`

func TestIdentityMayArriveLate(t *testing.T) {
	s := NewStore()
	s.Put(Snapshot{Source: "gpu", Points: []Point{{Desc: descTemp, Values: gpuValues(0), Value: 34}}})
	s.Put(inlet("r01-in-top", 24.5))
	const gpu0 = `DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-01000100-0000-0000-0000-000000000000",pci_bus_id="00000000:1A:00.0",` +
		`device="nvidia0",modelName="NVIDIA H100 80GB HBM3",Hostname="vm",DCGM_FI_DRIVER_VERSION="550.163.01"`
	const rejected = `rackpulse_rejected_samples_total{field="rack_inlet_temperature_celsius",reason="unknown_device"} `

	// Without identity the node's series are there, a device's are not.
	wantSamples(t, s, "DCGM", gpu0+"} 34")
	wantSamples(t, s, "rack_")
	wantSamples(t, s, "rackpulse_rejected", rejected+"1")
	s.SetStatus("x", Status{}) // a new page of the same snapshot
	wantSamples(t, s, "rackpulse_rejected", rejected+"1")

	s.SetIdentity(testIdentity)
	wantSamples(t, s, "DCGM", gpu0+`,node="gpu001",rack_id="r01"} 34`)
	wantSamples(t, s, "rack_", inletSeries+" 24.5")
	wantSamples(t, s, "rackpulse_rejected", rejected+"1")

	// The node moves.
	moved := testIdentity
	moved.Node = map[string]string{"node": "gpu001", "rack_id": "r02"}
	s.SetIdentity(moved)
	wantSamples(t, s, "DCGM", gpu0+`,node="gpu001",rack_id="r02"} 34`)
}

func TestSetIdentityCopies(t *testing.T) {
	s := NewStore()
	id := Identity{Devices: map[string]map[string]string{"r01-in-top": {"sensor": "a"}}}
	s.SetIdentity(id)
	id.Devices["r01-in-top"]["sensor"] = "b"
	s.Put(inlet("x", 20))
	wantSamples(t, s, "rack_", `rack_inlet_temperature_celsius{sensor="a"} 20`)
}

func TestDeviceThatNamesItselfNeedsNoIdentity(t *testing.T) {
	s := NewStore()
	s.Put(Snapshot{Source: "r01-a", Points: []Point{{Desc: descUp, Subject: "r01-a", Values: []string{"r01-a", "snmp"}}}})
	wantSamples(t, s, "facility_", `facility_device_up{device="r01-a",driver="snmp"} 0`)
	s.SetIdentity(testIdentity)
	wantSamples(t, s, "facility_", `facility_device_up{device="r01-a",driver="snmp",pdu_id="r01-a",rack_id="r01"} 0`)
}

func TestDescLabelWinsOverIdentity(t *testing.T) {
	d := &Desc{Name: "m", Labels: []string{"rack_id"}}
	s := NewStore()
	s.SetIdentity(testIdentity)
	s.Put(Snapshot{Source: "a", Points: []Point{{Desc: d, Values: []string{"r09"}, Value: 1}}})
	wantSamples(t, s, "m", `m{rack_id="r09",node="gpu001"} 1`)
}

func TestGates(t *testing.T) {
	bad := &Desc{Name: "bad-name"}
	twice := &Desc{Name: "twice", Labels: []string{"a", "a"}}
	s := NewStore()
	s.SetIdentity(testIdentity)
	v := gpuValues(0)
	s.Put(Snapshot{Source: "gpu", Points: []Point{
		{Desc: descTemp, Values: v, Value: 130},             // the limit itself is legal
		{Desc: descTemp, Values: gpuValues(1), Value: 345},  // as an A100 was seen to report
		{Desc: descTemp, Values: gpuValues(1), Value: -21},  //
		{Desc: descPower, Values: v, Value: -0.5},           // Max alone gates at Min 0
		{Desc: descPower, Values: v, Value: math.Inf(1)},    //
		{Desc: descEnergy, Values: v, Value: math.NaN()},    //
		{Desc: descEnergy, Values: v[:3], Value: 5},         // too few label values
		{Desc: bad, Value: 1},                               //
		{Desc: twice, Values: []string{"1", "2"}, Value: 1}, //
	}})
	want := []string{
		`rackpulse_rejected_samples_total{field="DCGM_FI_DEV_GPU_TEMP",reason="range"} 2`,
		`rackpulse_rejected_samples_total{field="DCGM_FI_DEV_POWER_USAGE",reason="not_finite"} 1`,
		`rackpulse_rejected_samples_total{field="DCGM_FI_DEV_POWER_USAGE",reason="range"} 1`,
		`rackpulse_rejected_samples_total{field="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",reason="labels"} 1`,
		`rackpulse_rejected_samples_total{field="DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION",reason="not_finite"} 1`,
		`rackpulse_rejected_samples_total{field="bad-name",reason="labels"} 1`,
		`rackpulse_rejected_samples_total{field="twice",reason="labels"} 1`,
	}
	for range 3 { // once for each sample, not for each scrape
		wantSamples(t, s, "rackpulse_rejected", want...)
		s.SetIdentity(Identity{}) // makes the page anew
		s.SetIdentity(testIdentity)
	}
	if n := len(samples(t, s, "DCGM")); n != 1 {
		t.Errorf("%d samples passed the gates, want 1", n)
	}
}

func TestFirstSourceWins(t *testing.T) {
	gauge := &Desc{Name: "m", Help: "First.", Labels: []string{"a", "b"}}
	swapped := &Desc{Name: "m", Help: "Second.", Labels: []string{"b", "a"}}
	counter := &Desc{Name: "m", Help: "Third.", Labels: []string{"a"}, Type: Counter}
	s := NewStore()
	s.Put(Snapshot{Source: "s3", Points: []Point{{Desc: counter, Values: []string{"z"}, Value: 3}}})
	s.Put(Snapshot{Source: "s2", Points: []Point{
		{Desc: swapped, Values: []string{"y", "x"}, Value: 2}, // m{a=x,b=y} once more
		{Desc: swapped, Values: []string{"q", "x"}, Value: 4},
	}})
	s.Put(Snapshot{Source: "s1", Points: []Point{{Desc: gauge, Values: []string{"x", "y"}, Value: 1}}})
	const want = "# HELP m First.\n# TYPE m gauge\nm{a=\"x\",b=\"y\"} 1\nm{b=\"q\",a=\"x\"} 4\n" +
		"# HELP rackpulse_rejected_samples_total Samples that were not fit to be shown, by metric name and reason.\n" +
		"# TYPE rackpulse_rejected_samples_total counter\n" +
		"rackpulse_rejected_samples_total{field=\"m\",reason=\"duplicate\"} 1\n" +
		"rackpulse_rejected_samples_total{field=\"m\",reason=\"type_conflict\"} 1\n"
	for range 2 {
		if got := text(t, s); got != want {
			t.Errorf("page:\n%s\nwant:\n%s", got, want)
		}
		s.SetStatus("x", Status{})
		s.Remove("x") // makes the page anew
	}
	s.Remove("s1")
	wantSamples(t, s, "m{", `m{b="y",a="x"} 2`, `m{b="q",a="x"} 4`)
}

func TestLabelValuesAreMadeSafe(t *testing.T) {
	d := &Desc{Name: "m", Help: "A \\ and\na line.", Labels: []string{"a", "empty"}}
	s := NewStore()
	s.Put(Snapshot{Source: "s", Points: []Point{
		{Desc: d, Values: []string{"x\xff\"\\\n", ""}, Value: 1},
		{Desc: d, Values: []string{"x\xfe\"\\\n", ""}, Value: 2}, // the same once it is UTF-8
	}})
	wantSamples(t, s, "m{", "m{a=\"x\uFFFD\\\"\\\\\\n\"} 1")
	wantSamples(t, s, "# HELP m", `# HELP m A \\ and\na line.`)
	wantSamples(t, s, "rackpulse_rejected", `rackpulse_rejected_samples_total{field="m",reason="duplicate"} 1`)
}

func TestStaleness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		s.SetIdentity(testIdentity)
		start := time.Now()
		slow := inlet("slow", 21) // 3 intervals of 15 s
		slow.Interval = 15 * time.Second
		s.Put(slow)
		own := Point{Desc: descTemp, Values: gpuValues(0), Value: 30, At: start.Add(-10 * time.Second)}
		s.Put(Snapshot{Source: "fast", Interval: time.Second, Points: []Point{
			{Desc: descTemp, Values: gpuValues(1), Value: 31},
			own, // measured 10 s earlier than the rest
		}})
		count := func(after time.Duration, gpus, inlets int) {
			t.Helper()
			time.Sleep(time.Until(start.Add(after)))
			if g, i := len(samples(t, s, "DCGM")), len(samples(t, s, "rack_")); g != gpus || i != inlets {
				t.Errorf("after %s: %d GPU and %d inlet samples, want %d and %d", after, g, i, gpus, inlets)
			}
		}
		count(0, 2, 1)
		count(20*time.Second, 2, 1) // exactly at the limit of the older point
		count(20*time.Second+1, 1, 1)
		count(30*time.Second, 1, 1)
		count(30*time.Second+1, 0, 1)
		count(45*time.Second, 0, 1)
		count(45*time.Second+1, 0, 0)
		wantSamples(t, s, "rackpulse_rejected") // they were good in their time

		// A value that was too old from the start, as from a stuck device.
		s.Put(Snapshot{Source: "fast", Points: []Point{own}})
		wantSamples(t, s, "DCGM")
		wantSamples(t, s, "rackpulse_rejected", `rackpulse_rejected_samples_total{field="DCGM_FI_DEV_GPU_TEMP",reason="stale"} 1`)

		// A time in the future, as after a clock was set back, does not keep a value.
		ahead := inlet("slow", 22)
		ahead.At = time.Now().Add(time.Hour)
		s.Put(ahead)
		wantSamples(t, s, "rack_", inletSeries+" 22")
		time.Sleep(31 * time.Second)
		wantSamples(t, s, "rack_")
	})
}

func TestGatheredPageDoesNotChange(t *testing.T) {
	s := NewStore()
	s.SetIdentity(testIdentity)
	s.Put(inlet("a", 20))
	before, err := s.Gather()
	if err != nil {
		t.Fatal(err)
	}
	s.Put(inlet("a", 21))
	wantSamples(t, s, "rack_", inletSeries+" 21")
	if v := before[0].Metric[0].GetGauge().GetValue(); v != 20 {
		t.Errorf("a page in use changed: %v, want 20", v)
	}
}

func TestSeriesThatMoveInASnapshot(t *testing.T) {
	s := NewStore()
	point := func(gpu int, v float64) Point { return Point{Desc: descPower, Values: gpuValues(gpu)[:9], Value: v} }
	s.Put(Snapshot{Source: "gpu", Points: []Point{point(0, 100), point(1, 101), point(2, 102)}})
	text(t, s)
	s.Put(Snapshot{Source: "gpu", Points: []Point{point(0, 200), point(2, 202)}}) // GPU 1 fell off the bus
	got := samples(t, s, "DCGM")
	if len(got) != 2 || got[0][:31] != `DCGM_FI_DEV_POWER_USAGE{gpu="0"` || got[1][:31] != `DCGM_FI_DEV_POWER_USAGE{gpu="2"` {
		t.Errorf("got %q", got)
	}
	if want := " 202"; got[1][len(got[1])-4:] != want {
		t.Errorf("got %q, want the value%s", got[1], want)
	}
}

func TestSimulated(t *testing.T) {
	s := NewStore()
	s.SetSimulated("gpu", true)
	s.SetSimulated("facility", true)
	wantSamples(t, s, "rackpulse_simulated", `rackpulse_simulated{layer="facility"} 1`, `rackpulse_simulated{layer="gpu"} 1`)
	s.SetSimulated("gpu", false)
	wantSamples(t, s, "rackpulse_simulated", `rackpulse_simulated{layer="facility"} 1`)
}

func TestConcurrentUse(t *testing.T) {
	s := NewStore()
	var wg sync.WaitGroup
	for worker := range 4 {
		wg.Go(func() {
			for i := range 100 {
				s.Put(inlet("a", float64(20+worker)))
				s.SetStatus("a", Status{Up: i%2 == 0, Reason: "x"})
				if i%10 == 0 {
					s.SetIdentity(Identity{Devices: map[string]map[string]string{"r01-in-top": {"sensor": "s", "rack_id": "r1"}}})
				}
			}
		})
		wg.Go(func() {
			for range 50 {
				text(t, s)
			}
		})
	}
	wg.Wait()
	if n := len(samples(t, s, "rack_")); n != 1 {
		t.Errorf("%d samples, want 1", n)
	}
}
