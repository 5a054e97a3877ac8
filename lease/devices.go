// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/site"
)

// facilityAgent is an agent that polls facility devices, on a node or not. It
// has no lease; while it is live, its devices are polled by nobody else.
type facilityAgent struct {
	info    *Hello
	epoch   uint64
	stream  uint64 // 0: none open
	last    int64  // virtual time of its last beat
	eof     int64  // virtual time at which its stream ended
	wall    time.Time
	node    bool // it is the agent of a node
	refused map[string]string
}

// Device is one facility device with the agent that polls it.
type Device struct {
	ID string
	// Agent is the node id or the name of the agent.
	Agent string
	// Address is the host:port of the agent's metrics, as advertised.
	Address string
	// Node says that the agent is that of a node.
	Node bool
	// LastBeat is when the agent last beat, on the registry's clock.
	LastBeat time.Time
}

// isFacilityOnly says whether an agent with this hello is no node.
func (h *Hello) isFacilityOnly() bool {
	return h != nil && len(h.Roles) > 0 && !slices.Contains(h.Roles, RoleGPU)
}

// maxAgents bounds the agents that poll devices.
const maxAgents = 4096

// pollDevices takes the devices of a beat's agent in. It returns the refused
// ones with the reason and whether that should be told to the agent, or why the
// beat was refused.
func (c *core) pollDevices(b *beat, node bool, now time.Time) (map[string]string, bool, *refusal) {
	v := c.clock(now)
	a, r := c.facilityAgent(b, node, v)
	if a == nil {
		return nil, false, r
	}
	a.last, a.wall, a.stream, a.eof, a.node = v, now, b.stream, 0, node
	if b.hello != nil {
		a.info = b.hello
		c.release(b.node, b.hello.Devices)
	}
	switch {
	case b.intent == intentLeave:
		c.release(b.node, nil)
		return a.refused, false, nil
	case b.hello == nil && len(a.refused) == 0:
		return nil, false, nil
	}
	before := a.refused
	a.refused = c.claim(b.node, a, v, now)
	return a.refused, b.hello != nil || !maps.Equal(before, a.refused), nil
}

// facilityAgent returns the agent of a beat, made if it is to be; nil where
// there is none, or with the reason why it is refused.
func (c *core) facilityAgent(b *beat, node bool, v int64) (*facilityAgent, *refusal) {
	epoch := b.epoch
	if epoch == 0 {
		epoch = b.stream
	}
	a := c.agents[b.node]
	if a == nil {
		if b.hello == nil || node && len(b.hello.Devices) == 0 {
			return nil, nil
		}
		if len(c.agents) >= maxAgents {
			return nil, c.refuse(refusedStreams, true, "there are %d agents with devices, no more are taken", maxAgents)
		}
		a = &facilityAgent{epoch: epoch}
		c.agents[b.node] = a
	}
	if !node && a.epoch != epoch && a.eof == 0 && c.alive(a, v) {
		c.conflicts["agent"]++
		return nil, c.refuse(refusedSuperseded, true, "another agent named %s is live", b.node)
	}
	a.epoch = epoch
	return a, nil
}

// claim makes the agent the owner of those of its devices that nobody else
// polls, and returns the others with the reason.
func (c *core) claim(id string, a *facilityAgent, v int64, now time.Time) map[string]string {
	var refused map[string]string
	refuse := func(device, why string) {
		if refused == nil {
			refused = map[string]string{}
		}
		refused[device] = why
	}
	for _, device := range a.info.Devices {
		if !c.site.devices[device] {
			refuse(device, "it is not in the site file")
			continue
		}
		owner := c.owners[device]
		if owner == "" || owner == id || !c.alive(c.agents[owner], v) {
			c.owners[device] = id
			continue
		}
		refuse(device, fmt.Sprintf("agent %s polls it already", owner))
		if a.refused[device] == "" {
			c.conflicts["device"]++
			c.noteEvent(now, ledger.Event{Kind: ledger.KindConflict, Node: id, Actor: actorRegistry,
				Reason: fmt.Sprintf("device %s refused: agent %s polls it already", device, owner)})
		}
	}
	return refused
}

