// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rackpulse/rackpulse/lease"
	"github.com/rackpulse/rackpulse/lease/leasepb"
	"github.com/rackpulse/rackpulse/ledger"
)

// beating is the lease of a node whose agent advertises that address.
func beating(node, advertise string) lease.NodeStatus {
	return lease.NodeStatus{Node: node, Beating: true, Agent: &lease.Hello{Advertise: advertise}}
}

func TestAddressBook(t *testing.T) {
	s := parseSite(t, sdSite)
	b := newAddressBook()
	kept := map[string]ledger.Record{} // as a ledger has them
	book := func() string {
		var out []string
		for id, a := range b.all() {
			out = append(out, id+"="+a.Address)
		}
		slices.Sort(out)
		return strings.Join(out, " ")
	}
	step := func(what, want string, at time.Time, nodes []lease.NodeStatus, devices ...lease.Device) {
		t.Helper()
		b.update(s, nodes, devices, at)
		if got := book(); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	fac := func(agent, device string) lease.Device {
		return lease.Device{ID: device, Agent: agent, Address: "10.8.0.1:9400"}
	}
	all := "fac1=10.8.0.1:9400 n1=10.9.0.1:9400 n2=10.9.0.2:9401"
	step("first beats; n2 names no host, n3 none at all", all, t0,
		[]lease.NodeStatus{beating("n1", "10.9.0.1:9400"), beating("n2", ":9401"), beating("n3", ":9400"), beating("n4", "a/b:1")}, fac("fac1", "r01-a"))
	step("silence", all, t0.Add(24*time.Hour), nil)
	step("a silent node is not seen anew", all, t0.Add(24*time.Hour), []lease.NodeStatus{{Node: "n1", Agent: &lease.Hello{Advertise: "10.9.9.9:1"}}})
	again := func(changes int) {
		t.Helper()
		news := b.news()
		if len(news) != changes || len(b.news()) != 0 {
			t.Errorf("%d changes, want %d: %+v", len(news), changes, news)
		}
		for _, r := range news {
			if r.Data == nil {
				delete(kept, r.ID)
				continue
			}
			kept[r.ID] = r
		}
		b = newAddressBook()
		if err := b.restore(slices.Collect(maps.Values(kept))); err != nil {
			t.Fatal(err)
		}
	}
	again(3)
	step("from the ledger", all, t0.Add(24*time.Hour), nil)
	step("the node moved", "fac1=10.8.0.1:9400 n1=10.9.0.7:9400 n2=10.9.0.2:9401", t0.Add(24*time.Hour), []lease.NodeStatus{beating("n1", "10.9.0.7:9400")})
	step("another agent polls its device", "fac2=10.8.0.1:9400 n1=10.9.0.7:9400 n2=10.9.0.2:9401", t0.Add(25*time.Hour), nil, fac("fac2", "r01-a"))
	again(3) // n1 moved, fac1 gone, fac2 new
	step("the agent is long gone, nodes stay", "n1=10.9.0.7:9400 n2=10.9.0.2:9401", t0.Add(33*24*time.Hour), nil)
	s = parseSite(t, strings.Replace(sdSite, "id: n2,", "id: n9,", 1))
	step("n2 is no longer declared", "n1=10.9.0.7:9400", t0.Add(33*24*time.Hour), nil)
}

// TestAddressBookInLedger holds that the book is in the ledger when the registry
// has ended, though nobody asked for targets, and that it is there at once when
// the next one leads.
func TestAddressBookInLedger(t *testing.T) {
	dir := t.TempDir()
	r := start(t, testConfig(dir), Deps{Site: parseSite(t, sdSite)})
	if _, err := dial(t, r.grpc, "n1", &leasepb.Hello{Advertise: "10.9.0.1:9400"}).once(); err != nil {
		t.Fatal(err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	r = start(t, testConfig(dir), Deps{Site: parseSite(t, sdSite)})
	var groups []TargetGroup
	r.get(t, "/api/v1/sd/agents", &groups)
	if got := addresses(groups); got["n1"] != "10.9.0.1:9400" {
		t.Errorf("targets %v", got)
	}
}

// TestAddressBookDamaged leaves out what is no address.
func TestAddressBookDamaged(t *testing.T) {
	b := newAddressBook()
	err := b.restore([]ledger.Record{
		{Kind: ledger.RecordAgent, ID: "n1", Data: []byte(`{"address":"file:///etc"}`)},
		{Kind: ledger.RecordHold, ID: "manual", Data: []byte(`{"address":"10.9.0.3:9400"}`)},
		{Kind: ledger.RecordAgent, ID: "n2", Data: []byte(`{"address":"10.9.0.2:9400","node":true}`)},
	})
	if err == nil || !strings.Contains(err.Error(), `agent "n1"`) || len(b.all()) != 1 || b.all()["n2"].Address != "10.9.0.2:9400" {
		t.Errorf("book %v, %v", b.all(), err)
	}
}

// TestLeftNodeIsNoTarget lets a node leave: nobody is to be alerted of it.
func TestLeftNodeIsNoTarget(t *testing.T) {
	cfg := testConfig(t.TempDir())
	cfg.Advertise = "reg1:9401"
	r := start(t, cfg, Deps{Site: parseSite(t, sdSite)})
	a := dial(t, r.grpc, "n2", &leasepb.Hello{Epoch: 7, Advertise: "10.9.0.2:9400"})
	a.mustBeat(t, leasepb.State_READY)
	a.beat.Intent = &leasepb.Intent{Kind: leasepb.Intent_LEAVE}
	a.mustBeat(t, leasepb.State_DRAINING)
	if got := addresses(r.agentTargets("reg1:9401")); got["n2"] != "10.9.0.2:9400" {
		t.Errorf("while it drains: %v", got)
	}
	a.conn.Close()
	eventually(t, "n2 is no target", func() error {
		got, foreign := addresses(r.agentTargets("reg1:9401")), addresses(r.exporterTargets("node_exporter", 9100))
		if !maps.Equal(got, map[string]string{"registry": "reg1:9401"}) || foreign["n2"] != "" || foreign["n1"] != "n1.example:9101" {
			return fmt.Errorf("targets %v, %v", got, foreign)
		}
		return nil
	})
	// One process on one port: the registry is not scraped twice.
	b := dial(t, r.grpc, "n3", &leasepb.Hello{Epoch: 8, Advertise: "reg1:9401"})
	b.mustBeat(t, leasepb.State_READY)
	if got := addresses(r.agentTargets("reg1:9401")); !maps.Equal(got, map[string]string{"n3": "reg1:9401"}) {
		t.Errorf("agent and registry on one port: %v", got)
	}
}
