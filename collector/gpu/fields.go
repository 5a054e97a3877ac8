// SPDX-License-Identifier: Apache-2.0

package gpu

import (
	_ "embed" // field names and default counters
	"strconv"
	"strings"
	"sync"

	"github.com/rackpulse/rackpulse/collector"
)

// Fields that are read whatever the counters file says, because families of our
// own are made of them. They appear under these names only when the file has them.
const (
	fieldThrottle = "DCGM_FI_DEV_CLOCK_THROTTLE_REASONS" // bit mask, see throttleReasons
	fieldMargin   = "DCGM_FI_DEV_GPU_TEMP_LIMIT"         // celsius to the nearest slowdown threshold (T.Limit)
	fieldSlowdown = "DCGM_FI_DEV_SLOWDOWN_TEMP"          // celsius
	fieldTemp     = "DCGM_FI_DEV_GPU_TEMP"
	fieldXID      = "DCGM_FI_DEV_XID_ERRORS"
	fieldDriver   = "DCGM_FI_DRIVER_VERSION"
	fieldUtil     = "DCGM_FI_DEV_GPU_UTIL"          // %
	fieldEngine   = "DCGM_FI_PROF_GR_ENGINE_ACTIVE" // ratio
	fieldUsed     = "DCGM_FI_DEV_FB_USED"           // MiB
	fieldFree     = "DCGM_FI_DEV_FB_FREE"
	fieldReserved = "DCGM_FI_DEV_FB_RESERVED"
	fieldWidth    = "DCGM_FI_DEV_PCIE_LINK_WIDTH"
	fieldMaxWidth = "DCGM_FI_DEV_PCIE_MAX_LINK_WIDTH"
	fieldGen      = "DCGM_FI_DEV_PCIE_LINK_GEN"
	fieldMaxGen   = "DCGM_FI_DEV_PCIE_MAX_LINK_GEN"
	fieldSRAM     = "DCGM_FI_DEV_THRESHOLD_SRM"           // 0 or 1
	fieldRecovery = "DCGM_FI_DEV_GET_GPU_RECOVERY_ACTION" // see recoveryActions
)

// What has no name in DCGM goes from the source to the page under ours.
const (
	fieldInstanceMemory = "rackpulse_gpu_instance_memory_bytes"
	fieldInstanceSMs    = "rackpulse_gpu_instance_multiprocessors"
)

var alwaysRead = []string{fieldThrottle, fieldMargin, fieldSlowdown, fieldTemp, fieldXID,
	fieldUtil, fieldEngine, fieldUsed, fieldFree, fieldReserved, fieldWidth, fieldMaxWidth, fieldGen, fieldMaxGen,
	fieldSRAM, fieldRecovery, fieldInstanceMemory, fieldInstanceSMs,
	"DCGM_FI_DEV_ROW_REMAP_FAILURE", "DCGM_FI_DEV_ROW_REMAP_PENDING", "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
	"DCGM_FI_DEV_RETIRED_SBE", "DCGM_FI_DEV_RETIRED_DBE", "DCGM_FI_DEV_RETIRED_PENDING",
	fieldMIGMode, fieldECCMode, fieldPersistence}

// slowFields are read every gpu.slow_interval, all others every gpu.interval:
// counts of errors, which alerts look at over minutes, and what only an operator
// or a fault changes. A name that ends in * stands for all that begin so. Not here,
// though it looks like it: DCGM_FI_DEV_GPU_TEMP_LIMIT, which moves with the
// temperature, the energy, whose rate would jump, and DCGM_FI_DEV_XID_ERRORS.
var slowFields = []string{
	"DCGM_FI_DEV_ECC_*",
	"DCGM_FI_DEV_RETIRED_*",
	"DCGM_FI_DEV_ROW_REMAP_*",
	"DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS",
	"DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS",
	"DCGM_FI_DEV_BANKS_REMAP_*",
	"DCGM_FI_DEV_NVLINK_CRC_*",
	"DCGM_FI_DEV_NVLINK_REPLAY_*",
	"DCGM_FI_DEV_NVLINK_RECOVERY_*",
	"DCGM_FI_DEV_PCIE_REPLAY_COUNTER",
	"DCGM_FI_DEV_PCIE_LINK_*",
	"DCGM_FI_DEV_PCIE_MAX_LINK_*",
	"DCGM_FI_DEV_POWER_MGMT_LIMIT*",
	"DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
	fieldSlowdown,
	"DCGM_FI_DEV_SHUTDOWN_TEMP",
	"DCGM_FI_DEV_FAN_SPEED",
	"DCGM_FI_DEV_VGPU_LICENSE_STATUS",
	fieldSRAM,
	fieldRecovery,
	fieldInstanceMemory,
	fieldInstanceSMs,
	"DCGM_FI_DEV_NVLINK_ERROR_DL_*",
	"DCGM_FI_DEV_NVLINK_COUNT_*",
	"DCGM_FI_DEV_PCIE_COUNT_*",
	"DCGM_FI_DEV_C2C_*",
	"DCGM_FI_DEV_FABRIC_*",
	"DCGM_FI_DEV_MAX_*",
	"DCGM_FI_DEV_APP_*",
	"DCGM_FI_DEV_MIG_M*",
	"DCGM_FI_DEV_GPU_MAX_OP_TEMP",
	"DCGM_FI_DEV_MEM_MAX_OP_TEMP",
	"DCGM_FI_DEV_COMPUTE_MODE",
	"DCGM_FI_DEV_PERSISTENCE_MODE",
	"DCGM_FI_DEV_VIRTUAL_MODE",
}

