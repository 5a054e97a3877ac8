// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"
	"github.com/go-kit/log/level"
)

// Static fields of every GPU (dcgm_fields.h).
const (
	dcgmFieldDriver = 1
	dcgmFieldName   = 50
	dcgmFieldUUID   = 54
	dcgmFieldBusID  = 57
	dcgmFieldXID    = 230
)

// enumerate finds the GPUs and their instances, reads what is static about them
// and watches the fields. DCGM's ids need not be 0 to n-1.
func (s *dcgmSource) enumerate() error {
	ids, err := dcgm.GetEntityGroupEntities(dcgm.FE_GPU)
	if err != nil {
		return err
	}
	supported, err := dcgm.GetSupportedDevices()
	if err != nil {
		return err
	}
	// The old watches end when the new ones stand, so that fields of both never stop:
	// a profiling field begins with a blank each time.
	before := s.watches.begin()
	defer before.end()
	s.slowAt = time.Time{}
	old := s.gpus
	s.gpus, s.entities = nil, nil
	for _, g := range old { // one that has vanished stays, as lost
		if !slices.Contains(ids, g.id) {
			ids = append(ids, g.id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids {
		g := &dcgmGPU{id: id, supported: slices.Contains(supported, id)}
		i := slices.IndexFunc(old, func(o *dcgmGPU) bool { return o.id == id })
		if i >= 0 {
			g.device, g.hadValues = old[i].device, old[i].hadValues
		}
		if i < 0 && !g.supported && dcgm.GetGPUStatus(id) == dcgm.EntityStatusUnsupported {
			level.Info(s.logger).Log("msg", "GPU not supported by DCGM, left out", "gpu", id)
			continue
		}
		g.device.Index = strconv.FormatUint(uint64(id), 10)
		g.device.Name = "nvidia" + g.device.Index // as in dcgm-exporter
		s.gpus = append(s.gpus, g)
	}
	s.checked = time.Now()
	if len(s.gpus) == 0 {
		return nil
	}
	if err := s.readStatic(); err != nil {
		return err
	}
	s.findInstances()
	s.xids.watch(s.gpus)
	if err := s.choose(); err != nil {
		return err
	}
	return s.watchFields()
}

// readStatic reads names, UUIDs and label fields of the GPUs that answer. It does
// not use GetDeviceInfo for that: it makes DCGM update everything twice per GPU
// and fails where the topology cannot be read.
func (s *dcgmSource) readStatic() error {
	ids := []dcgm.Short{dcgmFieldDriver, dcgmFieldName, dcgmFieldUUID, dcgmFieldBusID}
	for id := range s.labels {
		meta, err := dcgm.FieldGetByID(dcgm.Short(id))
		if err == nil && len(entityKinds[meta.EntityLevel]) == 0 && !slices.Contains(ids, dcgm.Short(id)) {
			ids = append(ids, dcgm.Short(id))
		}
	}
	var pairs []dcgm.GroupEntityPair
	for _, g := range s.gpus {
		if g.supported {
			pairs = append(pairs, dcgm.GroupEntityPair{EntityGroupId: dcgm.FE_GPU, EntityId: g.id})
		}
	}
	if len(pairs) > 0 {
		if err := s.watches.add("static", pairs, ids, staticInterval); err != nil {
			return err
		}
		values, err := dcgm.EntitiesGetLatestValues(pairs, ids, 0)
		if err != nil {
			return err
		}
		for i := range values {
			s.takeStatic(&values[i])
		}
	}
	for _, g := range s.gpus { // lost from the start: the attributes may still be known
		if g.device.UUID == "" && dcgmHas("dcgmGetDeviceAttributes") {
			if info, err := dcgm.GetDeviceInfo(g.id); err == nil {
				g.device.UUID, g.device.PCIBusID, g.device.Model = text(info.UUID), text(info.PCI.BusID), text(info.Identifiers.Model)
			}
		}
	}
	return nil
}

// takeStatic stores one static value.
func (s *dcgmSource) takeStatic(v *dcgm.FieldValue_v2) {
	g := s.gpu(v.EntityID)
	value, ok := valueText(v)
	if g == nil || !ok {
		return
	}
	switch v.FieldID {
	case dcgmFieldDriver:
		s.driver = value
	case dcgmFieldName:
		g.device.Model = value
	case dcgmFieldUUID:
		g.device.UUID = value
	case dcgmFieldBusID:
		g.device.PCIBusID = value
	}
	for _, name := range s.labels[uint16(v.FieldID)] {
		if g.device.Labels == nil {
			g.device.Labels = make(map[string]string)
		}
		g.device.Labels[name] = value
	}
}

func (s *dcgmSource) gpu(id uint) *dcgmGPU {
	for _, g := range s.gpus {
		if g.id == id {
			return g
		}
	}
	return nil
}

// findInstances looks for MIG GPU instances. A failure means none.
func (s *dcgmSource) findInstances() {
	s.checkMIG = time.Now()
	instances, fingerprint := s.instances()
	s.mig = fingerprint
	for _, g := range s.gpus {
		g.instances = instances[g.id]
	}
	for _, list := range instances {
		for i := range list {
			list[i].profile = instanceProfile(list[i].entity)
		}
	}
}

// instances returns the GPU instances by GPU id, and a text that changes with them.
func (s *dcgmSource) instances() (map[uint][]dcgmInstance, string) {
	if !dcgmHas("dcgmGetGpuInstanceHierarchy") {
		return nil, ""
	}
	h, err := dcgm.GetGPUInstanceHierarchy()
	if err != nil {
		return nil, ""
	}
	found := make(map[uint][]dcgmInstance)
	var fingerprint strings.Builder
	for _, e := range h.EntityList[:min(h.Count, dcgm.MAX_HIERARCHY_INFO)] {
		if e.Entity.EntityGroupId == dcgm.FE_GPU_I {
			found[e.Parent.EntityId] = append(found[e.Parent.EntityId], dcgmInstance{
				entity: e.Entity, gid: strconv.FormatUint(uint64(e.Info.NvmlInstanceId), 10)})
			fmt.Fprintf(&fingerprint, "%d/%d/%d/%d ", e.Parent.EntityId, e.Entity.EntityId, e.Info.NvmlInstanceId, e.Info.NvmlMigProfileId)
		}
	}
	for _, e := range h.EntityList[:min(h.Count, dcgm.MAX_HIERARCHY_INFO)] {
		for _, list := range found {
			for i := range list {
				if e.Entity.EntityGroupId == dcgm.FE_GPU_CI && e.Parent == list[i].entity {
					list[i].compute = append(list[i].compute, e.Entity)
				}
			}
		}
	}
	return found, fingerprint.String()
}

// instanceProfile returns an instance's profile, such as 1g.10gb.
func instanceProfile(entity dcgm.GroupEntityPair) string {
	values, err := dcgm.EntitiesGetLatestValues([]dcgm.GroupEntityPair{entity}, []dcgm.Short{dcgmFieldName}, dcgm.DCGM_FV_FLAG_LIVE_DATA)
	if err != nil || len(values) == 0 {
		return ""
	}
	profile, _ := valueText(&values[0])
	return profile
}

// watchFields watches what Read will read: GPU instances where there are any,
// whole GPUs elsewhere. Profiling fields are apart, since not all cards have them, and
// so are slow ones, which have their own interval.
func (s *dcgmSource) watchFields() error {
	s.ages.forget()
	s.owners = make(map[dcgm.GroupEntityPair]*dcgmGPU)
	for _, g := range s.gpus {
		for _, pair := range g.pairs() {
			s.entities = append(s.entities, pair)
			s.owners[pair] = g
		}
	}
	var plain, profiling []dcgm.Short
	for _, id := range s.fast {
		if isProfiling(s.names[uint16(id)][0]) {
			profiling = append(profiling, id)
		} else {
			plain = append(plain, id)
		}
	}
	watched := s.watches.all("fields", s.entities, plain, s.cfg.Interval) +
		s.watchProfiling(profiling) +
		s.watches.all("slow", s.entities, s.all[len(s.fast):], max(s.cfg.SlowInterval, s.cfg.Interval))
	if watched == 0 && len(s.entities) > 0 {
		return errors.New("DCGM watches none of the fields")
	}
	s.takeRefused()
	return nil
}
