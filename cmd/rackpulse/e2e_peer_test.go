// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/testtool"
)

// contender is one program that the comparison scrapes.
type contender struct {
	name   string
	url    string
	gzip   bool
	pids   []int
	client *http.Client

	took   []time.Duration
	cpu    float64 // seconds in the windows in which it was scraped
	quiet  float64 // seconds in the windows in which it was not
	series int
}

const (
	peerScrapes = 100 // in one window
	peerPace    = 50 * time.Millisecond
)

// BenchmarkPeerScrape compares the agent with dcgm-exporter: the same DCGM with 8 GPUs
// at 1 s and the same counters, and one rack on top for the agent. An iteration scrapes
// each of them 100 times at 20 a second, in turn. What a program takes while another
// one is scraped is its sampling, which is not part of a scrape.
func BenchmarkPeerScrape(b *testing.B) {
	all := startContenders(b)
	last := map[*contender]float64{}
	for _, c := range all {
		c.scrape(b)
		c.took = nil
		last[c] = statSeconds(b, c.pids)
	}
	windows := 0
	for b.Loop() {
		windows++
		for _, turn := range all {
			for range peerScrapes {
				turn.scrape(b)
				time.Sleep(peerPace)
			}
			for _, c := range all {
				now := statSeconds(b, c.pids)
				switch {
				case c == turn:
					c.cpu += now - last[c]
				case c.url != turn.url: // the two ways to scrape the agent are one process
					c.quiet += now - last[c]
				}
				last[c] = now
			}
		}
	}
	peer := 0.0
	for _, c := range all {
		// The peer is quiet in two windows of three, the agent in one.
		quietWindows := map[bool]float64{true: 2, false: 1}[c == all[0]]
		perScrape := 1000 * (c.cpu - c.quiet/quietWindows) / float64(windows*peerScrapes)
		b.ReportMetric(perScrape, c.name+"-cpu-ms/scrape")
		peer = cmp.Or(peer, perScrape)
		b.ReportMetric(perScrape/peer, c.name+"-ratio")
		slices.Sort(c.took)
		b.ReportMetric(float64(c.took[len(c.took)/2].Microseconds())/1000, c.name+"-p50-ms")
		b.ReportMetric(float64(c.took[len(c.took)*99/100].Microseconds())/1000, c.name+"-p99-ms")
		b.ReportMetric(float64(c.series), c.name+"-series")
	}
}

// BenchmarkPeerSteady compares the two as Prometheus sees them: an iteration is a
// scrape of each every 15 s. It reports the share of a core over all of it, and the
// summed PSS after the first and after the last scrape.
func BenchmarkPeerSteady(b *testing.B) {
	all := startContenders(b)
	all = []*contender{all[0], all[2]} // Prometheus asks for gzip
	begin, pss := map[*contender]float64{}, map[*contender]float64{}
	for _, c := range all {
		c.scrape(b)
		begin[c], pss[c] = statSeconds(b, c.pids), pssMiB(b, c.pids)
	}
	started := time.Now()
	for n := 1; b.Loop(); n++ {
		time.Sleep(time.Until(started.Add(time.Duration(n) * 15 * time.Second)))
		for _, c := range all {
			c.scrape(b)
		}
	}
	for _, c := range all {
		b.ReportMetric(100*(statSeconds(b, c.pids)-begin[c])/time.Since(started).Seconds(), c.name+"-%core")
		b.ReportMetric(pss[c], c.name+"-PSS-MiB-first")
		b.ReportMetric(pssMiB(b, c.pids), c.name+"-PSS-MiB-last")
	}
}

// startContenders starts both programs; RACKPULSE_PEER names dcgm-exporter and
// RACKPULSE_DCGM the folder of a libdcgm.so.4 other than the stand-in.
func startContenders(b *testing.B) []*contender {
	b.Helper()
	binary := os.Getenv("RACKPULSE_PEER")
	if binary == "" {
		b.Fatal("RACKPULSE_PEER must name a dcgm-exporter")
	}
	root := testtool.Root()
	library := cmp.Or(os.Getenv("RACKPULSE_DCGM"), filepath.Join(root, "build", "fakedcgm"))
	counters, err := os.ReadFile(filepath.Join(root, "collector", "gpu", "default-counters.csv"))
	if err != nil {
		b.Fatal(err)
	}
	common, _, _ := strings.Cut(string(counters), "# What RackPulse adds") // dcgm-exporter's own
	csv := filepath.Join(b.TempDir(), "counters.csv")
	writeBench(b, csv, common)
	address := freePort(b)
	peer := "http://" + address + "/metrics"
	pid := startBench(b, library, peer, func(string) bool { return true }, binary, "-a", address, "-c", "1000", "-f", csv)
	ours, pids := startBenchAgent(b, library, fmt.Sprintf("{source: dcgm, interval: 1s, counters_file: %q}", csv))
	return []*contender{
		{name: "peer", url: peer, pids: append(childPIDs(b, pid), pid), client: &http.Client{}},
		{name: "plain", url: ours, pids: pids, client: &http.Client{}},
		{name: "gzip", url: ours, pids: pids, client: &http.Client{}, gzip: true},
	}
}

// scrape reads the page once. The answer is not unpacked, which is not the server's work.
func (c *contender) scrape(b *testing.B) {
	b.Helper()
	req, err := http.NewRequest(http.MethodGet, c.url, nil)
	if err != nil {
		b.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", map[bool]string{true: "gzip", false: "identity"}[c.gzip])
	at := time.Now()
	resp, err := c.client.Do(req)
	if err != nil {
		b.Fatal(err)
	}
	data, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusOK {
		b.Fatal(c.name, resp.Status, err)
	}
	c.took = append(c.took, time.Since(at))
	if !c.gzip && c.series == 0 {
		for line := range strings.Lines(string(data)) {
			if !strings.HasPrefix(line, "#") {
				c.series++
			}
		}
	}
}

// statSeconds is the CPU time of the processes with all threads that ended, from
// /proc/PID/stat, in steps of 10 ms.
func statSeconds(b *testing.B, pids []int) float64 {
	b.Helper()
	ticks := 0.0
	for _, pid := range pids {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			b.Fatal(err)
		}
		fields := strings.Fields(string(data[strings.LastIndexByte(string(data), ')')+1:]))
		for _, field := range fields[11:13] { // utime and stime are the 14th and 15th of all
			n, err := strconv.ParseFloat(field, 64)
			if err != nil {
				b.Fatal(err)
			}
			ticks += n
		}
	}
	return ticks / 100 // USER_HZ
}
