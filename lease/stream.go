// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"errors"
	"io"
	"maps"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/go-kit/log/level"

	"github.com/rackpulse/rackpulse/lease/leasepb"
)

// complainEvery bounds the log lines about refused beats, for each reason.
const complainEvery = 10 * time.Second

// refusals counts beats refused before they reach the core, by reason, and
// bounds what is logged of them.
type refusals struct {
	mu     sync.Mutex
	n      map[string]uint64
	logged map[string]time.Time
}

func (r *refusals) add(reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n == nil {
		r.n = map[string]uint64{}
	}
	r.n[reason]++
}

func (r *refusals) copy() map[string]uint64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.n)
}

// complain logs a refused beat, unless one with the same code was just logged. A
// beat that was too large to read has no node yet: the peer's address tells whose
// it is.
func (s *Server) complain(ctx context.Context, id string, err error) {
	now, code := time.Now(), status.Code(err).String()
	s.outside.mu.Lock()
	if now.Sub(s.outside.logged[code]) < complainEvery {
		s.outside.mu.Unlock()
		return
	}
	if s.outside.logged == nil {
		s.outside.logged = map[string]time.Time{}
	}
	s.outside.logged[code] = now
	s.outside.mu.Unlock()
	from := ""
	if p, ok := peer.FromContext(ctx); ok {
		from = p.Addr.String()
	}
	level.Warn(s.deps.Logger).Log("msg", "beat refused", "node", id, "peer", from, "err", err)
}

// client is one agent's stream.
type client struct {
	id       string // node id or agent name; empty before the first beat
	stream   uint64
	epoch    uint64
	facility bool // its agent is no node
	devices  []string
	gen      uint64 // of the site that its identity was told from
	told     bool   // its identity was told
	gpus     uint32 // that its node should have; 0: not declared
}

// Heartbeat implements leasepb.LeaseServer: one agent's stream of beats.
func (s *Server) Heartbeat(stream grpc.BidiStreamingServer[leasepb.HeartbeatRequest, leasepb.HeartbeatReply]) error {
	if s.streams.Add(1) > maxStreams {
		s.streams.Add(-1)
		s.outside.add(refusedStreams)
		return status.Errorf(codes.ResourceExhausted, "the registry has %d streams, no more are taken", maxStreams)
	}
	defer s.streams.Add(-1)
	p := &client{stream: s.nextID.Add(1)}
	defer s.gone(p)
	in := &incoming{}
	for {
		if err := stream.RecvMsg(in); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			if status.Code(err) == codes.ResourceExhausted {
				s.outside.add(refusedSize)
				s.complain(stream.Context(), p.id, err)
			}
			return err
		}
		if err := s.answer(stream, p, in.beat); err != nil {
			return err
		}
	}
}

// answer takes one beat and sends the reply. An error ends the stream.
func (s *Server) answer(stream grpc.ServerStream, p *client, in *leasepb.HeartbeatRequest) error {
	out := s.messages.reply()
	defer s.messages.done(in, out)
	end := s.beat(stream.Context(), p, in, out)
	if err := stream.SendMsg(out); err != nil {
		return err
	}
	return end
}

// beat answers one beat. An error ends the stream once the reply is sent.
func (s *Server) beat(ctx context.Context, p *client, in *leasepb.HeartbeatRequest, out *leasepb.HeartbeatReply) error {
	out.Reset()
	out.TtlMs = uint32(s.cfg.TTL.Milliseconds())
	out.NextBeatMs = uint32(s.cfg.BeatInterval.Milliseconds())
	b, err := s.check(ctx, p, in)
	if err != nil {
		out.Error = status.Convert(err).Message()
		s.complain(ctx, in.GetNodeId(), err)
		return err
	}
	tell, refused, end := s.apply(p, b, out)
	if end != nil {
		err := status.Error(end.code(), end.text)
		s.complain(ctx, p.id, err)
		out.Error = end.text
		return err
	}
	if tell {
		out.Identity = s.identity(p, refused)
	}
	return nil
}

// code is the gRPC status of a final refusal.
func (r *refusal) code() codes.Code {
	switch r.reason {
	case refusedUnknown:
		return codes.NotFound
	case refusedSuperseded:
		return codes.FailedPrecondition
	case refusedStreams:
		return codes.ResourceExhausted
	}
	return codes.Unavailable
}

// apply hands a beat to the core. It returns whether the identity is to be told,
// the refused devices, and a refusal that ends the stream.
func (s *Server) apply(p *client, b *beat, out *leasepb.HeartbeatReply) (tell bool, refused map[string]string, end *refusal) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core == nil || s.stopping {
		return false, nil, s.sendOn(out)
	}
	defer s.signal()
	out.RegistryEpoch, out.ServerTime = s.token.Fence, now.UnixMilli()
	if !p.facility {
		state, want, r := s.core.accept(b, now)
		out.State, out.WantInventory = leasepb.State(state), want
		if r != nil && r.final {
			return false, nil, r
		}
		if r != nil {
			out.Error = r.text
			return false, nil, nil
		}
	}
	if p.facility && b.hello == nil && s.core.agents[p.id] == nil {
		out.WantInventory = true // forgotten after a long silence
	}
	refused, changed, r := s.core.pollDevices(b, !p.facility, now)
	if r != nil {
		return false, nil, r
	}
	s.beats.Add(1)
	tell = changed || !p.told || p.gen != s.siteGen
	p.told, p.gen = true, s.siteGen
	if class := s.core.site.nodes[p.id].class; class != nil && !p.facility {
		p.gpus = uint32(class.GPUs)
	}
	return tell, refused, nil
}

// sendOn answers a beat while this registry does not lead.
func (s *Server) sendOn(out *leasepb.HeartbeatReply) *refusal {
	out.Leader = s.leader()
	if out.Leader == "" {
		return &refusal{text: errNotLeading.Error()}
	}
	return &refusal{text: "this registry does not lead, the one at " + out.Leader + " does"}
}

// identity builds the identity message of a peer.
func (s *Server) identity(p *client, refused map[string]string) *leasepb.Identity {
	id := &leasepb.Identity{Refused: refused, ExpectedGpus: p.gpus}
	if s.deps.Identity == nil {
		return id
	}
	node := p.id
	if p.facility {
		node = ""
	}
	granted := make([]string, 0, len(p.devices))
	for _, device := range p.devices {
		if _, no := refused[device]; !no {
			granted = append(granted, device)
		}
	}
	labels, devices := s.deps.Identity(node, granted)
	id.Node = labels
	id.Devices = make(map[string]*leasepb.Labels, len(devices))
	for device, l := range devices {
		id.Devices[device] = &leasepb.Labels{Labels: l}
	}
	return id
}

// gone tells the core that a stream ended. When it is the server that ends the
// streams, no agent is to blame.
func (s *Server) gone(p *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.core == nil || s.stopping || p.id == "" {
		return
	}
	s.core.streamEnded(p.id, p.stream, time.Now())
	s.signal()
}
