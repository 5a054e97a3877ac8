// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestLeakedMemory(t *testing.T) {
	const name = "rackpulse_gpu_leaked_memory_bytes"
	d := newDerived()
	conv := newConverter(newLayout(&counters{}, "none"), "h", newExpCounts(time.Minute), d)
	at := time.Unix(1_700_000_000, 0)
	// leaked makes a sample and returns the leak in MiB, -1: absent.
	leaked := func(values ...Value) float64 {
		at = at.Add(time.Second)
		points, _ := conv.points(&Sample{At: at, Devices: []Device{device(0, values...)}}, nil, newXIDBook())
		for _, p := range points {
			if p.Desc.Name == name {
				return p.Value / (1 << 20)
			}
		}
		return -1
	}
	list := func(hostPIDs bool, p GPUProcesses) {
		p.UUID, p.Kinds = "GPU-0", kindCompute
		d.listed(&ProcessTable{At: at, GPUs: []GPUProcesses{p}}, hostPIDs)
	}
	is := func(what string, got, want float64) {
		t.Helper()
		if got != want {
			t.Errorf("%s: %v MiB, want %v", what, got, want)
		}
	}
	used := func(mib, util float64) []Value {
		return []Value{v(fieldUsed, mib), v(fieldUtil, util), v(fieldReserved, 500)}
	}
	is("processes not listed yet", leaked(used(9000, 0)...), -1)
	list(true, GPUProcesses{})
	is("left behind", leaked(used(9000, 0)...), 9000)
	is("under load", leaked(used(9000, 50)...), -1)
	list(true, GPUProcesses{Processes: []Process{{PID: 1}}})
	is("with a process", leaked(used(9000, 0)...), -1)
	list(true, GPUProcesses{Err: "refused"})
	is("no list", leaked(used(9000, 0)...), -1)
	list(false, GPUProcesses{})
	is("others' processes hidden", leaked(used(9000, 0)...), -1)
	list(true, GPUProcesses{})
	old := func(mib float64) []Value { return []Value{v(fieldUsed, mib), v(fieldUtil, 0)} } // reserve not told
	is("least seen", leaked(old(600)...), 0)
	is("over it", leaked(old(2600)...), 2000)
	is("less", leaked(old(400)...), 0)
	at = at.Add(listedFor)
	is("list too old", leaked(old(2600)...), -1)
}

// TestLeakedMemoryOnPage: the lists of a source reach the page.
func TestLeakedMemoryOnPage(t *testing.T) {
	s := &stub{}
	s.sample = func() (*Sample, error) {
		return &Sample{At: time.Now(), Devices: []Device{device(0, v(fieldUsed, 3), v(fieldUtil, 0), v(fieldReserved, 500))},
			Processes: &ProcessTable{At: time.Now(), GPUs: []GPUProcesses{{UUID: "GPU-0", Kinds: kindCompute}}}}, nil
	}
	withKinds(t, kind("x", 1, s))
	inBubble(t, func(t *testing.T) {
		_, rec := start(t, Config{}, Deps{})
		time.Sleep(2 * time.Second)
		synctest.Wait()
		want := []string{"3.145728e+06"}
		if !(procFS{root: "/proc"}).hostPIDs() {
			want = nil // these tests run in a container
		}
		if got := series(rec.page(t), "rackpulse_gpu_leaked_memory_bytes"); len(got) != len(want) || len(want) > 0 && got[0] != want[0] {
			t.Errorf("%q, want %q", got, want)
		}
	})
}
