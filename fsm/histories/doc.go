// Package histories is what has ended as it is moved between clusters: the rows of an execution's tree as records
// (perdurev1.HistoryRecord), and back. It is pure.
//
// A record names no incarnation. Rows gives all rows of a tree one incarnation, the one that the tree gets where it is
// stored. A record has what a reader of history sees. It lacks what only a running execution needs: leases, callbacks,
// deadlines, and the requests of its start and of its last commit.
//
// What a record cannot express is refused when it is made, so what was exported is whole.
//
//	rec, err := histories.OfExecution(tree, header, taskVersion) // and OfPromise, OfEntry, OfGraph, OfNode, OfSignal
//	err := histories.Check(tree, records)                        // before an import is proposed
//	rows, err := histories.Rows(namespace, tree, records, incarnation)
package histories
