// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/go-kit/log"
)

// benchDescs are as many GPU fields as an agent shows by default.
func benchDescs() []*Desc {
	descs := []*Desc{descTemp, descPower, descEnergy}
	for i := len(descs); i < 30; i++ {
		d := &Desc{Name: fmt.Sprintf("DCGM_FI_DEV_FIELD_%02d", i), Help: "A field.", Labels: gpuLabels}
		if i%5 == 0 {
			d.Type = Counter
		}
		descs = append(descs, d)
	}
	return descs
}

// benchGPUs is a snapshot of 8 GPUs with 30 fields: 240 series.
func benchGPUs(descs []*Desc, v float64) Snapshot {
	snap := Snapshot{Source: "gpu", Interval: time.Second}
	for _, d := range descs {
		for gpu := range 8 {
			snap.Points = append(snap.Points, Point{Desc: d, Values: gpuValues(gpu), Value: v + float64(gpu)})
		}
	}
	return snap
}

// benchRack puts two PDUs of 24 outlets and five sensors: 65 series.
func benchRack(s *Store) Identity {
	outlet := &Desc{Name: "pdu_outlet_power_watt", Help: "Active power of an outlet.", Labels: []string{"outlet"}}
	id := Identity{Node: testIdentity.Node, Devices: map[string]map[string]string{}}
	for _, pdu := range []string{"r01-a", "r01-b"} {
		id.Devices[pdu] = map[string]string{"pdu_id": pdu, "rack_id": "r01"}
		snap := Snapshot{Source: pdu, Interval: time.Minute}
		add := func(d *Desc, v float64, values ...string) {
			snap.Points = append(snap.Points, Point{Desc: d, Subject: pdu, Values: values, Value: v})
		}
		add(descUp, 1, pdu, "snmp")
		for phase := range 3 {
			add(descPhase, 12.5, fmt.Sprint(phase+1))
		}
		for n := range 26 {
			add(outlet, 350.5, fmt.Sprint(n+1))
		}
		s.Put(snap)
		s.SetStatus(pdu, Status{Up: true, Duration: time.Millisecond})
	}
	for i := range 5 {
		name := fmt.Sprintf("r01-in-%d", i)
		id.Devices[name] = map[string]string{"sensor": name, "rack_id": "r01"}
		s.Put(Snapshot{Source: name, Interval: time.Minute, Points: []Point{{Desc: descInlet, Subject: name, Value: 23.4}}})
	}
	return id
}

func benchStore() (*Store, []*Desc) {
	s, descs := NewStore(), benchDescs()
	s.SetIdentity(benchRack(s))
	s.SetStatus("gpu", Status{Up: true, Duration: time.Millisecond})
	s.Put(benchGPUs(descs, 1))
	return s, descs
}

// BenchmarkGather gathers an unchanged page, one after each new snapshot of the
// GPUs, and one after the identity changed.
func BenchmarkGather(b *testing.B) {
	run := func(name string, change func(s *Store, snaps []Snapshot, i int)) {
		b.Run(name, func(b *testing.B) {
			s, descs := benchStore()
			snaps := []Snapshot{benchGPUs(descs, 1), benchGPUs(descs, 2)}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				change(s, snaps, i)
				if _, err := s.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	run("unchanged", func(*Store, []Snapshot, int) {})
	run("new_snapshot", func(s *Store, snaps []Snapshot, i int) {
		snap := snaps[i%2]
		snap.At = time.Now()
		s.Put(snap)
	})
	run("new_identity", func(s *Store, _ []Snapshot, i int) {
		s.SetIdentity(Identity{Node: map[string]string{"node": "gpu001", "rack_id": fmt.Sprint("r", i%2)}})
	})
}

// BenchmarkScrape scrapes through the HTTP handler; the GPUs have a new snapshot
// each time, as they have in production.
func BenchmarkScrape(b *testing.B) {
	for name, encoding := range map[string]string{"plain": "", "gzip": "gzip"} {
		b.Run(name, func(b *testing.B) {
			s, descs := benchStore()
			snaps := []Snapshot{benchGPUs(descs, 1), benchGPUs(descs, 2)}
			h := NewHandler(HandlerConfig{Store: s, Logger: log.NewNopLogger()})
			w := &discard{header: http.Header{}}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				snap := snaps[i%2]
				snap.At = time.Now()
				s.Put(snap)
				r := httptest.NewRequest(http.MethodGet, "/metrics", nil)
				r.Header.Set("Accept", prometheusAccept)
				r.Header.Set("Accept-Encoding", encoding)
				clear(w.header)
				w.n = 0
				h.ServeHTTP(w, r)
			}
			b.ReportMetric(float64(w.n), "bytes/scrape")
		})
	}
}

// discard is a ResponseWriter that counts.
type discard struct {
	header http.Header
	n      int
}

func (d *discard) Header() http.Header         { return d.header }
func (d *discard) WriteHeader(int)             {}
func (d *discard) Write(p []byte) (int, error) { d.n += len(p); return len(p), nil }
