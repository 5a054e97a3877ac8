// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/simonvetter/modbus"
)

func init() {
	Register("modbus", "meters and sensors with a register map, on a serial line (RTU) or behind a gateway (TCP)", newModbus)
}

const (
	defaultModbusPort    = "502"
	defaultModbusTimeout = time.Second
	maxModbusTimeout     = 5 * time.Second
	// maxModbusBlock is the most registers of one request. The protocol allows
	// 125; Eastron's meters 80.
	maxModbusBlock = 80
	// modbusTries is how often a request is sent when its answer was garbled.
	modbusTries = 2
)

// modbusConfig is the block "modbus" of an entry. All but Unit belong to the
// line and are the same for all devices on it.
type modbusConfig struct {
	// Unit is the device's number on the line, default 1.
	Unit *uint8 `yaml:"unit"`
	// Framing of a gateway: tcp (default), or rtu for one that passes on serial
	// frames as they are.
	Framing string        `yaml:"framing"`
	Baud    int           `yaml:"baud"`    // default 9600
	Bits    int           `yaml:"bits"`    // 7 or 8, default 8
	Parity  string        `yaml:"parity"`  // none (default), odd, even
	Stop    int           `yaml:"stop"`    // 1 (default) or 2
	Timeout time.Duration `yaml:"timeout"` // of one request, default 1 s
}

var modbusParities = map[string]uint{
	"": modbus.PARITY_NONE, "none": modbus.PARITY_NONE, "even": modbus.PARITY_EVEN, "odd": modbus.PARITY_ODD,
}

// line checks the address and the settings of the line.
func (c modbusConfig) line(address string, deadline time.Duration) (modbusLine, error) {
	parity, ok := modbusParities[c.Parity]
	timeout := cmp.Or(c.Timeout, min(defaultModbusTimeout, deadline))
	l := modbusLine{
		name: address, timeout: timeout, parity: parity,
		speed: uint(cmp.Or(c.Baud, 9600)), bits: uint(cmp.Or(c.Bits, 8)), stop: uint(cmp.Or(c.Stop, 1)),
	}
	switch {
	case !ok:
		return l, fmt.Errorf("parity %q is none of none, odd, even", c.Parity)
	case l.speed < 300 || l.speed > 4_000_000:
		return l, fmt.Errorf("baud %d is not a baud rate", c.Baud)
	case l.bits != 7 && l.bits != 8:
		return l, fmt.Errorf("bits %d is neither 7 nor 8", c.Bits)
	case l.stop != 1 && l.stop != 2:
		return l, fmt.Errorf("stop %d is neither 1 nor 2", c.Stop)
	case timeout < 10*time.Millisecond || timeout > maxModbusTimeout:
		return l, fmt.Errorf("timeout %s is not between 10ms and %s", timeout, maxModbusTimeout)
	}
	err := c.reach(&l)
	return l, err
}

// reach checks the address and makes the line's URL of it.
func (c modbusConfig) reach(l *modbusLine) error {
	address := l.name
	if filepath.IsAbs(address) {
		if c.Framing != "" {
			return errors.New("framing is for a gateway; a serial line is always RTU")
		}
		l.url = "rtu://" + address
		return nil
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		l.name = net.JoinHostPort(address, defaultModbusPort)
	}
	host, port, err := net.SplitHostPort(l.name)
	if n, e := strconv.ParseUint(port, 10, 16); err != nil || e != nil || n == 0 || host == "" {
		return fmt.Errorf("address %q is neither the path of a serial line nor host:port", address)
	}
	scheme, ok := map[string]string{"": "tcp", "tcp": "tcp", "rtu": "rtuovertcp"}[c.Framing]
	if !ok {
		return fmt.Errorf("framing %q is neither tcp nor rtu", c.Framing)
	}
	l.url = scheme + "://" + l.name
	return nil
}

func newModbus(fc FactoryConfig) (Plan, error) {
	var c modbusConfig
	if err := fc.Decode(&c); err != nil {
		return Plan{}, err
	}
	line, err := c.line(fc.Address, fc.Deadline)
	if err != nil {
		return Plan{}, fmt.Errorf("modbus: %w", err)
	}
	profile, err := modbusProfileOf(fc)
	if err != nil {
		return Plan{}, fmt.Errorf("modbus: %w", err)
	}
	unit := uint8(1)
	if c.Unit != nil {
		unit = *c.Unit
	}
	if unit > 247 && line.rtu() || unit == 0 && line.rtu() {
		return Plan{}, fmt.Errorf("modbus: unit %d is not between 1 and 247", unit)
	}
	buses := fc.buses
	if buses == nil {
		buses = &modbusBuses{}
	}
	open := func(context.Context) (Driver, error) {
		d := &modbusDriver{buses: buses, line: line, unit: unit, profile: profile}
		d.blocks, d.fast = modbusBlocks(profile.Modbus.Registers)
		d.bus = buses.acquire(line)
		return d, nil
	}
	return Plan{Open: open, Shared: line.name, SharedAs: fmt.Sprintf("%+v", line), Fastest: MinSample}, nil
}

