package rpc

import (
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm"
	"perdure/internal/callstream"
)

// codec is gRPC's own for protobuf, but for a worker's messages, which it decodes with fewer allocations, and for those
// of streams of calls.
type codec struct{ encoding.CodecV2 }

func newCodec() codec { return codec{encoding.GetCodecV2(proto.Name)} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if calls := callstream.CodecOf(v); calls != nil {
		return calls.Marshal(v)
	}
	return c.CodecV2.Marshal(v)
}

// Unmarshal implements encoding.CodecV2.
func (c codec) Unmarshal(data mem.BufferSlice, v any) error {
	if in, ok := v.(*perdurev1.WorkRequest); ok {
		return fsm.UnmarshalWorkRequest(data.Materialize(), in)
	}
	if calls := callstream.CodecOf(v); calls != nil {
		return calls.Unmarshal(data, v)
	}
	return c.CodecV2.Unmarshal(data, v)
}
