// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/prometheus/common/model"

	"github.com/rackpulse/rackpulse/collector"
)

// FuzzCounters feeds the parser of counters files. Whatever it takes can be shown,
// and what it took is the same when written out in the plainest form.
func FuzzCounters(f *testing.F) {
	f.Add([]byte(defaultCountersCSV))
	f.Add([]byte("\ufeffDCGM_FI_DEV_GPU_TEMP_CELSIUS , \"gauge\", \"a, \"\"b\"\"\"\r\n#\nDCGM_FI_X,label,\n"))
	f.Add([]byte("DCGM_FI_DEV_SERIAL, label, s\nDCGM_FI_DEV_FB_USED,counter,\"\nDCGM_EXP_P2P_STATUS, gauge, p\n"))
	f.Add([]byte("dcgm_gpu_temp,summary,x\xff\n,,,\n\"\",\"\",\"\""))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := parseCounters(data, "c.csv")
		if err != nil {
			if c != nil || strings.Contains(err.Error(), "\n") || len(err.Error()) > (maxCounterErrors+1)*5*maxCounterLine {
				t.Fatalf("error %q", err)
			}
			return
		}
		all := slices.Concat(c.metrics, c.exp)
		if len(all) == 0 || len(all)+len(c.labels)+len(c.unknown) > maxCounters {
			t.Fatalf("%d metrics, %d labels, %d unknown", len(all), len(c.labels), len(c.unknown))
		}
		var plain strings.Builder
		for _, m := range all {
			if !model.LegacyValidation.IsValidMetricName(m.name) || !utf8.ValidString(m.help) || strings.ContainsAny(m.help, "\n") {
				t.Fatalf("counter %+v", m)
			}
			typ := "gauge"
			if m.typ == collector.Counter {
				typ = "counter"
			}
			plain.WriteString(m.name + "," + typ + `,"` + strings.ReplaceAll(m.help, `"`, `""`) + "\"\n")
		}
		again, err := parseCounters([]byte(plain.String()), "c.csv")
		if err != nil && strings.Contains(err.Error(), "longer than") { // by its quotes
			return
		}
		if err != nil || !slices.Equal(again.metrics, c.metrics) || !slices.Equal(again.exp, c.exp) {
			t.Fatalf("%q again: %v", plain.String(), err)
		}
		newLayout(c, "both")
	})
}

// FuzzFrames feeds the agent with what a broken child might write, up to the page.
func FuzzFrames(f *testing.F) {
	stream := func(messages ...*response) []byte {
		var buf bytes.Buffer
		w := newFrameWriter(&buf)
		for _, m := range messages {
			if err := w.write(m); err != nil {
				f.Fatal(err)
			}
		}
		return buf.Bytes()
	}
	full := device(0, Value{Field: fieldTemp, V: 41, At: time.Unix(1700000000, 0)}, Value{Field: "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", V: 2})
	full.Labels = map[string]string{fieldDriver: "550.1"}
	lost := Device{Index: "1", Lost: true, Reason: "fell off the bus"}
	sample := &Sample{At: time.Unix(1700000000, 0), Driver: "550.1", Devices: []Device{full, lost}, XIDs: []XID{{UUID: "GPU-0", Code: 79}}}
	fast := &Sample{At: time.Unix(1700000001, 0), FastOnly: true, Devices: []Device{full}}
	f.Add(stream(&response{ID: 1}, &response{ID: 2, Sample: sample}, &response{ID: 3, Sample: fast}))
	f.Add(stream(&response{ID: 1, Err: "no GPU"}))
	f.Add(append(stream(&response{ID: 1, Sample: sample})[:40], 0xff, 0xff, 0xff, 0x7f))
	f.Add([]byte{0, 0, 0, 0x7f, 1, 2, 3})
	c, err := loadCounters("")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		r := newFrameReader(bytes.NewReader(data))
		conv, store := newConverter(newLayout(c, "Hostname"), "h", newExpCounts(time.Minute), newDerived()), collector.NewStore()
		known, err := loadKnown("")
		if err != nil {
			t.Fatal(err)
		}
		var slow slowValues
		xids := newXIDBook()
		for range 8 {
			var resp response
			if err := r.read(&resp); err != nil {
				return
			}
			if resp.Sample == nil {
				continue
			}
			known.name(resp.Sample.Devices)
			slow.complete(resp.Sample)
			missing, err := known.update(resp.Sample.Devices, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range resp.Sample.XIDs {
				xids.driver(e, resp.Sample.At)
			}
			points, slow := conv.points(resp.Sample, missing, xids)
			store.Put(collector.Snapshot{Source: sourceName, Interval: time.Second, Points: append(points, slow...)})
			if _, err := store.Gather(); err != nil {
				t.Fatal(err)
			}
		}
	})
}
