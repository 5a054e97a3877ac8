// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/model/textparse"
	"gopkg.in/yaml.v3"

	"github.com/rackpulse/rackpulse/sim"
	"github.com/rackpulse/rackpulse/site"
)

// foreignFleet scrapes pages of foreign exporters in virtual time, as Prometheus would
// with the generated scrape configurations: its own parser and its own relabelling.
type foreignFleet struct {
	tb    testing.TB
	jobs  map[string][]*relabel.Config // metric_relabel_configs by job
	rules []byte
}

// adapters compiles the named built-in adapters.
func adapters(tb testing.TB, names ...string) *foreignFleet {
	tb.Helper()
	all, err := Adapters()
	if err != nil {
		tb.Fatal(err)
	}
	var list []*Adapter
	for _, name := range names {
		for _, a := range all {
			if a.Name == name {
				list = append(list, a)
			}
		}
	}
	pack, err := DefaultPack()
	if err != nil {
		tb.Fatal(err)
	}
	built, err := pack.BuildAdapters(list, "http://registry:9401")
	if err != nil || len(list) != len(names) {
		tb.Fatalf("%d of %d adapters, error %v", len(list), len(names), err)
	}
	var scrape struct {
		Jobs []struct {
			Name    string            `yaml:"job_name"`
			Metrics []*relabel.Config `yaml:"metric_relabel_configs"`
		} `yaml:"scrape_configs"`
	}
	if err := yaml.Unmarshal(built[AdapterScrape], &scrape); err != nil {
		tb.Fatal(err)
	}
	f := &foreignFleet{tb: tb, jobs: map[string][]*relabel.Config{}, rules: built[AdapterRules]}
	for _, j := range scrape.Jobs {
		for _, c := range j.Metrics {
			if err := c.Validate(model.LegacyValidation); err != nil {
				tb.Fatal(err)
			}
		}
		f.jobs[j.Name] = j.Metrics
	}
	return f
}

// store returns a store that evaluates the adapters' rules before the pack.
func (f *foreignFleet) store() *store {
	files := fstest.MapFS{AdapterRules: {Data: f.rules}}
	for path, data := range build(f.tb) {
		files[strings.TrimPrefix(path, generatedDir)] = &fstest.MapFile{Data: data}
	}
	return newStoreOf(f.tb, epoch, files, AdapterRules, "correlations.rules.yml", "coverage.rules.yml")
}

// scrape adds one target's page to p; an empty one is a failed scrape. Target
// labels win over those of the page, which become exported_NAME.
func (f *foreignFleet) scrape(p page, text string, target map[string]string) {
	f.tb.Helper()
	b := labels.NewBuilder(labels.FromMap(target))
	p[b.Set(labels.MetricName, "up").Labels().String()] = one01(text != "")
	parser := textparse.NewPromParser([]byte(text), labels.NewSymbolTable(), false)
	for {
		entry, err := parser.Next()
		if err != nil {
			break // the end
		}
		if entry != textparse.EntrySeries {
			continue
		}
		_, _, value := parser.Series()
		var ls labels.Labels
		parser.Labels(&ls)
		b.Reset(ls)
		for name, v := range target {
			if own := ls.Get(name); own != "" {
				b.Set("exported_"+name, own)
			}
			b.Set(name, v)
		}
		if relabel.ProcessBuilder(b, f.jobs[target["job"]]...) {
			p[b.Labels().String()] = value
		}
	}
}

// dcgmPage is what dcgm-exporter shows of a node, "" where the node is down. A
// GPU that fell off the bus has its last XID only. New releases write hostname.
func dcgmPage(st *sim.State, node string, hostname string) string {
	if !st.Nodes[node].Up {
		return ""
	}
	var b strings.Builder
	field := func(name, kind, help string, value func(g sim.GPU) (float64, string, bool)) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
		for _, g := range st.Nodes[node].GPUs {
			v, more, ok := value(g)
			if !ok {
				continue
			}
			fmt.Fprintf(&b, "%s{gpu=\"%d\",UUID=%q,pci_bus_id=%q,device=\"nvidia%d\",modelName=%q,%s=%q%s,container=\"train\",namespace=\"ml\",pod=\"job-0\"} %s\n",
				name, g.Index, g.UUID, g.PCIBusID, g.Index, g.Model, hostname, node+".example.net", more, number(v))
		}
	}
	seen := func(of func(g sim.GPU) float64) func(g sim.GPU) (float64, string, bool) {
		return func(g sim.GPU) (float64, string, bool) { return of(g), "", g.Present }
	}
	field("DCGM_FI_DEV_GPU_TEMP", "gauge", "GPU temperature (in C).", seen(func(g sim.GPU) float64 { return float64(int(g.TempC + .5)) }))
	field("DCGM_FI_DEV_POWER_USAGE", "gauge", "Power draw (in W).", seen(func(g sim.GPU) float64 { return g.PowerWatts }))
	field("DCGM_FI_DEV_GPU_UTIL", "gauge", "GPU utilization (in %).", seen(func(g sim.GPU) float64 { return float64(int(g.Util * 100)) }))
	field("DCGM_FI_DEV_XID_ERRORS", "gauge", "Value of the last XID error encountered.", func(g sim.GPU) (float64, string, bool) {
		if g.XIDs[79] > 0 {
			return 79, `,err_code="79",err_msg="GPU has fallen off the bus"`, true
		}
		return 0, `,err_code="0",err_msg="No Error"`, g.Present
	})
	return b.String()
}

