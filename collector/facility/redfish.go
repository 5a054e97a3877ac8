// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

func init() {
	Register("redfish", "PDUs, power shelves, cooling distribution units and servers (BMCs) that speak Redfish", newRedfish)
}

// redfishConfig is the block "redfish" of an entry.
type redfishConfig struct {
	loginConfig `yaml:",inline"`
	// CAFile holds the certificates to trust instead of the system's.
	CAFile string `yaml:"ca_file"`
	// InsecureSkipVerify takes any certificate, and allows plain http.
	InsecureSkipVerify bool `yaml:"insecure_skip_verify"`
	// Resource is the PDU, cooling unit or chassis, where the service has several.
	Resource string `yaml:"resource"`
	// Mains is the id of the inlet whose lines and phases are shown, where the
	// device has several.
	Mains string `yaml:"mains"`
	// Outlets says whether outlets are read; by default they are where the
	// service sends them all in one answer.
	Outlets *bool `yaml:"outlets"`
	// Node is the server's node name; without it the server's power is left out.
	Node string `yaml:"node"`
	// Sensors are single Sensor resources that belong to devices of the site file.
	Sensors []redfishSensor `yaml:"sensors"`
	// LeakSensors gives leak detectors, by their Id, a sensor of the site file.
	LeakSensors map[string]string `yaml:"leak_sensors"`
}

type redfishSensor struct {
	URI      string `yaml:"uri"`
	Device   string `yaml:"device"`
	Quantity string `yaml:"quantity"`
	Part     string `yaml:"part"`
	quantity *Quantity
}

// redfishFastest is the shortest time between two fast samples, of some two
// requests each.
const redfishFastest = 250 * time.Millisecond

// maxRedfishSensors bounds the list sensors; each costs a request per read.
const maxRedfishSensors = 64

func newRedfish(fc FactoryConfig) (Plan, error) {
	var c redfishConfig
	if err := fc.Decode(&c); err != nil {
		return Plan{}, err
	}
	endpoint, err := redfishEndpoint(fc.Address, c.InsecureSkipVerify)
	if err == nil {
		err = c.check(fc)
	}
	if err != nil {
		return Plan{}, fmt.Errorf("redfish: %w", err)
	}
	serves := slices.Collect(maps.Values(c.LeakSensors))
	for _, s := range c.Sensors {
		serves = append(serves, s.Device)
	}
	slices.Sort(serves)
	serves = slices.DeleteFunc(slices.Compact(serves), func(id string) bool { return id == fc.Device.ID })
	open := func(ctx context.Context) (Driver, error) {
		client, err := dialRedfish(ctx, endpoint, c, min(maxRedfishRequest, fc.Deadline))
		if err != nil {
			return nil, err
		}
		d := &redfishDriver{client: client, config: c, kind: fc.Kind(fc.Device.ID)}
		if err := d.discover(ctx); err != nil {
			client.close()
			return nil, err
		}
		return d, nil
	}
	return Plan{Open: open, Serves: serves, Fastest: redfishFastest}, nil
}

func (c *redfishConfig) check(fc FactoryConfig) error {
	if err := c.loginConfig.check(fc.Resolve); err != nil {
		return err
	}
	if fc.Resolve != nil {
		c.CAFile = fc.Resolve(c.CAFile)
	}
	if c.Resource != "" && !strings.HasPrefix(c.Resource, "/redfish/v1/") {
		return fmt.Errorf("resource %q does not begin with /redfish/v1/", c.Resource)
	}
	if len(c.Sensors) > maxRedfishSensors {
		return fmt.Errorf("sensors: %d are more than %d", len(c.Sensors), maxRedfishSensors)
	}
	for i := range c.Sensors {
		if err := c.Sensors[i].check(fc); err != nil {
			return fmt.Errorf("sensors[%d] (%s): %w", i, c.Sensors[i].URI, err)
		}
	}
	leak, err := lookup("leak")
	for _, id := range slices.Sorted(maps.Keys(c.LeakSensors)) {
		if err == nil {
			err = leak.allows(fc.Kind(c.LeakSensors[id]))
		}
		if err != nil {
			return fmt.Errorf("leak_sensors: %s: %w", id, err)
		}
	}
	return nil
}

func (s *redfishSensor) check(fc FactoryConfig) (err error) {
	if !strings.HasPrefix(s.URI, "/redfish/v1/") {
		return errors.New("uri does not begin with /redfish/v1/")
	}
	if s.quantity, err = lookup(s.Quantity); err != nil {
		return err
	}
	if rfSensorTypes[s.quantity.Base] == nil {
		return fmt.Errorf("quantity %s is not what a Redfish sensor measures", s.Quantity)
	}
	if s.Part, err = s.quantity.part(s.Part); err != nil {
		return err
	}
	if s.Device == "" {
		s.Device = fc.Device.ID
	}
	if err := s.quantity.allows(fc.Kind(s.Device)); err != nil {
		return fmt.Errorf("device %s: %w", s.Device, err)
	}
	return nil
}

// redfishDriver reads the resources that it found when it was opened.
type redfishDriver struct {
	client *redfishClient
	config redfishConfig
	kind   string
	items  []redfishItem // empty: to be found again
	finish func(*redfishPoll)
}

// redfishItem is one request of a read.
type redfishItem struct {
	uri string
	// members says that the answer is a collection with its members in it.
	members bool
	// fast says that it is part of a fast sample.
	fast  bool
	parse func(p *redfishPoll, body []byte) error
}

// Read gets each known resource once.
func (d *redfishDriver) Read(ctx context.Context) ([]Reading, error) {
	if len(d.items) == 0 {
		if err := d.discover(ctx); err != nil {
			return nil, err
		}
	}
	return d.poll(ctx, d.items)
}

// ReadFast gets the totals, the inlets and the single sensors.
func (d *redfishDriver) ReadFast(ctx context.Context) ([]Reading, error) {
	fast := slices.DeleteFunc(slices.Clone(d.items), func(it redfishItem) bool { return !it.fast })
	if len(fast) == 0 {
		return nil, nil
	}
	return d.poll(ctx, fast)
}

func (d *redfishDriver) poll(ctx context.Context, items []redfishItem) ([]Reading, error) {
	uris := make([]string, len(items))
	for i, it := range items {
		uris[i] = it.uri
	}
	bodies, errs := d.client.getAll(ctx, uris)
	poll := &redfishPoll{}
	failed := 0
	for i, it := range items {
		if errs[i] == nil {
			errs[i] = it.take(poll, bodies[i])
		}
		if errs[i] != nil {
			failed++
		}
		var get *redfishGetError
		if errors.As(errs[i], &get) && get.status == http.StatusNotFound {
			d.items = nil // the device has changed
		}
	}
	if failed == len(items) {
		return nil, firstErr(errs)
	}
	d.finish(poll)
	return poll.out, firstErr(errs)
}

func firstErr(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// take parses an answer; a member that cannot be parsed costs no other.
func (it redfishItem) take(p *redfishPoll, body []byte) error {
	if !it.members {
		if err := it.parse(p, body); err != nil {
			return fmt.Errorf("redfish GET %s: %w", it.uri, err)
		}
		return nil
	}
	var list rfCollection
	err := rfDecode(body, &list)
	for _, m := range list.Members {
		if e := it.parse(p, m); err == nil {
			err = e
		}
	}
	if err != nil {
		return fmt.Errorf("redfish GET %s: %w", it.uri, err)
	}
	return nil
}

// Close ends the session.
func (d *redfishDriver) Close() error {
	d.client.close()
	return nil
}
