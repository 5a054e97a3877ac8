// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/go-kit/log/level"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/rackpulse/rackpulse/lease/leasepb"
)

// errNoAnswer ends a session whose registry does not answer.
var errNoAnswer = errors.New("no answer to beats")

// session beats to one registry until the stream breaks, answers stay away for
// two intervals, or ctx ends. It returns the registry it was sent on to.
func (b *Beater) session(ctx context.Context, address string) (redirect string, err error) {
	conn, err := b.dial(address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	// The stream outlives ctx by the last beat.
	streamCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	stream, err := b.open(ctx, streamCtx, cancel, conn)
	if err != nil {
		return "", err
	}
	defer b.online.Store(false)
	replies := make(chan *leasepb.HeartbeatReply)
	ended := make(chan error, 1)
	go receive(streamCtx, stream, replies, ended)
	s := &session{b: b, stream: stream, full: true}
	redirect, err = s.run(ctx, replies, ended)
	if err == nil { // a graceful stop
		s.farewell(replies, ended)
	}
	cancel()
	<-ended
	return redirect, err
}

// dial makes the client; it connects when the stream is opened.
func (b *Beater) dial(address string) (*grpc.ClientConn, error) {
	creds := b.Config.Credentials
	if creds == nil {
		creds = insecure.NewCredentials()
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithReadBufferSize(4 << 10),
		grpc.WithWriteBufferSize(4 << 10),
		grpc.WithStaticStreamWindowSize(window), // no bandwidth estimation
		grpc.WithStaticConnWindowSize(window),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(4 << 20)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 30 * time.Second, Timeout: 20 * time.Second}),
		grpc.WithNoProxy(),
	}
	if b.Config.Token != nil {
		opts = append(opts, grpc.WithPerRPCCredentials(bearer(b.Config.Token)))
	}
	if b.Config.Dial != nil {
		opts = append(opts, grpc.WithContextDialer(func(ctx context.Context, a string) (net.Conn, error) { return b.Config.Dial(ctx, a) }))
		return grpc.NewClient("passthrough:///"+address, opts...)
	}
	return grpc.NewClient("dns:///"+address, opts...)
}

// open opens the stream within two intervals.
func (b *Beater) open(ctx, streamCtx context.Context, cancel context.CancelFunc, conn *grpc.ClientConn) (leasepb.Lease_HeartbeatClient, error) {
	timer := time.AfterFunc(b.patience(), cancel)
	stop := context.AfterFunc(ctx, cancel)
	stream, err := leasepb.NewLeaseClient(conn).Heartbeat(streamCtx)
	timer.Stop()
	stop()
	if err == nil {
		err = streamCtx.Err()
	}
	return stream, err
}

// patience is how long an answer may stay away before the connection is given up.
func (b *Beater) patience() time.Duration { return 2 * time.Duration(b.interval.Load()) }

