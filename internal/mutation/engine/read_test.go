package engine

import (
	"time"

	"perdure/internal/mutation"
)

// readBugs break linearizable reads: the confirmation of leadership, what it counts, which reads it is for, and
// that everything committed is applied before.
var readBugs = []mutation.Bug{
	{
		File: "partition/group/read.go", Rule: "read: leadership is confirmed",
		From: `if level == Linearizable {`, To: `if level == Linearizable && r.serving() == nil {`, Tests: "TestReadsAreConfirmed",
	},
	{
		File: "partition/raftgroup/raftgroup.go", Rule: "read: an answer to a request from before the read confirms nothing",
		From: `return acks.Since(s, term, mark) })`, To: `return acks.Since(s, term, mark-mark) })`, Tests: "TestConfirm",
	},
	{
		File: "partition/raftgroup/raftgroup.go", Rule: "read: what the library says is not enough",
		From: `if asked && majority(`, To: `if asked || majority(`, Tests: "TestConfirm",
	},
	{
		File: "partition/raftgroup/raftgroup.go", Rule: "read: a server without a vote confirms nothing",
		From: `if s.Suffrage != raft.Voter {`, To: `if s.ID == "" {`, Tests: "TestConfirm",
	},
	{
		File: "partition/raftgroup/raftgroup.go", Rule: "read: the term of the leadership is the one that is confirmed",
		From: `if g.State() != raft.Leader || g.CurrentTerm() != term {`, To: `if g.State() != raft.Leader {`, Tests: "TestConfirm",
	},
	{
		File: "partition/transport/acks.go", Rule: "read: the newest request from before the mark is from before",
		From: `got.number > mark`, To: `got.number >= mark`, Tests: "TestAcksCountRequests",
	},
	{
		File: "partition/transport/acks.go", Rule: "read: an answer from a later term confirms no leader",
		From: `if answerTerm != term {`, To: `if answerTerm < term {`, Tests: "TestAcksCountRequests",
	},
	{
		File: "partition/transport/retry.go", Rule: "read: an answer counts from when its request left, not from its arrival",
		From: `t.acks.answered(id, number,`, To: `t.acks.answered(id, number+t.acks.begin(0)-number,`, Tests: "TestAcksCountRequests",
	},
	{
		File: "partition/transport/pipeline.go", Rule: "read: nor does a pipelined answer count from its arrival",
		From: `p.t.acks.answered(p.server, m.number,`, To: `p.t.acks.answered(p.server, p.t.acks.begin(0),`, Tests: "TestAcksCountRequests",
	},
	{
		File: "partition/transport/late.go", Rule: "late answer: one of a term in which this server led deposes it in no later one",
		From: `!t.acks.over(asked) && (t.leading`, To: `(t.leading`, Tests: "TestLateAnswers",
	},
	{
		File: "partition/transport/late.go", Rule: "late answer: nor does one of a term in which it leads no more",
		From: `(t.leading == nil || t.leading(asked))`, To: `asked > 0`, Tests: "TestLateAnswers",
	},
	{
		File: "partition/transport/late.go", Rule: "late answer: a leader learns of its successor",
		From: `answered <= asked ||`, To: `answered == 0 ||`, Tests: "TestLateAnswers",
	},
	{
		File: "partition/transport/late.go", Rule: "late answer: that to a snapshot is one",
		From: `return t.late(args.Term, resp.Term)`, To: `return nil`, Tests: "TestLateAnswers",
	},
	{
		File: "partition/transport/pipeline.go", Rule: "late answer: a pipelined one is one",
		From: `p.t.late(m.known.Term, f.Response().Term) != nil`, To: `false`, Tests: "TestLateAnswers",
	},
	{
		File: "partition/raftlogger/hclog.go", Rule: "late answer: it is no failure of the peer",
		From: `is && errors.Is(err, raft.ErrLeadershipLost)`, To: `is && err == nil`, Tests: "TestLinesOfLibraries",
	},
	{
		File: "partition/group/read.go", Rule: "read: a round of confirmation is for reads from before it",
		From: "for _, done := range round {\n", To: "c.mu.Lock()\n\t\tround, c.waiting = append(round, c.waiting...), nil\n\t\tc.mu.Unlock()\n\t\tfor _, done := range round {\n",
		Tests: "TestReadsShareOnlyLaterRounds",
	},
	{
		File: "partition/group/read.go", Rule: "read: a confirmation is not valid across terms",
		From: `errors.Is(failed, raftgroup.ErrDeposed) || r.serving() != lead:`, To: `errors.Is(failed, raftgroup.ErrDeposed):`, Tests: "TestReadsAreConfirmed",
	},
	{
		File: "partition/auditor/audit.go", Rule: "audit: one in the background gives way to requests",
		From: `share *= busyShare`, To: `share *= 1`, Tests: "TestShare",
	},
	{
		File: "partition/activity.go", Rule: "activity: it counts the entries since it was last asked",
		From: `a.at, a.last = now, applied`, To: `a.at = now`, Tests: "TestActivity",
	},
	{
		File: "partition/learn.go", Rule: "learn: a node learns of each partition's ids",
		From: "for _, r := range n.router.Replicas() {", To: "for _, r := range n.router.Replicas()[1:] {", Tests: "TestNodeLearnsIDs", Hangs: 5 * time.Second,
	},
	{
		File: "partition/group/await.go", Rule: "await: the result of any incarnation is confirmed",
		From: `return asked != 0 && k.Result.Incarnation >= asked`, To: `return k.Result.Incarnation >= asked`, Tests: "TestAwaitIsConfirmed",
	},
	{
		File: "partition/group/await.go", Rule: "await: the result of an incarnation needs no confirmation",
		From: `if err != nil || a.immutable(q) {`, To: `if err != nil {`, Tests: "TestAwaitOfAnIncarnation", Hangs: 30 * time.Second,
	},
	{
		File: "partition/group/await.go", Rule: "await: what is pending at the end of the wait is confirmed",
		From: `!last && a.refused == nil && !settled && !a.older(q)`, To: `a.refused == nil && !settled && !a.older(q)`, Tests: "TestAwaitIsConfirmed",
	},
	{
		File: "partition/group/await.go", Rule: "await: that there is no such id is confirmed",
		From: `if err := r.confirm(ctx); err != nil {
		return a, err
	}
	if settled`, To: `if a.refused != nil {
		return a, nil
	}
	if err := r.confirm(ctx); err != nil {
		return a, err
	}
	if settled`, Tests: "TestAwaitIsConfirmed",
	},
	{
		File: "partition/group/await.go", Rule: "await: a result read before another leadership is read again",
		From: `if settled && lead != nil && r.serving() == lead {`, To: `if settled && lead != nil {`, Tests: "TestAwaitReadsAgain",
	},
	{
		File: "partition/group/await.go", Rule: "await: a refusal is read again after the confirmation",
		From: `settled := a.refused == nil && Settled(a.reply)`, To: `settled := (a.refused != nil || Settled(a.reply))`, Tests: "TestAwaitReadsAgain",
	},
	{
		File: "fsm/query/result.go", Rule: "await: an earlier incarnation's result is not that of a later one",
		From: ` && h.Incarnation >= x.Query.GetResult().GetIncarnation()`, To: ``, Tests: "TestAwaitOfAnIncarnation", Pkg: "partition/group",
	},
	{
		File: "partition/group/leader.go", Rule: "read: a leader answers when all that was committed before it is applied",
		From: `err := raftgroup.Await(r.raft.Barrier(barrierTimeout), r.killed, l.ctx.Done())`, To: `var err error`, Tests: "TestLeadershipBeginsWithABarrier",
	},
	{
		File: "partition/group/read.go", Rule: "read: who may be no member any more answers no stale read",
		From: `} else if err := r.env.MayAnswer(r.serving() != nil); err != nil {`, To: `} else if err := r.env.MayAnswer(true); err != nil {`, Tests: "TestStaleReadsOfFormerMembers",
	},
	{
		File: "fsm/pending.go", Rule: "pending: a snapshot has what is being stored",
		From: "err, above := s.behind(), slices.Clone(p.storing)", To: "err, above := s.behind(), p.storing[:0:0]", Tests: "TestPendingReads",
	},
	{
		File: "fsm/pending.go", Rule: "pending: a snapshot has what is pending",
		From: "!storing && s.machine.Pending() > 0 {", To: "!storing && s.failed() != nil {", Tests: "TestPendingReads",
	},
	{
		File: "fsm/pending.go", Rule: "pending: a removed key is not read from below",
		From: "return o.writes[i].Value, o.writes[i].Value != nil, nil", To: "return o.writes[i].Value, true, nil", Tests: "TestOverlay",
	},
	{
		File: "fsm/pending.go", Rule: "pending: nor found by a scan",
		From: "if w := mine[0]; w.Value != nil {", To: "if w := mine[0]; w.Key != nil {", Tests: "TestOverlay",
	},
	{
		File: "fsm/pending.go", Rule: "pending: a read does not mix two states",
		From: "if p.version.Load() != v.version {", To: "if p.version.Load() < v.version {", Tests: "TestSteadyVersions",
	},
	{
		File: "fsm/pending.go", Rule: "pending: a read that holds up entries has what is pending",
		From: "if value, ok, written := v.m.Written(key); written {", To: "if value, ok, written := v.m.Written(key); written && !ok {", Tests: "TestShortReads TestPendingReads",
	},
	{
		File: "fsm/pending.go", Rule: "pending: a scan that holds up entries has what is pending",
		From: "overlay{v.m.WrittenWithin(lower, upper), v.view}.Scan", To: "overlay{v.m.WrittenWithin(lower, lower), v.view}.Scan", Tests: "TestLockedScans",
	},
	{
		File: "fsm/pending.go", Rule: "pending: a read that holds up entries has what is being stored",
		From: "overlay{p.storing, view{db}})", To: "view{db})", Tests: "TestPendingReads",
	},
	{
		File: "fsm/pending.go", Rule: "pending: nothing is applied during a read that holds up entries",
		From: "\t\tdefer p.mu.Unlock()\n\t\tif err := s.behind()", To: "\t\tp.mu.Unlock()\n\t\tif err := s.behind()", Tests: "TestLockedReads",
	},
	{
		File: "fsm/pending.go", Rule: "pending: a state that lacks entries is not read",
		From: "\treturn s.failed()\n}\n\n// settle", To: "\treturn nil\n}\n\n// settle", Tests: "TestUnreadableEntryStops",
	},
}
