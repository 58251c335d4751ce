package query

import (
	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"

	"google.golang.org/protobuf/proto"
)

// Outgoing reads a state's outbox messages for a destination, oldest first, beyond the one that after names (the zero
// value: all): at most limit messages, of at most bytes as stored. It returns at least one message if there is any,
// however large. It reads no message beyond the first one that exceeds a bound.
func Outgoing(r state.Reader, destination uint32, after state.Channel, limit, bytes int) (epoch uint64, msgs []*commandv1.Message, err error) {
	prefix := keys.Number(keys.Outbox, destination)
	front := keys.OutboxOf(destination, after.Epoch, after.Last+1)
	if after == (state.Channel{}) {
		if front, err = state.OutboxFront(r, destination); err != nil {
			return 0, nil, err
		}
	}
	var bad error
	size := 0
	err = r.Scan(front, keys.After(prefix), func(key, value []byte) bool {
		if size += len(value); len(msgs) > 0 && size > bytes {
			return false
		}
		e, _, perr := keys.CutUint64(key[len(prefix):])
		msg := &commandv1.Message{}
		if perr == nil {
			perr = proto.Unmarshal(value, msg)
		}
		if perr != nil {
			bad = &state.CorruptError{What: "message", Key: append([]byte(nil), key...), Detail: perr.Error()}
			return false
		}
		if len(msgs) > 0 && e != epoch {
			return false
		}
		epoch = e
		msgs = append(msgs, msg)
		return len(msgs) < limit && size < bytes
	})
	if err == nil {
		err = bad
	}
	return epoch, msgs, err
}

// Delivered reads up to where the channel from another partition was applied: the channel's epoch, and the
// number of the last message. Both are 0 if none ever came.
func Delivered(r state.Reader, source uint32) (epoch, through uint64, err error) {
	c, err := state.ReadChannel(r, keys.Number(keys.Inbox, source))
	return c.Epoch, c.Last, err
}

// Sent reads up to where messages for a destination are numbered: the channel's epoch, and the number of the last one.
func Sent(r state.Reader, destination uint32) (state.Channel, error) {
	return state.ReadChannel(r, keys.Number(keys.Channel, destination))
}

// Destinations lists the partitions for which a state's outbox holds messages.
func Destinations(r state.Reader, partitions uint32) ([]uint32, error) {
	var out []uint32
	for dst := uint32(0); dst < partitions; dst++ {
		prefix := keys.Number(keys.Outbox, dst)
		any := false
		front, err := state.OutboxFront(r, dst)
		if err != nil {
			return nil, err
		}
		if err := r.Scan(front, keys.After(prefix), func(_, _ []byte) bool {
			any = true
			return false
		}); err != nil {
			return nil, err
		}
		if any {
			out = append(out, dst)
		}
	}
	return out, nil
}
