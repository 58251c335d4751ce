package fsm

import (
	"bytes"
	"errors"

	"github.com/cockroachdb/pebble/v2"
)

// view is a state.Reader over Pebble: the live database, or a snapshot of it.
type view struct{ r pebble.Reader }

// Get implements state.Reader.
func (v view) Get(key []byte) ([]byte, bool, error) {
	value, closer, err := v.r.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	out := bytes.Clone(value)
	if out == nil {
		out = []byte{}
	}
	return out, true, closer.Close()
}

// Scan implements state.Reader.
func (v view) Scan(lower, upper []byte, fn func(key, value []byte) bool) error {
	it, err := v.r.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
	if err != nil {
		return err
	}
	return scan(it, fn)
}

func scan(it *pebble.Iterator, fn func(key, value []byte) bool) error {
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			_ = it.Close() // says the same
			return err
		}
		if !fn(it.Key(), value) {
			break
		}
	}
	return it.Close() // with the errors of the read
}
