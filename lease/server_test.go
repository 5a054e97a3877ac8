// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/rackpulse/rackpulse/lease/leasepb"
	"github.com/rackpulse/rackpulse/lease/testdata/minimal"
	"github.com/rackpulse/rackpulse/ledger"
	"github.com/rackpulse/rackpulse/site"
)

// flaky is a ledger whose commits fail while fail is set, as on a full disk.
type flaky struct {
	ledger.Store
	fail  atomic.Bool
	tries atomic.Int64
}

func (f *flaky) Commit(ctx context.Context, token ledger.Token, b ledger.Batch) error {
	f.tries.Add(1)
	if f.fail.Load() {
		return errDiskFull
	}
	return f.Store.Commit(ctx, token, b)
}

type constError string

func (e constError) Error() string { return string(e) }

const errDiskFull = constError("write ledger.db: no space left on device")

// bed is a running server with its ledger.
type bed struct {
	t     *testing.T
	srv   *Server
	ln    *bufconn.Listener
	store *flaky
	stop  func() error
}

// start runs a server over an in-memory listener. stop ends it.
func start(t *testing.T, dir string, change func(*Deps)) *bed {
	t.Helper()
	bolt, err := ledger.OpenBolt(dir, ledger.BoltOptions{})
	if err != nil {
		t.Fatal(err)
	}
	s := testSite()
	b := &bed{t: t, ln: bufconn.Listen(256 << 10), store: &flaky{Store: bolt}}
	deps := Deps{Site: func() *site.Site { return s }, Store: b.store}
	if change != nil {
		change(&deps)
	}
	if b.srv, err = NewServer(Config{}, deps); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- b.srv.Run(ctx, b.ln) }()
	b.stop = func() error {
		cancel()
		err := <-done
		if closeErr := bolt.Close(); closeErr != nil {
			t.Error(closeErr)
		}
		return err
	}
	synctest.Wait()
	return b
}

// conn is a client's connection to the server.
func (b *bed) conn() *grpc.ClientConn {
	b.t.Helper()
	c, err := grpc.NewClient("passthrough:///registry", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return b.ln.DialContext(ctx) }))
	if err != nil {
		b.t.Fatal(err)
	}
	return c
}

// state is the node's state as the API shows it.
func (b *bed) state(node string) State {
	for _, n := range b.srv.Nodes() {
		if n.Node == node {
			return n.State
		}
	}
	return Unknown
}

func (b *bed) want(node string, want State) {
	b.t.Helper()
	synctest.Wait()
	if got := b.state(node); got != want {
		b.t.Fatalf("%s is %s, want %s", node, got, want)
	}
}

