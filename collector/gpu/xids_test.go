// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-kit/log"

	"github.com/rackpulse/rackpulse/xid"
)

// bookPage is what a book shows, one "name{labels} value" a line without zeros.
func bookPage(t *testing.T, b *xidBook) string {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	var out strings.Builder
	for _, p := range b.points() {
		if p.Value != 0 && p.Desc != descXIDLast && p.Desc != descSXidLast {
			fmt.Fprintf(&out, "%s%q %v\n", strings.TrimPrefix(p.Desc.Name, "rackpulse_"), p.Values, p.Value)
		}
	}
	return out.String()
}

// told is one event: d31 from the driver, l31 from the log, t79 without its
// number, each at a second.
type told struct {
	what string
	at   float64
}

// TestXIDsCountOnce holds that an error that several tell of counts once, and
// that errors of the same code that follow each other count each.
func TestXIDsCountOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		events []told
		want   float64
	}{
		"driver alone":                      {[]told{{"d31", 0}, {"d31", 1}}, 2},
		"log alone":                         {[]told{{"l31", 0}, {"l31", 0}, {"l31", 1}}, 3},
		"log first, driver a second later":  {[]told{{"l31", 0}, {"d31", 1}}, 1},
		"driver first":                      {[]told{{"d31", 0}, {"l31", 2}}, 1},
		"three each, one after the other":   {[]told{{"l31", 0}, {"l31", 0}, {"l31", 0}, {"d31", 1}, {"d31", 1}, {"d31", 1}}, 3},
		"three each, in turn":               {[]told{{"l31", 0}, {"d31", 0}, {"l31", 1}, {"d31", 1}, {"l31", 2}, {"d31", 2}}, 3},
		"the driver misses two":             {[]told{{"l31", 0}, {"l31", 0}, {"d31", 0}, {"l31", 1}}, 3},
		"the log misses two":                {[]told{{"d31", 0}, {"d31", 0}, {"l31", 0}, {"d31", 1}}, 3},
		"a minute apart, the same":          {[]told{{"l31", 0}, {"d31", 60}}, 1},
		"more than a minute apart":          {[]told{{"l31", 0}, {"d31", 61}}, 2},
		"a later one is another":            {[]told{{"l31", 0}, {"d31", 1}, {"l31", 100}, {"d31", 101}}, 2},
		"out of order":                      {[]told{{"d31", 10}, {"l31", 9.9}}, 1},
		"other codes":                       {[]told{{"l31", 0}, {"d43", 0}}, 1},
		"79 with and without its number":    {[]told{{"t79", 0}, {"l79", 0}, {"d79", 3}}, 1},
		"79 without its number alone":       {[]told{{"t79", 0}}, 1},
		"79 repeated at each use":           {[]told{{"l79", 0}, {"t79", 0}, {"t79", 30}, {"t79", 80}, {"t79", 130}}, 1},
		"a flood of which the driver tells": {append(slices.Repeat([]told{{"l45", 0}}, 1000), told{"d45", 1}), 1000},
	} {
		b := newXIDBook()
		b.devices([]Device{device(3)})
		start := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
		var codes []int
		for _, e := range tc.events {
			code, at := 0, start.Add(time.Duration(e.at*float64(time.Second)))
			fmt.Sscan(e.what[1:], &code)
			codes = append(codes, code)
			switch e.what[0] {
			case 'd':
				b.driver(XID{UUID: "GPU-3", Code: code, At: at}, time.Time{})
			case 'l':
				b.logged("00000000:03:00.0", code, fromLog, at)
			case 't':
				b.logged("00000000:03:00.0", code, fromLogText, at)
			}
		}
		if got := b.gpus["GPU-3"].codes[codes[0]].n; got != tc.want {
			t.Errorf("%s: %v, want %v", name, got, tc.want)
		}
	}
}

