// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"strconv"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
)

// processCollector shows the process under client_golang's names. The collector of
// client_golang reads six files at each scrape, all of /proc/stat among them for the
// time of the boot; on a node with hundreds of cores that costs more than all the rest
// of a page. Here what never changes is read once, the rest takes four system calls,
// and the counters of the whole network are not shown.
type processCollector struct {
	started float64  // Unix time; 0: not known
	statm   *os.File // memory in pages: virtual, resident, ...
}

var (
	descProcessCPU     = processDesc("cpu_seconds_total", "Total user and system CPU time spent in seconds.")
	descProcessRSS     = processDesc("resident_memory_bytes", "Resident memory size in bytes.")
	descProcessVirtual = processDesc("virtual_memory_bytes", "Virtual memory size in bytes.")
	descProcessStart   = processDesc("start_time_seconds", "Start time of the process since unix epoch in seconds.")
	descProcessOpen    = processDesc("open_fds", "Number of open file descriptors.")
	descProcessMax     = processDesc("max_fds", "Maximum number of open file descriptors.")
)

func processDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("process_"+name, help, nil, nil)
}

const (
	userHZ    = 100 // times in /proc are in 1/100 s on every Linux
	statStart = 19  // starttime in /proc/PID/stat, counted from 0 behind the name (proc_pid_stat(5))
)

func newProcessCollector() *processCollector {
	c := &processCollector{started: processStart()}
	c.statm, _ = os.Open("/proc/self/statm") // nil where there is no /proc
	return c
}

// processStart returns when the process started, 0 if it cannot be told.
func processStart() float64 {
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:]) // the name may hold blanks
	system, err := os.ReadFile("/proc/stat")
	if err != nil || len(fields) <= statStart {
		return 0
	}
	_, rest, _ := bytes.Cut(system, []byte("\nbtime "))
	line, _, _ := bytes.Cut(rest, []byte("\n"))
	boot, err := strconv.ParseFloat(string(line), 64)
	ticks, err2 := strconv.ParseFloat(string(fields[statStart]), 64)
	if err != nil || err2 != nil {
		return 0
	}
	return boot + ticks/userHZ
}

// Describe implements prometheus.Collector.
func (c *processCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector. What cannot be read is absent.
func (c *processCollector) Collect(ch chan<- prometheus.Metric) {
	show := func(d *prometheus.Desc, typ prometheus.ValueType, v float64) {
		ch <- prometheus.MustNewConstMetric(d, typ, v)
	}
	var usage syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &usage) == nil {
		show(descProcessCPU, prometheus.CounterValue, float64(usage.Utime.Nano()+usage.Stime.Nano())/1e9)
	}
	if virtual, resident, ok := c.memory(); ok {
		show(descProcessVirtual, prometheus.GaugeValue, virtual)
		show(descProcessRSS, prometheus.GaugeValue, resident)
	}
	if c.started > 0 {
		show(descProcessStart, prometheus.GaugeValue, c.started)
	}
	if n := openFiles(); n > 0 {
		show(descProcessOpen, prometheus.GaugeValue, float64(n))
	}
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		show(descProcessMax, prometheus.GaugeValue, float64(limit.Cur))
	}
}

// memory returns the sizes in bytes.
func (c *processCollector) memory() (virtual, resident float64, ok bool) {
	if c.statm == nil {
		return 0, 0, false
	}
	buf := make([]byte, 128)
	n, _ := c.statm.ReadAt(buf, 0) // io.EOF as well
	fields := bytes.Fields(buf[:n])
	if len(fields) < 2 {
		return 0, 0, false
	}
	pages, err := strconv.ParseFloat(string(fields[0]), 64)
	inMemory, err2 := strconv.ParseFloat(string(fields[1]), 64)
	size := float64(os.Getpagesize())
	return pages * size, inMemory * size, err == nil && err2 == nil
}

// openFiles counts the open files: the size of the folder since Linux 6.2.
func openFiles() int {
	const folder = "/proc/self/fd"
	if info, err := os.Stat(folder); err == nil && info.Size() > 0 {
		return int(info.Size())
	}
	dir, err := os.Open(folder)
	if err != nil {
		return 0
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return 0
	}
	return len(names) - 1 // without that of the folder
}
