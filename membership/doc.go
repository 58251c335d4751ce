// Package membership owns what a node knows of the others: who is there, alive, and leading which
// partition; and what follows from it: placement, joining, draining, replacing. It will promise that
// gossip is only a hint: no voter is added or removed on its word, every such change goes through the
// directory. A crash loses the view of the cluster, which gossip builds again within seconds.
//
// It holds no code yet: this page fixes what belongs here, and nothing in the server depends on it.
//
// # Hint and decision
//
// Gossip is fast and may be wrong: after a mass restart a living node can be called dead. It serves to
// find a leader, to show the state of the cluster, and to propose a change. The decision, which slots
// belong to which partition and which nodes replicate it, is a map with an epoch that the cluster's own
// Raft group keeps. Whoever acts on the map names the epoch it acted on.
//
// # What it does not know
//
// It moves replicas and leaderships, not commands: what a command means, and what a partition stores,
// is none of its business. A node is a cluster id and a server id; one that comes back with an empty
// data directory is a new server and is treated as one.
package membership
