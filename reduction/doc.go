// Package reduction owns the rules of graph runs: how the result of one node enters the state of a DAG,
// what a failure means for the nodes after it, and which nodes may start next. It will promise that any
// prefix of results, once normalised and closed, is a valid state to go on from (staged reduction,
// Definition 1). It keeps nothing, so a crash loses nothing that its caller has stored.
//
// It holds no code yet: this page fixes what belongs here, and nothing in the server depends on it.
//
// # Three phases
//
//   - Accumulate writes one node's result at that node's key and nowhere else, so results of different
//     nodes commute: they may arrive, and be stored, in any order.
//   - Close marks every pending or waiting descendant of a failed node as failed. Closing twice changes
//     nothing more, so a state stored between the two phases is never wrong, only unfinished.
//   - Classify reads the closed state and answers one of four: progressing (with the frontier to start),
//     settled (completed or failed), suspended (something waits and nothing is ready), stuck (with the
//     reason).
//
// The phases read the normalised view, in which a running node counts as pending. The machine that runs
// a graph and the one that takes it over after a crash therefore compute the same thing. That a frontier
// node already has a live task is the caller's knowledge, not this package's: it sees nodes, edges and
// results, never a task, a clock or a worker.
package reduction
