package state

import "perdure/fsm/state/keys"

// OutboxFront returns a lower bound of the keys in a state's outbox for a destination. Messages have numbers
// without gaps up to their channel's last one and are deleted from the front. So point reads of numbers find
// the first remaining message; a scan from the front would pass the tombstones of all deleted ones.
func OutboxFront(r Reader, destination uint32) ([]byte, error) {
	prefix := keys.Number(keys.Outbox, destination)
	key := keys.Number(keys.Channel, destination)
	at, err := ReadChannel(r, key)
	if err != nil || at == (Channel{}) {
		return prefix, err
	}
	epoch, last := at.Epoch, at.Last
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
	// The outbox has no message numbered absent, and one numbered present unless that is after the last.
	absent, present := uint64(0), last+1
	for step := uint64(1); present > step; step *= 2 {
		ok, err := has(present - step)
		if err != nil {
			return nil, err
		}
		if !ok {
			absent = present - step
			break
		}
		present -= step
	}
	for present-absent > 1 {
		middle := absent + (present-absent)/2
		ok, err := has(middle)
		switch {
		case err != nil:
			return nil, err
		case ok:
			present = middle
		default:
			absent = middle
		}
	}
	return keys.OutboxOf(destination, epoch, present), nil
}

// Channel is one end of a channel to or from another partition: its epoch, and the last number given or seen.
type Channel struct {
	Epoch, Last uint64
	// Bytes are those of the messages in the outbox, as stored. Only a sending end counts them, from LevelFunctions on: 0
	// with messages in the outbox says that they were not counted.
	Bytes uint64
}

func (c Channel) Encode() []byte {
	e := encoder{}
	e.u64(c.Epoch)
	e.u64(c.Last)
	if c.Bytes > 0 {
		e.u64(c.Bytes)
	}
	return e.b
}

func DecodeChannel(b []byte) (Channel, error) {
	d := decoder{b: b}
	c := Channel{Epoch: d.u64(), Last: d.u64()}
	if len(d.b) > 0 {
		if c.Bytes = d.u64(); c.Bytes == 0 {
			d.fail("bytes of an empty outbox")
		}
	}
	return c, d.end()
}

// ReadChannel reads one end of a channel; it is zero if nothing was ever sent.
func ReadChannel(r Reader, key []byte) (Channel, error) {
	b, ok, err := r.Get(key)
	if err != nil || !ok {
		return Channel{}, err
	}
	c, err := DecodeChannel(b)
	if err != nil {
		return Channel{}, &CorruptError{What: "channel", Key: key, Detail: err.Error()}
	}
	return c, nil
}
