// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/rackpulse/rackpulse/query"
	"github.com/rackpulse/rackpulse/site"
)

// Quantities of the view, one instant query each.
const (
	qGPUTemp   = "GPU temperature"
	qGPUPower  = "GPU power"
	qGPUUtil   = "GPU utilisation"
	qGPUUp     = "GPU presence"
	qInlet     = "rack inlet temperature"
	qAmperes   = "PDU current"
	qPower     = "PDU power"
	qDevices   = "facility devices"
	qSimulated = "simulated layers"
	qAlerts    = "alerts"
)

// queries are the expressions; %s is the selector of the site. It also takes
// series without a site label: a Prometheus of one site may have none. MIG
// instances are left out, the view shows whole GPUs.
var queries = map[string]string{
	qGPUTemp:   `DCGM_FI_DEV_GPU_TEMP{%s,GPU_I_ID=""}`,
	qGPUPower:  `DCGM_FI_DEV_POWER_USAGE{%s,GPU_I_ID=""}`,
	qGPUUtil:   `DCGM_FI_DEV_GPU_UTIL{%s,GPU_I_ID=""}`,
	qGPUUp:     `rackpulse_gpu_up{%s}`,
	qInlet:     `max by (rack_id) (rack_inlet_temperature_celsius{%s})`,
	qAmperes:   `pdu_current_ampere{%s}`,
	qPower:     `pdu_power_watt{%s}`,
	qDevices:   `facility_device_up{%s}`,
	qSimulated: `max by (layer) (rackpulse_simulated{%s})`,
}

// values are what the queries said.
type values struct {
	gpus      map[string]map[string]*GPUView // by node and UUID
	inlet     map[string]float64             // by rack
	amperes   map[string]float64             // by PDU
	power     map[string]float64             // by PDU
	up        map[string]bool                // by facility device
	simulated bool
	alerts    []query.Alert
	problems  []string
}

// readValues asks all queries at once.
func readValues(ctx context.Context, q query.Querier, s *site.Site, now time.Time) *values {
	v := &values{
		gpus: map[string]map[string]*GPUView{}, inlet: map[string]float64{}, amperes: map[string]float64{},
		power: map[string]float64{}, up: map[string]bool{},
	}
	if q == nil {
		v.problems = []string{"no Prometheus configured: leases only"}
		return v
	}
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	selector := "site=~" + strconv.Quote("|"+regexp.QuoteMeta(s.ID))
	answers := make(map[string][]query.Sample, len(queries))
	failed := map[string]error{}
	var mu sync.Mutex
	var wg sync.WaitGroup
	for what, expr := range queries {
		wg.Go(func() {
			samples, err := q.Instant(ctx, fmt.Sprintf(expr, selector), now)
			mu.Lock()
			defer mu.Unlock()
			if answers[what] = samples; err != nil {
				failed[what] = err
			}
		})
	}
	wg.Go(func() {
		alerts, err := q.Alerts(ctx)
		mu.Lock()
		defer mu.Unlock()
		if v.alerts = alerts; err != nil {
			failed[qAlerts] = err
		}
	})
	wg.Wait()
	v.problems = problemsOf(failed)
	v.take(answers)
	return v
}

// problemsOf says what failed; when all did, once.
func problemsOf(failed map[string]error) []string {
	if len(failed) == len(queries)+1 {
		return []string{"Prometheus does not answer, no values are known: " + failed[qAlerts].Error()}
	}
	var out []string
	for _, what := range slices.Sorted(maps.Keys(failed)) {
		out = append(out, fmt.Sprintf("%s not known: %v", what, failed[what]))
	}
	return out
}

// take sorts the answers in.
func (v *values) take(answers map[string][]query.Sample) {
	one := func(what string, do func(labels map[string]string, value float64)) {
		for _, s := range answers[what] {
			if !math.IsNaN(s.Value) && !math.IsInf(s.Value, 0) {
				do(s.Labels, s.Value)
			}
		}
	}
	one(qGPUTemp, func(l map[string]string, x float64) { v.gpu(l, func(g *GPUView) { g.TempC = &x }) })
	one(qGPUPower, func(l map[string]string, x float64) { v.gpu(l, func(g *GPUView) { g.PowerWatts = &x }) })
	one(qGPUUtil, func(l map[string]string, x float64) {
		x /= 100
		v.gpu(l, func(g *GPUView) { g.Utilisation = &x })
	})
	one(qGPUUp, func(l map[string]string, x float64) {
		up := x != 0
		v.gpu(l, func(g *GPUView) { g.Up = &up })
	})
	one(qInlet, func(l map[string]string, x float64) { v.inlet[l["rack_id"]] = x })
	one(qAmperes, func(l map[string]string, x float64) { v.amperes[l["pdu_id"]] = x })
	one(qPower, func(l map[string]string, x float64) { v.power[l["pdu_id"]] = x })
	one(qDevices, func(l map[string]string, x float64) { v.up[l["device"]] = x != 0 })
	one(qSimulated, func(_ map[string]string, x float64) { v.simulated = v.simulated || x != 0 })
}

// gpu finds or makes the GPU that a series is about. A series without a node, or
// of a GPU that is only a number, is of no use to the view.
func (v *values) gpu(labels map[string]string, set func(*GPUView)) {
	node, uuid := labels["node"], labels["UUID"]
	if node == "" || uuid == "" {
		return
	}
	of := v.gpus[node]
	if of == nil {
		of = map[string]*GPUView{}
		v.gpus[node] = of
	}
	g := of[uuid]
	if g == nil {
		g = &GPUView{UUID: uuid}
		of[uuid] = g
	}
	if g.Index == "" {
		g.Index = labels["gpu"]
	}
	set(g)
}
