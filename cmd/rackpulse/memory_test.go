// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestDropFilePages: the process has fewer pages of its program file afterwards,
// and runs on.
func TestDropFilePages(t *testing.T) {
	before := filePages(t)
	dropFilePages()
	if after := filePages(t); after >= before {
		t.Errorf("%d KiB of files are mapped, before %d", after, before)
	}
}

// filePages is what /proc tells of the files' pages in the process, in KiB.
func filePages(t *testing.T) int {
	t.Helper()
	data, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(data), "RssFile:")
	var kib int
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib
}

func TestAddresses(t *testing.T) {
	for text, want := range map[string][2]uintptr{
		"00400000-0242c000":         {0x400000, 0x242c000},
		"7fff00000000-7fff00021000": {0x7fff00000000, 0x7fff00021000},
		"":                          {}, "-": {}, "400000": {}, "2000-1000": {}, "x-y": {},
	} {
		from, to, ok := addresses(text)
		if !ok {
			from, to = 0, 0
		}
		if from != want[0] || to != want[1] {
			t.Errorf("%q: %x %x", text, from, to)
		}
	}
}
