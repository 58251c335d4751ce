// Package cluster owns a server's membership in its cluster. It runs the replica of the directory's Raft
// group, and the control loop that makes the groups what the directory says. It admits new servers, checks
// that this server is still a member, and knows the members' addresses and the clock's offset from theirs.
//
// It promises:
//
//   - A group is made once, only while the directory says "creating".
//   - A new server replaces a node's former one only while that does not answer.
//   - Only the answer of the directory's confirmed leader halts a server: no old directory and no gossip
//     report does.
//   - Every step of control may run twice.
//
// A crash loses nothing that the directory's log holds: that log is never cut and is replayed at each start.
// The address book, the clock's offset and the result of the last membership check are memory.
//
// The node's loop:
//
//	m := cluster.New(cluster.Options{...})  // answers the peer port from here on
//	m.Bind(port)
//	err := m.StartDirectory(raftConfig, ...) // the directory's group, unless the node is alone
//	m.Run()                                  // control and membership check
//	...
//	m.Stop(ctx)                              // after Options.Lifetime has ended
//	err = m.Close(ctx)                       // the directory's group
package cluster
