package machine

import (
	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/keys"
)

// send hands a message to the partition that owns an id: at once if that is this one, else through the
// outbox of the channel to it, numbered without gaps within the channel's epoch.
func (t *txn) send(ns, toID string, msg *commandv1.Message) error {
	msg.Namespace = ns
	dst := Place(ns, toID, t.m.cfg.Partitions)
	if dst == t.m.cfg.Partition {
		return t.receive(msg)
	}
	epoch, next := t.channel(keys.Number(keys.Channel, dst))
	if epoch == 0 {
		epoch = 1
	}
	next++
	msg.Seq = next
	b, err := wire.Marshal(msg)
	if err != nil {
		return err
	}
	t.put(keys.OutboxOf(dst, epoch, next), b)
	t.putChannel(keys.Number(keys.Channel, dst), epoch, next)
	t.fx.Outbox = append(t.fx.Outbox, dst)
	return nil
}

// channel reads one end of a channel: its epoch and the last number given or seen.
func (t *txn) channel(key []byte) (epoch, last uint64) {
	b, ok := t.get(key)
	if !ok {
		return 0, 0
	}
	d := decoder{b: b}
	epoch, last = d.u64(), d.u64()
	if err := d.end(); err != nil {
		corrupt("channel", key, err)
	}
	return epoch, last
}

func (t *txn) putChannel(key []byte, epoch, last uint64) {
	e := encoder{}
	e.u64(epoch)
	e.u64(last)
	t.put(key, e.b)
}

// Outgoing reads what a state's outbox holds for a destination, oldest first: at most limit messages, and at most
// bytes of them as stored. It returns at least one message if there is any, however large. It reads no message
// beyond the first one that exceeds a bound.
func Outgoing(r Reader, destination uint32, limit, bytes int) (epoch uint64, msgs []*commandv1.Message, err error) {
	prefix := keys.Number(keys.Outbox, destination)
	front, err := outboxFront(r, destination)
	if err != nil {
		return 0, nil, err
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
			bad = &CorruptError{What: "message", Key: append([]byte(nil), key...), Detail: perr.Error()}
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

// Delivered reads how far the channel from another partition has been applied: the channel's epoch, and the number
// of the last message. Both are 0 if none ever came.
func Delivered(r Reader, source uint32) (epoch, through uint64, err error) {
	key := keys.Number(keys.Inbox, source)
	b, ok, err := r.Get(key)
	if err != nil || !ok {
		return 0, 0, err
	}
	d := decoder{b: b}
	epoch, through = d.u64(), d.u64()
	if err := d.end(); err != nil {
		return 0, 0, &CorruptError{What: "channel", Key: key, Detail: err.Error()}
	}
	return epoch, through, nil
}

// Destinations lists the partitions for which a state's outbox holds messages.
func Destinations(r Reader, partitions uint32) ([]uint32, error) {
	var out []uint32
	for dst := uint32(0); dst < partitions; dst++ {
		prefix := keys.Number(keys.Outbox, dst)
		any := false
		front, err := outboxFront(r, dst)
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

// outboxFront is a key that nothing in a state's outbox for a destination stands before. Messages are numbered
// without gaps up to what their channel says, and go from the front, so that the first one that is left is found
// by asking for numbers: a scan from the front would walk over the traces of all that have gone.
func outboxFront(r Reader, destination uint32) ([]byte, error) {
	prefix := keys.Number(keys.Outbox, destination)
	key := keys.Number(keys.Channel, destination)
	b, ok, err := r.Get(key)
	if err != nil || !ok {
		return prefix, err
	}
	d := decoder{b: b}
	epoch, last := d.u64(), d.u64()
	if err := d.end(); err != nil {
		return nil, &CorruptError{What: "channel", Key: key, Detail: err.Error()}
	}
	older := false // nothing ever went from there: there are no traces
	if err := r.Scan(prefix, keys.OutboxPrefix(destination, epoch), func(_, _ []byte) bool {
		older = true
		return false
	}); err != nil || older {
		return prefix, err
	}
	has := func(number uint64) (bool, error) {
		_, ok, err := r.Get(keys.OutboxOf(destination, epoch, number))
		return ok, err
	}
	// There is none at gone, and one at there if that is not behind the last.
	gone, there := uint64(0), last+1
	for step := uint64(1); there > step; step *= 2 {
		ok, err := has(there - step)
		if err != nil {
			return nil, err
		}
		if !ok {
			gone = there - step
			break
		}
		there -= step
	}
	for there-gone > 1 {
		middle := gone + (there-gone)/2
		ok, err := has(middle)
		switch {
		case err != nil:
			return nil, err
		case ok:
			there = middle
		default:
			gone = middle
		}
	}
	return keys.OutboxOf(destination, epoch, there), nil
}
