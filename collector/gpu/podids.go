// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"strings"
)

// gpuRef names a GPU, or a MIG GPU instance, as the series do.
type gpuRef struct {
	UUID  string
	Index string // the gpu label
	GI    string // GPU_I_ID; empty: the whole GPU
}

// gpuIndex finds GPUs by the names that others have for them. It is immutable.
type gpuIndex struct {
	uuids  map[string]gpuRef // GPU-... of the GPU, MIG-... of the compute instance
	names  map[string]gpuRef // nvidia0, by minor number
	places map[string]gpuRef // gpu-0-mig-19-2-1, NVIDIA's DRA driver
}

// newGPUIndex indexes the GPUs of a sample and the MIG instances of a table, which
// may be nil.
func newGPUIndex(devices []Device, table *ProcessTable) *gpuIndex {
	x := &gpuIndex{uuids: map[string]gpuRef{}, names: map[string]gpuRef{}, places: map[string]gpuRef{}}
	minors := map[string]string{} // by UUID
	for i := range devices {
		d := &devices[i]
		if d.UUID == "" {
			continue
		}
		ref := gpuRef{UUID: d.UUID, Index: d.Index}
		x.uuids[d.UUID] = ref
		x.names[d.Name] = ref
		minors[d.UUID] = strings.TrimPrefix(d.Name, "nvidia")
	}
	if table == nil {
		return x
	}
	for i := range table.GPUs {
		g := &table.GPUs[i]
		parent, ok := x.uuids[g.UUID]
		if !ok {
			continue
		}
		for _, mig := range g.Instances {
			ref := gpuRef{UUID: parent.UUID, Index: parent.Index, GI: mig.GI}
			x.uuids[mig.UUID] = ref
			if mig.Placement != "" {
				x.places["gpu-"+minors[g.UUID]+"-mig-"+mig.Placement] = ref
			}
		}
	}
	return x
}

// byIndex finds a GPU by its gpu label.
func (x *gpuIndex) byIndex(index string) (gpuRef, bool) {
	for _, ref := range x.uuids {
		if ref.Index == index {
			ref.GI = ""
			return ref, true
		}
	}
	return gpuRef{}, false
}

// uuidLength is that of a UUID in its usual form.
const uuidLength = 36

// device finds the GPU that a device plugin's device id names:
//
//	GPU-UUID, MIG-UUID              the whole device
//	GPU-UUID::3, MIG-UUID::3        a replica (time slicing, MPS); GPU-UUID-3 in other plugins
//	MIG-GPU-UUID/7/0                GPU instance and compute instance, before driver 470
//	nvidia0, nvidia0/gi7, .../vgpu1 GKE
func (x *gpuIndex) device(id string) (gpuRef, bool) {
	if rest, ok := strings.CutPrefix(id, "MIG-GPU-"); ok {
		uuid, rest, _ := strings.Cut(rest, "/")
		gi, _, _ := strings.Cut(rest, "/")
		ref, ok := x.uuids["GPU-"+uuid]
		ref.GI = gi
		return ref, ok && isNumber(gi)
	}
	for _, kind := range []string{"GPU-", "MIG-"} {
		if n := len(kind) + uuidLength; strings.HasPrefix(id, kind) && len(id) > n && (id[n:n+1] == "-" || strings.HasPrefix(id[n:], "::")) {
			id = id[:n]
		}
	}
	if ref, ok := x.uuids[id]; ok {
		return ref, true
	}
	name, rest, _ := strings.Cut(id, "/")
	ref, ok := x.names[name]
	part, _, _ := strings.Cut(rest, "/")
	if gi, mig := strings.CutPrefix(part, "gi"); mig {
		ref.GI = gi
		ok = ok && isNumber(gi)
	}
	return ref, ok
}

// claimed finds the GPU that a device of a resource claim is: by the device's name,
// else by a CDI id that ends in a name or a UUID. NVIDIA's driver names whole GPUs
// gpu-MINOR and MIG devices gpu-MINOR-mig-PROFILE-START-SIZE.
func (x *gpuIndex) claimed(device string, cdi []string) (gpuRef, bool) {
	names := []string{device}
	for _, id := range cdi {
		if _, name, ok := strings.Cut(id, "="); ok {
			names = append(names, name)
		}
	}
	for _, name := range names {
		if ref, ok := x.places[name]; ok {
			return ref, true
		}
		if minor, ok := strings.CutPrefix(name, "gpu-"); ok && isNumber(minor) {
			if ref, ok := x.names["nvidia"+minor]; ok {
				return ref, true
			}
		}
		if strings.HasPrefix(name, "GPU-") || strings.HasPrefix(name, "MIG-") {
			if ref, ok := x.device(name); ok {
				return ref, true
			}
		}
	}
	return gpuRef{}, false
}