// release gives up the devices of an agent that are not among keep.
func (c *core) release(id string, keep []string) {
	kept := make(map[string]bool, len(keep))
	for _, device := range keep {
		kept[device] = true
	}
	for device, owner := range c.owners {
		if owner == id && !kept[device] {
			delete(c.owners, device)
		}
	}
}

// alive says whether an agent still holds its devices: until its TTL is over, or
// shortly after its stream ended.
func (c *core) alive(a *facilityAgent, v int64) bool {
	if a == nil || v-a.last >= int64(c.cfg.TTL) {
		return false
	}
	return a.eof == 0 || v-a.eof < int64(c.cfg.eofGrace())
}

// sweepAgents forgets agents that are gone for good: ten TTLs without a beat.
func (c *core) sweepAgents(v int64) {
	if c.agentsAt > v {
		return
	}
	c.agentsAt = v + int64(c.cfg.TTL)
	for id, a := range c.agents {
		if v-a.last > 10*int64(c.cfg.TTL) {
			c.release(id, nil)
			delete(c.agents, id)
		}
	}
}

// deviceList is the devices of live agents, sorted by id.
func (c *core) deviceList(now time.Time) []Device {
	v := c.virtual(now)
	var out []Device
	for device, owner := range c.owners {
		if a := c.agents[owner]; c.alive(a, v) {
			out = append(out, Device{ID: device, Agent: owner, Address: a.info.Advertise, Node: a.node, LastBeat: a.wall})
		}
	}
	slices.SortFunc(out, func(a, b Device) int { return cmp.Compare(a.ID, b.ID) })
	return out
}

// siteIndex is what the leases need of a site, for quick look-up.
type siteIndex struct {
	of      *site.Site
	nodes   map[string]siteNode
	devices map[string]bool
}

type siteNode struct {
	rack  string
	feed  string          // the one feed that all its outlets hang on; empty: several, or unknown
	class *site.NodeClass // nil: none declared
}

// indexSite makes the index of a site.
func indexSite(s *site.Site) *siteIndex {
	idx := &siteIndex{of: s, nodes: make(map[string]siteNode, len(s.Nodes)), devices: map[string]bool{}}
	classes := make(map[string]*site.NodeClass, len(s.NodeClasses))
	for i := range s.NodeClasses {
		classes[s.NodeClasses[i].ID] = &s.NodeClasses[i]
	}
	feeds := make(map[string]string, len(s.PDUs))
	for i := range s.PDUs {
		feeds[s.PDUs[i].ID] = s.PDUs[i].Feed
	}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		idx.nodes[n.ID] = siteNode{rack: n.Rack, feed: soleFeed(n, feeds), class: classes[n.Class]}
	}
	for i := range s.PDUs {
		idx.devices[s.PDUs[i].ID] = true
	}
	for i := range s.UPSs {
		idx.devices[s.UPSs[i].ID] = true
	}
	for i := range s.CoolingUnits {
		idx.devices[s.CoolingUnits[i].ID] = true
	}
	for i := range s.Switches {
		idx.devices[s.Switches[i].ID] = true
	}
	for i := range s.Sensors {
		idx.devices[s.Sensors[i].ID] = true
	}
	for i := range s.Meters {
		idx.devices[s.Meters[i].ID] = true
	}
	return idx
}

// soleFeed is the feed that all outlets of n hang on.
func soleFeed(n *site.Node, feeds map[string]string) string {
	sole := ""
	for i, o := range n.Outlets {
		pdu, _, _ := strings.Cut(o, "/")
		feed := feeds[pdu]
		if i > 0 && feed != sole {
			return ""
		}
		sole = feed
	}
	return sole
}

// setSite takes a reloaded site in: nodes that it no longer names have left.
func (c *core) setSite(idx *siteIndex, now time.Time) {
	c.clock(now)
	c.site = idx
	for id, n := range c.nodes {
		if _, ok := idx.nodes[id]; !ok {
			if n.state != Left {
				c.move(n, Left, now, "it was removed from the site file", actorRegistry)
			}
			c.wheel.remove(n)
			delete(c.nodes, id)
			continue
		}
		c.remeasure(n)
	}
}
