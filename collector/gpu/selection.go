// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-kit/log/level"

	"github.com/rackpulse/rackpulse/collector"
)

// The kinds of devices that a selection reads, as dcgm-exporter's option -d has them.
const (
	selectFlexible  = 'f' // GPU instances where there are any, whole GPUs elsewhere
	selectGPUs      = 'g' // whole GPUs, also those that have instances
	selectInstances = 'i' // GPU instances only
)

// maxSelectIDs bounds the ids of a selection, ranges written out.
const maxSelectIDs = 1024

// selection says which devices are read.
type selection struct {
	kind    byte
	ids     []deviceID // none: all
	exclude []deviceID
}

// deviceID names a device in one of several ways.
type deviceID struct {
	text     string // as configured; of a range, one number
	uuid     string
	pci      string // as pciAddress writes it
	number   string // of a GPU or, where instances are selected, DCGM's of an instance
	instance string // with number: that instance of the GPU, its GPU_I_ID
}

var (
	numberForm   = regexp.MustCompile(`^[0-9]{1,5}$`)
	rangeForm    = regexp.MustCompile(`^([0-9]{1,5})-([0-9]{1,5})$`)
	instanceForm = regexp.MustCompile(`^([0-9]{1,5})\.([0-9]{1,5})$`)
	uuidForm     = regexp.MustCompile(`^(?i)gpu-[0-9a-f-]+$`)
	pciForm      = regexp.MustCompile(`^(?:([0-9a-fA-F]{4,8}):)?([0-9a-fA-F]{2}):([0-9a-fA-F]{2})(?:\.([0-7]))?$`)
)

// parseSelection reads "f", "g[:ids]", "i[:ids]" or ids, and the ids to leave out.
// Errors name the key.
func parseSelection(devices string, exclude []string) (*selection, error) {
	s := &selection{kind: selectFlexible}
	kind, ids, hasIDs := strings.Cut(strings.TrimSpace(devices), ":")
	switch {
	case devices == "":
		ids = ""
	case kind == "f" && hasIDs:
		return nil, fmt.Errorf("gpu.devices: f takes no ids (write %q)", "g:"+ids)
	case kind == "f", kind == "g", kind == "i":
		s.kind = kind[0]
		if hasIDs && ids == "" {
			return nil, fmt.Errorf("gpu.devices: no ids behind %q", devices)
		}
	default:
		ids = devices
	}
	var err error
	if ids != "" {
		if s.ids, err = parseIDs(strings.Split(ids, ",")); err != nil {
			return nil, fmt.Errorf("gpu.devices: %w", err)
		}
	}
	if s.exclude, err = parseIDs(exclude); err != nil {
		return nil, fmt.Errorf("gpu.exclude: %w", err)
	}
	return s, nil
}

func parseIDs(texts []string) ([]deviceID, error) {
	var ids []deviceID
	for _, text := range texts {
		text = strings.TrimSpace(text)
		switch m := rangeForm.FindStringSubmatch(text); {
		case m != nil:
			from, _ := strconv.Atoi(m[1]) // five digits
			to, _ := strconv.Atoi(m[2])
			if from > to || to-from >= maxSelectIDs {
				return nil, fmt.Errorf("%q is no range of up to %d numbers", text, maxSelectIDs)
			}
			for n := from; n <= to; n++ {
				ids = append(ids, deviceID{text: strconv.Itoa(n), number: strconv.Itoa(n)})
			}
		case numberForm.MatchString(text):
			n, _ := strconv.Atoi(text)
			ids = append(ids, deviceID{text: text, number: strconv.Itoa(n)})
		case instanceForm.MatchString(text):
			gpu, instance, _ := strings.Cut(text, ".")
			ids = append(ids, deviceID{text: text, number: gpu, instance: instance})
		case uuidForm.MatchString(text):
			ids = append(ids, deviceID{text: text, uuid: text})
		case pciForm.MatchString(text):
			ids = append(ids, deviceID{text: text, pci: pciAddress(text)})
		default:
			return nil, fmt.Errorf("%q is no number, range, UUID (GPU-...), PCI address or instance (GPU.INSTANCE)", text)
		}
		if len(ids) > maxSelectIDs {
			return nil, fmt.Errorf("more than %d ids", maxSelectIDs)
		}
	}
	return ids, nil
}

