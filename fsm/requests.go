package fsm

import (
	"bytes"
	"fmt"
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

// maxRequestBatch bounds the messages that come together: decoded, each takes more memory than encoded.
const maxRequestBatch = 1024

const requestBatch = 10<<3 | isBytes

// UnmarshalWorkRequest is proto.Unmarshal into an empty message, with few allocations for a commit. The result shares
// memory with b, which must not change. It refuses a batch of more than maxRequestBatch messages.
func UnmarshalWorkRequest(b []byte, m *perdurev1.WorkRequest) error {
	n, _ := countFields(b, requestBatch)
	if n > maxRequestBatch {
		return fmt.Errorf("fsm: %d messages come together, %d may", n, maxRequestBatch)
	}
	d := decoders.Get().(*decoder)
	defer decoders.Put(d)
	if n > 0 {
		m.Batch = make([]*perdurev1.WorkRequest, 0, n)
	}
	if d.workRequest(b, m) {
		return nil
	}
	proto.Reset(m)
	return proto.Unmarshal(b, m)
}

// workRequest reads a batch only if m has space for it: none within another.
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
		case requestBatch:
			if len(m.Batch) == cap(m.Batch) {
				return false
			}
			part := &perdurev1.WorkRequest{}
			if !d.workRequest(f.bytes, part) {
				part = &perdurev1.WorkRequest{}
				r.ok = proto.Unmarshal(f.bytes, part) == nil
			}
			m.Batch = append(m.Batch, part)
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

// UnmarshalSignal is proto.Unmarshal into an empty message, with few allocations.
func UnmarshalSignal(b []byte, m *perdurev1.SignalRequest) error {
	d := decoders.Get().(*decoder)
	defer decoders.Put(d)
	if d.signal(b, m) {
		m.Payload = bytes.Clone(m.Payload)
		return nil
	}
	proto.Reset(m)
	return proto.Unmarshal(b, m)
}
