// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/lease/leasepb"
	"github.com/rackpulse/rackpulse/query"
)

// answers is a Querier that answers by the metric's name in the expression.
type answers struct {
	samples map[string][]query.Sample
	alerts  []query.Alert
	fail    map[string]error // by metric's name; "": everything
	asked   atomic.Int64
	mu      sync.Mutex
	exprs   []string
}

func (a *answers) Instant(ctx context.Context, expr string, _ time.Time) ([]query.Sample, error) {
	a.asked.Add(1)
	a.mu.Lock()
	a.exprs = append(a.exprs, expr)
	a.mu.Unlock()
	if err := a.fail[""]; err != nil {
		return nil, err
	}
	for name, err := range a.fail {
		if strings.Contains(expr, name) {
			return nil, err
		}
	}
	for name, samples := range a.samples {
		if strings.Contains(expr, name) {
			return samples, nil
		}
	}
	return nil, ctx.Err()
}

func (a *answers) Range(context.Context, string, time.Time, time.Time, time.Duration) ([]query.Series, error) {
	return nil, errors.New("the view asks for no range")
}

func (a *answers) Alerts(context.Context) ([]query.Alert, error) {
	return a.alerts, errors.Join(a.fail[""], a.fail["alerts"])
}

// sample makes a sample from pairs.
func sample(value float64, pairs ...string) query.Sample {
	l := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		l[pairs[i]] = pairs[i+1]
	}
	return query.Sample{Labels: l, Value: value}
}

func gpuSample(value float64, node, uuid, index string) query.Sample {
	return sample(value, "node", node, "UUID", uuid, "gpu", index, "rack_id", "r01")
}

func hallAnswers() *answers {
	return &answers{samples: map[string][]query.Sample{
		"DCGM_FI_DEV_GPU_TEMP": {gpuSample(61, "gpu001", "GPU-gpu001-1", "1"), gpuSample(0, "gpu001", "GPU-gpu001-0", "0"),
			gpuSample(math.NaN(), "gpu001", "GPU-gpu001-2", "2"), sample(40, "UUID", "GPU-of-nobody")},
		"DCGM_FI_DEV_POWER_USAGE":        {gpuSample(690, "gpu001", "GPU-gpu001-1", "1")},
		"DCGM_FI_DEV_GPU_UTIL":           {gpuSample(97, "gpu001", "GPU-gpu001-1", "1")},
		"rackpulse_gpu_up":               {gpuSample(1, "gpu001", "GPU-gpu001-1", "1"), gpuSample(0, "gpu001", "GPU-gpu001-10", "10")},
		"rack_inlet_temperature_celsius": {sample(24.5, "rack_id", "r01"), sample(31, "rack_id", "r99")},
		"pdu_current_ampere":             {sample(21, "pdu_id", "r01-a"), sample(0, "pdu_id", "r01-b")},
		"pdu_power_watt":                 {sample(14000, "pdu_id", "r01-a"), sample(0, "pdu_id", "r01-b"), sample(9000, "pdu_id", "r02-a")},
		"facility_device_up":             {sample(1, "device", "r01-a", "driver", "sim"), sample(0, "device", "r02-b", "driver", "sim")},
		"rackpulse_simulated":            {sample(1, "layer", "facility")},
	}}
}

// near says whether p points to that value.
func near(p *float64, want float64) bool { return p != nil && math.Abs(*p-want) < 1e-9 }

