// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"
)

// BenchmarkReconnect kills a registry that 10,000 of our agents beat to, each on a
// connection of its own, and starts it again on its ledger, as another one would
// that takes over: how long until all are READY again, and how many were
// suspected. Run it with -benchtime 1x.
func BenchmarkReconnect(b *testing.B) {
	for range b.N {
		stormOf(b, 10000)
	}
}

func stormOf(b *testing.B, nodes int) {
	dir := childDir + "=" + b.TempDir()
	c := startChild(b, "ours", dir)
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for i := range nodes {
		list := uuids(i*8, 8)
		beater := &Beater{
			Config:    BeaterConfig{Node: fmt.Sprintf("n%05d", i), Addresses: []string{c.address}},
			Inventory: func() Inventory { return Inventory{UUIDs: list, Status: Fresh, At: time.Now()} },
		}
		wg.Go(func() {
			if err := beater.Run(ctx); err != nil {
				b.Error(err)
			}
		})
	}
	ready := func(c *child) childStats {
		b.Helper()
		for end := time.Now().Add(3 * time.Minute); ; time.Sleep(200 * time.Millisecond) {
			s := c.ask()
			if s.States["READY"] == nodes {
				return s
			}
			if time.Now().After(end) {
				b.Fatalf("not all are ready: %v", s.States)
			}
		}
	}
	ready(c)
	if err := c.cmd.Process.Signal(syscall.SIGKILL); err != nil {
		b.Fatal(err)
	}
	_ = c.cmd.Wait() // it was killed
	killed := time.Now()
	c = startChild(b, "ours", dir, childAddress+"="+c.address)
	s := ready(c)
	b.ReportMetric(time.Since(killed).Seconds(), "s-to-all-READY")
	b.ReportMetric(float64(s.Suspect), "suspected")
	b.ReportMetric(float64(s.Expired), "expired")
}
