// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-kit/log"
	"github.com/klauspost/compress/snappy"
	writev2 "github.com/prometheus/client_golang/exp/api/remote/genproto/v2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/model/value"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// received is one sample that arrived.
type received struct {
	at    int64
	value float64
}

// receiver is a remote write server on pipes, so that it runs in virtual time.
type receiver struct {
	t       *testing.T
	answer  func(w http.ResponseWriter) bool // false: answered, the samples are not taken
	offline func() bool                      // nil: never

	mu       sync.Mutex
	series   map[string][]received
	types    map[string]string
	requests []time.Time
	conns    chan net.Conn
	closed   chan struct{}
}

func newReceiver(t *testing.T) (*receiver, *http.Client) {
	t.Helper()
	r := &receiver{
		t: t, series: map[string][]received{}, types: map[string]string{},
		conns: make(chan net.Conn), closed: make(chan struct{}),
	}
	srv := &http.Server{Handler: r}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = srv.Serve(r)
	}()
	t.Cleanup(func() {
		srv.Close()
		<-served
	})
	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		if r.offline != nil && r.offline() {
			return nil, errors.New("no route to host")
		}
		near, far := net.Pipe()
		select {
		case r.conns <- far:
			return near, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}}
	return r, &http.Client{Transport: transport}
}

func (r *receiver) Accept() (net.Conn, error) {
	select {
	case c := <-r.conns:
		return c, nil
	case <-r.closed:
		return nil, net.ErrClosed
	}
}

func (r *receiver) Close() error {
	close(r.closed)
	return nil
}

func (r *receiver) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (r *receiver) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	compressed, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	body, err := snappy.Decode(nil, compressed)
	if err != nil {
		r.t.Errorf("not snappy: %v", err)
	}
	r.mu.Lock()
	r.requests = append(r.requests, time.Now())
	r.mu.Unlock()
	if r.answer != nil && !r.answer(w) {
		return
	}
	n := 0
	if strings.Contains(req.Header.Get("Content-Type"), "v2") {
		n = r.takeV2(body)
	} else {
		n = r.takeV1(body)
	}
	w.Header().Set("X-Prometheus-Remote-Write-Samples-Written", fmt.Sprint(n))
	w.WriteHeader(http.StatusNoContent)
}

// takeV1 reads a prometheus.WriteRequest field by field.
func (r *receiver) takeV1(body []byte) (n int) {
	r.fields(body, func(_ protowire.Number, ts []byte, _ uint64) {
		var name []string
		var sample received
		r.fields(ts, func(field protowire.Number, part []byte, _ uint64) {
			var texts [3]string
			r.fields(part, func(number protowire.Number, text []byte, v uint64) {
				switch {
				case field == 1:
					texts[number] = string(text)
				case number == 1:
					sample.value = math.Float64frombits(v)
				default:
					sample.at = int64(v)
				}
			})
			if field == 1 {
				name = append(name, texts[1]+"="+texts[2])
			}
		})
		r.take(name, sample)
		n++
	})
	return n
}

// fields calls f with each field of a message.
func (r *receiver) fields(b []byte, f func(number protowire.Number, message []byte, v uint64)) {
	for len(b) > 0 {
		number, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			r.t.Errorf("1.0: no tag in %q", b)
			return
		}
		b = b[n:]
		var message []byte
		var v uint64
		switch typ {
		case protowire.BytesType:
			message, n = protowire.ConsumeBytes(b)
		case protowire.Fixed64Type:
			v, n = protowire.ConsumeFixed64(b)
		default:
			v, n = protowire.ConsumeVarint(b)
		}
		if n < 0 {
			r.t.Errorf("1.0: field %d is cut", number)
			return
		}
		b = b[n:]
		f(number, message, v)
	}
}

func (r *receiver) takeV2(body []byte) (n int) {
	var msg writev2.Request
	if err := proto.Unmarshal(body, &msg); err != nil {
		r.t.Errorf("2.0: %v", err)
	}
	for _, ts := range msg.Timeseries {
		var name []string
		for i := 0; i < len(ts.LabelsRefs); i += 2 {
			name = append(name, msg.Symbols[ts.LabelsRefs[i]]+"="+msg.Symbols[ts.LabelsRefs[i+1]])
		}
		for _, s := range ts.Samples {
			r.take(name, received{s.Timestamp, s.Value})
			n++
		}
		r.mu.Lock()
		r.types[strings.Join(name, ",")] = ts.Metadata.Type.String() + " " + msg.Symbols[ts.Metadata.HelpRef]
		r.mu.Unlock()
	}
	return n
}