func TestView(t *testing.T) {
	q := hallAnswers()
	r := start(t, testConfig(t.TempDir()), Deps{Querier: q})
	gpuNode(t, r, "gpu001", "10.1.0.1:9400").mustBeat(t, leasepb.State_READY)
	v, err := r.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if v.Site != "ams1" || !v.Simulated || len(v.Racks) != 4 || len(v.Rackless) != 1 || len(v.Problems) != 0 {
		t.Fatalf("view %+v", v)
	}
	r1, r2 := v.Racks[0], v.Racks[1]
	if r1.ID != "r01" || r1.Row != "row-a" || r1.Room != "hall1" || r1.HeightU != 48 || !near(r1.InletC, 24.5) || r1.PowerLimitWatts != 44000 ||
		!slices.Equal(r1.CoolingUnits, []string{"crah1"}) {
		t.Errorf("r01 %+v", r1)
	}
	// A measured zero is a zero; the sum is there because both PDUs tell theirs.
	if a, b := r1.PDUs[0], r1.PDUs[1]; !near(r1.PowerWatts, 14000) || a.ID != "r01-a" || a.Feed != "feed-a" || !near(a.Amperes, 21) || a.Up == nil || !*a.Up ||
		!near(b.Amperes, 0) || b.Up != nil {
		t.Errorf("r01 PDUs %+v, %v W", r1.PDUs, r1.PowerWatts)
	}
	// Half a sum is no sum.
	if r2.PowerWatts != nil || r2.InletC != nil || r2.PDUs[1].PowerWatts != nil || r2.PDUs[1].Up == nil || *r2.PDUs[1].Up {
		t.Errorf("r02 %+v", r2)
	}
	var ids []string
	for _, n := range r1.Nodes {
		ids = append(ids, fmt.Sprintf("%s@%d+%d", n.ID, n.U, n.HeightU))
	}
	if want := []string{"gpu004@25+8", "gpu003@17+8", "gpu002@9+8", "gpu001@1+8"}; !slices.Equal(ids, want) {
		t.Errorf("nodes %v, want %v", ids, want)
	}
	checkGPUs(t, r1.Nodes[3])
	if n := r1.Nodes[2]; n.State != "" || n.LeaseUp || len(n.GPUs) != 0 || !n.Since.IsZero() {
		t.Errorf("a node that never beat: %+v", n)
	}
	for _, expr := range q.exprs {
		if !strings.Contains(expr, `site=~"|ams1"`) {
			t.Errorf("%s asks for other sites, too", expr)
		}
	}
}

// checkGPUs checks the GPUs of gpu001: eight from its lease, one lost one that
// only Prometheus knows.
func checkGPUs(t *testing.T, n NodeView) {
	t.Helper()
	if n.ID != "gpu001" || n.State != "READY" || !n.LeaseUp || n.Since.IsZero() || len(n.GPUs) != 9 {
		t.Fatalf("gpu001 %+v", n)
	}
	if g := n.GPUs[0]; g.Index != "0" || !near(g.TempC, 0) || g.PowerWatts != nil || g.Up != nil {
		t.Errorf("GPU 0 %+v", g)
	}
	if g := n.GPUs[1]; g.UUID != "GPU-gpu001-1" || !near(g.TempC, 61) || !near(g.PowerWatts, 690) || !near(g.Utilisation, 0.97) || g.Up == nil || !*g.Up {
		t.Errorf("GPU 1 %+v", g)
	}
	if g := n.GPUs[2]; g.Index != "10" || g.Up == nil || *g.Up || g.TempC != nil {
		t.Errorf("the lost GPU %+v", g)
	}
	if g := n.GPUs[3]; g.Index != "" || g.UUID != "GPU-gpu001-2" || g.TempC != nil || g.Up != nil { // its temperature was NaN
		t.Errorf("a GPU without values %+v", g)
	}
}

func TestViewMissingGPU(t *testing.T) {
	r := start(t, testConfig(t.TempDir()), Deps{})
	a := gpuNode(t, r, "gpu001", "10.1.0.1:9400")
	a.mustBeat(t, leasepb.State_READY)
	a.beat.GpuUuids = uuidsOf("gpu001", 7)
	a.mustBeat(t, leasepb.State_DEGRADED)
	v, err := r.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(v.Problems, []string{"no Prometheus configured: leases only"}) || v.Simulated || len(v.Alerts) != 0 {
		t.Errorf("view %+v", v)
	}
	n := v.Racks[0].Nodes[3]
	last := n.GPUs[len(n.GPUs)-1]
	if n.State != "DEGRADED" || len(n.GPUs) != 8 || last.UUID != "GPU-gpu001-7" || last.Up == nil || *last.Up || n.GPUs[0].Up != nil {
		t.Errorf("node %+v", n)
	}
}

