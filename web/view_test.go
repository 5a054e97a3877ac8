// SPDX-License-Identifier: Apache-2.0

package web

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/registry"
)

var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// hallView is a healthy hall of n racks with four nodes of eight GPUs each,
// two racks a row.
func hallView(racks, nodes, heightU int) *registry.View {
	v := &registry.View{Site: "ams1", At: noon, Simulated: true}
	for r := 1; r <= racks; r++ {
		id := fmt.Sprintf("r%02d", r)
		rack := registry.RackView{ID: id, Row: fmt.Sprintf("row-%c", 'a'+(r-1)/2%26), Room: "hall1", HeightU: 48,
			InletC: new(22.4), PowerWatts: new(21340.0), PowerLimitWatts: 44000, CoolingUnits: []string{fmt.Sprintf("crah%d", (r+1)/2)}}
		for _, side := range []string{"a", "b"} {
			rack.PDUs = append(rack.PDUs, registry.PDUView{ID: id + "-" + side, Feed: "feed-" + side, Up: new(true), Amperes: new(15.6), PowerWatts: new(10670.0)})
		}
		for n := nodes; n >= 1; n-- {
			node := registry.NodeView{ID: fmt.Sprintf("gpu%03d", (r-1)*nodes+n), Rack: id, Class: "h100", U: 1 + (n-1)*heightU, HeightU: heightU,
				State: "READY", LeaseUp: true, Since: noon.Add(-5 * time.Hour)}
			for g := range 8 {
				node.GPUs = append(node.GPUs, registry.GPUView{Index: fmt.Sprint(g), UUID: fmt.Sprintf("GPU-%d-%d-%d", r, n, g), Up: new(true),
					TempC: new(float64(54 + (3*n+2*g+r)%9)), PowerWatts: new(640.0), Utilisation: new(0.93)})
			}
			rack.Nodes = append(rack.Nodes, node)
		}
		v.Racks = append(v.Racks, rack)
	}
	return v
}

// coolingFault is the example hall with crah1 failed: r01 and r02 are hot.
func coolingFault() *registry.View {
	v := hallView(4, 4, 8)
	for r := range 2 {
		v.Racks[r].InletC = new(31.2 + float64(r))
		for n := range v.Racks[r].Nodes {
			for g := range v.Racks[r].Nodes[n].GPUs {
				v.Racks[r].Nodes[n].GPUs[g].TempC = new(float64(78 + (3*n+2*g+r)%11))
				v.Racks[r].Nodes[n].GPUs[g].Utilisation = new(0.02)
			}
		}
	}
	hot := &v.Racks[0].Nodes[0]
	hot.State, hot.Reason, hot.Since = "DEGRADED", "GPU 5 lost: GPU-1-4-5 missing", noon.Add(-4*time.Minute)
	hot.GPUs[5] = registry.GPUView{Index: "5", UUID: "GPU-1-4-5", Up: new(false)}
	v.Racks[1].Nodes[1].State, v.Racks[1].Nodes[1].LeaseUp = "EXPIRED", false
	v.Racks[1].Nodes[1].Reason, v.Racks[1].Nodes[1].Since = "no beat for 41 s", noon.Add(-41*time.Second)
	for g := range v.Racks[1].Nodes[1].GPUs {
		v.Racks[1].Nodes[1].GPUs[g] = registry.GPUView{Index: fmt.Sprint(g), UUID: "x"}
	}
	v.Racks[2].Nodes[0].State = "MAINT"
	v.Racks[2].Nodes[0].Reason = "fan tray swap, ticket 4711"
	v.Racks[3].Nodes[3].State, v.Racks[3].Nodes[3].GPUs = "", nil
	v.Racks[3].InletC, v.Racks[3].PowerWatts = nil, nil
	v.Racks[3].PDUs[1] = registry.PDUView{ID: "r04-b", Feed: "feed-b", Up: new(false)}
	v.Rackless = []registry.NodeView{{ID: "ws01", Class: "workstation", State: "READY", LeaseUp: true, Since: noon.Add(-50 * time.Hour),
		GPUs: []registry.GPUView{{Index: "0", UUID: "GPU-ws", Up: new(true), TempC: new(47.0)}}}}
	v.Problems = []string{"r04-b: no answer since 11:58:20 UTC"}
	v.Alerts = []registry.AlertView{
		{Name: "GPUHot", Severity: "warning", Team: "compute", Summary: "GPU 2 of gpu001 at 88 °C", Racks: []string{"r01"}, Since: noon.Add(-3 * time.Minute),
			Labels: map[string]string{"rack_id": "r01", "node": "gpu001", "gpu": "2"}},
		{Name: "GPUHot", Severity: "warning", Team: "compute", Summary: "GPU 7 of gpu006 at 87 °C", Racks: []string{"r02"}, Since: noon.Add(-2 * time.Minute),
			Labels: map[string]string{"rack_id": "r02", "node": "gpu006", "gpu": "7"}},
		{Name: "PDUAway", Severity: "warning", Team: "facility", Summary: "PDU r04-b does not answer", Since: noon.Add(-100 * time.Second),
			Labels: map[string]string{"rack_id": "r04", "pdu_id": "r04-b"}},
		{Name: "RackCoolingFault", Correlation: "rack-cooling-fault", Severity: "critical", Team: "facility", Cause: "cooling unit crah1",
			Summary:     "Cooling fault in r01 and r02, not load: GPUs above 85 °C at idle, inlet above 28 °C",
			Description: "Inlet 31.2 °C since 11:54, mean utilisation 2 %.", Racks: []string{"r01", "r02"}, Since: noon.Add(-6 * time.Minute),
			Labels: map[string]string{"site": "ams1", "correlation": "rack-cooling-fault"}},
	}
	return v
}

func serving(v *registry.View) http.Handler {
	return NewHandler(Config{View: func(context.Context) (*registry.View, error) { return v, nil },
		Links: []Link{{"Metrics", "metrics"}, {"Grafana", "https://grafana.example/d/rackpulse"}}})
}

// get is a page's code and body.
func get(t testing.TB, h http.Handler, path string) (int, string) {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w.Code, w.Body.String()
}
