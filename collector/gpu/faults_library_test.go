// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// faults are all of them, in the order of docs/gpu-faults.md.
var faults = slices.Concat(deviceFaults, libraryFaults)

// libraryFaults are those of the library, of the counters file, and of the agent.
var libraryFaults = []fault{
	{
		what:     "The counters file is changed",
		exporter: "all `DCGM_FI_PROF_*` are gone after any reload; the page is empty for 2 to 3 s",
		ours:     "read within a second; what stays in the file is never interrupted",
		run: func(n *node) {
			n.always(engine, func() {
				n.files.set(defaultCountersCSV + "DCGM_FI_DEV_BOARD_POWER_WATTS, gauge, p\n")
				n.becomes("95 96", "DCGM_FI_DEV_BOARD_POWER_WATTS")
				n.files.set(defaultCountersCSV)
				n.becomes("", "DCGM_FI_DEV_BOARD_POWER_WATTS")
			}, "0", "1")
		},
	},
	{
		what:     "A typing error in the counters file",
		exporter: "the process exits",
		ours:     "the old file stays in force; log with the line, `rackpulse_gpu_counters_last_reload_successful` 0",
		run: func(n *node) {
			n.files.set(defaultCountersCSV + "DCGM_FI_DEV_FB_TOTAL gauge\n")
			n.becomes("0", "rackpulse_gpu_counters_last_reload_successful")
			n.becomes("34 35", temp)
			n.files.set(defaultCountersCSV)
			n.becomes("1", "rackpulse_gpu_counters_last_reload_successful")
		},
	},
	{
		what:     "An unknown field name in the counters file",
		exporter: "the process exits within 3 s, or does not start",
		ours:     "the line is left out: log, `rackpulse_gpu_counter_ignored`; `config check-agent` refuses the file",
		run: func(n *node) {
			n.files.set(defaultCountersCSV + "DCGM_FI_DEV_OF_TOMORROW, gauge, t\n")
			n.becomes("1", "rackpulse_gpu_counter_ignored", `field="DCGM_FI_DEV_OF_TOMORROW"`)
			n.becomes("34 35", temp)
			n.files.set(defaultCountersCSV)
			n.becomes("", "rackpulse_gpu_counter_ignored")
		},
	},
	{
		what:     "300 fields",
		exporter: "not tried",
		ours:     "watched and read in groups of at most 128, DCGM's limit",
		run: func(n *node) {
			text := manyFields(300)
			if lines := strings.Count(text, "\n"); lines != 300 {
				n.Fatalf("%d fields", lines)
			}
			n.files.set(text)
			eventually(n.T, "300 fields of 2 GPUs", func() bool { return strings.Count(n.rec.page(n.T), "\nDCGM_FI_") == 600 })
			n.files.set(defaultCountersCSV)
			n.becomes("", "DCGM_FI_DEV_BAR1_TOTAL")
			if refused := n.series("rackpulse_gpu_counter_ignored"); len(refused) > 0 {
				n.Errorf("refused: %q", refused)
			}
		},
	},
	{
		what:     "A call of the library hangs",
		exporter: "no scrape is answered, each leaves a thread behind; `/health` says OK",
		ours:     "the page shows the last values, for 30 s; the child process is replaced after `read_timeout`",
		run: func(n *node) {
			n.fake.say("gpus 2", "profblank", "hang dcgmEntitiesGetLatestValues")
			eventually(n.T, "a new child", func() bool {
				before := time.Now()
				page := n.rec.page(n.T)
				if took := time.Since(before); took > time.Second {
					n.Errorf("the page took %v", took)
				}
				got := series(page, "rackpulse_gpu_child_restarts_total", `reason="hang"`)
				return len(got) == 1 && got[0] != "0"
			})
			n.becomes("34 35", temp)
		},
	},
	{
		what:     "The library crashes",
		exporter: "the process ends (#412, #450)",
		ours:     "the child process is replaced; the page shows the last values meanwhile",
		run: func(n *node) {
			n.fake.say("gpus 2", "profblank", "crash dcgmEntitiesGetLatestValues segv")
			eventually(n.T, "a new child", func() bool {
				got := n.series("rackpulse_gpu_child_restarts_total", `reason="crash"`)
				return len(got) == 1 && got[0] != "0"
			})
			n.becomes("34 35", temp)
		},
	},
	{
		what:     "The connection to the host engine is lost, and regained",
		exporter: "the process exits with status 1, which its systemd unit does not restart",
		ours:     "`rackpulse_source_up` 0 with the reason; connects again",
		run: func(n *node) {
			n.fake.say("disconnected")
			n.becomes("0", "rackpulse_source_up", `source="gpu"`)
			if !strings.Contains(n.rec.reason(), "host engine is not valid") {
				n.Errorf("reason: %s", n.rec.reason())
			}
		},
	},
	{
		what:     "The library is replaced by an older one that lacks functions",
		exporter: "exit status 127 at the first call of one",
		ours:     "reads on with what there is; the reason names a function that it cannot do without",
		start:    []string{"gpus 2"},
		run:      runOlderLibrary,
	},
	{
		what:     "The agent ends",
		exporter: "12 groups made and 11 given back, 12 watches and 1 given back",
		ours:     "everything is given back",
		start:    []string{"gpus 2"},
		run: func(n *node) {
			n.healthy()
			n.files.set(defaultCountersCSV + "DCGM_FI_DEV_BAR1_TOTAL, gauge, b\n")
			n.becomes("0 0", "DCGM_FI_DEV_BAR1_TOTAL")
			n.after = func() {
				for make, giveBack := range map[string]string{"dcgmGroupCreate ": "dcgmGroupDestroy ",
					"dcgmFieldGroupCreate ": "dcgmFieldGroupDestroy ", "dcgmWatchFields ": "dcgmUnwatchFields "} {
					if a, b := len(n.fake.calls(make)), len(n.fake.calls(giveBack)); a != b || a == 0 {
						n.Errorf("%s: %d, %s: %d", make, a, giveBack, b)
					}
				}
			}
		},
	},
}

