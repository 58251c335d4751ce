package machine

import (
	"bytes"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// places are the first places of a queue, as they are below, from where a scan of it began. Every entry with grants looks into the queues
// that are not empty, and most often finds the places in the batch: but to know that there are none before them it would open an
// iterator of the state each time. Writes of the queue's places drop them.
type places struct {
	from []byte
	rows []state.Write
	// whole: no other place follows.
	whole bool
}

const (
	// mostPlaces is how many places of a queue are kept, mostQueues of how many queues.
	mostPlaces = 128
	mostQueues = 64
)

// queueOf is the prefix of the keys of a place's queue.
func queueOf(place []byte) []byte { return keys.Strings(place, 2) }

// wholeQueue is the prefix of the queue of which [lower, upper) is the end; nil if that is something else.
func wholeQueue(lower, upper []byte) []byte {
	if len(lower) == 0 || keys.Family(lower[0]) != keys.Ready {
		return nil
	}
	queue := queueOf(lower)
	last := len(queue) - 1
	if last < 0 || len(upper) != len(queue) || !bytes.Equal(upper[:last], queue[:last]) || upper[last] != queue[last]+1 {
		return nil
	}
	return queue
}

// scanQueue is Scan of the end of a queue.
func (c *readCache) scanQueue(queue, lower, upper []byte, fn func(key, value []byte) bool) error {
	p := c.queues[string(queue)]
	if p == nil || !p.has(lower) {
		p = &places{from: bytes.Clone(lower), whole: true}
		var made []byte
		clone := func(b []byte) []byte {
			made = append(made, b...)
			return made[len(made)-len(b) : len(made) : len(made)]
		}
		if err := c.below.Scan(lower, upper, func(key, value []byte) bool {
			if p.whole = len(p.rows) < mostPlaces; p.whole {
				p.rows = append(p.rows, state.Write{Key: clone(key), Value: clone(value)})
			}
			return p.whole
		}); err != nil {
			return err
		}
		if len(c.queues) >= mostQueues {
			clear(c.queues)
		}
		c.queues[string(queue)] = p
	}
	for _, row := range p.rows {
		if bytes.Compare(row.Key, lower) >= 0 && !fn(row.Key, row.Value) {
			return nil
		}
	}
	if p.whole {
		return nil
	}
	return c.below.Scan(append(bytes.Clone(p.rows[len(p.rows)-1].Key), 0), upper, fn)
}

// has reports that p has the places from lower on, or the first of them.
func (p *places) has(lower []byte) bool {
	return bytes.Compare(lower, p.from) >= 0 && (p.whole || bytes.Compare(lower, p.rows[len(p.rows)-1].Key) <= 0)
}
