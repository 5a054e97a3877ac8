// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"math"
	"strconv"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// allLinks is the scope of field values that sums over the NVLinks.
const allLinks = math.MaxUint32

// namedLinks is how many links have fields of their own in DCGM; those of more are
// in the totals only.
const namedLinks = 18

const linkBandwidth = "DCGM_FI_DEV_NVLINK_BANDWIDTH_"

// nvmlLinkCalls are the errors and the traffic of NVLink: of each link, and of
// all of a GPU. Drivers tell the errors of NVLink 1 to 4 by nvmlDeviceGetNvLinkErrorCounter
// and those of NVLink 5 by field values of each link.
func nvmlLinkCalls() []nvmlCall {
	const counter, state = "nvmlDeviceGetNvLinkErrorCounter", "nvmlDeviceGetNvLinkState"
	var list []nvmlCall
	for _, e := range []struct {
		name  string
		kind  nvml.NvLinkErrorCounter
		total uint32
	}{
		{"CRC_FLIT", nvml.NVLINK_ERROR_DL_CRC_FLIT, 0}, // its total is in nvmlCalls
		{"CRC_DATA", nvml.NVLINK_ERROR_DL_CRC_DATA, nvml.FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL},
		{"REPLAY", nvml.NVLINK_ERROR_DL_REPLAY, nvml.FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL},
		{"RECOVERY", nvml.NVLINK_ERROR_DL_RECOVERY, nvml.FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL},
	} {
		name := "DCGM_FI_DEV_NVLINK_" + e.name + "_ERROR_COUNT_"
		if e.total != 0 {
			list = append(list, field(name+"TOTAL", e.total), nvmlCall{symbol: counter, and: state, fields: []string{name + "TOTAL"},
				read: sumOfErrors(name, e.kind), instead: true})
		}
		for link := range namedLinks {
			list = append(list, nvmlCall{symbol: counter, fields: []string{name + "L" + strconv.Itoa(link)},
				read: one(func(d nvml.Device) (uint64, nvml.Return) { return d.GetNvLinkErrorCounter(link, e.kind) })})
		}
	}
	for prefix, ids := range map[string][]uint32{
		linkBandwidth:                      {nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX, nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX},
		"DCGM_FI_DEV_NVLINK_TX_BANDWIDTH_": {nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_TX},
		"DCGM_FI_DEV_NVLINK_RX_BANDWIDTH_": {nvml.FI_DEV_NVLINK_THROUGHPUT_DATA_RX},
	} {
		if prefix != linkBandwidth { // its total is in nvmlCalls
			list = append(list, nvmlCall{symbol: nvmlFieldValues, fields: []string{prefix + "TOTAL"}, read: linkRate(prefix, allLinks, ids...)})
		}
		for link := range namedLinks {
			l := "L" + strconv.Itoa(link)
			list = append(list, nvmlCall{symbol: nvmlFieldValues, fields: []string{prefix + l}, read: linkRate(prefix+l, uint32(link), ids...)})
		}
	}
	for name, id := range nvlink5 {
		list = append(list, nvmlCall{symbol: nvmlFieldValues, fields: []string{"DCGM_FI_DEV_NVLINK_" + name}, read: sumOfLinks(name, id)})
	}
	return list
}

// nvlink5 are the counters that NVML tells of each link since Blackwell, and the
// data link errors, which are older.
var nvlink5 = map[string]uint32{
	"ERROR_DL_CRC":                          nvml.FI_DEV_NVLINK_ERROR_DL_CRC,
	"ERROR_DL_RECOVERY":                     nvml.FI_DEV_NVLINK_ERROR_DL_RECOVERY,
	"ERROR_DL_REPLAY":                       nvml.FI_DEV_NVLINK_ERROR_DL_REPLAY,
	"COUNT_TX_PACKETS":                      nvml.FI_DEV_NVLINK_COUNT_XMIT_PACKETS,
	"COUNT_TX_BYTES":                        nvml.FI_DEV_NVLINK_COUNT_XMIT_BYTES,
	"COUNT_RX_PACKETS":                      nvml.FI_DEV_NVLINK_COUNT_RCV_PACKETS,
	"COUNT_RX_BYTES":                        nvml.FI_DEV_NVLINK_COUNT_RCV_BYTES,
	"COUNT_RX_MALFORMED_PACKET_ERRORS":      nvml.FI_DEV_NVLINK_COUNT_MALFORMED_PACKET_ERRORS,
	"COUNT_RX_BUFFER_OVERRUN_ERRORS":        nvml.FI_DEV_NVLINK_COUNT_BUFFER_OVERRUN_ERRORS,
	"COUNT_RX_ERRORS":                       nvml.FI_DEV_NVLINK_COUNT_RCV_ERRORS,
	"COUNT_RX_REMOTE_ERRORS":                nvml.FI_DEV_NVLINK_COUNT_RCV_REMOTE_ERRORS,
	"COUNT_RX_GENERAL_ERRORS":               nvml.FI_DEV_NVLINK_COUNT_RCV_GENERAL_ERRORS,
	"COUNT_LOCAL_LINK_INTEGRITY_ERRORS":     nvml.FI_DEV_NVLINK_COUNT_LOCAL_LINK_INTEGRITY_ERRORS,
	"COUNT_TX_DISCARDS":                     nvml.FI_DEV_NVLINK_COUNT_XMIT_DISCARDS,
	"COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS": nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_SUCCESSFUL_EVENTS,
	"COUNT_LINK_RECOVERY_FAILED_EVENTS":     nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS,
	"COUNT_LINK_RECOVERY_EVENTS":            nvml.FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS,
	"COUNT_RX_SYMBOL_ERRORS":                nvml.FI_DEV_NVLINK_COUNT_SYMBOL_ERRORS,
	"COUNT_EFFECTIVE_ERRORS":                nvml.FI_DEV_NVLINK_COUNT_EFFECTIVE_ERRORS,
}

