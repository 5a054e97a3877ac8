// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gosnmp/gosnmp"
)

const (
	// defaultBulk and defaultOIDs are the rows of a GETBULK and the objects of a
	// GET at first: with some 30 bytes an object both answers fit in one Ethernet
	// frame. They are halved for agents that cannot answer.
	defaultBulk = 25
	defaultOIDs = 40
	// maxText bounds a text of a device, in bytes.
	maxText = 255
	// maxBadCells is how many objects of one GET may fail on their own before the
	// whole request counts as failed.
	maxBadCells = 16
	sysUpTime   = "1.3.6.1.2.1.1.3.0"
)

// snmpSession talks to one agent, one request at a time.
type snmpSession struct {
	host    string // for messages
	connect func() (*gosnmp.GoSNMP, error)
	conn    *gosnmp.GoSNMP // nil while there is none
	bulk    int            // rows of a GETBULK; 0: GETNEXT
	oids    int            // objects of a GET
}

// cell is the value of one object.
type cell struct {
	kind gosnmp.Asn1BER // Null where there is no such object
	text string
	num  float64 // NaN where the value is no number
}

func (c cell) exists() bool { return c.kind != gosnmp.Null }

// errRepeats says that an agent does not go forward.
var errRepeats = errors.New("the agent's objects do not come in order, the walk was ended")

// open connects; a session after an error connects anew, so that changed
// addresses and secrets are found.
func (s *snmpSession) open(ctx context.Context) error {
	if s.conn == nil {
		conn, err := s.connect()
		if err != nil {
			return err
		}
		conn.Context = ctx
		if err := conn.Connect(); err != nil {
			return err
		}
		s.conn = conn
	}
	s.conn.Context = ctx
	return nil
}

func (s *snmpSession) close() error {
	if s.conn == nil {
		return nil
	}
	conn := s.conn
	s.conn = nil
	return conn.Close()
}

// ask does one request. It checks that the answer has no more objects than
// asked for.
func (s *snmpSession) ask(ctx context.Context, limit int, request func(*gosnmp.GoSNMP) (*gosnmp.SnmpPacket, error)) (*gosnmp.SnmpPacket, error) {
	if err := s.open(ctx); err != nil {
		return nil, err
	}
	packet, err := request(s.conn)
	switch {
	case err != nil:
		return nil, shortError(err)
	case packet.PDUType != gosnmp.GetResponse:
		return nil, fmt.Errorf("the agent answered with a %v", packet.PDUType)
	case len(packet.Variables) > limit:
		return nil, fmt.Errorf("the agent answered with %d objects, at most %d were asked for", len(packet.Variables), limit)
	}
	return packet, nil
}

// shortError keeps the beginning of gosnmp's errors: some hold a whole stack.
func shortError(err error) error {
	var timeout net.Error
	switch text := err.Error(); {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, gosnmp.ErrMaxRetriesExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return errTimeout
	case errors.Is(err, syscall.ECONNREFUSED):
		return errRefused
	case strings.Contains(text, "not authentic"):
		return errNotAuthentic
	case len(text) > maxText:
		return errors.New(clip(strings.SplitN(text, " Stack:", 2)[0], maxText))
	}
	return err
}

var (
	errTimeout = errors.New("no answer")
	errRefused = errors.New("no SNMP agent listens there: connection refused")
	// errNotAuthentic: an agent that does not know the user or its passphrase
	// answers with a report that it cannot sign.
	errNotAuthentic = errors.New("the answer is not signed as expected: user, auth or the passphrase in auth_file is wrong")
)

