// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func runXID(t *testing.T, in string, args ...string) (int, string, string) {
	t.Helper()
	var out, err bytes.Buffer
	code := execute(t.Context(), append([]string{"xid"}, args...), stdio{strings.NewReader(in), &out, &err})
	return code, out.String(), err.String()
}

const xid79 = `XID 79: GPU has fallen off the bus (critical)
  meaning     The driver can no longer reach the GPU over PCI Express. Power, heat, the slot or riser, the link or the GPU itself can be the cause.
  do          DRAIN_REBOOT: Drain the node and reboot it; where the notes say cold, switch the power off and on.
              CHECK_POWER_PCIE: Look at the power of that minute (PDU, feed, power brake), the auxiliary connectors, the riser and the PCIe errors.
  repeated    RMA_REVIEW: Collect nvidia-bug-report and serial number; decide on a replacement with the vendor.
  NVIDIA      RESTART_BM, then CONTACT_SUPPORT
  notes       Look at feed, PDU and inlet of the minutes before. A second one in 7 days is a case for replacement. Some drivers write it without a number.
  sources     NVIDIA Xid catalogue, docs.nvidia.com/deploy/xid-errors
              NVSentinel, health monitors and analyzer rules
              Amazon EKS node monitoring agent, fatal XIDs
              Azure HPC node health checks, fatal XIDs
              gpud, accelerator/nvidia/xid
              DCGM health watches, XID mapping
`

func TestXIDExplain(t *testing.T) {
	if code, out, err := runXID(t, "", "79"); code != 0 || out != xid79 || err != "" {
		t.Errorf("status %d\n%s%s", code, out, err)
	}
	code, out, _ := runXID(t, "", "13", "3")
	if code != 0 || !strings.Contains(out, "usually the application") || !strings.Contains(out, "\nXID 3: unknown to this catalogue") {
		t.Errorf("status %d\n%s", code, out)
	}
	if code, out, _ := runXID(t, "", "3"); code != 2 || !strings.Contains(out, "unknown") {
		t.Errorf("unknown: status %d\n%s", code, out)
	}
	if code, out, _ := runXID(t, "", "--sxid", "12028"); code != 0 || !strings.HasPrefix(out, "SXid 12028: ") {
		t.Errorf("SXid: status %d\n%s", code, out)
	}
	code, out, _ = runXID(t, "", "--json", "79", "3")
	var got []explained
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatalf("status %d: %v\n%s", code, err, out)
	}
	if len(got) != 2 || !got[0].Known || got[0].Entry.Severity != "critical" || got[1].Known || got[1].Entry != nil {
		t.Errorf("%+v", got)
	}
}

const xidLog = `[    3.000000] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.195.03  Release Build
[  100.000000] NVRM: Xid (PCI:0000:0f:00): 48, pid=77, name=python3, DBE (double bit error) ECC Error
[  100.020000] NVRM: Xid (PCI:0000:0f:00): 63, pid=77, Row Remapper: New row marked for remapping
[  100.040000] eth0: link up
[  100.050000] NVRM: Xid (PCI:0000:0f:00): 45, pid=77, name=python3, Ch 00000008
[  500.000000] NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.
[  600.000000] nvidia-nvswitch2: SXid (PCI:0000:85:00.0): 22013, Non-fatal, Link 44 Minion Link DLREQ interrupt
`

