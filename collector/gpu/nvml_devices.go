// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/go-kit/log/level"
)

// enumerate makes the list of GPUs anew. Those that are known keep what is known
// of them; those that are not there any more stay, as lost.
func (s *nvmlSource) enumerate(now time.Time) error {
	s.checked = now
	count, ret := s.lib.DeviceGetCount()
	if ret != nvml.SUCCESS {
		return fmt.Errorf("nvmlDeviceGetCount: %w", ret)
	}
	old := s.gpus
	s.gpus, s.count = nil, count
	failed := make(map[int]nvml.Return) // by index
	for i := range min(count, maxGPUs) {
		handle, uuid, ret := s.handle(i)
		switch ret {
		case nvml.SUCCESS:
			s.found(old, i, handle, uuid)
		case nvml.ERROR_NO_PERMISSION: // not this container's
			level.Info(s.logger).Log("msg", "GPU not ours, left out", "index", i)
		default:
			failed[i] = ret
		}
	}
	for i, ret := range failed { // after all others, which may have moved
		s.add(s.known(old, func(g *nvmlGPU) bool { return g.index == i }), i).lose(ret.Error())
	}
	for _, g := range old {
		if !slices.Contains(s.gpus, g) {
			g.lose("not in the driver's list any more")
			s.gpus = append(s.gpus, g)
		}
	}
	slices.SortStableFunc(s.gpus, func(a, b *nvmlGPU) int { return a.index - b.index })
	s.findInstances(now)
	s.listen()
	return nil
}

// handle returns a GPU's handle and UUID.
func (s *nvmlSource) handle(index int) (nvml.Device, string, nvml.Return) {
	handle, ret := s.lib.DeviceGetHandleByIndex(index)
	if ret != nvml.SUCCESS {
		return nil, "", ret
	}
	uuid, ret := handle.GetUUID()
	return handle, uuid, ret
}

// known returns a GPU of the old list that is not in the new one yet, or nil.
func (s *nvmlSource) known(old []*nvmlGPU, is func(*nvmlGPU) bool) *nvmlGPU {
	for _, g := range old {
		if is(g) && !slices.Contains(s.gpus, g) {
			return g
		}
	}
	return nil
}

// found takes a GPU in that answers.
func (s *nvmlSource) found(old []*nvmlGPU, index int, handle nvml.Device, uuid string) {
	g := s.known(old, func(g *nvmlGPU) bool { return g.device.UUID == uuid })
	if g == nil { // one that never told its UUID
		g = s.known(old, func(g *nvmlGPU) bool { return g.device.UUID == "" && g.index == index })
	}
	g = s.add(g, index)
	if g.handle != handle || g.lost != "" || len(g.off) != len(s.calls) {
		g.off = make([]time.Time, len(s.calls))
		s.slowAt = time.Time{}
	}
	g.handle, g.device.UUID = handle, uuid
	if !g.static {
		s.readStatic(g)
	}
}

// add appends a GPU to the list, a new one for nil.
func (s *nvmlSource) add(g *nvmlGPU, index int) *nvmlGPU {
	if g == nil {
		g = &nvmlGPU{rates: make(map[string]*rate), links: make(map[string]map[int]float64)}
	}
	if g.device.Index == "" || g.index != index {
		g.index, g.static = index, false
		g.device.Index = strconv.Itoa(index)
		if g.device.Name == "" {
			g.device.Name = "nvidia" + g.device.Index
		}
	}
	s.gpus = append(s.gpus, g)
	return g
}

func (g *nvmlGPU) lose(reason string) {
	g.handle, g.lost = nil, reason
	g.mig, g.instances = false, nil
}

// readStatic reads what does not change. What fails is tried again when the GPUs
// are enumerated the next time.
func (s *nvmlSource) readStatic(g *nvmlGPU) {
	g.static = true
	model, ret := g.handle.GetName()
	g.static = g.static && ret == nvml.SUCCESS
	g.device.Model = model
	pci, ret := g.handle.GetPciInfo()
	g.static = g.static && ret == nvml.SUCCESS
	if ret == nvml.SUCCESS { // as text it has two forms, by the function's version
		g.device.PCIBusID = fmt.Sprintf("%08X:%02X:%02X.0", pci.Domain, pci.Bus, pci.Device)
	}
	if s.has("nvmlDeviceGetMinorNumber") {
		if minor, ret := g.handle.GetMinorNumber(); ret == nvml.SUCCESS {
			g.device.Name = "nvidia" + strconv.Itoa(minor)
		}
	}
	g.device.Labels = make(map[string]string, len(s.cfg.Labels))
	for _, field := range s.cfg.Labels {
		if text := s.label(g, field); text != "" {
			g.device.Labels[field] = text
		}
	}
}

