// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
	"time"
)

func init() {
	Register("nut", "UPSs behind a Network UPS Tools server (upsd)", newNUT)
}

const (
	nutPort     = "3493" // IANA: nut
	maxNUTLine  = 1024   // bytes
	maxNUTLines = 4096
)

// nutConfig is the block "nut" of an entry.
type nutConfig struct {
	// UPS is the name at the server; empty: its only one.
	UPS string `yaml:"ups"`
}

var nutName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

func newNUT(fc FactoryConfig) (Plan, error) {
	var c nutConfig
	if err := fc.Decode(&c); err != nil {
		return Plan{}, err
	}
	address := fc.Address
	if address == "" {
		address = "localhost"
	}
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(address, nutPort)
	}
	if host, _, err := net.SplitHostPort(address); err != nil || host == "" {
		return Plan{}, fmt.Errorf("nut: address %q is no host or host:port", fc.Address)
	}
	if c.UPS != "" && !nutName.MatchString(c.UPS) {
		return Plan{}, fmt.Errorf("nut: ups %q is no name of a UPS", c.UPS)
	}
	open := func(ctx context.Context) (Driver, error) {
		d := &nutDriver{address: address, ups: c.UPS}
		return d, d.connect(ctx)
	}
	return Plan{Open: open}, nil
}

// nutDriver asks one server, over one connection, for all variables of a UPS.
type nutDriver struct {
	address, ups string
	conn         net.Conn // nil after a fault
	lines        *bufio.Scanner
}

func (d *nutDriver) connect(ctx context.Context) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", d.address)
	if err != nil {
		return err
	}
	d.conn = conn
	d.lines = bufio.NewScanner(conn)
	d.lines.Buffer(make([]byte, maxNUTLine), maxNUTLine)
	if d.ups != "" {
		return nil
	}
	err = d.only(ctx)
	if err != nil {
		d.hangUp()
	}
	return err
}

// only finds the server's only UPS.
func (d *nutDriver) only(ctx context.Context) error {
	list, err := d.list(ctx, "UPS")
	if err != nil {
		return err
	}
	var names []string
	for _, l := range list {
		name, _, _ := strings.Cut(l, " ")
		names = append(names, name)
	}
	if len(names) != 1 {
		return fmt.Errorf("nut %s: set ups to one of: %s", d.address, clip(strings.Join(names, ", "), 300))
	}
	if !nutName.MatchString(names[0]) {
		return fmt.Errorf("nut %s: %q is no name of a UPS", d.address, clip(names[0], 40))
	}
	d.ups = names[0]
	return nil
}

// list asks for a list and returns the rest of each of its lines.
func (d *nutDriver) list(ctx context.Context, what string) ([]string, error) {
	// The zero time is no deadline.
	deadline, _ := ctx.Deadline()
	if err := d.conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintf(d.conn, "LIST %s\n", what); err != nil {
		return nil, fmt.Errorf("nut %s: %w", d.address, err)
	}
	word, _, _ := strings.Cut(what, " ")
	var out []string
	for begun := false; len(out) < maxNUTLines; {
		if !d.lines.Scan() {
			return nil, fmt.Errorf("nut %s: %w", d.address, d.ended())
		}
		line := d.lines.Text()
		rest, entry := strings.CutPrefix(line, strings.TrimSpace(what)+" ")
		switch {
		case strings.HasPrefix(line, "ERR "):
			return nil, &nutError{d.address, d.ups, clip(line[4:], 80)}
		case line == "BEGIN LIST "+what:
			begun = true
		case begun && line == "END LIST "+what:
			return out, nil
		case begun && entry:
			out = append(out, rest)
		default:
			return nil, fmt.Errorf("nut %s: %s list: unexpected line %q", d.address, word, clip(line, 80))
		}
	}
	return nil, fmt.Errorf("nut %s: more than %d lines", d.address, maxNUTLines)
}

func (d *nutDriver) ended() error {
	err := d.lines.Err()
	var timeout net.Error
	switch {
	case err == nil:
		return errors.New("the server hung up")
	case errors.As(err, &timeout) && timeout.Timeout():
		return errors.New("no answer in time")
	}
	return err
}

// nutError is what the server refused with; the connection stays in order.
type nutError struct{ address, ups, text string }

func (e *nutError) Error() string { return fmt.Sprintf("nut %s: ups %s: %s", e.address, e.ups, e.text) }

