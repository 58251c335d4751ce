package machine

import (
	commandv1 "perdure/api/command/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// send delivers a message to the partition that owns an id. If that is this one, it applies the message at
// once. Else it appends it to the channel's outbox, numbered without gaps within the channel's epoch.
func (t *txn) send(ns, toID string, msg *commandv1.Message) error {
	msg.Namespace = ns
	dst := state.PartitionOf(ns, toID, t.m.cfg.Partitions)
	if dst == t.m.cfg.Partition {
		return t.receive(msg)
	}
	key := keys.Number(keys.Channel, dst)
	ch := t.channel(key)
	ch.Epoch = max(ch.Epoch, 1)
	ch.Last++
	msg.Seq, msg.Cut = ch.Last, uint64(t.m.cut)
	b, err := state.Deterministic.Marshal(msg)
	if err != nil {
		return err
	}
	if t.m.feature >= state.LevelFunctions {
		if ch.Bytes == 0 {
			ch.Bytes = t.outboxBytes(dst, ch)
		}
		ch.Bytes += uint64(len(b))
	}
	t.put(keys.OutboxOf(dst, ch.Epoch, ch.Last), b)
	t.put(key, ch.Encode())
	t.fx.Outbox = append(t.fx.Outbox, dst)
	return nil
}

// outboxBytes counts the bytes of an outbox whose channel, before a message more, does not say them: it is empty, unless
// its messages are of a lower feature level.
func (t *txn) outboxBytes(dst uint32, ch state.Channel) (n uint64) {
	if _, waits := t.get(keys.OutboxOf(dst, ch.Epoch, ch.Last-1)); !waits {
		return 0
	}
	front, err := state.OutboxFront(t, dst)
	if err != nil {
		panic(state.Fault{Err: err})
	}
	t.scan(front, keys.After(keys.Number(keys.Outbox, dst)), func(_, value []byte) bool {
		n += uint64(len(value))
		return true
	})
	return n
}

// channel reads one end of a channel.
func (t *txn) channel(key []byte) state.Channel {
	c, err := state.ReadChannel(t, key)
	if err != nil {
		panic(state.Fault{Err: err})
	}
	return c
}
