// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"context"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/rackpulse/rackpulse/lease/leasepb"
)

// check bounds and converts a beat from the wire, and on a stream's first beat
// asks whether the peer may beat for that node.
func (s *Server) check(ctx context.Context, p *client, in *leasepb.HeartbeatRequest) (*beat, error) {
	id := in.GetNodeId()
	switch {
	case id == "" || len(id) > maxText:
		return nil, s.malformed("node_id: %d bytes, 1 to %d are allowed", len(id), maxText)
	case p.id != "" && p.id != id:
		return nil, s.malformed("node_id: %q on the stream of %q", id, p.id)
	case p.id == "" && s.deps.Authorize != nil:
		if err := s.deps.Authorize(ctx, id); err != nil {
			s.outside.add(refusedAuth)
			return nil, status.Errorf(codes.PermissionDenied, "not allowed to beat as %q: %v", id, err)
		}
	}
	b := &beat{node: id, stream: p.stream, seq: in.GetSeq(), sent: unixNano(in.GetTimestamp())}
	if err := s.checkHello(p, in, b); err != nil {
		return nil, err
	}
	p.id = id
	b.epoch = p.epoch
	if err := s.checkInventory(in, &b.inv); err != nil {
		return nil, err
	}
	if i := in.GetIntent(); i != nil {
		if len(i.GetReason()) > maxText {
			return nil, s.malformed("intent.reason: %d bytes, %d are the most", len(i.GetReason()), maxText)
		}
		b.reason = i.GetReason()
		switch i.GetKind() {
		case leasepb.Intent_LEAVE:
			b.intent = intentLeave
		case leasepb.Intent_MAINTENANCE:
			b.intent, b.maint = intentMaintenance, time.Duration(i.GetSeconds())*time.Second
		}
	}
	return b, nil
}

// checkHello takes a beat's hello in; an agent's kind is that of its first one.
func (s *Server) checkHello(p *client, in *leasepb.HeartbeatRequest, b *beat) error {
	if in.GetHello() == nil {
		return nil
	}
	h, err := helloFrom(in.GetHello())
	if err != nil {
		return s.malformed("%s", err.Error())
	}
	if p.id == "" {
		p.epoch, p.facility = in.GetHello().GetEpoch(), h.isFacilityOnly()
	}
	p.devices = h.Devices
	b.hello = h
	return nil
}

// checkInventory takes a beat's inventory in. Without a hash or a count the list
// is the whole truth; with them it may be left out.
func (s *Server) checkInventory(in *leasepb.HeartbeatRequest, b *beatInventory) error {
	if err := checkList("gpu_uuids", in.GetGpuUuids(), maxUUIDs); err != nil {
		return s.malformed("%s", err.Error())
	}
	if err := checkList("breaches", in.GetBreaches(), maxBreaches); err != nil {
		return s.malformed("%s", err.Error())
	}
	if len(in.GetInventoryReason()) > maxText {
		return s.malformed("inventory_reason: %d bytes, %d are the most", len(in.GetInventoryReason()), maxText)
	}
	b.uuids, b.breaches, b.reason = in.GetGpuUuids(), in.GetBreaches(), in.GetInventoryReason()
	b.hash, b.hashed = in.GetInventoryHash(), in.InventoryHash != nil
	b.status = min(InventoryStatus(max(in.GetInventoryStatus(), 0)), Unavailable)
	b.age = time.Duration(in.GetInventoryAgeMs()) * time.Millisecond
	told := b.hashed || in.GpuCount != nil
	b.full = len(b.uuids) > 0 || !told || in.GpuCount != nil && in.GetGpuCount() == 0
	return nil
}

// malformed counts a beat that breaks the protocol and makes its error.
func (s *Server) malformed(format string, args ...any) error {
	s.outside.add(refusedMalformed)
	return status.Errorf(codes.InvalidArgument, format, args...)
}

// unixNano reads a Unix time of unknown unit as nanoseconds; 0 for none. The
// units are told apart by magnitude: 1e11 seconds is the year 5138, 1e11
// milliseconds is 1973, and so on.
func unixNano(t int64) int64 {
	switch {
	case t <= 0:
		return 0
	case t < 1e11:
		return t * int64(time.Second)
	case t < 1e14:
		return t * int64(time.Millisecond)
	case t < 1e17:
		return t * int64(time.Microsecond)
	}
	return t
}