// Read asks for all variables.
func (d *nutDriver) Read(ctx context.Context) ([]Reading, error) {
	if d.conn == nil {
		if err := d.connect(ctx); err != nil {
			return nil, err
		}
	}
	list, err := d.list(ctx, "VAR "+d.ups)
	if err != nil {
		var refused *nutError
		if !errors.As(err, &refused) {
			d.hangUp()
		}
		return nil, err
	}
	vars := map[string]string{}
	for _, l := range list {
		name, quoted, _ := strings.Cut(l, " ")
		// Only quotes and backslashes are escaped, as in Go.
		if text, err := strconv.Unquote(quoted); err == nil {
			vars[name] = text
		}
	}
	return nutReadings(vars), nil
}

func (d *nutDriver) hangUp() {
	if d.conn != nil {
		_ = d.conn.Close() // nothing is lost with a connection that is given up
		d.conn = nil
	}
}

// Close ends the connection.
func (d *nutDriver) Close() error {
	if d.conn == nil {
		return nil
	}
	// A polite end; a server that is gone does not need it.
	_ = d.conn.SetDeadline(time.Now().Add(closeWait))
	_, _ = d.conn.Write([]byte("LOGOUT\n"))
	err := d.conn.Close()
	d.conn = nil
	return err
}

// nutVariables are variables by NUT's naming (docs/nut-names.txt) with what they
// measure. Power in watts is ups.realpower; ups.power is apparent. A power
// computed from the load and a nominal rating is not taken.
var nutVariables = []struct{ name, quantity, part, unit string }{
	{"battery.charge", "ups_battery_charge", "", "percent"},
	{"battery.runtime", "ups_battery_runtime", "", "second"},
	{"battery.temperature", "ups_battery_temperature", "", "celsius"},
	{"ups.load", "ups_load", "", "percent"},
	{"ups.realpower", "ups_output_power", "", "watt"},
	{"output.realpower", "ups_output_power", "", "watt"},
	{"input.voltage", "ups_input_voltage", "1", "volt"},
	{"input.L1-N.voltage", "ups_input_voltage", "1", "volt"},
	{"input.L2-N.voltage", "ups_input_voltage", "2", "volt"},
	{"input.L3-N.voltage", "ups_input_voltage", "3", "volt"},
	{"input.L1-L2.voltage", "ups_input_voltage", "1-2", "volt"},
	{"input.L2-L3.voltage", "ups_input_voltage", "2-3", "volt"},
	{"input.L3-L1.voltage", "ups_input_voltage", "3-1", "volt"},
	{"output.voltage", "ups_output_voltage", "1", "volt"},
	{"output.L1-N.voltage", "ups_output_voltage", "1", "volt"},
	{"output.L2-N.voltage", "ups_output_voltage", "2", "volt"},
	{"output.L3-N.voltage", "ups_output_voltage", "3", "volt"},
	{"output.L1-L2.voltage", "ups_output_voltage", "1-2", "volt"},
	{"output.L2-L3.voltage", "ups_output_voltage", "2-3", "volt"},
	{"output.L3-L1.voltage", "ups_output_voltage", "3-1", "volt"},
	{"output.current", "ups_output_current", "1", "ampere"},
	{"output.L1.current", "ups_output_current", "1", "ampere"},
	{"output.L2.current", "ups_output_current", "2", "ampere"},
	{"output.L3.current", "ups_output_current", "3", "ampere"},
}

// nutReadings turns variables into readings; of two variables for one series
// the first in the table counts. A three-phase UPS has input.voltage, too, as an
// average: it is then not the voltage of phase 1.
func nutReadings(vars map[string]string) []Reading {
	var out []Reading
	seen := map[string]bool{}
	for _, v := range nutVariables {
		n, err := strconv.ParseFloat(strings.TrimSpace(vars[v.name]), 64)
		side, _, _ := strings.Cut(v.name, ".")
		_, phases := vars[side+".L2-N.voltage"]
		_, lines := vars[side+".L2.current"]
		average := v.part == "1" && !strings.Contains(v.name, ".L1") && (phases || lines)
		if err != nil || !finite(n) || average || seen[v.quantity+v.part] {
			continue
		}
		seen[v.quantity+v.part] = true
		out = append(out, Reading{Quantity: v.quantity, Part: v.part, Value: units[v.unit].convert(n)})
	}
	for _, flag := range strings.Fields(vars["ups.status"]) {
		switch flag {
		case "OB":
			return append(out, Reading{Quantity: "ups_on_battery", Value: 1})
		case "OL", "BYPASS":
			return append(out, Reading{Quantity: "ups_on_battery", Value: 0})
		}
	}
	return out
}
