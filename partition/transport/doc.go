// Package transport carries everything nodes say to each other over one port per node.
//
// It owns the peer port, its connections and the first bytes on each: a handshake that names the cluster,
// the sender, and what the connection is for (a Raft group, a named service, a probe). It promises that a
// connection handed out belongs to this cluster and names something that is open here; that garbage,
// strangers and slow senders are refused within a bound and disturb nothing else; and that Close leaves
// no connection and no goroutine behind. It keeps nothing, so a crash loses only what was in flight.
//
// Mux is the port. Mux.Raft gives a Raft group its stream layer, NewRaftTransport the raft.Transport on
// top of it; Mux.Service and Mux.Dial carry partition messages and forwarded requests.
//
// # Stopping
//
// Raft's main loop may be waiting on a peer, and a peer's connection keeps Raft's handler busy, so the
// order matters: start raft.Shutdown, close the group's transport (which closes its connections), wait
// for the shutdown future; after the last group close the Mux; then the stores.
//
// # Addresses
//
// A node is known to the others by its advertised address, which the Mux also tells the peers it dials,
// so that a broken connection can be reported by the address Raft knows (OnPeerConnClosed).
package transport
