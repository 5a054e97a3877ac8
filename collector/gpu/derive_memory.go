// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"github.com/rackpulse/rackpulse/collector"
)

// rmaCauses are the causes of rackpulse_gpu_rma_flag: the driver could not remap a
// row, all rows that can be remapped are, the SRAM has had more errors in one place
// than it may (the first three: NVIDIA, A100 GPU memory error management), no more
// pages can be retired (NVIDIA, Dynamic page retirement; cards before Ampere).
var rmaCauses = []string{"row_remap_failure", "remapped_rows", "sram_threshold", "retired_pages"}

// memoryFlags judges the state of the memory. What a card does not tell is absent.
func (g *derivedGPU) memoryFlags(slow []collector.Point, dev *Device, l *deviceLabels) []collector.Point {
	sbe, dbe := dev.value("DCGM_FI_DEV_RETIRED_SBE"), dev.value("DCGM_FI_DEV_RETIRED_DBE")
	var retired *Value
	if sbe != nil && dbe != nil {
		retired = &Value{V: sbe.V + dbe.V, At: sbe.At}
	}
	for i, c := range []struct {
		v    *Value
		from float64
	}{
		{dev.value("DCGM_FI_DEV_ROW_REMAP_FAILURE"), 1},
		{dev.value("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"), maxRemappedRows},
		{dev.value(fieldSRAM), 1},
		{retired, maxRetiredPages},
	} {
		if c.v != nil && c.v.V >= 0 {
			slow = append(slow, collector.Point{Desc: descRMA, Values: g.rmaLabels[i], Value: oneIf(c.v.V >= c.from), At: c.v.At})
		}
	}
	remap, page := dev.value("DCGM_FI_DEV_ROW_REMAP_PENDING"), dev.value("DCGM_FI_DEV_RETIRED_PENDING")
	if remap == nil {
		remap = page
	}
	if remap != nil && remap.V >= 0 {
		pending := remap.V > 0 || page != nil && page.V > 0
		slow = append(slow, collector.Point{Desc: descRepair, Values: l.gpu, Value: oneIf(pending), At: remap.At})
	}
	return slow
}

// instancePoints appends what a MIG instance has of its GPU.
func instancePoints(slow []collector.Point, dev *Device) []collector.Point {
	if dev.MIGID == "" {
		return slow
	}
	labels := []string{dev.UUID, dev.Index, dev.MIGProfile, dev.MIGID}
	for field, desc := range map[string]*collector.Desc{fieldInstanceMemory: descInstanceMemory, fieldInstanceSMs: descInstanceSMs} {
		if v := dev.value(field); v != nil {
			slow = append(slow, collector.Point{Desc: desc, Values: labels, Value: v.V, At: v.At})
		}
	}
	return slow
}

// maxLinks bounds the links of a node: 18 GPUs' 18 and 64 of each of 18 NVSwitches,
// and as many again.
const maxLinks = 4096

// linkKey is an NVLink: its number and its GPU or NVSwitch.
type linkKey struct{ id, parent, gpu, uuid string }

type linkState struct {
	up    bool
	flaps float64
}

// flaps follows a link and returns how often it went down.
func (d *derived) flaps(e *Entity, dev *Device) float64 {
	key := linkKey{e.ID, e.Parent, e.GPU, dev.UUID}
	s := d.links[key]
	if s == nil {
		if len(d.links) >= maxLinks {
			clear(d.links)
		}
		s = &linkState{}
		d.links[key] = s
	}
	up := e.State == "up"
	if s.up && !up {
		s.flaps++
	}
	s.up = up
	return s.flaps
}
