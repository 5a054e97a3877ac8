// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"math/bits"
	"slices"
	"strconv"
	"time"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"
	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
)

// maxGroup bounds the entities of one group; DCGM takes 1024.
const maxGroup = 256

// dcgmEntities reads what is no GPU: NVSwitches and NVLinks, Grace CPUs and their
// cores. Switches and CPUs are looked for only when the counters file has fields of
// theirs, because the calls for that crashed DCGM on nodes without them
// (dcgm-exporter #412, #273). One goroutine at a time.
type dcgmEntities struct {
	logger   log.Logger
	interval time.Duration
	names    map[uint16][]string // metric names by field id
	labels   map[uint16][]string // of label fields
	// fields are the ids to read of each kind, numbers and label fields.
	fields, texts map[string][]dcgm.Short

	reader  dcgmReader
	watches dcgmWatches
	watched []dcgm.GroupEntityPair
	told    map[string]string // errors that the log has, by call
}

// dcgmEntity is an entity and how DCGM calls it.
type dcgmEntity struct {
	Entity
	pair dcgm.GroupEntityPair
}

// entityKinds are the kinds that have a field of some level. Utilisations of cores
// are there for whole CPUs too.
var entityKinds = map[dcgm.Field_Entity_Group][]string{
	dcgm.FE_SWITCH:   {kindSwitch},
	dcgm.FE_LINK:     {kindLink},
	dcgm.FE_CPU:      {kindCPU},
	dcgm.FE_CPU_CORE: {kindCPU, kindCore},
}

// kinds are all of them, in the order of the page.
var kinds = []string{kindSwitch, kindLink, kindCPU, kindCore}

// newDCGMEntities sorts fields by the kinds that have them.
func newDCGMEntities(s *dcgmSource) *dcgmEntities {
	e := &dcgmEntities{
		logger: s.logger, interval: max(s.cfg.SlowInterval, s.cfg.Interval), names: s.names, labels: s.labels,
		watches: dcgmWatches{logger: s.logger}, told: make(map[string]string),
		fields: make(map[string][]dcgm.Short), texts: make(map[string][]dcgm.Short),
	}
	e.reader.use(s.cfg.DCGMAddress == "")
	add := func(to map[string][]dcgm.Short, id uint16) {
		if meta, err := dcgm.FieldGetByID(dcgm.Short(id)); err == nil {
			for _, kind := range entityKinds[meta.EntityLevel] {
				to[kind] = append(to[kind], dcgm.Short(id))
			}
		}
	}
	for id := range s.names {
		add(e.fields, id)
	}
	for id := range s.labels {
		add(e.texts, id)
	}
	return e
}

// wants tells whether the counters file has fields of a kind.
func (e *dcgmEntities) wants(kind string) bool { return len(e.fields[kind]) > 0 }

// pass finds all entities and reads them.
func (e *dcgmEntities) pass() *EntityPass {
	found := e.find()
	e.watch(found)
	for _, kind := range kinds {
		ids := e.fields[kind]
		if len(ids) == 0 {
			continue
		}
		of := ofKind(found, kind)
		for chunk := range slices.Chunk(of, max(1, maxRead/len(ids))) {
			e.read(chunk, ids)
		}
		if texts := e.texts[kind]; len(texts) > 0 {
			e.readTexts(of, texts)
		}
	}
	p := &EntityPass{At: time.Now(), List: make([]Entity, len(found))}
	for i, f := range found {
		p.List[i] = f.Entity
	}
	return p
}

// ofKind returns the entities of a kind.
func ofKind(list []*dcgmEntity, kind string) []*dcgmEntity {
	var of []*dcgmEntity
	for _, f := range list {
		if f.Kind == kind {
			of = append(of, f)
		}
	}
	return of
}

func pairsOf(list []*dcgmEntity) []dcgm.GroupEntityPair {
	pairs := make([]dcgm.GroupEntityPair, len(list))
	for i, f := range list {
		pairs[i] = f.pair
	}
	return pairs
}

// find enumerates. Where DCGM cannot tell of one kind there are none of it.
func (e *dcgmEntities) find() []*dcgmEntity {
	var found []*dcgmEntity
	if e.wants(kindSwitch) {
		ids, err := dcgm.GetEntityGroupEntities(dcgm.FE_SWITCH)
		e.tell("NVSwitches", err)
		for _, id := range ids {
			found = append(found, &dcgmEntity{Entity{Kind: kindSwitch, ID: switchName(id)},
				dcgm.GroupEntityPair{EntityGroupId: dcgm.FE_SWITCH, EntityId: id}})
		}
	}
	if dcgmHas("dcgmGetNvLinkLinkStatus") {
		links, err := dcgm.GetNvLinkLinkStatus()
		e.tell("NVLinks", err)
		for i := range links {
			if f := linkEntity(&links[i]); f != nil {
				found = append(found, f)
			}
		}
	}
	if (e.wants(kindCPU) || e.wants(kindCore)) && dcgmHas("dcgmGetCpuHierarchy") {
		h, err := dcgm.GetCPUHierarchy()
		e.tell("CPUs", err)
		if err == nil {
			found = e.addCPUs(found, &h)
		}
	}
	return found
}

