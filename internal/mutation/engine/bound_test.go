package engine

import (
	"time"

	"perdure/internal/mutation"
)

// boundBugs lift the bounds of what a node holds: at the peer port, of workers' queues, of watches, of states that come
// from another node, of commands and of clients' requests.
var boundBugs = []mutation.Bug{
	{
		File: "partition/transport/strangers.go", Rule: "peer port: one host's connections give way to each other first",
		From: "count[hostOf(c)]++", To: "count[hostOf(c)] = 1", Tests: "TestHandshakesGiveWayByHost TestStrangersHoldFewConnections",
	},
	{
		File: "partition/transport/strangers.go", Rule: "peer port: the oldest connection gives way, not the newest",
		From: "n == most && at < conns[out]", To: "n == most && at > conns[out]", Tests: "TestStrangersHoldFewConnections", Hangs: 20 * time.Second,
	},
	{
		File: "partition/transport/strangers.go", Rule: "peer port: strangers hold a bounded number of connections",
		From: "evicted = crowding(m.strangerConns.conns)\n\t\tdelete(m.strangerConns.conns, evicted)", To: "_ = crowding(m.strangerConns.conns)", Tests: "TestStrangersHoldFewConnections",
	},
	{
		File: "partition/transport/strangers.go", Rule: "peer port: a connection of an admitted server is not evicted",
		From: "if m.member(g.peer.ServerID) {", To: "if m.member(g.peer.ServerID) && m.closed {", Tests: "TestStrangersHoldFewConnections",
	},
	{
		File: "partition/transport/accept.go", Rule: "peer port: handshakes are bounded",
		From: "delete(m.pending, out)\n\t\tm.stats.Evicted++\n\t\t_ = out.Close()", To: "_ = out", Tests: "TestHandshakesGiveWayByHost",
	},
	{
		File: "partition/transport/accept.go", Rule: "peer port: one server does not hold all connections",
		From: "greedy := m.servers[h.server] >= m.opts.perServer()", To: "greedy := m.servers[h.server] >= m.opts.MaxConns", Tests: "TestOneServerHoldsNotAllConnections",
	},
	{
		File: "partition/transport/accept.go", Rule: "peer port: strangers' requests have permits of their own",
		From: "c.meter = newMeter(m.strangers, false)", To: "c.meter = newMeter(m.members, false)", Tests: "TestLargeRequestsOfGroups",
		Hangs: 30 * time.Second,
	},
	{
		File: "partition/transport/accept.go", Rule: "peer port: a server that was admitted sends as a member",
		From: "if m.member(h.server) {", To: "if m.member(h.server) && m.closed {", Tests: "TestAdmittedServerSendsAsAMember",
	},
	{
		File: "partition/transport/accept.go", Rule: "peer port: a stranger's snapshot is no way around the bound",
		From: "newMeter(m.strangers, false)", To: "newMeter(m.strangers, true)", Tests: "TestLargeRequestsOfGroups", Hangs: 30 * time.Second,
	},
	{
		File: "partition/transport/receive.go", Rule: "peer port: a request has a size",
		From: "if m.taken >= maxMessage {", To: "if m.taken >= 64*maxMessage {", Tests: "TestLargeRequestsOfGroups", Hangs: 30 * time.Second,
	},
	{
		File: "partition/transport/receive.go", Rule: "peer port: a large request needs a permit",
		From: "if m.snapshot || m.taken < smallMessage {", To: "if m.snapshot || m.taken < maxMessage {", Tests: "TestLargeRequestsOfGroups", Hangs: 30 * time.Second,
	},
	{
		File: "partition/transport/receive.go", Rule: "peer port: an answer ends the request and its permits",
		From: "m.taken, m.snapshot = 0, false\n\tm.release(false)", To: "m.taken, m.snapshot = 0, false", Tests: "TestLargeRequestsOfGroups",
	},
	{
		File: "partition/transport/receive.go", Rule: "peer port: a member's snapshot is not counted",
		From: "m.snapshot = m.snapshots && b[0] == rpcInstallSnapshot", To: "m.snapshot = m.snapshots && len(b) == 0", Tests: "TestSnapshotsAreNotCounted",
	},
	{
		File: "partition/peers/peers.go", Pkg: "partition", Rule: "peers: who calls is looked at before the request is read",
		From: "return callerOf(ctx), limits.Strangers > 0, p.admit(ctx, method)", To: "return callerOf(ctx), false, nil", Tests: "TestStrangersBodiesAreNotRead",
	},
	{
		File: "partition/peers/peers.go", Rule: "peers: strangers have a server of their own",
		From: "if who, _ := transport.PeerOf(conn); who.Stranger {", To: "if who, _ := transport.PeerOf(conn); who.Stranger && who.Dialled {",
		Tests: "TestStrangersConnectionsEnd", Hangs: 30 * time.Second,
	},
	{
		File: "partition/workers/worker.go", Rule: "tasks: a worker that does not read holds few of other nodes' bytes",
		From: "return w.remote == 0 || w.remote < WorkerTaskBytes && w.d.remote < nodeTaskBytes", To: "return w.remote == 0 || w.d.remote < nodeTaskBytes",
		Tests: "TestTaskBytes",
	},
	{
		File: "partition/workers/worker.go", Rule: "tasks: the node's bytes are bounded over all workers",
		From: "w.remote < WorkerTaskBytes && w.d.remote < nodeTaskBytes", To: "w.remote < WorkerTaskBytes", Tests: "TestTaskBytes",
	},
	{
		File: "partition/workers/worker.go", Rule: "tasks: a worker gets one whatever the others hold",
		From: "return w.remote == 0 || ", To: "return ", Tests: "TestTaskBytes",
	},
	{
		File: "partition/workers/worker.go", Rule: "tasks: what ends gives its bytes back",
		From: "w.took(w.remote)", To: "w.remote = 0", Tests: "TestTaskBytes",
	},
	{
		File: "partition/workers/link.go", Pkg: "partition", Rule: "tasks: a stream is not read while there is no space",
		From: "\t\tl.awaitSpace(ctx)\n", To: "\t\t_ = l.awaitSpace\n", Tests: "TestTasksOfOtherNodesAreBoundedInBytes",
	},
	{
		File: "partition/watch/watch.go", Rule: "watches: their number is bounded",
		From: "w.waiting.Load() >= maxCount || ", To: "", Tests: "TestWatchesAreBounded",
	},
	{
		File: "partition/watch/watch.go", Rule: "watches: their bytes are bounded",
		From: " || w.bytes.Load()+x.cost() > maxBytes", To: "", Tests: "TestWatchesAreBounded",
	},
	{
		File: "partition/group/watches.go", Rule: "watches: another node is refused, and does not wait for nothing",
		From: "if !w.Registered() {", To: "if !w.Registered() && in.WaitMs < 0 {", Tests: "TestWatchOfAnotherNodeIsRefused", Hangs: 30 * time.Second,
	},
	{
		File: "partition/group/trailing.go", Rule: "trailing: an overdue marker is made at once",
		From: `return end != 0 && g != nil && g.AppliedIndex() >= end`, To: `return end != 0 && g == nil`,
		Tests: "TestOverdueMarker", Pkg: "partition", Hangs: 30 * time.Second,
	},
	{
		File: "partition/repair/content.go", Rule: "content: the low mark stays free",
		From: "if err := c.disk.Check(need, disk.Low); err != nil {", To: "if err := c.disk.Check(need, disk.Critical); err != nil {", Tests: "TestContentCopy",
	},
	{
		File: "partition/repair/content.go", Rule: "content: the state that is made of it has its space too",
		From: "need += c.written + int64(len(p))", To: "need += 0", Tests: "TestContentCopy",
	},
	{
		File: "partition/repair/rebuild.go", Pkg: "partition", Rule: "content: a rebuild without space halts nothing",
		From: "return b.o.Contents.refuse(p, 0, err)", To: "_ = b.o.Contents.refuse(p, 0, err)", Tests: "TestSnapshotRefusedForDisk",
	},
	{
		File: "membership/transport.go", Rule: "gossip: idle streams do not keep others out",
		From: "evicted = g.crowding()\n\t\t\tdelete(g.open, evicted)\n\t\t\tg.inbound--", To: "return nil, nil, net.ErrClosed", Tests: "TestIdleStreamsGiveWay",
		Hangs: 30 * time.Second,
	},
	{
		File: "membership/transport.go", Rule: "gossip: one host's streams give way to each other first",
		From: "count[s.host()]++", To: "count[s.host()] = 1", Tests: "TestIdleStreamsGiveWay", Hangs: 30 * time.Second,
	},
	{
		File: "partition/admission/ledger.go", Rule: "admission: new work leaves half of each bound",
		From: "a.held[beginsWork]+r.bytes > a.limit/2", To: "a.held[beginsWork]+r.bytes > a.limit", Tests: "TestLedger",
	},
	{
		File: "partition/admission/ledger.go", Rule: "admission: a bound is a bound",
		From: "return a.total()+r.bytes <= a.limit", To: "return a.total() <= a.limit", Tests: "TestLedger",
	},
}