// sumOfErrors sums the links' errors of a kind. A link that is down keeps what it
// had, so that the sum does not fall.
func sumOfErrors(name string, kind nvml.NvLinkErrorCounter) nvmlRead {
	return func(g *nvmlGPU, d nvml.Device, v *[maxResults]float64) nvml.Return {
		counts := g.counts(name)
		for link := range nvml.NVLINK_MAX_LINKS {
			state, ret := d.GetNvLinkState(link)
			if ret == nvml.ERROR_GPU_IS_LOST {
				return ret
			}
			if ret != nvml.SUCCESS {
				break // the card has no more
			}
			if state != nvml.FEATURE_ENABLED {
				continue
			}
			n, ret := d.GetNvLinkErrorCounter(link, kind)
			if ret != nvml.SUCCESS {
				return ret
			}
			counts[link] = float64(n)
		}
		return sum(counts, v)
	}
}

// sumOfLinks sums a field value of each link; one that is down keeps what it had.
func sumOfLinks(name string, id uint32) nvmlRead {
	return func(g *nvmlGPU, d nvml.Device, v *[maxResults]float64) nvml.Return {
		list := make([]nvml.FieldValue, nvml.NVLINK_MAX_LINKS)
		for link := range list {
			list[link] = nvml.FieldValue{FieldId: id, ScopeId: uint32(link)}
		}
		if ret := d.GetFieldValues(list); ret != nvml.SUCCESS {
			return ret
		}
		counts := g.counts(name)
		for link := range list {
			if n, ret := fieldNumber(&list[link]); ret == nvml.SUCCESS {
				counts[link] = n
			}
		}
		return sum(counts, v)
	}
}

// counts are the latest counts of a kind by link.
func (g *nvmlGPU) counts(name string) map[int]float64 {
	counts := g.links[name]
	if counts == nil {
		counts = make(map[int]float64)
		g.links[name] = counts
	}
	return counts
}

func sum(counts map[int]float64, v *[maxResults]float64) nvml.Return {
	if len(counts) == 0 {
		return nvml.ERROR_NOT_SUPPORTED
	}
	for _, n := range counts {
		v[0] += n
	}
	return nvml.SUCCESS
}

// linkPass lists the NVLinks of all GPUs, nil where there are none. NVML says of a
// link that it is up or not, DCGM whether it is down or disabled: one that is not up
// counts as down if it or another of the GPU was up, else as never connected.
func (s *nvmlSource) linkPass(now time.Time) *EntityPass {
	if !s.has("nvmlDeviceGetNvLinkState") {
		return nil
	}
	p := &EntityPass{At: now}
	for _, g := range s.gpus {
		if g.handle != nil && g.lost == "" && !now.Before(g.noLinks) {
			p.List = g.addLinks(p.List, now)
		}
	}
	if len(p.List) == 0 {
		return nil
	}
	return p
}

func (g *nvmlGPU) addLinks(list []Entity, now time.Time) []Entity {
	first := len(list)
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := g.handle.GetNvLinkState(link)
		if ret != nvml.SUCCESS { // the card has no more
			if link == 0 && unsupported(ret) {
				g.noLinks = now.Add(unsupportedFor)
			}
			break
		}
		e := Entity{Kind: kindLink, ID: strconv.Itoa(link), GPU: g.device.Index, State: "disabled"}
		if state == nvml.FEATURE_ENABLED {
			e.State, g.linked = "up", true
		}
		list = append(list, e)
	}
	for i := range list[first:] {
		if e := &list[first+i]; g.linked && e.State == "disabled" {
			e.State = "down"
		}
	}
	return list
}

// linkRate is what a link, or all, sent or received or both in MiB/s since the
// last pass, as DCGM has it; protocol overhead is not in it.
func linkRate(name string, scope uint32, ids ...uint32) nvmlRead {
	return func(g *nvmlGPU, d nvml.Device, v *[maxResults]float64) nvml.Return {
		list := make([]nvml.FieldValue, len(ids))
		for i, id := range ids {
			list[i] = nvml.FieldValue{FieldId: id, ScopeId: scope}
		}
		if ret := d.GetFieldValues(list); ret != nvml.SUCCESS {
			return ret
		}
		sum := 0.0
		for i := range list {
			n, ret := fieldNumber(&list[i])
			if ret != nvml.SUCCESS {
				return ret
			}
			sum += n
		}
		at := time.Now()
		if list[0].Timestamp > 0 {
			at = time.UnixMicro(list[0].Timestamp)
		}
		r := g.rates[name]
		if r == nil {
			r = &rate{}
			g.rates[name] = r
		}
		kibibytes, ok := r.next(sum, at)
		if !ok {
			return nvml.ERROR_NO_DATA // until the next pass
		}
		v[0] = math.Floor(kibibytes / 1024)
		return nvml.SUCCESS
	}
}

// rate turns a counter into a rate.
type rate struct {
	value float64
	at    time.Time
}

// next returns the rate per second since the last value, or false where there
// is none or the counter began anew.
func (r *rate) next(value float64, at time.Time) (float64, bool) {
	last := *r
	r.value, r.at = value, at
	seconds := at.Sub(last.at).Seconds()
	if last.at.IsZero() || value < last.value || seconds <= 0 {
		return 0, false
	}
	return (value - last.value) / seconds, true
}