// TestXIDsFindTheirGPU maps PCI addresses over the life of a GPU.
func TestXIDsFindTheirGPU(t *testing.T) {
	at := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	b := newXIDBook()
	check := func(what, want string) {
		t.Helper()
		if got := bookPage(t, b); got != want {
			t.Errorf("%s:\n%swant\n%s", what, got, want)
		}
	}
	b.logged("00000000:03:00.0", 79, fromLog, at)
	b.logged("", 79, fromLogText, at) // names no GPU: the same
	check("before the driver is up", `gpu_xid_errors_total["" "00000000:03:00.0" "79"] 1`+"\n")
	b.devices([]Device{device(3), device(4)})
	check("once it is known", `gpu_xid_errors_total["GPU-3" "3" "79"] 1`+"\n")
	lost := device(3)
	lost.Lost = true
	b.devices([]Device{lost})
	b.logged("00000000:03:00.0", 79, fromLog, at.Add(time.Hour))
	b.logged("00000000:07:00.0", 31, fromLog, at)
	check("lost, and nobody's", `gpu_xid_errors_total["" "00000000:07:00.0" "31"] 1`+"\n"+`gpu_xid_errors_total["GPU-3" "3" "79"] 2`+"\n")
	moved := device(3)
	moved.PCIBusID, moved.Index, moved.UUID = "00000000:03:00.0", "0", "GPU-new"
	b.devices([]Device{moved})
	b.logged("00000000:03:00.0", 31, fromLog, at)
	check("swapped", `gpu_xid_errors_total["" "00000000:07:00.0" "31"] 1`+"\n"+`gpu_xid_errors_total["GPU-3" "3" "79"] 2`+"\n"+
		`gpu_xid_errors_total["GPU-new" "0" "31"] 1`+"\n")

	b = newXIDBook()
	b.remember(&knownGPUs{gpus: map[string]*knownGPU{"GPU-9": {UUID: "GPU-9", Index: "2", PCIBusID: "00000000:09:00.0"}}})
	b.logged("00000000:09:00.0", 48, fromLog, at)
	b.logged("", 79, fromLogText, at)
	check("known from an earlier run", `gpu_xid_errors_total["" "" "79"] 1`+"\n"+`gpu_xid_errors_total["GPU-9" "2" "48"] 1`+"\n")
}

// TestXIDsOfSkippedGPUs holds that GPUs that the configuration leaves out have no errors.
func TestXIDsOfSkippedGPUs(t *testing.T) {
	at := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	b := newXIDBook()
	b.begin([]int{79})
	b.logged("00000000:03:00.0", 79, fromLog, at) // before it is known
	out, half, other := device(3), device(4), device(4)
	out.Skipped, half.Skipped = true, true
	b.devices([]Device{out, half, other})
	for _, pci := range []string{"00000000:03:00.0", "00000000:04:00.0"} {
		b.logged(pci, 79, fromLog, at)
		b.recover(pci, "None")
	}
	if got := bookPage(t, b); got != "gpu_xid_errors_total[\"GPU-4\" \"4\" \"79\"] 1\ngpu_recovery_action_logged[\"GPU-4\" \"4\" \"none\"] 1\n" {
		t.Errorf("got\n%s", got)
	}
}

// TestXIDsBounded holds that a log cannot make series without end.
func TestXIDsBounded(t *testing.T) {
	b, at := newXIDBook(), time.Now()
	for i := range 2 * maxGPUs {
		b.logged(fmt.Sprintf("%08X:00:00.0", i), 31, fromLog, at)
	}
	for code := range 2 * maxXIDCodes {
		b.logged("00000000:00:00.0", code, fromLog, at)
	}
	for code := range 2 * maxSXids {
		b.sxid(xid.Event{Device: "nvidia-nvswitch0", Code: code}, at)
	}
	if n := len(b.points()); n > 2*(maxGPUs+maxXIDCodes+maxSXids) {
		t.Errorf("%d points", n)
	}
}

