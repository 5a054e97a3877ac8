// SPDX-License-Identifier: Apache-2.0

package xid

import (
	"strings"
	"testing"
)

func TestJudge(t *testing.T) {
	const (
		x  = "NVRM: Xid (PCI:0000:0f:00): "
		sx = "nvidia-nvswitch0: SXid (PCI:0000:0f:00.0): "
		re = "154, GPU recovery action changed from 0x0 (None) to "
	)
	for _, tc := range []struct{ line, driver, want string }{
		{x + "79, gone", "", "critical DRAIN_REBOOT CHECK_POWER_PCIE"},
		{x + "999, new", "", " "},
		{x + "5, unused", "", " "},
		{x + re + "0x1 (GPU Reset Required)", "", "critical RESET_GPU"},
		{x + re + "0x1 (Node Reboot Required)", "", "critical DRAIN_REBOOT"},
		{x + re + "0x2 (Node Reboot Required)", "", "critical DRAIN_REBOOT"},
		{x + re + "0x4 (Drain and Reset)", "", "critical RESET_GPU"},
		{x + re + "0x3 (Drain P2P)", "", "error CHECK_APP"},
		{x + re + "0x0 (None)", "", "info NONE"},
		{x + re + "0x9 (Something New)", "", "error RESET_GPU"},
		{sx + "12028, Non-fatal, Link 61 x", "", "warning CHECK_FABRIC"},
		{sx + "12028, Fatal, Link 61 x", "", "critical CHECK_FABRIC"},
		{sx + "12028, Data {0x1}", "", "warning CHECK_FABRIC"},
		{sx + "20034, Fatal, Link 30", "", "critical CHECK_FABRIC"},
		{sx + "20034, Data {0x1}", "", " "},
		{"NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.", "", "critical DRAIN_REBOOT CHECK_POWER_PCIE"},
		{"NVRM: GPU 0000:b3:00.0: RmInitAdapter failed! (0x1:0x2:3)", "", "critical DRAIN_REBOOT"},
		// The registers: status 8 of SAW is harmless, status 2 is not.
		{x + "144, SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000001 0x00000008)", "575.57.08", "warning NONE"},
		{x + "144, SAW_MVB Nonfatal XC0 i0 Link 0 (0x00000021 0x00000002)", "570.124.06", "critical RESET_GPU"},
		// The ten bits of an old driver read by a new one name no unit: the word decides.
		{x + "145, RLW_REMAP Nonfatal XC0 i0 Link 0 (0x00000082 0x00000004)", "570.124.06", "error CHECK_FABRIC"},
		{x + "145, RLW_REMAP Nonfatal XC0 i0 Link 0 (0x00000082 0x00000004)", "580.10", "warning NONE"},
		{x + "145, RLW_REMAP Nonfatal XC0 i0 Link 0 (0x00000004 0x00000004)", "580.10", "error CHECK_FABRIC"},
		{x + "145, RLW_REMAP Nonfatal XC0 i0 Link 0 (0x00000004 0x00000004)", "570.1", "warning NONE"},
		{x + "145, RLW_REMAP Nonfatal XC0 i0 Link 0 (0x00000004 0x00000004)", "", "error CHECK_FABRIC"},
		{x + "145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x1)", "", "warning NONE"},
		{x + "145, RLW_RXPIPE Fatal XC0 i0 Link 13 (0x000004c2 0x00000001 0x1)", "570.1", "critical RESET_GPU"},
		{x + "145, RLW_RXPIPE Fatal XC0 i0 Link 13 (0x000000c2 0x00000001 0x1)", "570.1", "warning NONE"},
		{x + "149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x00000000)", "", "warning CHECK_FABRIC"},
		{x + "149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000)", "", "critical RESET_GPU CHECK_FABRIC"},
		{x + "149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x03f001c6 0x00000000)", "", "critical RESET_GPU"},
		{x + "149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000)", "570.1", "critical RESET_GPU"},
		{x + "149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000) peer thermal event", "", "critical RESET_GPU CHECK_FABRIC CHECK_COOLING"},
		{x + "149, NEW_UNIT Nonfatal XC0 i0 Link 1 (0x1 0x0)", "", "warning NONE"},
		{x + "149, NEW_UNIT Fatal XC0 i0 Link 1 (0x1)", "", "critical RESET_GPU"},
		{x + "149, text of another form", "", "error RESET_GPU"},
	} {
		e, ok := Parse(tc.line)
		if !ok {
			t.Errorf("%s: no event", tc.line)
			continue
		}
		e.Driver = tc.driver
		v := catalogue(t).Judge(e)
		if got := string(v.Severity) + " " + strings.Join(v.Action, " "); got != tc.want || v.Known == strings.HasPrefix(v.Name, "unknown") {
			t.Errorf("%s %s: %s (%s, %v), want %s", tc.line, tc.driver, got, v.Name, v.Known, tc.want)
		}
	}
}

func TestBranch(t *testing.T) {
	for in, want := range map[string]int{"570.124.06": 570, "R575": 575, "580": 580, "": 0, "x.1": 0, "-1.2": 0} {
		if got := branch(in); got != want {
			t.Errorf("%q: %d", in, got)
		}
	}
}
