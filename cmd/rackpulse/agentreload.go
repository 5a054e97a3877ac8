// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"reflect"
	"strings"
)

// reload puts a new configuration into force; what needs a restart is refused.
func (a *agent) reload(next *agentConfig) error {
	if err := a.reloadable(next); err != nil {
		return err
	}
	if a.gpu != nil {
		if err := a.gpu.Apply(next.gpuConfig()); err != nil {
			return err
		}
	}
	if a.klog != nil {
		if err := a.klog.Apply(next.gpuConfig()); err != nil {
			return err
		}
	}
	if a.facility != nil {
		if err := a.claims.configure(next.Facility); err != nil {
			return err
		}
	}
	a.cfg.GPU, a.cfg.Facility = next.GPU, next.Facility
	if a.beater != nil {
		a.beater.Announce()
	}
	return nil
}

// reloadable says what of a new configuration needs a restart.
func (a *agent) reloadable(next *agentConfig) error {
	if next.Node != a.cfg.Node || strings.Join(next.Registry.Addresses, ",") != strings.Join(a.cfg.Registry.Addresses, ",") {
		return errors.New("node and registry cannot change without a restart")
	}
	if (a.gpu == nil) != !next.wantsGPU() || (a.klog == nil) != !next.wantsKernelLog() || (a.facility == nil) != (len(next.Facility) == 0) {
		return errors.New("adding or dropping the gpu or the facility part needs a restart")
	}
	if !reflect.DeepEqual(next.Push, a.cfg.Push) {
		return errors.New("push cannot change without a restart")
	}
	if !reflect.DeepEqual(next.Baseline, a.cfg.Baseline) {
		return errors.New("baseline cannot change without a restart")
	}
	if a.hall != nil {
		return errors.New("a simulated agent does not reload")
	}
	return nil
}
