// Package membership owns what a node hears of the others by gossip: who is there, at which addresses,
// alive, leading what, and how far the clocks lie apart. It promises a hint, never a decision: no voter is
// added or removed on its word, and nothing here knows of Raft. A member that is alive and reachable is
// seen within seconds, whatever was believed of it before; one that died is missed within seconds. A crash
// loses the view of the cluster, which gossip builds again; nothing is kept on disk.
//
// # What gossip is good for here
//
// To find the others at the start, to notice that a host vanished, to carry hints (who leads which
// partition, who waits to found a cluster), and to compare clocks. It may be wrong for a while in both
// directions, and two nodes may disagree. What must be right is decided by the cluster's own Raft group,
// and whoever acts on a hint must still be right when the hint was wrong.
//
// # Instances
//
// hashicorp/memberlist wants a name per node and refuses a known name at a new address until the old one
// was declared dead. A server that restarts elsewhere would be unheard for as long as that takes. So the
// name in memberlist is that of an instance: the server's id and a mark drawn at each start (wire.go).
// A restarted server is a new instance, heard at once; the old one is found dead by probing, unseen by
// callers, who know servers only. Of several living instances of one server the one started last counts. A
// node that hears a living twin of itself reports server_twice: somebody copied a data directory.
//
// # Clusters
//
// A node with a cluster id refuses the word of nodes with another one, so two clusters never merge, even
// if their join lists mention each other. A fresh node, without a cluster id, hears everybody and is
// heard by everybody; from the moment that it has one, what it knew of others is out of its view.
//
// # Strangers
//
// Every message is sealed (AES-GCM): with the configured keys, or, without any, with a key that is public.
// The latter keeps no secret and stops nobody who means harm, but noise, port scanners and other programs
// end at the seal, before anything is decoded. Streams are bounded in number, length and time. What
// is refused is reported as gossip_refused, seldom, and changes nothing.
//
// # Locks
//
// memberlist calls back under its own lock, and deadlocks if it is called from there. So: callbacks take
// Gossip.mu for a moment and leave values behind; nobody calls memberlist, writes a log line, or runs a
// caller's function while holding it. Log lines go through a bounded queue (report.go) for the same reason.
//
// Events in the log: member_joined, member_updated, member_left, member_failed, foreign_cluster,
// gossip_refused, join_failed, server_twice, gossip_unencrypted; memberlist's own lines are event
// "library".
package membership
