// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"
	"go.bug.st/serial"
)

func init() {
	Register("serial", "sensors and meters that write lines of text on a serial line or USB serial adapter", newSerial)
}

const (
	// pollSerial is how long a read of the port waits before it looks whether
	// the driver was closed.
	pollSerial = 100 * time.Millisecond
	maxRequest = 256 // bytes
)

// serialConfig is the block "serial" of an entry.
type serialConfig struct {
	// Path is the device file; /dev/serial/by-id/... stays the same when USB
	// devices are plugged in another order.
	Path   string `yaml:"path"`
	Baud   int    `yaml:"baud"`   // default 9600
	Bits   int    `yaml:"bits"`   // 5 to 8, default 8
	Parity string `yaml:"parity"` // none (default), odd, even, mark, space
	Stop   string `yaml:"stop"`   // 1 (default), 1.5, 2
	// Request is sent before each read to devices that answer only when asked.
	Request    string `yaml:"request"`
	LineConfig `yaml:",inline"`
}

var parities = map[string]serial.Parity{
	"": serial.NoParity, "none": serial.NoParity, "odd": serial.OddParity, "even": serial.EvenParity,
	"mark": serial.MarkParity, "space": serial.SpaceParity,
}

var stopBits = map[string]serial.StopBits{
	"": serial.OneStopBit, "1": serial.OneStopBit, "1.5": serial.OnePointFiveStopBits, "2": serial.TwoStopBits,
}

// mode checks the settings of the line.
func (c serialConfig) mode() (*serial.Mode, error) {
	parity, okParity := parities[c.Parity]
	stop, okStop := stopBits[c.Stop]
	switch {
	case !filepath.IsAbs(c.Path):
		return nil, fmt.Errorf("path %q is not absolute", c.Path)
	case c.Baud < 0 || c.Baud > 4_000_000:
		return nil, fmt.Errorf("baud %d is not a baud rate", c.Baud)
	case c.Bits != 0 && (c.Bits < 5 || c.Bits > 8):
		return nil, fmt.Errorf("bits %d is not between 5 and 8", c.Bits)
	case !okParity:
		return nil, fmt.Errorf("parity %q is none of none, odd, even, mark, space", c.Parity)
	case !okStop:
		return nil, fmt.Errorf("stop %q is none of 1, 1.5, 2", c.Stop)
	case len(c.Request) > maxRequest:
		return nil, fmt.Errorf("request is longer than %d bytes", maxRequest)
	}
	m := &serial.Mode{BaudRate: c.Baud, DataBits: c.Bits, Parity: parity, StopBits: stop}
	if m.BaudRate == 0 {
		m.BaudRate = 9600
	}
	if m.DataBits == 0 {
		m.DataBits = 8
	}
	return m, nil
}

func newSerial(fc FactoryConfig) (Plan, error) {
	var c serialConfig
	if err := fc.Decode(&c); err != nil {
		return Plan{}, err
	}
	mode, err := c.mode()
	if err != nil {
		return Plan{}, fmt.Errorf("serial: %w", err)
	}
	parser, err := newLineParser(c.LineConfig, fc.Device.ID, fc.Kind)
	if err != nil {
		return Plan{}, fmt.Errorf("serial: %w", err)
	}
	open := func(context.Context) (Driver, error) {
		port, err := serial.Open(c.Path, mode)
		if err != nil {
			return nil, fmt.Errorf("open %s: %w", c.Path, explainPort(err))
		}
		if err := port.SetReadTimeout(pollSerial); err != nil {
			return nil, errors.Join(err, port.Close())
		}
		return startSerial(port, c, parser, staleAfter(fc.Interval), fc.Logger), nil
	}
	return Plan{Open: open, Serves: parser.devices(fc.Device.ID), Exclusive: c.Path, Fastest: MinSample}, nil
}

// explainPort adds what an operator should look at.
func explainPort(err error) error {
	var pe *serial.PortError
	if !errors.As(err, &pe) {
		return err
	}
	switch pe.Code() {
	case serial.PermissionDenied:
		return errors.New("permission denied; the agent's user must be in the group of the device, mostly dialout")
	case serial.PortBusy:
		return errors.New("in use by another process")
	case serial.InvalidSerialPort:
		return fmt.Errorf("not a usable serial port: %w", err)
	}
	return err
}

// serialDriver listens to a serial line. Its goroutine owns the port: it alone
// reads and closes it.
type serialDriver struct {
	path    string
	request []byte
	parser  *lineParser
	stale   time.Duration
	logger  log.Logger
	limit   logLimit

	stop chan struct{}
	done chan struct{}
	news chan struct{} // holds one token when fresh values came or the port went

	mu      sync.Mutex
	port    serial.Port // nil once the port is gone
	gone    error
	held    map[int]heldValue // by field
	fresh   bool
	garbage int  // lines not understood that garbageLines has not told yet
	noise   bool // such a line came since the last read
}

type heldValue struct {
	parsed
	at time.Time
}

