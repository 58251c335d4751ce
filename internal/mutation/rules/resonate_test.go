package rules

import "perdure/internal/mutation"

// resonateBugs break the checks and translations of the Resonate protocol: tokens, envelopes, ids, the order of guards,
// attempts, searches, schedules, statuses, debug mode.
var resonateBugs = []mutation.Bug{
	{
		File: "resonate/address.go", Rule: "resonate: an id is below its origin tag",
		From: `case s != origin && !strings.HasPrefix(s, origin+":"):`, To: `case s == "":`, Tests: "TestBadRequests",
	},
	{
		File: "resonate/address.go", Rule: "resonate: an id is below its branch and parent",
		From: "ok && !below(s, ancestor) {", To: "ok && !below(ancestor, ancestor) {", Tests: "TestBadRequests",
	},
	{
		File: "resonate/address.go", Rule: "resonate: a prefix tag has no dot",
		From: `strings.Contains(tags[tagPrefix], ".")`, To: `strings.Contains(tags[tagPrefix], "..")`, Tests: "TestBadRequests",
	},
	{
		File: "resonate/address.go", Rule: "resonate: a delay needs a target",
		From: "case !targeted:", To: "case p.ID == \"\":", Tests: "TestBadRequests",
	},
	{
		File: "resonate/address.go", Rule: "resonate: a delay ends before the deadline",
		From: "case until >= p.TimeoutAt:", To: "case until > p.TimeoutAt:", Tests: "TestBadRequests",
	},
	{
		File: "resonate/address.go", Rule: "resonate: a promise of the scope global may be awaited",
		From: ` || p.Tags[tagScope] == "global"`, To: "", Tests: "TestExecution",
	},
	{
		File: "resonate/address.go", Rule: "resonate: nobody settles a promise as timed out",
		From: `s.State != "rejected_canceled"`, To: `s.State != "rejected_canceled" && s.State != "rejected_timedout"`, Tests: "TestBadRequests",
	},
	{
		File: "resonate/operation.go", Rule: "resonate: a promise does not await itself",
		From: "case c.awaited == c.awaiter:", To: "case c.awaited == \"\":", Tests: "TestBadRequests",
	},
	{
		File: "resonate/operation.go", Rule: "resonate: a wait is of one origin",
		From: "case s.ids.origin(c.awaited) != s.ids.origin(c.awaiter):", To: "case c.awaited == \"\":", Tests: "TestBadRequests",
	},
	{
		File: "resonate/operation.go", Rule: "resonate: a task that is created acquired has no delay",
		From: "case delayed:", To: "case delayed && l.PID == \"\":", Tests: "TestBadRequests",
	},
	{
		File: "resonate/operation.go", Rule: "resonate: a fulfilment settles the task's own promise",
		From: "case req.ID != ref.ID:", To: "case req.ID == \"\":", Tests: "TestBadRequests",
	},
	{
		File: "resonate/operation.go", Rule: "resonate: a fence is not on its own task",
		From: "if id == ref.ID {", To: "if id == \"\" {", Tests: "TestBadRequests",
	},
	{
		File: "resonate/auth.go", Rule: "resonate: a token without a prefix names nothing",
		From: "case caller.Prefix == nil:", To: "case caller.Prefix == nil && e.kind == \"\":", Tests: "TestAuthorization",
	},
	{
		File: "resonate/auth.go", Rule: "resonate: a token's prefix begins each id",
		From: "if !strings.HasPrefix(id, *caller.Prefix) {", To: "if !strings.Contains(id, *caller.Prefix) {", Tests: "TestTokensNameIDs",
	},
	{
		File: "resonate/auth.go", Rule: "resonate: a search needs a token without a prefix",
		From: "named, ok := namedIDs(e)\n\tif !ok {", To: "named, ok := namedIDs(e)\n\tif !ok && e.kind == \"\" {", Tests: "TestAuthorization",
	},
	{
		File: "resonate/auth.go", Rule: "resonate: a fence needs a token for both ids",
		From: `return []string{text(data, "id"), actionID(data)}, true`, To: `return []string{text(data, "id")}, true`, Tests: "TestAuthorization",
	},
	{
		File: "resonate/auth.go", Rule: "resonate: a created task needs a token for its promise",
		From: "\tcase \"task.create\":\n\t\treturn []string{actionID(data)}, true", To: "\tcase \"task.create\":\n\t\treturn nil, true", Tests: "TestAuthorization",
	},
	{
		File: "resonate/auth.go", Rule: "resonate: a schedule needs a token for its promises",
		From: `return []string{text(data, "promiseId")}, true`, To: `return []string{text(data, "id")}, true`, Tests: "TestTokensNameIDs",
	},
	{
		File: "resonate/auth.go", Rule: "resonate: a heartbeat needs a token for each task",
		From: `named = append(named, text(newObject("data.tasks", raw), "id"))`, To: `named = append(named[:0], text(newObject("data.tasks", raw), "ID"))`, Tests: "TestTokensNameIDs",
	},
	{
		File: "resonate/auth.go", Rule: "resonate: the envelope's token comes before the header's",
		From: "if token == \"\" {\n\t\ttoken = bearer(req)", To: "if bearer(req) != \"\" {\n\t\ttoken = bearer(req)", Tests: "TestTokensNameIDs",
	},
	{
		File: "resonate/server.go", Rule: "resonate: a stream needs a token",
		From: "if _, err := s.opts.Authenticate(r, bearer(r)); err != nil {", To: "if _, err := s.opts.Authenticate(r, bearer(r)); err == nil {", Tests: "TestStreamNeedsToken",
	},
	{
		File: "resonate/server.go", Rule: "resonate: debug requests need debug mode",
		From: "if !known && s.opts.Sandbox != nil {", To: "if !known {", Tests: "TestDebugIsGuarded",
	},
	{
		File: "resonate/server.go", Rule: "resonate: a request's time counts in debug mode only",
		From: "if e.debugTime != nil && s.opts.Sandbox != nil {", To: "if e.debugTime != nil {", Tests: "TestTimeOfRequests",
	},
	{
		File: "resonate/json.go", Rule: "resonate: no id has a lone surrogate",
		From: "case loneSurrogate(body):", To: "case len(body) == 0:", Tests: "TestEnvelopeErrors",
	},
	{
		File: "resonate/json.go", Rule: "resonate: a body is UTF-8",
		From: "case !utf8.Valid(body):", To: "case !utf8.Valid(body[:0]):", Tests: "TestEnvelopeErrors",
	},
	{
		File: "resonate/json.go", Rule: "resonate: an id has no NUL",
		From: "case strings.IndexByte(s, 0) >= 0:", To: "case strings.IndexByte(s, 0) >= 99:", Tests: "TestBadRequests",
	},
	{
		File: "resonate/json.go", Rule: "resonate: a number is one that JSON carries exactly",
		From: "if n < least || n > maxMS {", To: "if n < least {", Tests: "TestBadRequests",
	},
	{
		File: "resonate/json.go", Rule: "resonate: only a deadline may have a fraction",
		From: "(!floor && f != math.Trunc(f))", To: "(!floor && f < 0)", Tests: "TestBadRequests",
	},
	{
		File: "resonate/envelope.go", Rule: "resonate: a request is of the protocol's version",
		From: "case version != Version:", To: "case version == \"\":", Tests: "TestEnvelopeErrors",
	},
	{
		File: "resonate/envelope.go", Rule: "resonate: an action's answer has its own correlation id",
		From: `e.corrID = head.text("corrId")`, To: `_ = head.text("corrId")`, Tests: "TestExecution",
	},
	{
		File: "resonate/address.go", Rule: "resonate: an origin ends at its first colon or, with dotted ids, dot",
		From: `strings.IndexAny(s, ":."); i >= 0 {` + "\n\t\t\treturn s[:i]", To: `strings.IndexAny(s, "."); i >= 0 {` + "\n\t\t\treturn s[:i]", Tests: "TestDottedIDs",
	},
	{
		File: "resonate/operation.go", Rule: "resonate: a suspend waits for the task's own promises",
		From: "data.err == nil && awaiter != task {", To: "data.err == nil && awaiter == \"\" {", Tests: "TestBadRequests",
	},
	{
		File: "resonate/operation.go", Rule: "resonate: a fence of another origin is the holder's",
		From: `(t.State != "acquired" || t.Version != ref.Version)`, To: `t.Version != ref.Version`, Tests: "TestFenceOfAnotherOrigin",
	},
	{
		File: "resonate/operation.go", Rule: "resonate: a fence of another origin is at the task's version",
		From: `(t.State != "acquired" || t.Version != ref.Version)`, To: `t.State != "acquired"`, Tests: "TestFenceOfAnotherOrigin",
	},
	{
		File: "resonate/operation.go", Rule: "resonate: a suspend with something settled is answered by 300",
		From: "return statusRedirect, preloadData", To: "return statusOK, preloadData", Tests: "TestExecution",
	},
	{
		File: "resonate/convert.go", Rule: "resonate: a promise that timed out has no value",
		From: "p.GetState() != perdurev1.PromiseState_PROMISE_STATE_REJECTED_TIMEDOUT {", To: "p.GetState() != perdurev1.PromiseState_PROMISE_STATE_UNSPECIFIED {", Tests: "TestDebugMode",
	},
	{
		File: "resonate/convert.go", Rule: "resonate: data that is no base64 comes back as it was",
		From: "err != nil || base64.StdEncoding.EncodeToString(b) != *v.Data {", To: "err != nil {", Tests: "TestValues",
	},
	{
		File: "resonate/convert.go", Rule: "resonate: an empty string is not no data",
		From: "out.Form = perdurev1.DataForm_DATA_FORM_EMPTY", To: "out.Form = perdurev1.DataForm_DATA_FORM_UNSPECIFIED", Tests: "TestValues",
	},
	{
		File: "resonate/convert.go", Rule: "resonate: two dotted ids are two stored ids",
		From: "if c.dotted && i >= 0 && strings.HasPrefix(strings.TrimLeft(s[i:], \":\"), \".\") {\n\t\treturn s[:i] + \":\" + s[i:]", To: "if c.dotted && i >= 0 && s[i] == '.' {\n\t\treturn s[:i] + \":\" + s[i:]", Tests: "TestDottedIDs",
	},
	{
		File: "resonate/router.go", Rule: "resonate: all attempts have one request id",
		From: "Request: &perdurev1.RequestID{Id: requestID,", To: "Request: &perdurev1.RequestID{Id: append([]byte(nil), time.Now().String()...),", Tests: "TestFirstAnswerHolds",
	},
	{
		File: "resonate/router.go", Rule: "resonate: two operations have two request ids",
		From: "if _, err := rand.Read(requestID); err != nil {", To: "if _, err := rand.Read(requestID[:0]); err != nil {", Tests: "TestFirstAnswerHolds",
	},
	{
		File: "resonate/router.go", Rule: "resonate: an attempt that may not have been applied is repeated",
		From: "ctx.Err() == nil && api.Retryable(e.Reason)", To: "ctx.Err() == nil && api.NotApplied(e.Reason)", Tests: "TestFirstAnswerHolds",
	},
	{
		File: "resonate/router.go", Rule: "resonate: a node that stops is not asked again",
		From: " && e.Reason != perdurev1.Reason_REASON_SHUTTING_DOWN", To: "", Tests: "TestRepeatedAttempts",
	},
	{
		File: "resonate/router.go", Rule: "resonate: only the steps of a task's branch are preloaded",
		From: "return p.Id == id || !strings.HasPrefix(p.Id, root+joint)", To: "return p.Id == root", Tests: "TestPreload",
	},
	{
		File: "resonate/router.go", Rule: "resonate: a search reads on where a page was short",
		From: `if cursor == "" || len(pages[p]) >= req.Limit {`, To: `if cursor != "" || len(pages[p]) >= req.Limit {`, Tests: "TestSearchReadsOn",
	},
	{
		File: "resonate/router.go", Rule: "resonate: a search has an answer of each partition",
		From: "if err := parts.Wait(); err != nil {\n\t\treturn nil, \"\", err", To: "if err := parts.Wait(); err != nil {\n\t\treturn nil, \"\", nil", Tests: "TestSearchNeedsEveryPartition",
	},
	{
		File: "partition/pages.go", Rule: "search: a page that is cut says where it ends", Pkg: "resonate",
		From: "cursor = key(page[limit-1])", To: "_ = key(page[limit-1])", Tests: "TestSearchMergesPartitions",
	},
	{
		File: "resonate/search.go", Rule: "resonate: a page is bounded",
		From: "req.Limit > maxPage {", To: "req.Limit > 2*maxPage {", Tests: "TestBadRequests",
	},
	{
		File: "resonate/schedule.go", Rule: "resonate: a run's promise is a root with its schedule's tags",
		From: "tagOrigin: id, tagBranch: id", To: "tagBranch: id", Tests: "TestDebugSchedules",
	},
	{
		File: "resonate/schedule.go", Rule: "resonate: a run's promise is created at the run's time",
		From: ", CreatedAt: at,", To: ",", Tests: "TestDebugSchedules",
	},
	{
		File: "resonate/scheduler.go", Rule: "resonate: a schedule advances after its promise is created",
		From: "if refusalOf(err).Status != 400 {\n\t\t\t\treturn err", To: "if refusalOf(err).Status == 400 {\n\t\t\t\treturn err", Tests: "TestRunIsNotLost",
	},
	{
		File: "resonate/scheduler.go", Rule: "resonate: a schedule that makes no valid promise goes on",
		From: "if refusalOf(err).Status != 400 {", To: "if refusalOf(err).Status != 0 {", Tests: "TestInvalidRun",
	},
	{
		File: "resonate/scheduler.go", Rule: "resonate: missed runs are made up for one by one",
		From: "if ran, at = next, next; next > now ||", To: "if ran, at = next, next; next > 0 ||", Tests: "TestCatchUp",
	},
	{
		File: "resonate/cron.go", Rule: "resonate: the missed runs that are made up for are bounded",
		From: "if len(recent) < maxCatchUp {", To: "if len(recent) < 1000*maxCatchUp {", Tests: "TestLatestRuns",
	},
	{
		File: "resonate/cron.go", Rule: "resonate: weekdays begin with 1, Sunday",
		From: "\t\t\tn--\n", To: "", Tests: "TestCron",
	},
	{
		File: "resonate/refusal.go", Rule: "resonate: a quota is answered by 429",
		From: "return http.StatusTooManyRequests", To: "return http.StatusServiceUnavailable", Tests: "TestRepeatedAttempts",
	},
	{
		File: "resonate/refusal.go", Rule: "resonate: an unfit object is answered by 422",
		From: "return http.StatusUnprocessableEntity", To: "return http.StatusConflict", Tests: "TestRepeatedAttempts",
	},
	{
		File: "resonate/refusal.go", Rule: "resonate: an operation that the cluster lacks is answered by 501",
		From: "return http.StatusNotImplemented", To: "return http.StatusServiceUnavailable", Tests: "TestRepeatedAttempts",
	},
	{
		File: "resonate/sandbox.go", Rule: "resonate: debug mode is bounded",
		From: "s.term.bytes > maxSandbox {", To: "s.term.bytes < 0 {", Tests: "TestSandboxIsBounded",
	},
	{
		File: "resonate/sandbox.go", Rule: "resonate: time stands still while debugging",
		From: "if s.stopped {\n\t\treturn 0", To: "if s.stopped && s.term == nil {\n\t\treturn 0", Tests: "TestDebugClock",
	},
	{
		File: "resonate/sandbox.go", Rule: "resonate: a read in debug mode happens at its time",
		From: "if at := s.stamp(ctx); at > s.term.machine.Clock() {", To: "if at := s.stamp(ctx); at < 0 {", Tests: "TestDebugMode",
	},
	{
		File: "resonate/debug.go", Rule: "resonate: a tick's two times agree",
		From: "case e.debugTime != nil && *e.debugTime != at:", To: "case at < 0:", Tests: "TestDebugMode",
	},
}