// tell logs an error of an enumeration when it is a new one.
func (e *dcgmEntities) tell(what string, err error) {
	text := ""
	if err != nil {
		text = err.Error()
	}
	if text != e.told[what] && text != "" {
		level.Info(e.logger).Log("msg", "DCGM cannot tell of all devices", "of", what, "err", err)
	}
	e.told[what] = text
}

func switchName(id uint) string { return "nvswitch" + strconv.FormatUint(uint64(id), 10) }

// linkEntity returns a link, nil where there is none. DCGM calls all 256 places of
// an NVSwitch disabled that it does not know, so those do not count as links.
// The id of a link is dcgm_link_t: kind, index and parent in 8, 16 and 8 bits.
func linkEntity(l *dcgm.NvLinkStatus) *dcgmEntity {
	f := &dcgmEntity{Entity{Kind: kindLink, ID: strconv.FormatUint(uint64(l.Index), 10)}, dcgm.GroupEntityPair{
		EntityGroupId: dcgm.FE_LINK, EntityId: uint(l.ParentType)&0xff | l.Index&0xffff<<8 | l.ParentId&0xff<<24}}
	switch l.State {
	case dcgm.LS_UP:
		f.State = "up"
	case dcgm.LS_DOWN:
		f.State = "down"
	case dcgm.LS_DISABLED:
		f.State = "disabled"
	}
	if f.State == "" || f.State == "disabled" && l.ParentType == dcgm.FE_SWITCH {
		return nil
	}
	if l.ParentType == dcgm.FE_SWITCH {
		f.Parent = switchName(l.ParentId)
	} else {
		f.GPU = strconv.FormatUint(uint64(l.ParentId), 10)
	}
	return f
}

// addCPUs adds the CPUs and, if they have fields, their cores.
func (e *dcgmEntities) addCPUs(found []*dcgmEntity, h *dcgm.CPUHierarchy_v1) []*dcgmEntity {
	for _, cpu := range h.CPUs[:min(h.NumCPUs, dcgm.MAX_NUM_CPUS)] {
		name := strconv.FormatUint(uint64(cpu.CPUID), 10)
		found = append(found, &dcgmEntity{Entity{Kind: kindCPU, ID: name},
			dcgm.GroupEntityPair{EntityGroupId: dcgm.FE_CPU, EntityId: cpu.CPUID}})
		if !e.wants(kindCore) {
			continue
		}
		for word, mask := range cpu.OwnedCores {
			for ; mask != 0; mask &= mask - 1 {
				core := uint(word*64 + bits.TrailingZeros64(mask))
				found = append(found, &dcgmEntity{
					Entity{Kind: kindCore, ID: strconv.FormatUint(uint64(core), 10), Parent: name},
					dcgm.GroupEntityPair{EntityGroupId: dcgm.FE_CPU_CORE, EntityId: core}})
			}
		}
	}
	return found
}

// watch watches the fields of all entities, anew when these are others than before.
func (e *dcgmEntities) watch(found []*dcgmEntity) {
	pairs := pairsOf(found)
	if slices.Equal(pairs, e.watched) {
		return
	}
	e.watches.end()
	e.watched = pairs
	for _, kind := range kinds {
		ids := slices.Concat(e.fields[kind], e.texts[kind])
		for chunk := range slices.Chunk(pairsOf(ofKind(found, kind)), maxGroup) {
			e.watches.all(kind, chunk, ids, e.interval)
		}
	}
}

// read reads some entities of a kind together or, if DCGM refuses that, one by one,
// so that a faulty one is lost alone.
func (e *dcgmEntities) read(some []*dcgmEntity, ids []dcgm.Short) {
	values, err := e.reader.read(pairsOf(some), ids)
	if err != nil && len(some) > 1 {
		for i := range some {
			e.read(some[i:i+1], ids)
		}
		return
	}
	if err != nil {
		some[0].Lost = true
		return
	}
	for i := range values {
		v := &values[i]
		at := slices.IndexFunc(some, func(f *dcgmEntity) bool { return f.pair == v.pair })
		number, ok := fieldValue(v.typ, v.bits)
		if at < 0 || !ok {
			continue
		}
		for _, name := range e.names[v.field] {
			value := Value{Field: name, V: number}
			if v.ts > 0 {
				value.At = time.UnixMicro(v.ts)
			}
			some[at].Values = append(some[at].Values, value)
		}
	}
}

// readTexts reads the label fields of entities of a kind; those that fail have none.
func (e *dcgmEntities) readTexts(some []*dcgmEntity, ids []dcgm.Short) {
	for _, f := range some {
		values, err := dcgm.EntitiesGetLatestValues([]dcgm.GroupEntityPair{f.pair}, ids, 0)
		if err != nil {
			continue
		}
		f.Labels = make(map[string]string, len(values))
		for i := range values {
			text, ok := valueText(&values[i])
			for _, name := range e.labels[uint16(values[i].FieldID)] {
				if ok {
					f.Labels[name] = text
				}
			}
		}
	}
}
