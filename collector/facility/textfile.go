// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

func init() {
	Register("textfile", "a file that another program writes: Prometheus text, lines or JSON", newTextfile)
}

// maxTextfile bounds the file, in bytes: some ten thousand series.
const maxTextfile = 1 << 20

// textfileConfig is the block "textfile" of an entry.
type textfileConfig struct {
	Path string `yaml:"path"`
	// MaxAge is the age of the file from which it is stale; by default the age at
	// which values are dropped from the page: 3 intervals, at least 30 s.
	MaxAge time.Duration `yaml:"max_age"`
	// Format is prometheus (the default) or one of the line formats.
	LineConfig `yaml:",inline"`
}

func newTextfile(fc FactoryConfig) (Plan, error) {
	var c textfileConfig
	if err := fc.Decode(&c); err != nil {
		return Plan{}, err
	}
	if !filepath.IsAbs(c.Path) {
		return Plan{}, fmt.Errorf("textfile: path %q is not absolute", c.Path)
	}
	limit := staleAfter(fc.Interval)
	if c.MaxAge == 0 {
		c.MaxAge = limit
	}
	if c.MaxAge < 0 || c.MaxAge > limit {
		return Plan{}, fmt.Errorf("textfile: max_age %s is over %s, the age at which values are dropped at an interval of %s; set interval to how often the file is written", c.MaxAge, limit, fc.Interval)
	}
	d := &textfileDriver{config: c}
	var serves []string
	if c.Format == "" || c.Format == "prometheus" {
		p, err := newPromParser(c.LineConfig, fc.Device.ID, fc.Kind)
		if err != nil {
			return Plan{}, fmt.Errorf("textfile: %w", err)
		}
		d.parse, serves = p.parse, fieldDevices(p.fields, fc.Device.ID)
	} else {
		p, err := newLineParser(c.LineConfig, fc.Device.ID, fc.Kind)
		if err != nil {
			return Plan{}, fmt.Errorf("textfile: %w", err)
		}
		d.parse, serves = wholeLines(p, c.Format), p.devices(fc.Device.ID)
	}
	return Plan{
		Open:   func(context.Context) (Driver, error) { return d, nil },
		Serves: serves,
	}, nil
}

// wholeLines refuses a text whose last line is not complete, and a text with
// any broken value: a half-written file must not pass for the whole.
func wholeLines(p *lineParser, format string) func([]byte) ([]Reading, error) {
	return func(data []byte) ([]Reading, error) {
		if format != "json" && (len(data) == 0 || data[len(data)-1] != '\n') {
			return nil, errors.New("the last line has no end; the file may be half written")
		}
		out, err := p.text(data)
		if err != nil {
			return nil, err
		}
		return out, nil
	}
}

// textfileDriver reads a file that another program writes.
type textfileDriver struct {
	config textfileConfig
	parse  func(data []byte) ([]Reading, error)
}

// Read returns what the file says, with the file's time where it has none of
// its own. A file that cannot be read as a whole gives nothing.
func (d *textfileDriver) Read(context.Context) ([]Reading, error) {
	data, info, err := readSteady(d.config.Path)
	if err != nil {
		return nil, err
	}
	if age := time.Since(info.ModTime()); age > d.config.MaxAge {
		return nil, fmt.Errorf("%s is stale: written %s ago, max_age is %s", d.config.Path, roundAge(age), d.config.MaxAge)
	}
	out, err := d.parse(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", d.config.Path, err)
	}
	for i := range out {
		if out[i].At.IsZero() {
			out[i].At = info.ModTime()
		}
	}
	return out, nil
}

// Close does nothing: the file is open during a read only.
func (d *textfileDriver) Close() error { return nil }

// roundAge keeps the reason of a stale file from changing with each read: two
// leading digits are enough.
func roundAge(age time.Duration) time.Duration {
	unit := time.Second
	for age >= 100*unit {
		unit *= 10
	}
	return age.Truncate(unit)
}

// readSteady reads a regular file of bounded size and makes sure that nobody
// wrote to it meanwhile. A file that is replaced by rename is always whole.
func readSteady(path string) ([]byte, fs.FileInfo, error) {
	// Non-blocking, so that a named pipe in its place does not hang.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	before, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !before.Mode().IsRegular() {
		return nil, nil, fmt.Errorf("%s is not a regular file", path)
	}
	data, err := io.ReadAll(io.LimitReader(f, maxTextfile+1))
	if err != nil {
		return nil, nil, err
	}
	if len(data) > maxTextfile {
		return nil, nil, fmt.Errorf("%s is larger than %d bytes", path, maxTextfile)
	}
	after, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if !after.ModTime().Equal(before.ModTime()) || after.Size() != int64(len(data)) {
		return nil, nil, fmt.Errorf("%s was written while it was read; write another file and rename it", path)
	}
	return data, after, nil
}
