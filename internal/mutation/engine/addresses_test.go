package engine

import (
	"time"

	"perdure/internal/mutation"
)

// addressBugs break how messages reach the streams and HTTP targets of addresses.
var addressBugs = []mutation.Bug{
	{
		File: "partition/addresses/table.go", Rule: "addresses: of several streams of a process the newest gets its messages",
		From: "cmp.Or(cmp.Compare(a.since, b.since), cmp.Compare(b.server, a.server))", To: "cmp.Compare(b.since, a.since)", Tests: "TestNewestStream TestTableTwin",
	},
	{
		File: "partition/addresses/table.go", Rule: "addresses: a leader prefers streams of its own node",
		From: "if len(g.here) > 0 {\n\t\tpid, _", To: "if len(g.there) == 0 {\n\t\tpid, _", Tests: "TestOwnNodeFirst",
	},
	{
		File: "partition/addresses/table.go", Rule: "addresses: a message for one process goes to no other",
		From: "if to.only {\n\t\treturn \"\", \"\", false\n\t}\n", To: "", Tests: "TestAnyNodeServesAnyStream TestTableTwin",
	},
	{
		File: "partition/addresses/stream.go", Rule: "addresses: an unblock that an ended stream took goes back to its leader",
		From: "append(s.written, s.queue...)", To: "s.queue", Tests: "TestUnblockIsNotLost",
	},
	{
		File: "partition/addresses/stream.go", Rule: "addresses: an unblock counts as delivered only if it was written",
		From: "q.from.report(q.number, ok)", To: "q.from.report(q.number, true)", Tests: "TestUnblockIsNotLost",
	},
	{
		File: "partition/addresses/stream.go", Rule: "addresses: the messages of a stream are bounded",
		From: "len(s.queue)+len(s.written) >= streamMessages || ", To: "", Tests: "TestSlowReader",
	},
	{
		File: "partition/addresses/stream.go", Rule: "addresses: the bytes of all streams are bounded",
		From: " || d.bytes+q.size > nodeBytes", To: "", Tests: "TestNodeBytes",
	},
	{
		File: "partition/addresses/stream.go", Rule: "addresses: of the executes of one task one is queued",
		From: "x.Version = max(x.Version, e.Version)\n\t\t\t\treturn true", To: "x.Version = max(x.Version, e.Version)", Tests: "TestSlowReader",
	},
	{
		File: "partition/addresses/stream.go", Rule: "addresses: the streams of a node are bounded",
		From: "case d.open >= d.env.MaxStreams:", To: "case d.open > d.env.MaxStreams:", Tests: "TestOpenIsRefused",
	},
	{
		File: "partition/addresses/led.go", Rule: "addresses: an unblock that is under way is not sent again",
		From: "if l.flying[u] {\n\t\treturn true\n\t}\n", To: "", Tests: "TestUnblockOnce",
	},
	{
		File: "partition/addresses/led.go", Rule: "addresses: the unblocks under way are bounded",
		From: "if len(l.flying) >= maxInFlight {", To: "if len(l.flying) < 0 {", Tests: "TestUnblocksUnderWay",
	},
	{
		File: "partition/addresses/led.go", Rule: "addresses: a report that failed is repeated",
		From: "if err == nil {\n\t\t\tpause = retryMin", To: "if l != nil {\n\t\t\tpause = retryMin", Tests: "TestReportIsRepeated",
	},
	{
		File: "partition/addresses/led.go", Rule: "addresses: delivered unblocks gather for a report",
		From: "clock.Wait(l.ctx, d.env.Clock, reportDelay)\n", To: "", Tests: "TestReportsAreGathered",
	},
	{
		File: "partition/addresses/remote.go", Rule: "addresses: unblocks on a broken link go back to their leader",
		From: "if f.session == s {\n\t\t\td.landed(number, false)", To: "if f.session == s {\n\t\t\t_ = number", Tests: "TestUnblockIsNotLost",
	},
	{
		File: "partition/addresses/remote.go", Rule: "addresses: a new stream of another node is offered what waits",
		From: "if d.table.add(n, s.server, c.SinceMs) {\n\t\t\td.offerAll(n.group)\n\t\t}", To: "d.table.add(n, s.server, c.SinceMs)", Tests: "TestUnblockIsKept",
	},
	{
		File: "partition/addresses/dispatcher.go", Rule: "addresses: a new leader offers what waits",
		From: "for g := range d.table.groups {\n\t\tl.offer(g)\n\t}\n", To: "", Tests: "TestUnblockIsNotLost",
	},
	{
		File: "partition/addresses/offer.go", Rule: "addresses: offers to one group have a pause between them",
		From: "next.made, next.notBefore = true, now.Add(offerEvery)", To: "next.made, next.notBefore = true, now", Tests: "TestOffersArePaced",
	},
	{
		File: "partition/addresses/offer.go", Rule: "addresses: what was not delivered is offered again after a pause that grows",
		From: "l.pauses[g] = min(2*pause, retryMax)", To: "l.pauses[g] = pause", Tests: "TestPush",
	},
	{
		File: "partition/addresses/offer.go", Rule: "addresses: tasks of a process without a stream do not end an offer",
		From: "if l.d.hasStream(e.Namespace, parse(e.Address)) && !l.d.execute(e) {", To: "if !l.d.execute(e) {", Tests: "TestOffersSkipProcesses",
	},
	{
		File: "partition/group/leader.go", Rule: "addresses: a new leader has the dispatcher serve its partition", Pkg: "partition",
		From: "\t\tr.addresses.Established(l)\n", To: "", Tests: "TestPushedUnblock", Hangs: 30 * time.Second,
	},
	{
		File: "rpc/push.go", Rule: "push: the requests to one host are bounded",
		From: "starts := host.running < pushPerHost && p.running < pushes", To: "starts := p.running < pushes", Tests: "TestPushBounds",
	},
	{
		File: "rpc/push.go", Rule: "push: a redirect is not followed",
		From: "\tp.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }\n", To: "", Tests: "TestPushed",
	},
	{
		File: "rpc/push.go", Rule: "push: the policy of HTTP nodes limits the targets",
		From: " || p.cfg.Policy.checkURL(u) != nil", To: "", Tests: "TestPushPolicy",
	},
}