func startSerial(port serial.Port, c serialConfig, p *lineParser, stale time.Duration, logger log.Logger) *serialDriver {
	d := &serialDriver{
		path: c.Path, request: []byte(c.Request), parser: p, stale: stale, logger: logger,
		port: port, held: map[int]heldValue{},
		stop: make(chan struct{}), done: make(chan struct{}), news: make(chan struct{}, 1),
	}
	go d.listen(port)
	return d
}

// listen reads the port until it fails or the driver is closed.
func (d *serialDriver) listen(port serial.Port) {
	defer close(d.done)
	// What comes first may be the rest of a line, unless the device speaks only
	// when asked.
	s := lineSplitter{skip: len(d.request) == 0}
	buf := make([]byte, 512)
	var err error
	for err == nil {
		select {
		case <-d.stop:
			err = errors.New("closed")
			continue
		default:
		}
		var n int
		n, err = port.Read(buf)
		s.split(buf[:n], d.line)
	}
	d.mu.Lock()
	d.port = nil
	d.gone = fmt.Errorf("%w: %s: %w", ErrGone, d.path, err)
	d.mu.Unlock()
	if err := port.Close(); err != nil {
		level.Debug(d.logger).Log("msg", "closing the serial port", "path", d.path, "err", err)
	}
	d.wake()
}

func (d *serialDriver) wake() {
	select {
	case d.news <- struct{}{}:
	default:
	}
}

// line takes one line from the port; tooLong says that its end is missing.
func (d *serialDriver) line(text string, tooLong bool) {
	var vals []parsed
	err := fmt.Errorf("longer than %d bytes", maxLine)
	if !tooLong {
		vals, err = d.parser.line(text)
	}
	now := time.Now()
	d.mu.Lock()
	for _, v := range vals {
		d.held[v.field] = heldValue{parsed: v, at: now}
		d.fresh = true
	}
	if err != nil {
		d.garbage++
		d.noise = true
	}
	d.mu.Unlock()
	if err != nil {
		if n, ok := d.limit.allow(now); ok {
			level.Warn(d.logger).Log("msg", "line not understood", "path", d.path, "line", fmt.Sprintf("%q", clip(text, 80)), "err", err, "unlogged", n)
		}
	}
	if len(vals) > 0 {
		d.wake()
	}
}

// Read sends the request, if there is one, waits for values newer than those of
// the last read and returns all that are not stale.
func (d *serialDriver) Read(ctx context.Context) ([]Reading, error) {
	if err := d.ask(); err != nil {
		return nil, err
	}
	for {
		if out, done, err := d.take(); done {
			return out, err
		}
		select {
		case <-d.news:
		case <-ctx.Done():
			return nil, d.silence()
		}
	}
}

func (d *serialDriver) ask() error {
	if len(d.request) == 0 {
		return nil
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.port == nil {
		return d.gone
	}
	d.fresh = false
	// An unsent request of an earlier read must not fill the line.
	if err := d.port.ResetOutputBuffer(); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrGone, d.path, err)
	}
	if _, err := d.port.Write(d.request); err != nil {
		return fmt.Errorf("%w: %s: %w", ErrGone, d.path, err)
	}
	return nil
}

// take returns what is held once something of it is new.
func (d *serialDriver) take() (out []Reading, done bool, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.fresh {
		return nil, d.gone != nil, d.gone
	}
	now := time.Now()
	for i := range d.parser.fields {
		v, ok := d.held[i]
		if !ok || v.absent || now.Sub(v.at) > d.stale {
			continue
		}
		v.reading.At = v.at
		out = append(out, v.reading)
	}
	d.fresh, d.noise = false, false
	return out, true, nil
}

// silence says why there is nothing to return. The text is the same for equal
// failures, since it becomes a label; the lines themselves are in the log.
func (d *serialDriver) silence() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.noise {
		d.noise = false
		return fmt.Errorf("%s: lines came, but none with a configured field in it", d.path)
	}
	return fmt.Errorf("%s: no line came within the deadline", d.path)
}

// garbageLines returns how many lines were not understood since it was asked.
func (d *serialDriver) garbageLines() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := d.garbage
	d.garbage = 0
	return n
}

// Close ends the goroutine and gives the port back.
func (d *serialDriver) Close() error {
	close(d.stop)
	<-d.done
	return nil
}

// lineSplitter cuts a stream into lines ended by CR, LF or both.
type lineSplitter struct {
	buf     []byte
	skip    bool // drop everything up to the next line end
	tooLong bool
}

// split feeds bytes and calls line for every line that is complete. Empty lines
// are left out.
func (s *lineSplitter) split(p []byte, line func(text string, tooLong bool)) {
	for len(p) > 0 {
		i := slices.IndexFunc(p, func(b byte) bool { return b == '\n' || b == '\r' })
		end := i >= 0
		if !end {
			i = len(p)
		}
		if room := maxLine - len(s.buf); i > room {
			s.buf, s.tooLong = append(s.buf, p[:room]...), true
		} else {
			s.buf = append(s.buf, p[:i]...)
		}
		if !end {
			return
		}
		if text := string(s.buf); !s.skip && strings.TrimSpace(text) != "" {
			line(text, s.tooLong)
		}
		s.buf, s.skip, s.tooLong = s.buf[:0], false, false
		p = p[i+1:]
	}
}
