// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"strings"
	"sync"
	"time"

	"github.com/simonvetter/modbus"
	"go.bug.st/serial"
)

// modbusLine is a serial line or a gateway with its settings. It can be used by
// one request at a time, whichever device asks.
type modbusLine struct {
	name    string // path or host:port
	url     string
	speed   uint
	bits    uint
	parity  uint
	stop    uint
	timeout time.Duration // of one request
}

// rtu says that frames have no number by which a late reply can be told from
// the one that is waited for.
func (l modbusLine) rtu() bool { return strings.HasPrefix(l.url, "rtu") }

// modbusBuses are the lines in use, by name. The zero value is ready.
type modbusBuses struct {
	mu   sync.Mutex
	open map[string]*modbusBus
}

// acquire returns the bus of a line; every acquire needs a release. Settings
// other than before are used from the next request on.
func (b *modbusBuses) acquire(line modbusLine) *modbusBus {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.open == nil {
		b.open = map[string]*modbusBus{}
	}
	bus := b.open[line.name]
	if bus == nil {
		bus = &modbusBus{turn: make(chan struct{}, 1)}
		b.open[line.name] = bus
	}
	bus.users++
	bus.mu.Lock()
	bus.wanted = line
	bus.mu.Unlock()
	return bus
}

// release gives the bus back; the last one closes the line, once the request
// under way has ended.
func (b *modbusBuses) release(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	bus := b.open[name]
	if bus == nil {
		return
	}
	if bus.users--; bus.users > 0 {
		return
	}
	delete(b.open, name)
	// A request under way ends within its timeout.
	go func() {
		bus.turn <- struct{}{}
		bus.hangUp()
	}()
}

// modbusBus is the one master of a line.
type modbusBus struct {
	users int           // guarded by modbusBuses.mu
	turn  chan struct{} // holds a token while a request is under way

	// These belong to the holder of the token.
	client *modbus.ModbusClient // nil while the line is not open
	line   modbusLine           // settings of client
	quiet  time.Time            // no request before this time

	mu     sync.Mutex
	wanted modbusLine
}

var errBusBusy = errors.New("the line was busy with other devices until the deadline")

// ask runs one request for a unit when its turn has come. The request itself
// cannot be ended before its timeout; when ctx ends first its result is dropped.
func (b *modbusBus) ask(ctx context.Context, unit uint8, request func(*modbus.ModbusClient) error) error {
	select {
	case b.turn <- struct{}{}:
	case <-ctx.Done():
		return errBusBusy
	}
	done := make(chan error, 1)
	go func() {
		err := b.request(ctx, unit, request)
		<-b.turn
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return modbus.ErrRequestTimedOut
	}
}

func (b *modbusBus) request(ctx context.Context, unit uint8, request func(*modbus.ModbusClient) error) error {
	if wait := time.Until(b.quiet); wait > 0 {
		timer := time.NewTimer(wait)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return errBusBusy
		}
	}
	if err := b.dial(); err != nil {
		return err
	}
	err := b.client.SetUnitId(unit)
	if err == nil {
		err = request(b.client)
	}
	if err != nil && !modbusException(err) {
		// What arrives late would be taken for the answer to the next request: the
		// line is closed, left alone for as long again, and opened empty.
		b.hangUp()
		if b.line.rtu() {
			b.quiet = time.Now().Add(b.line.timeout)
		}
	}
	return err
}

// dial opens the line where it is not open with the settings wanted.
func (b *modbusBus) dial() error {
	b.mu.Lock()
	line := b.wanted
	b.mu.Unlock()
	if b.client != nil && b.line == line {
		return nil
	}
	b.hangUp()
	client, err := modbus.NewClient(&modbus.ClientConfiguration{
		URL: line.url, Speed: line.speed, DataBits: line.bits, Parity: line.parity, StopBits: line.stop, Timeout: line.timeout,
		Logger: stdlog.New(io.Discard, "", 0),
	})
	if err == nil && strings.HasPrefix(line.url, "rtu://") {
		err = flushLine(line.name)
	}
	if err == nil {
		err = client.Open()
	}
	if err != nil {
		return fmt.Errorf("open %s: %w", line.name, err)
	}
	b.client, b.line = client, line
	return nil
}

// flushLine drops what has arrived on a serial line.
func flushLine(path string) error {
	port, err := serial.Open(path, &serial.Mode{})
	if err != nil {
		return explainPort(err)
	}
	return errors.Join(port.ResetInputBuffer(), port.Close())
}

func (b *modbusBus) hangUp() {
	if b.client != nil {
		_ = b.client.Close() // nothing is lost with a line that is given up
		b.client = nil
	}
}

// modbusException says that a device, or the gateway before it, has answered
// that it will not: the line itself is in order.
func modbusException(err error) bool {
	for _, e := range []error{
		modbus.ErrIllegalFunction, modbus.ErrIllegalDataAddress, modbus.ErrIllegalDataValue, modbus.ErrServerDeviceFailure,
		modbus.ErrAcknowledge, modbus.ErrServerDeviceBusy, modbus.ErrMemoryParityError, modbus.ErrGWPathUnavailable,
		modbus.ErrGWTargetFailedToRespond,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
