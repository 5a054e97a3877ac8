// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-kit/log"
)

// polled runs Poll in a bubble and returns the times of the reads and the
// statuses that OnStatus was told, after the given time.
func polled(t *testing.T, d time.Duration, cfg PollConfig, store *Store) (reads []time.Duration, statuses []Status) {
	t.Helper()
	start := time.Now()
	read := cfg.Read
	cfg.Read = func(ctx context.Context) (Snapshot, error) {
		reads = append(reads, time.Since(start))
		return read(ctx)
	}
	cfg.OnStatus = func(st Status) { statuses = append(statuses, st) }
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); Poll(ctx, cfg, store, log.NewNopLogger()) }()
	time.Sleep(d)
	cancel()
	<-done
	return reads, statuses
}

func good(ctx context.Context) (Snapshot, error) { return inlet("", 20), nil }

func TestPollKeepsItsCadence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		s.SetIdentity(testIdentity)
		reads, statuses := polled(t, 605*time.Second, PollConfig{Name: "a", Interval: 10 * time.Second, Read: good}, s)
		if len(reads) != 61 || reads[0] != 0 {
			t.Fatalf("%d reads, the first at %v; want 61 and 0", len(reads), reads[0])
		}
		jittered := false
		for i, at := range reads {
			late := at - time.Duration(i)*10*time.Second
			if late < 0 || late >= time.Second {
				t.Errorf("read %d at %v: the cadence drifts", i, at)
			}
			jittered = jittered || late > 0
		}
		if !jittered {
			t.Error("no jitter")
		}
		if st := statuses[0]; st.Up || st.Reason != "not read yet" || st.tried() {
			t.Errorf("status before the first read: %+v", st)
		}
		last := statuses[len(statuses)-1]
		if !last.Up || last.Errors != 0 || time.Since(last.LastSample) > 11*time.Second || time.Since(last.Since) != 605*time.Second {
			t.Errorf("status at the end: %+v", last)
		}
		wantSamples(t, s, "rack_", inletSeries+" 20")
		wantSamples(t, s, "rackpulse_source_up", `rackpulse_source_up{source="a"} 1`)
	})
}

func TestPollSkipsSlotsOfALongRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(ctx context.Context) (Snapshot, error) { time.Sleep(2500 * time.Millisecond); return good(ctx) }
		reads, statuses := polled(t, 8700*time.Millisecond,
			PollConfig{Name: "a", Interval: time.Second, Deadline: 5 * time.Second, Read: slow}, NewStore())
		if len(reads) != 3 || reads[1]/time.Second != 3 || reads[2]/time.Second != 6 {
			t.Errorf("reads at %v, want 0, 3.x and 6.x s", reads)
		}
		if st := statuses[len(statuses)-1]; st.Duration != 2500*time.Millisecond || !st.Up {
			t.Errorf("status %+v", st)
		}
	})
}

func TestPollBacksOffAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		s.SetIdentity(testIdentity)
		n := 0
		read := func(ctx context.Context) (Snapshot, error) {
			if n++; n == 1 || n == 12 {
				return good(ctx)
			}
			return Snapshot{}, errors.New("open /dev/ttyUSB0: no such device")
		}
		reads, statuses := polled(t, 400*time.Second, PollConfig{Name: "a", Interval: time.Second, Read: read}, s)
		want := []time.Duration{1, 1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 1} // seconds after the read before, at most
		for i, w := range want {
			gap, limit := reads[i+1]-reads[i], w*time.Second
			lowest := limit - limit/4
			if i == 0 || i == 11 { // after a success: the cadence
				lowest, limit = 0, 1100*time.Millisecond
			}
			if gap < lowest || gap > limit {
				t.Errorf("wait %d is %v, want %v..%v", i, gap, lowest, limit)
			}
		}
		st := statuses[11] // after ten failures
		if st.Up || st.Consecutive != 10 || st.Errors != 10 || st.Abandoned != 0 || st.Reason != "open /dev/ttyUSB0: no such device" {
			t.Errorf("status after ten failures: %+v", st)
		}
		if got := st.Since.Sub(st.LastSample); got < 900*time.Millisecond || got > 1100*time.Millisecond {
			t.Errorf("down since %v after the last sample, want about 1 s", got)
		}
		if st = statuses[12]; !st.Up || st.Consecutive != 0 || st.Errors != 10 || st.Reason != "" {
			t.Errorf("status after recovery: %+v", st)
		}
	})
}

func TestPollKeepsTheLastSnapshotUntilItIsStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		s.SetIdentity(testIdentity)
		start, n := time.Now(), 0
		cfg := PollConfig{Name: "a", Interval: time.Second, Read: func(ctx context.Context) (Snapshot, error) {
			if n++; n > 1 {
				return Snapshot{}, errors.New("gone")
			}
			return good(ctx)
		}}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); Poll(ctx, cfg, s, log.NewNopLogger()) }()
		time.Sleep(29 * time.Second)
		wantSamples(t, s, "rack_", inletSeries+" 20")
		wantSamples(t, s, "rackpulse_source_info", `rackpulse_source_info{source="a",reason="gone"} 1`)
		wantSamples(t, s, "rackpulse_source_up", `rackpulse_source_up{source="a"} 0`)
		time.Sleep(time.Until(start.Add(30*time.Second + time.Millisecond)))
		wantSamples(t, s, "rack_")
		cancel()
		<-done
	})
}

func TestPollSurvivesAReadThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		s.SetIdentity(testIdentity)
		release := make(chan struct{})
		n, inFlight := 0, atomic.Int32{}
		read := func(context.Context) (Snapshot, error) {
			if inFlight.Add(1) > 1 {
				t.Error("two reads at the same time")
			}
			defer inFlight.Add(-1)
			if n++; n == 1 {
				<-release // ignores its ctx
				return inlet("", 99), nil
			}
			return inlet("", 20), nil
		}
		var statuses []Status
		cfg := PollConfig{Name: "a", Interval: time.Second, Deadline: 2 * time.Second, Read: read,
			OnStatus: func(st Status) { statuses = append(statuses, st) }}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); Poll(ctx, cfg, s, log.NewNopLogger()) }()

		time.Sleep(2200 * time.Millisecond)
		wantSamples(t, s, "rackpulse_source_info", `rackpulse_source_info{source="a",reason="no answer within 2s"} 1`)
		wantSamples(t, s, "rackpulse_source_abandoned", `rackpulse_source_abandoned_reads_total{source="a"} 1`)
		time.Sleep(time.Minute)
		synctest.Wait()
		st := statuses[len(statuses)-1]
		if st.Up || st.Abandoned != 1 || st.Consecutive < 5 || st.Duration != 0 || n != 1 {
			t.Errorf("after a minute: %+v, %d reads", st, n)
		}
		close(release)
		time.Sleep(time.Minute)
		wantSamples(t, s, "rack_", inletSeries+" 20") // never the late 99
		wantSamples(t, s, "rackpulse_source_up", `rackpulse_source_up{source="a"} 1`)
		cancel()
		<-done
	})
}

func TestPollEndsAlthoughAReadHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		hang := func(context.Context) (Snapshot, error) { <-release; return Snapshot{}, nil }
		go func() {
			defer close(done)
			Poll(ctx, PollConfig{Name: "a", Interval: time.Minute, Read: hang}, NewStore(), log.NewNopLogger())
		}()
		time.Sleep(time.Second)
		end := time.Now()
		cancel()
		<-done
		if d := time.Since(end); d > late {
			t.Errorf("Poll ended after %v", d)
		}
		close(release) // the bubble checks that the read's goroutine ends too
	})
}

func TestPollOfAReadThatKeepsItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := func(ctx context.Context) (Snapshot, error) {
			<-ctx.Done()
			return Snapshot{}, fmt.Errorf("snmp get: %w", ctx.Err())
		}
		_, statuses := polled(t, 11*time.Second, PollConfig{Name: "a", Interval: 20 * time.Second, Read: read}, NewStore())
		st := statuses[1]
		if st.Abandoned != 0 || st.Errors != 1 || st.Duration != maxDeadline || st.Reason != "snmp get: context deadline exceeded" {
			t.Errorf("status %+v", st)
		}
	})
}

func TestPollShowsWhatCameWithAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewStore()
		s.SetIdentity(testIdentity)
		read := func(ctx context.Context) (Snapshot, error) { return inlet("", 20), errors.New("outlet 3: bad value") }
		_, statuses := polled(t, 90*time.Second, PollConfig{Name: "a", Interval: 10 * time.Second, Read: read}, s)
		st := statuses[len(statuses)-1]
		if !st.Up || st.Consecutive != 0 || st.Errors != 9 || st.Reason != "outlet 3: bad value" {
			t.Errorf("status %+v", st)
		}
		wantSamples(t, s, "rack_", inletSeries+" 20")
	})
}

func TestPollSurvivesAPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := func(context.Context) (Snapshot, error) { panic("index out of range") }
		_, statuses := polled(t, time.Second, PollConfig{Name: "a", Read: read}, NewStore())
		if st := statuses[1]; st.Up || st.Reason != "read panicked: index out of range" {
			t.Errorf("status %+v", st)
		}
	})
}

func TestPollLogsChangesOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		n := 0
		cfg := PollConfig{Name: "a", Interval: time.Second, Read: func(ctx context.Context) (Snapshot, error) {
			if n++; n > 3 && n < 10 {
				return Snapshot{}, errors.New("gone")
			}
			return good(ctx)
		}}
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		Poll(ctx, cfg, NewStore(), log.NewLogfmtLogger(&out))
		want := "level=info source=a msg=\"source delivers\"\n" +
			"level=warn source=a msg=\"read failed\" err=gone up=false\n" +
			"level=info source=a msg=\"source delivers\"\n"
		if out.String() != want {
			t.Errorf("log:\n%s\nwant:\n%s", out.String(), want)
		}
	})
}

func TestReasonsDoNotChurn(t *testing.T) {
	dial := &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer"),
		Source: &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 43210}, Addr: &net.TCPAddr{IP: net.IPv4(10, 0, 1, 11), Port: 502}}
	got := reasonOf(fmt.Errorf("modbus: %w", dial), time.Second)
	if want := "modbus: read tcp 10.0.1.11:502: connection reset by peer"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	long := shortReason("two\nlines  " + strings.Repeat("ü", 200))
	if !strings.HasPrefix(long, "two lines üü") || len(long) > maxReason || strings.ContainsRune(long, '\uFFFD') {
		t.Errorf("got %q", long)
	}
}
