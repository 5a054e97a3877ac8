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
// client_golang reads all of /proc/stat at each scrape, for the time of the boot; on a
// node with hundreds of cores that costs more than all the rest of a page. What never
// changes is read once here, and the counters of the whole network are not shown.
type processCollector struct {
	started float64 // Unix time; 0: not known
	self    string  // /proc/self
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

// userHZ is the unit of times in /proc, 1/100 s on every Linux.
const userHZ = 100

// Fields of /proc/PID/stat behind the name, from 0 (proc_pid_stat(5)).
const (
	statUser    = 11
	statSystem  = 12
	statStart   = 19
	statVirtual = 20
	statRSS     = 21
)

func newProcessCollector() *processCollector {
	c := &processCollector{self: "/proc/self"}
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		return c
	}
	if _, rest, ok := bytes.Cut(data, []byte("\nbtime ")); ok {
		line, _, _ := bytes.Cut(rest, []byte("\n"))
		if boot, err := strconv.ParseFloat(string(line), 64); err == nil {
			if fields := c.stat(); fields != nil {
				c.started = boot + number(fields[statStart])/userHZ
			}
		}
	}
	return c
}

// Describe implements prometheus.Collector.
func (c *processCollector) Describe(ch chan<- *prometheus.Desc) { prometheus.DescribeByCollect(c, ch) }

// Collect implements prometheus.Collector. What cannot be read is absent.
func (c *processCollector) Collect(ch chan<- prometheus.Metric) {
	show := func(d *prometheus.Desc, typ prometheus.ValueType, v float64) {
		ch <- prometheus.MustNewConstMetric(d, typ, v)
	}
	if fields := c.stat(); fields != nil {
		show(descProcessCPU, prometheus.CounterValue, (number(fields[statUser])+number(fields[statSystem]))/userHZ)
		show(descProcessVirtual, prometheus.GaugeValue, number(fields[statVirtual]))
		show(descProcessRSS, prometheus.GaugeValue, number(fields[statRSS])*float64(os.Getpagesize()))
	}
	if c.started > 0 {
		show(descProcessStart, prometheus.GaugeValue, c.started)
	}
	if dir, err := os.Open(c.self + "/fd"); err == nil {
		names, err := dir.Readdirnames(-1)
		dir.Close()
		if err == nil {
			show(descProcessOpen, prometheus.GaugeValue, float64(len(names)-1)) // without that of the folder
		}
	}
	var limit syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit) == nil {
		show(descProcessMax, prometheus.GaugeValue, float64(limit.Cur))
	}
}

// stat returns the fields of /proc/self/stat behind the name, which may hold blanks.
func (c *processCollector) stat() [][]byte {
	data, err := os.ReadFile(c.self + "/stat")
	if err != nil {
		return nil
	}
	fields := bytes.Fields(data[bytes.LastIndexByte(data, ')')+1:])
	if len(fields) <= statRSS {
		return nil
	}
	return fields
}

func number(b []byte) float64 {
	v, _ := strconv.ParseFloat(string(b), 64) // 0 if the kernel wrote anything else
	return v
}