// bearer sends a token with each stream.
type bearer func() (string, error)

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (t bearer) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	token, err := t()
	if err != nil {
		return nil, fmt.Errorf("read registry token: %w", err)
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (t bearer) RequireTransportSecurity() bool { return true }

// receive hands the replies over until the stream ends.
func receive(ctx context.Context, stream leasepb.Lease_HeartbeatClient, replies chan<- *leasepb.HeartbeatReply, ended chan<- error) {
	for {
		r, err := stream.Recv()
		if err != nil {
			ended <- err
			return
		}
		select {
		case replies <- r:
		case <-ctx.Done():
			ended <- ctx.Err()
			return
		}
	}
}

// session is one stream to a registry.
type session struct {
	b      *Beater
	stream leasepb.Lease_HeartbeatClient
	full   bool // the next beat tells hello and the whole inventory
	beats  int  // since the last full one
	hash   uint64
	open   int // beats without an answer: answers come in order, one for each
	// declares is the maintenance that the answer after owed more will confirm.
	declares string
	owed     int
}

// run beats and takes the answers. It returns nil when ctx ends.
func (s *session) run(ctx context.Context, replies <-chan *leasepb.HeartbeatReply, ended chan error) (redirect string, err error) {
	beat := time.NewTimer(0)
	defer beat.Stop()
	silent := time.NewTimer(s.b.patience())
	defer silent.Stop()
	for {
		select {
		case <-ctx.Done():
			return "", nil
		case err := <-ended:
			ended <- err
			return "", err
		case <-silent.C:
			return "", fmt.Errorf("%w for %s", errNoAnswer, s.b.patience())
		case <-beat.C:
			if err := s.send(s.intent()); err != nil && !errors.Is(err, io.EOF) {
				return "", err // io.EOF: the receiver learns the true reason
			}
			beat.Reset(jitter(time.Duration(s.b.interval.Load())))
		case r := <-replies:
			if r.GetLeader() != "" {
				return r.GetLeader(), errors.New("redirected")
			}
			before := s.b.interval.Load()
			if s.take(r) {
				silent.Reset(s.b.patience())
			}
			if after := s.b.interval.Load(); after != before {
				beat.Reset(jitter(time.Duration(after)))
			}
		}
	}
}

// jitter spreads d by 10 % to either side.
func jitter(d time.Duration) time.Duration { return d - d/10 + rand.N(d/5+1) }

// send sends one beat. It reads snapshots only and waits for no device.
func (s *session) send(intent *leasepb.Intent) error {
	b := s.b
	inv := b.Inventory()
	uuids := slices.Sorted(slices.Values(inv.UUIDs))
	hash := hashOf(uuids)
	now := time.Now()
	b.seq++
	m := &leasepb.HeartbeatRequest{
		NodeId: b.Config.Node, Timestamp: b.clock(now).UnixMilli(), Seq: b.seq, InventoryHash: &hash,
		InventoryStatus: leasepb.InventoryStatus(inv.Status), InventoryReason: clip(inv.Reason), Intent: intent,
	}
	if !inv.At.IsZero() {
		m.InventoryAgeMs = uint32(min(max(now.Sub(inv.At), 0).Milliseconds(), int64(1)<<31))
	}
	count := uint32(len(uuids))
	m.GpuCount = &count
	if s.beats++; s.full || hash != s.hash || s.beats >= fullEvery {
		m.GpuUuids, s.hash, s.beats = uuids, hash, 0
	}
	if b.Breaches != nil {
		m.Breaches = clipAll(b.Breaches(), maxBreaches)
	}
	if s.full || b.announce.Swap(false) {
		hello := Hello{Roles: []string{RoleGPU}}
		if b.Hello != nil {
			hello = b.Hello()
		}
		m.Hello = hello.wire(b.epoch)
	}
	s.full = false
	s.open++
	b.sent.Add(1)
	return s.stream.Send(m)
}

// intent is what the next beat declares: the beginning or the end of a maintenance,
// until the registry has answered to it.
func (s *session) intent() *leasepb.Intent {
	b := s.b
	if b.Maintenance == nil {
		return nil
	}
	d, reason := b.Maintenance()
	if d <= 0 {
		d, reason = 0, ""
	}
	if reason == b.declared {
		return nil
	}
	if s.owed == 0 || s.declares != reason {
		s.declares, s.owed = reason, s.open+1
	}
	return &leasepb.Intent{Kind: leasepb.Intent_MAINTENANCE, Seconds: uint32((d + time.Second - 1) / time.Second), Reason: clip(reason)}
}

// take acts on an answer. It returns whether the beat was accepted.
func (s *session) take(r *leasepb.HeartbeatReply) bool {
	b := s.b
	s.open--
	if s.owed > 0 {
		if s.owed--; s.owed == 0 && r.GetError() == "" {
			b.declared = s.declares
		}
	}
	if next := time.Duration(r.GetNextBeatMs()) * time.Millisecond; next > 0 && next <= maxInterval {
		b.interval.Store(int64(next))
	}
	s.full = s.full || r.GetWantInventory()
	if r.GetError() != "" {
		level.Warn(b.Logger).Log("msg", "registry refused a beat", "err", r.GetError())
		return false
	}
	b.acks.Add(1)
	b.lastAck.Store(time.Now().UnixNano())
	b.online.Store(true)
	select {
	case b.acked <- struct{}{}:
	default:
	}
	if id := r.GetIdentity(); id != nil && b.OnIdentity != nil {
		out := Identity{Node: id.GetNode(), Refused: id.GetRefused(), Devices: map[string]map[string]string{}, ExpectedGPUs: int(id.GetExpectedGpus())}
		for device, l := range id.GetDevices() {
			out.Devices[device] = l.GetLabels()
		}
		b.OnIdentity(out)
	}
	if state := stateOf(r.GetState()); state != b.state {
		b.state = state
		if b.OnState != nil {
			b.OnState(state)
		}
	}
	return true
}

// farewell tells the registry that the agent stops, and waits for the answer
// within 2 s.
func (s *session) farewell(replies <-chan *leasepb.HeartbeatReply, ended chan error) {
	intent := &leasepb.Intent{Kind: leasepb.Intent_MAINTENANCE, Seconds: uint32(stopMaintenance.Seconds()), Reason: "its agent was stopped"}
	if s.b.Config.Leave {
		intent = &leasepb.Intent{Kind: leasepb.Intent_LEAVE, Reason: "its agent was told to leave"}
	}
	timer := time.NewTimer(stopTimeout)
	defer timer.Stop()
	if s.send(intent) != nil {
		return
	}
	for {
		select {
		case <-replies:
			if s.open--; s.open <= 0 {
				_ = s.stream.CloseSend() // the stream ends anyway
				return
			}
		case err := <-ended:
			ended <- err
			return
		case <-timer.C:
			level.Warn(s.b.Logger).Log("msg", "registry did not answer the last beat", "waited", stopTimeout)
			return
		}
	}
}

// hashOf is FNV-1a over the sorted UUIDs.
func hashOf(uuids []string) uint64 {
	h := fnv.New64a()
	for _, u := range uuids {
		_, _ = io.WriteString(h, u)
		_, _ = h.Write([]byte{0})
	}
	return h.Sum64()
}

// clip bounds a text for the wire, which takes valid UTF-8 only.
func clip(s string) string {
	return strings.ToValidUTF8(s[:min(len(s), maxText)], "?")
}

// clipAll bounds a list of names for the wire.
func clipAll(list []string, most int) []string {
	out := make([]string, 0, min(len(list), most))
	for _, s := range list[:min(len(list), most)] {
		if s != "" {
			out = append(out, clip(s))
		}
	}
	return out
}
