package query

import (
	"bytes"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// CountOpen counts the open executions of a namespace, children included, up to most.
func CountOpen(r state.Reader, namespace string, most int) (n int, err error) {
	lower := keys.VisibilityPrefix(namespace, keys.Open)
	err = r.Scan(lower, keys.After(lower), func(_, _ []byte) bool {
		n++
		return n < most
	})
	return n, err
}

// ownedFamilies are the families whose keys begin with a namespace. What lasts for minutes only is not among them: deadlines,
// queues, messages and stored replies.
var ownedFamilies = []keys.Family{keys.Promise, keys.Task, keys.Callback, keys.AwaitedBy, keys.Listener, keys.Header, keys.Journal,
	keys.Graph, keys.Node, keys.Latch, keys.Heartbeat, keys.Entity, keys.EntityItem, keys.Holder, keys.Visibility}

// StoredBytes adds the keys and values of a namespace. It reads at most maxKeys keys, from a position on; next is where to
// continue, nil at the end.
func StoredBytes(r state.Reader, namespace string, from []byte, maxKeys int) (n int64, next []byte, err error) {
	for _, family := range ownedFamilies {
		lower := keys.Of(family, namespace)
		upper := keys.After(lower)
		if len(from) > 0 {
			if family != keys.Family(from[0]) {
				continue
			}
			lower, from = from, nil
		}
		if err := r.Scan(lower, upper, func(key, value []byte) bool {
			if maxKeys == 0 {
				next = bytes.Clone(key)
				return false
			}
			maxKeys--
			n += int64(len(key) + len(value))
			return true
		}); err != nil || next != nil {
			return n, next, err
		}
	}
	return n, nil, nil
}