// isSlow tells whether a field is one of slowFields.
func isSlow(field string) bool {
	for _, name := range slowFields {
		if begin, ok := strings.CutSuffix(name, "*"); field == name || ok && strings.HasPrefix(field, begin) {
			return true
		}
	}
	return false
}

// gates are the range gates of dcgm-exporter's fields: values outside were seen
// in the field and are errors of the driver or of DCGM. Temperatures of 345 and
// 644245923 C (dcgm-exporter #312), utilisations up to 4294967295 % (DCGM #199).
var gates = map[string][2]float64{
	fieldTemp:                                  {-20, 130}, // no silicon works outside
	"DCGM_FI_DEV_MEMORY_TEMP":                  {-20, 130},
	fieldMargin:                                {-150, 150},
	fieldSlowdown:                              {0, 200},
	"DCGM_FI_DEV_GPU_UTIL":                     {0, 100},
	"DCGM_FI_DEV_MEM_COPY_UTIL":                {0, 100},
	"DCGM_FI_DEV_ENC_UTIL":                     {0, 100},
	"DCGM_FI_DEV_DEC_UTIL":                     {0, 100},
	"DCGM_FI_DEV_FAN_SPEED":                    {0, 200},  // NVML: may exceed 100 %
	"DCGM_FI_DEV_POWER_USAGE":                  {0, 4200}, // three times the largest limit, 1400 W (GB300)
	"DCGM_FI_DEV_POWER_MGMT_LIMIT":             {0, 4200},
	"DCGM_FI_DEV_SM_CLOCK":                     {0, 20000}, // MHz
	"DCGM_FI_DEV_MEM_CLOCK":                    {0, 20000},
	"DCGM_FI_DEV_FB_FREE":                      {0, 1 << 22}, // MiB: 4 TiB
	"DCGM_FI_DEV_FB_USED":                      {0, 1 << 22},
	"DCGM_FI_DEV_FB_RESERVED":                  {0, 1 << 22},
	"DCGM_FI_DEV_PCIE_LINK_GEN":                {1, 10},
	"DCGM_FI_DEV_PCIE_LINK_WIDTH":              {1, 32}, // lanes, PCI Express base specification
	fieldXID:                                   {0, 65535},
	"DCGM_FI_DEV_ROW_REMAP_FAILURE":            {0, 1},
	"DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL":       {0, 1e7}, // MiB/s; NVLink 5 has 1.8e6
	"DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT": {-20, 130},
	"DCGM_FI_DEV_CPU_TEMP_CURRENT":             {-20, 130},
	"DCGM_FI_DEV_CPU_POWER_UTIL_CURRENT":       {0, 4200},
	"DCGM_FI_PROF_GR_ENGINE_ACTIVE":            {0, 1.05},
	"DCGM_FI_PROF_SM_ACTIVE":                   {0, 1.05},
	"DCGM_FI_PROF_SM_OCCUPANCY":                {0, 1.05},
	"DCGM_FI_PROF_PIPE_TENSOR_ACTIVE":          {0, 1.05},
	"DCGM_FI_PROF_DRAM_ACTIVE":                 {0, 1.05},
	"DCGM_FI_PROF_PCIE_TX_BYTES":               {0, 1e12}, // bytes/s; Gen 6 x16 has 1.3e11
	"DCGM_FI_PROF_PCIE_RX_BYTES":               {0, 1e12},
}

// counterGate is the gate of counters without one of their own: it lets no
// negative value and no 64-bit blank (9.2e18) through.
var counterGate = [2]float64{0, 1e18}

// gateOf returns the range gate of a field; both zero: none.
func gateOf(name string, typ collector.Type) [2]float64 {
	if g, ok := gates[name]; ok {
		return g
	}
	if typ == collector.Counter {
		return counterGate
	}
	return [2]float64{}
}

