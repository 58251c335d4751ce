package fsm

import (
	"bytes"
	"errors"

	"github.com/cockroachdb/pebble/v2"

	"perdure/fsm/state"
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

// stepsAhead is how many keys ScanRanges steps over before it seeks the next range, and how many ranges in a row may be further away
// until it always seeks. A step is some tenth of a seek, which looks into every level.
const stepsAhead = 8

// ScanRanges implements state.RangeReader. One iterator moves forward, so it finds most keys in blocks that it has read already.
func (v view) ScanRanges(ranges []state.Range, fn func(i int, key, value []byte) bool) error {
	if len(ranges) == 0 {
		return nil
	}
	it, err := v.r.NewIter(&pebble.IterOptions{LowerBound: ranges[0].Lower, UpperBound: ranges[len(ranges)-1].Upper})
	if err != nil {
		return err
	}
	valid, far := it.First(), 0
	for i, r := range ranges {
		for step := 0; valid && far < stepsAhead && step < stepsAhead && bytes.Compare(it.Key(), r.Lower) < 0; step++ {
			valid = it.Next()
		}
		if valid && bytes.Compare(it.Key(), r.Lower) < 0 {
			far++
			valid = it.SeekGE(r.Lower)
		} else {
			far = 0
		}
		for ; valid && bytes.Compare(it.Key(), r.Upper) < 0; valid = it.Next() {
			value, err := it.ValueAndErr()
			if err != nil {
				_ = it.Close() // says the same
				return err
			}
			if !fn(i, it.Key(), value) {
				break
			}
		}
		if !valid {
			break // nothing more, or an error, which Close says
		}
	}
	return it.Close()
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