// pciAddress writes an address in one form: DCGM's has a domain of eight digits,
// lspci's one of four or none.
func pciAddress(text string) string {
	m := pciForm.FindStringSubmatch(text)
	if m == nil {
		return ""
	}
	domain, _ := strconv.ParseUint(m[1], 16, 32) // none: 0
	function := m[4]
	if function == "" {
		function = "0"
	}
	return strings.ToLower(fmt.Sprintf("%x:%s:%s.%s", domain, m[2], m[3], function))
}

// names tells whether the id is that of a device, or of the GPU that it is on;
// instances says that numbers are those of instances.
func (id *deviceID) names(d *Device, instances bool) bool {
	switch {
	case id.uuid != "":
		return strings.EqualFold(id.uuid, d.UUID)
	case id.pci != "":
		return id.pci == pciAddress(d.PCIBusID)
	case id.instance != "":
		return id.number == d.Index && id.instance == d.MIGID
	case instances:
		return id.number == d.Entity
	}
	return id.number == d.Index
}

func namedBy(ids []deviceID, d *Device, instances bool) bool {
	return slices.ContainsFunc(ids, func(id deviceID) bool { return id.names(d, instances) })
}

// wants tells whether a device is read.
func (s *selection) wants(d *Device) bool {
	if namedBy(s.exclude, d, false) {
		return false
	}
	if s.kind == selectInstances && d.MIGID == "" {
		return d.Lost // one with instances, perhaps
	}
	return len(s.ids) == 0 || namedBy(s.ids, d, s.kind == selectInstances)
}

// unmatched returns the configured ids that no device has.
func (s *selection) unmatched(devices []Device) []string {
	var texts []string
	look := func(ids []deviceID, instances bool) {
		for i := range ids {
			if !slices.ContainsFunc(devices, func(d Device) bool { return ids[i].names(&d, instances) }) {
				texts = append(texts, ids[i].text)
			}
		}
	}
	look(s.ids, s.kind == selectInstances)
	look(s.exclude, false)
	slices.Sort(texts)
	return slices.Compact(texts)
}

// selectDevices marks the devices of a sample that are not to be read, takes their
// driver errors and the missing GPUs among them out, and tells of ids that no device has.
func (r *Runner) selectDevices(sample *Sample, missing []*knownGPU) []*knownGPU {
	s := r.settings.Load().selection
	for i := range sample.Devices {
		d := &sample.Devices[i]
		d.Skipped = d.Skipped || !s.wants(d)
	}
	sample.XIDs = slices.DeleteFunc(sample.XIDs, func(e XID) bool {
		return slices.ContainsFunc(sample.Devices, func(d Device) bool { return d.UUID == e.UUID && d.Skipped })
	})
	if unmatched := s.unmatched(sample.Devices); !slices.Equal(unmatched, r.unmatched) {
		if len(unmatched) > 0 {
			level.Warn(r.logger).Log("msg", "no device has these ids of gpu.devices or gpu.exclude", "ids", strings.Join(unmatched, " "))
		}
		r.unmatched = unmatched
		r.events.changed = true
	}
	return slices.DeleteFunc(missing, func(g *knownGPU) bool {
		d := Device{UUID: g.UUID, Index: g.Index, PCIBusID: g.PCIBusID, Lost: true}
		return g.UUID != "" && !s.wants(&d)
	})
}

// present returns the sorted UUIDs of the GPUs that answer.
func present(devices []Device) []string {
	uuids := make([]string, 0, len(devices))
	for i := range devices {
		if d := &devices[i]; d.UUID != "" && !d.Lost {
			uuids = append(uuids, d.UUID)
		}
	}
	slices.Sort(uuids)
	return slices.Compact(uuids)
}

// unmatchedPoints appends the ids that no device has.
func (r *Runner) unmatchedPoints(points []collector.Point) []collector.Point {
	for _, id := range r.unmatched {
		points = append(points, collector.Point{Desc: descUnmatched, Values: []string{id}, Value: 1})
	}
	return points
}
