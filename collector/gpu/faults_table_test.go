// SPDX-License-Identifier: Apache-2.0

//go:build cgo

package gpu

import "strings"

// deviceFaults are those of GPUs, of other devices, and of their values.
var deviceFaults = []fault{
	{
		what:     "One of the GPUs answers that it is lost",
		exporter: "status 500 for the whole node; `/health` says OK",
		ours:     "`rackpulse_gpu_up` 0 for it, all values of the others",
		run: func(n *node) {
			n.fake.say("gpus 2", "profblank", "refuse gpu 1 -18")
			n.becomes("1 0", "rackpulse_gpu_up")
			n.becomes("34", temp)
			n.becomes("700", "DCGM_FI_DEV_POWER_MGMT_LIMIT")
		},
	},
	{
		what:     "A GPU is lost when the agent starts, and comes back",
		exporter: "an empty page with status 200, also after its return and a SIGHUP",
		ours:     "`rackpulse_gpu_up` 0 from the start; its values once it is back",
		start:    []string{"gpus 2", "lost 1"},
		run: func(n *node) {
			n.becomes("1 0", "rackpulse_gpu_up")
			n.becomes("34", temp)
			n.fake.say("gpus 2")
			n.healthy()
		},
	},
	{
		what:     "A GPU is taken out while the agent runs, and put back",
		exporter: "its series vanish, nothing tells (#348); profiling fields are gone after the re-enumeration",
		ours:     "`rackpulse_gpu_up` 0 under its UUID; all values once it is back",
		run: func(n *node) {
			n.fake.say("ids 0", "profblank")
			n.becomes("1 0", "rackpulse_gpu_up")
			n.becomes("0", "rackpulse_gpu_up", `UUID="GPU-01000100-0000-0000-0000-000000000001"`)
			n.becomes("34", temp)
			n.fake.say(healthyScript...)
			n.becomes("1 1", "rackpulse_gpu_up")
			n.becomes("0 0", engine)
		},
	},
	{
		what:     "DCGM's GPU ids are not 0 to n-1",
		exporter: "takes 0 to n-1: the wrong GPUs or none",
		ours:     "asks DCGM for the ids",
		start:    []string{"ids 1,4"},
		run: func(n *node) {
			n.becomes("1 1", "rackpulse_gpu_up")
			n.becomes("34", temp, `gpu="1"`)
			n.becomes("35", temp, `gpu="4"`)
		},
	},
	{
		what:     "MIG is reconfigured",
		exporter: "series of the old instances until a restart, or a crash (#507, #747)",
		ours:     "enumerates anew; the other GPUs' series are not interrupted",
		start:    healthyScript,
		run: func(n *node) {
			n.healthy()
			n.always(engine, func() {
				n.fake.say("gpus 3", "profblank", "mig 1 2") // the third GPU makes DCGM's list another at once
				n.becomes("0 0", engine, `GPU_I_PROFILE="1g.10gb"`, `gpu="1"`)
			}, "0")
			n.becomes("35 35", temp, `GPU_I_PROFILE="1g.10gb"`)
			n.becomes("1 1 1", "rackpulse_gpu_up")
		},
	},
	{
		what:     "A model name with a quote and a backslash",
		exporter: "printed as it is: the whole page cannot be parsed",
		ours:     "escaped",
		start:    []string{"gpus 2", `model NVIDIA "H100" \ 80GB`},
		run: func(n *node) {
			n.becomes("34 35", temp, `modelName="NVIDIA \"H100\" \\ 80GB"`)
			n.parses()
		},
	},
	{
		what:     "A power of 1e300 W, a utilisation of 4294967295 %, a temperature of 645 C",
		exporter: "shown, the first with 55 digits (#312)",
		ours:     "absent, and counted in `rackpulse_rejected_samples_total{reason=\"range\"}`",
		run: func(n *node) {
			n.fake.say("gpus 2", "profblank", "value 0 155 1e300", "value 0 203 4294967295", "value 0 150 645")
			n.becomes("96", power)
			n.becomes("0", "DCGM_FI_DEV_GPU_UTIL")
			n.becomes("35", temp)
			for _, field := range []string{power, "DCGM_FI_DEV_GPU_UTIL", temp} {
				n.counted(field, "range")
			}
		},
	},
	{
		what:     "Blanks of each kind and type",
		exporter: "left out if they equal one of 16 constants, else shown as 9.2e18; not counted",
		ours:     "absent, and counted by kind; `rackpulse_gpu_field_supported` 0 for not supported and no permission",
		run:      runBlanks,
	},
	{
		what:     "A value with a bad status",
		exporter: "shown as if it was good",
		ours:     "absent, and counted as `error` or `no_data`",
		run: func(n *node) {
			n.fake.say("gpus 2", "profblank", "status 0 150 -3", "status 1 155 -14")
			n.becomes("35", temp)
			n.becomes("95", power)
			n.counted(temp, "error")
			n.counted(power, "no_data")
		},
	},
	{
		what:     "DCGM does not refresh one field",
		exporter: "the old value is shown for ever (#635, #662)",
		ours:     "gone when it is older than three intervals and 30 s, counted as `stale`",
		start:    []string{"gpus 2", "frozen 0 150 60", "frozen 1 155 20"},
		run: func(n *node) {
			n.becomes("95 96", power) // 20 s old only
			n.becomes("35", temp)
			n.counted(temp, "stale")
			n.fake.say("gpus 2")
			n.healthy()
		},
	},
	{
		what:     "DCGM does not refresh one GPU",
		exporter: "the old values are shown for ever",
		ours:     "`rackpulse_gpu_up` 0 for it",
		start:    []string{"gpus 2", "frozen 1 * 60"},
		run: func(n *node) {
			n.becomes("1 0", "rackpulse_gpu_up")
			n.becomes("34", temp)
			n.fake.say("gpus 2")
			n.healthy()
		},
	},
	{
		what:     "DCGM answers but refreshes nothing",
		exporter: "the old values are shown for ever; restarting the host engine helps",
		ours:     "`rackpulse_source_up` 0; DCGM is started anew",
		start:    []string{"gpus 2", "frozen * * 60"},
		run: func(n *node) {
			eventually(n.T, "reason", func() bool { return strings.Contains(n.rec.reason(), "DCGM has refreshed no value for 30s") })
			eventually(n.T, "a new child", func() bool {
				got := n.series("rackpulse_gpu_child_restarts_total", `reason="error"`)
				return len(got) == 1 && got[0] != "0"
			})
			n.fake.say("gpus 2")
			n.healthy()
		},
	},
	{
		what:     "The clock is set back by an hour, or forward",
		exporter: "timestamps are not looked at",
		ours:     "no good value is dropped; a value with a time of the future ages like any other",
		run: func(n *node) {
			n.always(temp, func() {
				for _, clock := range []string{"clock -3600", "clock 0", "clock 3600", "clock 0"} {
					n.fake.say("gpus 2", "profblank", clock)
					for range 3 {
						n.passes(1)
						want(n.T, clock, n.series(temp), "34", "35")
						want(n.T, clock, n.series("DCGM_FI_DEV_POWER_MGMT_LIMIT"), "700", "700") // a slow field
					}
				}
			}, "0", "1")
			n.becomes("34 35", temp)
		},
	},
	{
		what:     "Only some of the GPUs have profiling fields",
		exporter: "GPU 0 decides for all (#657)",
		ours:     "each GPU is asked; `rackpulse_gpu_field_supported` 0 where they are lacking",
		start:    []string{"gpus 3", "noprof 0"},
		run: func(n *node) {
			n.becomes("0 0", engine)
			n.becomes("", engine, `gpu="0"`)
			n.becomes("0", "rackpulse_gpu_field_supported", `gpu="0"`, `field="`+engine+`"`)
			n.becomes("", "rackpulse_gpu_field_supported", `gpu="1"`, `field="`+engine+`"`)
			if got := n.series("rackpulse_rejected_samples_total", `field="`+engine+`"`); len(got) > 0 {
				n.Errorf("counted as rejected: %q", got)
			}
		},
	},
	{
		what:     "DCGM does not say which GPUs have profiling fields, and refuses to watch them",
		exporter: "no profiling fields",
		ours:     "tries which fields can be watched on which GPUs",
		start:    []string{"gpus 3", "noprof 1", "fail dcgmProfGetSupportedMetricGroups -3"},
		run: func(n *node) {
			n.becomes("0 0", engine)
			n.becomes("", engine, `gpu="1"`)
			n.becomes("0", "rackpulse_gpu_field_supported", `gpu="1"`, `field="`+engine+`"`)
		},
	},
	{
		what:     "Two NVSwitches",
		exporter: "every switch is `nvswitch0`: two equal series (#728)",
		ours:     "`nvswitch0` and `nvswitch1`",
		start:    []string{"gpus 2", "switches 2"},
		counters: "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT, gauge, s\n",
		run: func(n *node) {
			n.becomes("40", "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT", `nvswitch="nvswitch0"`)
			n.becomes("41", "DCGM_FI_DEV_NVSWITCH_TEMPERATURE_CURRENT", `nvswitch="nvswitch1"`)
		},
	},
	{
		what:     "A health check takes 45 s",
		exporter: "so does the scrape (NVIDIA/DCGM #313)",
		ours:     "values go on, `rackpulse_gpu_call_overdue` 1; the other GPUs are checked",
		start:    []string{"gpus 2", "delay dcgmHealthCheck 45000"},
		counters: "DCGM_EXP_GPU_HEALTH_STATUS, gauge, h\n",
		run: func(n *node) {
			n.becomes("1 1", "rackpulse_gpu_call_overdue", `call="health"`)
			n.always(temp, func() {
				n.fake.say("gpus 2", "delay dcgmHealthCheck 45000", "value 0 150 77")
				n.becomes("77 35", temp)
			}, "0", "1")
			n.fake.say("gpus 2")
			n.becomes("0 0", "DCGM_EXP_GPU_HEALTH_STATUS", `health_watch="ALL"`)
		},
	},
}

