// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"cmp"
	"fmt"

	"github.com/rackpulse/rackpulse/lease/leasepb"
	"github.com/rackpulse/rackpulse/site"
)

// Roles of an agent.
const (
	// RoleGPU marks the agent of a node, even if it finds no GPU there.
	RoleGPU = "gpu"
	// RoleFacility marks an agent that polls facility devices.
	RoleFacility = "facility"
)

// Hello is what an agent tells of itself.
type Hello struct {
	// BootID is the kernel's boot id of the agent's machine.
	BootID  string
	Version string
	// Roles are RoleGPU, RoleFacility or both; none means RoleGPU.
	Roles []string
	// Advertise is the host:port of the agent's metrics.
	Advertise string
	Facts     site.Facts
	// Devices are the ids of the facility devices that it polls.
	Devices []string
	// Simulated says that what it shows is not measured.
	Simulated bool

	// outside says how its facts differ from the class' baseline, "": they do not;
	// changed names those of them that are told and differ. See baseline.go.
	outside, changed string
	// rebooted says that the node was booted since it was admitted, and has not
	// shown that it still meets the baseline.
	rebooted bool
}

// Bounds of what a beat may carry.
const (
	// maxMessage is the largest beat, bytes: 4,096 devices with long names.
	maxMessage  = 1 << 20
	maxUUIDs    = 512 // 8 GPUs with 7 instances each, eight times over
	maxDevices  = 4096
	maxBreaches = 64
	maxText     = 256 // bytes of one name or value
	maxRoles    = 8
	maxFacts    = 32
)

// checkList bounds a list from outside.
func checkList(what string, list []string, most int) error {
	if len(list) > most {
		return fmt.Errorf("%s: %d entries, %d are the most", what, len(list), most)
	}
	for _, s := range list {
		if s == "" || len(s) > maxText {
			return fmt.Errorf("%s: an entry of %d bytes, 1 to %d are allowed", what, len(s), maxText)
		}
	}
	return nil
}

// helloFrom checks and converts the wire's hello.
func helloFrom(p *leasepb.Hello) (*Hello, error) {
	if err := cmp.Or(
		checkList("hello.roles", p.GetRoles(), maxRoles),
		checkList("hello.devices", p.GetDevices(), maxDevices),
	); err != nil {
		return nil, err
	}
	if len(p.GetFacts()) > maxFacts {
		return nil, fmt.Errorf("hello.facts: %d entries, %d are the most", len(p.GetFacts()), maxFacts)
	}
	for _, s := range []string{p.GetBootId(), p.GetVersion(), p.GetAdvertise()} {
		if len(s) > maxText {
			return nil, fmt.Errorf("hello: a text of %d bytes, %d are the most", len(s), maxText)
		}
	}
	h := &Hello{
		BootID: p.GetBootId(), Version: p.GetVersion(), Roles: p.GetRoles(), Advertise: p.GetAdvertise(),
		Devices: p.GetDevices(), Simulated: p.GetSimulated(),
	}
	f := p.GetFacts()
	for key, value := range f {
		if len(value) > maxText {
			return nil, fmt.Errorf("hello.facts[%.32q]: %d bytes, %d are the most", key, len(value), maxText)
		}
	}
	var err error
	if h.Facts, err = site.ReadFacts(f); err != nil {
		return nil, fmt.Errorf("hello.facts: %w", err)
	}
	h.Facts.Simulated = h.Simulated
	return h, nil
}

// wire converts h for the wire.
func (h *Hello) wire(epoch uint64) *leasepb.Hello {
	facts := h.Facts.Texts()
	for name, text := range facts {
		facts[name] = clip(text)
	}
	return &leasepb.Hello{
		BootId: h.BootID, Epoch: epoch, Version: h.Version, Roles: h.Roles, Advertise: h.Advertise,
		Facts: facts, Devices: h.Devices, Simulated: h.Simulated || h.Facts.Simulated,
	}
}
