// Package state says what a partition stores and how: the encodings of headers, nodes of graph runs, graphs, stored
// replies and channels, the partition's own values, and how these are read through a Reader. The layout of keys is
// fsm/state/keys; promises, tasks, outcomes and journal entries have their encodings in recovery and journal.
//
// It promises that a value has one encoding, and that a decoder refuses what its encoder does not write with a
// *CorruptError that names the key. It holds nothing and changes nothing: only fsm/machine writes a state. A crash
// loses nothing here.
//
// Machine, queries and audit share this package and nothing else. So it has only what a stored value means by itself
// (which outcome a settled promise has, how many retries a policy's text allows, what the rows of a graph run say of
// the reduction). What must follow from what (which deadlines an object needs in the index, in which class an
// execution is listed, when a task stands in a queue) is written twice: once by the machine, which does it, and once
// by the audit, which checks it.
package state
