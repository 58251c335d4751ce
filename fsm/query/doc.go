// Package query reads a partition's state: the queries of the API, and what the leader of a partition looks for in its
// state (held tasks, functions with pending tasks, the earliest deadline, messages on their way to other partitions).
//
// It takes a state.Reader and nothing that writes, and may not import fsm/machine (internal/lint). So a query changes
// nothing and may run beside the machine, on a consistent state. It promises that an object whose deadline the
// machine's clock has passed is shown as the next entry will leave it. It holds nothing but the positions of a
// DueSearch, which a crash may lose.
//
//	err := store.View(func(r state.Reader) (err error) {
//		reply, err = query.Answer(r, partition, q)
//		return err
//	})
package query
