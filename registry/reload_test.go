// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rackpulse/rackpulse/lease/leasepb"
	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/site"
	"github.com/rackpulse/rackpulse/testtool"
)

// exampleText is the example hall's file.
func exampleText(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(testtool.Root(), "site", "example.yml"))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// changed is the example hall with one text replaced by another.
func changed(t *testing.T, old, next string) *site.Site {
	t.Helper()
	text := exampleText(t)
	if strings.Count(text, old) != 1 {
		t.Fatalf("%q is not once in the example hall", old)
	}
	return parseSite(t, strings.Replace(text, old, next, 1))
}

// TestMovedNode moves a node to another rack while it beats: its labels, the
// labels of the devices it polls, the edges and the history follow.
func TestMovedNode(t *testing.T) {
	r := start(t, testConfig(t.TempDir()), Deps{Site: parseSite(t, exampleText(t))})
	a := gpuNode(t, r, "ws01", "10.1.0.1:9400")
	a.beat.GpuUuids = []string{"GPU-ws"}
	a.beat.Hello.Facts = nil
	a.beat.Hello.Devices = []string{"leak-row-a", "r01-a", "nothing"}
	reply := a.mustBeat(t, leasepb.State_READY)
	id := reply.GetIdentity()
	if !maps.Equal(id.GetNode(), map[string]string{"node": "ws01"}) {
		t.Errorf("identity before: %v", id.GetNode())
	}
	if got := id.GetDevices()["r01-a"].GetLabels(); !maps.Equal(got, map[string]string{"pdu_id": "r01-a", "rack_id": "r01"}) {
		t.Errorf("labels of r01-a: %v", got)
	}
	if id.GetRefused()["nothing"] == "" || id.GetDevices()["nothing"] != nil {
		t.Errorf("a device that is not in the site: %v", id)
	}

	next := changed(t, "- {id: ws01, class: workstation}", "- {id: ws01, class: h100, rack: r02, u: 38}")
	if err := r.ApplySite(next); err != nil {
		t.Fatal(err)
	}
	a.beat.Hello = nil
	eventually(t, "new identity", func() error {
		reply, err := a.once()
		if err != nil {
			t.Fatal(err)
		}
		if got := reply.GetIdentity().GetNode(); !maps.Equal(got, map[string]string{"node": "ws01", "rack_id": "r02"}) {
			return fmt.Errorf("identity %v", got)
		}
		return nil
	})
	for _, m := range gather(t, r.Registry)["rackpulse_node_info"].GetMetric() {
		if l := labelsOf(m); l["node"] == "ws01" && !maps.Equal(l, map[string]string{"node": "ws01", "rack_id": "r02", "class": "h100"}) {
			t.Errorf("edge %v", l)
		}
	}
	events, err := r.client(t, "").Events(t.Context(), ledger.Query{Node: "ws01"})
	if err != nil {
		t.Fatal(err)
	}
	var moved *ledger.Event
	for i := range events {
		if events[i].Kind == KindSite && events[i].Evidence["field"] == "rack" {
			moved = &events[i]
		}
		if i > 0 && events[i].ID >= events[i-1].ID {
			t.Errorf("event %d after %d: not newest first", events[i].ID, events[i-1].ID)
		}
	}
	if moved == nil || moved.From != "" || moved.To != "r02" || moved.Actor != "reload" || moved.Reason != `node ws01 rack: "" to "r02"` {
		t.Errorf("event of the move: %+v in %+v", moved, events)
	}
}

func TestApplySiteRefuses(t *testing.T) {
	r := start(t, testConfig(t.TempDir()), Deps{Site: parseSite(t, exampleText(t))})
	if err := r.ApplySite(nil); err == nil {
		t.Error("no site was taken")
	}
	err := r.ApplySite(changed(t, "site: {id: ams1}", "site: {id: ams2}"))
	if err == nil || err.Error() != `site id changed from "ams1" to "ams2": that is another site, restart the registry for it` {
		t.Errorf("another site: %v", err)
	}
	if r.Site().ID != "ams1" {
		t.Errorf("site %s in force", r.Site().ID)
	}
	if err := r.ApplySite(parseSite(t, exampleText(t))); err != nil {
		t.Errorf("the same again: %v", err)
	}
	events, err := r.client(t, "").Events(t.Context(), ledger.Query{})
	if err != nil || len(events) != 0 {
		t.Errorf("events without a change: %+v, %v", events, err)
	}
}

// TestManyChanges bounds the events of one reload.
func TestManyChanges(t *testing.T) {
	var changes []site.Change
	for i := range 1003 {
		changes = append(changes, site.Change{Entity: site.Entity{Kind: site.KindRack, ID: fmt.Sprint(i)}, Action: site.Added})
	}
	events := siteEvents(changes, t0)
	if len(events) != 1001 || events[1000].Reason != "and 3 more changes of the site file" || events[0].Node != "" || events[0].Evidence["kind"] != "rack" {
		t.Errorf("%d events, last %+v", len(events), events[len(events)-1])
	}
}
