// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/go-kit/log/level"

	"github.com/rackpulse/rackpulse/ledger"
)

// KindCabling is the kind of the ledger's events about a node that a switch hears
// on another port than the site file says, or no longer does.
const KindCabling = "cabling"

const (
	// cablingInterval is how often declared and heard neighbours are compared; a
	// switch tells its neighbours every 30 s.
	cablingInterval = 2 * time.Minute
	// maxCabling bounds the events of one comparison.
	maxCabling = 200
)

// watchCabling compares until ctx ends.
func (r *Registry) watchCabling(ctx context.Context) {
	if r.deps.Querier == nil {
		return
	}
	ticker := time.NewTicker(cablingInterval)
	defer ticker.Stop()
	wrong := map[string]string{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if !r.Ready() {
			continue
		}
		events, err := r.compareCabling(ctx, wrong)
		if err == nil && len(events) > 0 {
			err = r.lease.Note(ctx, events)
		}
		if err != nil && ctx.Err() == nil {
			level.Warn(r.deps.Logger).Log("msg", "cabling not compared", "err", err)
		}
	}
}

// compareCabling holds what switches hear (LLDP) against the site file. wrong are
// the neighbours, by port, that were heard in the wrong place before; it is
// brought up to date, and each change is an event. A port that tells no neighbour
// says nothing.
func (r *Registry) compareCabling(ctx context.Context, wrong map[string]string) ([]ledger.Event, error) {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	now := time.Now()
	samples, err := r.deps.Querier.Instant(ctx, "switch_port_neighbor_info", now)
	if err != nil {
		return nil, err
	}
	heard := make(map[string]string, len(samples))
	for _, s := range samples {
		name, _, _ := strings.Cut(s.Labels["neighbor"], ".")
		heard[s.Labels["switch"]+"/"+s.Labels["port"]] = name
	}
	var events []ledger.Event
	note := func(node, port, to, reason string) {
		if len(events) < maxCabling {
			events = append(events, ledger.Event{Time: now.UTC().Round(0), Kind: KindCabling, Node: node, From: node, To: to, Reason: reason,
				Actor: "registry", Evidence: map[string]string{"port": port}})
		}
	}
	for _, n := range r.site.Load().Nodes {
		for _, port := range n.Ports {
			name, told := heard[port]
			was, bad := wrong[port]
			switch {
			case !told || bad && name == was:
			case name != n.ID:
				wrong[port] = name
				note(n.ID, port, name, fmt.Sprintf("%s hears %q, the site file says %s: a cable was moved, or the file is out of date", port, name, n.ID))
			case bad:
				delete(wrong, port)
				note(n.ID, port, n.ID, fmt.Sprintf("%s hears %s again", port, n.ID))
			}
		}
	}
	return events, nil
}