// apcPage is what snmp_exporter's module apcups shows of a PDU, "" where the PDU
// does not answer. probes are temperatures at its sensor ports, in celsius; the
// last port is empty.
func apcPage(pdu *sim.PDU, probes []float64) string {
	if !pdu.Manageable {
		return ""
	}
	var b strings.Builder
	row := func(name, index string, of int, value func(i int) float64) {
		fmt.Fprintf(&b, "# HELP %s - 1.3.6.1.4.1.318.1.1.26\n# TYPE %s gauge\n", name, name)
		for i := range of {
			fmt.Fprintf(&b, "%s{%s=\"%d\"} %s\n", name, index, i+1, number(value(i)))
		}
	}
	const device, phase, sensor = "rPDU2DeviceStatusIndex", "rPDU2PhaseStatusIndex", "rPDU2SensorTempHumidityStatusIndex"
	round := func(v float64) float64 { return float64(int(v + .5)) }
	row("rPDU2DeviceStatusPower", device, 1, func(int) float64 { return round(pdu.PowerWatts / 10) })
	row("rPDU2DeviceStatusEnergy", device, 1, func(int) float64 { return round(pdu.EnergyJ / 360e3) })
	row("rPDU2DeviceStatusPowerFactor", device, 1, func(int) float64 { return -1 })
	row("rPDU2PhaseStatusModule", phase, len(pdu.Phases), func(int) float64 { return 1 })
	row("rPDU2PhaseStatusCurrent", phase, len(pdu.Phases), func(i int) float64 { return round(pdu.Phases[i].Amperes * 10) })
	row("rPDU2PhaseStatusVoltage", phase, len(pdu.Phases), func(i int) float64 { return round(pdu.Phases[i].Volts) })
	row("rPDU2PhaseStatusPower", phase, len(pdu.Phases), func(i int) float64 { return round(pdu.Phases[i].Watts / 10) })
	row("rPDU2SensorTempHumidityStatusCommStatus", sensor, len(probes)+1, func(i int) float64 {
		if i < len(probes) {
			return 2
		}
		return 1
	})
	row("rPDU2SensorTempHumidityStatusTempC", sensor, len(probes)+1, func(i int) float64 {
		if i < len(probes) {
			return round(probes[i] * 10)
		}
		return -1
	})
	return b.String()
}

// hall scrapes all dcgm-exporters and PDUs of a hall; it has no agent of ours.
func (f *foreignFleet) hall(p page, s *site.Site, st *sim.State) {
	for i, n := range s.Nodes {
		target := s.NodeLabels(n.ID)
		target = map[string]string{"job": "dcgm-exporter", "instance": n.ID, "site": s.ID, "node": n.ID, "rack_id": target["rack_id"]}
		f.scrape(p, dcgmPage(st, n.ID, [2]string{"Hostname", "hostname"}[i%2]), target)
	}
	for _, d := range s.PDUs {
		p[fmt.Sprintf("rackpulse_facility_device_info{site=%q,device=%q,kind=\"pdu\",rack_id=%q}", s.ID, d.ID, d.Rack)] = 1
		var probes []float64
		for i, sn := range s.SensorsIn(d.Rack) {
			// The probe at the top hangs on the PDU of the other feed.
			if c, ok := st.Sensors[sn.ID]; ok && sn.Measures == "inlet_temperature" && (i == 0) == strings.HasSuffix(d.ID, "-b") {
				probes = append(probes, c)
			}
		}
		f.scrape(p, apcPage(st.PDUs[d.ID], probes), map[string]string{"job": "snmp-apcups", "instance": d.ID, "site": s.ID, "device": d.ID})
	}
}
