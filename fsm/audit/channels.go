package audit

import (
	"encoding/binary"
	"fmt"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// outbox is the channel whose messages an audit is reading.
type outbox struct {
	// open says that a message was seen; epoch and last are the newest message's.
	open        bool
	dst         uint32
	epoch, last uint64
}

// resume forgets the previous message if it was trimmed since: the following one need not have the next number.
func (o *outbox) resume(a *auditor) {
	if o.open && !a.Has(keys.OutboxOf(o.dst, o.epoch, o.last)) {
		o.open = false
	}
}

func peer(n uint32) string { return fmt.Sprintf("partition %d", n) }

// otherPartition reports a channel that leads nowhere.
func (a *auditor) otherPartition(n uint32, what string) {
	if n >= a.part.Count || n == a.part.Number {
		a.found("", peer(n), RuleChannel, "%s of partition %d, which is %d of %d", what, n, a.part.Number, a.part.Count)
	}
}

// message checks a message in the outbox: its number is its key's and the next of its channel, and its
// destination is the partition of its target.
func (a *auditor) message(key, value []byte) {
	if len(key) != 1+4+8+8 {
		a.damaged("", "", key, fmt.Sprintf("it has %d bytes", len(key)))
		return
	}
	a.report.Messages++
	dst := binary.BigEndian.Uint32(key[1:])
	epoch, seq := binary.BigEndian.Uint64(key[5:]), binary.BigEndian.Uint64(key[13:])
	msg := &commandv1.Message{}
	if err := proto.Unmarshal(value, msg); err != nil || msg.Kind == nil {
		a.damaged("", peer(dst), key, "it is no message")
	} else if to := state.PartitionOf(msg.Namespace, msg.ToId, a.part.Count); msg.Seq != seq || to != dst {
		a.found(msg.Namespace, msg.ToId, RuleChannel, "message %d for partition %d says that it is number %d, for partition %d", seq, dst, msg.Seq, to)
	}
	if now := a.number(state.MetaCut); msg.Cut > now {
		a.found("", peer(dst), RuleChannel, "message %d was sent in cut %d, this partition is in cut %d", seq, msg.Cut, now)
	}
	a.sender(msg)
	o := &a.outbox
	switch same := o.open && o.dst == dst; {
	case !same:
		a.otherPartition(dst, "messages for the outbox")
		if !a.Has(keys.Number(keys.Channel, dst)) {
			a.found("", peer(dst), RuleChannel, "message %d, and no channel", seq)
		}
	case epoch != o.epoch || seq != o.last+1:
		a.found("", peer(dst), RuleChannel, "message %d of epoch %d follows message %d of epoch %d", seq, epoch, o.last, o.epoch)
	}
	*o = outbox{open: true, dst: dst, epoch: epoch, last: seq}
}

// channel checks the sending end of a channel: its last number is that of the newest message.
func (a *auditor) channel(key, value []byte) {
	dst, ch, ok := a.channelEnd(key, value)
	if !ok {
		return
	}
	epoch, last := ch.Epoch, ch.Last
	a.otherPartition(dst, "a channel to the number")
	if ch.Bytes > 0 {
		a.outboxBytes(dst, ch.Bytes)
	}
	if a.Has(keys.OutboxOf(dst, epoch, last)) {
		if beyond := a.firstMessage(dst, keys.OutboxOf(dst, epoch, last+1)); beyond != "" {
			a.found("", peer(dst), RuleChannel, "the outbox has %s, the channel is at %d of epoch %d", beyond, last, epoch)
		}
	} else if some := a.firstMessage(dst, keys.Number(keys.Outbox, dst)); some != "" {
		a.found("", peer(dst), RuleChannel, "the outbox has %s, and not number %d of epoch %d, at which the channel is", some, last, epoch)
	}
}

// outboxBytes checks the bytes that a channel counts against its messages.
func (a *auditor) outboxBytes(dst uint32, counted uint64) {
	prefix, n := keys.Number(keys.Outbox, dst), uint64(0)
	a.Scan(prefix, keys.After(prefix), func(_, value []byte) bool {
		n += uint64(len(value))
		return true
	})
	if n != counted {
		a.found("", peer(dst), RuleChannel, "the outbox has messages of %d bytes, the channel counts %d", n, counted)
	}
}

// firstMessage names the first message for a partition from a key on; "" if there is none.
func (a *auditor) firstMessage(dst uint32, from []byte) (name string) {
	a.Scan(from, keys.After(keys.Number(keys.Outbox, dst)), func(key, _ []byte) bool {
		name = "a message that has no number"
		if len(key) == 1+4+8+8 {
			name = fmt.Sprintf("message %d of epoch %d", binary.BigEndian.Uint64(key[13:]), binary.BigEndian.Uint64(key[5:]))
		}
		return false
	})
	return name
}

// inbox checks the form of a channel's receiving end, and that another partition sends: its value depends on that one.
func (a *auditor) inbox(key, value []byte) {
	if source, ch, ok := a.channelEnd(key, value); ok {
		a.otherPartition(source, "an inbox for messages")
		if ch.Bytes > 0 {
			a.found("", peer(source), RuleChannel, "an inbox counts %d bytes of an outbox", ch.Bytes)
		}
	}
}

func (a *auditor) channelEnd(key, value []byte) (other uint32, c state.Channel, ok bool) {
	if len(key) != 1+4 {
		a.damaged("", "", key, fmt.Sprintf("it has %d bytes", len(key)))
		return 0, c, false
	}
	other = binary.BigEndian.Uint32(key[1:])
	c, err := state.DecodeChannel(value)
	if err != nil {
		a.damaged("", peer(other), key, "it is no end of a channel: "+err.Error())
		return 0, c, false
	}
	return other, c, true
}
