package query

import (
	"bytes"
	"fmt"
	"math"

	"perdure/api"
	commandv1 "perdure/api/command/v1"
	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/histories"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
	"perdure/fsm/wire"
	"perdure/journal"
	"perdure/recovery"
)

// exported are the families that an export reads, in its order. Each has a stage for the execution itself and one for
// what is below it.
var exported = []keys.Family{keys.Header, keys.Promise, keys.Journal, keys.Graph, keys.Node, keys.Latch}

// export reads a page of a tree that has ended: PageBytes of keys and values, or one row.
func (x *Read) export(req *perdurev1.ExportRequest) (*commandv1.QueryReply, *api.Error) {
	ns, tree := x.Query.Namespace, x.Query.Id
	root, ok := x.Header(ns, tree)
	if !ok {
		return nil, wire.NotFound(ns, tree)
	}
	// A purge or a restart may have begun since the last page.
	if _, err := histories.OfExecution(tree, root, 0); err != nil {
		return nil, histories.Refusal(ns, tree, err)
	}
	e := &export{Read: x, out: &perdurev1.ExportResponse{Incarnation: root.Incarnation}}
	stage, from := 0, []byte(nil)
	if len(req.Cursor) > 0 {
		stage, from = int(req.Cursor[0]), req.Cursor[1:]
	}
	lower, upper := e.bounds(stage)
	_, _, ofEntry := headerOfEntry(from)
	if lower == nil || len(from) > 0 && (bytes.Compare(from, lower) < 0 || bytes.Compare(from, upper) >= 0 || exported[stage/2] == keys.Journal && !ofEntry) {
		return nil, api.Errorf(perdurev1.Reason_REASON_BAD_REQUEST, "the cursor of %d bytes is none of an export of %q", len(req.Cursor), tree).With("id", tree)
	}
	for ; stage < 2*len(exported); stage++ {
		next, err := e.stage(stage, from)
		if err != nil {
			return nil, histories.Refusal(ns, tree, err)
		}
		if next != nil {
			e.out.Cursor = append([]byte{byte(stage)}, next...)
			break
		}
		from = nil
	}
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_Export{Export: e.out}}, nil
}

// importHistory checks an import against what the state has, as the command does, and stores nothing.
func (x *Read) importHistory(req *perdurev1.ImportHistoryRequest) (*commandv1.QueryReply, *api.Error) {
	existed, err := histories.Stored(x.Must, x.Query.Namespace, x.Query.Id, req.Records)
	if err != nil {
		return nil, histories.Refusal(x.Query.Namespace, x.Query.Id, err)
	}
	return &commandv1.QueryReply{Kind: &commandv1.QueryReply_ImportHistory{ImportHistory: &perdurev1.ImportHistoryResponse{Existed: existed}}}, nil
}

// export is one page.
type export struct {
	*Read
	out  *perdurev1.ExportResponse
	size int
	// of is the execution whose rows were read last.
	of state.Header
}

// bounds are those of the keys of a stage; nil of a stage that does not exist.
func (e *export) bounds(stage int) (lower, upper []byte) {
	if stage >= 2*len(exported) {
		return nil, nil
	}
	family := exported[stage/2]
	lower = keys.Of(family, e.Query.Namespace, e.Query.Id)
	if stage%2 == 1 {
		lower = keys.Of(family, e.Query.Namespace, histories.Below(e.Query.Id))
		lower = lower[:len(lower)-2] // without the string's terminator: every id with this prefix
	}
	return lower, keys.After(lower)
}

// full reports whether the page has no place for a row.
func (e *export) full(key, value []byte) bool {
	return e.size > 0 && e.size+len(key)+len(value) > PageBytes
}

