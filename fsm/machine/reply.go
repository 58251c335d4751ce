package machine

import (
	"fmt"
	commandv1 "perdure/api/command/v1"
	"perdure/fsm/keys"

	"google.golang.org/protobuf/proto"
)

// replyCost is what a stored reply counts beside its value and twice its request id.
const replyCost = 32

var wire = proto.MarshalOptions{Deterministic: true}

// replySize is what the note of a reply's age says that the reply takes: nothing if it was stored below levelReplies.
func replySize(b []byte) (uint64, error) {
	if len(b) == 0 {
		return 0, nil
	}
	n, rest, err := keys.CutUint64(b)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("a size of %d bytes", len(b))
	}
	return n, err
}

// storedReply is the answer to a request, as it is kept for the request's retries.
type storedReply struct {
	at    int64
	reply *commandv1.Reply
}

func (s storedReply) encode() ([]byte, error) {
	b, err := wire.Marshal(s.reply)
	e := encoder{}
	e.i64(s.at)
	e.bytes(b)
	return e.b, err
}

func decodeReply(b []byte) (storedReply, error) {
	d := decoder{b: b}
	s := storedReply{at: d.i64(), reply: &commandv1.Reply{}}
	err := proto.Unmarshal(d.bytes(), s.reply)
	if end := d.end(); err == nil {
		err = end
	}
	return s, err
}
