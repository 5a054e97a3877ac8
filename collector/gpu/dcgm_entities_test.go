// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// entityCounters has fields of every kind of entity, and a label field of one.
const entityCounters = `DCGM_FI_DEV_GPU_TEMP, gauge, of a GPU
DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT, gauge, of a switch
DCGM_FI_DEV_NVSWITCH_LINK_THROUGHPUT_TX, gauge, of a switch's links
DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_PER_LINK_TOTAL, counter, of a GPU's links
DCGM_FI_DEV_CPU_UTIL_TOTAL, gauge, of cores and CPUs
DCGM_FI_DEV_CPU_TEMP_CURRENT, gauge, of CPUs
DCGM_FI_DEV_CPU_MODEL, label, of CPUs
DCGM_FI_DRIVER_VERSION, label, of the node
`

// countersFile writes a counters file for one test.
func countersFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "counters.csv")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// startEntities runs a node whose other entities are read often.
func startEntities(t *testing.T, counters string, cfg Config) *recorder {
	t.Helper()
	cfg.CountersFile, cfg.SlowInterval = countersFile(t, counters), 200*time.Millisecond
	_, rec := startDCGM(t, cfg)
	return rec
}

// wantLine checks for a whole line.
func wantLine(t *testing.T, page, line string) {
	t.Helper()
	if !strings.Contains("\n"+page, "\n"+line+"\n") {
		t.Errorf("no line %s", line)
	}
}

func TestDCGMSwitchesAndLinks(t *testing.T) {
	fake := useFake(t, "", "gpus 2", "switches 2", "links gpu * 3", "links switch * 2", "link gpu 1 2 down", "link gpu 1 5 disabled")
	rec := startEntities(t, entityCounters, Config{})
	eventually(t, "links", func() bool { return len(series(rec.page(t), "rackpulse_nvlink_up")) == 10 })
	page := rec.page(t)
	const driver = `,Hostname="vm",DCGM_FI_DRIVER_VERSION="550.163.01"} `
	wantLine(t, page, `DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT{nvswitch="nvswitch0"`+driver+`40`)
	wantLine(t, page, `DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT{nvswitch="nvswitch1"`+driver+`41`)
	wantLine(t, page, `DCGM_FI_DEV_NVSWITCH_LINK_THROUGHPUT_TX{nvlink="1",nvswitch="nvswitch1"`+driver+`101`)
	const uuid = "GPU-01000100-0000-0000-0000-000000000001"
	wantLine(t, page, `DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_PER_LINK_TOTAL{nvlink="2",gpu="1",gpu_uuid="`+uuid+`",UUID="`+uuid+
		`",pci_bus_id="00000000:1B:00.0",device="nvidia1",model_name="NVIDIA H100 80GB HBM3"`+driver+`102`)
	want(t, "fields of GPUs' links", series(page, "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_PER_LINK_TOTAL"), "0", "1", "2", "100", "101", "102", "105")
	want(t, "fields of switches' links", series(page, "DCGM_FI_DEV_NVSWITCH_LINK_THROUGHPUT_TX"), "0", "1", "100", "101")
	wantLine(t, page, `rackpulse_nvlink_up{nvlink="2",gpu="1",UUID="`+uuid+`",pci_bus_id="00000000:1B:00.0"} 0`)
	wantLine(t, page, `rackpulse_nvlink_up{nvlink="0",nvswitch="nvswitch1"} 1`)
	want(t, "states of GPU 1", series(page, "rackpulse_nvlinks", `gpu="1"`), "1", "1", "2")
	want(t, "states of a switch", series(page, "rackpulse_nvlinks", `nvswitch="nvswitch0"`), "0", "0", "2")
	want(t, "switches", series(page, "rackpulse_nvswitch_up"), "1", "1")
	want(t, "no CPU", series(page, "DCGM_FI_DEV_CPU_TEMP_CURRENT"))

	fake.say("gpus 2", "switches 2", "links gpu * 3", "links switch * 2", "link switch 0 1 down", "refuse switch 0 -18", "refuse switchlink 1 -3")
	eventually(t, "switch 0 lost", func() bool { return slices.Equal(series(rec.page(t), "rackpulse_nvswitch_up"), []string{"0", "1"}) })
	page = rec.page(t)
	want(t, "the other switch", series(page, "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT"), "41")
	want(t, "links of the refused switch are lost, others not", series(page, "DCGM_FI_DEV_NVSWITCH_LINK_THROUGHPUT_TX"), "0", "1")
	want(t, "link of switch 0", series(page, "rackpulse_nvlink_up", `nvlink="1",nvswitch="nvswitch0"`), "0")
	want(t, "link of GPU 1", series(page, "rackpulse_nvlink_up", `nvlink="2",gpu="1"`), "1")
	want(t, "GPUs", series(page, "DCGM_FI_DEV_GPU_TEMP"), "34", "35")
	want(t, "all is in time", series(page, "rackpulse_gpu_call_overdue"), "0")
	if calls := fake.calls("dcgmGetDeviceTopology"); len(calls) > 0 {
		t.Errorf("%d calls of dcgmGetDeviceTopology", len(calls))
	}
}

