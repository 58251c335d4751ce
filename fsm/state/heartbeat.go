package state

import (
	"errors"
	"fmt"

	"perdure/fsm/state/keys"
	"perdure/id"
)

// MaxHeartbeats bounds the steps of an execution whose heartbeats are stored.
const MaxHeartbeats = 128

// StepHeartbeat is the last heartbeat of a step that has no result.
type StepHeartbeat struct {
	// Child is the child number of the step, Name its name.
	Child   uint32
	Name    string
	Attempt uint32
	// AtMS is the machine's time when it arrived.
	AtMS int64
	// Details is in the worker's encoding.
	Details []byte
}

const heartbeatsVersion = 1

// EncodeHeartbeats encodes the heartbeats of an execution, in ascending order of their child numbers.
func EncodeHeartbeats(steps []StepHeartbeat) []byte {
	e := encoder{}
	e.u64(heartbeatsVersion)
	for _, s := range steps {
		e.u64(uint64(s.Child))
		e.str(s.Name)
		e.u64(uint64(s.Attempt))
		e.i64(s.AtMS)
		e.bytes(s.Details)
	}
	return e.b
}

// DecodeHeartbeats is the inverse of EncodeHeartbeats.
func DecodeHeartbeats(b []byte) ([]StepHeartbeat, error) {
	d := decoder{b: b}
	if v := d.u64(); d.err == nil && v != heartbeatsVersion {
		return nil, errors.New("unknown version of heartbeats")
	}
	var out []StepHeartbeat
	for len(d.b) > 0 && d.err == nil {
		s := StepHeartbeat{Child: d.u32(), Name: d.str(), Attempt: d.u32(), AtMS: d.i64(), Details: d.bytes()}
		switch {
		case d.err != nil:
		case len(out) > 0 && s.Child <= out[len(out)-1].Child:
			d.fail("the heartbeats are not in order")
		case len(s.Details) > id.MaxHeartbeatBytes:
			d.fail(fmt.Sprintf("a heartbeat of %d bytes", len(s.Details)))
		default:
			out = append(out, s)
		}
	}
	if d.err == nil && (len(out) == 0 || len(out) > MaxHeartbeats) {
		d.fail(fmt.Sprintf("heartbeats of %d steps", len(out)))
	}
	return out, d.err
}

// ReadHeartbeats reads the heartbeats of an incarnation; nil if there are none. Errors are those of ReadHeader.
func ReadHeartbeats(r Reader, ns, objectID string, incarnation uint64) ([]StepHeartbeat, error) {
	key := keys.HeartbeatOf(ns, objectID, incarnation)
	b, ok, err := r.Get(key)
	if err != nil || !ok {
		return nil, err
	}
	steps, err := DecodeHeartbeats(b)
	if err != nil {
		return nil, &CorruptError{What: "heartbeats", Key: key, Detail: err.Error()}
	}
	return steps, nil
}