func TestViewProblems(t *testing.T) {
	q := hallAnswers()
	q.fail = map[string]error{"pdu_power_watt": errors.New("query timed out"), "alerts": errors.New("no alerts here")}
	r := start(t, testConfig(t.TempDir()), Deps{Querier: q})
	v, err := r.View(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"PDU power not known: query timed out", "alerts not known: no alerts here"}; !slices.Equal(v.Problems, want) {
		t.Errorf("problems %q, want %q", v.Problems, want)
	}
	if v.Racks[0].PowerWatts != nil || !near(v.Racks[0].PDUs[0].Amperes, 21) {
		t.Errorf("r01 %+v", v.Racks[0])
	}
	q.fail = map[string]error{"": errors.New("connection refused")}
	r.views.forget()
	if v, err = r.View(t.Context()); err != nil || len(v.Problems) != 1 || !strings.HasPrefix(v.Problems[0], "Prometheus does not answer, no values are known: connection refused") {
		t.Errorf("problems %q, %v", v.Problems, err)
	}
	data, err := json.Marshal(v)
	if err != nil || strings.Contains(string(data), "watts\":0") || strings.Contains(string(data), "null") {
		t.Errorf("shows what is not known: %s, %v", data, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r.views.forget()
	if _, err := r.View(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// TestViewIsShared asks from many sides at once: one set of queries is sent.
func TestViewIsShared(t *testing.T) {
	q := hallAnswers()
	r := start(t, testConfig(t.TempDir()), Deps{Querier: q})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := r.View(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := q.asked.Load(); got != 9 {
		t.Errorf("%d queries for 20 callers, want 9", got)
	}
	var v View
	r.get(t, "/api/v1/view", &v)
	if v.Site != "ams1" || !near(v.Racks[0].InletC, 24.5) || q.asked.Load() != 9 {
		t.Errorf("view over HTTP %+v", v)
	}
}

func TestAlertViews(t *testing.T) {
	alert := func(name, severity, state string, ago time.Duration, more ...string) query.Alert {
		l := sample(0, more...).Labels
		l["alertname"], l["severity"] = name, severity
		return query.Alert{Labels: l, State: state, ActiveAt: t0.Add(-ago), Annotations: map[string]string{
			"cause": "cooling unit crah1", "racks": "r01, r02,", "summary": "warm", "description": "very"}}
	}
	got := alertViews([]query.Alert{
		alert("Info", "info", "firing", time.Hour), alert("Odd", "", "firing", time.Hour), alert("Young", "critical", "firing", time.Minute),
		alert("Warn", "warning", "firing", time.Hour), alert("Pending", "critical", "pending", time.Hour),
		alert("Old", "critical", "firing", time.Hour, "correlation", "cooling-loss", "team", "facility", "site", "ams1"),
		alert("Hidden", "critical", "firing", time.Hour, "role", "inhibitor"), alert("Elsewhere", "critical", "firing", time.Hour, "site", "fra2"),
	}, "ams1")
	var names []string
	for _, a := range got {
		names = append(names, a.Name)
	}
	if want := []string{"Old", "Young", "Warn", "Info", "Odd"}; !slices.Equal(names, want) {
		t.Fatalf("alerts %v, want %v", names, want)
	}
	want := AlertView{Name: "Old", Correlation: "cooling-loss", Severity: "critical", Team: "facility", Cause: "cooling unit crah1", Summary: "warm",
		Description: "very", Racks: []string{"r01", "r02"}, Since: t0.Add(-time.Hour), Labels: got[0].Labels}
	if !reflect.DeepEqual(got[0], want) {
		t.Errorf("alert %+v\nwant %+v", got[0], want)
	}
}

func TestSiteJSON(t *testing.T) {
	r := start(t, testConfig(t.TempDir()), Deps{})
	var s struct {
		Site  struct{ ID string }
		Racks []map[string]any
		Nodes []map[string]any
		Rooms []map[string]any
		UPSs  []any
	}
	r.get(t, "/api/v1/site", &s)
	if s.Site.ID != "ams1" || len(s.Racks) != 4 || len(s.Nodes) != 17 || s.Racks[0]["power_limit_watts"] != 44000.0 || s.UPSs != nil {
		t.Errorf("site %+v", s)
	}
	if got := s.Nodes[16]; !reflect.DeepEqual(got, map[string]any{"id": "ws01", "class": "workstation"}) {
		t.Errorf("ws01 %v", got)
	}
	if got := s.Nodes[5]["outlets"]; !reflect.DeepEqual(got, []any{"r02-a/2", "r02-b/2"}) {
		t.Errorf("outlets of gpu006 %v", got)
	}
}

// TestGoroutinesEnd starts, uses and stops a registry, and counts.
func TestGoroutinesEnd(t *testing.T) {
	before := runtime.NumGoroutine()
	r := start(t, testConfig(t.TempDir()), Deps{Querier: hallAnswers()})
	a := gpuNode(t, r, "gpu001", "10.1.0.1:9400")
	a.mustBeat(t, leasepb.State_READY)
	if _, err := r.View(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.conn.Close()
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	http.DefaultClient.CloseIdleConnections()
	eventually(t, "goroutines end", func() error {
		if n := runtime.NumGoroutine(); n > before {
			buf := make([]byte, 1<<16)
			return fmt.Errorf("%d goroutines, %d before\n%s", n, before, buf[:runtime.Stack(buf, true)])
		}
		return nil
	})
}
