// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxLine bounds one line of a device, in bytes.
const maxLine = 1024

// LineConfig says how lines of text become readings. The serial, exec and
// textfile drivers share it.
type LineConfig struct {
	// Format is csv, keyvalue, json or regexp.
	Format string `yaml:"format"`
	// Delimiter separates csv columns; default ",". One space means any run of
	// blanks.
	Delimiter string `yaml:"delimiter"`
	// Regexp is the expression of format regexp; its named groups are the fields.
	Regexp string `yaml:"regexp"`
	// DecimalComma says that numbers are written 23,5.
	DecimalComma bool          `yaml:"decimal_comma"`
	Fields       []FieldConfig `yaml:"fields"`
}

// errNoField says that a line holds nothing that the configuration asks for.
var errNoField = errors.New("no configured field in the line")

// lookupFunc gives the raw text of a field; false where it is absent.
type lookupFunc func(*field) (string, bool)

// lineParser turns lines into readings.
type lineParser struct {
	json         bool
	decimalComma bool
	fields       []field
	// values splits a line.
	values func(line string) (lookupFunc, error)
}

// newLineParser checks a LineConfig; own is the entry's device id, kind tells
// the kind of a device or "".
func newLineParser(c LineConfig, own string, kind func(id string) string) (*lineParser, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	fields, err := newFields(c.Fields, own, kind)
	if err != nil {
		return nil, err
	}
	p := &lineParser{decimalComma: c.DecimalComma, fields: fields, json: c.Format == "json"}
	switch c.Format {
	case "csv":
		p.values, err = csvValues(c.Delimiter, c.DecimalComma, fields)
	case "keyvalue":
		p.values = keyValues(c.DecimalComma)
	case "json":
		p.values = jsonValues
	case "regexp":
		p.values, err = regexpValues(c.Regexp, fields)
	default:
		err = fmt.Errorf("format %q is none of csv, keyvalue, json, regexp", c.Format)
	}
	return p, err
}

// check finds settings that do not fit the format.
func (c LineConfig) check() error {
	for i, f := range c.Fields {
		if c.Format == "csv" && (f.Column < 1 || f.Name != "") {
			return fmt.Errorf("fields[%d]: format csv needs a column (from 1) and no name", i)
		}
		if c.Format != "csv" && (f.Column != 0 || f.Name == "") {
			return fmt.Errorf("fields[%d]: format %s needs a name and no column", i, c.Format)
		}
		if f.PartLabel != "" || len(f.Match) > 0 {
			return fmt.Errorf("fields[%d]: match and part_label are for the textfile format prometheus only", i)
		}
	}
	if c.Delimiter != "" && c.Format != "csv" {
		return errors.New("delimiter is for format csv only")
	}
	if c.Regexp != "" && c.Format != "regexp" {
		return errors.New("regexp is for format regexp only")
	}
	return nil
}

// devices lists the devices that the fields serve, without own.
func (p *lineParser) devices(own string) []string { return fieldDevices(p.fields, own) }

func fieldDevices(fields []field, own string) []string {
	var ids []string
	for _, f := range fields {
		if f.Device != own && !slices.Contains(ids, f.Device) {
			ids = append(ids, f.Device)
		}
	}
	return ids
}

// line parses one line. What could be read is returned even with an error; the
// error is errNoField when the line has nothing of ours.
func (p *lineParser) line(s string) ([]parsed, error) {
	if len(s) > maxLine {
		return nil, fmt.Errorf("longer than %d bytes", maxLine)
	}
	if !utf8.ValidString(s) {
		return nil, errors.New("not valid UTF-8")
	}
	get, err := p.values(s)
	if err != nil {
		return nil, err
	}
	return p.collect(get)
}

func (p *lineParser) collect(get lookupFunc) ([]parsed, error) {
	var out []parsed
	var errs []error
	for i := range p.fields {
		raw, ok := get(&p.fields[i])
		if !ok {
			continue
		}
		v, err := p.fields[i].parse(raw, p.decimalComma)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		v.field = i
		out = append(out, v)
	}
	if len(out) == 0 && len(errs) == 0 {
		return nil, errNoField
	}
	return out, errors.Join(errs...)
}

// text parses a whole output or file: lines, or for json a sequence of
// documents. Lines without any of our fields are skipped; broken values are in
// the error, with their line, and do not lose the rest. It is an error when
// nothing was found at all.
func (p *lineParser) text(data []byte) ([]Reading, error) {
	found := map[int]parsed{}
	var errs []error
	each := func(where string, vals []parsed, err error) {
		for _, v := range vals {
			found[v.field] = v
		}
		if err != nil && !errors.Is(err, errNoField) && len(errs) < 5 {
			errs = append(errs, fmt.Errorf("%s: %w", where, err))
		}
	}
	if p.json {
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber()
		for n := 1; ; n++ {
			where := fmt.Sprintf("document %d", n)
			doc, err := nextDocument(dec)
			if err == io.EOF {
				break
			}
			if err != nil {
				each(where, nil, err)
				break
			}
			vals, err := p.collect(jsonLookup(doc))
			each(where, vals, err)
		}
	} else {
		for i, l := range strings.Split(string(data), "\n") {
			if l = strings.TrimRight(l, "\r"); strings.TrimSpace(l) != "" {
				vals, err := p.line(l)
				each(fmt.Sprintf("line %d", i+1), vals, err)
			}
		}
	}
	if len(found) == 0 && len(errs) == 0 {
		return nil, errors.New("none of the configured fields is there")
	}
	return readings(found), errors.Join(errs...)
}

