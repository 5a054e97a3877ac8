// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/site"
)

// factDevice is a GPU with its modes: MIG, ECC, persistence.
func factDevice(i int, vbios, cuda string, modes ...float64) Device {
	var values []Value
	for f, field := range []string{fieldMIGMode, fieldECCMode, fieldPersistence}[:len(modes)] {
		values = append(values, Value{Field: field, V: modes[f]})
	}
	d := device(i, values...)
	d.Model = "H100"
	d.Labels = map[string]string{labelVBIOS: vbios, labelCUDA: cuda}
	return d
}

func TestFacts(t *testing.T) {
	alike := []Device{factDevice(0, "96.00", "12040", 0, 1, 1), factDevice(1, "96.00", "12040", 0, 1, 1)}
	mixed := []Device{factDevice(0, "96.01", "", 1, 1, 1), factDevice(1, "96.00", "", 0, 1, 0)}
	lost := factDevice(2, "96.00", "12040", 1, 0, 0)
	lost.Lost = true
	instance := device(0)
	instance.MIGProfile = "1g.10gb"
	other := factDevice(1, "", "")
	other.Model = "A100"
	for _, c := range []struct {
		what    string
		devices []Device
		want    site.Facts
	}{
		{"alike", alike, site.Facts{CUDA: "12.4", VBIOS: "96.00", MIGMode: "off", ECCMode: "on", Persistence: "on", GPUModel: "H100", GPUCount: 2}},
		{"mixed", mixed, site.Facts{VBIOS: "96.00, 96.01", MIGMode: "mixed", ECCMode: "on", Persistence: "mixed", GPUModel: "H100", GPUCount: 2}},
		{"lost", append(alike[:2:2], lost), site.Facts{CUDA: "12.4", VBIOS: "96.00", MIGMode: "off", ECCMode: "on", Persistence: "on", GPUModel: "H100", GPUCount: 3}},
		{"instances", []Device{instance}, site.Facts{MIGMode: "on", GPUModel: instance.Model, GPUCount: 1}},
		{"models", []Device{alike[0], other}, site.Facts{CUDA: "12.4", VBIOS: "96.00", MIGMode: "off", ECCMode: "on", Persistence: "on", GPUModel: "A100, H100", GPUCount: 2}},
	} {
		c.want.Driver = "550.1"
		if got := factsOf(&Sample{Driver: "550.1", Devices: c.devices}); got != c.want {
			t.Errorf("%s: %+v, want %+v", c.what, got, c.want)
		}
	}
	// 1000 times the major and 10 times the minor number, cuda.h.
	for number, want := range map[string]string{"12040": "12.4", "11080": "11.8", "13000": "13.0", "12100": "12.10", "0": "", "": "", "x": ""} {
		if got := cudaVersion(number); got != want {
			t.Errorf("cuda %q is %q, want %q", number, got, want)
		}
	}
}

// TestFactsStay holds that a pass that tells less, or nothing, takes no fact away.
func TestFactsStay(t *testing.T) {
	r, err := New(Config{}, Deps{Store: newRecorder()})
	if err != nil {
		t.Fatal(err)
	}
	full := &Sample{At: time.Unix(1e9, 0), Driver: "550.1", Devices: []Device{factDevice(0, "96.00", "12040", 0, 1, 1)}}
	r.learn(full)
	r.learn(&Sample{Driver: "560.1", FastOnly: true, Devices: full.Devices})
	r.learn(&Sample{})
	if got := r.Facts(); got.Driver != "550.1" || got.CUDA != "12.4" {
		t.Errorf("facts %+v", got)
	}
	r.learn(&Sample{Driver: "560.1", Devices: []Device{factDevice(0, "", "")}})
	if got := r.Facts(); got.Driver != "560.1" || got.CUDA != "12.4" || got.ECCMode != "on" {
		t.Errorf("facts after another driver came %+v", got)
	}
}