// get reads objects into cells. An object that the agent has not is a cell that
// does not exist. Errors of single objects are joined; cells holds the rest.
func (s *snmpSession) get(ctx context.Context, oids []string, cells map[string]cell) error {
	var bad error
	for len(oids) > 0 {
		n := min(len(oids), s.oids)
		err := s.getBatch(ctx, oids[:n], cells)
		var object *objectError
		switch {
		case n > 1 && (errors.Is(err, errTooBig) || errors.Is(err, errTimeout) && s.alive(ctx)):
			s.oids = n / 2
			continue
		case errors.As(err, &object):
			bad = errors.Join(bad, err)
		case err != nil:
			return errors.Join(bad, err)
		}
		oids = oids[n:]
	}
	return bad
}

// alive tells whether the agent answers a small request: some drop large ones
// without a word.
func (s *snmpSession) alive(ctx context.Context) bool {
	_, err := s.ask(ctx, 1, func(g *gosnmp.GoSNMP) (*gosnmp.SnmpPacket, error) { return g.Get([]string{sysUpTime}) })
	return err == nil
}

// objectError is a fault of single objects; the session goes on.
type objectError struct{ err error }

// Error implements error.
func (e *objectError) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *objectError) Unwrap() error { return e.err }

var errTooBig = errors.New("the answer is too big for the agent")

// getBatch does one GET and repeats it without the objects that failed.
func (s *snmpSession) getBatch(ctx context.Context, oids []string, cells map[string]cell) error {
	oids = slices.Clone(oids)
	var bad error
	for failed := 0; len(oids) > 0; failed++ {
		packet, err := s.ask(ctx, len(oids), func(g *gosnmp.GoSNMP) (*gosnmp.SnmpPacket, error) { return g.Get(oids) })
		if err != nil {
			return err
		}
		i := int(packet.ErrorIndex) - 1
		switch {
		case packet.Error == gosnmp.NoError:
			if err := s.take(oids, packet.Variables, cells); err != nil {
				return &objectError{errors.Join(bad, err)}
			}
			if bad != nil {
				return &objectError{bad}
			}
			return nil
		case packet.Error == gosnmp.TooBig:
			return errTooBig
		case i < 0 || i >= len(oids), failed == maxBadCells && packet.Error != gosnmp.NoSuchName:
			return fmt.Errorf("the agent refused the request: %v", packet.Error)
		}
		// Version 1 refuses the whole request when it has not one of the objects.
		cells[oids[i]] = cell{kind: gosnmp.Null}
		if packet.Error != gosnmp.NoSuchName {
			bad = errors.Join(bad, fmt.Errorf("object %s: %v", oids[i], packet.Error))
		}
		oids = slices.Delete(oids, i, i+1)
	}
	if bad != nil {
		return &objectError{bad}
	}
	return nil
}

// take fills cells with an answer. Objects that were not asked for are errors.
func (s *snmpSession) take(oids []string, list []gosnmp.SnmpPDU, cells map[string]cell) error {
	if len(list) != len(oids) {
		return fmt.Errorf("the agent answered with %d objects of %d", len(list), len(oids))
	}
	var bad error
	for i, pdu := range list {
		if name := strings.TrimPrefix(pdu.Name, "."); name != oids[i] {
			bad = errors.Join(bad, fmt.Errorf("object %s: the agent answered with object %s", oids[i], name))
			continue
		}
		cells[oids[i]] = newCell(pdu)
	}
	return bad
}

// next returns the object after oid; "" at the end.
func (s *snmpSession) next(ctx context.Context, oid string) (string, cell, error) {
	packet, err := s.ask(ctx, 1, func(g *gosnmp.GoSNMP) (*gosnmp.SnmpPacket, error) { return g.GetNext([]string{oid}) })
	switch {
	case err != nil:
		return "", cell{}, err
	case packet.Error == gosnmp.NoSuchName: // the end, in version 1
		return "", cell{}, nil
	case packet.Error != gosnmp.NoError || len(packet.Variables) == 0:
		return "", cell{}, fmt.Errorf("the agent refused the request: %v", packet.Error)
	}
	c := newCell(packet.Variables[0])
	if !c.exists() {
		return "", c, nil
	}
	return strings.TrimPrefix(packet.Variables[0].Name, "."), c, nil
}

