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
		From: `	if s.cfg.Auth != nil {`, To: `	if s.cfg.Auth != nil && s.cfg.Auth == nil {`, Tests: "TestCallsOnAStream",
	},
	{
		File: "partition/peers/peers.go", Rule: "stream of calls: each call is checked for its caller's membership",
		From: `if err := p.admit(ctx, info.FullMethod); err != nil {`, To: `if err := p.admit(ctx, info.FullMethod); err == context.Canceled {`, Tests: "TestCallsOnStreamsAreChecked",
	},
}
