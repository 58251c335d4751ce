package state

import (
	"fmt"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state/keys"
)

// ReplyCost is the fixed size that a stored reply counts, in addition to its value and twice its request id.
const ReplyCost = 32

var Deterministic = proto.MarshalOptions{Deterministic: true}

// ReplySize reads a stored reply's size from its age record: 0 if the reply was stored below LevelReplies.
func ReplySize(b []byte) (uint64, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, rest, err := keys.CutUint64(b)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("a size of %d bytes", len(b))
	}
	return n, err
}

// StoredReply is the answer to a request, stored for the request's retries.
type StoredReply struct {
	At    int64
	Reply *commandv1.Reply
}

func (s StoredReply) Encode() ([]byte, error) { return s.Append(nil) }

// Append appends what Encode returns.
func (s StoredReply) Append(b []byte) ([]byte, error) {
	e := encoder{b: b}
	e.i64(s.At)
	size := proto.Size(s.Reply)
	e.u64(uint64(size))
	before := len(e.b)
	b, err := Deterministic.MarshalAppend(e.b, s.Reply)
	if err == nil && len(b) != before+size {
		err = fmt.Errorf("a reply of %d bytes takes %d", size, len(b)-before)
	}
	return b, err
}

func DecodeReply(b []byte) (StoredReply, error) {
	d := decoder{b: b}
	s := StoredReply{At: d.i64(), Reply: &commandv1.Reply{}}
	err := proto.Unmarshal(d.bytes(), s.Reply)
	if end := d.end(); err == nil {
		err = end
	}
	return s, err
}
