// SPDX-License-Identifier: Apache-2.0

//go:build e2e

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/rackpulse/rackpulse/lease/testdata/minimal"
)

// minimalStream is a stream of the client that knows three fields only.
type minimalStream struct {
	t    *testing.T
	node string
	grpc.ClientStream
}

// dial connects to the registry without TLS.
func (s *small) dial() *grpc.ClientConn {
	s.t.Helper()
	conn, err := grpc.NewClient(s.grpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func openStream(t *testing.T, conn *grpc.ClientConn, node string) *minimalStream {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/rackpulse.lease.v1.Lease/Heartbeat")
	if err != nil {
		t.Fatal(err)
	}
	return &minimalStream{t: t, node: node, ClientStream: stream}
}

// beat sends one beat and takes the reply.
func (m *minimalStream) beat(gpus ...string) error {
	beat := &minimal.HeartbeatRequest{NodeId: m.node, Timestamp: time.Now().Unix(), GpuUuids: gpus}
	if err := m.SendMsg(beat); err != nil {
		// The reason comes with the end of the stream.
		return m.RecvMsg(&minimal.HeartbeatReply{})
	}
	return m.RecvMsg(&minimal.HeartbeatReply{})
}

func (m *minimalStream) mustBeat(gpus ...string) {
	m.t.Helper()
	if err := m.beat(gpus...); err != nil {
		m.t.Fatalf("%s: %v", m.node, err)
	}
}

// TestE2EClientThreeFields keeps the lease of a node by a foreign client that
// knows fields 1 to 3, then leaves a GPU out.
func TestE2EClientThreeFields(t *testing.T) {
	t.Parallel()
	s := newSmall(t, "")
	client := openStream(t, s.dial(), "pair1")
	both := []string{"GPU-aaaa", "GPU-bbbb"}
	// beats sends n of them, 5 s apart, the first one at once.
	ticker := time.NewTicker(5 * time.Second)
	defer ticker.Stop()
	client.mustBeat(both...)
	for i := range 2 {
		if state := s.node("pair1").State; state != "JOINING" {
			t.Errorf("%s after %d beats, want JOINING", state, i+1)
		}
		<-ticker.C
		client.mustBeat(both...)
	}
	s.awaitState("pair1", "READY", 2*time.Second)
	beats := s.watchLease("pair1")
	for range 4 {
		<-ticker.C
		client.mustBeat(both[1], both[0]) // order does not matter
	}
	beats.check(t, "READY")
	<-ticker.C
	client.mustBeat(both[1])
	if n := s.node("pair1"); n.State != "READY" || !slices.Equal(n.Missing, both[:1]) {
		t.Errorf("after one beat without it: %s, missing %q; want READY and the GPU named", n.State, n.Missing)
	}
	<-ticker.C
	client.mustBeat(both[1])
	s.awaitState("pair1", "DEGRADED", 2*time.Second)
	n := s.node("pair1")
	t.Logf("three-field client: %s: %s", n.State, n.Reason)
	if !slices.Equal(n.Missing, both[:1]) || n.Reason != "missing GPU GPU-aaaa" || n.LeaseUp == nil || !*n.LeaseUp {
		t.Errorf("missing %q, reason %q, lease up %v", n.Missing, n.Reason, n.LeaseUp)
	}
}

// TestE2EInputBeats sends the registry beats that it must not take, beside a
// real agent and a stream on the same connection that must go on.
func TestE2EInputBeats(t *testing.T) {
	t.Parallel()
	s := newSmall(t, "")
	fake := newFakeGPUs(t, "gpus 8")
	s.agent("gpu001", s.gpuAgent("gpu001", ""), fake.env(fakeLibrary(t))...)
	s.awaitState("gpu001", "READY", 20*time.Second)
	beats := s.watchLease("gpu001")
	conn := s.dial()
	neighbour := openStream(t, conn, "cpu001")
	neighbour.mustBeat()

	// refused wants a beat to end its stream with a code and a text, and the
	// neighbour on the same connection to go on.
	refused := func(what, node string, code codes.Code, text string, gpus ...string) {
		t.Helper()
		err := openStream(t, conn, node).beat(gpus...)
		if err == nil { // the reply said why, the end says it again
			t.Fatalf("%s: taken", what)
		}
		t.Logf("%s: %v", what, err)
		if status.Code(err) != code || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v; want %s with %q", what, err, code, text)
		}
		neighbour.mustBeat()
	}
	const mega = 1 << 20
	refused("10 MB in one UUID", "cpu002", codes.ResourceExhausted, "larger than max", strings.Repeat("x", 10*mega))
	refused("10 MB in many UUIDs", "cpu002", codes.ResourceExhausted, "larger than max", slices.Repeat([]string{strings.Repeat("x", 100)}, 10*mega/100)...)
	if n := s.node("cpu002"); n.State != "" || !n.LastBeat.IsZero() {
		t.Errorf("a refused beat left %+v", n)
	}
	s.awaitSaid(time.Second, s.reg, "beat refused", "peer=127.0.0.1:", "larger than max")
	if got := series(s.fetch(""), "rackpulse_lease_beats_refused_total", `reason="size"`); !slices.Equal(got, []string{"2"}) {
		t.Errorf("too large beats counted: %q", got)
	}
	if n := s.node("cpu001"); !n.Beating || n.State != "READY" || n.Flaps > 0 { // its third beat came
		t.Errorf("the neighbour: %+v", n)
	}

	// An agent of a node that the site file does not name.
	stranger := s.agent("stranger", s.gpuAgent("gpu999", ""), fake.env(fakeLibrary(t))...)
	s.awaitSaid(10*time.Second, stranger, "connection to registry ended", "gpu999")
	s.awaitSaid(10*time.Second, s.reg, "beat refused", "gpu999")
	s.awaitSeries(10*time.Second, "stranger", up(8), "rackpulse_gpu_up", `node="gpu999"`)
	if err := answers(s.stack.registry + "/api/v1/nodes/gpu999"); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("the unknown node: %v", err)
	}
	s.awaitSeries(25*time.Second, "stranger", []string{"0"}, "rackpulse_node_schedulable")
	beats.check(t, "READY")
	if got := series(s.fetch("gpu001"), "rackpulse_agent_registry_connection_failures_total"); fmt.Sprint(got) != "[0]" {
		t.Errorf("gpu001 lost its stream %q times", got)
	}
}

