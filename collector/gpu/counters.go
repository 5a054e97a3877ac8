// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"crypto/sha256"
	_ "embed" // default counters
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/prometheus/common/model"

	"github.com/rackpulse/rackpulse/collector"
)

// Bounds of a counters file; dcgm-exporter's has 26 counters in 6 kB.
const (
	maxCountersBytes = 1 << 20
	maxCounters      = 1000
	maxCounterLine   = 4096 // bytes
	maxCounterErrors = 10   // that are told of one file
)

//go:embed default-counters.csv
var defaultCountersCSV string

// counter is one line of a counters file.
type counter struct {
	name  string // of the series, as in the file
	field string // the field's first name in fieldnames.csv
	help  string
	typ   collector.Type
}

// labelField is a line of type label.
type labelField struct {
	name  string // of the label, as in the file
	field string
}

// counters is a counters file: what to read and how to show it.
type counters struct {
	metrics []counter
	labels  []labelField // they become labels of all GPU series
	exp     []counter    // DCGM_EXP_*, which are computed here
	// unknown are names that no DCGM up to 4.6 has. They are left out: a new name in
	// a ConfigMap for a whole fleet must not end the monitoring of its older nodes.
	unknown []unknownField
	sum     [sha256.Size]byte // of the text
}

type unknownField struct {
	name string
	line int
}

// fields returns the names of all fields that the file needs and those that the
// package always reads, each once.
func (c *counters) fields() []string {
	names := make([]string, 0, len(c.metrics)+len(alwaysRead))
	for _, m := range c.metrics {
		if !slices.Contains(names, m.field) {
			names = append(names, m.field)
		}
	}
	for _, name := range alwaysRead {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// labelFields returns the fields whose text becomes labels, and those of the facts,
// each once.
func (c *counters) labelFields() []string {
	fields := slices.Clone(factLabels)
	for _, l := range c.labels {
		if !slices.Contains(fields, l.field) {
			fields = append(fields, l.field)
		}
	}
	return fields
}

// has tells whether the file has one of the DCGM_EXP_* metrics.
func (c *counters) has(exp string) bool {
	return slices.ContainsFunc(c.exp, func(m counter) bool { return m.name == exp })
}

// CheckCounters reads a counters file as an agent does and is stricter: field
// names that no DCGM knows are errors too. Errors name file and line. An empty path
// stands for the built-in list.
func CheckCounters(path string) error {
	c, err := loadCounters(path)
	if err != nil {
		return err
	}
	var errs []error
	for _, u := range c.unknown {
		errs = append(errs, fmt.Errorf("%s:%d: unknown DCGM field %q", path, u.line, u.name))
	}
	return joinErrors(errs)
}

// loadCounters reads a counters file; an empty path means the built-in one.
func loadCounters(path string) (*counters, error) {
	if path == "" {
		return parseCounters([]byte(defaultCountersCSV), "default-counters.csv")
	}
	data, err := readCounters(path)
	if err != nil {
		return nil, err
	}
	return parseCounters(data, path)
}

// readCounters reads a file of at most maxCountersBytes.
func readCounters(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxCountersBytes+1))
	if err == nil && len(data) > maxCountersBytes {
		err = fmt.Errorf("%s: larger than %d bytes", path, maxCountersBytes)
	}
	return data, err
}

// parseCounters reads dcgm-exporter's counters format: "field, type, help" with
// # comments. Unlike there, help without quotes may have commas. The error names
// file and line of up to ten mistakes.
func parseCounters(data []byte, file string) (*counters, error) {
	c := &counters{sum: sha256.Sum256(data)}
	seen := make(map[string]int)
	var errs []error
	line := 0
	for text := range strings.Lines(strings.TrimPrefix(string(data), "\ufeff")) {
		line++
		text = strings.TrimSpace(text)
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		if err := c.addLine(text, line, seen); err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", file, line, err))
		}
		if len(seen) > maxCounters {
			return nil, fmt.Errorf("%s:%d: more than %d counters", file, line, maxCounters)
		}
		if len(errs) > maxCounterErrors {
			break
		}
	}
	if len(errs) == 0 && len(c.metrics)+len(c.exp) == 0 {
		errs = append(errs, fmt.Errorf("%s: no counters", file))
	}
	if err := joinErrors(errs); err != nil {
		return nil, err
	}
	return c, nil
}

