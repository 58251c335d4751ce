// Package query reads a partition's state: the queries of the API, and what a partition's leader looks up in
// its state (held tasks, functions with pending tasks, the earliest deadline, outbox messages).
//
// It takes only a state.Reader and may not import fsm/machine (internal/lint). So a query changes nothing,
// and may run concurrently with the machine on a consistent state. It shows an object with an expired
// deadline as the machine's next entry will leave it. It holds only the positions of a DeadlineSearch, which a
// crash may lose.
//
//	err := store.View(func(r state.Reader) (err error) {
//		reply, err = query.Answer(r, partition, q)
//		return err
//	})
package query
