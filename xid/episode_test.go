// SPDX-License-Identifier: Apache-2.0

package xid

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

// scan reads a log; the zero time leaves dates without a year alone.
func scan(t *testing.T, log string, now time.Time) []Event {
	t.Helper()
	s := NewScanner(strings.NewReader(log), now)
	var out []Event
	for s.Scan() {
		out = append(out, s.Event())
	}
	if s.Err() != nil {
		t.Fatal(s.Err())
	}
	return out
}

// short is an episode as "cause/worst do: counts".
func (c *Catalogue) short(ep Episode) string {
	s := fmt.Sprintf("%d/%d %s:", codeOf(ep.Cause), codeOf(ep.Worst), strings.Join(c.JudgeEpisode(ep).Action, "+"))
	if ep.Consequence {
		s = "after " + s
	}
	for _, n := range ep.Counts {
		s += fmt.Sprintf(" %dx%d", n.Code, n.Lines)
	}
	return s
}

func TestEpisodes(t *testing.T) {
	at := func(s, pci, rest string) string {
		return "2026-03-01T" + s + "Z gpu1 kernel: NVRM: Xid (PCI:0000:" + pci + ":00): " + rest + "\n"
	}
	for name, tc := range map[string]struct {
		log  string
		want []string
	}{
		"48, 63, 94 and their clean-up are one": {
			at("10:00:00.000", "0f", "48, DBE") + at("10:00:00.023", "0f", "63, row") + at("10:00:00.048", "0f", "94, pid=1, name=a, Contained") + at("10:00:00.1", "0f", "45, pid=1, name=a, Ch 1"),
			[]string{"48/48 RESET_GPU: 48x1 63x1 94x1 45x1"},
		},
		"two GPUs are two": {
			at("10:00:00", "0f", "48, DBE") + at("10:00:01", "1f", "48, DBE"),
			[]string{"48/48 RESET_GPU: 48x1", "48/48 RESET_GPU: 48x1"},
		},
		"60 s apart are one, 61 s are two": {
			at("10:00:00", "0f", "31, a") + at("10:01:00", "0f", "32, a") + at("10:02:01", "0f", "13, a"),
			[]string{"31/32 CHECK_APP: 31x1 32x1", "13/13 CHECK_APP: 13x1"},
		},
		"an equal code within a day is one": {
			at("10:00:00", "0f", "74, a") + at("12:00:00", "0f", "31, a") + at("14:00:00", "0f", "74, a"),
			[]string{"74/74 RESET_GPU: 74x2", "31/31 CHECK_APP: 31x1"},
		},
		"after a day it is another": {
			at("10:00:00", "0f", "74, a") + strings.Replace(at("10:00:01", "0f", "74, a"), "03-01", "03-02", 1),
			[]string{"74/74 RESET_GPU: 74x1", "74/74 RESET_GPU: 74x1"},
		},
		"45 before its cause": {
			at("10:00:00", "0f", "45, pid=1, name=a, Ch 1") + at("10:00:01", "0f", "79, gone"),
			[]string{"79/79 DRAIN_REBOOT+CHECK_POWER_PCIE: 45x1 79x1"},
		},
		"43 alone": {
			at("10:00:00", "0f", "43, pid=1, name=a, Ch 1"),
			[]string{"after 43/43 CHECK_APP: 43x1"},
		},
		"the driver's text decides": {
			at("10:00:00", "0f", "119, x") + at("10:00:01", "0f", "154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
			[]string{"119/119 DRAIN_REBOOT: 119x1 154x1"},
		},
		"the worst decides over the first": {
			at("10:00:00", "0f", "31, x") + at("10:00:01", "0f", "79, x"),
			[]string{"31/79 DRAIN_REBOOT+CHECK_POWER_PCIE: 31x1 79x1"},
		},
		"79 with and without number are equal": {
			at("10:00:00", "0f", "79, x") + "2026-03-01T11:00:00Z gpu1 kernel: NVRM: GPU 0000:0f:00.0: GPU has fallen off the bus.\n",
			[]string{"79/79 DRAIN_REBOOT+CHECK_POWER_PCIE: 79x2"},
		},
		"another boot": {
			"[ 9000.000000] NVRM: Xid (PCI:0000:0f:00): 79, x\n[   10.000000] NVRM: Xid (PCI:0000:0f:00): 79, x\n",
			[]string{"79/79 DRAIN_REBOOT+CHECK_POWER_PCIE: 79x1", "79/79 DRAIN_REBOOT+CHECK_POWER_PCIE: 79x1"},
		},
		"without times the order is all there is": {
			"NVRM: Xid (PCI:0000:0f:00): 48, x\nNVRM: Xid (PCI:0000:0f:00): 45, x\n",
			[]string{"48/48 RESET_GPU: 48x1 45x1"},
		},
	} {
		c := catalogue(t)
		var got []string
		for _, ep := range c.Episodes(scan(t, tc.log, time.Time{})) {
			got = append(got, c.short(ep))
		}
		if strings.Join(got, "\n") != strings.Join(tc.want, "\n") {
			t.Errorf("%s:\ngot  %q\nwant %q", name, got, tc.want)
		}
	}
}

func TestEpisodesOfAStorm(t *testing.T) {
	var b strings.Builder
	for i := range 8462 {
		fmt.Fprintf(&b, "[%8d.000000] NVRM: Xid (PCI:0000:0f:00): 74, pid=1, link\n", i*10)
	}
	got := catalogue(t).Episodes(scan(t, b.String(), time.Time{}))
	if len(got) != 1 || got[0].Counts[0].Lines != 8462 {
		t.Errorf("%d episodes", len(got))
	}
}

func TestScanner(t *testing.T) {
	now := time.Date(2026, 1, 10, 0, 0, 0, 0, time.UTC)
	events := scan(t, strings.Join([]string{
		"Dec 31 23:59:59 gpu1 kernel: NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.195.03  Release Build",
		"Dec 31 23:59:59 gpu1 kernel: NVRM: The NVIDIA GPU 0000:b3:00.0",
		"Dec 31 23:59:59 gpu1 kernel: NVRM: (PCI ID: 10de:26b5) installed in this system has",
		"Dec 31 23:59:59 gpu1 kernel: NVRM: fallen off the bus and is not responding to commands.",
		strings.Repeat("x", 3*maxLine),
		"Jan  1 00:00:00 gpu1 kernel: NVRM: Xid (PCI:0000:0f:00): 45, " + strings.Repeat("y", 3*maxLine),
		"Jan  1 00:00:01 gpu1 kernel: NVRM: fallen off the bus and is not responding to commands.",
	}, "\n"), now)
	want := []string{
		"off-bus 0 00000000:B3:00.0 @2025-12-31T23:59:59Z",
		"xid 45 00000000:0F:00.0 @2026-01-01T00:00:00Z",
		"off-bus 0  @2026-01-01T00:00:01Z", // its GPU was named for the message before
	}
	if len(events) != len(want) {
		t.Fatalf("%d events", len(events))
	}
	for i, e := range events {
		if summary(e) != want[i] || e.Driver != "570.195.03" {
			t.Errorf("got %s of %s, want %s", summary(e), e.Driver, want[i])
		}
	}
}

func TestScannerError(t *testing.T) {
	s := NewScanner(io.MultiReader(strings.NewReader("NVRM: Xid (PCI:0000:0f:00): 45, x\n"), broken{}), time.Time{})
	if !s.Scan() || s.Scan() || s.Err() != io.ErrClosedPipe || s.Lines() != 1 {
		t.Errorf("%v after %d lines", s.Err(), s.Lines())
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrClosedPipe }
