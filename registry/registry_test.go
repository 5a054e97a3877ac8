// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"testing"

	"github.com/rackpulse/rackpulse/lease/leasepb"
)

func TestNodesOverLoopback(t *testing.T) {
	r := start(t, testConfig(t.TempDir()), Deps{})
	a := gpuNode(t, r, "gpu001", "10.1.0.1:9400")
	reply := a.mustBeat(t, leasepb.State_READY)
	if got := reply.GetIdentity().GetNode(); got["node"] != "gpu001" || got["rack_id"] != "r01" || len(got) != 2 {
		t.Errorf("identity %v", got)
	}

	var nodes []Node
	r.get(t, "/api/v1/nodes", &nodes)
	if len(nodes) != 17 {
		t.Fatalf("%d nodes, the example hall has 17", len(nodes))
	}
	n := nodes[0]
	if n.Node != "gpu001" || n.State != "READY" || n.Rack != "r01" || n.Class != "h100" || !n.Schedulable || !n.Beating ||
		n.LeaseUp == nil || !*n.LeaseUp || len(n.GPUs) != 8 || len(n.Accepted) != 8 || n.AcceptedBy != "registry" ||
		n.Agent == nil || n.Agent.Address != "10.1.0.1:9400" || n.Agent.Facts.Driver != "570.133.20" || n.LastBeat.IsZero() || n.SkewSeconds == nil {
		t.Errorf("gpu001: %+v", n)
	}
	if n := nodes[1]; n.State != "" || n.LeaseUp != nil || !n.Since.IsZero() || n.Agent != nil {
		t.Errorf("a node that never beat: %+v", n)
	}
	if n := nodes[16]; n.Node != "ws01" || n.Rack != "" {
		t.Errorf("rackless node: %+v", n)
	}
}
