// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"strings"
	"testing"
)

// TestDCGMSelect: GPUs that are left out are neither watched nor read.
func TestDCGMSelect(t *testing.T) {
	f := func(devices, exclude, wantGPUs, wantWatched string) {
		t.Run(devices+" without "+exclude, func(t *testing.T) {
			fake := useFake(t, "", "gpus 3", "mig 1 2")
			r, rec := startDCGM(t, Config{Devices: devices, Exclude: strings.Fields(exclude)})
			eventually(t, "values", func() bool { return len(series(rec.page(t), fieldTemp)) == len(strings.Fields(wantGPUs)) })
			var got []string
			for line := range strings.Lines(rec.page(t)) {
				if strings.HasPrefix(line, fieldTemp+"{") {
					gpu := line[strings.Index(line, `gpu="`)+5:]
					got = append(got, gpu[:1])
					if _, gid, ok := strings.Cut(line, `GPU_I_ID="`); ok {
						got[len(got)-1] += "." + gid[:1]
					}
				}
			}
			if strings.Join(got, " ") != wantGPUs {
				t.Errorf("on the page: %q, want %q", got, wantGPUs)
			}
			// The first groups are for the names and the XIDs of all GPUs.
			var watched []string
			for _, call := range fake.calls("dcgmGroupAddEntity ")[3+5:] {
				_, entity, _ := strings.Cut(call, " kind=")
				watched = append(watched, strings.ReplaceAll(entity, " id=", ":"))
			}
			if n := len(strings.Fields(wantWatched)); len(watched) < n || strings.Join(watched[:n], " ") != wantWatched {
				t.Errorf("watched: %q, want %s first", watched, wantWatched)
			}
			if inv := r.Inventory(); len(inv.UUIDs) != 3 {
				t.Errorf("inventory: %+v", inv)
			}
		})
	}
	const gpu, instance = "1:", "4:" // DCGM_FE_GPU, DCGM_FE_GPU_I
	f("f", "", "0 1.7 1.8 2", gpu+"0 "+instance+"8 "+instance+"9 "+gpu+"2")
	f("g", "", "0 1 2", gpu+"0 "+gpu+"1 "+gpu+"2")
	f("g:1,00000000:4A:00.0", "", "1 2", gpu+"1 "+gpu+"2")
	f("i", "", "1.7 1.8", instance+"8 "+instance+"9")
	f("i:9", "", "1.8", instance+"9")
	f("", "0 1.7 GPU-01000100-0000-0000-0000-000000000002", "1.8", instance+"9")
}