const xidDecoded = `+100.000s  00000000:0F:00.0  XID 48  critical  Uncorrectable ECC error: RESET_GPU [python3 77]: DBE (double bit error) ECC Error
+100.020s  00000000:0F:00.0  XID 63  warning  Memory row remapped: NONE [pid 77]: Row Remapper: New row marked for remapping
+100.050s  00000000:0F:00.0  XID 45  info  Clean-up after an earlier error: NONE [python3 77]: Ch 00000008
+500.000s  00000000:B3:00.0  off-bus  critical  GPU has fallen off the bus: DRAIN_REBOOT CHECK_POWER_PCIE: GPU 0000:b3:00.0: GPU has fallen off the bus.
+600.000s  00000000:85:00.0 nvidia-nvswitch2  SXid 22013  warning  unknown SXid 22013: CHECK_FABRIC: Non-fatal, Link 44 Minion Link DLREQ interrupt

5 events in 3 episodes
FROM       TO         GPU                                CAUSE       SEVERITY  DO                             LINES
+100.000s  +100.050s  00000000:0F:00.0                   XID 48      critical  RESET_GPU                      XID 48 x1, XID 63 x1, XID 45 x1
+500.000s  +500.000s  00000000:B3:00.0                   off-bus     critical  DRAIN_REBOOT CHECK_POWER_PCIE  XID 79 x1
+600.000s  +600.000s  00000000:85:00.0 nvidia-nvswitch2  SXid 22013  warning   CHECK_FABRIC                   SXid 22013 x1
`

func TestXIDLog(t *testing.T) {
	file := filepath.Join(t.TempDir(), "dmesg")
	if err := os.WriteFile(file, []byte(xidLog), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"-", file} {
		if code, out, err := runXID(t, xidLog, "--log", from); code != 0 || out != xidDecoded {
			t.Errorf("%s: status %d\n%s%s", from, code, out, err)
		}
	}
	if code, out, _ := runXID(t, "[ 1.000000] eth0: link up\n", "--log", "-"); code != 2 || out != "no XID in 1 lines\n" {
		t.Errorf("nothing: status %d\n%s", code, out)
	}
	code, out, _ := runXID(t, xidLog, "--log", "-", "--json")
	var got struct {
		Lines    int
		Events   []decoded
		Episodes []episode
	}
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatalf("status %d: %v\n%s", code, err, out)
	}
	if got.Lines != 7 || len(got.Events) != 5 || len(got.Episodes) != 3 || got.Events[0].PID != 77 || got.Events[0].Driver != "570.195.03" || got.Episodes[1].Verdict.Severity != "critical" {
		t.Errorf("%+v", got)
	}
	code, out, _ = runXID(t, "", "--log", "-", "--json")
	if code != 2 || !strings.Contains(out, `"events": []`) || !strings.Contains(out, `"episodes": []`) {
		t.Errorf("empty: status %d\n%s", code, out)
	}
}

func TestXIDOverrides(t *testing.T) {
	file := filepath.Join(t.TempDir(), "own.yml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("xid:\n  63: {severity: critical, action: [DRAIN_DIAG]}\n")
	code, out, err := runXID(t, "", "63", "--site-overrides", file)
	if code != 0 || !strings.HasPrefix(out, "XID 63: Memory row remapped (critical)\n") || !strings.Contains(out, "changed by  "+file) {
		t.Errorf("status %d\n%s%s", code, out, err)
	}
	code, out, _ = runXID(t, xidLog, "--log", "-", "--site-overrides", file)
	if code != 0 || !strings.Contains(out, "XID 63  critical  Memory row remapped: DRAIN_DIAG") {
		t.Errorf("log: status %d\n%s", code, out)
	}
	write("xid:\n  63: {sevrity: critical}\n")
	if code, _, err := runXID(t, "", "63", "--site-overrides", file); code != 1 || !strings.Contains(err, file+":2: xid 63: unknown field") {
		t.Errorf("mistake: status %d, %s", code, err)
	}
}

func TestXIDErrors(t *testing.T) {
	for want, args := range map[string][]string{
		"give either codes or --log": {},
		`"x" is no code`:             {"x"},
		"no such file":               {"--log", filepath.Join(t.TempDir(), "none")},
		"give either codes":          {"--log", "-", "79"},
		"none.yml: no such":          {"79", "--site-overrides", "none.yml"},
		`"99999999999" is no code`:   {"99999999999"},
	} {
		if code, out, err := runXID(t, "", args...); code != 1 || !strings.Contains(err, want) || out != "" {
			t.Errorf("%v: status %d, %s%s", args, code, out, err)
		}
	}
}
