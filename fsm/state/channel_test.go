package state

import (
	"bytes"
	"testing"

	"perdure/fsm/state/keys"
)

// The front of an outbox is the key of its first message. A message of an older epoch comes before it, and an outbox
// without a channel is read from its beginning.
func TestOutboxFront(t *testing.T) {
	st := func(epoch uint64, first, last uint64) *MemReader {
		r := NewMemReader()
		r.Apply([]Write{{Key: keys.Number(keys.Channel, 1), Value: Channel{Epoch: epoch, Last: last}.Encode()}})
		for n := first; n <= last; n++ {
			r.Apply([]Write{{Key: keys.OutboxOf(1, epoch, n), Value: []byte{}}})
		}
		return r
	}
	for last := range uint64(40) {
		for first := uint64(1); first <= last+1; first++ {
			r := st(3, first, last)
			if front, err := OutboxFront(r, 1); err != nil || !bytes.Equal(front, keys.OutboxOf(1, 3, first)) {
				t.Fatalf("messages %d to %d: the front is %x, %v", first, last, front, err)
			}
			r.Apply([]Write{{Key: keys.OutboxOf(1, 2, 7), Value: []byte{}}})
			if front, err := OutboxFront(r, 1); err != nil || !bytes.Equal(front, keys.Number(keys.Outbox, 1)) {
				t.Fatalf("a message of an older epoch: the front is %x, %v", front, err)
			}
		}
	}
	// The search is logarithmic in the messages that are left, not in all that ever were.
	counted := &countingReader{MemReader: st(1, 1_000_000_000-100, 1_000_000_000)}
	if _, err := OutboxFront(counted, 1); err != nil || counted.gets > 20 {
		t.Errorf("100 messages are found after %d reads, %v", counted.gets, err)
	}
	r := st(1, 1, 5)
	r.Apply([]Write{{Key: keys.Number(keys.Channel, 1)}})
	if front, err := OutboxFront(r, 1); err != nil || !bytes.Equal(front, keys.Number(keys.Outbox, 1)) {
		t.Errorf("no channel: the front is %x, %v", front, err)
	}
	r.Apply([]Write{{Key: keys.Number(keys.Channel, 1), Value: []byte{0xff}}})
	if front, err := OutboxFront(r, 1); err == nil {
		t.Errorf("a damaged channel: the front is %x", front)
	}
}

type countingReader struct {
	*MemReader
	gets int
}

func (r *countingReader) Get(key []byte) ([]byte, bool, error) {
	r.gets++
	return r.MemReader.Get(key)
}
