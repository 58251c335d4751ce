// Package group is this node's member of one partition's Raft group: group commit, a leader's duties, reads.
// It owns the group's state, its markers, its share of the log, and the node's watches.
// It promises: a caller gets an answer only for what is applied and durable; every wait ends with an answer, a
// refusal or "outcome unknown"; only the leader performs a leader's duties, and one term performs no other's.
// A crash loses nothing acknowledged. A leader's memory is lost with its term: the next reads it from the state.
//
// The node opens all groups step by step, since a later step must not begin before an earlier one has found every
// group's stores in order:
//
//	r := group.New(options)
//	err := r.Examine(creating)     // reads only
//	err = r.Reconcile(log, terms)  // state, markers and log fit together
//	err = r.Open(creating)
//	err = r.Join(bootstrap)
//	r.Run()
//	reply, err := r.Propose(ctx, command)
//	answer, index, err := r.Query(ctx, group.Linearizable, query)
//	r.Stop(); r.Drain(ctx); err = r.Shutdown(); err = r.Close(ctx)
//
// # Where things are
//
//   - replica.go is what a node needs of a group, and the parts that a Replica is made of. core.go is what they
//     share, lifecycle.go how it ends, open.go and stop.go the way in and out.
//   - propose.go is the proposer: commands become entries, answers go to their callers. pending.go is its queue,
//     which package admission bounds in bytes. space.go refuses for want of disk space, bulk.go has large
//     commands queue, inbound.go keeps shipments from entering the log twice.
//   - leader.go is the leader: barrier, establish (read the state: held tasks, queues, outbox, deadlines), serve,
//     revoke. A leader serves nothing before establish has finished; a leadership that is lost and regained is a new
//     term. Its duties: timer.go, ship.go, level.go, tasks.go.
//   - read.go is the reader; watches.go waits for changes; known.go knows who leads; trailing.go bounds the log.
package group
