// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"fmt"
	"math"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/lease/leasepb"
	"github.com/rackpulse/rackpulse/site"
)

func heapInUse() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// fleet makes a core with n ready nodes, gpus each; the ids and the site are not
// part of what a lease costs.
func fleet(n, gpus int) (c *core, now time.Time, ids []string, perLease float64) {
	s := &site.Site{NodeClasses: []site.NodeClass{{ID: "c", GPUs: gpus}}}
	for i := range n {
		s.Nodes = append(s.Nodes, site.Node{ID: fmt.Sprintf("node-%07d", i), Class: "c"})
		ids = append(ids, s.Nodes[i].ID)
	}
	now = time.Now()
	c = newCore(Config{}, indexSite(s), 1, now)
	before := heapInUse()
	for range joinBeats {
		for i := range ids {
			b := beat{node: ids[i], stream: uint64(i + 1)}
			if gpus > 0 {
				b.inv = beatInventory{uuids: uuids(i*gpus, gpus), full: true, hash: 1, hashed: true}
			}
			c.accept(&b, now)
		}
		c.out = nil
		for range 50 {
			now = now.Add(sweepInterval)
			c.sweep(now)
		}
	}
	return c, now, ids, float64(heapInUse()-before) / float64(n)
}

// BenchmarkBeat is one beat of one of n nodes, in an order that caches hate.
func BenchmarkBeat(b *testing.B) {
	for _, n := range []int{10000, 50000} {
		for _, gpus := range []int{0, 8} {
			b.Run(fmt.Sprintf("nodes=%d/gpus=%d", n, gpus), func(b *testing.B) {
				c, now, ids, perLease := fleet(n, gpus)
				i := 0
				bt := beat{inv: beatInventory{hash: 1, hashed: true}}
				for b.Loop() {
					if i += 7919; i >= n {
						i -= n
						if i >= n {
							i %= n
						}
					}
					bt.node, bt.stream = ids[i], uint64(i+1)
					c.accept(&bt, now)
				}
				b.ReportMetric(perLease, "B/lease")
			})
		}
	}
}

// TestSizeOfLease holds the bars of a lease's size.
func TestSizeOfLease(t *testing.T) {
	for gpus, most := range map[int]float64{0: 300, 8: 1000} {
		c, _, _, perLease := fleet(10000, gpus)
		t.Logf("%d GPUs: %.0f bytes a lease", gpus, perLease)
		if perLease > most {
			t.Errorf("%d GPUs: %.0f bytes a lease, at most %.0f", gpus, perLease, most)
		}
		runtime.KeepAlive(c)
	}
}

// TestAllExpireAtOnce lets 10,000 nodes fall silent together. Each expiry's delay
// past its TTL is the virtual time to the tick plus the real time until it was
// done in that tick. The best of three counts: other tests run beside it.
func TestAllExpireAtOnce(t *testing.T) {
	worst := time.Duration(math.MaxInt64)
	for range 3 {
		worst = min(worst, lastOfMany(t))
	}
	t.Logf("the last was done %s past its TTL", worst)
	if worst > 300*time.Millisecond {
		t.Errorf("the last was done %s past its TTL, at most 300ms", worst)
	}
}

// lastOfMany is by how much the last of 10,000 that fall silent is late.
func lastOfMany(t *testing.T) time.Duration {
	const nodes = 10000
	c, now, _, _ := fleet(nodes, 0)
	expired := func() uint64 { return c.moves[[2]State{Suspect, Expired}] }
	var worst time.Duration
	for silent := time.Duration(0); expired() < nodes; silent += sweepInterval {
		if silent > time.Minute {
			t.Fatalf("%d of %d expired after a minute", expired(), nodes)
		}
		before := expired()
		from := time.Now()
		now = now.Add(sweepInterval)
		c.sweep(now)
		c.take()
		if expired() == before {
			continue
		}
		// fleet ends 5 s after the last beat.
		if late := silent + sweepInterval + 5*time.Second - c.cfg.TTL + time.Since(from); late > worst {
			worst = late
		}
	}
	return worst
}

// BenchmarkServer compares our server with the naive one, each a process of its
// own with 1,000 streams on 1,000 connections that beat every 2 s for 20 s, and
// with 10,000 that beat every 5 s. Run it with -benchtime 1x.
func BenchmarkServer(b *testing.B) {
	for _, load := range []struct {
		streams int
		period  time.Duration
	}{{1000, 2 * time.Second}, {10000, 5 * time.Second}} {
		for _, kind := range []string{"naive", "ours"} {
			b.Run(fmt.Sprintf("%d/%s", load.streams, kind), func(b *testing.B) {
				for range b.N {
					benchServer(b, kind, load.streams, load.period)
				}
			})
		}
	}
}

func benchServer(b *testing.B, kind string, streams int, period time.Duration) {
	const window = 20 * time.Second
	c := startChild(b, kind)
	var warm childStats // with the first streams: what comes after is per stream
	const first = 100
	stop := make(chan struct{})
	var wg, up sync.WaitGroup
	for i := range streams {
		if i == first {
			up.Wait()
			time.Sleep(4 * period)
			warm = c.ask()
		}
		up.Add(1)
		wg.Go(func() {
			beatForBench(b, c, kind, i, period*time.Duration(i)/time.Duration(streams), period, up.Done, stop)
		})
	}
	up.Wait()
	time.Sleep(4 * period) // all have joined
	from := c.ask()
	time.Sleep(window)
	to := c.ask()
	close(stop)
	wg.Wait()
	beats := float64(to.Beats - from.Beats)
	b.ReportMetric((to.CPU-from.CPU)/beats*1e6, "cpu-s/1M-beats")
	b.ReportMetric(float64(to.RSS-warm.RSS)/float64(streams-first)/1024, "KiB/stream")
	b.ReportMetric(float64(to.File-warm.File)/float64(streams-first)/1024, "file-KiB/stream")
	b.ReportMetric(float64(to.Heap-warm.Heap)/float64(streams-first)/1024, "heap-KiB/stream")
	b.ReportMetric(float64(to.Stack-warm.Stack)/float64(streams-first)/1024, "stack-KiB/stream")
	b.ReportMetric(beats/window.Seconds(), "beats/s")
}

// beatForBench keeps one stream beating until stop: the first beat with the
// whole list, and for our server, as our agent does, the others without.
func beatForBench(b *testing.B, c *child, kind string, i int, delay, period time.Duration, up func(), stop <-chan struct{}) {
	conn, stream := c.stream()
	defer conn.Close()
	m := &leasepb.HeartbeatRequest{NodeId: fmt.Sprintf("n%05d", i), GpuUuids: make([]string, 8)}
	for g := range m.GpuUuids {
		m.GpuUuids[g] = fmt.Sprintf("GPU-%08x-1234-5678-9abc-%012x", i, g)
	}
	count, hash := uint32(8), uint64(i)
	if kind == "ours" {
		m.GpuCount, m.InventoryHash = &count, &hash
	}
	timer := time.NewTimer(delay)
	for first := true; ; first = false {
		m.Timestamp, m.Seq = time.Now().UnixMilli(), m.Seq+1
		if err := stream.Send(m); err != nil {
			b.Error(err)
			return
		}
		if _, err := stream.Recv(); err != nil {
			b.Error(err)
			return
		}
		if first {
			up()
		}
		if kind == "ours" {
			m.GpuUuids = nil
		}
		select {
		case <-stop:
			return
		case <-timer.C:
			timer.Reset(period)
		}
	}
}
