// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/test/bufconn"

	"github.com/rackpulse/rackpulse/lease/leasepb"
	"github.com/rackpulse/rackpulse/site"
)

// network maps addresses to listeners; the others refuse connections.
type network struct{ m sync.Map }

func oneRegistry(ln *bufconn.Listener) *network {
	n := &network{}
	n.m.Store("reg1:9402", ln)
	return n
}

func (n *network) dial(ctx context.Context, address string) (net.Conn, error) {
	if ln, ok := n.m.Load(address); ok {
		return ln.(*bufconn.Listener).DialContext(ctx)
	}
	return nil, constError("connection refused")
}

// agent is a running Beater with what it heard.
type agent struct {
	*Beater
	inv  atomic.Pointer[Inventory]
	id   atomic.Pointer[Identity]
	stop func() error

	mu     sync.Mutex
	states []State
	hooks  []bool
}

// heard are the states and the hook's calls so far.
func (a *agent) heard() ([]State, []bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.states), slices.Clone(a.hooks)
}

// beatTo runs a beater in a network.
func beatTo(t *testing.T, n *network, change func(*Beater), addresses ...string) *agent {
	t.Helper()
	a := &agent{Beater: &Beater{Config: BeaterConfig{Node: "gpu001", Addresses: addresses}}}
	a.inv.Store(&Inventory{UUIDs: uuids(0, 8), At: time.Now()})
	a.Inventory = func() Inventory {
		inv := *a.inv.Load()
		if inv.Status == Fresh {
			inv.At = time.Now()
		}
		return inv
	}
	a.Config.Dial = n.dial
	a.OnIdentity = func(id Identity) { a.id.Store(&id) }
	a.OnState = func(s State) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.states = append(a.states, s)
	}
	a.Hook = func(_ context.Context, ok bool) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.hooks = append(a.hooks, ok)
	}
	if change != nil {
		change(a.Beater)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	a.stop = func() error { cancel(); return <-done }
	return a
}

// checkAgent wants what gpu001's agent told of itself.
func checkAgent(t *testing.T, b *bed) {
	t.Helper()
	n := b.srv.Nodes()[0]
	if n.Agent.Facts.Driver != "570.124.06" || n.Agent.Facts.GPUCount != 8 || n.Agent.BootID != "boot" || n.Rack != "r01" || n.Class != "h100" || !n.Beating {
		t.Errorf("status %+v, agent %+v", n, n.Agent)
	}
	if d := b.srv.Devices(); len(d) != 1 || d[0].ID != "r01-a" || d[0].Agent != "gpu001" || d[0].Address != "10.0.0.1:9400" || !d[0].Node {
		t.Errorf("devices %+v", d)
	}
}

func TestBeaterLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, t.TempDir(), func(d *Deps) {
			d.Identity = func(node string, devices []string) (map[string]string, map[string]map[string]string) {
				out := map[string]map[string]string{}
				for _, device := range devices {
					out[device] = map[string]string{"pdu_id": device}
				}
				return map[string]string{"node": node, "rack_id": "r01"}, out
			}
		})
		a := beatTo(t, oneRegistry(b.ln), func(x *Beater) {
			x.Hello = func() Hello {
				return Hello{Version: "1.0", BootID: "boot", Roles: []string{RoleGPU, RoleFacility}, Advertise: "10.0.0.1:9400",
					Devices: []string{"r01-a", "ghost"}, Facts: site.Facts{Driver: "570.124.06", GPUModel: "H100", GPUCount: 8}}
			}
		}, "reg1:9402")
		time.Sleep(12 * time.Second)
		b.want("gpu001", Ready)
		want := &Identity{Node: map[string]string{"node": "gpu001", "rack_id": "r01"},
			Devices: map[string]map[string]string{"r01-a": {"pdu_id": "r01-a"}}, Refused: map[string]string{"ghost": "it is not in the site file"}, ExpectedGPUs: 8}
		if got := a.id.Load(); !reflect.DeepEqual(got, want) {
			t.Errorf("identity %+v", got)
		}
		checkAgent(t, b)

		// A graceful stop is a maintenance, not a fault.
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		b.want("gpu001", Maint)
		states, hooks := a.heard()
		if want := []State{Joining, Ready}; !slices.Equal(states, want) {
			t.Errorf("states heard %v, want %v", states, want)
		}
		if !a.Schedulable() || len(hooks) != 0 {
			t.Errorf("schedulable %v, hooks %v", a.Schedulable(), hooks)
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestBeaterTellsOfGPUs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, t.TempDir(), nil)
		a := beatTo(t, oneRegistry(b.ln), nil, "reg1:9402")
		time.Sleep(12 * time.Second)
		b.want("gpu001", Ready)
		a.inv.Store(&Inventory{UUIDs: uuids(0, 7)})
		time.Sleep(12 * time.Second)
		b.want("gpu001", Degraded)
		if n := b.srv.Nodes()[0]; !slices.Equal(n.Missing, []string{"GPU-07"}) {
			t.Errorf("missing %v", n.Missing)
		}
		a.inv.Store(&Inventory{UUIDs: uuids(0, 8)})
		time.Sleep(72 * time.Second)
		b.want("gpu001", Ready)
		a.inv.Store(&Inventory{Status: Unavailable, At: time.Now(), Reason: "child \xff hangs"})
		time.Sleep(43 * time.Second)
		b.want("gpu001", Degraded)
		if n := b.srv.Nodes()[0]; !strings.Contains(n.Reason, "child ? hangs") {
			t.Errorf("reason %q", n.Reason)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestBeaterLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, t.TempDir(), nil)
		a := beatTo(t, oneRegistry(b.ln), func(x *Beater) { x.Config.Leave = true }, "reg1:9402")
		time.Sleep(12 * time.Second)
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		b.want("gpu001", Left)
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestBeaterFailsOver kills the registry and starts another at the second
// address, later than three beats.
func TestBeaterFailsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		b := start(t, dir, nil)
		net := oneRegistry(b.ln)
		a := beatTo(t, net, nil, "reg1:9402", "reg2:9402")
		time.Sleep(12 * time.Second)
		b.want("gpu001", Ready)
		last := time.Unix(0, a.lastAck.Load())
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Until(last.Add(17400 * time.Millisecond)))
		if !a.Schedulable() {
			t.Error("out of scheduling before 17.5 s without an answer")
		}
		time.Sleep(200 * time.Millisecond)
		if _, hooks := a.heard(); a.Schedulable() || !slices.Equal(hooks, []bool{false}) {
			t.Errorf("after 17.5 s: schedulable %v, hooks %v", a.Schedulable(), hooks)
		}
		second := start(t, dir, nil)
		net.m.Store("reg2:9402", second.ln)
		time.Sleep(40 * time.Second) // one round takes up to 5 s and 30 s
		second.want("gpu001", Ready)
		if _, hooks := a.heard(); !a.Schedulable() || !slices.Equal(hooks, []bool{false, true}) {
			t.Errorf("after the fail-over: schedulable %v, hooks %v", a.Schedulable(), hooks)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		if err := second.stop(); err != nil {
			t.Error(err)
		}
	})
}

// scripted answers beats as its func says; nil is no answer.
type scripted struct {
	leasepb.UnimplementedLeaseServer
	answer func(*leasepb.HeartbeatRequest) *leasepb.HeartbeatReply
}

func (s *scripted) Heartbeat(stream grpc.BidiStreamingServer[leasepb.HeartbeatRequest, leasepb.HeartbeatReply]) error {
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if r := s.answer(m); r != nil {
			if err := stream.Send(r); err != nil {
				return err
			}
		}
	}
}

