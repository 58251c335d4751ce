package callstream

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// The messages of a stream have protobuf's wire format:
//
//	message Requests { repeated Request requests = 1; repeated uint64 cancelled = 2; }
//	message Request { uint64 number = 1; string method = 2; uint64 timeout_ms = 3; bytes message = 4; }
//	message Answers { repeated Answer answers = 1; }
//	message Answer { uint64 number = 1; bytes message = 2; bytes status = 3; } // of google.rpc.Status; empty: OK
//
// The server's first message is empty: it says that the server takes requests. Unknown fields are skipped.

// request is one entry from the client.
type request struct {
	number  uint64
	method  []byte
	timeout time.Duration // 0: none
	message []byte
}

// answer is one entry from the server; status is nil for success.
type answer struct {
	number          uint64
	message, status []byte
}

func appendRequest(b []byte, number uint64, method string, timeout time.Duration, message []byte) []byte {
	ms := uint64((timeout + time.Millisecond - 1) / time.Millisecond)
	size := protowire.SizeTag(1) + protowire.SizeVarint(number) + protowire.SizeTag(2) + protowire.SizeBytes(len(method)) +
		protowire.SizeTag(3) + protowire.SizeVarint(ms) + protowire.SizeTag(4) + protowire.SizeBytes(len(message))
	b = slices.Grow(b, size+2*protowire.SizeVarint(uint64(size)))
	b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.BytesType), uint64(size))
	b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), number)
	b = protowire.AppendString(protowire.AppendTag(b, 2, protowire.BytesType), method)
	b = protowire.AppendVarint(protowire.AppendTag(b, 3, protowire.VarintType), ms)
	return protowire.AppendBytes(protowire.AppendTag(b, 4, protowire.BytesType), message)
}

func appendCancelled(b []byte, number uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, 2, protowire.VarintType), number)
}

// sizeOfAnswer returns the encoded size of a successful answer, and has m remember its own.
func sizeOfAnswer(number uint64, m proto.Message) int {
	return protowire.SizeTag(1) + protowire.SizeBytes(protowire.SizeTag(1)+protowire.SizeVarint(number)+protowire.SizeTag(2)+protowire.SizeBytes(proto.Size(m)))
}

// appendAnswer encodes a successful answer after sizeOfAnswer.
func appendAnswer(b []byte, number uint64, m proto.Message) ([]byte, error) {
	b = appendAnswerHead(b, number, 2, proto.MarshalOptions{UseCachedSize: true}.Size(m))
	return proto.MarshalOptions{UseCachedSize: true}.MarshalAppend(b, m)
}

// appendFailure encodes an answer that is a google.rpc.Status.
func appendFailure(b []byte, number uint64, status []byte) []byte {
	return append(appendAnswerHead(b, number, 3, len(status)), status...)
}

// appendAnswerHead encodes what comes before n bytes of an answer's content.
func appendAnswerHead(b []byte, number uint64, field protowire.Number, n int) []byte {
	size := protowire.SizeTag(1) + protowire.SizeVarint(number) + protowire.SizeTag(field) + protowire.SizeBytes(n)
	b = slices.Grow(b, size+protowire.SizeTag(1)+protowire.SizeVarint(uint64(size)))
	b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.BytesType), uint64(size))
	b = protowire.AppendVarint(protowire.AppendTag(b, 1, protowire.VarintType), number)
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(n))
}

// field is one field of a message: a number, or bytes that alias the input.
type field struct {
	tag    protowire.Number
	kind   protowire.Type
	number uint64
	bytes  []byte
}

// fields calls f for each varint and each bytes field of a message, and skips others.
func fields(b []byte, f func(field) error) error {
	for len(b) > 0 {
		tag, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		at := field{tag: tag, kind: kind}
		switch kind {
		case protowire.VarintType:
			at.number, n = protowire.ConsumeVarint(b)
		case protowire.BytesType:
			at.bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(tag, kind, b)
		}
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if kind == protowire.VarintType || kind == protowire.BytesType {
			if err := f(at); err != nil {
				return err
			}
		}
	}
	return nil
}

// decodeRequests reads a message from a client and appends its requests, which alias b. It refuses numbers that do not rise above after, and
// more than maxUnderWay entries of a kind: decoded, an entry takes more memory than encoded.
func decodeRequests(requests []request, b []byte, after uint64) (_ []request, cancelled []uint64, err error) {
	err = fields(b, func(f field) error {
		switch {
		case f.tag == 2 && f.kind == protowire.VarintType:
			if len(cancelled) == maxUnderWay {
				return fmt.Errorf("more than %d calls are cancelled", maxUnderWay)
			}
			cancelled = append(cancelled, f.number)
		case f.tag == 1 && f.kind == protowire.BytesType:
			var r request
			err := fields(f.bytes, func(f field) error {
				switch {
				case f.tag == 1 && f.kind == protowire.VarintType:
					r.number = f.number
				case f.tag == 2 && f.kind == protowire.BytesType:
					r.method = f.bytes
				case f.tag == 3 && f.kind == protowire.VarintType:
					r.timeout = time.Duration(min(f.number, math.MaxInt64/uint64(time.Millisecond))) * time.Millisecond
				case f.tag == 4 && f.kind == protowire.BytesType:
					r.message = f.bytes
				}
				return nil
			})
			if err != nil {
				return err
			}
			if r.number <= after {
				return fmt.Errorf("call %d comes after call %d", r.number, after)
			}
			if len(requests) == maxUnderWay {
				return fmt.Errorf("more than %d calls begin", maxUnderWay)
			}
			after = r.number
			requests = append(requests, r)
		}
		return nil
	})
	return requests, cancelled, err
}

// decodeAnswers reads a message from a server and calls f for each answer, which aliases b.
func decodeAnswers(b []byte, f func(answer)) error {
	return fields(b, func(at field) error {
		if at.tag != 1 || at.kind != protowire.BytesType {
			return nil
		}
		var a answer
		err := fields(at.bytes, func(at field) error {
			switch {
			case at.tag == 1 && at.kind == protowire.VarintType:
				a.number = at.number
			case at.tag == 2 && at.kind == protowire.BytesType:
				a.message = at.bytes
			case at.tag == 3 && at.kind == protowire.BytesType:
				a.status = at.bytes
			}
			return nil
		})
		if err == nil {
			f(a)
		}
		return err
	})
}

// frame is a message of a stream in its encoded form.
type frame struct{ data []byte }

// codecName is the content subtype of streams.
const codecName = "perdure-calls"

// codec passes frames through.
type codec struct{}

func init() { encoding.RegisterCodecV2(codec{}) }

// CodecOf returns the codec of a stream's messages if v is one, else nil.
func CodecOf(v any) encoding.CodecV2 {
	if _, ok := v.(*frame); ok {
		return codec{}
	}
	return nil
}

// Name implements encoding.CodecV2.
func (codec) Name() string { return codecName }

// Marshal implements encoding.CodecV2.
func (codec) Marshal(v any) (mem.BufferSlice, error) {
	f, ok := v.(*frame)
	if !ok {
		return nil, errNotFrame
	}
	return mem.BufferSlice{mem.SliceBuffer(f.data)}, nil
}

// Unmarshal implements encoding.CodecV2.
func (codec) Unmarshal(data mem.BufferSlice, v any) error {
	f, ok := v.(*frame)
	if !ok {
		return errNotFrame
	}
	f.data = data.Materialize()
	return nil
}

var errNotFrame = errors.New("callstream: not a message of a stream of calls")
