package machine

import (
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
	key := keys.Number(keys.Channel, dst)
	ch := t.channel(key)
	ch.epoch = max(ch.epoch, 1)
	ch.last++
	msg.Seq = ch.last
	b, err := wire.Marshal(msg)
	if err != nil {
		return err
	}
	t.put(keys.OutboxOf(dst, ch.epoch, ch.last), b)
	t.put(key, ch.encode())
	t.fx.Outbox = append(t.fx.Outbox, dst)
	return nil
}

// channel reads one end of a channel.
func (t *txn) channel(key []byte) channel {
	c, err := readChannel(t, key)
	if err != nil {
		panic(Fault{Err: err})
	}
	return c
}
