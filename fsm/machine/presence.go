package machine

import (
	"bytes"

	"github.com/cespare/xxhash/v2"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// presence answers from memory, for most of them, that the state has no stored reply to a request, no callback of a
// promise or task, no listener of a promise, nothing left of such listeners, and no critical section of an execution.
// It counts the keys of each such set by a hash of the set's prefix:
//
//	count(hash(prefix)) >= min(keys with this prefix, 255)
//
// so 0 means that there is none. It is a cache of the state, of a fixed size; New counts what is stored.
type presence struct{ counts []uint8 }

// presenceSlots is over four times the stored replies at their bound.
const presenceSlots = 1 << 19

func (p *presence) slot(prefix []byte) *uint8 {
	return &p.counts[xxhash.Sum64(prefix)%presenceSlots]
}

// none reports that the state has no key with a prefix. False means that it may have one.
func (p *presence) none(prefix []byte) bool { return *p.slot(prefix) == 0 }

func (p *presence) add(prefix []byte) {
	if n := p.slot(prefix); *n < 255 {
		*n++
	}
}

// remove keeps a full count, whose number is not known.
func (p *presence) remove(prefix []byte) {
	if n := p.slot(prefix); 0 < *n && *n < 255 {
		*n--
	}
}

// counted is the prefix under which a key is counted; nil for keys of other families.
func counted(key []byte) []byte {
	switch keys.Family(key[0]) {
	case keys.Reply, keys.Holder:
		return key
	case keys.Callback, keys.AwaitedBy, keys.Listener, keys.Notify:
		return keys.Strings(key, 2)
	}
	return nil
}

// read counts what is stored. A reply is counted by the key of its age, which is shorter.
func (p *presence) read(below state.Reader) error {
	p.counts = make([]uint8, presenceSlots)
	for _, family := range []keys.Family{keys.Callback, keys.AwaitedBy, keys.Listener, keys.Notify, keys.Holder} {
		if err := below.Scan([]byte{byte(family)}, []byte{byte(family) + 1}, func(key, _ []byte) bool {
			p.add(counted(key))
			return true
		}); err != nil {
			return err
		}
	}
	return below.Scan([]byte{byte(keys.ReplyAge)}, []byte{byte(keys.ReplyAge) + 1}, func(key, _ []byte) bool {
		if _, request, err := keys.CutUint64(key[1:]); err == nil {
			p.add(keys.ReplyOf(request))
		}
		return true
	})
}

// count notes a write that the batch does not contain yet, and returns the next call's empty.
//
// empty is the prefix that the last call found without keys, in the same transaction: no key with it existed before, and
// the transaction has each key once. A wait on many promises so takes no read for each.
func (m *Machine) count(w *write, empty []byte) []byte {
	prefix := counted(w.key)
	if prefix == nil {
		return empty
	}
	existed := false
	switch {
	case keys.Family(w.key[0]) == keys.Reply:
		existed = !w.added // replies are never overwritten
	case bytes.Equal(prefix, empty):
	case m.present.none(prefix):
		if keys.Family(w.key[0]) == keys.AwaitedBy {
			empty = prefix
		}
	default:
		existed = state.Must{From: m.batch}.Has(w.key)
	}
	switch {
	case w.removed && existed:
		m.present.remove(prefix)
	case !w.removed && !existed:
		m.present.add(prefix)
	}
	return empty
}

// none reports that neither the state nor this transaction has a key with a counted prefix.
func (t *txn) none(prefix []byte) bool {
	return !t.puts[prefix[0]] && t.m.present.none(prefix)
}
