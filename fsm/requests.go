package fsm

import (
	"bytes"
	"sync"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
)

// decoders are for requests, which any goroutine decodes.
var decoders = sync.Pool{New: func() any { return &decoder{} }}

// commitRequest is a worker's request with the commit in it.
type commitRequest struct {
	kind perdurev1.WorkRequest_Commit
	msg  perdurev1.Commit
}

// UnmarshalWorkRequest is proto.Unmarshal into an empty message, with few allocations for a commit. The result shares
// memory with b, which must not change.
func UnmarshalWorkRequest(b []byte, m *perdurev1.WorkRequest) error {
	d := decoders.Get().(*decoder)
	defer decoders.Put(d)
	if d.workRequest(b, m) {
		return nil
	}
	proto.Reset(m)
	return proto.Unmarshal(b, m)
}

func (d *decoder) workRequest(b []byte, m *perdurev1.WorkRequest) bool {
	r := fields{b, true}
	for f, more := r.next(); more; f, more = r.next() {
		switch f.tag {
		case 1<<3 | isNumber:
			m.CallId = f.number
		case 4<<3 | isBytes:
			r.ok = m.Kind == nil
			k := &commitRequest{}
			k.kind.Commit, m.Kind = &k.msg, &k.kind
			r.ok = r.ok && d.commit(f.bytes, &k.msg)
		case 8<<3 | isNumber:
			m.Timestamp = f.number
		default:
			return false
		}
	}
	return r.ok
}

// UnmarshalStart is proto.Unmarshal into an empty message, with few allocations.
func UnmarshalStart(b []byte, m *perdurev1.StartRequest) error {
	d := decoders.Get().(*decoder)
	defer decoders.Put(d)
	if d.start(b, m) {
		m.Input = bytes.Clone(m.Input)
		return nil
	}
	proto.Reset(m)
	return proto.Unmarshal(b, m)
}