func (r *receiver) take(name []string, s received) {
	if !slices.IsSorted(name) { // no label name here is the start of another
		r.t.Errorf("labels are not sorted: %q", name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	key := strings.Join(name, ",")
	r.series[key] = append(r.series[key], s)
}

// of returns the samples of the one series that has the text in its labels.
func (r *receiver) of(text string) []received {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []received
	hits := 0
	for key, s := range r.series {
		if strings.Contains(key, text) {
			found, hits = slices.Clone(s), hits+1
		}
	}
	if hits > 1 {
		r.t.Errorf("%d series have %q", hits, text)
	}
	return found
}

func (r *receiver) times() []time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// pushing runs a Pusher of a store with two GPUs and a PDU's inlet sensor. stop
// ends it and waits.
func pushing(t *testing.T, client *http.Client, change func(*PushConfig)) (p *Pusher, stop func()) {
	t.Helper()
	cfg := PushConfig{
		Store: pushedStore(), URL: "http://receiver/api/v1/write", Interval: time.Second,
		Labels: map[string]string{"instance": "gpu001", "job": "rackpulse"}, Logger: log.NewNopLogger(),
	}
	if change != nil {
		change(&cfg)
	}
	cfg.setDefaults()
	if err := cfg.check(); err != nil {
		t.Fatal(err)
	}
	p, err := newPusher(cfg, client)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	return p, sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func pushedStore() *Store {
	s := NewStore()
	s.SetIdentity(testIdentity)
	hour := time.Hour
	s.Put(Snapshot{Source: "gpu", Interval: hour, Points: []Point{
		{Desc: descTemp, Values: gpuValues(0), Value: 41}, {Desc: descTemp, Values: gpuValues(1), Value: 42.5},
		{Desc: descEnergy, Values: gpuValues(0), Value: 123456789},
	}})
	s.Put(Snapshot{Source: "r01-a", Interval: hour, Points: []Point{{Desc: descPhase, Subject: "r01-a", Values: []string{"L1"}, Value: 12.25}}})
	s.Put(Snapshot{Source: "r01-in-top", Interval: hour, Points: []Point{{Desc: descInlet, Subject: "r01-in-top", Value: 24}}})
	return s
}

func outcome(p *Pusher, name string) float64 {
	return testutil.ToFloat64(p.counts.WithLabelValues(name))
}

func isStale(v float64) bool { return math.Float64bits(v) == value.StaleNaN }

// TestPushRound holds what one round looks like in both protocols.
func TestPushRound(t *testing.T) {
	for _, protocol := range []string{PushV1, PushV2} {
		t.Run(protocol, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, client := newReceiver(t)
				p, stop := pushing(t, client, func(c *PushConfig) { c.Protocol = protocol })
				time.Sleep(10500 * time.Millisecond)
				p.cfg.Store.Remove("r01-a")
				time.Sleep(2 * time.Second)
				stop()
				phase := r.of("__name__=pdu_phase_current_ampere,instance=gpu001,job=rackpulse,pdu_id=r01-a,phase=L1,rack_id=r01")
				if n := len(phase); n < 10 || n > 12 {
					t.Fatalf("%d samples of the phase in 10.5 s", n)
				}
				for i, s := range phase[:len(phase)-1] {
					if s.value != 12.25 || s.at != phase[0].at+int64(i)*1000 {
						t.Errorf("sample %d: %v", i, s)
					}
				}
				if !isStale(phase[len(phase)-1].value) {
					t.Error("the series that vanished has no stale marker")
				}
				up := r.of("__name__=up,instance=gpu001,job=rackpulse")
				last := up[len(up)-1]
				if up[0].value != 1 || last.value != 0 {
					t.Errorf("up starts with %v and ends with %v", up[0], last)
				}
				inlet := r.of("rack_inlet_temperature_celsius")
				if end := inlet[len(inlet)-1]; !isStale(end.value) || end.at != last.at {
					t.Errorf("the inlet does not end with the agent: %v", end)
				}
				if protocol == PushV2 {
					for key, typ := range r.types {
						if strings.Contains(key, "__name__=DCGM_FI_DEV_TOTAL_ENERGY") && typ != "METRIC_TYPE_COUNTER Total energy consumption since boot (in mJ)." {
							t.Errorf("metadata of %s: %s", key, typ)
						}
					}
				}
			})
		})
	}
}

// TestPushMetrics holds the names of the own metrics.
func TestPushMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, client := newReceiver(t)
		p, stop := pushing(t, client, nil)
		time.Sleep(3 * time.Second)
		problems, err := testutil.CollectAndLint(p)
		if err != nil || len(problems) > 0 {
			t.Errorf("lint: %v %v", problems, err)
		}
		if n := testutil.CollectAndCount(p); n != 5 {
			t.Errorf("%d own series, want 5", n)
		}
		if err := prometheus.NewPedanticRegistry().Register(p); err != nil {
			t.Error(err)
		}
		stop()
	})
}

func pushStatus(p *Pusher) Status {
	p.cfg.Store.mu.Lock()
	defer p.cfg.Store.mu.Unlock()
	return p.cfg.Store.statuses[pushSource]
}

// BenchmarkPushRound is what one round of a node of 8 GPUs and a rack costs, and
// how much memory a sample takes while it waits.
func BenchmarkPushRound(b *testing.B) {
	for _, protocol := range []string{PushV1, PushV2} {
		b.Run(protocol, func(b *testing.B) {
			store, _ := benchStore()
			p, err := NewPusher(PushConfig{
				Store: store, URL: "http://prom/api/v1/write", Protocol: protocol, Logger: log.NewNopLogger(),
				Labels: map[string]string{"instance": "gpu001", "site": "ams1", "job": "rackpulse"},
			})
			if err != nil {
				b.Fatal(err)
			}
			bytes, samples := 0, 0
			for b.Loop() {
				at, round := p.round(time.Now())
				body, err := encodePush(protocol, round, at)
				if err != nil {
					b.Fatal(err)
				}
				bytes, samples = len(body), len(round)
			}
			b.ReportMetric(float64(bytes)/float64(samples), "B/sample")
			b.ReportMetric(float64(samples), "samples")
		})
	}
}
