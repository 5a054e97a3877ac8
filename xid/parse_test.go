// SPDX-License-Identifier: Apache-2.0

package xid

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// summary is an event in short: kind, code, PCI and what else is set.
func summary(e Event) string {
	s := fmt.Sprintf("%s %d %s", e.Kind, e.Code, e.PCI)
	add := func(format string, set bool, v any) {
		if set {
			s += fmt.Sprintf(" "+format, v)
		}
	}
	add("dev=%s", e.Device != "", e.Device)
	add("pid=%d", e.PID != 0, e.PID)
	add("name=%s", e.Process != "", e.Process)
	add("word=%s", e.Word != "", e.Word)
	add("%s", e.Detail, "detail")
	add("to=%s", e.Recovery != "", e.Recovery)
	add("by=%d", e.CausedBy != 0, e.CausedBy)
	if e.Instance != nil {
		s += fmt.Sprintf(" gi=%d", *e.Instance)
	}
	if n := e.NVLink; n != nil {
		s += fmt.Sprintf(" %s %s link=%d regs=%d", n.Unit, n.Word, n.Link, len(n.Registers))
	}
	if !e.Time.IsZero() {
		s += " @" + e.Time.Format(time.RFC3339Nano)
	}
	add("up=%s", e.Uptime != nil, e.Uptime)
	return s
}

