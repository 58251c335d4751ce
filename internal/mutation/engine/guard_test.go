package engine

import (
	"time"

	"perdure/internal/mutation"
)

// guardBugs undo single defences whose tests need no cluster: clocks, joined requests, pauses, memory limits,
// lack of space.
var guardBugs = []mutation.Bug{
	{
		File: "durable/context.go", Rule: "worker: a replayed operation belongs to the function's goroutine too",
		From: `if goroutine() != t.owner.Load() {`, To: `if t.live.Load() && goroutine() != t.owner.Load() {`, Tests: "TestForeignGoroutineAtReplay",
	},
	{
		File: "durable/stream.go", Rule: "lease: one of which the node knows nothing is not extended",
		From: `if !unknown[t.key] && !t.isLost() {`, To: `if !t.isLost() {`, Tests: "TestUnknownLeaseIsNotExtended",
	},
	{
		File: "durable/lease.go", Rule: "lease: a suspended machine's time counts",
		From: `return max(to.Sub(from), to.Round(0).Sub(from.Round(0)), 0)`, To: `return max(to.Sub(from), 0)`, Tests: "TestElapsed",
	},
	{
		File: "durable/lease.go", Rule: "lease: a clock that is set back takes no time away",
		From: `return max(to.Sub(from), to.Round(0).Sub(from.Round(0)), 0)`, To: `return max(to.Round(0).Sub(from.Round(0)), 0)`, Tests: "TestElapsed",
	},
	{
		File: "durable/lease.go", Rule: "lease: time never runs backwards",
		From: `return max(to.Sub(from), to.Round(0).Sub(from.Round(0)), 0)`, To: `return max(to.Sub(from), to.Round(0).Sub(from.Round(0)))`,
		Tests: "TestElapsed",
	},
	{
		File: "partition/cluster/skew.go", Rule: "clock: stamps go on as time does",
		From: `return c.at.Add(elapsed - c.correction())`, To: `return c.at.Add(elapsed*0 - c.correction())`, Tests: "TestStampAfterStep",
	},
	{
		File: "partition/cluster/skew.go", Rule: "clock: one that is ahead is corrected",
		From: `if c.ahead.Abs() <= maxAhead {`, To: `if c.ahead >= -maxAhead {`, Tests: "TestStampAfterStep",
	},
	{
		File: "partition/cluster/skew.go", Rule: "clock: one that is behind is corrected",
		From: `if c.ahead.Abs() <= maxAhead {`, To: `if c.ahead <= maxAhead {`, Tests: "TestStampAfterStep",
	},
	{
		File: "partition/cluster/skew.go", Rule: "clock: one that nearly agrees is left alone",
		From: `if c.ahead.Abs() <= maxAhead {`, To: `if c.ahead == 0 {`, Tests: "TestStampAfterStep",
	},
	{
		File: "partition/cluster/skew.go", Pkg: "partition", Rule: "clock: a step between two comparisons is no time",
		From: `return c.stamp(t.Sub(c.at))`, To: `return c.stamp(t.Round(0).Sub(c.at.Round(0)))`, Tests: "TestClockStepsWithinATerm",
	},
	{
		File: "partition/cluster_env.go", Rule: "clock: timers hear of a correction",
		From: "\t\tr.ClockJumped()\n", To: "\t\t_ = r\n", Tests: "TestClockStepsWithinATerm", Hangs: 20 * time.Second,
	},
	{
		File: "partition/cluster/skew.go", Pkg: "partition", Rule: "clock: a correction backwards counts too",
		From: `.Round(0)).Abs() >= clockJump`, To: `.Round(0)) >= clockJump`, Tests: "TestClockStepsWithinATerm", Hangs: 20 * time.Second,
	},
	{
		File: "partition/group/pending.go", Rule: "pending: a request that waits is joined",
		From: `if p := q.requests[id]; id != "" && p != nil && p.lead == lead &&`, To: `if p := q.requests[id]; id == "" && p != nil && p.lead == lead &&`,
		Tests: "TestRequestIsJoined", Hangs: 20 * time.Second,
	},
	{
		File: "partition/group/pending.go", Rule: "pending: another content is another request",
		From: `return proto.Equal(with(a), with(b))`, To: `return proto.Equal(with(a), with(a))`,
		Tests: "TestRequestIsJoined", Hangs: 20 * time.Second,
	},
	{
		File: "partition/group/pending.go", Rule: "pending: the end of one caller's context is not the other's",
		From: "p.waiting++\n\t\treturn p, true, true", To: "return p, true, true",
		Tests: "TestRequestIsJoined", Hangs: 20 * time.Second,
	},
	{
		File: "client/leaders.go", Rule: "client: calls go to the leader of their id",
		From: `if r.first <= slot && slot <= r.last {`, To: `if r.first <= slot {`, Tests: "TestCallsGoToTheLeader",
	},
	{
		File: "client/graphs.go", Rule: "client: a large graph goes to its leader at once",
		From: `if len(o.Graph.GetNodes()) >= largeGraph {`, To: `if false {`, Tests: "TestLargeGraphGoesToTheLeader",
	},
	{
		File: "client/leaders.go", Rule: "client: a large graph waits for no node that does not answer",
		From: `	case <-over.C:
	case <-ctx.Done():
	}
}

// failed`, To: `	}
}

// failed`, Tests: "TestLargeGraphWaitsForNoNode", Hangs: hang,
	},
	{
		File: "client/leaders.go", Rule: "client: a node counts only where it answers",
		From: `n.id = list.GetNodeId()
`, To: `n.id = list.GetNodes()[1].GetNodeId()
`, Tests: "TestAddressesOfOthers",
	},
	{
		File: "client/leaders.go", Rule: "client: a leader that does not answer is avoided",
		From: `time.Since(*since) < avoidFor`, To: `time.Since(*since) < 0`, Tests: "TestLeadersThatMove", Hangs: 20 * time.Second,
	},
	{
		File: "client/leaders.go", Rule: "client: calls do not wait at a node that is silent",
		From: `(silent || replaced)`, To: `(silent && replaced || replaced)`, Tests: "TestSilentLeader",
	},
	{
		File: "client/leaders.go", Rule: "client: calls do not wait at a leader that was replaced",
		From: `(silent || replaced)`, To: `(silent || replaced && silent)`, Tests: "TestReplacedLeader",
	},
	{
		File: "client/leaders.go", Rule: "client: the later leadership counts",
		From: `if r.term > o.term {`, To: `if r.term < o.term {`, Tests: "TestReplacedLeader",
	},
	{
		File: "client/leaders.go", Rule: "client: only a later leadership ends an attempt",
		From: `r.term > a.term`, To: `r.term >= a.term`, Tests: "TestReplacedLeader",
	},
	{
		File: "client/leaders.go", Rule: "client: a client of one node stays there",
		From: `if l.c.opts.AnyNode {`, To: `if false {`, Tests: "TestAnyNode",
	},
	{
		File: "client/call.go", Rule: "client: it asks no earlier than the node says",
		From: `if after := retryAfter(err); after > 0 {`, To: `if after := retryAfter(err); after < 0 {`, Tests: "TestRetryAfter",
	},
	{
		File: "client/call.go", Rule: "client: it asks later each time",
		From: `after<<min(refusals, 6)`, To: `after<<min(refusals, 0)`, Tests: "TestRetryAfter",
	},
	{
		File: "client/call.go", Rule: "client: a hint beyond its own bound holds",
		From: `d := max(after, min(after<<min(refusals, 6), overloadMax))`, To: `d := min(after<<min(refusals, 6), overloadMax)`, Tests: "TestRetryAfter",
	},
	{
		File: "client/call.go", Rule: "client: those refused together do not return together",
		From: `return d + time.Duration(c.fraction()*float64(d)/2)`, To: `return d`, Tests: "TestRetryAfter",
	},
	{
		File: "client/call.go", Rule: "client: another refusal forgets the hints before it",
		From: "\t\t} else {\n\t\t\thinted = 0\n\t\t}\n", To: "\t\t}\n", Tests: "TestRetryAfter",
	},
	{
		File: "internal/memlimit/memlimit.go", Rule: "memory: the environment comes first",
		From: `if v, ok := r.Lookup(Variable); ok && v != "" {`, To: `if v, ok := r.Lookup(Variable); ok && v != "" && r.Configured == 0 {`, Tests: "TestFind",
	},
	{
		File: "internal/memlimit/memlimit.go", Rule: "memory: the configuration comes before the groups",
		From: `if r.Configured > 0 {`, To: `if r.Configured < 0 {`, Tests: "TestFind",
	},
	{
		File: "internal/memlimit/memlimit.go", Rule: "memory: the least of all groups above counts",
		From: `(least == 0 || int64(n) < least)`, To: `least == 0`, Tests: "TestFind",
	},
	{
		File: "internal/memlimit/memlimit.go", Rule: "memory: v1's number for no limit is none",
		From: `if n > 0 && n < unlimited && (`, To: `if n > 0 && n <= unlimited*4 && (`, Tests: "TestFind",
	},
	{
		File: "internal/memlimit/memlimit.go", Rule: "memory: a path that climbs stays below the top",
		From: `group = path.Clean("/" + group)`, To: `group = path.Clean(group[1:])`, Tests: "TestFind", Hangs: 10 * time.Second,
	},
	{
		File: "internal/memlimit/memlimit.go", Rule: "memory: libraries never get more than half",
		From: `return max(process/10*9-offHeap, process/2)`, To: `return process/10*9 - offHeap`, Tests: "TestFind",
	},
	{
		File: "partition/group/space.go", Pkg: "partition", Rule: "disk: what grows the state is refused below the low mark",
		From: `case level == disk.OK || level == disk.Low && !admission.BeginsWork(cmd):`, To: `case level == disk.OK || level == disk.Low:`, Tests: "TestDiskLow",
	},
	{
		File: "partition/group/space.go", Pkg: "partition", Rule: "disk: commands that end something are admitted below the low mark",
		From: `case level == disk.OK || level == disk.Low && !admission.BeginsWork(cmd):`, To: `case level == disk.OK:`, Tests: "TestDiskLow",
	},
	{
		File: "partition/admission/ledger.go", Pkg: "partition", Rule: "disk: a signal grows the state",
		From: `case *commandv1.Command_Start, *commandv1.Command_Signal, *`, To: `case *commandv1.Command_Start, *`, Tests: "TestDiskLow",
	},
	{
		File: "partition/diskspace.go", Rule: "disk: a node whose disk is low says so",
		From: "case disk.Low:\n\t\twhat = \"commands that grow the state are refused\"", To: "case disk.Low:\n\t\treturn nil", Tests: "TestDiskLow",
	},
	{
		File: "partition/group/space.go", Pkg: "partition", Rule: "disk: a leader that begins catches a majority up on full disks",
		From: `case commands && l.stuck():`, To: `case commands && !l.stuck():`, Tests: "TestAllDisksFull",
	},
	{
		File: "partition/group/space.go", Pkg: "partition", Rule: "disk: a leader's first entries take the reserve",
		From: `return l.disk.AdmitElection(bytes)`, To: `return release, err`, Tests: "TestAllDisksFull",
	},
	{
		File: "partition/group/space.go", Pkg: "partition", Rule: "disk: a leader proposes nothing for itself on full disks",
		From: "if c.disk != nil {\n\t\tif level :=", To: "if c.disk == nil {\n\t\tif level :=", Tests: "TestAllDisksFull",
	},
	{
		File: "partition/group/leader.go", Pkg: "partition", Rule: "disk: a leader that began on full disks extends the leases when there is space",
		From: "\t\tl.inheritLater()\n", To: "", Tests: "TestAllDisksFull",
	},
	{
		File: "partition/disk/guard.go", Rule: "disk: elections without an end do not use up the reserve",
		From: `g.elections -= float64(n)`, To: `g.elections -= 0`, Tests: "TestElectionsInVirtualTime",
	},
	{
		File: "rpc/outbound_call.go", Rule: "http: a call is made while the lease surely holds",
		From: "\tc.secureLease()\n", To: "", Tests: "TestOutboundAsksForItsLease",
	},
	{
		File: "rpc/outbound_call.go", Rule: "http: no call is made in the last part of a lease",
		From: `sinceEither(c.confirmed, now) < o.cfg.Lease-o.cfg.Lease/8`, To: `sinceEither(c.confirmed, now) < o.cfg.Lease`,
		Tests: "TestOutboundAsksForItsLease",
	},
	{
		File: "rpc/outbound_call.go", Rule: "http: a lease of which nothing is known does not hold",
		From: `c.begun = !c.confirmed.IsZero() && sinceEither`, To: `c.begun = c.confirmed.IsZero() || sinceEither`,
		Tests: "TestOutboundAsksForItsLease",
	},
	{
		File: "rpc/outbound_call.go", Rule: "http: a call whose lease is over ends",
		From: `if c.begun && sinceEither(c.confirmed, now) > o.cfg.Lease {`, To: `if c.begun && sinceEither(c.confirmed, now) > 2*o.cfg.Lease {`,
		Tests: "TestOutboundEndsWithItsLease", Hangs: 20 * time.Second,
	},
	{
		File: "rpc/outbound_call.go", Rule: "http: a suspended machine's time counts",
		From: `return max(now.Sub(from), now.Round(0).Sub(from.Round(0)))`, To: `return now.Sub(from)`, Tests: "TestSinceEither",
	},
	{
		File: "rpc/outbound_call.go", Rule: "http: a clock that is set back takes no time away",
		From: `return max(now.Sub(from), now.Round(0).Sub(from.Round(0)))`, To: `return now.Round(0).Sub(from.Round(0))`, Tests: "TestSinceEither",
	},
	{
		File: "partition/group/bulk.go", Rule: "bulk: the node's partitions share the turns",
		From: `share := min(bytes, bulkBytes)`, To: `share := min(bytes, 1)`, Tests: "TestBulkShares",
	},
	{
		File: "partition/group/bulk.go", Rule: "bulk: a turn ends",
		From: `defer release()`, To: `defer func() { _ = release }()`, Tests: "TestLargeCommandsTakeTurns", Hangs: 20 * time.Second,
	},
	{
		File: "partition/group/bulk.go", Rule: "bulk: a pause follows while small commands come",
		From: `at == nil || at.Before(began)`, To: `at == nil || !at.Before(began)`, Tests: "TestBulkPause",
	},
	{
		File: "partition/group/pending.go", Rule: "bulk: who has left does not wait for a turn",
		From: "if p.lane == large {\n\t\tq.bulk.waiting.Add(-1)\n\t}", To: "_ = large", Tests: "TestLargeCommandsTakeTurns",
	},
}
