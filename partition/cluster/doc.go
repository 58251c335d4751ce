// Package cluster owns a server's membership in its cluster: its replica of the directory's Raft group, the control
// loop that makes the groups what the directory says, the admission of new servers, the check whether this server has
// been replaced, where the others are, and how far the clock is from theirs.
//
// It promises that a group is made once, only while the directory says "creating"; that a node's server is replaced
// only while the former one does not answer; and that no old directory, nor gossip, halts a server: only the answer of
// the directory's confirmed leader does. Whatever control does may be done twice.
//
// A crash loses nothing that the directory's log holds: that log is never cut and is replayed at each start. The
// address book, the comparison of clocks and the result of the last membership check are memory.
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
