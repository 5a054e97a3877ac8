// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// The garbage collector's percentage: an agent has a heap of a few MiB and a
// simulated hall one of a GiB, and both have time to look at it more often.
// GOGC in the environment wins.
const leanPercent = 40

// settled is when a process has read its configuration, opened its sources and
// answered scrapes.
const settled = time.Minute

// lean keeps the memory of the process small: less garbage, and, once the process
// has settled, none of the program file's pages that only the start needed. Those
// that it goes on to use come back from the page cache. stop ends the wait.
func lean() (stop func()) {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(leanPercent)
	}
	t := time.AfterFunc(settled, func() {
		debug.FreeOSMemory()
		dropFilePages()
	})
	return func() { t.Stop() }
}

// dropFilePages takes the pages of the program file that are only read, code and
// constants, out of the process. Pages that the dynamic linker wrote to before it
// made them read-only are no longer the file's and stay, as all do after an error.
func dropFilePages() {
	exe, err := os.Executable()
	if err != nil {
		return
	}
	f, err := os.Open("/proc/self/smaps")
	if err != nil {
		return
	}
	defer f.Close()
	from, to, clean := uintptr(0), uintptr(0), false
	for lines := bufio.NewScanner(f); lines.Scan(); {
		m := strings.Fields(lines.Text())
		switch {
		case len(m) >= 5 && strings.Contains(m[0], "-"):
			// 00400000-0242c000 r-xp 00000000 fe:00 1234 /usr/bin/rackpulse
			from, to, clean = addresses(m[0])
			clean = clean && len(m) == 6 && m[5] == exe && strings.HasPrefix(m[1], "r-")
		case clean && len(m) == 3 && m[0] == "Anonymous:" && m[1] == "0":
			_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, from, to-from, syscall.MADV_DONTNEED) // advice only
		}
	}
}

// addresses parses a range of /proc/self/maps.
func addresses(text string) (from, to uintptr, ok bool) {
	a, b, _ := strings.Cut(text, "-")
	x, err := strconv.ParseUint(a, 16, 64)
	y, err2 := strconv.ParseUint(b, 16, 64)
	return uintptr(x), uintptr(y), err == nil && err2 == nil && x < y
}
