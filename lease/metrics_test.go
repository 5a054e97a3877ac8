// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
)

const wantMetrics = `
# HELP rackpulse_lease_beats_total Beats accepted.
# TYPE rackpulse_lease_beats_total counter
rackpulse_lease_beats_total 10
# HELP rackpulse_lease_last_beat_timestamp_seconds When the node's last beat was accepted, on the registry's clock.
# TYPE rackpulse_lease_last_beat_timestamp_seconds gauge
rackpulse_lease_last_beat_timestamp_seconds{node="gpu001",rack_id="r01"} 9.46684835e+08
rackpulse_lease_last_beat_timestamp_seconds{node="gpu002",rack_id="r01"} 9.4668481e+08
rackpulse_lease_last_beat_timestamp_seconds{node="ws01"} 9.4668481e+08
# HELP rackpulse_lease_state 1 for the present state of the node's lease.
# TYPE rackpulse_lease_state gauge
rackpulse_lease_state{node="gpu001",rack_id="r01",state="READY"} 1
rackpulse_lease_state{node="gpu002",rack_id="r01",state="LEFT"} 1
rackpulse_lease_state{node="ws01",state="SUSPECT"} 1
# HELP rackpulse_lease_transitions_total Changes of lease states.
# TYPE rackpulse_lease_transitions_total counter
rackpulse_lease_transitions_total{from="",to="JOINING"} 3
rackpulse_lease_transitions_total{from="DRAINING",to="LEFT"} 1
rackpulse_lease_transitions_total{from="JOINING",to="READY"} 3
rackpulse_lease_transitions_total{from="READY",to="DRAINING"} 1
rackpulse_lease_transitions_total{from="READY",to="SUSPECT"} 2
rackpulse_lease_transitions_total{from="SUSPECT",to="READY"} 1
# HELP rackpulse_lease_up 1 while the node holds its lease, 0 after it expired and until it has recovered; absent while it joins, after it left, and in a maintenance that it entered without a lease.
# TYPE rackpulse_lease_up gauge
rackpulse_lease_up{node="gpu001",rack_id="r01"} 1
rackpulse_lease_up{node="ws01"} 1
`

func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, t.TempDir(), nil)
		c := b.conn()
		one, end1 := threeFields(t, c)
		two, end2 := threeFields(t, c)
		rackless, end3 := threeFields(t, c)
		// The bubble's clock starts at 2000-01-01 00:00:00 UTC, 946684800.
		for range 3 {
			one("gpu001", uuids(0, 8)...)
			two("gpu002", uuids(8, 8)...)
			rackless("ws01")
			time.Sleep(5 * time.Second)
		}
		if err := b.srv.Leave(context.Background(), "gpu002", "sold", "eve"); err != nil {
			t.Fatal(err)
		}
		end2()
		time.Sleep(20 * time.Second) // 35 s - 10 s: gpu001 and ws01 are suspect
		one("gpu001", uuids(0, 8)...)
		synctest.Wait()

		reg := prometheus.NewPedanticRegistry()
		if err := reg.Register(b.srv); err != nil {
			t.Fatal(err)
		}
		err := testutil.GatherAndCompare(reg, strings.NewReader(wantMetrics), "rackpulse_lease_up", "rackpulse_lease_state", "rackpulse_lease_beats_total",
			"rackpulse_lease_transitions_total", "rackpulse_lease_last_beat_timestamp_seconds")
		if err != nil {
			t.Error(err)
		}
		problems, err := testutil.GatherAndLint(reg)
		if err != nil || len(problems) != 0 {
			t.Errorf("lint: %v %v", err, problems)
		}
		end1()
		end3()
		c.Close()
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestUnixNanoByMagnitude(t *testing.T) {
	const want = int64(1767225600) * 1e9 // 2026-01-01
	for _, in := range []int64{1767225600, 1767225600000, 1767225600000000, 1767225600000000000} {
		if got := unixNano(in); got != want {
			t.Errorf("%d is %d, want %d", in, got, want)
		}
	}
	if unixNano(0) != 0 || unixNano(-5) != 0 {
		t.Error("no time is a time")
	}
}

func TestConfigValidation(t *testing.T) {
	if err := (Config{}).Validate(); err != nil {
		t.Errorf("the defaults: %v", err)
	}
	for want, c := range map[string]Config{
		"ttl 15s is not above the time to suspicion (3.5 beats, 17.5s)": {TTL: 15 * time.Second},
		"beat_interval 10m0s":    {BeatInterval: 10 * time.Minute},
		"suspect_misses 200":     {SuspectMisses: 200},
		"cooldown 1s":            {Cooldown: time.Second},
		"max_maintenance 100h":   {MaxMaintenance: 100 * time.Hour},
		"beat_interval -5s":      {BeatInterval: -5 * time.Second},
		"suspect_misses -1":      {SuspectMisses: -1},
		"ttl 2h0m0s":             {TTL: 2 * time.Hour},
		"max_maintenance -1m0s ": {MaxMaintenance: -time.Minute},
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
