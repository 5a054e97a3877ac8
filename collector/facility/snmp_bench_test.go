// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-kit/log"

	"github.com/rackpulse/rackpulse/collector"
)

const agentsVar = "RACKPULSE_TEST_SNMP_AGENTS"

// TestSNMPAgents is the other process of BenchmarkSNMPDevices: as many agents
// as the environment says. It ends with its standard input.
func TestSNMPAgents(t *testing.T) {
	n, err := strconv.Atoi(os.Getenv(agentsVar))
	if err != nil {
		return
	}
	for i := range n {
		profile := benchProfile(i)
		walk := walkFile(t, profile)
		if profile == "if-mib" {
			walk = manyPorts(48)
		}
		fmt.Println("agent", newAgent(t, walk).address(), profile)
	}
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
}

// benchProfile mixes the devices: of ten, seven APC PDUs, two Raritan PDUs and a
// switch with 48 ports.
func benchProfile(i int) string {
	switch i % 10 {
	case 0:
		return "if-mib"
	case 1, 2:
		return "raritan-pdu2"
	}
	return "apc-rpdu2"
}

func manyPorts(n int) string {
	var b strings.Builder
	b.WriteString("1.3.6.1.2.1.1.3.0|67|100000\n")
	for i := 1; i <= n; i++ {
		fmt.Fprintf(&b, "1.3.6.1.2.1.31.1.1.1.1.%d|4|Ethernet%d\n1.3.6.1.2.1.31.1.1.1.15.%d|66|100000\n", i, i, i)
		fmt.Fprintf(&b, "1.3.6.1.2.1.31.1.1.1.6.%d|70|%d\n1.3.6.1.2.1.31.1.1.1.10.%d|70|%d\n", i, 1000*i, i, 2000*i)
		for column, v := range map[int]string{3: "2|6", 8: "2|1", 9: "67|5000", 10: "65|1", 13: "65|1", 14: "65|1", 16: "65|1", 19: "65|1", 20: "65|1"} {
			fmt.Fprintf(&b, "%s%d.%d|%s\n", ifTable, column, i, v)
		}
	}
	return b.String()
}

// startAgents starts the other process and returns address and profile of each
// agent.
func startAgents(b *testing.B, n int) [][]string {
	cmd := exec.Command(os.Args[0], "-test.run=^TestSNMPAgents$", "-test.timeout=30m")
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", agentsVar, n))
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		b.Fatal(err1, err2)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { stdin.Close(); _ = cmd.Wait() })
	var list [][]string
	for lines := bufio.NewScanner(stdout); lines.Scan() && lines.Text() != "ready"; {
		if f := strings.Fields(lines.Text()); len(f) == 3 && f[0] == "agent" {
			list = append(list, f[1:])
		}
	}
	if len(list) != n {
		b.Fatalf("%d agents of %d", len(list), n)
	}
	return list
}

// BenchmarkSNMPDevices reads 500 devices every 15 s, one of them dead, for four
// intervals and shows what the reading process needs and how old values get.
func BenchmarkSNMPDevices(b *testing.B) {
	const n, interval = 500, 15 * time.Second
	var text strings.Builder
	text.WriteString("facility:\n")
	community := communityFile(b)
	for i, a := range append(startAgents(b, n-1), []string{"127.0.0.1:9", "apc-rpdu2"}) {
		fmt.Fprintf(&text, "- {device: d%d, driver: snmp, profile: %s, address: '%s', snmp: {community_file: %s}}\n", i, a[1], a[0], community)
	}
	for range b.N {
		store := collector.NewStore()
		r, err := New(entries(b, text.String()), Deps{Store: store, Logger: log.NewNopLogger()})
		if err != nil {
			b.Fatal(err)
		}
		ctx, cancel := context.WithCancel(b.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.Run(ctx) }()
		time.Sleep(interval) // the first read also looks up the rows
		before, start := cpuTime(b), time.Now()
		var ages []float64
		for time.Since(start) < 4*interval {
			time.Sleep(time.Second)
			ages = append(ages, sampleAges(b, store)...)
		}
		b.ReportMetric((cpuTime(b)-before).Seconds()/time.Since(start).Seconds(), "cores")
		b.ReportMetric(residentMiB(b), "MiB")
		slices.Sort(ages)
		b.ReportMetric(ages[len(ages)*99/100], "s-age-p99")
		b.ReportMetric(float64(len(ages))/float64(4*interval/time.Second), "devices")
		cancel()
		<-done
	}
}

// sampleAges returns the age of the latest sample of each device.
func sampleAges(b *testing.B, store *collector.Store) []float64 {
	families, err := store.Gather()
	if err != nil {
		b.Fatal(err)
	}
	now := float64(time.Now().UnixMilli()) / 1000
	var ages []float64
	for _, f := range families {
		if f.GetName() == descLastSample.Name {
			for _, m := range f.GetMetric() {
				ages = append(ages, now-m.GetGauge().GetValue())
			}
		}
	}
	return ages
}

func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// residentMiB is the memory of this process.
func residentMiB(b *testing.B) float64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Fatal(err)
	}
	var size, resident float64
	if _, err := fmt.Sscan(string(data), &size, &resident); err != nil {
		b.Fatal(err)
	}
	return resident * float64(os.Getpagesize()) / (1 << 20)
}
