// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/rackpulse/rackpulse/site"
)

// Bounds of what is looked for when a device is opened.
const (
	maxRedfishMembers = 256
	maxRedfishPages   = 16
	maxRedfishChassis = 64
)

// The collections of equipment in a service root's PowerEquipment and
// ThermalEquipment.
var (
	rfPowerEquipment = []string{"RackPDUs", "PowerShelves", "FloorPDUs", "TransferSwitches", "ElectricalBuses", "Switchgear"}
	rfCoolEquipment  = []string{"CDUs", "ImmersionUnits", "HeatExchangers", "CoolingUnits"}
)

// rfLinks are the links of a resource by the name of their property.
type rfLinks map[string]rfLink

// UnmarshalJSON keeps what is a link and passes over everything else.
func (l *rfLinks) UnmarshalJSON(b []byte) error {
	var props map[string]json.RawMessage
	if err := json.Unmarshal(b, &props); err != nil {
		return err
	}
	*l = rfLinks{}
	for name, raw := range props {
		var link rfLink
		if len(raw) > 0 && raw[0] == '{' && json.Unmarshal(raw, &link) == nil && link.ID != "" {
			(*l)[name] = link
		}
	}
	return nil
}

// discover finds the resources to read, with one walk over the few levels above
// them. Its errors name the resource.
func (d *redfishDriver) discover(ctx context.Context) error {
	d.items = nil
	root, err := d.links(ctx, "/redfish/v1/")
	if err != nil {
		return err
	}
	kind := d.kind
	if kind == "" {
		kind = rfKind(root, d.config.Resource)
	}
	switch kind {
	case site.KindPDU:
		err = d.discoverPDU(ctx, root)
	case site.KindCooling:
		err = d.discoverCooling(ctx, root)
	case site.KindSensor:
		err = d.discoverChassis(ctx, root)
	default:
		err = fmt.Errorf("redfish: a %s is not read by Redfish", kind)
	}
	if err != nil {
		d.items = nil
		return err
	}
	for _, s := range d.config.Sensors {
		d.items = append(d.items, redfishItem{uri: s.URI, fast: true, parse: func(p *redfishPoll, body []byte) error { return p.sensor(body, s) }})
	}
	if len(d.items) == 0 {
		return errors.New("redfish: the service has nothing to read for this device")
	}
	return nil
}

// rfKind tells what a service is for where the site file has not told.
func rfKind(root rfLinks, resource string) string {
	_, power := root["PowerEquipment"]
	_, cooling := root["ThermalEquipment"]
	switch {
	case strings.Contains(resource, "/PowerEquipment/") || resource == "" && power:
		return site.KindPDU
	case strings.Contains(resource, "/ThermalEquipment/") || resource == "" && cooling:
		return site.KindCooling
	}
	return site.KindSensor
}

func (d *redfishDriver) links(ctx context.Context, uri string) (rfLinks, error) {
	bodies, errs := d.client.getAll(ctx, []string{uri})
	if errs[0] != nil {
		return nil, errs[0]
	}
	var l rfLinks
	if err := json.Unmarshal(bodies[0], &l); err != nil {
		return nil, fmt.Errorf("redfish GET %s: %w", uri, err)
	}
	return l, nil
}

// members lists the links of a collection, over all its pages.
func (d *redfishDriver) members(ctx context.Context, uri string) ([]string, error) {
	var out []string
	for range maxRedfishPages {
		if uri == "" {
			break
		}
		bodies, errs := d.client.getAll(ctx, []string{uri})
		if errs[0] != nil {
			return nil, errs[0]
		}
		var c rfCollection
		if err := rfDecode(bodies[0], &c); err != nil {
			return nil, fmt.Errorf("redfish GET %s: %w", uri, err)
		}
		for _, m := range c.Members {
			var link rfLink
			if json.Unmarshal(m, &link) == nil && link.ID != "" && len(out) < maxRedfishMembers {
				out = append(out, link.ID)
			}
		}
		uri = c.NextLink
	}
	return out, nil
}

// equipment finds the resource to read in the named collections.
func (d *redfishDriver) equipment(ctx context.Context, root rfLinks, under string, collections []string) (string, error) {
	if d.config.Resource != "" {
		return d.config.Resource, nil
	}
	if root[under].ID == "" {
		return "", fmt.Errorf("redfish: the service has no %s", under)
	}
	all, err := d.links(ctx, root[under].ID)
	if err != nil {
		return "", err
	}
	// The first kind of equipment counts: a rack PDU's service may also describe
	// what feeds it.
	for _, name := range collections {
		if all[name].ID == "" {
			continue
		}
		list, err := d.members(ctx, all[name].ID)
		switch {
		case err != nil:
			return "", err
		case len(list) == 1:
			return list[0], nil
		case len(list) > 1:
			return "", fmt.Errorf("redfish: the service has several; set resource to one of %s", clip(strings.Join(list, ", "), 500))
		}
	}
	return "", fmt.Errorf("redfish: %s lists no equipment", root[under].ID)
}