// readings orders what was found by field and leaves out the absent ones.
func readings(found map[int]parsed) []Reading {
	var out []Reading
	for _, i := range slices.Sorted(maps.Keys(found)) {
		if v := found[i]; !v.absent {
			out = append(out, v.reading)
		}
	}
	return out
}

// csvValues splits columns. A line with too few columns is not ours: it may be
// torn, and then its last number is not to be trusted.
func csvValues(delimiter string, decimalComma bool, fields []field) (func(string) (lookupFunc, error), error) {
	if delimiter == "" {
		delimiter = ","
	}
	comma, size := utf8.DecodeRuneInString(delimiter)
	if size != len(delimiter) || comma == '"' || comma == '\n' || comma == '\r' || comma == utf8.RuneError {
		return nil, fmt.Errorf("delimiter %q is not one character", delimiter)
	}
	if decimalComma && comma == ',' {
		return nil, errors.New("decimal_comma needs another delimiter than a comma")
	}
	last := 0
	for _, f := range fields {
		last = max(last, f.Column)
	}
	return func(line string) (lookupFunc, error) {
		columns := strings.Fields(line)
		if comma != ' ' {
			r := csv.NewReader(strings.NewReader(line))
			r.Comma, r.LazyQuotes, r.TrimLeadingSpace = comma, true, true
			var err error
			if columns, err = r.Read(); err != nil {
				return nil, errNoField
			}
		}
		if len(columns) < last {
			return nil, errNoField
		}
		return func(f *field) (string, bool) { return columns[f.Column-1], true }, nil
	}, nil
}

// Pairs are key=value or key: value, separated by blanks, commas or semicolons.
var (
	pairs      = regexp.MustCompile(`([^\s,;=:]+)\s*[=:]\s*([^\s,;]+)`)
	commaPairs = regexp.MustCompile(`([^\s;=:]+)\s*[=:]\s*([^\s;]+)`)
)

func keyValues(decimalComma bool) func(string) (lookupFunc, error) {
	re := pairs
	if decimalComma {
		re = commaPairs
	}
	return func(line string) (lookupFunc, error) {
		m := map[string]string{}
		for _, kv := range re.FindAllStringSubmatch(line, -1) {
			m[kv[1]] = kv[2]
		}
		return func(f *field) (string, bool) {
			v, ok := m[f.Name]
			return v, ok
		}, nil
	}
}

func regexpValues(expr string, fields []field) (func(string) (lookupFunc, error), error) {
	if expr == "" {
		return nil, errors.New("format regexp needs a regexp")
	}
	re, err := regexp.Compile(expr)
	if err != nil {
		return nil, fmt.Errorf("regexp: %w", err)
	}
	for _, f := range fields {
		if re.SubexpIndex(f.Name) < 0 {
			return nil, fmt.Errorf("regexp has no group (?P<%s>...)", f.Name)
		}
	}
	return func(line string) (lookupFunc, error) {
		m := re.FindStringSubmatchIndex(line)
		if m == nil {
			return nil, errNoField
		}
		return func(f *field) (string, bool) {
			i := re.SubexpIndex(f.Name)
			if m[2*i] < 0 {
				return "", false
			}
			return line[m[2*i]:m[2*i+1]], true
		}, nil
	}, nil
}

func jsonValues(line string) (lookupFunc, error) {
	dec := json.NewDecoder(strings.NewReader(line))
	dec.UseNumber()
	doc, err := nextDocument(dec)
	if err != nil {
		return nil, fmt.Errorf("json: %w", err)
	}
	if dec.More() {
		return nil, errors.New("json: more than one document in the line")
	}
	return jsonLookup(doc), nil
}

// nextDocument reads one JSON object or array.
func nextDocument(dec *json.Decoder) (any, error) {
	var doc any
	if err := dec.Decode(&doc); err != nil {
		return nil, err
	}
	switch doc.(type) {
	case map[string]any, []any:
		return doc, nil
	}
	return nil, errors.New("not a JSON object")
}

// jsonLookup follows a dotted path through objects and arrays. null is absent.
func jsonLookup(doc any) lookupFunc {
	return func(f *field) (string, bool) {
		at := doc
		for _, key := range strings.Split(f.Name, ".") {
			switch x := at.(type) {
			case map[string]any:
				at = x[key]
			case []any:
				i, err := strconv.Atoi(key)
				if err != nil || i < 0 || i >= len(x) {
					return "", false
				}
				at = x[i]
			default:
				return "", false
			}
		}
		switch x := at.(type) {
		case json.Number:
			return x.String(), true
		case string:
			return x, true
		case bool:
			return strconv.FormatBool(x), true
		}
		return "", false
	}
}
