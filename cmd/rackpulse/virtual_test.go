// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-kit/log"
	"google.golang.org/grpc/test/bufconn"

	"github.com/rackpulse/rackpulse/query"
)

// virtualHall is "rackpulse standalone --simulate" in virtual time: the agents,
// the registry and the embedded Prometheus as they are, with the network between
// them in memory.
type virtualHall struct {
	// ctx belongs to the bubble of virtual time, as the rest does.
	ctx            context.Context
	querier        query.Querier
	pages          http.Handler
	started, ended time.Time
}

// virtualConfig says what is played.
type virtualConfig struct {
	scenario        string
	onset, duration time.Duration
	// change may take parts out, or put some in, before they run.
	change func(*standalone)
}

// play runs a hall in virtual time until its end, then calls look and stops
// everything in order.
func (cfg virtualConfig) play(t *testing.T, look func(*virtualHall)) {
	dir := t.TempDir()
	file := filepath.Join(dir, "agent.yml")
	text := fmt.Sprintf("node: here\nsite_file: site.yml\ngpu: {interval: 10s}\nsimulate: {scenario: %s, onset: %s}\n", cfg.scenario, cfg.onset)
	for path, text := range map[string]string{file: text, filepath.Join(dir, "site.yml"): smallHall} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		v := &standaloneVerb{configFile: file, sim: simFlags{on: true}}
		s, err := v.build(dir, log.NewNopLogger(), slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		if cfg.change != nil {
			cfg.change(s)
		}
		ctx, cancel := context.WithCancel(t.Context())
		h := &virtualHall{ctx: ctx, querier: s.engine.(embeddedEngine), pages: s.pages(), started: time.Now()}
		ended := make(chan error, 1)
		go func() { ended <- runActors(ctx, cfg.actors(t, s)...) }()
		time.Sleep(cfg.duration)
		synctest.Wait()
		h.ended = time.Now()
		look(h)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// actors are those of standalone but for HTTP, and what reads the extra targets.
func (cfg virtualConfig) actors(t *testing.T, s *standalone) []actor {
	if err := s.beats.Close(); err != nil { // the network is in memory
		t.Fatal(err)
	}
	ln := bufconn.Listen(64 << 10)
	var out []actor
	for _, a := range s.agents {
		a.beater.Config.Dial = func(ctx context.Context, _ string) (net.Conn, error) {
			if a.simulatedCut() {
				return nil, errSimulatedCut
			}
			conn, err := ln.DialContext(ctx)
			if err != nil {
				return nil, err
			}
			return &simConn{Conn: conn, down: a.simulatedCut}, nil
		}
		out = append(out, a.actors()...)
	}
	out = append(out, actor{name: "registry", run: func(ctx context.Context) error { return s.registry.Run(ctx, ln) }})
	return append(out, s.engine.actors()...)
}

// smallHall is a quarter of the example hall: two racks of two nodes under two
// feeds, each rack with a cooling unit of its own, and a node outside.
const smallHall = `
site: {id: ams1}
rooms: [{id: hall1}]
rows: [{id: row-a, room: hall1}]
feeds: [{id: feed-a, line_volts: 400, rated_amperes: 400, derate: 0.8}, {id: feed-b, line_volts: 400, rated_amperes: 400, derate: 0.8}]
racks: [{id: "r[01-02]", row: row-a, height_u: 48, power_limit_watts: 22000}]
pdus:
- {id: "r[01-02]-a", rack: "r[01-02]", feed: feed-a, phases: 3, rated_amperes: 63, outlets: 24}
- {id: "r[01-02]-b", rack: "r[01-02]", feed: feed-b, phases: 3, rated_amperes: 63, outlets: 24}
cooling_units: [{id: crah1, room: hall1, serves: [r01]}, {id: crah2, room: hall1, serves: [r02]}]
switches: [{id: "tor[01-02]", rack: "r[01-02]", u: 47}]
sensors:
- {id: "r[01-02]-in-top", rack: "r[01-02]", measures: inlet_temperature, position: top}
- {id: "r[01-02]-in-bot", rack: "r[01-02]", measures: inlet_temperature, position: bottom}
- {id: "r[01-02]-out", rack: "r[01-02]", measures: outlet_temperature, position: top}
- {id: "r[01-02]-rh", rack: "r[01-02]", measures: inlet_humidity, position: middle}
- {id: leak-row-a, row: row-a, measures: leak, position: floor}
meters: [{id: meter-it, role: it}, {id: meter-cooling, role: cooling}, {id: meter-total, role: total}]
node_classes:
- {id: h100, height_u: 8, gpus: 8, gpu_model: NVIDIA H100 80GB HBM3}
- {id: workstation, gpus: 1, gpu_model: NVIDIA GeForce RTX 4080 SUPER, rackless: true}
nodes:
- {id: "gpu[001-002]", rack: r01, u: 1, class: h100, outlets: ["r01-a/[1-2]", "r01-b/[1-2]"], ports: ["tor01/Ethernet[1-2]"]}
- {id: "gpu[003-004]", rack: r02, u: 1, class: h100, outlets: ["r02-a/[1-2]", "r02-b/[1-2]"], ports: ["tor02/Ethernet[1-2]"]}
- {id: ws01, class: workstation}
`
