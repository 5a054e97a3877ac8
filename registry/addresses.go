// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/go-kit/log/level"

	"github.com/rackpulse/rackpulse/config"
	"github.com/rackpulse/rackpulse/lease"
	"github.com/rackpulse/rackpulse/site"
)

const (
	// addressFile holds the agents' addresses, beside the ledger.
	addressFile = "addresses.json"
	// maxAddressFile bounds it, bytes: 100,000 agents at 300.
	maxAddressFile = 32 << 20
	// keepInterval is how often it is brought up to date.
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

// addressBook remembers the agents' addresses over restarts of the registry: a
// silent agent must stay a target, so that its silence shows.
type addressBook struct {
	path string

	mu     sync.Mutex
	agents map[string]agentAddress // by node or agent name
	dirty  bool
}

// openAddressBook reads the book of a folder. With an error comes an empty book.
func openAddressBook(dir string) (*addressBook, error) {
	b := &addressBook{path: filepath.Join(dir, addressFile), agents: map[string]agentAddress{}}
	data, err := config.ReadFile(b.path, maxAddressFile)
	if errors.Is(err, fs.ErrNotExist) {
		return b, nil
	}
	if err != nil {
		return b, err
	}
	agents := map[string]agentAddress{}
	if err := json.Unmarshal(data, &agents); err != nil {
		return b, fmt.Errorf("%s: %w", b.path, err)
	}
	for id, a := range agents {
		if _, _, err := splitAddress(a.Address); err != nil {
			delete(agents, id)
		}
	}
	b.agents = agents
	return b, nil
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
			b.dirty = true
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
		b.dirty = true
	}
}

// all returns the book's agents.
func (b *addressBook) all() map[string]agentAddress {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.agents)
}

// save writes the book if it changed, whole or not at all.
func (b *addressBook) save() error {
	b.mu.Lock()
	dirty, agents := b.dirty, maps.Clone(b.agents)
	b.dirty = false
	b.mu.Unlock()
	if !dirty {
		return nil
	}
	data, err := json.Marshal(agents)
	if err == nil {
		err = config.ReplaceFile(b.path, data)
	}
	if err != nil {
		b.mu.Lock()
		b.dirty = true
		b.mu.Unlock()
	}
	return err
}

// keepAddresses brings the book up to date until ctx ends, and then once more.
func (r *Registry) keepAddresses(ctx context.Context) {
	tick := time.NewTicker(keepInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			r.saveAddresses()
			return
		case <-tick.C:
			r.refreshAddresses()
			r.saveAddresses()
		}
	}
}

func (r *Registry) saveAddresses() {
	if err := r.known.save(); err != nil {
		level.Error(r.deps.Logger).Log("msg", "addresses of agents not written, a restart would forget them", "err", err)
	}
}

// refreshAddresses takes in who is there now.
func (r *Registry) refreshAddresses() {
	if r.Ready() {
		r.known.update(r.site.Load(), r.lease.Nodes(), r.lease.Devices(), time.Now())
	}
}