// throttleReasons are the bits of DCGM's and NVML's clock event reasons with our
// label values (dcgm_fields.h, DCGM_CLOCKS_EVENT_REASON_*; nvml.h has the same).
var throttleReasons = []struct {
	bit    uint64
	reason string
}{
	{0x1, "gpu_idle"},
	{0x2, "clocks_setting"},
	{0x4, "sw_power_cap"},
	{0x8, "hw_slowdown"},
	{0x10, "sync_boost"},
	{0x20, "sw_thermal"},
	{0x40, "hw_thermal"},
	{0x80, "hw_power_brake"},
	{0x100, "display_clock"},
}

// The families besides DCGM_FI_*. A GPU is named by UUID and gpu; node and
// rack_id are added at rendering.
var (
	descUp = &collector.Desc{Name: "rackpulse_gpu_up",
		Help:   "Whether the GPU answers: 1, or 0 when it is lost or missing.",
		Labels: []string{"UUID", "gpu"}}
	descInfo = &collector.Desc{Name: "rackpulse_gpu_info",
		Help:   "The GPU's static attributes; always 1.",
		Labels: []string{"UUID", "gpu", "pci_bus_id", "device", "model", "driver"}}
	descSampleTime = &collector.Desc{Name: "rackpulse_gpu_last_sample_timestamp_seconds",
		Help:   "When the newest value of the GPU was measured, Unix time, by class of fields (fast, slow).",
		Labels: []string{"UUID", "gpu", "class"}}
	descSupported = &collector.Desc{Name: "rackpulse_gpu_field_supported",
		Help:   "Fields of the counters file that the GPU or its library does not give; 0, and absent for all others.",
		Labels: []string{"UUID", "gpu", "field"}}
	descThrottle = &collector.Desc{Name: "rackpulse_gpu_throttle",
		Help:   "Whether the GPU's clocks are held back for this reason, 0 or 1.",
		Labels: []string{"UUID", "gpu", "reason"}}
	descMargin = &collector.Desc{Name: "rackpulse_gpu_thermal_margin_celsius",
		Help:   "Distance of the GPU's temperature to its nearest slowdown threshold.",
		Labels: []string{"UUID", "gpu"}, Min: -150, Max: 200}
	descXID = &collector.Desc{Name: "rackpulse_gpu_xid_errors_total",
		Help: "Driver errors (XIDs) of the GPU since the agent started.", Type: collector.Counter,
		Labels: []string{"UUID", "gpu", "xid"}}
	descXIDLast = &collector.Desc{Name: "rackpulse_gpu_xid_last_timestamp_seconds",
		Help:   "When the GPU's last driver error with this XID happened, Unix time.",
		Labels: []string{"UUID", "gpu", "xid"}}
	descRestarts = &collector.Desc{Name: "rackpulse_gpu_child_restarts_total",
		Help: "Ends of the child process that talks to DCGM or NVML, other than by request.", Type: collector.Counter,
		Labels: []string{"reason"}}
	descCountersOK = &collector.Desc{Name: "rackpulse_gpu_counters_last_reload_successful",
		Help: "Whether the counters file as it is now is in force: 1, or 0 when it is bad and an earlier one is."}
	descCountersTime = &collector.Desc{Name: "rackpulse_gpu_counters_last_reload_success_timestamp_seconds",
		Help: "When the counters file was last found good, Unix time."}
	descCounterIgnored = &collector.Desc{Name: "rackpulse_gpu_counter_ignored",
		Help:   "Lines of the counters file that are left out, by field and reason; always 1.",
		Labels: []string{"field", "reason"}}
	descUnmatched = &collector.Desc{Name: "rackpulse_gpu_selector_unmatched",
		Help:   "Ids of gpu.devices and gpu.exclude that no device of the node has; always 1.",
		Labels: []string{"id"}}
	descAbandoned = &collector.Desc{Name: "rackpulse_gpu_children_abandoned",
		Help: "Child processes that could not be killed (uninterruptible sleep) and still exist."}
)

//go:embed fieldnames.csv
var fieldNamesCSV string

type fieldName struct {
	id     uint16
	metric string
}

// fieldNames maps every name of a DCGM field to its id and metric name.
var fieldNames = sync.OnceValue(func() map[string]fieldName {
	names := make(map[string]fieldName, 1100)
	for line := range strings.Lines(fieldNamesCSV) {
		cells := strings.Split(strings.TrimSpace(line), ",")
		id, err := strconv.ParseUint(cells[0], 10, 16)
		if err != nil || len(cells) < 2 {
			continue // a comment
		}
		for _, name := range cells[1:] {
			names[name] = fieldName{id: uint16(id), metric: cells[1]}
		}
	}
	return names
})
