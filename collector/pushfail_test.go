// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
)

// gaps are the seconds missing between the samples of a series pushed each second.
func gaps(t *testing.T, samples []received) (missing int) {
	t.Helper()
	for i := 1; i < len(samples); i++ {
		step := samples[i].at - samples[i-1].at
		if step <= 0 || i < len(samples)-1 && step%1000 != 0 { // the last round comes at the stop
			t.Errorf("step of %d ms at sample %d", step, i)
		}
		missing += int((step+999)/1000) - 1
	}
	return missing
}

// TestPushOutage holds that 30 s without the receiver lose nothing: it answers
// 503 or 429, or is not to be reached at all.
func TestPushOutage(t *testing.T) {
	for _, how := range []string{"503", "429", "offline", "broken answer"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, client := newReceiver(t)
				var down atomic.Bool
				r.offline = func() bool { return how == "offline" && down.Load() }
				r.answer = func(w http.ResponseWriter) bool {
					switch {
					case !down.Load() || how == "offline":
						return true
					case how == "503":
						w.WriteHeader(http.StatusServiceUnavailable)
					case how == "429":
						w.WriteHeader(http.StatusTooManyRequests)
					default:
						w.Header().Set("Content-Length", "100")
						_, _ = io.WriteString(w, "short")
					}
					return false
				}
				p, stop := pushing(t, client, nil)
				time.Sleep(10 * time.Second)
				down.Store(true)
				client.CloseIdleConnections()
				time.Sleep(30 * time.Second)
				if st := pushStatus(p); st.Up || st.Consecutive < 3 || st.Reason == "" {
					t.Errorf("status while down: %+v", st)
				}
				if n := p.queue.samples(); n < 28*7 {
					t.Errorf("only %d samples wait", n)
				}
				down.Store(false)
				time.Sleep(40 * time.Second)
				if n := p.queue.samples(); n != 0 {
					t.Errorf("%d samples still wait", n)
				}
				stop()
				up := r.of("__name__=up")
				if n := gaps(t, up); n != 0 || len(up) < 79 {
					t.Errorf("%d rounds, %d lost", len(up), n)
				}
				if d, rej := outcome(p, outcomeDropped), outcome(p, outcomeRejected); d != 0 || rej != 0 {
					t.Errorf("%v dropped, %v rejected", d, rej)
				}
			})
		})
	}
}

// TestPushBounds holds that beyond either bound the oldest rounds go, counted.
func TestPushBounds(t *testing.T) {
	for name, change := range map[string]func(*PushConfig){
		"samples": func(c *PushConfig) { c.MaxSamples = 200 },
		"age":     func(c *PushConfig) { c.QueueFor = 10 * time.Second },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, client := newReceiver(t)
				var down atomic.Bool
				r.answer = func(w http.ResponseWriter) bool {
					if down.Load() {
						w.WriteHeader(http.StatusBadGateway)
					}
					return !down.Load()
				}
				p, stop := pushing(t, client, change)
				time.Sleep(10 * time.Second)
				down.Store(true)
				time.Sleep(60 * time.Second)
				waiting := p.queue.samples()
				if name == "samples" && waiting > 200 || waiting == 0 {
					t.Errorf("%d samples wait", waiting)
				}
				down.Store(false)
				time.Sleep(40 * time.Second)
				dropped := outcome(p, outcomeDropped)
				stop()
				up := r.of("__name__=up")
				// Up to 60 s of outage and 30 s of back-off, less what is kept.
				missing := gaps(t, up)
				if missing < 20 || missing > 80 {
					t.Errorf("%d rounds are missing", missing)
				}
				// Each round has the 5 series of the store's sources, up and the
				// self metrics of the one source with a status.
				if rounds := dropped / float64(missing); rounds < 6 || rounds > 14 {
					t.Errorf("%v samples dropped in %d rounds", dropped, missing)
				}
				if down := up[9].at - up[0].at; down != 9000 {
					t.Errorf("a round from before the outage is missing: the tenth is %d ms after the first", down)
				}
			})
		})
	}
}

