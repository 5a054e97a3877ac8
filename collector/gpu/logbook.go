// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/collector"
	"github.com/rackpulse/rackpulse/xid"
)

const (
	maxSXids = 4096 // series of all switches together
	// repeated is how soon lines about the same fault follow each other: a failed
	// start writes two, an SXid three.
	repeated = time.Second
)

// Families that only the kernel log can fill.
var (
	descRecoveryLogged = &collector.Desc{Name: "rackpulse_gpu_recovery_action_logged",
		Help:   "What the driver asked for in its last XID 154: 1 for that action, 0 for the others. Absent without an XID 154.",
		Labels: []string{"UUID", "gpu", "action"}}
	descInitFailed = &collector.Desc{Name: "rackpulse_gpu_init_failures_total",
		Help: "Kernel log messages that the driver could not start the GPU, since the agent started.", Type: collector.Counter,
		Labels: []string{"UUID", "gpu"}}
	descSXid = &collector.Desc{Name: "rackpulse_nvswitch_sxid_errors_total",
		Help: "Errors of an NVSwitch (SXids) in the kernel log, since the agent started.", Type: collector.Counter,
		Labels: []string{"nvswitch", "pci_bus_id", "sxid", "severity"}}
	descSXidLast = &collector.Desc{Name: "rackpulse_nvswitch_sxid_last_timestamp_seconds",
		Help:   "When the switch's last error with this SXid happened, Unix time.",
		Labels: []string{"nvswitch", "pci_bus_id", "sxid", "severity"}}
)

// recoveryTexts are label values for the driver's texts, in the order of
// NVML's nvmlDeviceGpuRecoveryAction_t.
var recoveryTexts = []struct{ text, action string }{
	{"None", "none"},
	{"GPU Reset Required", "gpu_reset"},
	{"Node Reboot Required", "node_reboot"},
	{"Drain P2P", "drain_p2p"},
	{"Drain and Reset", "drain_and_reset"},
}

// recoveryAction is the label value for a text. A text of a newer driver is its
// own, in the same form.
func recoveryAction(text string) string {
	for _, a := range recoveryTexts {
		if strings.EqualFold(a.text, text) {
			return a.action
		}
	}
	return strings.Join(strings.FieldsFunc(strings.ToLower(text), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}), "_")
}

// recover notes what XID 154 says the GPU needs now.
func (b *xidBook) recover(pci, text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if g := b.at(pci); g != nil {
		g.recovery = recoveryAction(text)
		b.changed = true
	}
}

// initFailed counts a start of the GPU that failed.
func (b *xidBook) initFailed(pci string, at time.Time) {
	if pci == "" {
		return // another line of the same failure names it
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	g := b.at(pci)
	if g == nil || at.Sub(g.init.until).Abs() <= repeated {
		return
	}
	g.init.n, g.init.until = g.init.n+1, at
	b.changed = true
}

func (g *gpuXIDs) logPoints(points []collector.Point) []collector.Point {
	if g.init.n > 0 {
		points = append(points, collector.Point{Desc: descInitFailed, Values: []string{g.uuid, g.index}, Value: g.init.n})
	}
	if g.recovery == "" {
		return points
	}
	known := false
	for _, a := range recoveryTexts {
		p := collector.Point{Desc: descRecoveryLogged, Values: []string{g.uuid, g.index, a.action}}
		if a.action == g.recovery {
			p.Value, known = 1, true
		}
		points = append(points, p)
	}
	if !known {
		points = append(points, collector.Point{Desc: descRecoveryLogged, Values: []string{g.uuid, g.index, g.recovery}, Value: 1})
	}
	return points
}

type sxidKey struct {
	nvswitch, pci string
	code          int
	severity      string
}

func (k sxidKey) compare(o sxidKey) int {
	return cmp.Or(strings.Compare(k.nvswitch, o.nvswitch), strings.Compare(k.pci, o.pci), cmp.Compare(k.code, o.code), strings.Compare(k.severity, o.severity))
}

type sxidSum struct {
	n  float64
	at time.Time
}

// sxid counts an error of a switch. Its severity and registers come in lines of
// their own, which count only where the first line is missing.
func (b *xidBook) sxid(e xid.Event, at time.Time) (first bool) {
	k := sxidKey{strings.TrimPrefix(e.Device, "nvidia-nvswitch"), e.PCI, e.Code, "unknown"}
	switch e.Word {
	case "Fatal":
		k.severity = "fatal"
	case "Non-fatal", "Nonfatal":
		k.severity = "non_fatal"
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if e.Detail {
		for _, severity := range []string{"fatal", "non_fatal", "unknown"} {
			k.severity = severity
			if s := b.sxids[k]; s != nil && at.Sub(s.at).Abs() <= repeated {
				return false
			}
		}
	}
	s := b.sxids[k]
	if s == nil {
		if len(b.sxids) >= maxSXids {
			return false
		}
		s = &sxidSum{}
		b.sxids[k] = s
	}
	first = at.Sub(s.at).Abs() > xid.EpisodeGap
	s.n++
	if at.After(s.at) {
		s.at = at
	}
	b.changed = true
	return first
}

func (b *xidBook) switchPoints(points []collector.Point) []collector.Point {
	for _, k := range slices.SortedFunc(maps.Keys(b.sxids), sxidKey.compare) {
		s, values := b.sxids[k], []string{k.nvswitch, k.pci, strconv.Itoa(k.code), k.severity}
		points = append(points,
			collector.Point{Desc: descSXid, Values: values, Value: s.n},
			collector.Point{Desc: descSXidLast, Values: values, Value: unixSeconds(s.at)})
	}
	return points
}
