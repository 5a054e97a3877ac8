// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-dcgm/pkg/dcgm"
	"github.com/go-kit/log/level"
)

// lostPasses is how many passes without any value make a GPU lost that had values
// before, when DCGM itself does not say so.
const lostPasses = 3

// Read implements Source. After a lost connection it connects anew.
func (s *dcgmSource) Read(context.Context) (*Sample, error) {
	if s.stuck {
		if s.disconnect(); s.stuck {
			return nil, errStuck
		}
	}
	if s.cleanup == nil {
		if err := s.connect(); err != nil {
			return nil, err
		}
		level.Info(s.logger).Log("msg", "connected to DCGM again")
	}
	sample, err := s.read()
	if code(err) == dcgmConnectionNotValid {
		s.disconnect()
	}
	return sample, err
}

func (s *dcgmSource) read() (*Sample, error) {
	now := time.Now()
	if now.Sub(s.checked) >= min(checkInterval, s.cfg.SlowInterval) {
		if err := s.check(now); err != nil {
			return nil, err
		}
	}
	if len(s.gpus) == 0 {
		return nil, errors.New("DCGM supports no GPU of this node")
	}
	sample := &Sample{At: now, Driver: s.driver, Devices: make([]Device, 0, len(s.entities))}
	ids := s.all
	if sample.FastOnly = !s.cfg.slowDue(s.slowAt, now); sample.FastOnly {
		ids = s.fast
	}
	values, lost, err := s.pass(ids, now)
	if err != nil {
		return nil, err
	}
	if !sample.FastOnly {
		s.slowAt = now
	}
	for _, g := range s.gpus {
		first := len(sample.Devices)
		sample.Devices = s.devices(sample.Devices, g, values)
		reason := s.lossOf(g, sample.Devices[first:], lost[g.id])
		if g.lost && reason == "" && sample.FastOnly {
			s.slowAt = time.Time{} // it is back: do not let its slow values wait
		}
		g.lost = reason != ""
		if g.lost {
			d := g.device
			d.Lost, d.Reason = true, reason
			sample.Devices = append(sample.Devices[:first], d)
		} else if !sample.FastOnly {
			s.support(sample.Devices[first:], g)
		}
	}
	sample.XIDs = s.xids.take(s.gpus)
	sample.Aside = s.sideCalls(now)
	sample.Processes = s.procs.take()
	sample.Rejected = s.rejections()
	return sample, nil
}

// check compares DCGM's list of GPUs with ours. A GPU that it dropped is lost; a
// new one, or one that is back, is taken in by enumerating anew.
func (s *dcgmSource) check(now time.Time) error {
	s.checked = now
	supported, err := dcgm.GetSupportedDevices()
	if err != nil {
		return err
	}
	again := false
	for _, id := range supported {
		g := s.gpu(id)
		again = again || g == nil || !g.supported
	}
	for _, g := range s.gpus {
		g.supported = g.supported && slices.Contains(supported, g.id)
	}
	if now.Sub(s.checkMIG) >= min(migInterval, s.cfg.SlowInterval) {
		s.checkMIG = now
		_, fingerprint := s.instances()
		again = again || fingerprint != s.mig
	}
	if !again {
		return nil
	}
	level.Info(s.logger).Log("msg", "GPUs changed, enumerating")
	return s.enumerate()
}

// pass reads all values and judges them.
func (s *dcgmSource) pass(ids []dcgm.Short, now time.Time) (values map[dcgm.GroupEntityPair][]Value, lost map[uint]string, err error) {
	s.ages.pass(now)
	for _, g := range s.gpus {
		g.rejects.clear()
	}
	values, lost, err = s.latest(ids)
	if err == nil {
		err = s.frozen(values)
	}
	return values, lost, err
}

