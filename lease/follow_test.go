// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rackpulse/rackpulse/lease/leasepb"
	"github.com/rackpulse/rackpulse/ledger"
)

// shared is a ledger that another registry leads until free is closed; its
// leadership ends when lost is.
type shared struct {
	ledger.Store
	free, lost chan struct{}
	most       int // changes of a transaction
	sizes      []int
}

func (s *shared) Campaign(ctx context.Context) (ledger.Token, <-chan struct{}, error) {
	select {
	case <-s.free:
	case <-ctx.Done():
		return ledger.Token{}, nil, ctx.Err()
	}
	token, _, err := s.Store.Campaign(ctx)
	return token, s.lost, err
}

func (s *shared) Commit(ctx context.Context, token ledger.Token, b ledger.Batch) error {
	if len(b.Events) > s.most {
		return fmt.Errorf("%w: %d events", ledger.ErrTooLarge, len(b.Events))
	}
	s.sizes = append(s.sizes, len(b.Events))
	return s.Store.Commit(ctx, token, b)
}

// follower starts a server that follows a leader.
func follower(t *testing.T, leader *atomic.Value) (*bed, *shared) {
	t.Helper()
	var store *shared
	b := start(t, t.TempDir(), func(d *Deps) {
		store = &shared{Store: d.Store, free: make(chan struct{}), lost: make(chan struct{}), most: 1 << 20}
		d.Store = store
		d.Leader = func() string { return leader.Load().(string) }
	})
	return b, store
}

// TestFollower sends agents on while another registry leads, says so while none
// is known, leads when it is its turn, and ends with the leadership.
func TestFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leader atomic.Value
		leader.Store("reg1:9402")
		b, store := follower(t, &leader)
		c := b.conn()
		defer c.Close()
		once := func() (*leasepb.HeartbeatReply, error) {
			stream, err := leasepb.NewLeaseClient(c).Heartbeat(context.Background())
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&leasepb.HeartbeatRequest{NodeId: "gpu001", GpuUuids: uuids(0, 8)}); err != nil {
				t.Fatal(err)
			}
			reply, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if reply.GetState() != 0 {
				return reply, stream.CloseSend()
			}
			_, err = stream.Recv()
			return reply, err
		}
		want := func(address, text string) {
			t.Helper()
			reply, err := once()
			if reply.GetLeader() != address || status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), text) {
				t.Errorf("answer %v, %v; want leader %q and %q", reply, err, address, text)
			}
		}
		want("reg1:9402", "the one at reg1:9402 does")
		leader.Store("")
		want("", "does not lead yet")
		if b.srv.Leads() || len(b.srv.Nodes()) != 0 {
			t.Error("a follower leads")
		}
		if v := b.srv.Permit(ledger.Intent{Node: "gpu001"}, ledger.WitnessDead); v.Soft || v.Hard {
			t.Errorf("a follower permits %+v", v)
		}
		// What another registry notes is not noted twice; what nobody else does is kept.
		leader.Store("reg1:9402")
		note := func(reason string) {
			if err := b.srv.Note(context.Background(), []ledger.Event{{Kind: "site", Time: time.Now(), Reason: reason}}); err != nil {
				t.Error(err)
			}
		}
		note("reloaded while another one led")
		leader.Store("")
		note("reloaded while none led")
		close(store.free)
		synctest.Wait()
		if reply, err := once(); err != nil || reply.GetState() != leasepb.State_JOINING || reply.GetLeader() != "" {
			t.Errorf("first beat to the new leader: %v, %v", reply, err)
		}
		synctest.Wait()
		events, err := store.Events(context.Background(), ledger.Query{})
		if err != nil || len(events) != 3 || events[0].To != "JOINING" || events[2].Reason != "reloaded while none led" {
			t.Errorf("history %+v, %v", events, err)
		}
		close(store.lost)
		synctest.Wait()
		if v := b.srv.Permit(ledger.Intent{Node: "gpu001"}, ledger.WitnessDead); v.Soft || v.Hard || !strings.Contains(v.Reason, "lead") {
			t.Errorf("after the leadership: %+v", v)
		}
		if err := b.stop(); err == nil || !strings.Contains(err.Error(), "leadership lost") {
			t.Errorf("Run ended with %v", err)
		}
	})
}

// TestFollowerStops ends a server that never led.
func TestFollowerStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leader atomic.Value
		leader.Store("")
		b, _ := follower(t, &leader)
		if err := b.stop(); err != nil {
			t.Errorf("Run ended with %v", err)
		}
		b, _ = follower(t, &leader)
		if err := b.ln.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if err := b.stop(); err == nil || !strings.Contains(err.Error(), "serve beats") {
			t.Errorf("Run without its port ended with %v", err)
		}
	})
}

// TestCommitsInParts commits a thousand changes to a ledger that takes 32 at a
// time.
func TestCommitsInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leader atomic.Value
		leader.Store("")
		b, store := follower(t, &leader)
		store.most = 32
		events := make([]ledger.Event, 1000)
		for i := range events {
			events[i] = ledger.Event{Kind: "site", Reason: fmt.Sprint(i)}
		}
		if err := b.srv.Note(context.Background(), events); err != nil {
			t.Fatal(err)
		}
		close(store.free)
		synctest.Wait()
		got, err := store.Events(context.Background(), ledger.Query{Limit: 10000})
		if err != nil || len(got) != 1000 || got[0].Reason != "999" || got[999].Reason != "0" {
			t.Errorf("%d events, %v", len(got), err)
		}
		if n := len(store.sizes); n != 32 || store.sizes[0] != 32 {
			t.Errorf("%d transactions of %v, want 31 of 32 and one of 8", n, store.sizes)
		}
		if n := b.srv.ledger.failures.Load(); n != 0 {
			t.Errorf("%d failures counted", n)
		}
		if err := b.stop(); err != nil {
			t.Error(err)
		}
	})
}