func runBlanks(n *node) {
	kinds := map[string]string{"blank": "blank", "notfound": "not_found", "notsupported": "not_supported", "noperm": "no_permission"}
	for word, reason := range kinds {
		n.fake.say("gpus 2", "profblank", "value 0 150 "+word, "value 1 155 "+word, "value 0 160 "+word)
		n.becomes("35", temp)  // a 64-bit number
		n.becomes("95", power) // a floating point number
		n.becomes("700", "DCGM_FI_DEV_POWER_MGMT_LIMIT")
		for _, field := range []string{temp, power, "DCGM_FI_DEV_POWER_MGMT_LIMIT"} {
			n.counted(field, reason)
		}
		want := ""
		if reason == "not_supported" || reason == "no_permission" {
			want = "0"
		}
		n.becomes(want, "rackpulse_gpu_field_supported", `gpu="0"`, `field="`+temp+`"`)
		n.becomes("", "rackpulse_gpu_field_supported", `gpu="1"`, `field="`+temp+`"`)
		n.becomes(want, "rackpulse_gpu_field_supported", `gpu="0"`, `field="DCGM_FI_DEV_POWER_MGMT_LIMIT"`)
	}
	n.fake.say("gpus 2", "profblank", "value 0 150 2147483633") // a 32-bit blank in a 64-bit field
	n.becomes("35", temp)
}
