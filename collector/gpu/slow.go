// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"time"
)

// slowValues keeps the slow fields of the latest pass that read them, so that
// passes in between show them too. The child sends only what it read.
type slowValues struct {
	at      time.Time // of that pass
	devices map[deviceKey]slowDevice
}

// slowDevice is what a device keeps between passes with slow fields.
type slowDevice struct {
	values      []Value
	unsupported []string
}

// complete keeps the slow values of a sample that has them, and adds them to one
// that has not. A lost GPU loses its values at once.
func (s *slowValues) complete(sample *Sample) {
	if !sample.FastOnly {
		s.at = sample.At
		s.devices = make(map[deviceKey]slowDevice, len(sample.Devices))
	}
	for i := range sample.Devices {
		d := &sample.Devices[i]
		key := deviceKey{d.UUID, d.Index, d.MIGID}
		switch {
		case d.Lost:
			delete(s.devices, key)
		case sample.FastOnly:
			d.Values = append(d.Values, s.devices[key].values...)
			d.Unsupported = s.devices[key].unsupported
		default:
			s.devices[key] = slowDevice{s.take(d.Values), d.Unsupported}
		}
	}
}

// take copies the slow ones of some values, with the time of each.
func (s *slowValues) take(values []Value) []Value {
	var slow []Value
	for _, v := range values {
		if !isSlow(v.Field) {
			continue
		}
		if v.At.IsZero() {
			v.At = s.at
		}
		slow = append(slow, v)
	}
	return slow
}