// unit finds the equipment and its links.
func (d *redfishDriver) unit(ctx context.Context, root rfLinks, under string, collections []string) (string, rfLinks, error) {
	uri, err := d.equipment(ctx, root, under, collections)
	if err != nil {
		return "", nil, err
	}
	l, err := d.links(ctx, uri)
	return uri, l, err
}

// collection adds the members of a collection: as one request where the service
// expands it, else as one request for each. single says whether to do the latter.
func (d *redfishDriver) collection(ctx context.Context, uri string, single bool, it redfishItem) error {
	if uri == "" {
		return nil
	}
	for page := uri + d.client.expand; d.client.expand != "" && page != ""; {
		bodies, errs := d.client.getAll(ctx, []string{page})
		var c rfCollection
		if errs[0] != nil || rfDecode(bodies[0], &c) != nil || !expanded(c) {
			break // a service that does not expand what it says it does
		}
		if len(c.Members) == 0 {
			return nil
		}
		one := it
		one.uri, one.members = page, true
		d.items = append(d.items, one)
		if page = c.NextLink; page == "" {
			return nil
		}
	}
	if !single {
		return nil
	}
	list, err := d.members(ctx, uri)
	if err != nil {
		return err
	}
	for _, m := range list {
		one := it
		one.uri = m
		d.items = append(d.items, one)
	}
	return nil
}

// expanded says whether a collection's members are resources, not only links.
func expanded(c rfCollection) bool {
	for _, m := range c.Members {
		var props map[string]json.RawMessage
		if json.Unmarshal(m, &props) != nil || len(props) < 3 {
			return false
		}
	}
	return true
}

func (d *redfishDriver) discoverPDU(ctx context.Context, root rfLinks) error {
	_, unit, err := d.unit(ctx, root, "PowerEquipment", rfPowerEquipment)
	if err != nil {
		return err
	}
	if m := unit["Metrics"].ID; m != "" {
		d.items = append(d.items, redfishItem{uri: m, fast: true, parse: (*redfishPoll).pduMetrics})
	}
	mains := redfishItem{fast: true, parse: func(p *redfishPoll, body []byte) error { return p.mainsCircuit(body) }}
	if err := d.collection(ctx, unit["Mains"].ID, true, mains); err != nil {
		return err
	}
	if err := d.collection(ctx, unit["Branches"].ID, true, redfishItem{parse: (*redfishPoll).branchCircuit}); err != nil {
		return err
	}
	outlets := d.config.Outlets
	if outlets == nil || *outlets {
		err = d.collection(ctx, unit["Outlets"].ID, outlets != nil, redfishItem{parse: (*redfishPoll).outlet})
	}
	d.finish = func(p *redfishPoll) { p.finishPDU(d.config.Mains) }
	return err
}

func (d *redfishDriver) discoverCooling(ctx context.Context, root rfLinks) error {
	uri, unit, err := d.unit(ctx, root, "ThermalEquipment", rfCoolEquipment)
	if err != nil {
		return err
	}
	d.items = append(d.items, redfishItem{uri: uri, parse: (*redfishPoll).coolingUnit})
	leak := func(p *redfishPoll, body []byte) error { return p.leakDetector(body, d.config.LeakSensors) }
	detectors := ""
	if l := unit["LeakDetection"].ID; l != "" {
		found, err := d.links(ctx, l)
		if err != nil {
			return err
		}
		if detectors = found["LeakDetectors"].ID; detectors == "" {
			groups := func(p *redfishPoll, body []byte) error { return p.leakGroups(body, d.config.LeakSensors) }
			d.items = append(d.items, redfishItem{uri: l, parse: groups})
		}
	}
	d.finish = (*redfishPoll).finishCooling
	return errors.Join(
		d.collection(ctx, unit["SecondaryCoolantConnectors"].ID, true, redfishItem{parse: (*redfishPoll).secondaryConnector}),
		d.collection(ctx, unit["PrimaryCoolantConnectors"].ID, true, redfishItem{parse: (*redfishPoll).primaryConnector}),
		d.collection(ctx, unit["Pumps"].ID, true, redfishItem{parse: (*redfishPoll).pump}),
		d.collection(ctx, detectors, true, redfishItem{parse: leak}),
	)
}