// TestPushRejected holds that samples which the receiver does not want are not
// sent again, and that its words are told.
func TestPushRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, client := newReceiver(t)
		var refuse atomic.Bool
		refuse.Store(true)
		r.answer = func(w http.ResponseWriter) bool {
			if refuse.Load() {
				w.Header().Set("X-Prometheus-Remote-Write-Samples-Written", "2")
				http.Error(w, "out of order sample"+strings.Repeat("!", 1<<20), http.StatusBadRequest)
			}
			return !refuse.Load()
		}
		p, stop := pushing(t, client, nil)
		time.Sleep(20500 * time.Millisecond)
		if n := len(r.times()); n < 20 || n > 21 {
			t.Errorf("%d requests in 20.5 s: rejected rounds must not be repeated, nor hold up the next", n)
		}
		st := pushStatus(p)
		if st.Up || !strings.Contains(st.Reason, "400 Bad Request: out of order sample") {
			t.Errorf("status %+v", st)
		}
		wantSamples(t, p.cfg.Store, "rackpulse_source_up", `rackpulse_source_up{source="push"} 0`)
		requests := float64(len(r.times()))
		if outcome(p, outcomeRejected) < 5*requests || outcome(p, outcomeSent) != 2*requests || p.queue.samples() != 0 {
			t.Errorf("%v rejected, %v sent, %d wait", outcome(p, outcomeRejected), outcome(p, outcomeSent), p.queue.samples())
		}
		if n := testutil.CollectAndCount(p, "rackpulse_push_last_success_timestamp_seconds"); n != 0 {
			t.Error("a time of success without one")
		}
		refuse.Store(false)
		time.Sleep(2 * time.Second)
		if st := pushStatus(p); !st.Up || st.Consecutive != 0 {
			t.Errorf("status after that: %+v", st)
		}
		stop()
	})
}

// TestPushRetryAfter holds that the receiver's wish counts, within reason.
func TestPushRetryAfter(t *testing.T) {
	for after, want := range map[string]time.Duration{"20": 20 * time.Second, "86400": maxRetryAfter} {
		synctest.Test(t, func(t *testing.T) {
			r, client := newReceiver(t)
			r.answer = func(w http.ResponseWriter) bool {
				if len(r.times()) > 1 {
					return true
				}
				w.Header().Set("Retry-After", after)
				w.WriteHeader(http.StatusTooManyRequests)
				return false
			}
			_, stop := pushing(t, client, nil)
			time.Sleep(want + 5*time.Second)
			at := r.times()
			if len(at) < 2 || at[1].Sub(at[0]) != want {
				t.Errorf("Retry-After %s: requests at %v", after, at[:min(len(at), 2)])
			}
			stop()
		})
	}
}

// TestPushSlow holds that a receiver which does not answer holds up neither the
// rounds nor /metrics, and that the stop is bounded.
func TestPushSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, client := newReceiver(t)
		release := make(chan struct{})
		r.answer = func(http.ResponseWriter) bool {
			<-release
			return false
		}
		p, stop := pushing(t, client, nil)
		for i := range 20 {
			time.Sleep(time.Second)
			before := time.Now()
			if _, err := p.cfg.Store.Gather(); err != nil || time.Since(before) != 0 {
				t.Fatalf("a scrape took %s: %v", time.Since(before), err)
			}
			if n := p.queue.samples(); n < i*7 {
				t.Errorf("after %d s only %d samples wait", i+1, n)
			}
		}
		before := time.Now()
		stop()
		if took := time.Since(before); took != flushTimeout {
			t.Errorf("the stop took %s", took)
		}
		if outcome(p, outcomeDropped) < 20*7 || p.queue.samples() != 0 {
			t.Errorf("%v dropped at the stop, %d left", outcome(p, outcomeDropped), p.queue.samples())
		}
		close(release)
	})
}

// TestPushSilent holds that nothing is pushed for a node that has no power.
func TestPushSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, client := newReceiver(t)
		_, stop := pushing(t, client, func(c *PushConfig) { c.Silent = func() bool { return true } })
		time.Sleep(10 * time.Second)
		stop()
		if n := len(r.times()); n != 0 {
			t.Errorf("%d requests", n)
		}
	})
}

// TestPushFlush holds that a stop sends what waits, the last round included, and
// that large rounds go in pieces.
func TestPushFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, client := newReceiver(t)
		var down atomic.Bool
		r.answer = func(w http.ResponseWriter) bool {
			if down.Load() {
				w.WriteHeader(http.StatusInternalServerError)
			}
			return !down.Load()
		}
		points := make([]Point, 4500)
		for i := range points {
			points[i] = Point{Desc: descUp, Values: []string{"d" + string(rune('A'+i%26)) + strings.Repeat("x", i/26), "sim"}, Value: 1}
		}
		p, stop := pushing(t, client, nil)
		p.cfg.Store.Put(Snapshot{Source: "many", Interval: time.Hour, Points: points})
		time.Sleep(2500 * time.Millisecond)
		if n := len(r.times()); n != 2*3 && n != 3*3 {
			t.Errorf("%d requests for rounds of three pieces", n)
		}
		down.Store(true)
		time.Sleep(10 * time.Second)
		down.Store(false)
		stop()
		up := r.of("__name__=up")
		if n := gaps(t, up); n != 0 || len(up) < 13 || up[len(up)-1].value != 0 || outcome(p, outcomeDropped) != 0 {
			t.Errorf("%d rounds, %d lost, the last %v, %v dropped", len(up), n, up[len(up)-1], outcome(p, outcomeDropped))
		}
	})
}
