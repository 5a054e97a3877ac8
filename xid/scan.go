// SPDX-License-Identifier: Apache-2.0

package xid

import (
	"bufio"
	"errors"
	"io"
	"regexp"
	"time"
)

// How many lines of the driver may stand between the parts of one message.
const maxApart = 4

var (
	namesGPU = regexp.MustCompile(`^NVRM: The NVIDIA GPU ([0-9A-Fa-f:.]{5,20})\b`)
	loading  = regexp.MustCompile(`^NVRM: loading NVIDIA UNIX .{0,80}?\b(\d{3}\.\d{2,3}(?:\.\d{2})?)\b`)
)

// Decoder reads the lines of one log in their order: what a line leaves open,
// such as the GPU or the driver's version, it takes from the lines before.
type Decoder struct {
	driver string
	gpu    string // named by a line before, its message still open
	apart  int
}

// Scanner reads the events of a log. Lines may have any length; only the first
// 8 KiB of each are kept.
type Scanner struct {
	in      *bufio.Reader
	now     time.Time
	decoder Decoder
	event   Event
	lines   int
	err     error
}

// NewScanner reads r. A time without a year gets the last year in which it is
// not after now; with a zero now such times keep year 0.
func NewScanner(r io.Reader, now time.Time) *Scanner {
	return &Scanner{in: bufio.NewReaderSize(r, maxLine), now: now}
}

// Scan advances to the next event.
func (s *Scanner) Scan() bool {
	for s.err == nil {
		line, err := s.line()
		if err != nil && (line == "" || !errors.Is(err, io.EOF)) {
			s.err = err
			return false
		}
		s.lines++
		if e, ok := s.decoder.Line(line); ok {
			if e.Time.Year() == 0 && !s.now.IsZero() {
				e.Time = withYear(e.Time, s.now)
			}
			s.event = e
			return true
		}
	}
	return false
}

// Line takes the next line and says whether it is an event.
func (d *Decoder) Line(line string) (Event, bool) {
	msg, _, ok := header(line)
	if !ok {
		return Event{}, false
	}
	if m := loading.FindStringSubmatch(msg); m != nil {
		d.driver = m[1]
		return Event{}, false
	}
	e, ok := Parse(line)
	if !ok {
		d.apart++
		if m := namesGPU.FindStringSubmatch(msg); m != nil {
			d.gpu, _ = NormalizePCI(m[1])
			d.apart = 0
		}
		return Event{}, false
	}
	if e.PCI == "" && e.Kind == KindOffBus && d.apart < maxApart {
		e.PCI = d.gpu
	}
	d.gpu = ""
	e.Driver = d.driver
	return e, true
}

// Event is the event that Scan found.
func (s *Scanner) Event() Event { return s.event }

// Lines is how many lines were read.
func (s *Scanner) Lines() int { return s.lines }

// Err is the error that ended the reading; nil at the end of the log.
func (s *Scanner) Err() error {
	if errors.Is(s.err, io.EOF) {
		return nil
	}
	return s.err
}

// line reads one line and drops what is longer than the buffer.
func (s *Scanner) line() (string, error) {
	part, err := s.in.ReadSlice('\n')
	line := string(part)
	for errors.Is(err, bufio.ErrBufferFull) {
		_, err = s.in.ReadSlice('\n')
	}
	return line, err
}

// withYear gives t, whose year is 0, the last year in which it is not after now.
// A day's grace lets a zone that is ahead pass.
func withYear(t, now time.Time) time.Time {
	year := now.Year()
	at := t.AddDate(year, 0, 0)
	if at.After(now.AddDate(0, 0, 1)) {
		at = t.AddDate(year-1, 0, 0)
	}
	return at
}
