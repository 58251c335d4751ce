package engine

import "perdure/internal/mutation"

// streamBugs break the calls that streams carry.
var streamBugs = []mutation.Bug{
	{
		File: "internal/callstream/client.go", Rule: "stream of calls: the server learns that a caller waits no more",
		From: `		s.cancelled = append(s.cancelled, c.number)
`, To: ``, Tests: "TestCancelledCallers", Hangs: hang,
	},
	{
		File: "internal/callstream/client.go", Rule: "stream of calls: a call that may have been executed is not made again",
		From: `return c.sent, c.err`, To: `return false, c.err`, Tests: "TestCutStream",
	},
	{
		File: "internal/callstream/unary.go", Rule: "stream of calls: a unary call cut before its request ends with a status",
		From: `errors.Is(err, io.EOF)`, To: `false`, Tests: "TestCutTwice",
	},
	{
		File: "internal/callstream/client.go", Rule: "stream of calls: an answer that comes twice is dropped",
		From: `			delete(s.waiting, a.number)
			c.answer = a`, To: `			c.answer = a`, Tests: "TestAnswersOfOthers",
	},
	{
		File: "internal/callstream/client.go", Rule: "stream of calls: calls are made with the present token",
		From: `if s.token == token {`, To: `if true {`, Tests: "TestNewToken", Hangs: hang,
	},
	{
		File: "internal/callstream/client.go", Rule: "stream of calls: large requests do not delay small ones",
		From: `proto.Size(req) <= maxRequest`, To: `proto.Size(req) <= 1<<30`, Tests: "TestLargeRequestsAreUnary",
	},
	{
		File: "internal/callstream/server.go", Rule: "stream of calls: no request is read for a client that takes no answers",
		From: `if w.bytes <= maxUnsent {`, To: `if w.bytes >= 0 {`, Tests: "TestSlowReader",
	},
	{
		File: "internal/callstream/server.go", Rule: "stream of calls: a held answer is sent in time",
		From: `		case <-w.holdOver.C:
			w.sendHeld()
`, To: ``, Tests: "TestHeldAnswers", Hangs: hang,
	},
	{
		File: "internal/callstream/server.go", Rule: "stream of calls: no answer waits behind one that is held",
		From: `w.holding = held && (first || w.holding)`, To: `w.holding = held || w.holding`, Tests: "TestHeldAnswers", Hangs: hang,
	},
	{
		File: "internal/callstream/server.go", Rule: "stream of calls: a caller whose deadline is near gets its refusal",
		From: ` && (c.deadline.IsZero() || time.Until(c.deadline) > 2*w.s.opts.Hold)`, To: ``, Tests: "TestHeldAnswers", Hangs: hang,
	},
	{
		File: "internal/callstream/server.go", Rule: "stream of calls: held answers are sent at the end of the stream",
		From: `(!w.holding || w.ended)`, To: `!w.holding`, Tests: "TestHeldAnswers", Hangs: hang,
	},
	{
		File: "internal/callstream/server.go", Rule: "stream of calls: a stream whose answers are not held does not rest",
		From: `held := w.holding && len(w.under) == 0`, To: `held := len(w.under) == 0`, Tests: "TestRests", Hangs: hang,
	},
	{
		File: "internal/callstream/server.go", Rule: "stream of calls: a stream that has ended does not rest",
		From: "\tdefer w.rest(false)\n", To: "", Tests: "TestRests", Hangs: hang,
	},
	{
		File: "internal/ingress/gate.go", Rule: "ingress: a connection with other calls does not rest",
		From: `rests && len(c.conn.calls) == 1`, To: `rests`, Tests: "TestRest",
	},
	{
		File: "internal/ingress/gate.go", Rule: "ingress: a connection rests until its next call",
		From: "\tconn.rests.Store(false)\n", To: "", Tests: "TestRest",
	},
	{
		File: "internal/ingress/conn.go", Rule: "ingress: what has arrived is read before the connection rests",
		From: `c.rests.Load() && !c.more`, To: `c.rests.Load()`, Tests: "TestRest",
	},
	{
		File: "rpc/secure.go", Rule: "stream of calls: a refusal by a quota is held",
		From: ` Holds: beyondQuota, Hold: refusalHold,`, To: ``, Tests: "TestRefusalsByQuotasAreHeld",
	},
	{
		File: "internal/callstream/wire.go", Rule: "stream of calls: numbers rise",
		From: `if r.number <= after {`, To: `if r.number < after {`, Tests: "TestHostileClients", Hangs: hang,
	},
	{
		File: "rpc/secure.go", Rule: "stream of calls: each call is checked against the token",
		From: `		around = append(around, s.cfg.Auth.Unary)
`, To: ``, Tests: "TestCallsOnAStream",
	},
	{
		File: "rpc/async_start.go", Rule: "stream of calls: a start is checked against the token",
		From: `if err := s.checkStreamed(c.call, perdurev1.Executions_Start_FullMethodName, in); err != nil {`, To: `if err := error(nil); err != nil {`, Tests: "TestCallsOnAStream",
	},
	{
		File: "rpc/async_command.go", Rule: "stream of calls: a signal is checked against the token",
		From: `if err := s.checkStreamed(call, c.m.name, in); err != nil {`, To: `if err := error(nil); err != nil {`, Tests: "TestCallsOnAStream",
	},
	{
		File: "rpc/async_result.go", Rule: "stream of calls: a result is checked against the token",
		From: `if err := c.s.checkStreamed(call, perdurev1.Executions_Result_FullMethodName, c.in); err != nil {`, To: `if err := error(nil); err != nil {`, Tests: "TestCallsOnAStream",
	},
	{
		File: "partition/group/begin.go", Rule: "await: a server that does not lead lets nobody wait for its settlements",
		From: `!a.older(q) && r.serving() != nil`, To: `!a.older(q)`, Tests: "TestReadSettled",
	},
	{
		File: "partition/group/begin.go", Rule: "await: an earlier incarnation says nothing of a later one's result",
		From: `!a.older(q) && r.serving() != nil`, To: `r.serving() != nil`, Tests: "TestReadSettled",
	},
	{
		File: "rpc/work.go", Rule: "worker: the messages that come together keep their bytes until all are done",
		From: `if left.Add(-1) == 0 {`, To: `if left.Add(-1) >= 0 {`, Tests: "TestBatchIsReleasedOnce",
	},
	{
		File: "rpc/work.go", Rule: "worker: a worker that reads no batches gets none",
		From: `if w.batches {
			n = fitting(all)`, To: `if n > 0 {
			n = fitting(all)`, Tests: "TestSendAll",
	},
	{
		File: "fsm/requests.go", Rule: "worker: the messages that come together are bounded",
		From: `if n > maxRequestBatch {`, To: `if n > 1<<30 {`, Tests: "TestLargeBatch",
	},
	{
		File: "durable/send.go", Rule: "worker: a node that reads no batches gets none",
		From: `if !o.batches {`, To: `if o.wake == nil {`, Tests: "TestOutgoing",
	},
	{
		File: "partition/peers/peers.go", Rule: "stream of calls: each call is checked for its caller's membership",
		From: `if err := p.admit(ctx, info.FullMethod); err != nil {`, To: `if err := p.admit(ctx, info.FullMethod); err == context.Canceled {`, Tests: "TestCallsOnStreamsAreChecked",
	},
}
