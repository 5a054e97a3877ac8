// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/rackpulse/rackpulse/sim"
	"github.com/rackpulse/rackpulse/site"
)

// simulatedDown tells whether the simulated node has crashed or lost power: its
// agent must then be as silent as a real one.
func (a *agent) simulatedDown() bool {
	if a.hall == nil || a.gpu == nil {
		return false
	}
	n, ok := a.hall.At(time.Now()).Nodes[a.cfg.Node]
	return ok && !n.Up
}

// simulatedCut tells whether the simulated node cannot reach the registry: it is
// down, or its rack is cut off.
func (a *agent) simulatedCut() bool {
	if a.simulatedDown() {
		return true
	}
	_, cut := a.simulatedFault("partition", site.Entity{Kind: site.KindRack, ID: a.simulatedRack})
	return cut
}

// simulatedClock is what the clock of the simulated node shows.
func (a *agent) simulatedClock(now time.Time) time.Time {
	if fault, ok := a.simulatedFault("clock_step", site.Entity{Kind: site.KindNode, ID: a.cfg.Node}); ok {
		return now.Add(time.Duration(fault.Value * float64(time.Second)))
	}
	return now
}

func (a *agent) simulatedFault(kind string, of site.Entity) (sim.Fault, bool) {
	for _, fault := range a.hall.At(time.Now()).Faults {
		if fault.Kind == kind && fault.Entity == of {
			return fault, true
		}
	}
	return sim.Fault{}, false
}

// silenceWhenDown answers nothing for a simulated node that has no power.
func (a *agent) silenceWhenDown(next http.Handler) http.Handler {
	if a.hall == nil || a.gpu == nil {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if a.simulatedDown() {
			http.Error(w, "the simulated node is down", http.StatusServiceUnavailable)
			return
		}
		next.ServeHTTP(w, r)
	})
}

var errSimulatedCut = errors.New("the simulated node is cut off")

// simDialer gives a simulated node its network.
type simDialer struct {
	down func() bool
}

func (d *simDialer) dial(ctx context.Context, address string) (net.Conn, error) {
	if d.down() {
		return nil, errSimulatedCut
	}
	conn, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &simConn{Conn: conn, down: d.down}, nil
}

// simConn is a connection that breaks at the first beat after its node is cut off.
type simConn struct {
	net.Conn
	down func() bool
	once sync.Once
}

// Write fails, and closes the connection, once the node is cut off.
func (c *simConn) Write(p []byte) (int, error) {
	if c.down() {
		c.once.Do(func() { _ = c.Close() })
		return 0, errSimulatedCut
	}
	return c.Conn.Write(p)
}