// TestE2EInputRegistryAway starts an agent before its registry, and takes the
// registry away again.
func TestE2EInputRegistryAway(t *testing.T) {
	t.Parallel()
	s := prepareSmall(t, "")
	fake := newFakeGPUs(t, "gpus 8")
	from := time.Now()
	config := s.gpuAgent("gpu001", "") + "facility:\n" + pduEntry("r01-a", "echo watts=70") + pduEntry("r02-a", "echo watts=80")
	agent := s.agent("gpu001", config, fake.env(fakeLibrary(t))...)
	s.awaitSeries(10*time.Second, "gpu001", up(8), "rackpulse_gpu_up")
	s.awaitSeries(10*time.Second, "gpu001", []string{"1", "1"}, "facility_device_up") // seen, if not knowing where
	s.awaitSaid(5*time.Second, agent, "connection to registry ended", s.grpc, "connection refused")
	s.awaitSeries(25*time.Second, "gpu001", []string{"0"}, "rackpulse_node_schedulable")
	s.between("schedulable 0 after the start without a registry", time.Since(from), 17500*time.Millisecond)
	s.startReg()
	there := time.Now()
	s.awaitSeries(60*time.Second, "gpu001", []string{"1"}, "rackpulse_node_schedulable")
	t.Logf("schedulable again %.1f s after the registry came", time.Since(there).Seconds())
	s.awaitState("gpu001", "READY", 20*time.Second)
	s.awaitSeries(5*time.Second, "gpu001", []string{"70"}, "pdu_power_watt", `pdu_id="r01-a"`, `rack_id="r01"`)

	s.reg.end()
	last := series(s.fetch("gpu001"), "rackpulse_agent_beats_acknowledged_total")
	s.awaitSeries(25*time.Second, "gpu001", []string{"0"}, "rackpulse_node_schedulable")
	s.awaitSeries(time.Second, "gpu001", last, "rackpulse_agent_beats_acknowledged_total")
	s.awaitSeries(time.Second, "gpu001", up(8), "rackpulse_gpu_up")
	s.startReg()
	there = time.Now()
	s.awaitSeries(60*time.Second, "gpu001", []string{"1"}, "rackpulse_node_schedulable")
	s.awaitState("gpu001", "READY", 5*time.Second)
	t.Logf("READY again %.1f s after the registry came back", time.Since(there).Seconds())
}
