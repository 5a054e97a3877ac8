// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
)

// The pieces of Redfish resources that are read. Services leave properties out,
// send null, or a string for a number; each then counts as absent and costs no
// other property. That is why these are not gofish's types: theirs give up a
// whole resource for one of a wrong type.

// rfNumber is a number, or absent.
type rfNumber struct {
	value float64
	ok    bool
}

// UnmarshalJSON never fails: what is no number is absent.
func (n *rfNumber) UnmarshalJSON(b []byte) error {
	text := string(bytes.Trim(b, `"`))
	v, err := strconv.ParseFloat(text, 64)
	*n = rfNumber{}
	if err == nil && finite(v) {
		*n = rfNumber{value: v, ok: true}
	}
	return nil
}

// highest keeps the larger of two numbers.
func (n *rfNumber) highest(o rfNumber) {
	if o.ok && (!n.ok || o.value > n.value) {
		*n = o
	}
}

// plus adds a number that is there.
func (n *rfNumber) plus(o rfNumber) {
	if o.ok {
		*n = rfNumber{value: n.value + o.value, ok: true}
	}
}

// rfReading is an excerpt of a sensor, such as PowerWatts.
type rfReading struct {
	Reading         rfNumber
	LifetimeReading rfNumber
	PowerFactor     rfNumber
}

// UnmarshalJSON also takes the bare number that some services send.
func (r *rfReading) UnmarshalJSON(b []byte) error {
	type plain rfReading
	if len(b) > 0 && b[0] == '{' {
		return rfDecode(b, (*plain)(r))
	}
	*r = rfReading{}
	return r.Reading.UnmarshalJSON(b)
}

type rfLink struct {
	ID string `json:"@odata.id"`
}

// rfStatus is a resource's Status.
type rfStatus struct{ State, Health string }

// gone says that a resource's values mean nothing: the part is not there, or
// not in use.
func (s rfStatus) gone() bool {
	return slices.Contains([]string{"Absent", "Disabled", "UnavailableOffline", "StandbyOffline", "Starting"}, s.State)
}

// rfCollection is a collection or the like: a list of links or of resources.
type rfCollection struct {
	Members  []json.RawMessage
	NextLink string `json:"Members@odata.nextLink"`
}

// rfDecode decodes what fits. Properties of another type than expected stay as
// they were; an error is only what is no JSON at all.
func rfDecode(b []byte, v any) error {
	err := json.Unmarshal(b, v)
	var wrong *json.UnmarshalTypeError
	if errors.As(err, &wrong) && wrong.Field != "" {
		return nil
	}
	return err
}

// rfCircuit is a Circuit or Outlet.
type rfCircuit struct {
	ID                   string `json:"Id"`
	Status               rfStatus
	RatedCurrentAmps     rfNumber
	Voltage              rfReading
	CurrentAmps          rfReading
	PowerWatts           rfReading
	PolyPhaseVoltage     map[string]rfReading
	PolyPhaseCurrentAmps map[string]rfReading
	PolyPhasePowerWatts  map[string]rfReading
}

// rfPhases are the names of phases in Redfish with our parts: line to neutral,
// and line to line.
var rfPhases = map[string]string{
	"Line1ToNeutral": "1", "Line2ToNeutral": "2", "Line3ToNeutral": "3",
	"Line1ToLine2": "1-2", "Line2ToLine3": "2-3", "Line3ToLine1": "3-1",
}

// rfLines are the three line conductors.
var rfLines = []string{"Line1", "Line2", "Line3"}
