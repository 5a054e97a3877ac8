// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/go-kit/log/level"

	"github.com/rackpulse/rackpulse/lease"
	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/site"
)

const (
	// keepInterval is how often the book is brought up to date.
	keepInterval = 5 * time.Second
	// forgetAfter is how long an agent that polls facility devices is still
	// discovered after it was last seen. Nodes are discovered until they leave
	// or are taken out of the site file.
	forgetAfter = 7 * 24 * time.Hour
	// seenStep is how exactly it is known when an agent was last seen.
	seenStep = time.Hour
)

// agentAddress is where one agent serves its metrics.
type agentAddress struct {
	// Address is its host:port, as it told last.
	Address string `json:"address"`
	// Node says that it is the agent of a node.
	Node bool `json:"node,omitempty"`
	// Devices are the facility devices that it polled when last seen.
	Devices []string `json:"devices,omitempty"`
	// Seen is when it was last seen, to the hour.
	Seen time.Time `json:"seen"`
}

func (a agentAddress) equal(b agentAddress) bool {
	return a.Address == b.Address && a.Node == b.Node && a.Seen.Equal(b.Seen) && slices.Equal(a.Devices, b.Devices)
}

// addressBook remembers the agents' addresses over restarts and fail-overs of the
// registry: a silent agent must stay a target, so that its silence shows. It is
// kept in the ledger.
type addressBook struct {
	mu      sync.Mutex
	agents  map[string]agentAddress // by node or agent name
	changed map[string]bool         // and not yet written
}

func newAddressBook() *addressBook {
	return &addressBook{agents: map[string]agentAddress{}, changed: map[string]bool{}}
}

// restore takes the book over from the ledger. It returns the first record that
// is none, which is left out.
func (b *addressBook) restore(records []ledger.Record) (err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.agents)
	clear(b.changed)
	for i := range records {
		r := &records[i]
		if r.Kind != ledger.RecordAgent {
			continue
		}
		var a agentAddress
		bad := json.Unmarshal(r.Data, &a)
		if bad == nil {
			_, _, bad = splitAddress(a.Address)
		}
		if bad != nil {
			err = cmp.Or(err, fmt.Errorf("address of agent %q: %w", r.ID, bad))
			continue
		}
		b.agents[r.ID] = a
	}
	return err
}

// update takes in who is there now and forgets who is gone for good.
func (b *addressBook) update(s *site.Site, nodes []lease.NodeStatus, devices []lease.Device, now time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	seen := now.UTC().Truncate(seenStep)
	owned := map[string][]string{} // agent -> its devices
	owner := map[string]string{}   // device -> its agent
	for _, d := range devices {
		owned[d.Agent] = append(owned[d.Agent], d.ID)
		owner[d.ID] = d.Agent
	}
	for i := range nodes {
		n := &nodes[i]
		if n.Agent != nil && n.Beating {
			b.put(s, n.Node, agentAddress{Address: n.Agent.Advertise, Node: true, Devices: owned[n.Node], Seen: seen})
		}
	}
	for _, d := range devices {
		if !d.Node {
			b.put(s, d.Agent, agentAddress{Address: d.Address, Devices: owned[d.Agent], Seen: seen})
		}
	}
	for id, a := range b.agents {
		_, declared := s.Node(id)
		if a.Node && !declared || !a.Node && (now.Sub(a.Seen) > forgetAfter || replaced(id, a, owner)) {
			delete(b.agents, id)
			b.changed[id] = true
		}
	}
}

// replaced says whether other agents poll all devices of this one.
func replaced(id string, a agentAddress, owner map[string]string) bool {
	for _, device := range a.Devices {
		if now := owner[device]; now == "" || now == id {
			return false
		}
	}
	return len(a.Devices) > 0
}

// put notes one agent. One that names no host of its own is reached under its
// node's address in the site file.
func (b *addressBook) put(s *site.Site, id string, a agentAddress) {
	host, port, err := splitListen(a.Address)
	if err != nil || port == 0 {
		return
	}
	if checkHost(host) != nil {
		n, ok := s.Node(id)
		if !ok || checkHost(n.Address) != nil {
			return
		}
		a.Address = joinAddress(n.Address, port)
	}
	if old, ok := b.agents[id]; !ok || !old.equal(a) {
		b.agents[id] = a
		b.changed[id] = true
	}
}

// all returns the book's agents.
func (b *addressBook) all() map[string]agentAddress {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.agents)
}

// news returns what changed since the last call, as records of the ledger.
func (b *addressBook) news() []ledger.Record {
	b.mu.Lock()
	defer b.mu.Unlock()
	out := make([]ledger.Record, 0, len(b.changed))
	for _, id := range slices.Sorted(maps.Keys(b.changed)) {
		r := ledger.Record{Kind: ledger.RecordAgent, ID: id}
		if a, ok := b.agents[id]; ok {
			// Texts and a time can always be written.
			r.Data, _ = json.Marshal(a)
		}
		out = append(out, r)
	}
	clear(b.changed)
	return out
}

// keepAddresses brings the book up to date until ctx ends.
func (r *Registry) keepAddresses(ctx context.Context) {
	tick := time.NewTicker(keepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			r.noteAddresses()
		}
	}
}

// noteAddresses takes in who is there now and writes it.
func (r *Registry) noteAddresses() {
	r.refreshAddresses()
	if r.Ready() {
		r.lease.Keep(r.known.news())
	}
}

// restoreAddresses is called when this registry leads.
func (r *Registry) restoreAddresses(records []ledger.Record) {
	if err := r.known.restore(records); err != nil {
		level.Warn(r.deps.Logger).Log("msg", "an agent's remembered address is not usable", "err", err)
	}
}

// refreshAddresses takes in who is there now.
func (r *Registry) refreshAddresses() {
	if r.Ready() {
		r.known.update(r.site.Load(), r.lease.Nodes(), r.lease.Devices(), time.Now())
	}
}
