// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"context"
	"errors"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/go-kit/log"

	"github.com/rackpulse/rackpulse/sim"
)

func init() {
	register(registration{name: simName, priority: 90, open: openSim})
}

// simDriver stands for the driver version, so that nobody takes it for a real one.
const simDriver = "simulated"

// simSource reads the node from the simulated hall.
type simSource struct {
	node SimFunc
	// xids is what has been told of each GPU; nil before the first pass, since
	// errors before the agent's start are not this agent's to count.
	xids map[string]map[int]int
}

func openSim(_ context.Context, cfg SourceConfig, _ log.Logger) (Source, error) {
	if cfg.Sim == nil {
		return nil, errors.New("no simulation was asked for")
	}
	if _, ok := cfg.Sim(time.Now()); !ok {
		return nil, errors.New("this node is not in the simulated hall")
	}
	return &simSource{node: cfg.Sim}, nil
}

// Read implements Source.
func (s *simSource) Read(context.Context) (*Sample, error) {
	now := time.Now()
	node, ok := s.node(now)
	if !ok {
		return nil, errors.New("this node is not in the simulated hall")
	}
	if !node.Up {
		return nil, errors.New("the simulated node is down")
	}
	sample := &Sample{At: now, Driver: simDriver, Devices: make([]Device, 0, len(node.GPUs))}
	first := s.xids == nil
	if first {
		s.xids = make(map[string]map[int]int, len(node.GPUs))
	}
	for i := range node.GPUs {
		g := &node.GPUs[i]
		sample.Devices = append(sample.Devices, simDevice(g))
		sample.XIDs = append(sample.XIDs, s.newXIDs(g, first)...)
	}
	return sample, nil
}

// newXIDs returns the errors since the last pass.
func (s *simSource) newXIDs(g *sim.GPU, first bool) []XID {
	told := s.xids[g.UUID]
	if told == nil {
		told = make(map[int]int)
		s.xids[g.UUID] = told
	}
	var events []XID
	for code, n := range g.XIDs {
		for range max(n-told[code], 0) {
			events = append(events, XID{UUID: g.UUID, Code: code})
		}
		told[code] = n
	}
	if first {
		return nil
	}
	slices.SortFunc(events, func(a, b XID) int { return a.Code - b.Code })
	return events
}

// Close implements Source.
func (s *simSource) Close() error { return nil }

func simDevice(g *sim.GPU) Device {
	index := strconv.Itoa(g.Index)
	d := Device{Index: index, UUID: g.UUID, PCIBusID: g.PCIBusID, Name: "nvidia" + index, Model: g.Model}
	if !g.Present {
		d.Lost, d.Reason = true, "fallen off the bus"
		return d
	}
	d.Values = make([]Value, 0, 40) // a few more than there are
	add := func(field string, v float64) {
		d.Values = append(d.Values, Value{Field: field, V: v})
	}
	// Integers where DCGM has integers.
	add("DCGM_FI_DEV_SM_CLOCK", math.Round(g.SMClockMHz))
	add("DCGM_FI_DEV_MEM_CLOCK", math.Round(g.MemClockMHz))
	add("DCGM_FI_DEV_MEMORY_TEMP", math.Round(g.MemTempC))
	add(fieldTemp, math.Round(g.TempC))
	add(fieldMargin, math.Round(g.MarginC))
	add("DCGM_FI_DEV_POWER_USAGE", g.PowerWatts)
	add("DCGM_FI_DEV_POWER_MGMT_LIMIT", g.PowerLimitWatts)
	add("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", math.Round(g.EnergyJoules*1e3)) // mJ
	add("DCGM_FI_DEV_GPU_UTIL", math.Round(g.Util*100))
	add("DCGM_FI_DEV_MEM_COPY_UTIL", math.Round(g.MemUtil*100))
	add("DCGM_FI_DEV_ENC_UTIL", 0)
	add("DCGM_FI_DEV_DEC_UTIL", 0)
	add("DCGM_FI_DEV_FB_FREE", math.Round(g.FBFreeMiB))
	add("DCGM_FI_DEV_FB_USED", math.Round(g.FBUsedMiB))
	add("DCGM_FI_DEV_FB_RESERVED", math.Round(g.FBReservedMiB))
	add("DCGM_FI_DEV_FAN_SPEED", math.Round(g.FanRatio*100))
	add("DCGM_FI_DEV_PCIE_LINK_GEN", float64(g.PCIeGen))
	add("DCGM_FI_DEV_PCIE_LINK_WIDTH", float64(g.PCIeWidth))
	add("DCGM_FI_DEV_PCIE_REPLAY_COUNTER", math.Floor(g.PCIeReplays))
	add("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS", math.Floor(g.RemapUncorr))
	add("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS", math.Floor(g.RemapCorr))
	add("DCGM_FI_DEV_ROW_REMAP_FAILURE", 0)
	add("DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL", math.Round(g.NVLinkMiBs))
	add("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL", math.Floor(g.NVLinkCRC))
	add("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", math.Floor(g.ECCSBE))
	add("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", math.Floor(g.ECCDBE))
	add("DCGM_FI_PROF_GR_ENGINE_ACTIVE", g.Util)
	add("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", g.TensorActive)
	add("DCGM_FI_PROF_DRAM_ACTIVE", g.DRAMActive)
	add("DCGM_FI_PROF_PCIE_TX_BYTES", math.Round(g.PCIeTxBytes))
	add("DCGM_FI_PROF_PCIE_RX_BYTES", math.Round(g.PCIeRxBytes))
	add(fieldThrottle, float64(simThrottle(g)))
	if g.LastXID != 0 {
		add(fieldXID, float64(g.LastXID))
	}
	return d
}

// simThrottle returns the clock event bits of a simulated GPU. The hardware
// reasons come with the general slow-down bit, as on real cards.
func simThrottle(g *sim.GPU) uint64 {
	var mask uint64
	if g.Util == 0 {
		mask |= 0x1
	}
	if g.PowerCap {
		mask |= 0x4
	}
	if g.ThermalSlowdown {
		mask |= 0x40 | 0x8
	}
	if g.PowerBrake {
		mask |= 0x80 | 0x8
	}
	return mask
}