var lines = []struct{ line, want string }{
	// The number, over the driver branches.
	{`NVRM: Xid (0000:03:00): 14, Channel 00000001`, `xid 14 00000000:03:00.0`},
	{`NVRM: Xid (0000:01:00): 13, 0005 00000000 0000502d 00000104 00000000 00000100`, `xid 13 00000000:01:00.0`},
	{`NVRM: Xid (0000:01:00): 31, Ch 0000000b, engmask 00000120, intr 10000000`, `xid 31 00000000:01:00.0`},
	{`NVRM: Xid (PCI:0000:01:00): 32, Channel ID 00000005 intr 00008000`, `xid 32 00000000:01:00.0`},
	{`NVRM: Xid (PCI:0000:08:00): 69, Class Error: ChId 003b, Class 0000c197, Offset 00002040, Data 00004b30, ErrorCode 0000000c`, `xid 69 00000000:08:00.0`},
	{`NVRM: Xid (PCI:0000:08:00): 31, Ch 0000003b, intr 10000000. MMU Fault: ENGINE GRAPHICS HUBCLIENT_SCC faulted @ 0x0_04687000.`, `xid 31 00000000:08:00.0`},
	{`NVRM: Xid (PCI:0000:01:00): 62, 0096(1c54) 00000000 00000000`, `xid 62 00000000:01:00.0`},
	{`NVRM: Xid (PCI:0000:10:1c): 63, pid=1896, Row Remapper: New row marked for remapping, reset gpu to activate.`, `xid 63 00000000:10:1C.0 pid=1896`},
	{`NVRM: Xid (PCI:0000:b3:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.`, `xid 79 00000000:B3:00.0`},
	{`NVRM: Xid (PCI:0000:b3:00): 79, pid=0, GPU has fallen off the bus.`, `xid 79 00000000:B3:00.0`},
	{`NVRM: Xid (PCI:0000:b3:00): 79, GPU has fallen off the bus`, `xid 79 00000000:B3:00.0`},
	{`NVRM: Xid (PCI:0000:0f:00): 94, pid=2503421, name=python3, Ch 00000008`, `xid 94 00000000:0F:00.0 pid=2503421 name=python3`},
	{`NVRM: Xid (PCI:0000:0f:00): 64, pid='<unknown>', name=<unknown>, Row Remapper Error: (0x0000000000000080)`, `xid 64 00000000:0F:00.0`},
	{`NVRM: Xid (PCI:0000:0f:00): 48, pid=2503421, name=python3, DBE (double bit error) ECC Error at 0x00000c3b45c0.`, `xid 48 00000000:0F:00.0 pid=2503421 name=python3`},
	{`NVRM: Xid (PCI:0000:0f:00): 95, pid=77, name=nv queue, Uncontained: FBHUB. RST: Yes, D-RST: No`, `xid 95 00000000:0F:00.0 pid=77 name=nv queue`},
	{`NVRM: Xid (PCI:0000:c1:00): 43, pid=4242, name=pt_main_thread, Ch 00000010`, `xid 43 00000000:C1:00.0 pid=4242 name=pt_main_thread`},
	{`NVRM: Xid (PCI:0000:c1:00 GPU-I:07): 43, pid=4242, name=python, Ch 00000010`, `xid 43 00000000:C1:00.0 pid=4242 name=python gi=7`},
	{`NVRM: Xid (PCI:0000:c1:00): 13, pid=9, name=a.out, Graphics SM Warp Exception on (GPC 0, TPC 1, SM 0): Out Of Range Address`, `xid 13 00000000:C1:00.0 pid=9 name=a.out`},
	{`NVRM: Xid (PCI:0000:c1:00): 13, pid='<unknown>', name=<unknown>, Graphics Exception: ESR 0x505730=0xc0b000e`, `xid 13 00000000:C1:00.0`},
	{`NVRM: Xid (PCI:0000:1a:00): 119, pid=812, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x20800a4c 0x4).`, `xid 119 00000000:1A:00.0 pid=812 name=nvidia-smi`},
	{`NVRM: Xid (PCI:0000:1a:00): 120, GSP task exception: misaligned address (cause:0x4) @ pc:0x1000`, `xid 120 00000000:1A:00.0`},
	{`NVRM: Xid (PCI:0000:1a:00): 109, pid=812, name=python3, Ch 00000008, errorString CTX SWITCH TIMEOUT, Info 0x3c046`, `xid 109 00000000:1A:00.0 pid=812 name=python3`},
	{`NVRM: Xid (PCI:0000:1a:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)`, `xid 74 00000000:1A:00.0`},
	{`NVRM: Xid (PCI:0000:1a:00): 92, pid=1234, High single-bit ECC error rate`, `xid 92 00000000:1A:00.0 pid=1234`},
	{`NVRM: Xid (PCI:0000:9b:00): 94, pid=1234, name=python3, Contained: CE User Channel (0x9). RST: No, D-RST: No`, `xid 94 00000000:9B:00.0 pid=1234 name=python3`},
	{`NVRM: Xid (PCI:0000:9b:00): 136, NVLink link 3 training failed`, `xid 136 00000000:9B:00.0`},
	{`NVRM: Xid (PCI:0000:9b:00): 137, RLW_RXPIPE interrupt hit on link 11 on GPU0: PRIV Error`, `xid 137 00000000:9B:00.0`},
	{`NVRM: Xid (PCI:0000:9b:00): 140, pid='<unknown>', name=<unknown>, An uncorrectable ECC error detected (possible firmware handling failure) DRAM:-1840691462, LTC:0, MMU:0, PCIE:0`, `xid 140 00000000:9B:00.0`},
	{`NVRM: Xid (PCI:0000:9b:00): 143, GPU Init Error: Error code 0x6e`, `xid 143 00000000:9B:00.0`},
	{`NVRM: Xid (PCI:0000:9b:00): 163, Power smoothing disengaged`, `xid 163 00000000:9B:00.0`},
	{`NVRM: Xid (PCI:0009:01:00.0): 121, C2C link 0 CRC`, `xid 121 00000009:01:00.0`},
	{`NVRM: Xid (PCI:00000009:01:00): 121, C2C`, `xid 121 00000009:01:00.0`},
	{`NVRM: Xid (PCI:0000:9b:00): 61`, `xid 61 00000000:9B:00.0`},
	{`NVRM: Xid (PCI:0000:9b:00): 999, something new`, `xid 999 00000000:9B:00.0`},
	{`NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149`, `xid 45 00000000:DC:00.0 pid=1818990 name=python3 by=149`},
	// Blackwell links.
	{`NVRM: Xid (PCI:0000:01:00): 144, SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000001 0x00000008 0x00000000 0x00000000 0x00000000 0x00000000)`, `xid 144 00000000:01:00.0 SAW_MVB Nonfatal link=0 regs=6`},
	{`NVRM: Xid (PCI:0018:01:00): 145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x00000001 0x00000000 0x00100000 0x00000004)`, `xid 145 00000018:01:00.0 RLW_RXPIPE Nonfatal link=13 regs=6`},
	{`NVRM: Xid (PCI:0019:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)`, `xid 149 00000019:01:00.0 NETIR Fatal link=-1 regs=6`},
	{`NVRM: Xid (PCI:0000:dc:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)`, `xid 149 00000000:DC:00.0 NETIR_LINK_EVT Fatal link=0 regs=6`},
	{`NVRM: Xid (PCI:0000:dc:00): 145, pid=55, name=python3, RLW_REMAP Nonfatal XC1 i0 Link 08 (0x00000082 0x00000004)`, `xid 145 00000000:DC:00.0 pid=55 name=python3 RLW_REMAP Nonfatal link=8 regs=2`},
	{`NVRM: Xid (PCI:0000:dc:00): 150, MSE text of another form`, `xid 150 00000000:DC:00.0`},
	// The driver's own advice.
	{`NVRM: Xid (PCI:0008:01:00): 154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)`, `xid 154 00000008:01:00.0 to=GPU Reset Required`},
	{`NVRM: Xid (PCI:0000:dc:00): 154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)`, `xid 154 00000000:DC:00.0 to=Node Reboot Required`},
	{`NVRM: Xid (PCI:0000:dc:00): 154, pid=7, name=x, GPU recovery action changed from 0x4 (Drain and Reset) to 0x0 (None)`, `xid 154 00000000:DC:00.0 pid=7 name=x to=None`},
	{`NVRM: Xid (PCI:0000:dc:00): 154, some other text`, `xid 154 00000000:DC:00.0`},
	// Without a number.
	{`NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.`, `off-bus 0 00000000:B3:00.0`},
	{`NVRM: GPU at PCI:0000:b3:00.0 has fallen off the bus.`, `off-bus 0 00000000:B3:00.0`},
	{`NVRM: GPU at 0000:02:00.0 has fallen off the bus.`, `off-bus 0 00000000:02:00.0`},
	{`NVRM: fallen off the bus and is not responding to commands.`, `off-bus 0 `},
	{`4,99,5000000,-;NVRM: The NVIDIA GPU 0000:b3:00.0\x0aNVRM: (PCI ID: 10de:26b5) installed in this system has\x0aNVRM: fallen off the bus and is not responding to commands.`, `off-bus 0 00000000:B3:00.0 up=5s`},
	{`NVRM: GPU 0000:0a:00.0: RmInitAdapter failed! (0x24:0x72:1568)`, `init-failed 0 00000000:0A:00.0`},
	{`NVRM: GPU 0000:0a:00.0: rm_init_adapter failed, device minor number 5`, `init-failed 0 00000000:0A:00.0`},
	{`NVRM: RmInitAdapter failed! (0x26:0xffff:1096)`, `init-failed 0 `},
	{`NVRM: rm_init_adapter(0) failed`, `init-failed 0 `},
	{`NVRM: RmInitAdapter: Cannot initialize GSP firmware RM`, `init-failed 0 `},
	{`NVRM: osInitNvMapping: *** Cannot attach gpu`, `init-failed 0 `},
	// NVSwitch.
	{`nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 12028, Non-fatal, Link 61 egress non-posted PRIV error`, `sxid 12028 00000000:85:00.0 dev=nvidia-nvswitch2 word=Non-fatal`},
	{`nvidia-nvswitch0: SXid (PCI:0000:c4:00.0): 20034, Fatal, Link 30 LTSSM Fault Up`, `sxid 20034 00000000:C4:00.0 dev=nvidia-nvswitch0 word=Fatal`},
	{`[   38.174242] nvidia-nvswitch3: SXid (PCI:0000:04:00.0): 22013, Severity 0 Engine instance 44 Sub-engine instance 00`, `sxid 22013 00000000:04:00.0 dev=nvidia-nvswitch3 detail up=38.174242s`},
	{`kern  :err   : 2025-01-25T10:34:54,859532+00:00 nvidia-nvswitch1: SXid (PCI:0000:84:00.0): 12028, Data {0x000001c0, 0x00bd5c8a}`, `sxid 12028 00000000:84:00.0 dev=nvidia-nvswitch1 detail @2025-01-25T10:34:54.859532Z`},
	// What stands before the message.
	{`[  885.242168] NVRM: Xid (PCI:0000:0a:00): 79, x`, `xid 79 00000000:0A:00.0 up=14m45.242168s`},
	{`[  885.242168][ T1234] NVRM: Xid (PCI:0000:0a:00): 79, x`, `xid 79 00000000:0A:00.0 up=14m45.242168s`},
	{`<4>[  885.242168] NVRM: Xid (PCI:0000:0a:00): 79, x`, `xid 79 00000000:0A:00.0 up=14m45.242168s`},
	{`[Mon Nov 30 19:33:08 2026] NVRM: Xid (PCI:0000:0a:00): 79, x`, `xid 79 00000000:0A:00.0 @2026-11-30T19:33:08Z`},
	{`[Nov30 19:33] NVRM: Xid (PCI:0000:0a:00): 79, x`, `xid 79 00000000:0A:00.0 @0000-11-30T19:33:00Z`},
	{`[  +0.000123] NVRM: Xid (PCI:0000:0a:00): 79, x`, `xid 79 00000000:0A:00.0`},
	{`4,1234,885242168,-;NVRM: Xid (PCI:0000:0a:00): 79, x`, `xid 79 00000000:0A:00.0 up=14m45.242168s`},
	{`6,1234,885242168,-,caller=T77;NVRM: Xid (PCI:0000:0a:00): 79, x`, `xid 79 00000000:0A:00.0 up=14m45.242168s`},
	{`Dec  2 11:49:53 worker4 kernel: [  885.242168] NVRM: GPU 0000:0a:00.0: RmInitAdapter failed! (0x24:0x72:1568)`, `init-failed 0 00000000:0A:00.0 @0000-12-02T11:49:53Z up=14m45.242168s`},
	{`Dec 12 11:49:53 gpu-01.example.net kernel: NVRM: Xid (PCI:0000:0a:00): 79, x`, `xid 79 00000000:0A:00.0 @0000-12-12T11:49:53Z`},
	{`2024-05-01T12:00:00.123456+02:00 gpu1 kernel: [12.000001] NVRM: Xid (PCI:0000:0a:00): 79, x`, `xid 79 00000000:0A:00.0 @2024-05-01T10:00:00.123456Z up=12.000001s`},
	{`2024-05-01T12:00:00+0200 gpu1 kernel: NVRM: Xid (PCI:0000:0a:00): 79, x`, `xid 79 00000000:0A:00.0 @2024-05-01T10:00:00Z`},
	{`Wed 2024-05-01 12:00:00 UTC gpu1 kernel: NVRM: Xid (PCI:0000:0a:00): 79, x`, `xid 79 00000000:0A:00.0 @2024-05-01T12:00:00Z`},
	{`1714557600.250000 gpu1 kernel: NVRM: Xid (PCI:0000:0a:00): 79, x`, `xid 79 00000000:0A:00.0 @2024-05-01T10:00:00.25Z`},
	{`kernel: NVRM: Xid (PCI:0000:0a:00): 79, x`, `xid 79 00000000:0A:00.0`},
	{`{"_TRANSPORT":"kernel","__REALTIME_TIMESTAMP":"1714557600250000","MESSAGE":"NVRM: Xid (PCI:0000:0a:00): 79, x"}`, `xid 79 00000000:0A:00.0 @2024-05-01T10:00:00.25Z`},
	// Forms of other systems: a month in another language, a day without its blank, Talos.
	{`paź  7 06:01:02 wezel3 kernel: NVRM: Xid (PCI:0000:0a:00): 109, pid=7, name=modprobe, channel 0x00000007`, `xid 109 00000000:0A:00.0 pid=7 name=modprobe`},
	{`sept. 28 06:01:02 noeud3 kernel: NVRM: Xid (PCI:0000:0a:00): 62, 22aa 0000`, `xid 62 00000000:0A:00.0`},
	{`12月 05 06:01:02 node3 kernel: NVRM: Xid (PCI:0000:0a:00): 79, x`, `xid 79 00000000:0A:00.0`},
	{`Oct 7 06:01:02 node3 kernel: NVRM: Xid (PCI:0000:0a:00): 79`, `xid 79 00000000:0A:00.0 @0000-10-07T06:01:02Z`},
	{`10.1.2.3: kern: warning: [2026-10-07T06:01:02.250000001Z]: NVRM: Xid (PCI:0000:0a:00): 119, pid=7, name=x, Timeout`, `xid 119 00000000:0A:00.0 pid=7 name=x @2026-10-07T06:01:02.250000001Z`},
	{`kern:    err: [2026-10-07T06:01:02Z]: NVRM: Xid (PCI:0000:0a:00): 79, x`, `xid 79 00000000:0A:00.0 @2026-10-07T06:01:02Z`},
	{`Oct  7 06:01:02 node3 kernel: NVRM: RmInitAdapter: osInitNvMapping failed, bailing out of RmInitAdapter`, `init-failed 0  @0000-10-07T06:01:02Z`},
	{`NVRM: Xid (PCI:0000:0a:00): 45, pid=7, name=Train::Worker, channel 0x00000002`, `xid 45 00000000:0A:00.0 pid=7 name=Train::Worker`},
	{`NVRM: Xid (PCI:0000:0a:00): 119, pid=7, name=nvc:[driver]`, `xid 119 00000000:0A:00.0 pid=7 name=nvc:[driver]`},
	{`{"_TRANSPORT":"kernel","SYSLOG_FACILITY":"0","MESSAGE":[78,86,82,77,58,32,88,105,100,32,40,48,48,48,48,58,48,97,58,48,48,41,58,32,52,51,44,32,112,105,100,61,57,44,32,110,97,109,101,61,255,44,32,120]}`, `xid 43 00000000:0A:00.0 pid=9 name=?`},
	{`{"_TRANSPORT":"kernel","MESSAGE":"NVRM: Xid (PCI:0000:0a:00): 79, x\nNVRM: more"}`, `xid 79 00000000:0A:00.0`},
	{`{"_TRANSPORT":"kernel","MESSAGE":"NVRM: The NVIDIA GPU 0000:0a:00.0\nNVRM: Xid (PCI:0000:0a:00): 79, x"}`, `xid 79 00000000:0A:00.0`},
	{"[    1.000000] NVRM: Xid (PCI:0000:0a:00): 79, x\r\n", `xid 79 00000000:0A:00.0 up=1s`},
}

