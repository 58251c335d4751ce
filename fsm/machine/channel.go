package machine

import "perdure/fsm/keys"

// outboxFront is a key that nothing in a state's outbox for a destination stands before. Messages are numbered
// without gaps up to what their channel says, and go from the front, so that the first one that is left is found
// by asking for numbers: a scan from the front would walk over the traces of all that have gone.
func outboxFront(r Reader, destination uint32) ([]byte, error) {
	prefix := keys.Number(keys.Outbox, destination)
	key := keys.Number(keys.Channel, destination)
	at, err := readChannel(r, key)
	if err != nil || at == (channel{}) {
		return prefix, err
	}
	epoch, last := at.epoch, at.last
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

// channel is one end of a channel to or from another partition: its epoch, and the last number given or seen.
type channel struct{ epoch, last uint64 }

func (c channel) encode() []byte {
	e := encoder{}
	e.u64(c.epoch)
	e.u64(c.last)
	return e.b
}

func decodeChannel(b []byte) (channel, error) {
	d := decoder{b: b}
	c := channel{d.u64(), d.u64()}
	return c, d.end()
}

// readChannel reads one end of a channel; it is zero if nothing was ever sent.
func readChannel(r Reader, key []byte) (channel, error) {
	b, ok, err := r.Get(key)
	if err != nil || !ok {
		return channel{}, err
	}
	c, err := decodeChannel(b)
	if err != nil {
		return channel{}, &CorruptError{What: "channel", Key: key, Detail: err.Error()}
	}
	return c, nil
}
