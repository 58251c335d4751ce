// Package transport carries all messages between nodes over one port per node.
//
// It owns the peer port, its connections and the handshake of each, which names the cluster, the sender, and
// the connection's purpose (a Raft group, a named service, a probe). A connection that it returns belongs to
// this cluster and names an endpoint that is open here. It refuses garbage, strangers and slow senders within
// a bound, without an effect on others. Close leaves no connection and no goroutine behind. The package
// stores nothing, so a crash loses only messages in flight.
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
// The others know a node by its advertised address. The Mux also sends it to the peers that it dials, so that
// OnPeerConnClosed can report a broken connection by the address that Raft knows.
package transport