// stage reads rows of one family, of the execution or of what is below it, from a key on. next is where the page ended;
// nil when the stage is done.
func (e *export) stage(stage int, from []byte) (next []byte, err error) {
	family := exported[stage/2]
	lower, upper := e.bounds(stage)
	if family == keys.Journal {
		return e.journals(lower, upper, from)
	}
	if root, _ := e.Header(e.Query.Namespace, e.Query.Id); family == keys.Promise && stage%2 == 0 && root.HasInlinePromise() {
		p, _ := root.InlinePromise()
		rec, err := histories.OfPromise(p)
		if err == nil {
			e.out.Records = append(e.out.Records, rec)
			e.size += len(p.Value)
		}
		return nil, err
	}
	if len(from) > 0 {
		lower = from
	}
	e.Scan(lower, upper, func(key, value []byte) bool {
		if e.full(key, value) {
			next = append([]byte{}, key...)
			return false
		}
		var rec *perdurev1.HistoryRecord
		if rec, err = e.record(family, key, value); err != nil {
			return false
		}
		if rec != nil {
			e.out.Records = append(e.out.Records, rec)
		}
		e.size += len(key) + len(value)
		return true
	})
	return next, err
}

// journals is stage for the entries of journals between two keys, whether they are rows or inline in a header.
func (e *export) journals(lower, upper, from []byte) (next []byte, err error) {
	lower[0], upper[0] = byte(keys.Header), byte(keys.Header)
	first, seq, begun := headerOfEntry(from)
	if begun {
		lower = first
	}
	e.Scan(lower, upper, func(key, value []byte) bool {
		h, bad := state.DecodeHeader(append([]byte(nil), value...))
		if err = bad; err != nil || !histories.Within(e.Query.Id, h.ID) {
			return err == nil
		}
		if !bytes.Equal(key, first) {
			seq = 0
		}
		e.Entries(e.Query.Namespace, &h, seq, math.MaxUint64, func(key, value []byte) bool {
			if e.full(key, value) {
				next = append([]byte{}, key...)
				return false
			}
			var entry journal.Entry
			if entry, err = journal.DecodeEntry(append([]byte(nil), value...)); err != nil {
				return false
			}
			e.out.Records = append(e.out.Records, histories.OfEntry(h.ID, entry))
			e.size += len(key) + len(value)
			return true
		})
		return next == nil && err == nil
	})
	return next, err
}

// headerOfEntry is the key of the header of the execution of a journal entry, and the entry's number; ok is false if the key is none
// of an entry.
func headerOfEntry(key []byte) (header []byte, seq uint64, ok bool) {
	if len(key) == 0 {
		return nil, 0, false
	}
	ns, rest, err := keys.CutString(key[1:])
	if err != nil {
		return nil, 0, false
	}
	objectID, rest, err := keys.CutString(rest)
	if err != nil || len(rest) != 16 {
		return nil, 0, false
	}
	seq, _, _ = keys.CutUint64(rest[8:])
	return keys.Of(keys.Header, ns, objectID), seq, true
}

// record is the record of a row; nil if history lacks it.
func (e *export) record(family keys.Family, key, value []byte) (*perdurev1.HistoryRecord, error) {
	ns, rest, err := keys.CutString(key[1:])
	if err != nil {
		return nil, err
	}
	objectID, rest, err := keys.CutString(rest)
	if err != nil || !histories.Within(e.Query.Id, objectID) {
		return nil, err // anybody's id with a colon
	}
	value = append([]byte(nil), value...)
	switch family {
	case keys.Header:
		h, err := state.DecodeHeader(value)
		if err != nil {
			return nil, err
		}
		task, _ := e.Task(ns, objectID)
		return histories.OfExecution(e.Query.Id, h, task.Version)
	case keys.Promise:
		p, err := recovery.DecodePromise(value)
		if err != nil || state.OfClient(p) { // named like an operation
			return nil, err
		}
		return histories.OfPromise(p)
	}
	incarnation, rest, err := keys.CutUint64(rest)
	if err != nil {
		return nil, err
	}
	if e.of.ID != objectID {
		e.of, _ = e.Header(ns, objectID)
	}
	if e.of.Incarnation != incarnation {
		return nil, nil
	}
	switch family {
	case keys.Graph:
		return histories.OfGraph(objectID, value)
	case keys.Node:
		if len(rest) != 4 {
			return nil, fmt.Errorf("key %x has %d bytes for the node", key, len(rest))
		}
		return histories.OfNode(objectID, uint32(rest[0])<<24|uint32(rest[1])<<16|uint32(rest[2])<<8|uint32(rest[3]), value)
	}
	name, _, err := keys.CutString(rest)
	return histories.OfSignal(objectID, name, value), err
}