func TestDCGMCPUs(t *testing.T) {
	useFake(t, "", "gpus 1", "cpus 2 3", "refuse core 4 -3", "value cpu 1 1110 -300")
	rec := startEntities(t, entityCounters, Config{})
	eventually(t, "CPUs", func() bool { return len(series(rec.page(t), "DCGM_FI_DEV_CPU_UTIL_TOTAL")) == 7 })
	page := rec.page(t)
	wantLine(t, page, `DCGM_FI_DEV_CPU_TEMP_CURRENT{cpu="0",Hostname="vm",DCGM_FI_DEV_CPU_MODEL="text1141-0",DCGM_FI_DRIVER_VERSION="550.163.01"} 50`)
	wantLine(t, page, `DCGM_FI_DEV_CPU_UTIL_TOTAL{cpu="1",Hostname="vm",DCGM_FI_DEV_CPU_MODEL="text1141-1",DCGM_FI_DRIVER_VERSION="550.163.01"} 0.25`)
	wantLine(t, page, `DCGM_FI_DEV_CPU_UTIL_TOTAL{cpucore="5",cpu="1",Hostname="vm",DCGM_FI_DRIVER_VERSION="550.163.01"} 0.01953125`)
	want(t, "refused core", series(page, "DCGM_FI_DEV_CPU_UTIL_TOTAL", `cpucore="4"`))
	want(t, "CPU of -300 C", series(page, "DCGM_FI_DEV_CPU_TEMP_CURRENT", `cpu="1"`))
	want(t, "no links, no switches", append(series(page, "rackpulse_nvlinks"), series(page, "rackpulse_nvswitch_up")...))
}

// TestDCGMEntitiesHang lets the search for links hang: GPUs are read on, the page
// says so, and all is well when the call returns.
func TestDCGMEntitiesHang(t *testing.T) {
	fake := useFake(t, "", "gpus 2", "links gpu * 1", "hang dcgmGetNvLinkLinkStatus")
	rec := startEntities(t, entityCounters, Config{ReadTimeout: 2 * time.Second, callBudget: 100 * time.Millisecond})
	eventually(t, "overdue", func() bool {
		return slices.Equal(series(rec.page(t), "rackpulse_gpu_call_overdue", `call="entities"`), []string{"1"})
	})
	fake.say("gpus 2", "links gpu * 1", "hang dcgmGetNvLinkLinkStatus", "value 0 150 77")
	eventually(t, "GPUs read on", func() bool { return slices.Equal(series(rec.page(t), "DCGM_FI_DEV_GPU_TEMP"), []string{"77", "35"}) })
	fake.say("gpus 2", "links gpu * 1")
	eventually(t, "links", func() bool { return slices.Equal(series(rec.page(t), "rackpulse_nvlink_up"), []string{"1", "1"}) })
	want(t, "no new child", series(rec.page(t), "rackpulse_gpu_child_restarts_total"), "0", "0", "0")
}

// TestDCGMMIGReconfigured takes GPU instances away, adds others and reuses the
// entity of one for another.
func TestDCGMMIGReconfigured(t *testing.T) {
	fake := useFake(t, "", "gpus 2", "instance 1 8 7 1g.10gb", "instance 1 9 8 1g.10gb")
	rec := startEntities(t, "DCGM_FI_DEV_FB_FREE, gauge, f\nDCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_FI_DEV_GPU_UTIL, gauge, u\n"+
		"DCGM_FI_PROF_GR_ENGINE_ACTIVE, gauge, g\n", Config{})
	instances := func() string {
		var all []string
		for line := range strings.Lines(rec.page(t)) {
			if strings.HasPrefix(line, "DCGM_FI_DEV_FB_FREE{") {
				_, after, ok := strings.Cut(line, `GPU_I_PROFILE="`)
				profile, _, _ := strings.Cut(after, `"`)
				_, after, _ = strings.Cut(line, `GPU_I_ID="`)
				id, _, _ := strings.Cut(after, `"`)
				if all = append(all, "gpu"); ok {
					all[len(all)-1] = id + ":" + profile
				}
			}
		}
		return strings.Join(all, " ")
	}
	eventually(t, "two instances", func() bool { return instances() == "gpu 7:1g.10gb 8:1g.10gb" })
	page := rec.page(t)
	want(t, "temperature is the GPU's, beside each instance", series(page, "DCGM_FI_DEV_GPU_TEMP", "GPU_I_ID"), "35", "35")
	want(t, "no utilisation of instances", series(page, "DCGM_FI_DEV_GPU_UTIL"), "0")
	want(t, "but their engines", series(page, "DCGM_FI_PROF_GR_ENGINE_ACTIVE", "GPU_I_ID"), "0", "0")
	want(t, "GPUs up", series(page, "rackpulse_gpu_up"), "1", "1")

	fake.say("gpus 2", "instance 1 8 3 2g.20gb", "instance 1 9 8 1g.10gb", "instance 1 12 9 1g.10gb", "instance 0 1 1 7g.80gb")
	eventually(t, "others", func() bool { return instances() == "1:7g.80gb 3:2g.20gb 8:1g.10gb 9:1g.10gb" })
	fake.say("gpus 2")
	eventually(t, "MIG off", func() bool { return instances() == "gpu gpu" })

	// DCGM refuses all values because of an instance that is gone: its GPU is not lost.
	fake.say("gpus 2", "instance 1 8 7 1g.10gb", "instance 1 9 8 1g.10gb")
	eventually(t, "MIG on", func() bool { return instances() == "gpu 7:1g.10gb 8:1g.10gb" })
	fake.say("gpus 2", "instance 1 9 8 1g.10gb", "refuse instance 8 -3")
	lost := false
	eventually(t, "one left", func() bool {
		lost = lost || ups(t, rec) != "11"
		return instances() == "gpu 8:1g.10gb"
	})
	if lost {
		t.Error("a GPU was lost when one of its instances went away")
	}
	if page := rec.page(t); len(series(page, "rackpulse_rejected_samples_total", `reason="duplicate"`)) > 0 {
		t.Error("duplicate series")
	}
}