// walk calls row for each instance of a column after the instance from, in
// order, until row returns false or the column ends. It returns the instance
// that it came to, from which a later walk goes on after an error.
func (s *snmpSession) walk(ctx context.Context, column, from string, row func(instance string, c cell) bool) (string, error) {
	at := column
	if from != "" {
		at += "." + from
	}
	for {
		list, err := s.rowsAfter(ctx, at)
		if err != nil {
			return from, err
		}
		for _, pdu := range list {
			name := strings.TrimPrefix(pdu.Name, ".")
			c := newCell(pdu)
			instance, inside := strings.CutPrefix(name, column+".")
			if !c.exists() || !inside && compareOIDs(name, at) > 0 {
				return "", nil
			}
			if !inside || compareOIDs(name, at) <= 0 {
				return from, fmt.Errorf("object %s after %s: %w", name, at, errRepeats)
			}
			at, from = name, instance
			if !row(instance, c) {
				return from, nil
			}
		}
		if len(list) == 0 {
			return "", nil
		}
	}
}

// rowsAfter asks for the objects after at, with as many at once as the agent
// can answer.
func (s *snmpSession) rowsAfter(ctx context.Context, at string) ([]gosnmp.SnmpPDU, error) {
	for s.bulk > 0 {
		packet, err := s.ask(ctx, s.bulk, func(g *gosnmp.GoSNMP) (*gosnmp.SnmpPacket, error) {
			return g.GetBulk([]string{at}, 0, uint32(s.bulk))
		})
		if err == nil && packet.Error == gosnmp.NoError {
			return packet.Variables, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		s.bulk /= 2 // 1 becomes 0: GETNEXT
	}
	name, c, err := s.next(ctx, at)
	if err != nil || name == "" {
		return nil, err
	}
	return []gosnmp.SnmpPDU{{Name: name, Type: c.kind, Value: c}}, nil
}

// newCell takes over a value with its type.
func newCell(pdu gosnmp.SnmpPDU) cell {
	c := cell{kind: pdu.Type, num: math.NaN()}
	switch v := pdu.Value.(type) {
	case cell:
		return v
	case int:
		c.num, c.text = float64(v), strconv.Itoa(v)
	case uint:
		c.num, c.text = float64(v), strconv.FormatUint(uint64(v), 10)
	case uint32:
		c.num, c.text = float64(v), strconv.FormatUint(uint64(v), 10)
	case uint64:
		c.num, c.text = float64(v), strconv.FormatUint(v, 10)
	case float32:
		c.num, c.text = float64(v), strconv.FormatFloat(float64(v), 'g', -1, 32)
	case float64:
		c.num, c.text = v, strconv.FormatFloat(v, 'g', -1, 64)
	case []byte:
		c.text = printable(v)
		if n, err := strconv.ParseFloat(strings.TrimSpace(c.text), 64); err == nil && finite(n) {
			c.num = n // some agents write their numbers as text
		}
	case string:
		c.text = strings.TrimPrefix(v, ".")
	default:
		c.kind = gosnmp.Null
	}
	return c
}

// printable bounds a text and takes out what is not printable.
func printable(b []byte) string {
	text := strings.ToValidUTF8(string(b[:min(len(b), maxText)]), "")
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, text))
}

// compareOIDs compares number by number.
func compareOIDs(a, b string) int {
	for a != "" || b != "" {
		if a == "" {
			return -1
		}
		if b == "" {
			return 1
		}
		var x, y string
		x, a, _ = strings.Cut(a, ".")
		y, b, _ = strings.Cut(b, ".")
		m, _ := strconv.ParseUint(x, 10, 64)
		n, _ := strconv.ParseUint(y, 10, 64)
		if m != n {
			if m < n {
				return -1
			}
			return 1
		}
	}
	return 0
}
