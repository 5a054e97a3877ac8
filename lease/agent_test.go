// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestBeaterConfig(t *testing.T) {
	ok := func() Inventory { return Inventory{} }
	for want, b := range map[string]*Beater{
		"no registry address": {Config: BeaterConfig{Node: "a"}, Inventory: ok},
		"node name of 0 byte": {Config: BeaterConfig{Addresses: []string{"a:1"}}, Inventory: ok},
		"needs TLS":           {Config: BeaterConfig{Node: "a", Addresses: []string{"a:1"}, Token: func() (string, error) { return "t", nil }}, Inventory: ok},
		"no inventory":        {Config: BeaterConfig{Node: "a", Addresses: []string{"a:1"}}},
	} {
		if err := b.Run(context.Background()); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}

func TestFacilityOnlyAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, t.TempDir(), nil)
		poller := func(name string) *agent {
			return beatTo(t, oneRegistry(b.ln), func(x *Beater) {
				x.Config.Node = name
				x.Hello = func() Hello {
					return Hello{Roles: []string{RoleFacility}, Advertise: name + ":9400", Devices: []string{"r01-a"}}
				}
				x.Inventory = func() Inventory { return Inventory{Status: Unavailable} }
			}, "reg1:9402")
		}
		first := poller("fac1")
		time.Sleep(time.Second)
		second := poller("fac2")
		time.Sleep(time.Minute)
		if got := second.id.Load().Refused; !maps.Equal(got, map[string]string{"r01-a": "agent fac1 polls it already"}) {
			t.Errorf("refused %v", got)
		}
		if len(b.srv.Nodes()) != 0 {
			t.Errorf("a facility agent has a lease: %+v", b.srv.Nodes())
		}
		// Its stream ends: 10 s later the other one gets the device.
		if err := first.stop(); err != nil {
			t.Error(err)
		}
		time.Sleep(16 * time.Second)
		if got := second.id.Load().Refused; len(got) != 0 {
			t.Errorf("still refused: %v", got)
		}
		if d := b.srv.Devices(); len(d) != 1 || d[0].Agent != "fac2" || d[0].Address != "fac2:9400" || d[0].Node {
			t.Errorf("devices %+v", d)
		}
		if err := second.stop(); err != nil {
			t.Error(err)
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}