// manyFields is a counters file of n fields of which the stand-in has numbers.
func manyFields(n int) string {
	var b strings.Builder
	hasNone := []string{"DCGM_FI_DEV_VBIOS_VERSION", "DCGM_FI_DEV_FAN_SPEED", "DCGM_FI_DEV_VGPU_LICENSE_STATUS", fieldXID}
	for line := range strings.Lines(fieldNamesCSV) {
		var id int
		cells := strings.Split(strings.TrimSpace(line), ",")
		if _, err := fmt.Sscanf(cells[0], "%d", &id); err != nil || len(cells) < 2 || id < 60 || id >= 700 && id < 1400 || slices.Contains(hasNone, cells[1]) || n == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s, gauge, f\n", cells[1])
		n--
	}
	return b.String()
}

func runOlderLibrary(n *node) {
	n.healthy()
	dir := n.TempDir()
	link := func(flag string) {
		n.Helper()
		path := filepath.Join(dir, "libdcgm.so.4")
		if err := os.Symlink(filepath.Join(buildFake(n.T, flag), "libdcgm.so.4"), path+".new"); err != nil {
			n.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			n.Fatal(err)
		}
	}
	n.Setenv("LD_LIBRARY_PATH", dir)
	for _, flag := range []string{"FAKE_BROKEN", "FAKE_OLD"} {
		link(flag)
		n.fake.say("gpus 2", "crash dcgmEntitiesGetLatestValues exit")
		if flag == "FAKE_BROKEN" {
			eventually(n.T, "reason", func() bool {
				return strings.Contains(n.rec.reason(), "libdcgm.so.4 lacks the function dcgmEntitiesGetLatestValues")
			})
			continue
		}
		n.fake.say("gpus 2")
		n.becomes("1", "rackpulse_source_up", `source="gpu"`)
		n.becomes("34 35", temp)
	}
}
