// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// modbusSlave answers for the units of one line, written from the Modbus
// application protocol V1.1b3 and the serial line guide V1.02.
type modbusSlave struct {
	mu    sync.Mutex
	units map[byte]map[byte]map[uint16]uint16 // unit, function, address
	asked [][2]uint16                         // address and count of each request
	now   int                                 // requests under way
	most  int
	// spoil changes an RTU reply before it is sent; nil: nothing. It is called
	// without the lock.
	spoil func(reply []byte) []byte
}

func newModbusSlave() *modbusSlave {
	return &modbusSlave{units: map[byte]map[byte]map[uint16]uint16{}}
}

// set gives registers of a unit their words.
func (s *modbusSlave) set(unit, function byte, address uint16, words ...uint16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.units[unit] == nil {
		s.units[unit] = map[byte]map[uint16]uint16{3: {}, 4: {}}
	}
	for i, w := range words {
		s.units[unit][function][address+uint16(i)] = w
	}
}

// floats are IEEE 754 numbers with the high word first.
func floats(values ...float32) (words []uint16) {
	for _, v := range values {
		b := math.Float32bits(v)
		words = append(words, uint16(b>>16), uint16(b))
	}
	return words
}

func (s *modbusSlave) spoiler(f func([]byte) []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spoil = f
}

// answer returns the PDU of the reply; nil is silence.
func (s *modbusSlave) answer(unit byte, pdu []byte) []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	function, registers := pdu[0], s.units[unit]
	if registers == nil || len(pdu) != 5 {
		return nil
	}
	if registers[function] == nil {
		return []byte{function | 0x80, 1}
	}
	first, count := binary.BigEndian.Uint16(pdu[1:]), binary.BigEndian.Uint16(pdu[3:])
	s.asked = append(s.asked, [2]uint16{first, count})
	reply := []byte{function, byte(2 * count)}
	for a := first; a < first+count; a++ {
		w, ok := registers[function][a]
		if !ok {
			return []byte{function | 0x80, 2}
		}
		reply = binary.BigEndian.AppendUint16(reply, w)
	}
	return reply
}

// crc16 is the checksum of a serial frame, low byte first.
func crc16(frame []byte) []byte {
	crc := uint16(0xffff)
	for _, b := range frame {
		crc ^= uint16(b)
		for range 8 {
			odd := crc&1 == 1
			if crc >>= 1; odd {
				crc ^= 0xa001
			}
		}
	}
	return []byte{byte(crc), byte(crc >> 8)}
}

func (s *modbusSlave) serveRTU(line io.ReadWriter) {
	frame := make([]byte, 8) // a request to read is always of this length
	for {
		if _, err := io.ReadFull(line, frame); err != nil {
			return
		}
		s.mu.Lock()
		s.now++
		s.most = max(s.most, s.now)
		spoil := s.spoil
		s.mu.Unlock()
		if pdu := s.answer(frame[0], frame[1:6]); pdu != nil {
			reply := append([]byte{frame[0]}, pdu...)
			reply = append(reply, crc16(reply)...)
			if spoil != nil {
				reply = spoil(reply)
			}
			_, _ = line.Write(reply)
		}
		s.mu.Lock()
		s.now--
		s.mu.Unlock()
	}
}

// onPTY puts the slave at the end of a serial line and returns the path of the
// other end. unplug pulls the plug.
func (s *modbusSlave) onPTY(t *testing.T) (path string, unplug func()) {
	t.Helper()
	device, tty, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	// A file of the poller's own: closing it ends a read.
	fd, err := syscall.Dup(int(device.Fd()))
	if err == nil {
		err = syscall.SetNonblock(fd, true)
	}
	if err != nil {
		t.Fatal(err)
	}
	line := os.NewFile(uintptr(fd), "pty")
	// A terminal would echo what comes while the driver has the line closed.
	mode, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	mode.Iflag, mode.Oflag, mode.Lflag = 0, 0, 0
	if err := unix.IoctlSetTermios(int(tty.Fd()), unix.TCSETS, mode); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); s.serveRTU(line) }()
	var once sync.Once
	unplug = func() {
		once.Do(func() {
			_ = tty.Close()
			_ = device.Close()
			_ = line.Close()
			<-done
		})
	}
	t.Cleanup(unplug)
	return tty.Name(), unplug
}

// onTCP puts the slave behind a gateway; the frames are those of the network or,
// with rtu, those of the line.
func (s *modbusSlave) onTCP(t *testing.T, rtu bool) (address string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var conns []net.Conn
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			wg.Go(func() {
				if rtu {
					s.serveRTU(c)
				} else {
					s.serveTCP(c)
				}
			})
		}
	})
	var once sync.Once
	stop = func() {
		once.Do(func() {
			_ = l.Close()
			mu.Lock()
			for _, c := range conns {
				_ = c.Close()
			}
			mu.Unlock()
			wg.Wait()
		})
	}
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

func (s *modbusSlave) serveTCP(c net.Conn) {
	defer c.Close()
	head := make([]byte, 7)
	for {
		if _, err := io.ReadFull(c, head); err != nil {
			return
		}
		body := make([]byte, int(binary.BigEndian.Uint16(head[4:]))-1)
		if _, err := io.ReadFull(c, body); err != nil {
			return
		}
		pdu := s.answer(head[6], body)
		if pdu == nil {
			pdu = []byte{body[0] | 0x80, 0x0b} // the gateway's: target does not respond
		}
		reply := append([]byte{head[0], head[1], 0, 0, 0, byte(len(pdu) + 1), head[6]}, pdu...)
		if _, err := c.Write(reply); err != nil && !errors.Is(err, os.ErrClosed) {
			return
		}
	}
}

// late delays a reply.
func late(d time.Duration) func([]byte) []byte {
	return func(reply []byte) []byte {
		time.Sleep(d)
		return reply
	}
}