// label returns the text of a label field, "" where NVML has none.
func (s *nvmlSource) label(g *nvmlGPU, field string) string {
	var text string
	ret := nvml.SUCCESS
	switch {
	case field == "DCGM_FI_DEV_SERIAL" && s.has("nvmlDeviceGetSerial"):
		text, ret = g.handle.GetSerial()
	case field == labelCUDA && s.has("nvmlSystemGetCudaDriverVersion"):
		var number int
		number, ret = s.lib.SystemGetCudaDriverVersion()
		text = strconv.Itoa(number)
	case field == labelVBIOS && s.has("nvmlDeviceGetVbiosVersion"):
		text, ret = g.handle.GetVbiosVersion()
	case field == "DCGM_FI_NVML_VERSION" && s.has("nvmlSystemGetNVMLVersion"):
		text, ret = s.lib.SystemGetNVMLVersion()
	case field == fieldDriver:
		text = s.driver
	case field == "DCGM_FI_DEV_NAME":
		text = g.device.Model
	case field == "DCGM_FI_DEV_UUID":
		text = g.device.UUID
	case field == "DCGM_FI_DEV_PCI_BUSID":
		text = g.device.PCIBusID
	case field == "DCGM_FI_DEV_MINOR_NUMBER":
		text = strings.TrimPrefix(g.device.Name, "nvidia")
	}
	if ret != nvml.SUCCESS {
		return ""
	}
	return strings.TrimSpace(text)
}

// migSymbols are what MIG needs; drivers before 450 lack them.
var migSymbols = []string{"nvmlDeviceGetMigMode", "nvmlDeviceGetMaxMigDeviceCount",
	"nvmlDeviceGetMigDeviceHandleByIndex", "nvmlDeviceGetGpuInstanceId"}

// findInstances looks for MIG GPU instances. A failure means none.
func (s *nvmlSource) findInstances(now time.Time) {
	s.checkMIG = now
	for _, symbol := range migSymbols {
		if !s.has(symbol) {
			return
		}
	}
	for _, g := range s.gpus {
		if g.handle == nil {
			continue
		}
		mode, _, ret := g.handle.GetMigMode()
		mig := ret == nvml.SUCCESS && mode == nvml.DEVICE_MIG_ENABLE
		var instances []nvmlInstance
		if mig {
			instances = s.instances(g)
		}
		same := func(a, b nvmlInstance) bool { return a.handle == b.handle && a.gid == b.gid }
		if mig == g.mig && slices.EqualFunc(instances, g.instances, same) {
			continue
		}
		g.mig, g.instances = mig, instances
		clear(g.off) // another mode supports other things
		s.slowAt = time.Time{}
	}
}

// instances returns the GPU instances of a GPU. NVML lists compute instances, of
// which a GPU instance may have several; the memory is that of the GPU instance.
func (s *nvmlSource) instances(g *nvmlGPU) []nvmlInstance {
	count, ret := g.handle.GetMaxMigDeviceCount()
	if ret != nvml.SUCCESS {
		return nil
	}
	var list []nvmlInstance
	for i := range min(count, 64) { // there are 7 at most today
		handle, ret := g.handle.GetMigDeviceHandleByIndex(i)
		if ret != nvml.SUCCESS {
			continue // not in use
		}
		id, ret := handle.GetGpuInstanceId()
		gid := strconv.Itoa(id)
		if ret != nvml.SUCCESS || slices.ContainsFunc(list, func(i nvmlInstance) bool { return i.gid == gid }) {
			continue
		}
		name, _ := handle.GetName()
		list = append(list, nvmlInstance{handle: handle, gid: gid, profile: migProfile(name), off: make([]time.Time, len(s.calls))})
	}
	return list
}

// migProfile takes the GPU instance's profile from a MIG device's name, such as
// "NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb", where 1c is the compute instance.
func migProfile(name string) string {
	_, profile, ok := strings.Cut(strings.TrimSpace(name), " MIG ")
	if !ok {
		return ""
	}
	first, rest, ok := strings.Cut(profile, ".")
	if ok && strings.HasSuffix(first, "c") {
		return rest
	}
	return profile
}
