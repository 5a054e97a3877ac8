// SPDX-License-Identifier: Apache-2.0

package lease

import (
	"sync"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	"github.com/rackpulse/rackpulse/lease/leasepb"
)

// messages are the beats and replies in work. Streams wait nearly all of the time:
// a beat is given memory when it has come in, by the codec, not when it is waited
// for.
type messages struct {
	encoding.CodecV2
	beats, replies sync.Pool
}

// incoming is what a stream waits for; the codec sets it.
type incoming struct {
	beat *leasepb.HeartbeatRequest
}

func newMessages() *messages {
	m := &messages{CodecV2: encoding.GetCodecV2(proto.Name)}
	m.beats.New = func() any { return &leasepb.HeartbeatRequest{} }
	m.replies.New = func() any { return &leasepb.HeartbeatReply{} }
	return m
}

// Unmarshal implements encoding.CodecV2.
func (m *messages) Unmarshal(data mem.BufferSlice, v any) error {
	if in, ok := v.(*incoming); ok {
		in.beat = m.beats.Get().(*leasepb.HeartbeatRequest)
		v = in.beat
	}
	return m.CodecV2.Unmarshal(data, v)
}

// reply returns an empty reply.
func (m *messages) reply() *leasepb.HeartbeatReply { return m.replies.Get().(*leasepb.HeartbeatReply) }

// done gives the messages back; nobody may hold on to them, or to their lists.
func (m *messages) done(in *leasepb.HeartbeatRequest, out *leasepb.HeartbeatReply) {
	in.Reset()
	out.Reset()
	m.beats.Put(in)
	m.replies.Put(out)
}
