// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/rackpulse/rackpulse/site"
)

// ProbeReport is what "rackpulse facility probe" finds on one device.
type ProbeReport struct {
	Address     string `json:"address"`
	SysObjectID string `json:"sys_object_id"`
	SysDescr    string `json:"sys_descr"`
	Model       string `json:"model,omitempty"`
	Firmware    string `json:"firmware,omitempty"`
	// Profile is the profile that the device was read by, Kind its kind.
	Profile string       `json:"profile"`
	Kind    string       `json:"kind"`
	Values  []ProbeValue `json:"values"`
	Checks  []ProbeCheck `json:"checks,omitempty"`
	// Errors are what went wrong on the way; the values are those that came.
	Errors []string `json:"errors,omitempty"`
}

// ProbeValue is one value with where it came from.
type ProbeValue struct {
	// Owner is "unit 2" or "sensor 1" for values that need an entry in chain or
	// sensors to be shown; empty for the device's own.
	Owner    string   `json:"owner,omitempty"`
	Metric   string   `json:"metric"`
	Quantity string   `json:"quantity"`
	Part     string   `json:"part,omitempty"`
	Text     string   `json:"text,omitempty"`
	Value    *float64 `json:"value"` // in base units; absent without a value
	BaseUnit string   `json:"base_unit"`
	Object   string   `json:"object,omitempty"`
	OID      string   `json:"oid,omitempty"`
	Raw      string   `json:"raw,omitempty"`
	Factor   float64  `json:"factor,omitempty"`
	Unit     string   `json:"unit,omitempty"`
	// Note says why there is no value, or why it is implausible.
	Note        string `json:"note,omitempty"`
	Implausible bool   `json:"implausible,omitempty"`
}

// ProbeCheck is one cross check.
type ProbeCheck struct {
	Owner       string `json:"owner,omitempty"`
	Check       string `json:"check"`
	Implausible bool   `json:"implausible"`
	Text        string `json:"text,omitempty"`
}

// ProbeSNMP reads a device once and reports all that it shows, attached sensors
// and the units of a daisy chain included. Profile and profileFile may both be
// empty: then the device is identified. An error is a wrong configuration or a
// device that does not answer; it names the address.
func ProbeSNMP(ctx context.Context, address string, c SNMPConfig, profile, profileFile string) (*ProbeReport, error) {
	p, err := profileFor(profile, profileFile)
	if err != nil {
		return nil, err
	}
	plan, err := newSNMPDriver(address, c, p, "")
	if err != nil {
		return nil, err
	}
	d := plan.fresh()
	d.showAll = true
	defer d.Close() //nolint:errcheck // nothing is lost
	list, err := d.read(ctx)
	if d.profile == nil {
		return nil, fmt.Errorf("%s: %w", d.session.host, err)
	}
	report := &ProbeReport{
		Address: d.session.host, SysObjectID: d.id.SysObjectID, SysDescr: d.id.SysDescr, Model: d.id.Model, Firmware: d.id.Firmware,
		Profile: d.profile.Name, Kind: d.profile.Kind,
	}
	if err != nil {
		report.Errors = strings.Split(err.Error(), "\n")
	}
	report.fill(list, d.profile)
	return report, nil
}

// fill adds the values, what is derived of them and the checks.
func (r *ProbeReport) fill(list []SNMPValue, p *Profile) {
	var owned []Reading
	for _, v := range list {
		r.Values = append(r.Values, probeValue(v))
		if v.Absent == "" {
			reading := v.Reading
			reading.Device = v.Owner // readings of one owner belong together
			owned = append(owned, reading)
		}
	}
	all := derive(p.Derived, owned)
	for _, v := range all[len(owned):] {
		r.Values = append(r.Values, probeValue(SNMPValue{Reading: v, Owner: v.Device}))
	}
	for _, c := range crossCheck(all) {
		r.Checks = append(r.Checks, ProbeCheck{Owner: c.Device, Check: c.Check, Implausible: c.Implausible, Text: c.Text})
	}
	slices.SortStableFunc(r.Values, func(a, b ProbeValue) int { return strings.Compare(a.Owner, b.Owner) })
}

func probeValue(v SNMPValue) ProbeValue {
	q := byName[v.Quantity]
	out := ProbeValue{
		Owner: v.Owner, Metric: q.Desc.Name, Quantity: v.Quantity, Part: v.Part, Text: v.Text, BaseUnit: q.Base,
		Object: v.Object, OID: v.OID, Raw: v.Raw, Unit: v.Unit, Note: v.Absent,
	}
	if v.Object != "" && v.Unit != "" {
		out.Factor = v.Factor
	}
	if v.Object == "" {
		out.Note = "derived"
	}
	if v.Absent != "" {
		return out
	}
	value := v.Value
	out.Value = &value
	part, err := q.part(v.Part)
	switch {
	case err != nil:
		out.Note, out.Implausible = err.Error(), true
	case (q.Desc.Min != 0 || q.Desc.Max != 0) && (value < q.Desc.Min || value > q.Desc.Max):
		out.Note, out.Implausible = fmt.Sprintf("not between %g and %g", q.Desc.Min, q.Desc.Max), true
	default:
		out.Part = part
		if why := unlikely(q, value, v.Owner); why != "" {
			out.Note, out.Implausible = why, true
		}
	}
	return out
}

// unlikely tells of values that are possible but hardly ever right. They are
// only for people: the agent takes them.
func unlikely(q *Quantity, value float64, owner string) string {
	switch {
	case q.Base == UnitVolt && value != 0 && (value < 90 || value > 500):
		return "mains voltages are 100 to 480 V"
	case q.Name == "inlet_temperature" && (value < 5 || value > 50 && !strings.HasPrefix(owner, "sensor ")):
		return "air at the inlet of a rack has 15 to 35 C"
	case q.Base == UnitAmpere && value > 125 && slices.Contains(q.Kinds, site.KindPDU):
		return "the largest rack PDUs have 125 A"
	}
	return ""
}