func modbusProfileOf(fc FactoryConfig) (*Profile, error) {
	var profile *Profile
	var err error
	switch {
	case fc.ProfileFile != "":
		profile, err = readProfile(fc.ProfileFile)
	case fc.Profile != "":
		profile, err = loadProfile(fc.Profile)
	default:
		return nil, errors.New("profile or profile_file is missing: the register map")
	}
	switch kind := fc.Kind(fc.Device.ID); {
	case err != nil:
		return nil, err
	case profile.Modbus == nil:
		return nil, fmt.Errorf("profile %s has no register map", profile.Name)
	case kind != "" && kind != profile.Kind:
		return nil, fmt.Errorf("profile %s is of a %s, not of a %s", profile.Name, profile.Kind, kind)
	}
	return profile, nil
}

// modbusBlock is a run of registers that one request reads.
type modbusBlock struct {
	function  string
	first     int
	count     int
	registers []modbusRegister
}

// modbusBlocks joins registers that lie side by side. Registers between them
// that the profile does not name are not read: some devices refuse them. fast
// are the blocks with what changes within seconds.
func modbusBlocks(list []modbusRegister) (all, fast []modbusBlock) {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b modbusRegister) int {
		return cmp.Or(cmp.Compare(a.Function, b.Function), cmp.Compare(a.Address, b.Address))
	})
	for _, r := range list {
		n := modbusTypes[r.Type]
		last := len(all) - 1
		if last >= 0 && all[last].function == r.Function && r.Address <= all[last].first+all[last].count && r.Address+n-all[last].first <= maxModbusBlock {
			b := &all[last]
			b.count = max(b.count, r.Address+n-b.first)
			b.registers = append(b.registers, r)
			continue
		}
		all = append(all, modbusBlock{function: r.Function, first: r.Address, count: n, registers: []modbusRegister{r}})
	}
	quick := []string{"phase_current", "current", "power"}
	for _, b := range all {
		if slices.ContainsFunc(b.registers, func(r modbusRegister) bool { return slices.Contains(quick, r.Quantity) }) {
			fast = append(fast, b)
		}
	}
	return all, fast
}

// modbusDriver reads one device on a line.
type modbusDriver struct {
	buses        *modbusBuses
	bus          *modbusBus
	line         modbusLine
	unit         uint8
	profile      *Profile
	blocks, fast []modbusBlock
}

// Read reads all registers of the map.
func (d *modbusDriver) Read(ctx context.Context) ([]Reading, error) { return d.read(ctx, d.blocks) }

// ReadFast reads the blocks with currents and power.
func (d *modbusDriver) ReadFast(ctx context.Context) ([]Reading, error) { return d.read(ctx, d.fast) }

// read keeps what was read before a fault. A device that refuses one block is
// asked for the next, one that does not answer is not.
func (d *modbusDriver) read(ctx context.Context, blocks []modbusBlock) ([]Reading, error) {
	var out []Reading
	var first error
	for _, b := range blocks {
		words, err := d.block(ctx, b)
		if err != nil {
			err = fmt.Errorf("%s unit %d, %s registers %d to %d: %w", d.line.name, d.unit, b.function, b.first, b.first+b.count-1, err)
			if first == nil {
				first = err
			}
			if !modbusException(err) {
				break
			}
			continue
		}
		for _, r := range b.registers {
			if reading, ok := r.reading(words[r.Address-b.first:][:modbusTypes[r.Type]]); ok {
				out = append(out, reading)
			}
		}
	}
	return derive(d.profile.Derived, out), first
}

func (d *modbusDriver) block(ctx context.Context, b modbusBlock) (words []uint16, err error) {
	kind := modbus.HOLDING_REGISTER
	if b.function == "input" {
		kind = modbus.INPUT_REGISTER
	}
	for range modbusTries {
		var got []uint16
		err = d.bus.ask(ctx, d.unit, func(c *modbus.ModbusClient) (err error) {
			got, err = c.ReadRegisters(uint16(b.first), uint16(b.count), kind)
			return err
		})
		if err == nil {
			return got, nil
		}
		if !errors.Is(err, modbus.ErrBadCRC) && !errors.Is(err, modbus.ErrShortFrame) {
			break // an answer that did not come at all is not asked for again
		}
	}
	return nil, err
}

// Close gives the line back.
func (d *modbusDriver) Close() error {
	d.buses.release(d.line.name)
	return nil
}

// reading turns the words of a register into a reading; ok is false where it
// holds no value.
func (r *modbusRegister) reading(words []uint16) (Reading, bool) {
	raw := r.raw(words)
	out := Reading{Quantity: r.Quantity, Part: r.Part}
	text := strconv.FormatFloat(raw, 'f', -1, 64)
	if !finite(raw) || (&field{FieldConfig: FieldConfig{Sentinels: r.Sentinels}}).sentinelNumber(raw) {
		return out, false
	}
	if byName[r.Quantity].Base == UnitState {
		v, ok := r.States[text]
		out.Value = v
		return out, ok
	}
	out.Value = units[r.Unit].convert(raw * *r.Scale)
	return out, true
}

// raw joins words into the number that they spell.
func (r *modbusRegister) raw(words []uint16) float64 {
	var bits uint64
	for i := range words {
		w := words[i]
		if r.WordOrder == "little" {
			w = words[len(words)-1-i]
		}
		bits = bits<<16 | uint64(w)
	}
	switch r.Type {
	case "int16":
		return float64(int16(bits))
	case "int32":
		return float64(int32(bits))
	case "int64":
		return float64(int64(bits))
	case "float32":
		return float64(math.Float32frombits(uint32(bits)))
	case "float64":
		return math.Float64frombits(bits)
	}
	return float64(bits)
}