// joinErrors puts a few errors on one line.
func joinErrors(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	var texts []string
	for _, err := range errs[:min(len(errs), maxCounterErrors)] {
		texts = append(texts, err.Error())
	}
	if len(errs) > len(texts) {
		texts = append(texts, "and more")
	}
	return errors.New(strings.Join(texts, "; "))
}

// addLine adds one line; seen holds the names of earlier ones with their lines.
func (c *counters) addLine(text string, line int, seen map[string]int) error {
	if len(text) > maxCounterLine {
		return fmt.Errorf("longer than %d bytes", maxCounterLine)
	}
	cells, err := splitCounter(text)
	if err != nil {
		return err
	}
	name, typ, help := strings.TrimSpace(cells[0]), strings.TrimSpace(cells[1]), strings.ToValidUTF8(strings.TrimSpace(cells[2]), "\ufffd")
	if !model.LegacyValidation.IsValidMetricName(name) || strings.Contains(name, ":") {
		return fmt.Errorf("%q is not a field name", name)
	}
	if err := checkCounterType(name, typ); err != nil {
		return err
	}
	if first, ok := seen[name]; ok {
		return fmt.Errorf("field %s is already on line %d", name, first)
	}
	seen[name] = line
	field, ok := fieldNames()[name]
	switch exp := expLabels[name] != nil; {
	case exp && typ == "label":
		return fmt.Errorf("field %s: its numbers are no label (gauge or counter)", name)
	case exp:
		c.exp = append(c.exp, counter{name, name, help, counterTypes[typ]})
	case !ok:
		c.unknown = append(c.unknown, unknownField{name, line})
	case typ == "label":
		c.labels = append(c.labels, labelField{name, field.metric})
	default:
		c.metrics = append(c.metrics, counter{name, field.metric, help, counterTypes[typ]})
	}
	return nil
}

// counterTypes are the types of lines that are no labels.
var counterTypes = map[string]collector.Type{"gauge": collector.Gauge, "counter": collector.Counter}

func checkCounterType(name, typ string) error {
	switch typ {
	case "gauge", "counter", "label":
		return nil
	case "histogram", "summary":
		return fmt.Errorf("field %s: a %s has buckets or quantiles, a DCGM field has one value (use gauge or counter)", name, typ)
	}
	return fmt.Errorf("field %s: unknown type %q (gauge, counter or label)", name, typ)
}

// splitCounter splits a line into its three cells. Any of them may be quoted, with
// "" for a quote inside; help without quotes goes to the end of the line.
func splitCounter(text string) (cells [3]string, err error) {
	rest, more := text, true
	for i := range cells {
		if !more {
			return cells, fmt.Errorf("want 'field, type, help', got %q", text)
		}
		rest = strings.TrimSpace(rest)
		switch {
		case strings.HasPrefix(rest, `"`):
			cells[i], rest, more, err = cutQuoted(rest)
			if err != nil {
				return cells, err
			}
		case i == len(cells)-1:
			cells[i], more = rest, false
		default:
			cells[i], rest, more = strings.Cut(rest, ",")
		}
	}
	if more {
		return cells, fmt.Errorf("more than three cells: %q", rest)
	}
	return cells, nil
}

// cutQuoted takes a quoted cell off the beginning of a text; more tells whether a
// comma follows it.
func cutQuoted(text string) (cell, rest string, more bool, err error) {
	var b strings.Builder
	for rest = text[1:]; ; {
		before, after, ok := strings.Cut(rest, `"`)
		if !ok {
			return "", "", false, fmt.Errorf("no closing quote: %q", text)
		}
		b.WriteString(before)
		rest = after
		if !strings.HasPrefix(rest, `"`) {
			break
		}
		b.WriteByte('"')
		rest = rest[1:]
	}
	rest = strings.TrimSpace(rest)
	if rest == "" {
		return b.String(), "", false, nil
	}
	if rest[0] != ',' {
		return "", "", false, fmt.Errorf("text behind the closing quote: %q", rest)
	}
	return b.String(), rest[1:], true, nil
}
