// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"encoding/binary"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

func TestNVMLNVLinkRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMockNode(1)
		kibibytes := uint64(1 << 40)
		m.gpus[0].GetFieldValuesFunc = func(list []nvml.FieldValue) nvml.Return {
			for i := range list {
				if list[i].ScopeId != math.MaxUint32 {
					t.Errorf("scope %d", list[i].ScopeId)
				}
				list[i].ValueType = uint32(nvml.VALUE_TYPE_UNSIGNED_LONG_LONG)
				binary.NativeEndian.PutUint64(list[i].Value[:], kibibytes)
				list[i].Timestamp = time.Now().UnixMicro()
			}
			return nvml.SUCCESS
		}
		const field = "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL"
		s := m.open(t, fieldTemp, field)
		defer s.Close()
		next := func(add uint64) float64 {
			kibibytes += add
			time.Sleep(2 * time.Second)
			return valueOf(read(t, s).Devices[0], field)
		}
		if v := next(0); !math.IsNaN(v) {
			t.Errorf("first pass: %v", v)
		}
		if v := next(50 << 20); v != 50<<10 { // 50 GiB each way in 2 s
			t.Errorf("rate: %v MiB/s", v)
		}
		if v := next(0); v != 0 {
			t.Errorf("idle: %v", v)
		}
		kibibytes = 0
		if v := next(7); !math.IsNaN(v) {
			t.Errorf("after a reset: %v", v)
		}
	})
}

// TestNVMLNVLinkCRC: the sum does not fall when a link goes down.
func TestNVMLNVLinkCRC(t *testing.T) {
	m := newMockNode(1)
	down := -1
	d := m.gpus[0]
	d.GetFieldValuesFunc = func(list []nvml.FieldValue) nvml.Return {
		list[0].NvmlReturn = uint32(nvml.ERROR_NOT_SUPPORTED)
		return nvml.SUCCESS
	}
	d.GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
		switch {
		case link >= 12:
			return 0, nvml.ERROR_INVALID_ARGUMENT
		case link == down || link == 5:
			return nvml.FEATURE_DISABLED, nvml.SUCCESS
		}
		return nvml.FEATURE_ENABLED, nvml.SUCCESS
	}
	d.GetNvLinkErrorCounterFunc = func(link int, c nvml.NvLinkErrorCounter) (uint64, nvml.Return) {
		return uint64(link), nvml.SUCCESS
	}
	const field = "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"
	s := m.open(t, field)
	defer s.Close()
	for _, down = range []int{-1, 11} {
		if v := valueOf(read(t, s).Devices[0], field); v != 61 { // 0+1+...+11 without 5
			t.Errorf("link %d down: %v", down, v)
		}
	}
}

func TestNVMLFieldNumber(t *testing.T) {
	f := func(kind nvml.ValueType, bits uint64, value float64, ret nvml.Return) {
		t.Helper()
		v := nvml.FieldValue{ValueType: uint32(kind)}
		binary.NativeEndian.PutUint64(v.Value[:], bits)
		if got, r := fieldNumber(&v); got != value || r != ret {
			t.Errorf("type %d: %v, %v", kind, got, r)
		}
	}
	f(nvml.VALUE_TYPE_DOUBLE, math.Float64bits(1.5), 1.5, nvml.SUCCESS)
	f(nvml.VALUE_TYPE_UNSIGNED_INT, 0xdeadbeef<<32|71, 71, nvml.SUCCESS) // the rest is rubbish
	f(nvml.VALUE_TYPE_SIGNED_INT, uint64(uint32(0xfffffff6)), -10, nvml.SUCCESS)
	f(nvml.VALUE_TYPE_UNSIGNED_LONG, 1<<40, 1<<40, nvml.SUCCESS)
	f(nvml.VALUE_TYPE_SIGNED_LONG_LONG, math.MaxUint64, -1, nvml.SUCCESS)
	f(99, 1, 0, nvml.ERROR_NOT_SUPPORTED)
}

func TestMIGProfile(t *testing.T) {
	for name, profile := range map[string]string{
		"NVIDIA H100 80GB HBM3 MIG 1g.10gb":     "1g.10gb",
		"NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb":  "3g.40gb",
		"NVIDIA A100-SXM4-40GB MIG 1g.5gb+me":   "1g.5gb+me",
		"NVIDIA H100 80GB HBM3":                 "",
		"NVIDIA H200 MIG 2c.7g.141gb+gfx.rest ": "7g.141gb+gfx.rest",
	} {
		if got := migProfile(name); got != profile {
			t.Errorf("%q: %q, want %q", name, got, profile)
		}
	}
}

// TestNVMLSymbols looks every function up that the source asks for in go-nvml: a
// slip in a name would only cost a field, silently.
func TestNVMLSymbols(t *testing.T) {
	module, err := nvmlModule()
	if err != nil {
		t.Fatal(err)
	}
	header, err := os.ReadFile(filepath.Join(module, "pkg", "nvml", "nvml.h"))
	if err != nil {
		t.Fatal(err)
	}
	symbols := slices.Concat(nvmlRequired, eventSymbols, migSymbols)
	for _, c := range slices.Concat(nvmlCalls, nvmlMore) {
		symbols = append(symbols, c.symbol)
		if c.and != "" {
			symbols = append(symbols, c.and)
		}
		for _, field := range c.fields {
			if f, ok := fieldNames()[field]; !strings.HasPrefix(field, "rackpulse_gpu_") && (!ok || f.metric != field) {
				t.Errorf("%s: unknown field %s", c.symbol, field)
			}
		}
	}
	for _, symbol := range symbols {
		if !strings.Contains(string(header), " "+symbol+"(") {
			t.Errorf("NVML has no %s", symbol)
		}
	}
}
