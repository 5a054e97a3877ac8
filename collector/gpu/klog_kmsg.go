// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// kmsgRecord is larger than any record: the kernel's own buffer has 8 KiB
	// (CONSOLE_EXT_LOG_MAX, later PRINTK_MESSAGE_MAX).
	kmsgRecord = 16 << 10
	// At most logSlice records are read in logPause: 20000 a second cost some
	// percent of a core. What a flood has more of, the kernel overwrites.
	logSlice = 2000
	logPause = 100 * time.Millisecond
	// kmsgErrors in a row end the reading.
	kmsgErrors = 100
)

// kmsgDevice gives the records of /dev/kmsg one by one.
type kmsgDevice interface {
	// next reads a record; waited says that it was written just now. EPIPE means
	// that records were overwritten, the next call goes on after them.
	next(buf []byte) (n int, waited bool, err error)
}

// kmsgFile is the real one.
type kmsgFile struct {
	file *os.File
	conn syscall.RawConn
}

func openKmsg(path string, end bool) (*kmsgFile, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || info.Mode()&os.ModeCharDevice == 0 {
		f.Close()
		return nil, fmt.Errorf("%s is no character device", path)
	}
	if end {
		if _, err := f.Seek(0, io.SeekEnd); err != nil {
			f.Close()
			return nil, err
		}
	}
	conn, err := f.SyscallConn()
	if err == nil {
		err = f.SetReadDeadline(time.Time{}) // fails where it cannot be polled
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return &kmsgFile{f, conn}, nil
}

func (k *kmsgFile) next(buf []byte) (n int, waited bool, err error) {
	pollErr := k.conn.Read(func(fd uintptr) bool {
		for {
			n, err = syscall.Read(int(fd), buf)
			switch {
			case errors.Is(err, syscall.EINTR):
			case errors.Is(err, syscall.EAGAIN):
				waited = true
				return false
			default:
				return true
			}
		}
	})
	if pollErr != nil {
		return 0, waited, pollErr
	}
	return n, waited, err
}

// followKmsg reads /dev/kmsg.
func followKmsg(ctx context.Context, k *KernelLog, up func()) error {
	dev, err := openKmsg(k.kmsg, !k.state.kept() && k.state.position().Sequence == nil)
	if err != nil {
		return err
	}
	defer dev.file.Close()
	stop := context.AfterFunc(ctx, func() { dev.file.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	up()
	booted := time.Now()
	if uptime, err := readUptime("/proc/uptime"); err == nil {
		booted = booted.Add(-uptime)
	}
	return k.readKmsg(ctx, dev, booted)
}

// kmsgPlace is how far the records were read.
type kmsgPlace struct {
	last   *uint64   // sequence number of the last record; nil: none yet
	booted time.Time // the zero of the kernel's clock
}

// readKmsg reads records until ctx is done. Records that an earlier run has read
// are passed over.
func (k *KernelLog) readKmsg(ctx context.Context, dev kmsgDevice, booted time.Time) error {
	buf := make([]byte, kmsgRecord)
	place := kmsgPlace{k.state.position().Sequence, booted}
	pace := newPacer()
	failed := 0
	for ctx.Err() == nil {
		n, waited, err := dev.next(buf)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.EINVAL): // the numbers tell how many are lost
			if failed++; failed > kmsgErrors {
				return err
			}
			continue
		case err != nil:
			return err
		case n == 0:
			return io.ErrUnexpectedEOF
		}
		failed = 0
		k.kmsgRecord(&place, buf[:n], waited)
		if !pace.step(ctx, waited) {
			return nil
		}
	}
	return nil
}

func (k *KernelLog) kmsgRecord(place *kmsgPlace, record []byte, waited bool) {
	r, ok := parseKmsg(record)
	last := place.last
	if !ok || last != nil && r.sequence <= *last {
		return
	}
	if last != nil && r.sequence > *last+1 {
		k.lose(lostOverrun, r.sequence-*last-1)
	}
	if waited { // the kernel's clock drifts from the wall clock
		place.booted = time.Now().Add(-r.uptime)
	}
	k.line(r.text, place.booted.Add(r.uptime))
	place.last = &r.sequence
	k.state.read(func(p *logPosition) { p.Sequence = &r.sequence })
}

// pacer bounds how fast a log is read.
type pacer struct {
	n     int
	began time.Time
}

func newPacer() *pacer { return &pacer{began: time.Now()} }

// step counts one line and pauses when there were too many; waited says that the
// line was waited for. It is false when ctx is done.
func (p *pacer) step(ctx context.Context, waited bool) bool {
	if p.n++; !waited && p.n < logSlice {
		return true
	}
	rest := logPause - time.Since(p.began)
	if !waited && rest > 0 && !sleep(ctx, rest) {
		return false
	}
	p.n, p.began = 0, time.Now()
	return true
}

// kmsgLine is one record of /dev/kmsg.
type kmsgLine struct {
	sequence uint64
	uptime   time.Duration
	text     string // as the record, its escapes undone and its dictionary gone
}

// parseKmsg reads "level,sequence,microseconds,flags;message", which the lines of
// a dictionary may follow, each with a blank before it. See the kernel's
// Documentation/ABI/testing/dev-kmsg.
func parseKmsg(record []byte) (kmsgLine, bool) {
	head, message, ok := bytes.Cut(record, []byte{';'})
	fields := strings.SplitN(string(head), ",", 4)
	if !ok || len(fields) < 4 {
		return kmsgLine{}, false
	}
	sequence, err1 := strconv.ParseUint(fields[1], 10, 63)
	micros, err2 := strconv.ParseUint(fields[2], 10, 50)
	if err1 != nil || err2 != nil {
		return kmsgLine{}, false
	}
	message, _, _ = bytes.Cut(message, []byte{'\n'})
	return kmsgLine{sequence, time.Duration(micros) * time.Microsecond, string(head) + ";" + unescape(message)}, true
}

// unescape undoes the kernel's \xNN for what is not printable ASCII.
func unescape(s []byte) string {
	if !bytes.Contains(s, []byte(`\x`)) {
		return string(s)
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) && s[i+1] == 'x' {
			if b, err := strconv.ParseUint(string(s[i+2:i+4]), 16, 8); err == nil {
				out = append(out, byte(b))
				i += 3
				continue
			}
		}
		out = append(out, s[i])
	}
	return string(out)
}

// readUptime is the time since boot.
func readUptime(path string) (time.Duration, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	first, _, _ := strings.Cut(string(data), " ")
	seconds, err := strconv.ParseFloat(first, 64)
	if err != nil || seconds < 0 || seconds > 1e9 {
		return 0, fmt.Errorf("%s: %q is no time since boot", path, first)
	}
	return time.Duration(seconds * float64(time.Second)), nil
}
