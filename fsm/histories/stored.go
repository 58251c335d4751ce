package histories

import (
	"bytes"

	"google.golang.org/protobuf/proto"

	perdurev1 "perdure/api/perdure/v1"
	"perdure/fsm/state"
	"perdure/fsm/state/keys"
)

// ExistsError says that an id of a tree exists, and is not that of the tree.
type ExistsError struct{ ID string }

func (e *ExistsError) Error() string { return "exists and has another history" }

// Stored reports whether a state has a tree: all its records, in whatever incarnations they began there. false without
// an error: the state has nothing that a row of the tree would replace. The error is an *ExistsError; damage is a
// fault (state.Must).
func Stored(r state.Must, ns, tree string, records []*perdurev1.HistoryRecord) (bool, error) {
	if _, exists := r.Header(ns, tree); !exists {
		return false, free(r, ns, records)
	}
	of := state.Header{}
	for _, rec := range records {
		objectID := IDOf(rec)
		if p := rec.GetPromise(); p != nil {
			have, ok := r.Promise(ns, objectID)
			if rec, err := OfPromise(have); !ok || err != nil || !proto.Equal(rec.GetPromise(), p) {
				return false, &ExistsError{objectID}
			}
			continue
		}
		if of.ID != objectID {
			h, ok := r.Header(ns, objectID)
			if !ok {
				return false, &ExistsError{objectID}
			}
			of = h
		}
		if !has(r, ns, tree, of, rec) {
			return false, &ExistsError{objectID}
		}
	}
	return true, nil
}

// has reports whether an execution has a record. It compares an execution as a record: one that ran here also has the
// requests of its commits.
func has(r state.Must, ns, tree string, h state.Header, rec *perdurev1.HistoryRecord) bool {
	if rec.GetExecution() != nil {
		task, _ := r.Task(ns, h.ID)
		have, err := OfExecution(tree, h, task.Version)
		return err == nil && proto.Equal(have, rec)
	}
	rows, err := rowsOf(ns, tree, rec, h.Incarnation)
	for _, row := range rows {
		value, ok := r.Get(row.Key)
		if !ok && rec.GetEvent() != nil {
			value, ok = r.Entry(ns, &h, rec.GetEvent().GetEntry().GetSeq())
		}
		if !ok || !bytes.Equal(value, row.Value) {
			return false
		}
	}
	return err == nil
}

// free reports what of a tree exists although its root does not: a promise that is named like one of its operations.
func free(r state.Must, ns string, records []*perdurev1.HistoryRecord) error {
	for _, rec := range records {
		objectID := IDOf(rec)
		for _, family := range []keys.Family{keys.Header, keys.Promise, keys.Task} {
			if rec.GetExecution() == nil && (family != keys.Promise || rec.GetPromise() == nil) {
				continue
			}
			if r.Has(keys.Of(family, ns, objectID)) {
				return &ExistsError{objectID}
			}
		}
	}
	return nil
}
