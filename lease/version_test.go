// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/rackpulse/rackpulse/lease/leasepb"
)

// later gives a message fields that only a later version knows: a number, a text
// and a message.
func later(m proto.Message) {
	raw := protowire.AppendTag(nil, 1000, protowire.VarintType)
	raw = protowire.AppendVarint(raw, 1<<40)
	raw = protowire.AppendTag(raw, 1001, protowire.BytesType)
	raw = protowire.AppendString(raw, "of a later version")
	raw = protowire.AppendTag(raw, 1002, protowire.BytesType)
	raw = protowire.AppendBytes(raw, protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), 7))
	m.ProtoReflect().SetUnknown(raw)
}

// TestLaterAgent keeps the lease of an agent that tells fields, values, roles and
// facts that are not known here; what is known of them counts.
func TestLaterAgent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, t.TempDir(), nil)
		c := b.conn()
		stream, err := leasepb.NewLeaseClient(c).Heartbeat(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		beat := func(m *leasepb.HeartbeatRequest) {
			t.Helper()
			m.NodeId, m.GpuUuids = "gpu001", uuids(0, 8)
			later(m)
			if err := stream.Send(m); err != nil {
				t.Fatal(err)
			}
			if r, err := stream.Recv(); err != nil || r.GetError() != "" {
				t.Fatalf("answer %v, %v", r, err)
			}
			time.Sleep(5 * time.Second)
		}
		hello := &leasepb.Hello{Epoch: 7, Version: "9.0", Roles: []string{"gpu", "dpu"}, Facts: map[string]string{"driver": "570.124.06", "of_later": "x"}}
		intent := &leasepb.Intent{Kind: 99, Seconds: 600, Reason: "of a later version"}
		later(hello)
		later(intent)
		beat(&leasepb.HeartbeatRequest{Seq: 1, Hello: hello})
		beat(&leasepb.HeartbeatRequest{Seq: 2})
		beat(&leasepb.HeartbeatRequest{Seq: 3})
		b.want("gpu001", Ready)
		if a := b.srv.Nodes()[0].Agent; a == nil || a.Facts.Driver != "570.124.06" {
			t.Errorf("told %+v", a)
		}
		beat(&leasepb.HeartbeatRequest{Seq: 4, Intent: intent}) // what it is about to do is not known
		b.want("gpu001", Ready)
		for seq := range uint64(3) {
			// How far the list can be trusted is not known: as little as possible.
			beat(&leasepb.HeartbeatRequest{Seq: 5 + seq, InventoryStatus: 99})
		}
		b.want("gpu001", Ready)
		if got := b.srv.Nodes()[0].Inventory; got != Unavailable {
			t.Errorf("inventory is %s", got)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}

// laterRegistry answers with fields and values that are not known here.
type laterRegistry struct {
	leasepb.UnimplementedLeaseServer
}

func (laterRegistry) Heartbeat(stream grpc.BidiStreamingServer[leasepb.HeartbeatRequest, leasepb.HeartbeatReply]) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return err
		}
		r := &leasepb.HeartbeatReply{RegistryEpoch: 3, TtlMs: 30000, NextBeatMs: 5000, State: 256 + leasepb.State_READY,
			Identity: &leasepb.Identity{Node: map[string]string{"node": "gpu001", "rack_id": "r01"}, ExpectedGpus: 8}}
		later(r)
		later(r.Identity)
		if err := stream.Send(r); err != nil {
			return err
		}
	}
}

// TestLaterRegistry beats to a registry of a later version: the agent stays in
// service and takes what it knows; a state that it does not know is none.
func TestLaterRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := bufconn.Listen(256 << 10)
		gs := grpc.NewServer()
		leasepb.RegisterLeaseServer(gs, laterRegistry{})
		served := make(chan error, 1)
		go func() { served <- gs.Serve(ln) }()
		a := beatTo(t, oneRegistry(ln), nil, "reg1:9402")
		time.Sleep(time.Minute)
		synctest.Wait()
		if !a.Schedulable() || a.acks.Load() < 10 || a.failures.Load() != 0 {
			t.Errorf("schedulable %t, %d answers, %d failures", a.Schedulable(), a.acks.Load(), a.failures.Load())
		}
		if id := a.id.Load(); id == nil || id.Node["rack_id"] != "r01" || id.ExpectedGPUs != 8 {
			t.Errorf("identity %+v", id)
		}
		if states, _ := a.heard(); len(states) != 0 {
			t.Errorf("states %v", states)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		gs.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}
