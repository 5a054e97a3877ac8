// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/rackpulse/rackpulse/collector"
	"github.com/rackpulse/rackpulse/testtool"
)

// fault is one thing that goes wrong on a node. The texts are those of
// docs/gpu-faults.md. What dcgm-exporter does was seen of its state of May 2026 over a
// stand-in for libdcgm, or stands in the issues named.
type fault struct {
	what     string
	exporter string
	ours     string
	run      func(n *node)
	// start, if set, is the script at the start of an agent of the fault's own; the
	// others have one agent, one after another, and leave it as they found it.
	start    []string
	counters string // lines for it, behind the built-in ones
	flag     string // how the stand-in is compiled for start
}

// node is a node with an agent under a fault.
type node struct {
	*testing.T
	fake  *fake
	rec   *recorder
	files configMap
	log   *lockedBuffer
	after func() // if set, runs when the agent has ended
}

func (n *node) series(name string, labels ...string) []string {
	n.Helper()
	return series(n.rec.page(n.T), name, labels...)
}

// becomes waits until a series of the page has these values.
func (n *node) becomes(values string, name string, labels ...string) {
	n.Helper()
	eventually(n.T, name+strings.Join(labels, ",")+" "+values, func() bool {
		return strings.Join(n.series(name, labels...), " ") == values
	})
}

// counted waits for a reason to count values of a field.
func (n *node) counted(field, reason string) {
	n.Helper()
	eventually(n.T, field+" counted as "+reason, func() bool {
		got := n.series("rackpulse_rejected_samples_total", `field="`+field+`"`, `reason="`+reason+`"`)
		return len(got) == 1 && got[0] != "0"
	})
}

// always runs f and fails if a pass meanwhile has no value of a metric for one of the
// GPUs.
func (n *node) always(metric string, f func(), gpus ...string) {
	n.Helper()
	passes, bad := 0, 0
	n.each(func(s collector.Snapshot) {
		if s.Source != sourceName {
			return
		}
		passes++
		var got []string
		for _, p := range s.Points {
			if p.Desc.Name == metric {
				got = append(got, p.Values[0])
			}
		}
		for _, gpu := range gpus {
			if !slices.Contains(got, gpu) {
				bad++
			}
		}
	})
	f()
	n.each(nil)
	if bad > 0 || passes == 0 {
		n.Errorf("in %d passes %d values of %s were missing", passes, bad, metric)
	}
}

func (n *node) each(f func(collector.Snapshot)) {
	n.rec.mu.Lock()
	defer n.rec.mu.Unlock()
	n.rec.each = f
}

// passes waits for some passes.
func (n *node) passes(count int) {
	n.rec.mu.Lock()
	puts := n.rec.puts
	n.rec.mu.Unlock()
	eventually(n.T, "passes", func() bool {
		n.rec.mu.Lock()
		defer n.rec.mu.Unlock()
		return n.rec.puts > puts+2*count // two snapshots each
	})
}

// healthy is the node as every fault finds it.
func (n *node) healthy() {
	n.Helper()
	n.becomes("1", "rackpulse_source_up", `source="gpu"`)
	n.becomes("1 1", "rackpulse_gpu_up")
	n.becomes("34 35", temp)
	n.becomes("95 96", power)
	n.becomes("0 0", engine)
	n.becomes("700 700", "DCGM_FI_DEV_POWER_MGMT_LIMIT") // a slow field
}

const (
	temp   = "DCGM_FI_DEV_GPU_TEMP"
	power  = "DCGM_FI_DEV_POWER_USAGE"
	engine = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
)

var healthyScript = []string{"gpus 2", "profblank"}

func (f *fault) begin(t *testing.T) *node {
	script := f.start
	if script == nil {
		script = healthyScript
	}
	n := &node{T: t, fake: useFake(t, f.flag, script...), files: configMap{t, t.TempDir()}, log: &lockedBuffer{}}
	n.files.set(defaultCountersCSV + f.counters)
	t.Cleanup(func() {
		if n.after != nil {
			n.after()
		}
	})
	_, n.rec = startDCGMWith(t, Config{CountersFile: filepath.Join(n.files.dir, "counters.csv"), ReadTimeout: time.Second,
		SlowInterval: time.Second, callBudget: 300 * time.Millisecond, DCGM: DCGMConfig{HealthInterval: time.Second}}, log.NewLogfmtLogger(n.log))
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("log:\n%s", n.log.String())
		}
	})
	return n
}

func TestFaults(t *testing.T) {
	for i := range faults {
		if f := &faults[i]; f.start != nil {
			t.Run(f.what, func(t *testing.T) { f.run(f.begin(t)) })
		}
	}
	t.Run("one agent", func(t *testing.T) {
		shared := (&fault{}).begin(t)
		shared.healthy()
		for i := range faults {
			if f := &faults[i]; f.start == nil && !t.Failed() { // the next begins where this one ends
				t.Run(f.what, func(t *testing.T) {
					n := *shared
					n.T, n.files.t = t, t
					f.run(&n)
					n.fake.say(healthyScript...)
					n.healthy()
				})
			}
		}
	})
}

// parses wants the page to be understood by Prometheus' own reader.
func (n *node) parses() {
	n.Helper()
	p := expfmt.NewTextParser(model.LegacyValidation)
	if _, err := p.TextToMetricFamilies(strings.NewReader(n.rec.page(n.T))); err != nil {
		n.Errorf("page: %v", err)
	}
}

// TestFaultDocs holds docs/gpu-faults.md against the table.
func TestFaultDocs(t *testing.T) {
	var b strings.Builder
	b.WriteString(faultsHead)
	for _, f := range faults {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", f.what, f.exporter, f.ours)
	}
	path := filepath.Join(testtool.Root(), "docs", "gpu-faults.md")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != b.String() {
		t.Errorf("%s is stale: go test ./collector/gpu -run TestFaultDocs -update", path)
	}
	var names []string
	for _, f := range faults {
		names = append(names, f.what)
	}
	slices.Sort(names)
	if len(slices.Compact(names)) != len(faults) {
		t.Error("two faults of one name")
	}
}

const faultsHead = `# Faults of a GPU node

What a node's monitoring does when something is broken. dcgm-exporter's behaviour was seen of its state of May 2026 over a stand-in
for libdcgm, or is described in the issues named (# of NVIDIA/dcgm-exporter). RackPulse's is tested for every row, over a
stand-in with the behaviour of DCGM 4.6.0; this table is made by the test (` + "`go test ./collector/gpu -run TestFaultDocs -update`" + `).

| fault | dcgm-exporter | RackPulse |
|---|---|---|
`