func TestRecoveryActions(t *testing.T) {
	b := newXIDBook()
	b.devices([]Device{device(3)})
	show := func() (set []string) {
		for _, p := range b.points() {
			if p.Desc == descRecoveryLogged {
				set = append(set, fmt.Sprint(p.Values[2], "=", p.Value))
			}
		}
		return set
	}
	if got := show(); got != nil {
		t.Errorf("without an XID 154: %q", got)
	}
	for text, want := range map[string]string{
		"GPU Reset Required":   "none=0 gpu_reset=1 node_reboot=0 drain_p2p=0 drain_and_reset=0",
		"Node Reboot Required": "none=0 gpu_reset=0 node_reboot=1 drain_p2p=0 drain_and_reset=0",
		"drain and reset":      "none=0 gpu_reset=0 node_reboot=0 drain_p2p=0 drain_and_reset=1",
		"None":                 "none=1 gpu_reset=0 node_reboot=0 drain_p2p=0 drain_and_reset=0",
		"Recover IMEX-Domain!": "none=0 gpu_reset=0 node_reboot=0 drain_p2p=0 drain_and_reset=0 recover_imex_domain=1",
	} {
		b.recover("00000000:03:00.0", text)
		if got := strings.Join(show(), " "); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
}

// TestLogBook holds what of the log is no XID: switches and failed starts.
func TestLogBook(t *testing.T) {
	at := time.Date(2026, 3, 1, 10, 0, 0, 0, time.UTC)
	b := newXIDBook()
	var d xid.Decoder
	k := newKernelLog(testLog(t, "none"), Deps{Logger: log.NewNopLogger()}, b)
	b.begin(nil)
	for i, line := range []string{
		"nvidia-nvswitch1: SXid (PCI:0000:84:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
		"nvidia-nvswitch1: SXid (PCI:0000:84:00.0): 12028, Severity 0 Engine instance 32 Sub-engine instance 00",
		"nvidia-nvswitch1: SXid (PCI:0000:84:00.0): 12028, Data {0x00140004, 0x00000000}",
		"nvidia-nvswitch1: SXid (PCI:0000:84:00.0): 12028, Fatal, Link 33 egress non-posted PRIV error (First)",
		"nvidia-nvswitch0: SXid (PCI:0000:83:00.0): 22013, Severity 0 Engine instance 44 Sub-engine instance 00",
		"NVRM: GPU 0000:0a:00.0: RmInitAdapter failed! (0x24:0x72:1568)",
		"NVRM: GPU 0000:0a:00.0: rm_init_adapter failed, device minor number 5",
		"NVRM: RmInitAdapter: osInitNvMapping failed, bailing out of RmInitAdapter",
	} {
		e, ok := d.Line(line)
		if !ok {
			t.Fatalf("no event: %s", line)
		}
		k.event(e, at.Add(time.Duration(i)*time.Millisecond))
	}
	want := `gpu_init_failures_total["" "00000000:0A:00.0"] 1
nvswitch_sxid_errors_total["0" "00000000:83:00.0" "22013" "unknown"] 1
nvswitch_sxid_errors_total["1" "00000000:84:00.0" "12028" "fatal"] 1
nvswitch_sxid_errors_total["1" "00000000:84:00.0" "12028" "non_fatal"] 1
`
	if got := bookPage(t, b); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	for _, p := range b.points() {
		if p.Desc == descSXidLast && p.Values[3] == "fatal" && p.Value != 1772359200.003 {
			t.Errorf("last at %.3f", p.Value)
		}
	}
}

// TestXIDsThroughTheRunner sees the driver's events and the log's on one page.
func TestXIDsThroughTheRunner(t *testing.T) {
	noLeaks(t)
	s := &stub{}
	s.give(device(3))
	withKinds(t, kind("dcgm", 1, s))
	file := newLogFile(t)
	_, rec := start(t, Config{Interval: 100 * time.Millisecond, KernelLog: file.path}, Deps{StateDir: t.TempDir()})
	eventually(t, "up", func() bool { return slices.Equal(series(rec.page(t), "rackpulse_gpu_up"), []string{"1"}) })
	eventually(t, "the log is open", func() bool {
		return slices.Equal(series(rec.page(t), "rackpulse_source_up", `source="kernel_log"`), []string{"1"})
	})
	file.write("kernel: NVRM: Xid (PCI:0000:03:00): 31, pid=7, name=x, MMU Fault\n")
	count := func(code string) []string {
		return series(rec.page(t), "rackpulse_gpu_xid_errors_total", `UUID="GPU-3",gpu="3",xid="`+code+`"`)
	}
	eventually(t, "told by the log", func() bool { return slices.Equal(count("31"), []string{"1"}) })
	s.mu.Lock()
	s.sample = func() (*Sample, error) {
		return &Sample{At: time.Now(), Devices: []Device{device(3)}, XIDs: []XID{{UUID: "GPU-3", Code: 31}, {UUID: "GPU-3", Code: 43}}}, nil
	}
	s.mu.Unlock()
	eventually(t, "told by the driver", func() bool { return len(count("43")) == 1 })
	s.give(device(3))
	s.fail("driver is gone")
	file.write("kernel: NVRM: GPU 0000:03:00.0: GPU has fallen off the bus.\n")
	eventually(t, "79 while the source fails", func() bool { return slices.Equal(count("79"), []string{"1"}) })
	if at := series(rec.page(t), "rackpulse_gpu_xid_last_timestamp_seconds", `xid="79"`); len(at) != 1 {
		t.Errorf("timestamps %q", at)
	}
	if rejected := series(rec.page(t), "rackpulse_rejected_samples_total"); rejected != nil {
		t.Errorf("rejected: %q", rejected)
	}
}
