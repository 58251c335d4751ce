package machine

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/proto"

	commandv1 "perdure/api/command/v1"
)

// outbox is what an audit has seen of the messages for one partition.
type outbox struct {
	// epoch and last are the newest message's; ended says that the channel's own record was seen.
	epoch, last uint64
	messages    bool
	ended       bool
}

func peer(n uint32) string { return fmt.Sprintf("partition %d", n) }

// otherPartition reports a channel that leads nowhere.
func (a *auditor) otherPartition(n uint32, what string) {
	if n >= a.cfg.Partitions || n == a.cfg.Partition {
		a.found("", peer(n), RuleChannel, "%s of partition %d, which is %d of %d", what, n, a.cfg.Partition, a.cfg.Partitions)
	}
}

// message judges a message under way: it says the number that it stands at, the next one of its channel,
// and goes to the partition of whom it is for.
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
	} else if to := Place(msg.Namespace, msg.ToId, a.cfg.Partitions); msg.Seq != seq || to != dst {
		a.found(msg.Namespace, msg.ToId, RuleChannel, "message %d for partition %d says that it is number %d, for partition %d", seq, dst, msg.Seq, to)
	}
	o := a.outboxes[dst]
	if o == nil {
		o = &outbox{}
		a.outboxes[dst] = o
		a.otherPartition(dst, "messages for the outbox")
	}
	if o.messages && (epoch != o.epoch || seq != o.last+1) {
		a.found("", peer(dst), RuleChannel, "message %d of epoch %d follows message %d of epoch %d", seq, epoch, o.last, o.epoch)
	}
	o.epoch, o.last, o.messages = epoch, seq, true
}

// channel judges the sending end of a channel: the newest message has its last number.
func (a *auditor) channel(key, value []byte) {
	dst, epoch, last, ok := a.channelEnd(key, value)
	if !ok {
		return
	}
	o := a.outboxes[dst]
	if o == nil {
		o = &outbox{}
		a.outboxes[dst] = o
		a.otherPartition(dst, "a channel to the number")
	}
	o.ended = true
	if o.messages && (o.epoch != epoch || o.last != last) {
		a.found("", peer(dst), RuleChannel, "the newest message is %d of epoch %d, the channel is at %d of epoch %d", o.last, o.epoch, last, epoch)
	}
}

// inbox judges the receiving end of a channel by its form alone: what it should say, only the sender knows.
func (a *auditor) inbox(key, value []byte) { a.channelEnd(key, value) }

func (a *auditor) channelEnd(key, value []byte) (other uint32, epoch, last uint64, ok bool) {
	if len(key) != 1+4 {
		a.damaged("", "", key, fmt.Sprintf("it has %d bytes", len(key)))
		return 0, 0, 0, false
	}
	other = binary.BigEndian.Uint32(key[1:])
	d := decoder{b: value}
	epoch, last = d.u64(), d.u64()
	if err := d.end(); err != nil {
		a.damaged("", peer(other), key, "it is no end of a channel: "+err.Error())
		return 0, 0, 0, false
	}
	return other, epoch, last, true
}

// channels judges, when all has been seen, that no message stands outside a channel.
func (a *auditor) channels() {
	for _, dst := range slices.Sorted(maps.Keys(a.outboxes)) {
		if o := a.outboxes[dst]; !o.ended {
			a.found("", peer(dst), RuleChannel, "messages up to %d, and no channel", o.last)
		}
	}
}
