// Package reduction owns the rules of graph runs: what a DAG is, how the result of one node enters the state
// of a run, what a failure means for the nodes after it, and which nodes may start next. It promises that any
// prefix of results, once normalised and closed, is a valid state to resume from (staged reduction,
// Definition 1 and Proposition 1). It stores nothing, so a crash loses nothing that its caller has stored.
//
// # A graph
//
// A [Graph] is an expression over four constructors: [Empty], [Vertex], [Overlay] and [Connect] (staged
// reduction, 2.1); [Path], [Star], [Layered] and their like are written with them. [Lower] turns it into a
// [Relation], which knows the predecessors and successors of every node and is acyclic: Lower refuses a
// cyclic graph and names the cycle. [Declare] does the same for a list of nodes and edges. It also refuses a
// node that is named twice and an edge to an undeclared node.
//
// # Three phases
//
// A [State] gives every node a [Status], and every completed one an output. A run advances in three
// phases (staged reduction, 3.3 to 3.5):
//
//   - [Accumulate] writes one node's [Result] at that node's key and nowhere else, so results of different
//     nodes commute: they may arrive, and be stored, in any order (Lemma 2).
//   - [Close] marks every pending or waiting descendant of a failed node as failed. It is a closure
//     operator: extensive, monotone and idempotent. A state stored between the two phases is therefore
//     never wrong, only unfinished.
//   - [Classify] reads the closed state and answers one of four: [Progressing] with the frontier to start,
//     [Settled] as completed or failed, [Suspended] with what is waited for, [Stuck] with the reason.
//
// [Reduce] runs all three. The frontier is an antichain (Lemma 1): no node of it comes after another, so
// their results have disjoint keys.
//
// # Forward and reset
//
// A node's work ends in an [Outcome]. Each outcome is in one of two classes, which are distinct Go types. A
// [Forward] outcome moves the node up in the order of [Status.AtMost]; a [Reset] outcome takes it back to
// pending, which is honest but not monotone (staged reduction, 7.3). Both are node-local, so both commute.
//
// # After a crash
//
// [Recover] needs no log. It resolves the delivered signals, reads every running node as pending
// ([Normalize]), closes and classifies. [WellFormed] checks Definition 1, item by item, for a state and a
// frontier computed for it. [Persisted] checks what recovery may assume of a stored state.
//
// Running or recovering, the phases read the same normalised view, in which a running node counts as pending.
// Only the caller knows whether a frontier node already has a live task. This package sees nodes, edges and
// results, never a task, a clock or a worker.
//
// # The engine
//
// The functions on State follow the papers' definitions literally and walk the whole graph. An [Engine] holds
// a run in memory and maintains counts, so the cost of one result depends on its change: the edges out of the
// node and of the nodes that fail with it. The tests compare the two with each other, and both with a third
// version of maps and Warshall's algorithm.
//
// # Where the papers leave a choice
//
//   - A graph with waiting nodes and an empty frontier is suspended even if another node has failed: "when
//     it finds waiting nodes and no frontier, the result is Suspended" (staged reduction, 3.8), and a graph
//     is settled "if all nodes are terminal" (algebraic foundations, 2.3). The looser wording of 2.2, by
//     which waiting counts as settled, would end such a run with a node still waiting.
//   - A worker's result is taken only from a node whose predecessors are all completed or skipped: the causal
//     history that Proposition 1 assumes, and that the proof of Lemma 1 uses without saying so (after a
//     pending, b skipped, c pending in a row, a and c would both be ready). [FactError] gives the reason of a
//     refused result, [Persisted] finds a state with another history.
//   - A waiting node ends by its signal, by a reset, or by failing. The last is the step that closure
//     itself may take (waiting to failed) and, like it, lies outside the order of the forward fragment.
//   - Accumulation, not closure, decides which failures have no consequences: see [Policy].
package reduction
