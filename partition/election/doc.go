// Package election decides which member of a Raft group leads it: it replaces a lost leader before the
// library's timeouts do, and transfers leaderships on purpose. Raft alone elects, so every election is safe;
// one that was not needed only interrupts its group for a moment.
//
//   - Failover replaces a leader whose process ended (its connections break, a probe is refused) or fell
//     silent (no group hears from it, a probe has no answer, a majority agrees). The preferred candidate
//     campaigns.
//   - Transfers moves a group that this node leads to a member that lacks at most a few entries.
//   - Balancer moves groups back to the members that the directory prefers, and finds transfers that never
//     end.
//
// The caller's loop:
//
//	f := election.NewFailover(lifetime, opts)
//	port.OnPeerConnClosed = func(p transport.Peer) { f.ConnectionLost(p.Group, p.ServerID, p.Addr) }
//	t := election.NewTransfers(opts)
//	b := election.NewBalancer(lifetime, opts, t)
//	f.Start(); b.Start()                  // all groups are open
//	...
//	b.Close(ctx); t.TransferAll(ctx)      // leave in order
//	f.Close()                             // joins every goroutine
//
// Pure functions decide which candidate is preferred, what makes a majority and which member may take over
// (candidate.go). Nothing is stored: a crash loses what was known, and the next process asks again. DESIGN.md
// has the flows and the measurements.
package election
