package query

import (
	"bytes"
	"fmt"

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
	if lower, upper := e.bounds(stage); len(from) > 0 && (bytes.Compare(from, lower) < 0 || bytes.Compare(from, upper) >= 0) || lower == nil {
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

// stage reads rows of one family, of the execution or of what is below it, from a key on. next is where the page ended;
// nil when the stage is done.
func (e *export) stage(stage int, from []byte) (next []byte, err error) {
	family := exported[stage/2]
	lower, upper := e.bounds(stage)
	if len(from) > 0 {
		lower = from
	}
	e.Scan(lower, upper, func(key, value []byte) bool {
		if e.size > 0 && e.size+len(key)+len(value) > PageBytes {
			next = append([]byte{}, key...)
			return false
		}
		var records []*perdurev1.HistoryRecord
		if records, err = e.records(family, key, value); err != nil {
			return false
		}
		e.out.Records = append(e.out.Records, records...)
		e.size += len(key) + len(value)
		return true
	})
	return next, err
}

// records are those of a row: one, none if history lacks it, and with a header those of the journal that is inline there.
func (e *export) records(family keys.Family, key, value []byte) ([]*perdurev1.HistoryRecord, error) {
	rec, err := e.record(family, key, value)
	if rec == nil || err != nil {
		return nil, err
	}
	out := []*perdurev1.HistoryRecord{rec}
	if family != keys.Header {
		return out, nil
	}
	h, err := state.DecodeHeader(append([]byte(nil), value...))
	if err != nil {
		return nil, err
	}
	for _, value := range h.InlineEntries() {
		entry, err := journal.DecodeEntry(value)
		if err != nil {
			return nil, err
		}
		out = append(out, histories.OfEntry(h.ID, entry))
	}
	return out, nil
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
	case keys.Journal:
		entry, err := journal.DecodeEntry(value)
		if err != nil {
			return nil, err
		}
		return histories.OfEntry(objectID, entry), nil
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
