// SPDX-License-Identifier: Apache-2.0

package gpu

import "testing"

const (
	uuidA  = "GPU-b668a901-6b19-5c0c-554c-cce49d58af0a"
	uuidB  = "GPU-6fb6d3db-aafb-f8da-a089-89b8077580fe"
	migB7  = "MIG-8f9a1d2c-3b4e-5f60-9182-a3b4c5d6e7f8"
	migB11 = "MIG-0c1d2e3f-4a5b-5c6d-8e9f-a0b1c2d3e4f5"
)

// testIndex has two GPUs, whose minor numbers are not their indices, and two MIG
// instances on the second.
func testIndex() *gpuIndex {
	return newGPUIndex(
		[]Device{{Index: "0", UUID: uuidA, Name: "nvidia2"}, {Index: "1", UUID: uuidB, Name: "nvidia3", MIGID: "7"},
			{Index: "1", UUID: uuidB, Name: "nvidia3", MIGID: "11"}, {Index: "5", Name: "nvidia5", Lost: true}},
		&ProcessTable{GPUs: []GPUProcesses{{UUID: uuidA}, {UUID: uuidB, Instances: []MIGInstance{
			{UUID: migB7, GI: "7", CI: "0", Placement: "19-0-1"}, {UUID: migB11, GI: "11", CI: "0", Placement: "14-2-2"}}},
			{UUID: "GPU-stranger", Instances: []MIGInstance{{UUID: "MIG-stranger", GI: "1"}}}}})
}

func TestPluginDeviceIDs(t *testing.T) {
	x := testIndex()
	a, b := gpuRef{uuidA, "0", ""}, gpuRef{uuidB, "1", ""}
	b7, b11 := gpuRef{uuidB, "1", "7"}, gpuRef{uuidB, "1", "11"}
	for id, want := range map[string]*gpuRef{
		uuidA:                            &a,
		uuidB:                            &b,
		uuidA + "::0":                    &a, // time slicing
		uuidA + "::15":                   &a,
		uuidA + "-3":                     &a, // HAMi
		migB7:                            &b7,
		migB11 + "::2":                   &b11,
		"MIG-" + uuidB + "/7/0":          &b7, // before driver 470
		"MIG-" + uuidB + "/11/0":         &b11,
		"nvidia2":                        &a, // GKE
		"nvidia3/gi7":                    &b7,
		"nvidia3/gi11/vgpu1":             &b11,
		"nvidia2/vgpu0":                  &a,
		"nvidia0":                        nil,
		"nvidia3/gix":                    nil,
		"GPU-00000000":                   nil,
		"MIG-stranger":                   nil,
		"MIG-" + uuidB + "/x/0":          nil,
		"MIG-" + uuidB:                   nil,
		uuidA + "x":                      nil,
		"":                               nil,
		"0000:1a:00.0":                   nil,
		"MIG-GPU-" + uuidA[4:] + "::7/0": nil,
	} {
		got, ok := x.device(id)
		if (want != nil) != ok || ok && got != *want {
			t.Errorf("%q: got %+v %v, want %+v", id, got, ok, want)
		}
	}
}

func TestClaimedDevices(t *testing.T) {
	x := testIndex()
	a, b7, b11 := gpuRef{uuidA, "0", ""}, gpuRef{uuidB, "1", "7"}, gpuRef{uuidB, "1", "11"}
	for name, c := range map[string]struct {
		device string
		cdi    []string
		want   *gpuRef
	}{
		"whole":          {"gpu-2", []string{"k8s.gpu.nvidia.com/claim=77f1-gpu-2"}, &a},
		"MIG":            {"gpu-3-mig-19-0-1", nil, &b7},
		"other MIG":      {"gpu-3-mig-14-2-2", nil, &b11},
		"by CDI name":    {"", []string{"k8s.gpu.nvidia.com/device=gpu-2"}, &a},
		"by CDI MIG":     {"", []string{"k8s.gpu.nvidia.com/device=common", "k8s.gpu.nvidia.com/device=gpu-3-mig-19-0-1"}, &b7},
		"by CDI UUID":    {"dev", []string{"nvidia.com/gpu=" + uuidA}, &a},
		"by MIG UUID":    {"dev", []string{"nvidia.com/mig=" + migB11}, &b11},
		"UUID as a name": {uuidA, nil, &a},
		"no such minor":  {"gpu-0", nil, nil},
		"no such place":  {"gpu-3-mig-19-6-1", nil, nil},
		"VFIO":           {"gpu-vfio-2", []string{"k8s.gpu.nvidia.com/claim=1-gpu-vfio-2"}, nil},
		"nothing":        {"", []string{"nonsense"}, nil},
	} {
		got, ok := x.claimed(c.device, c.cdi)
		if (c.want != nil) != ok || ok && got != *c.want {
			t.Errorf("%s: got %+v %v, want %+v", name, got, ok, c.want)
		}
	}
}
