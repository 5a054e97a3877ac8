// SPDX-License-Identifier: Apache-2.0

package main

import (
	"path/filepath"
	"sync"

	"github.com/go-kit/log"
	"github.com/go-kit/log/level"

	"github.com/rackpulse/rackpulse/collector"
	"github.com/rackpulse/rackpulse/site"
)

// identities joins what the configuration, the registry and the cache say about
// the labels of this agent, and keeps the store and the cache up to date.
type identities struct {
	store  *collector.Store
	cache  string // file; empty: none
	logger log.Logger

	mu       sync.Mutex
	own      collector.Identity
	registry collector.Identity
	cached   collector.Identity
	merged   collector.Identity
}

// newIdentities starts with the agent's own labels and those of the cache.
func newIdentities(cfg *agentConfig, store *collector.Store, known *site.Site, logger log.Logger) *identities {
	ids := &identities{store: store, logger: logger, own: ownIdentity(cfg, known)}
	ids.cached.Origin = collector.OriginNone
	if cfg.StateDir != "" {
		ids.cache = filepath.Join(cfg.StateDir, "identity.json")
		cached, err := collector.LoadIdentity(ids.cache)
		if err != nil {
			level.Warn(logger).Log("msg", "cached labels not usable", "file", ids.cache, "err", err)
		} else {
			ids.cached = cached
		}
	}
	ids.apply()
	return ids
}

// ownIdentity is what the configuration itself says: the site file where the
// agent has one, else the node's name and rack.
func ownIdentity(cfg *agentConfig, known *site.Site) collector.Identity {
	id := collector.Identity{Origin: collector.OriginConfig, Devices: map[string]map[string]string{}}
	if cfg.wantsGPU() {
		id.Node = map[string]string{"node": cfg.Node}
		if cfg.RackID != "" {
			id.Node["rack_id"] = cfg.RackID
		}
	}
	if known == nil {
		return id
	}
	if labels := known.NodeLabels(cfg.Node); cfg.wantsGPU() && labels != nil {
		id.Node = labels
	}
	for _, d := range known.Devices() {
		id.Devices[d.ID] = d.Labels
	}
	return id
}

// fromRegistry takes the labels that the registry sent.
func (ids *identities) fromRegistry(node map[string]string, devices map[string]map[string]string) {
	ids.mu.Lock()
	defer ids.mu.Unlock()
	ids.registry = collector.Identity{Origin: collector.OriginRegistry, Node: node, Devices: devices}
	ids.apply()
	if ids.cache == "" {
		return
	}
	if err := collector.SaveIdentity(ids.cache, ids.registry); err != nil {
		level.Warn(ids.logger).Log("msg", "labels not cached", "file", ids.cache, "err", err)
	}
}

// apply merges and publishes; the caller holds mu, or is the constructor.
func (ids *identities) apply() {
	ids.merged = collector.MergeIdentity(ids.own, ids.registry, ids.cached)
	ids.store.SetIdentity(ids.merged)
}

// device finds a facility device by what is known of its labels.
func (ids *identities) device(id string) (site.Device, bool) {
	ids.mu.Lock()
	labels, ok := ids.merged.Devices[id]
	ids.mu.Unlock()
	if !ok {
		return site.Device{}, false
	}
	return site.Device{Entity: site.Entity{Kind: kindOf(labels), ID: id}, Rack: labels["rack_id"], Labels: labels}, true
}

// kindOf tells the kind of a device by the label that names it (the label
// contract gives each kind one of its own).
func kindOf(labels map[string]string) string {
	for label, kind := range map[string]string{
		"pdu_id": site.KindPDU, "sensor": site.KindSensor, "cooling_unit": site.KindCooling,
		"switch": site.KindSwitch, "ups": site.KindUPS, "meter": site.KindMeter,
	} {
		if _, ok := labels[label]; ok {
			return kind
		}
	}
	return ""
}
