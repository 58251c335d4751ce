// Package state defines what a partition stores and how: the encodings of headers, nodes of graph runs,
// graphs, stored replies and channels, the partition's own values, and their reads through a Reader. The
// layout of keys is fsm/state/keys; promises, tasks, outcomes and journal entries have their encodings in
// recovery and journal.
//
// It promises that a value has one encoding. A decoder refuses bytes that its encoder does not write, with a
// *CorruptError that names the key. It holds and changes nothing: only fsm/machine writes a state.
//
// Machine, queries and audit share this package and no other. So it contains only the meaning of single
// stored values: the outcome of a settled promise, the retries that a policy allows, the reduction state in
// the rows of a graph run. Relations between values are coded twice, by the machine, which keeps them, and by
// the audit, which checks them. Examples are the deadlines that an object needs in the index, the listing
// class of an execution, and when a task is queued.
package state
