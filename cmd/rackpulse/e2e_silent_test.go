// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/registry"
	"github.com/rackpulse/rackpulse/testtool"
)

const (
	silentRacks = 13
	silentNodes = 8 * silentRacks
)

// silentSite has 13 racks, each with a PDU and eight nodes, one an outlet.
func silentSite() string {
	var b strings.Builder
	fmt.Fprintf(&b, "site: {id: silent}\nrooms: [{id: h}]\nrows: [{id: a, room: h}]\nfeeds: [{id: f, line_volts: 400, rated_amperes: 400}]\nracks: [{id: \"r[01-%d]\", row: a}]\n", silentRacks)
	fmt.Fprintf(&b, "pdus: [{id: \"r[01-%d]-a\", rack: \"r[01-%d]\", feed: f, phases: 3, outlets: 8}]\nnode_classes: [{id: plain, height_u: 1}]\nnodes:\n", silentRacks, silentRacks)
	for n := range silentNodes {
		fmt.Fprintf(&b, "- {id: n%03d, rack: r%02d, u: %d, class: plain, outlets: [r%02d-a/%d]}\n", n, n/8+1, n%8+1, n/8+1, n%8+1)
	}
	return b.String()
}

// outlets serves the power at each outlet as an agent would; that of one rack can
// be cut.
type outlets struct{ dark atomic.Int32 } // the rack without power, 0: none

func (o *outlets) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	for n := range silentNodes {
		rack, watts := n/8+1, 600
		if int(o.dark.Load()) == rack {
			watts = 0
		}
		fmt.Fprintf(w, "pdu_outlet_power_watt{pdu_id=\"r%02d-a\",rack_id=\"r%02d\",outlet=\"%d\"} %d\n", rack, rack, n%8+1, watts)
	}
}

// TestE2ESilent is one node of 104 that dies, then a whole rack, then all, with
// the registry's own numbers, in mode hard, and a real Prometheus as the witness.
func TestE2ESilent(t *testing.T) {
	t.Parallel()
	log, power := &callLog{}, &outlets{}
	hook, page := httptest.NewServer(log), httptest.NewServer(power)
	t.Cleanup(hook.Close)
	t.Cleanup(page.Close)
	prom := freePort(t)
	s := prepareSmall(t, "prometheus: {url: 'http://"+prom+"'}\n"+
		"actions: {mode: hard, max_per_minute: 600, targets: [{action: webhook, url: '"+hook.URL+"', secret_file: key}]}\n")
	s.write("key", "0123456789")
	s.write("site.yml", silentSite())
	s.write("prometheus.yml", "global: {scrape_interval: 1s}\nscrape_configs: [{job_name: racks, static_configs: [{targets: ['"+strings.TrimPrefix(page.URL, "http://")+"']}]}]\n")
	start(t, s.dir, "prometheus", testtool.Binary(t, "prometheus"), "--config.file=prometheus.yml", "--web.listen-address="+prom, "--storage.tsdb.path=tsdb")
	s.startReg()
	c := newCrew(s)
	for n := range silentNodes {
		c.start(fmt.Sprintf("n%03d", n))
	}
	inState := func(state string, want int, limit time.Duration) {
		t.Helper()
		s.eventually(limit, fmt.Sprintf("%d are %s", want, state), func() error {
			if n := len(series(s.fetch(""), "rackpulse_lease_state", `state="`+state+`"`)); n != want {
				return fmt.Errorf("%d are", n)
			}
			return nil
		})
	}
	inState("READY", silentNodes, time.Minute)

	// One is silent, and its outlet still gives power: it is marked, nothing more.
	died := time.Now()
	c.hush("n100")
	s.eventually(40*time.Second, "it is marked", func() error {
		if got := log.got(); !slices.Equal(got, []string{"n100 suspend false"}) {
			return fmt.Errorf("calls %q", got)
		}
		return nil
	})
	if took := time.Since(died); took > 31*time.Second {
		t.Errorf("it was marked %s after its last beat, at most 31 s are allowed", took)
	} else {
		t.Logf("one of %d: marked %.1f s after it fell silent", silentNodes, took.Seconds())
	}
	inState("EXPIRED", 1, 30*time.Second)
	only := func(what string, wait time.Duration, extra ...string) {
		t.Helper()
		time.Sleep(wait)
		for _, call := range log.got() {
			if !strings.HasPrefix(call, "n100 ") && !slices.Contains(extra, call) || call == "n100 evict true" {
				t.Errorf("%s: %s", what, call)
			}
		}
	}
	only("one of 104", 5*time.Second)

	// A rack falls silent: one incident, and nothing is done to it until its power
	// is known to be gone.
	for n := range 8 {
		c.hush(fmt.Sprintf("n%03d", n))
	}
	inState("EXPIRED", 9, time.Minute)
	only("a rack that draws power", 10*time.Second)
	open, err := s.api().Breakers(t.Context())
	if err != nil || !slices.ContainsFunc(open, func(b registry.Breaker) bool { return b.Scope == "rack" && b.ID == "r01" && b.Silent == 8 }) {
		t.Errorf("breakers %+v, %v", open, err)
	}
	power.dark.Store(1)
	var dead []string
	for n := range 8 {
		dead = append(dead, fmt.Sprintf("n%03d evict true", n))
	}
	s.eventually(time.Minute, "the dead rack is evicted", func() error {
		got := log.got()
		for _, call := range dead {
			if !slices.Contains(got, call) {
				return fmt.Errorf("not %s in %q", call, got)
			}
		}
		return nil
	})

	// Everybody is silent: nothing is done to anybody.
	for n := 8; n < silentNodes; n++ {
		if n == 100 {
			continue // it is since long
		}
		c.hush(fmt.Sprintf("n%03d", n))
	}
	inState("EXPIRED", silentNodes, time.Minute)
	marks := []string{}
	for _, call := range log.got() {
		if strings.HasSuffix(call, " suspend false") {
			marks = append(marks, call)
		}
	}
	if len(marks) > 10 {
		t.Errorf("%d nodes were marked before the breaker opened", len(marks))
	}
	only("everybody", 10*time.Second, append(dead, marks...)...)
	t.Logf("calls: %q", log.got())
}