// latest reads all values in one call. If DCGM refuses that because of one GPU,
// they are read one by one, so that the others go on; lost names those refused.
func (s *dcgmSource) latest(ids []dcgm.Short) (values map[dcgm.GroupEntityPair][]Value, lost map[uint]string, err error) {
	values = make(map[dcgm.GroupEntityPair][]Value, len(s.entities))
	if len(s.entities) == 0 { // none is to be read
		return values, nil, nil
	}
	all, err := s.reader.read(s.entities, ids)
	if err == nil {
		s.collect(values, all)
		return values, nil, nil
	}
	if code(err) == dcgmConnectionNotValid {
		return nil, nil, err
	}
	lost = make(map[uint]string)
	good := false
	for _, g := range s.gpus {
		for _, pair := range g.pairs() {
			one, oneErr := s.reader.read([]dcgm.GroupEntityPair{pair}, ids)
			switch {
			case oneErr == nil:
				good = true
				s.collect(values, one)
			case code(oneErr) == dcgmConnectionNotValid:
				return nil, nil, oneErr
			case code(oneErr) == dcgmGPUIsLost:
				good = true // DCGM works, the GPU does not
				lost[g.id] = oneErr.Error()
			case pair.EntityGroupId == dcgm.FE_GPU_I: // it may be gone, which is no fault of the GPU
				s.checked, s.checkMIG = time.Time{}, time.Time{}
			default:
				lost[g.id] = oneErr.Error()
			}
		}
	}
	if !good {
		return nil, nil, err
	}
	return values, lost, nil
}

// pairs are the entities that are read for a GPU.
func (g *dcgmGPU) pairs() []dcgm.GroupEntityPair {
	if g.skipped {
		return nil
	}
	if len(g.instances) == 0 {
		return []dcgm.GroupEntityPair{{EntityGroupId: dcgm.FE_GPU, EntityId: g.id}}
	}
	pairs := make([]dcgm.GroupEntityPair, 0, len(g.instances))
	for i := range g.instances {
		if !g.instances[i].skipped {
			pairs = append(pairs, g.instances[i].entity)
		}
	}
	return pairs
}

// collect sorts values that are good by entity.
func (s *dcgmSource) collect(values map[dcgm.GroupEntityPair][]Value, list []dcgmValue) {
	for i := range list {
		v := &list[i]
		number, at, reason := s.judge(v)
		if reason != "" {
			if g := s.owners[v.pair]; g != nil {
				g.reject(v.field, reason)
			}
			continue
		}
		if v.field == dcgmFieldXID {
			s.xids.see(v, int(number))
			v.ts = 0 // as old as the error, which must not make it stale
		}
		if values[v.pair] == nil {
			values[v.pair] = make([]Value, 0, len(s.all)+1)
		}
		for _, name := range s.names[v.field] {
			values[v.pair] = append(values[v.pair], Value{Field: name, V: number, At: at})
		}
	}
}

// devices appends a GPU, or its instances; those that are not read without values.
func (s *dcgmSource) devices(list []Device, g *dcgmGPU, values map[dcgm.GroupEntityPair][]Value) []Device {
	if len(g.instances) == 0 {
		d := g.device
		d.Skipped = g.skipped
		d.Values = values[dcgm.GroupEntityPair{EntityGroupId: dcgm.FE_GPU, EntityId: g.id}]
		return append(list, d)
	}
	for i := range g.instances {
		instance := &g.instances[i]
		d := g.device
		instance.describe(&d)
		d.Skipped = instance.skipped
		d.Values = values[instance.entity]
		list = append(list, d)
	}
	return list
}

// describe sets what tells an instance's device from that of its GPU.
func (i *dcgmInstance) describe(d *Device) {
	d.MIGProfile, d.MIGID, d.Entity = i.profile, i.gid, strconv.FormatUint(uint64(i.entity.EntityId), 10)
}

// choose marks what the configuration leaves out. An instance is one of its own, or
// a part of the GPU that is read as a whole.
func (s *dcgmSource) choose() error {
	sel, err := parseSelection(s.cfg.Devices, s.cfg.Exclude)
	if err != nil {
		return err
	}
	for _, g := range s.gpus {
		if sel.kind == selectGPUs {
			g.instances = nil
		}
		g.skipped = len(g.instances) == 0 && !sel.wants(&g.device)
		read := 0
		for i := range g.instances {
			d := g.device
			g.instances[i].describe(&d)
			g.instances[i].skipped = !sel.wants(&d)
			if !g.instances[i].skipped {
				read++
			}
		}
		g.skipped = g.skipped || len(g.instances) > 0 && read == 0
	}
	return nil
}