// threeFields opens a stream of the client that knows three fields only.
func threeFields(t *testing.T, c *grpc.ClientConn) (beat func(string, ...string), end func()) {
	t.Helper()
	stream, err := c.NewStream(context.Background(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, "/rackpulse.lease.v1.Lease/Heartbeat")
	if err != nil {
		t.Fatal(err)
	}
	beat = func(node string, gpus ...string) {
		t.Helper()
		m := &minimal.HeartbeatRequest{NodeId: node, Timestamp: time.Now().Unix(), GpuUuids: gpus}
		if err := stream.SendMsg(m); err != nil {
			t.Fatal(err)
		}
		var r minimal.HeartbeatReply
		if err := stream.RecvMsg(&r); err != nil {
			t.Fatal(err)
		}
		if r.GetTtlMs() != 30000 {
			t.Errorf("ttl_ms %d", r.GetTtlMs())
		}
	}
	end = func() {
		if err := stream.CloseSend(); err != nil {
			t.Error(err)
		}
		for stream.RecvMsg(&minimal.HeartbeatReply{}) == nil {
		}
	}
	return beat, end
}

// TestThreeFieldClient times the whole life of a lease kept by a foreign client.
func TestThreeFieldClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, t.TempDir(), nil)
		c := b.conn()
		beat, end := threeFields(t, c)
		gpus := uuids(0, 8)
		keep := func(n int) {
			for range n {
				time.Sleep(5 * time.Second)
				beat("gpu001", gpus...)
			}
		}
		beat("gpu001", gpus...)
		b.want("gpu001", Joining)
		keep(2)
		b.want("gpu001", Ready)
		keep(100)
		b.want("gpu001", Ready)

		// Silence: 17.5 s and 30 s, to the tick.
		time.Sleep(17490 * time.Millisecond)
		b.want("gpu001", Ready)
		time.Sleep(20 * time.Millisecond)
		b.want("gpu001", Suspect)
		time.Sleep(12480 * time.Millisecond)
		b.want("gpu001", Suspect)
		time.Sleep(20 * time.Millisecond)
		b.want("gpu001", Expired)

		// Back: ready after 60 s without a gap.
		beat("gpu001", gpus...)
		b.want("gpu001", Recovering)
		keep(11)
		b.want("gpu001", Recovering)
		keep(1)
		b.want("gpu001", Ready)

		// The end of the stream without a leave: 10 s and 30 s.
		time.Sleep(90 * time.Millisecond)
		end()
		time.Sleep(9990 * time.Millisecond)
		b.want("gpu001", Ready)
		time.Sleep(100 * time.Millisecond)
		b.want("gpu001", Suspect)
		time.Sleep(19790 * time.Millisecond)
		b.want("gpu001", Suspect)
		time.Sleep(200 * time.Millisecond)
		b.want("gpu001", Expired)

		c.Close()
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}

// refused sends beats on a stream of its own, which must end with an error.
func refused(t *testing.T, c *grpc.ClientConn, code codes.Code, text string, beats []*leasepb.HeartbeatRequest) {
	t.Helper()
	stream, err := leasepb.NewLeaseClient(c).Heartbeat(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range beats {
		if err := stream.Send(m); err != nil {
			t.Fatal(err)
		}
	}
	for {
		var r *leasepb.HeartbeatReply
		if r, err = stream.Recv(); err != nil {
			break
		}
		if r.GetError() != "" && !strings.Contains(r.GetError(), text) {
			t.Errorf("reply says %q, want %q", r.GetError(), text)
		}
	}
	if status.Code(err) != code || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %s: %s", err, code, text)
	}
}

func TestBadBeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, t.TempDir(), func(d *Deps) {
			d.Authorize = func(_ context.Context, id string) error {
				if id == "gpu003" {
					return constError("its certificate names gpu004")
				}
				return nil
			}
		})
		c := b.conn()
		good, end := threeFields(t, c) // on the same connection as the bad ones
		good("gpu001", uuids(0, 8)...)

		try := func(code codes.Code, text string, beats ...*leasepb.HeartbeatRequest) {
			t.Helper()
			refused(t, c, code, text, beats)
		}
		req := func(node string) *leasepb.HeartbeatRequest { return &leasepb.HeartbeatRequest{NodeId: node} }
		try(codes.NotFound, `node "stranger" is not in the site file`, req("stranger"))
		try(codes.InvalidArgument, "node_id: 0 bytes", req(""))
		try(codes.PermissionDenied, `not allowed to beat as "gpu003": its certificate names gpu004`, req("gpu003"))
		try(codes.InvalidArgument, `node_id: "gpu004" on the stream of "gpu002"`, req("gpu002"), req("gpu004"))
		big := req("gpu002")
		big.GpuUuids = []string{strings.Repeat("x", 10<<20)}
		try(codes.ResourceExhausted, "larger than max", big)
		many := req("gpu002")
		many.GpuUuids = uuids(0, 513)
		try(codes.InvalidArgument, "gpu_uuids: 513 entries, 512 are the most", many)
		facts := req("gpu002")
		facts.Hello = &leasepb.Hello{Facts: map[string]string{"gpu_count": "eight"}}
		try(codes.InvalidArgument, `hello.facts: gpu_count: "eight" is no number`, facts)

		time.Sleep(5 * time.Second)
		good("gpu001", uuids(0, 8)...) // its stream was not touched
		time.Sleep(5 * time.Second)
		good("gpu001", uuids(0, 8)...)
		b.want("gpu001", Ready)
		b.want("stranger", Unknown)
		b.want("gpu003", Unknown)
		totals, _ := b.srv.totals()
		for reason, want := range map[string]uint64{refusedUnknown: 1, refusedAuth: 1, refusedMalformed: 4, refusedSize: 1} {
			if got := totals.refusals[reason]; got != want {
				t.Errorf("%d refused as %s, want %d", got, reason, want)
			}
		}
		end()
		c.Close()
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestRestartWithLedger stops a registry and starts another on its ledger.
func TestRestartWithLedger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		b := start(t, dir, nil)
		c := b.conn()
		one, _ := threeFields(t, c)
		two, _ := threeFields(t, c)
		for range 3 {
			one("gpu001", uuids(0, 8)...)
			two("gpu002", uuids(8, 8)...)
			time.Sleep(5 * time.Second)
		}
		if err := b.srv.Drain(context.Background(), "gpu002", "bad fan", "eve"); err != nil {
			t.Fatal(err)
		}
		if err := b.stop(); err != nil {
			t.Fatal(err)
		}
		c.Close()

		b = start(t, dir, nil)
		b.want("gpu001", Restored)
		b.want("gpu002", Restored)
		n := b.srv.Nodes()[0]
		if !slices.Equal(n.Expected, uuids(0, 8)) || n.LeaseUp == nil || !*n.LeaseUp || !n.Schedulable {
			t.Errorf("restored as %+v", n)
		}
		c = b.conn()
		one, end := threeFields(t, c)
		one("gpu001", uuids(0, 8)...)
		b.want("gpu001", Ready)
		end()
		two, end = threeFields(t, c)
		two("gpu002", uuids(8, 8)...)
		b.want("gpu002", Draining)
		end()
		c.Close()
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestFullDisk lets the ledger refuse everything for two minutes.
func TestFullDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, t.TempDir(), nil)
		c := b.conn()
		one, end1 := threeFields(t, c)
		two, _ := threeFields(t, c)
		one("gpu001", uuids(0, 8)...)
		two("gpu002", uuids(8, 8)...)
		time.Sleep(time.Second)
		b.store.fail.Store(true)
		for range 24 {
			sent := time.Now()
			one("gpu001", uuids(0, 8)...) // not delayed
			if d := time.Since(sent); d != 0 {
				t.Fatalf("a beat waited %s for the ledger", d)
			}
			time.Sleep(5 * time.Second)
		}
		b.want("gpu001", Ready)
		b.want("gpu002", Expired)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		err := b.srv.Drain(ctx, "gpu001", "test", "eve")
		cancel()
		if err == nil || !strings.Contains(err.Error(), "not yet in the ledger") {
			t.Errorf("drain without a ledger: %v", err)
		}
		if n := b.store.tries.Load(); n > 60 {
			t.Errorf("%d tries in two minutes", n)
		}
		b.store.fail.Store(false)
		time.Sleep(retryMax + time.Second)
		events, err := b.store.Events(context.Background(), ledger.Query{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range slices.Backward(events) {
			if e.Kind == ledger.KindTransition {
				got = append(got, e.Node+" "+e.To)
			}
		}
		slices.Sort(got)
		want := []string{"gpu001 DRAINING", "gpu001 JOINING", "gpu001 READY", "gpu002 EXPIRED", "gpu002 JOINING"}
		if !slices.Equal(got, want) {
			t.Errorf("events %v, want %v", got, want)
		}
		end1()
		c.Close()
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestLostLeadershipEndsTheServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := start(t, t.TempDir(), nil)
		if _, _, err := b.store.Campaign(context.Background()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := b.stop(); err == nil || !strings.Contains(err.Error(), "leadership lost") {
			t.Errorf("run returned %v", err)
		}
	})
}
