// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// discoverChassis finds a server's chassis and where it tells its inlet
// temperature and power: in the new subsystems, or in the old Thermal and Power.
func (d *redfishDriver) discoverChassis(ctx context.Context, root rfLinks) error {
	uri := d.config.Resource
	if uri == "" {
		var err error
		if uri, err = d.pickChassis(ctx, root["Chassis"].ID); err != nil {
			return err
		}
	}
	chassis, err := d.links(ctx, uri)
	if err != nil {
		return err
	}
	d.finish = func(p *redfishPoll) { p.finishNode(d.config.Node) }
	if err := d.thermalItems(ctx, chassis); err != nil || d.config.Node == "" {
		return err
	}
	return d.powerItems(ctx, chassis)
}

// pickChassis takes the chassis that is a whole server. Servers with GPU
// baseboards list dozens, one for each GPU.
func (d *redfishDriver) pickChassis(ctx context.Context, uri string) (string, error) {
	if uri == "" {
		return "", errors.New("redfish: the service has no Chassis")
	}
	list, err := d.members(ctx, uri)
	if err != nil {
		return "", err
	}
	list = list[:min(len(list), maxRedfishChassis)]
	bodies, errs := d.client.getAll(ctx, list)
	best, score := "", 0
	for i, body := range bodies {
		var c struct {
			ChassisType                                                          string
			Thermal, ThermalSubsystem, Power, PowerSubsystem, EnvironmentMetrics rfLink
			Links                                                                struct{ ComputerSystems []rfLink }
		}
		if errs[i] != nil || rfDecode(body, &c) != nil {
			continue
		}
		points := 0
		for _, l := range []rfLink{c.Thermal, c.ThermalSubsystem, c.Power, c.PowerSubsystem, c.EnvironmentMetrics} {
			if l.ID != "" {
				points++
			}
		}
		if points > 0 && slices.Contains([]string{"RackMount", "StandAlone", "Blade", "Sled", "Enclosure"}, c.ChassisType) {
			points += 10
		}
		if points > 0 && len(c.Links.ComputerSystems) > 0 {
			points += 20
		}
		if points > score {
			best, score = list[i], points
		}
	}
	if best == "" {
		return "", errors.Join(errors.New("redfish: no chassis has temperatures or power"), firstErr(errs))
	}
	return best, nil
}

// thermalItems adds where the inlet temperature is: the summary of the new
// ThermalSubsystem, the old Thermal, or a sensor at the intake.
func (d *redfishDriver) thermalItems(ctx context.Context, chassis rfLinks) error {
	if t := chassis["ThermalSubsystem"].ID; t != "" {
		sub, err := d.links(ctx, t)
		if err != nil {
			return err
		}
		if m := sub["ThermalMetrics"].ID; m != "" && d.tells(ctx, m, (*redfishPoll).thermalMetrics) {
			d.items = append(d.items, redfishItem{uri: m, parse: (*redfishPoll).thermalMetrics})
			return nil
		}
	}
	if t := chassis["Thermal"].ID; t != "" && d.tells(ctx, t, (*redfishPoll).thermal) {
		d.items = append(d.items, redfishItem{uri: t, parse: (*redfishPoll).thermal})
		return nil
	}
	if s := chassis["Sensors"].ID; s != "" {
		return d.intakeSensor(ctx, s)
	}
	return nil
}

// tells says whether a resource has the inlet temperature now.
func (d *redfishDriver) tells(ctx context.Context, uri string, parse func(*redfishPoll, []byte) error) bool {
	bodies, errs := d.client.getAll(ctx, []string{uri})
	var p redfishPoll
	return errs[0] == nil && parse(&p, bodies[0]) == nil && p.node.inlet.ok
}

// intakeSensor looks through all sensors, once, for the one at the intake.
func (d *redfishDriver) intakeSensor(ctx context.Context, uri string) error {
	list, err := d.members(ctx, uri)
	if err != nil {
		return err
	}
	bodies, errs := d.client.getAll(ctx, list)
	named := ""
	for i, body := range bodies {
		var s struct{ Name, ReadingType, PhysicalContext string }
		if errs[i] != nil || json.Unmarshal(body, &s) != nil || s.ReadingType != "Temperature" {
			continue
		}
		if s.PhysicalContext == "Intake" {
			named = list[i]
			break
		}
		if named == "" && inletName(s.Name) {
			named = list[i]
		}
	}
	if named == "" {
		return nil
	}
	q, err := lookup("inlet_temperature")
	if err != nil {
		return err
	}
	s := redfishSensor{URI: named, Quantity: q.Name, quantity: q}
	d.items = append(d.items, redfishItem{uri: named, parse: func(p *redfishPoll, body []byte) error { return p.sensor(body, s) }})
	return nil
}

// powerItems adds where the power is: EnvironmentMetrics, the old Power, or the
// sum over the power supplies.
func (d *redfishDriver) powerItems(ctx context.Context, chassis rfLinks) error {
	if e := chassis["EnvironmentMetrics"].ID; e != "" {
		bodies, errs := d.client.getAll(ctx, []string{e})
		var p redfishPoll
		if errs[0] == nil && p.environmentMetrics(bodies[0]) == nil && p.node.power.ok {
			d.items = append(d.items, redfishItem{uri: e, parse: (*redfishPoll).environmentMetrics})
			return nil
		}
	}
	if p := chassis["Power"].ID; p != "" {
		d.items = append(d.items, redfishItem{uri: p, parse: (*redfishPoll).oldPower})
		return nil
	}
	if chassis["PowerSubsystem"].ID == "" {
		return nil
	}
	sub, err := d.links(ctx, chassis["PowerSubsystem"].ID)
	if err != nil {
		return err
	}
	supplies, err := d.members(ctx, sub["PowerSupplies"].ID)
	if err != nil {
		return err
	}
	for _, uri := range supplies {
		psu, err := d.links(ctx, uri)
		if err != nil {
			return fmt.Errorf("power supply: %w", err)
		}
		if m := psu["Metrics"].ID; m != "" {
			d.items = append(d.items, redfishItem{uri: m, parse: (*redfishPoll).supplyMetrics})
		}
	}
	return nil
}
