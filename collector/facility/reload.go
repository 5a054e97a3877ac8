// SPDX-License-Identifier: Apache-2.0

package facility

import (
	"context"
	"errors"
	"fmt"
	"slices"
)

// Apply changes the running configuration. It is checked as a whole first, and
// an error changes nothing. Entries that did not change run on. A changed entry
// whose device is open is opened anew before the old one is closed; what can be
// open only once is closed first, and opened again as it was when the new one
// does not open. New devices, and those that did not work before, open in their
// own time.
func (r *Runner) Apply(configs []DeviceConfig) error {
	r.apply.Lock()
	defer r.apply.Unlock()
	list, err := r.prepare(configs)
	if err != nil {
		return err
	}
	old := r.list()
	if r.ctx == nil || r.ctx.Err() != nil {
		r.set(list)
		return nil
	}
	var leaving, coming []*device
	for _, d := range old {
		if !slices.Contains(list, d) {
			leaving = append(leaving, d)
		}
	}
	for _, d := range list {
		if !slices.Contains(old, d) {
			coming = append(coming, d)
		}
	}
	drivers, err := r.swap(leaving, coming)
	if err != nil {
		return err
	}
	for _, d := range leaving {
		if !slices.ContainsFunc(list, func(n *device) bool { return n.config.Device == d.config.Device }) {
			d.forget()
		}
	}
	r.set(list)
	for _, d := range coming {
		d.start(r.ctx, drivers[d])
	}
	return nil
}

// swap stops the leaving devices and opens those of the coming ones that take
// the place of an open one. After an error all is as before.
func (r *Runner) swap(leaving, coming []*device) (map[*device]Driver, error) {
	replaced := map[string]bool{}
	for _, d := range leaving {
		replaced[d.config.Device] = d.isOpen()
	}
	drivers := map[*device]Driver{}
	openAll := func(exclusive bool) error {
		for _, d := range coming {
			if !replaced[d.config.Device] || exclusive != (d.plan.Exclusive != "") {
				continue
			}
			driver, err := openWithin(r.ctx, d)
			if err != nil {
				return errors.Join(fmt.Errorf("facility: device %s: open: %w; the old configuration stays", d.config.Device, err), closeAll(drivers))
			}
			drivers[d] = driver
		}
		return nil
	}
	if err := openAll(false); err != nil {
		return nil, err
	}
	stopAll(leaving)
	if err := openAll(true); err != nil {
		r.restart(leaving)
		return nil, err
	}
	return drivers, nil
}

// restart puts devices that were stopped back to work.
func (r *Runner) restart(stopped []*device) {
	list := slices.Clone(r.list())
	for i, d := range list {
		if slices.Contains(stopped, d) {
			list[i] = d.again()
			list[i].start(r.ctx, nil)
		}
	}
	r.set(list)
}

func openWithin(ctx context.Context, d *device) (Driver, error) {
	ctx, cancel := context.WithTimeout(ctx, d.config.Deadline)
	defer cancel()
	return d.plan.Open(ctx)
}

func closeAll(drivers map[*device]Driver) error {
	var errs []error
	for _, driver := range drivers {
		errs = append(errs, driver.Close())
	}
	return errors.Join(errs...)
}
