// Package membership owns what a node learns about the others by gossip: which members exist, at which
// addresses, whether they live, which partitions they lead, and how far their clocks differ. It gives hints,
// never decisions: no voter is added or removed on its word, and the package does not know Raft. It sees a
// living, reachable member within seconds, even one that it believed dead, and it misses a dead one within
// seconds. A crash loses the view of the cluster, which gossip rebuilds. Nothing is stored on disk.
//
// # The use of gossip
//
// Gossip finds the other nodes at the start, detects a lost host, carries hints (which node leads which
// partition, which ones wait to found a cluster), and compares clocks. It may be wrong for a while in both
// directions, and two nodes may disagree. The cluster's own Raft group decides everything that must be
// correct. A caller that acts on a hint must stay correct when the hint was wrong.
//
// # Instances
//
// hashicorp/memberlist wants a name per node and refuses a known name at a new address until the old one was
// declared dead. The others would ignore a server that restarts elsewhere until then. So the name in
// memberlist is that of an instance: the server's id and a mark drawn at each start (wire.go). A restarted
// server is a new instance, known at once. Probing finds the old one dead; callers do not see this, as they
// know servers only. Of several living instances of one server the latest start counts. A node that hears of
// a second living instance of itself reports server_twice: a data directory was copied.
//
// # Clusters
//
// A node with a cluster id refuses messages of nodes with another one, so two clusters never merge, even if
// their join lists mention each other. A fresh node, without a cluster id, exchanges gossip with all nodes.
// Once it has a cluster id, its view drops the nodes of other clusters.
//
// # Strangers
//
// Every message is sealed (AES-GCM): with the configured keys, or, without any, with a key that is public.
// The public key keeps no secret and stops no attacker. But noise, port scanners and other programs fail at
// the seal, before anything is decoded. Streams are bounded in number, length and time. A refused message
// changes nothing; the log has an event gossip_refused, at a limited rate.
//
// # Locks
//
// memberlist calls back under its own lock, and a call to it from a callback deadlocks. So callbacks take
// Gossip.mu for a moment and store values. No code calls memberlist, writes a log line, or runs a caller's
// function while it holds Gossip.mu. Log lines go through a bounded queue (report.go) for the same reason.
//
// Events in the log: member_joined, member_updated, member_left, member_failed, foreign_cluster,
// gossip_refused, join_failed, server_twice, gossip_unencrypted; memberlist's own lines are event
// "library".
package membership
