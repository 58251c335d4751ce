package query

import (
	"bytes"
	"slices"

	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// promisesPiece is how many rows of a family are read at once.
const promisesPiece = 64

// promiseIDs visits the ids of the promises of a namespace after one, in their order: those with a row, and those that are inline in the
// header of their execution. It reads ListBudget rows, and a piece of each family more, at most. It returns where the visit ended before
// the last promise, "" if it did not: fn has seen all up to that id.
func (x *Read) promiseIDs(after string, fn func(objectID string) (more bool)) (cursor string) {
	level, err := state.Level(x.From)
	if err != nil {
		panic(state.Fault{Err: err})
	}
	if level < state.LevelPromise {
		return x.objects(keys.Promise, after, fn)
	}
	for left := x.ListBudget; ; {
		rows := x.piece(keys.Promise, after, func([]byte) bool { return true })
		headers := x.piece(keys.Header, after, func(value []byte) bool {
			h, err := state.DecodeHeader(bytes.Clone(value))
			return err == nil && h.HasInlinePromise() // what reads the header next says that it is damaged
		})
		ids := slices.Concat(rows.ids, headers.ids)
		slices.Sort(ids)
		// Behind the end of the shorter piece, promises of its family may be missing.
		upTo := ""
		for _, p := range [...]promisePiece{rows, headers} {
			if p.last != "" && (upTo == "" || p.last < upTo) {
				upTo = p.last
			}
		}
		for _, objectID := range ids {
			if upTo != "" && objectID > upTo {
				break
			}
			if !fn(objectID) {
				return after
			}
			after = objectID
		}
		if upTo == "" {
			return ""
		}
		after = upTo
		if left -= rows.read + headers.read; left <= 0 {
			return after
		}
	}
}

// promisePiece is a part of a family.
type promisePiece struct {
	ids  []string // of promises
	read int      // rows
	last string   // the id of the last row; "" if it is the family's last
}

// piece reads a part of a family after an id.
func (x *Read) piece(family keys.Family, after string, promise func(value []byte) bool) (p promisePiece) {
	prefix := keys.Of(family, x.Query.Namespace)
	lower := prefix
	if after != "" {
		lower = append(keys.Of(family, x.Query.Namespace, after), 0)
	}
	last, more := "", false
	x.Scan(lower, keys.After(prefix), func(key, value []byte) bool {
		if more = p.read == promisesPiece; more {
			return false
		}
		objectID, _, err := keys.CutString(key[len(prefix):])
		if err != nil {
			state.PanicCorrupt(keys.NameOf(key), key, err)
		}
		p.read++
		if last = objectID; promise(value) {
			p.ids = append(p.ids, objectID)
		}
		return true
	})
	if more {
		p.last = last
	}
	return p
}