func TestParse(t *testing.T) {
	if len(lines) < 60 {
		t.Fatalf("only %d lines", len(lines))
	}
	for _, l := range lines {
		e, ok := Parse(l.line)
		if !ok {
			t.Errorf("%s\nnot an event", l.line)
		} else if got := summary(e); got != l.want {
			t.Errorf("%s\ngot  %s\nwant %s", l.line, got, l.want)
		}
	}
}

// TestParseOthers holds that other lines, and messages that the kernel did not
// write, are no events.
func TestParseOthers(t *testing.T) {
	for _, line := range []string{
		"", "\n", "NVRM: ", "NVRM: Xid", "NVRM: Xid (): 79", "NVRM: Xid (PCI:0000:zz:00): 79, x",
		"NVRM: Xid (PCI:0000:0a:00): , x", "NVRM: Xid (PCI:0000:0a:00): 0, x", "NVRM: Xid (PCI:0000:0a:00): 123456, x",
		"NVRM: Xid (PCI:0000:0a:00): 79x", "NVRM: Xid (PCI:0000:0a:00) 79, x",
		"NVRM: GPU at PCI:0000:01:00: GPU-bc0fa0b9-cac2-f507-b715-9bebdb69c71e",
		"NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.195.03  Release Build",
		"NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:26b5)",
		"[   66.499757] BUG: kernel NULL pointer dereference, address: 0000000000000000",
		"nvidia-nvswitch2: SXid (PCI:0000:85:00.0): x, Fatal", "nvidia-nvswitch2: open (major=510)",
		"Dec  2 11:49:53 gpu1 app[77]: NVRM: Xid (PCI:0000:0a:00): 79, forged",
		"Dec  2 11:49:53 gpu1 kernel[77]: NVRM: Xid (PCI:0000:0a:00): 79, forged",
		"Dec  2 11:49:53 gpu1 app: kernel: NVRM: Xid (PCI:0000:0a:00): 79, forged",
		"my log says NVRM: Xid (PCI:0000:0a:00): 79, quoted",
		"user  :err   : [  1.000000] NVRM: Xid (PCI:0000:0a:00): 79, forged",
		"12,1234,885242168,-;NVRM: Xid (PCI:0000:0a:00): 79, forged", "<12>[    1.000000] NVRM: Xid (PCI:0000:0a:00): 79, forged",
		"10.1.2.3: user: warning: [2026-10-07T06:01:02Z]: NVRM: Xid (PCI:0000:0a:00): 79, forged",
		"syslog:err   : [    1.000000] NVRM: Xid (PCI:0000:0a:00): 79, forged",
		`{"_TRANSPORT":"kernel","SYSLOG_FACILITY":"1","MESSAGE":"NVRM: Xid (PCI:0000:0a:00): 79, forged"}`,
		`{"_TRANSPORT":"kernel","MESSAGE":null}`, `{"_TRANSPORT":"kernel","MESSAGE":[78,86,300]}`,
		`{"_TRANSPORT":"stdout","MESSAGE":"NVRM: Xid (PCI:0000:0a:00): 79, forged"}`,
		`{"SYSLOG_IDENTIFIER":"app","MESSAGE":"NVRM: Xid (PCI:0000:0a:00): 79, forged"}`,
		`{"MESSAGE":`, `{"_TRANSPORT":"kernel","MESSAGE":[78,86]}`,
		strings.Repeat(" ", maxLine) + "NVRM: Xid (PCI:0000:0a:00): 79, beyond the limit",
	} {
		if e, ok := Parse(line); ok {
			t.Errorf("%.100q is an event: %s", line, summary(e))
		}
	}
}