// frozen returns an error if DCGM answers and yet has refreshed nothing for so long
// that all values are too old: a new engine is to be had then.
func (s *dcgmSource) frozen(values map[dcgm.GroupEntityPair][]Value) error {
	stale := 0
	for _, g := range s.gpus {
		stale += g.rejects.stale
		for _, pair := range g.pairs() {
			if slices.ContainsFunc(values[pair], func(v Value) bool { return v.Field != fieldXID }) {
				return nil
			}
		}
	}
	if stale == 0 {
		return nil
	}
	return fmt.Errorf("DCGM has refreshed no value for %v", staleAge(s.cfg.Interval))
}

// lossOf tells why a GPU is lost, or "", from the values of the fast fields. A lost GPU's values are blank although
// DCGM calls them good and fresh, so the values decide when to ask for the status.
func (s *dcgmSource) lossOf(g *dcgmGPU, devices []Device, refused string) string {
	if refused != "" || g.skipped {
		return refused
	}
	if !g.supported {
		return "dropped from DCGM's list"
	}
	for i := range devices {
		for _, v := range devices[i].Values {
			if v.Field != fieldXID && !isSlow(v.Field) { // the XID outlives the GPU
				g.hadValues, g.empty = true, 0
				return ""
			}
		}
	}
	if g.rejects.stale > 0 {
		return "its values are not refreshed"
	}
	g.empty++
	switch status := dcgm.GetGPUStatus(g.id); status {
	case dcgm.EntityStatusLost, dcgm.EntityStatusInaccessible, dcgm.EntityStatusDisabled, dcgm.EntityStatusDetached:
		return "DCGM status " + status.String()
	}
	if g.hadValues && g.empty >= lostPasses {
		return "no values"
	}
	return ""
}

// code returns the DCGM code of an error, 0 for others.
func code(err error) int {
	var e *dcgm.Error
	if errors.As(err, &e) {
		return int(e.Code)
	}
	return 0
}

// fieldValue returns a field's number, or false for text and for blanks. DCGM
// marks what it has not with the largest values of each type and on (blank, not
// found, not supported, no permission), so the test is >= as in its own macros;
// the 32-bit ones are exact, since 64-bit counters pass through their range.
func fieldValue(typ uint, bits uint64) (float64, bool) {
	switch typ {
	case dcgm.DCGM_FT_DOUBLE:
		f := math.Float64frombits(bits)
		return f, !math.IsNaN(f) && f < dcgm.DCGM_FT_FP64_BLANK
	case dcgm.DCGM_FT_INT64, dcgm.DCGM_FT_TIMESTAMP:
		n := int64(bits)
		blank := n >= dcgm.DCGM_FT_INT64_BLANK ||
			n >= dcgm.DCGM_FT_INT32_BLANK && n <= dcgm.DCGM_FT_INT32_NOT_PERMISSIONED
		return float64(n), !blank
	}
	return 0, false
}

// valueText returns a field's text, or its number as text.
func valueText(v *dcgm.FieldValue_v2) (string, bool) {
	if v.FieldType == dcgm.DCGM_FT_STRING {
		end := bytes.IndexByte(v.Value[:], 0)
		if end < 0 {
			end = len(v.Value)
		}
		s := text(string(v.Value[:end]))
		return s, s != ""
	}
	n, ok := fieldValue(v.FieldType, binary.NativeEndian.Uint64(v.Value[:8]))
	return strconv.FormatFloat(n, 'f', -1, 64), ok
}

// text returns "" for DCGM's blank strings, <<<NULL>>> and its like.
func text(s string) string {
	if strings.HasPrefix(s, "<<<") {
		return ""
	}
	return strings.TrimSpace(s)
}
