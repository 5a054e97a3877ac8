// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// modbusProfile is the section "modbus" of a profile: a register map.
type modbusProfile struct {
	Registers []modbusRegister `yaml:"registers"`
}

// modbusRegister is one value of a register map.
type modbusRegister struct {
	// Address is the number in the request, from 0.
	Address int `yaml:"address"`
	// Number is what some manuals print instead: 30001 is input register 0, 40001
	// holding register 0 (300001 and 400001 with six digits). It stands for
	// address and function.
	Number int `yaml:"number"`
	// Function is "input" (code 4) or "holding" (code 3).
	Function string `yaml:"function"`
	// Type is one of modbusTypes.
	Type string `yaml:"type"`
	// WordOrder of values of more than one register: "big" (high word first, the
	// default) or "little".
	WordOrder string `yaml:"word_order"`
	measure   `yaml:",inline"`
}

// modbusTypes are the types of a value and their lengths in registers.
var modbusTypes = map[string]int{
	"uint16": 1, "int16": 1, "uint32": 2, "int32": 2, "float32": 2, "uint64": 4, "int64": 4, "float64": 4,
}

func (m *modbusProfile) check(p *Profile, note profileNote) {
	if len(m.Registers) == 0 {
		note([]any{"modbus"}, errors.New("registers: at least one is needed"))
	}
	seen := map[string]bool{}
	for i := range m.Registers {
		r := &m.Registers[i]
		err := r.check(p.Kind)
		if key := r.Quantity + " " + r.Part; err == nil && seen[key] {
			err = fmt.Errorf("%s %s is given twice", r.Quantity, r.Part)
		} else {
			seen[key] = true
		}
		if err != nil {
			note([]any{"modbus", "registers", i}, err)
		}
	}
}

func (r *modbusRegister) check(kind string) error {
	if err := r.measure.check(false, false); err != nil {
		return err
	}
	if q := byName[r.Quantity]; q.PartLabel != "" {
		if _, err := q.part(r.Part); err != nil {
			return err
		}
	}
	if err := r.resolve(); err != nil {
		return err
	}
	n, ok := modbusTypes[r.Type]
	switch {
	case !ok:
		return fmt.Errorf("type %q is unknown", r.Type)
	case r.Address < 0 || r.Address+n > 65536:
		return fmt.Errorf("address %d is not between 0 and 65535", r.Address)
	case !slices.Contains([]string{"input", "holding"}, r.Function):
		return fmt.Errorf("function %q is neither input nor holding", r.Function)
	case !slices.Contains([]string{"", "big", "little"}, r.WordOrder):
		return fmt.Errorf("word_order %q is neither big nor little", r.WordOrder)
	case !slices.Contains(byName[r.Quantity].Kinds, kind):
		return fmt.Errorf("quantity %s belongs to a %s, not to a %s", r.Quantity, strings.Join(byName[r.Quantity].Kinds, " or "), kind)
	}
	return nil
}

// resolve turns the number of a manual into an address, and refuses an address
// that looks like such a number: it would read another register.
func (r *modbusRegister) resolve() error {
	number := r.Number
	if number == 0 {
		number = r.Address
	}
	address, function, ok := numbered(number)
	switch {
	case r.Number == 0 && ok && function == r.Function:
		return fmt.Errorf("address %d looks like the number of a manual; write number: %d, or its address %d", r.Address, r.Address, address)
	case r.Number == 0:
		return nil
	case !ok:
		return fmt.Errorf("number %d is not between 30001 and 39999, 40001 and 49999, or of six digits", r.Number)
	case r.Address != 0 || r.Function != "":
		return errors.New("number stands for address and function; leave these out")
	}
	r.Address, r.Function = address, function
	return nil
}

// numbered splits a register number of a manual.
func numbered(n int) (address int, function string, ok bool) {
	for _, base := range []int{10_000, 100_000} {
		address = n%base - 1
		switch {
		case address < 0:
		case n/base == 3:
			return address, "input", true
		case n/base == 4:
			return address, "holding", true
		}
	}
	return 0, "", false
}
