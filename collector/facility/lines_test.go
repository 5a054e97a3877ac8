// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"errors"
	"math"
	"strings"
	"testing"
)

var climate = []FieldConfig{
	{Name: "t", Quantity: "inlet_temperature", Sentinels: []string{"-127", "85", "nan"}},
	{Name: "h", Quantity: "inlet_humidity", Unit: "percent", Device: "r01-rh"},
}

func columns(list []FieldConfig, cols ...int) []FieldConfig {
	out := append([]FieldConfig(nil), list...)
	for i := range out {
		out[i].Name, out[i].Column = "", cols[i]
	}
	return out
}

func TestLineFormats(t *testing.T) {
	both := "r01-in-top inlet_temperature 23.5\nr01-rh inlet_humidity 0.413\n"
	none := "none"
	re := LineConfig{Format: "regexp", Regexp: `^T=(?P<t>\S+)C(?: H=(?P<h>[\d.]+)%)?$`, Fields: climate}
	cases := []struct {
		name   string
		config LineConfig
		line   string
		want   string // readings, "none" for a line without a field, or "err: text"
	}{
		{"csv", LineConfig{Format: "csv", Fields: columns(climate, 1, 3)}, "23.5, x ,41.3", both},
		{"csv quoted", LineConfig{Format: "csv", Fields: columns(climate, 2, 3)}, `"node 1, left",23.5,41.3`, both},
		{"csv torn", LineConfig{Format: "csv", Fields: columns(climate, 1, 3)}, "23.5,x", none},
		{"csv semicolon", LineConfig{Format: "csv", Delimiter: ";", DecimalComma: true, Fields: columns(climate, 1, 2)}, "23,5;41,3", both},
		{"csv blanks", LineConfig{Format: "csv", Delimiter: " ", Fields: columns(climate, 1, 2)}, "  23.5 \t 41.3 ", both},
		{"csv tab", LineConfig{Format: "csv", Delimiter: "\t", Fields: columns(climate, 1, 2)}, "23.5\t41.3", both},
		{"csv broken value", LineConfig{Format: "csv", Fields: columns(climate, 1, 2)}, "2#.5,41.3", `err: column 1: "2#.5" is not a number`},
		{"keyvalue", LineConfig{Format: "keyvalue", Fields: climate}, "t=23.5 h=41.3", both},
		{"keyvalue comma", LineConfig{Format: "keyvalue", Fields: climate}, "t=23.5,h=41.3;x=1", both},
		{"keyvalue colon", LineConfig{Format: "keyvalue", Fields: climate}, "t: 23.5, h : 41.3", both},
		{"keyvalue decimal comma", LineConfig{Format: "keyvalue", DecimalComma: true, Fields: climate}, "t=23,5 h=41,3", both},
		{"keyvalue one of two", LineConfig{Format: "keyvalue", Fields: climate}, "t=23.5", "r01-in-top inlet_temperature 23.5\n"},
		{"keyvalue other", LineConfig{Format: "keyvalue", Fields: climate}, "boot=ok", none},
		{"json", LineConfig{Format: "json", Fields: climate}, `{"t": 23.5, "h": "41.3", "z": [1]}`, both},
		{"json null", LineConfig{Format: "json", Fields: climate}, `{"t": null, "h": 41.3}`, "r01-rh inlet_humidity 0.413\n"},
		{"json cut", LineConfig{Format: "json", Fields: climate}, `{"t": 23.5, "h": 4`, "err: json: unexpected EOF"},
		{"json two", LineConfig{Format: "json", Fields: climate}, `{"t": 23.5}{"t": 24}`, "err: more than one document"},
		{"json number", LineConfig{Format: "json", Fields: climate}, `23.5`, "err: not a JSON object"},
		{"regexp", re, "T=23.5C H=41.3%", both},
		{"regexp optional group", re, "T=23.5C", "r01-in-top inlet_temperature 23.5\n"},
		{"regexp no match", re, "hello", none},
		{"regexp bad number", re, "T=?C", `err: t: "?" is not a number`},
		{"infinite", LineConfig{Format: "keyvalue", Fields: climate}, "t=1e999", "err: is not a number"},
		{"nan is no number", LineConfig{Format: "keyvalue", Fields: climate}, "h=nan", "err: is not a number"},
		{"not utf-8", LineConfig{Format: "keyvalue", Fields: climate}, "t=23.5 \xff", "err: not valid UTF-8"},
		{"too long", LineConfig{Format: "keyvalue", Fields: climate}, "t=23.5" + strings.Repeat(" ", 1024), "err: longer than 1024 bytes"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p, err := newLineParser(c.config, "r01-in-top", hallKind)
			if err != nil {
				t.Fatal(err)
			}
			vals, err := p.line(c.line)
			if text, bad := strings.CutPrefix(c.want, "err: "); bad {
				wantErr(t, err, text)
				return
			}
			if c.want == none {
				if !errors.Is(err, errNoField) || len(vals) > 0 {
					t.Fatalf("%v, %v; want errNoField", vals, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if got := show(values(vals)); got != c.want {
				t.Errorf("got\n%swant\n%s", got, c.want)
			}
		})
	}
}

func values(vals []parsed) (out []Reading) {
	for _, v := range vals {
		if !v.absent {
			out = append(out, v.reading)
		}
	}
	return out
}

// TestBrokenValueKeepsRest: one value that is broken does not lose the other.
func TestBrokenValueKeepsRest(t *testing.T) {
	p, err := newLineParser(LineConfig{Format: "keyvalue", Fields: climate}, "r01-in-top", hallKind)
	if err != nil {
		t.Fatal(err)
	}
	vals, err := p.line("t=ERR h=41.3")
	wantErr(t, err, `t: "ERR" is not a number`)
	if got := show(values(vals)); got != "r01-rh inlet_humidity 0.413\n" {
		t.Errorf("got %s", got)
	}
}

func TestScaleOffsetSentinelsStates(t *testing.T) {
	field := func(c FieldConfig) LineConfig {
		c.Name = "v"
		return LineConfig{Format: "keyvalue", Fields: []FieldConfig{c}}
	}
	cases := []struct {
		name, device string
		config       FieldConfig
		raw, want    string
	}{
		// A sensor that reads 1.5 C too high, in tenths: 251 is 25.1, less 1.5.
		{"scale then offset", "r01-out", FieldConfig{Quantity: "outlet_temperature", Scale: 0.1, Offset: -1.5}, "251", "23.6"},
		// The same in fahrenheit: 771 tenths are 77.1 F, 25.0556 C.
		{"scale then unit", "r01-out", FieldConfig{Quantity: "outlet_temperature", Scale: 0.1, Unit: "fahrenheit"}, "771", "25.055556"},
		{"current transformer", "r01-a", FieldConfig{Quantity: "phase_current", Part: "L1", Unit: "milliampere", Scale: -1}, "-7467", "7.467"},
		{"energy", "r01-a", FieldConfig{Quantity: "energy", Unit: "kilowatt_hour"}, "2.5", "9e+06"},
		{"sentinel", "r01-out", FieldConfig{Quantity: "outlet_temperature", Sentinels: []string{"-127"}}, "-127", "absent"},
		{"sentinel in another spelling", "r01-out", FieldConfig{Quantity: "outlet_temperature", Sentinels: []string{"-127"}}, "-127.00", "absent"},
		{"sentinel is of the raw value", "r01-out", FieldConfig{Quantity: "outlet_temperature", Sentinels: []string{"850"}, Scale: 0.1}, "85", "8.5"},
		{"sentinel word", "r01-out", FieldConfig{Quantity: "outlet_temperature", Sentinels: []string{"n/a"}}, "N/A", "absent"},
		{"sentinel nan", "r01-out", FieldConfig{Quantity: "outlet_temperature", Sentinels: []string{"nan"}}, "NaN", "absent"},
		{"wet", "row-a-leak", FieldConfig{Quantity: "leak", States: map[string]float64{"WET": 1, "dry": 0}}, "wet", "1"},
		{"dry", "row-a-leak", FieldConfig{Quantity: "leak", States: map[string]float64{"WET": 1, "dry": 0}}, "DRY", "0"},
		{"on", "crah1", FieldConfig{Quantity: "cooling_up"}, "ON", "1"},
		{"number for a state", "crah1", FieldConfig{Quantity: "cooling_up"}, "0", "0"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			p, err := newLineParser(field(c.config), c.device, hallKind)
			if err != nil {
				t.Fatal(err)
			}
			vals, err := p.line("v=" + c.raw)
			if err != nil || len(vals) != 1 {
				t.Fatal(vals, err)
			}
			got := round(vals[0].reading.Value)
			if vals[0].absent {
				got = "absent"
			}
			if got != c.want {
				t.Errorf("%s gives %s, want %s", c.raw, got, c.want)
			}
		})
	}
}

func TestLineConfigErrors(t *testing.T) {
	ok := FieldConfig{Name: "t", Quantity: "inlet_temperature"}
	with := func(change func(*FieldConfig)) LineConfig {
		f := ok
		change(&f)
		return LineConfig{Format: "keyvalue", Fields: []FieldConfig{f}}
	}
	cases := []struct {
		config LineConfig
		want   string
	}{
		{LineConfig{Format: "keyvalue"}, "fields: at least one is needed"},
		{LineConfig{Format: "xml", Fields: []FieldConfig{ok}}, `format "xml" is none of csv, keyvalue, json, regexp`},
		{LineConfig{Format: "csv", Fields: []FieldConfig{ok}}, "format csv needs a column"},
		{LineConfig{Format: "json", Fields: columns([]FieldConfig{ok}, 1)}, "format json needs a name"},
		{LineConfig{Format: "csv", Delimiter: "::", Fields: columns([]FieldConfig{ok}, 1)}, `delimiter "::" is not one character`},
		{LineConfig{Format: "csv", DecimalComma: true, Fields: columns([]FieldConfig{ok}, 1)}, "decimal_comma needs another delimiter"},
		{LineConfig{Format: "json", Delimiter: ";", Fields: []FieldConfig{ok}}, "delimiter is for format csv only"},
		{LineConfig{Format: "json", Regexp: "x", Fields: []FieldConfig{ok}}, "regexp is for format regexp only"},
		{LineConfig{Format: "regexp", Fields: []FieldConfig{ok}}, "needs a regexp"},
		{LineConfig{Format: "regexp", Regexp: "(", Fields: []FieldConfig{ok}}, "missing closing )"},
		{LineConfig{Format: "regexp", Regexp: "(?P<x>.)", Fields: []FieldConfig{ok}}, "regexp has no group (?P<t>...)"},
		{LineConfig{Format: "keyvalue", Fields: []FieldConfig{ok, ok}}, "given twice"},
		{with(func(f *FieldConfig) { f.Quantity = "heat" }), `fields[0] (t): unknown quantity "heat"`},
		{with(func(f *FieldConfig) { f.Unit = "watt" }), `unit "watt" does not measure celsius`},
		{with(func(f *FieldConfig) { f.Part = "1" }), "has no parts"},
		{with(func(f *FieldConfig) { f.Quantity = "outlet_power" }), "needs a part"},
		{with(func(f *FieldConfig) { f.Device = "r01-a" }), "device r01-a: quantity inlet_temperature belongs to a sensor, not to a pdu"},
		{with(func(f *FieldConfig) { f.Scale = math.Inf(1) }), "must be finite"},
		{with(func(f *FieldConfig) { f.PartLabel = "x" }), "for the textfile format prometheus only"},
	}
	for _, c := range cases {
		_, err := newLineParser(c.config, "r01-in-top", func(id string) string {
			if id == "r01-in-top" && len(c.config.Fields) > 0 && c.config.Fields[0].Quantity == "outlet_power" {
				return "pdu"
			}
			return hallKind(id)
		})
		wantErr(t, err, c.want)
	}
}

func TestText(t *testing.T) {
	kv, _ := newLineParser(LineConfig{Format: "keyvalue", Fields: climate}, "r01-in-top", hallKind)
	js, _ := newLineParser(LineConfig{Format: "json", Fields: []FieldConfig{
		{Name: "sensors.1.temp", Quantity: "inlet_temperature"},
		{Name: "wet", Quantity: "leak", Device: "row-a-leak"},
	}}, "r01-in-top", hallKind)
	both := "r01-in-top inlet_temperature 23.5\nr01-rh inlet_humidity 0.413\n"
	cases := []struct {
		name   string
		parser *lineParser
		text   string
		want   string
		err    string
	}{
		{"two lines and a title", kv, "Tool 1.2\r\n\r\nt=23.5\r\nh=41.3\r\n", both, ""},
		{"the last counts", kv, "t=20\nt=23.5 h=41.3\n", both, ""},
		{"a sentinel takes the value away", kv, "t=20 h=41.3\nt=85\n", "r01-rh inlet_humidity 0.413\n", ""},
		{"broken line named", kv, "t=23.5\nh=?\n", "r01-in-top inlet_temperature 23.5\n", `line 2: bad value: h: "?" is not a number`},
		{"nothing", kv, "usage: tool\n", "", "none of the configured fields is there"},
		{"all absent is not an error", kv, "t=85\n", "", ""},
		{"json over many lines", js, "{\n \"sensors\": [{}, {\"temp\": 21.25}],\n \"wet\": false\n}\n", "r01-in-top inlet_temperature 21.25\nrow-a-leak leak 0\n", ""},
		{"json lines", js, "{\"wet\": true}\n{\"sensors\": [1, {\"temp\": 20}]}\n", "r01-in-top inlet_temperature 20\nrow-a-leak leak 1\n", ""},
		{"json cut", js, "{\"wet\": true}\n{\"sens", "row-a-leak leak 1\n", "document 2: unexpected EOF"},
		{"json not found", js, "{\"sensors\": {\"1\": 3}}", "", "none of the configured fields"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			got, err := c.parser.text([]byte(c.text))
			if c.err != "" {
				wantErr(t, err, c.err)
			} else if err != nil {
				t.Fatal(err)
			}
			if text := show(got); text != c.want {
				t.Errorf("got\n%swant\n%s", text, c.want)
			}
		})
	}
}

// FuzzLines: whatever a device sends, there is no panic and no value that is
// not finite.
func FuzzLines(f *testing.F) {
	var parsers []*lineParser
	for _, c := range []LineConfig{
		{Format: "csv", Fields: columns(climate, 1, 2)},
		{Format: "csv", Delimiter: " ", Fields: columns(climate, 1, 2)},
		{Format: "keyvalue", DecimalComma: true, Fields: climate},
		{Format: "json", Fields: climate},
		{Format: "regexp", Regexp: `(?P<t>\S*) (?P<h>.*)`, Fields: climate},
	} {
		p, err := newLineParser(c, "r01-in-top", hallKind)
		if err != nil {
			f.Fatal(err)
		}
		parsers = append(parsers, p)
	}
	for _, seed := range []string{"23.5,41.3", "t=1 h=2", `{"t":1}`, "\"", "t=0x1p-2", "1e308,1e308", "\x00\xff", `{"t":{"t":[[[`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, p := range parsers {
			lines, _ := p.line(text)
			whole, _ := p.text([]byte(text))
			for _, r := range append(values(lines), whole...) {
				if !finite(r.Value) {
					t.Fatalf("%q gives %v", text, r.Value)
				}
			}
		}
	})
}
