package reduction

import (
	"bytes"
	"maps"
)

// State is the state of a run (staged reduction, 2.2): a status for every node, an output for every completed
// one. It can hold anything, so that a stored state can be verified; [WellFormed] says what it should hold.
// The functions of this package never change the State they are given, and what they return shares nothing
// with it but the bytes of outputs, which are read-only.
type State struct {
	Statuses map[NodeID]Status
	Outputs  map[NodeID][]byte
}

// Initial is the state before anything has happened: every node is pending.
func Initial(r *Relation) State {
	s := State{make(map[NodeID]Status, r.Len()), make(map[NodeID][]byte)}
	for _, id := range r.ids {
		s.Statuses[id] = Status{Kind: StatusPending}
	}
	return s
}

// Clone returns a State that shares nothing with s but the bytes of outputs.
func (s State) Clone() State {
	c := State{maps.Clone(s.Statuses), maps.Clone(s.Outputs)}
	if c.Statuses == nil {
		c.Statuses = make(map[NodeID]Status)
	}
	if c.Outputs == nil {
		c.Outputs = make(map[NodeID][]byte)
	}
	return c
}

// Equal reports whether s and t hold the same statuses and outputs.
func (s State) Equal(t State) bool {
	return maps.Equal(s.Statuses, t.Statuses) && maps.EqualFunc(s.Outputs, t.Outputs, bytes.Equal)
}

// kind is a node's status without its signal, by number; 0 if there is none.
func (s State) kind(r *Relation, n int32) StatusKind { return s.Statuses[r.ids[n]].Kind }