func TestParseText(t *testing.T) {
	e, ok := Parse("NVRM: Xid (PCI:0000:0a:00): 43, pid=1, name=\x1b[31mred\xff, " + strings.Repeat("é", 3000))
	if !ok || e.Process != "?[31mred?" || len(e.Text) > maxEventText || strings.Trim(e.Text, "é") != "" || len(e.Text) < 500 {
		t.Errorf("%v %q %d bytes of text", ok, e.Process, len(e.Text))
	}
	e, _ = Parse("NVRM: Xid (PCI:0000:0a:00): 13, pid=9, name=a.out, Graphics SM Warp Exception")
	if e.Text != "Graphics SM Warp Exception" {
		t.Errorf("text %q", e.Text)
	}
}

func TestNormalizePCI(t *testing.T) {
	for in, want := range map[string]string{
		"0000:1a:00.0": "00000000:1A:00.0", "0000:1A:00": "00000000:1A:00.0", "1a:00": "00000000:1A:00.0",
		"1a:00.1": "00000000:1A:00.1", "10000:e1:00.0": "00010000:E1:00.0", "00000009:01:00.0": "00000009:01:00.0",
		"": "", "0000": "", "0000:1a:00.8": "", "0000:1a": "", "g:1a:00": "", "000000000:1a:00": "", ".": "", "::": "",
	} {
		if got, ok := NormalizePCI(in); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v", in, got, ok)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, l := range lines {
		f.Add(l.line)
	}
	c := catalogue(f)
	f.Fuzz(func(t *testing.T, line string) {
		e, ok := Parse(line)
		if !ok {
			if e.Kind != "" || e.PCI != "" || e.Text != "" {
				t.Fatalf("no event and yet %+v", e)
			}
			return
		}
		if e.Kind == "" || (e.Kind == KindXID || e.Kind == KindSXid) && (e.Code <= 0 || e.Code > maxCode || e.PCI == "") {
			t.Fatalf("incomplete: %+v", e)
		}
		if again, ok := NormalizePCI(e.PCI); e.PCI != "" && (!ok || again != e.PCI) {
			t.Fatalf("PCI %q", e.PCI)
		}
		for _, s := range []string{e.Text, e.Process, e.Recovery} {
			if len(s) > maxEventText || printable(s) != s {
				t.Fatalf("text %q", s)
			}
		}
		c.Judge(e)
		if n := len(c.Episodes([]Event{e, e})); n != 1 {
			t.Fatalf("the same event twice is %d episodes", n)
		}
	})
}