// serve runs a scripted registry.
func serve(t *testing.T, answer func(*leasepb.HeartbeatRequest) *leasepb.HeartbeatReply) (*bufconn.Listener, func()) {
	ln := bufconn.Listen(1 << 16)
	gs := grpc.NewServer(grpc.WaitForHandlers(true))
	leasepb.RegisterLeaseServer(gs, &scripted{answer: answer})
	done := make(chan error, 1)
	go func() { done <- gs.Serve(ln) }()
	return ln, func() {
		gs.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestBeaterFollowsRedirects(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, t.TempDir(), nil)
		follower, stop := serve(t, func(*leasepb.HeartbeatRequest) *leasepb.HeartbeatReply {
			return &leasepb.HeartbeatReply{Leader: "leader:9402"}
		})
		net := oneRegistry(follower)
		net.m.Store("leader:9402", b.ln)
		a := beatTo(t, net, nil, "reg1:9402")
		synctest.Wait()
		b.want("gpu001", Joining) // at once, without a back-off
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		stop()
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestBeaterGivesUpSilentRegistry has a registry that takes beats and answers
// none: two intervals, then the next one.
func TestBeaterGivesUpSilentRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, t.TempDir(), nil)
		var heard atomic.Int64
		deaf, stop := serve(t, func(*leasepb.HeartbeatRequest) *leasepb.HeartbeatReply { heard.Add(1); return nil })
		net := oneRegistry(deaf)
		net.m.Store("reg2:9402", b.ln)
		a := beatTo(t, net, nil, "reg1:9402", "reg2:9402")
		time.Sleep(9900 * time.Millisecond)
		if n := a.failures.Load(); n != 0 || heard.Load() != 2 && heard.Load() != 3 {
			t.Errorf("%d failures, %d beats within 10 s", n, heard.Load())
		}
		time.Sleep(5200 * time.Millisecond) // given up at 10 s, back-off up to 5 s
		if b.state("gpu001") == Unknown {
			t.Error("did not go on to the next registry")
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		stop()
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestBeaterStopsInTime stops an agent whose registry hangs.
func TestBeaterStopsInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		deaf, stop := serve(t, func(*leasepb.HeartbeatRequest) *leasepb.HeartbeatReply { return nil })
		a := beatTo(t, oneRegistry(deaf), nil, "reg1:9402")
		time.Sleep(time.Second)
		from := time.Now()
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		if d := time.Since(from); d != stopTimeout {
			t.Errorf("stopped after %s", d)
		}
		stop()
	})
}

// TestBeaterSendsLittle counts what travels: the whole list at the start and in
// each twelfth beat, when it changed, and when it is asked for.
func TestBeaterSendsLittle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var full, hellos, beats atomic.Int64
		var seq uint64
		var ask atomic.Bool
		ln, stop := serve(t, func(m *leasepb.HeartbeatRequest) *leasepb.HeartbeatReply {
			if m.GetSeq() <= seq || m.GetGpuCount() != 8 {
				t.Errorf("seq %d after %d, gpu_count %d", m.GetSeq(), seq, m.GetGpuCount())
			}
			seq = m.GetSeq()
			if len(m.GetGpuUuids()) > 0 {
				full.Add(1)
			}
			if m.GetHello() != nil {
				hellos.Add(1)
			}
			beats.Add(1)
			return &leasepb.HeartbeatReply{WantInventory: ask.Load(), NextBeatMs: 1000}
		})
		a := beatTo(t, oneRegistry(ln), nil, "reg1:9402")
		until := func(n int64) {
			for beats.Load() < n {
				time.Sleep(100 * time.Millisecond)
			}
		}
		until(25)
		if full.Load() != 3 || hellos.Load() != 1 {
			t.Errorf("%d lists and %d hellos in 25 beats", full.Load(), hellos.Load())
		}
		ask.Store(true)
		until(27)
		ask.Store(false)
		if full.Load() != 4 || hellos.Load() != 2 {
			t.Errorf("asked for, but %d lists and %d hellos", full.Load(), hellos.Load())
		}
		until(29)
		before := hellos.Load()
		a.Announce()
		until(30)
		if hellos.Load() != before+1 {
			t.Errorf("announced, but %d hellos after %d", hellos.Load(), before)
		}
		if err := a.stop(); err != nil {
			t.Error(err)
		}
		stop()
	})
}
