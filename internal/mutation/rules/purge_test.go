package rules

import (
	"time"

	"perdure/internal/mutation"
)

// purgeBugs break purges, what is kept, and the quotas of namespaces.
var purgeBugs = []mutation.Bug{
	{
		File: "fsm/machine/purge.go", Rule: "purge: an open execution below keeps the whole tree",
		From: "ok && !h.Status.Terminal() {", To: "ok && !h.Status.Terminal() && h.Incarnation == 0 {", Tests: "TestPurgeWaitsForChildren",
	},
	{
		File: "fsm/machine/purge.go", Rule: "purge: an end reaches what was called elsewhere before it is deleted",
		From: "if !t.reached(ex.ns, idOfKey(key)) {", To: "if len(key) == 0 {", Tests: "TestPurgeEndsChildrenOfEnded",
	},
	{
		File: "fsm/state/leaf.go", Rule: "purge: what has rows of its own is looked for",
		From: "return false", To: "return true", Tests: "TestPurgeLeavesNothing", Pkg: "fsm/machine",
	},
	{
		File: "fsm/state/leaf.go", Rule: "leaf: a call is no record",
		From: "return RunsLocally(s.Invoke)", To: "return RunsLocally(s.Invoke) || s.Invoke > 0", Tests: "TestPurgeLeavesNothing TestLeaf", Pkg: "fsm/machine",
	},
	{
		File: "fsm/machine/execution.go", Rule: "leaf: of what began before the level nothing is known",
		From: "b.generation == 0 && t.m.feature >= state.LevelLeaves", To: "b.generation == 0", Tests: "TestLeaf",
	},
	{
		File: "fsm/machine/execution.go", Rule: "leaf: what has a clean-up is none",
		From: "ex.h.Leaf = ex.h.Leaf && ex.h.CleanupMS == 0", To: "ex.dirty = ex.h.Leaf", Tests: "TestPurgeManyByListing",
	},
	{
		File: "fsm/machine/purge_many.go", Rule: "purge of many: the listing decides about leaves alone",
		From: "\t\tif end.Leaf {", To: "\t\tif end.ClosedMS > 0 {", Tests: "TestPurgeManyByListing",
	},
	{
		File: "fsm/machine/purge_many.go", Rule: "purge of many: what is named twice is read again",
		From: "x.leaves = x.leaves[1:] // as nearly always\n\t\t} else {\n\t\t\tx.leaves = slices.Delete(x.leaves, i, i+1)\n", To: "_ = i\n\t\t} else {\n\t\t\t_ = i\n", Tests: "TestPurgeManyByListing",
	},
	{
		File: "fsm/machine/purge_many.go", Rule: "purge of many: the listing is read once",
		From: "x.h.Leaf && !x.followed &&", To: "x.h.Leaf &&", Tests: "TestPurgeManyByListing",
	},
	{
		File: "fsm/machine/execution.go", Rule: "leaf: each event is looked at",
		From: "ex.h.Leaf = ex.h.Leaf && state.IsRecord(ev)", To: "_ = state.IsRecord(ev)", Tests: "TestPurgeLeavesNothing TestLeaf",
	},
	{
		File: "fsm/machine/purge.go", Rule: "purge: a call is no record",
		From: "return state.RunsLocally(entry.Event.(journal.InvokeScheduled).Invoke)", To: "return entry.Event != nil", Tests: "TestPurge TestPurgeLeavesNothing",
	},
	{
		File: "fsm/machine/purge.go", Rule: "purge: what has not ended stays",
		From: "\tif !h.Status.Terminal() {", To: "\tif !h.Status.Terminal() && h.Incarnation == 0 {", Tests: "TestPurge",
	},
	{
		File: "fsm/machine/purge.go", Rule: "purge: another incarnation than the one that is named stays",
		From: "req.Incarnation != 0 && req.Incarnation != ex.h.Incarnation {", To: "req.Incarnation > 1<<40 && req.Incarnation != ex.h.Incarnation {",
		Tests: "TestPurge",
	},
	{
		File: "fsm/machine/purge.go", Rule: "purge: a start may be repeated for ten minutes",
		From: "ended > t.now-replyRetentionMS:", To: "ended > t.now:", Tests: "TestPurge",
	},
	{
		File: "fsm/machine/purge.go", Rule: "purge: what ended at the named time stays",
		From: "ended >= req.EndedBeforeMs:", To: "ended > req.EndedBeforeMs:", Tests: "TestPurge",
	},
	{
		File: "fsm/machine/purge.go", Rule: "purge: rows that one command does not delete are named",
		From: "\t\tt.put(remains, keys.AppendUint64(nil, through))\n", To: "", Tests: "TestPurgeRows",
	},
	{
		File: "fsm/machine/purge.go", Rule: "purge: the rows of a later incarnation stay",
		From: "keys.AppendUint64(keys.Of(family, ns, objectID), through+1)", To: "keys.AppendUint64(keys.Of(family, ns, objectID), through+1<<40)",
		Tests: "TestPurgeRows", Hangs: 30 * time.Second,
	},
	{
		File: "fsm/machine/purge.go", Rule: "purge: a pending promise stays",
		From: "case !p.State.Settled():", To: "case !p.State.Settled() && req.Id == \"\":", Tests: "TestPurgePromise",
	},
	{
		File: "fsm/machine/continue.go", Rule: "purge: nothing begins under the id before it is over",
		From: "return beingPurged(ex)", To: "_ = beingPurged(ex)", Tests: "TestPurgeInParts",
	},
	{
		File: "fsm/audit/purge.go", Rule: "audit: the remains of a purge are of former incarnations",
		From: "h.Incarnation <= through:", To: "h.Incarnation < through:", Tests: "TestVerifyFindsWhatIsPlanted", Long: true, Pkg: "cmd/perdure",
	},
	{
		File: "fsm/audit/purge.go", Rule: "audit: the remains of a purge have their deadline",
		From: "keys.DeadlinePurge, state.RemainsAt, ns, objectID)):", To: "keys.DeadlinePurge, state.RemainsAt, ns, objectID)) && objectID == \"\":",
		Tests: "TestVerifyFindsWhatIsPlanted", Long: true, Pkg: "cmd/perdure",
	},
	{
		File: "fsm/audit/purge.go", Rule: "audit: what is being purged has ended",
		From: "case !h.Status.Terminal():", To: "case !h.Status.Terminal() && h.ID == \"\":", Tests: "TestVerifyFindsWhatIsPlanted", Long: true, Pkg: "cmd/perdure",
	},
	{
		File: "fsm/machine/purge_many.go", Rule: "purges of many: the listing is read from where the command says",
		From: "closedStatus(class) != 0 && many.Class <=", To: "closedStatus(class) == 77 && many.Class <=", Tests: "TestPurgeManyByListing",
	},
	{
		File: "fsm/machine/purge_many.go", Rule: "purges of many: a class is no part of a number",
		From: " && many.Class <= uint32(keys.Cancelled) {", To: " {", Tests: "TestPurgeManyByListing",
	},
	{
		File: "partition/retention/retention.go", Rule: "retention: a purge of many says where the listing has the first",
		From: "Class: uint32(found[0].Class), ", To: "", Tests: "TestPurgesOfMany",
	},
	{
		File: "fsm/machine/purge_many.go", Rule: "purges of many: their number is bounded",
		From: "n == 0 || n > MaxPurges {", To: "n == 0 {", Tests: "TestPurgeManyRefused",
	},
	{
		File: "fsm/machine/purge_many.go", Rule: "purges of many: none is of another partition",
		From: "\t\tif refused := t.m.mustOwn(ns, req.Id); refused != nil {\n", To: "\t\tif refused := t.m.mustOwn(ns, req.Id); refused != nil && ns == \"\" {\n", Tests: "TestPurgeManyRefused",
	},
	{
		File: "fsm/machine/purge_many.go", Rule: "purges of many: the entries that they read are bounded",
		From: "\t\tif entries > left {\n", To: "\t\tif entries > left && entries == 0 {\n", Tests: "TestPurgeManyEntries",
	},
	{
		File: "fsm/machine/purge_many.go", Rule: "purges of many: another incarnation than the one that is named stays",
		From: "req.Incarnation != 0 && req.Incarnation != h.Incarnation:", To: "req.Incarnation > 1<<40:", Tests: "TestPurgeMany TestPurgeManyAndTheNextIncarnation",
	},
	{
		File: "fsm/machine/purge_many.go", Rule: "purges of many: each is decided as one of its own",
		From: " || t.mayPurge(ex, req) != nil:", To: ":", Tests: "TestPurgeMany",
	},
	{
		File: "fsm/machine/purge.go", Rule: "purge: an ended execution is deleted with its promise and its task",
		From: "if !in.journal {", To: "if !in.journal && h.Events == 0 {", Tests: "TestPurgeLeavesNothing",
	},
	{
		File: "partition/retention/retention.go", Rule: "retention: what a command of many did not try is proposed again",
		From: "found = found[len(states):]", To: "found = found[len(many.Purges):]", Tests: "TestPurgesOfMany",
	},
	{
		File: "partition/retention/retention.go", Rule: "retention: what a command of many leaves gets its own",
		From: "left = append(left, found[i])", To: "left = append(left[:0], found[i])", Tests: "TestPurgesOfMany",
	},
	{
		File: "partition/retention/newest.go", Rule: "retention: the latest to end are kept",
		From: "e.EndedMS > of.at[0] {", To: "e.EndedMS < of.at[0] {", Tests: "TestKeep",
	},
	{
		File: "partition/retention/policy.go", Rule: "retention: a count deletes nothing that ended just now",
		From: "min(end, x.now-LeastRetention.Milliseconds())", To: "end", Tests: "TestKeep",
	},
	{
		File: "partition/retention/newest.go", Rule: "retention: partitions divide a count",
		From: "keep: (count + x.partitions - 1) / x.partitions}", To: "keep: count}", Tests: "TestKeep",
	},
	{
		File: "partition/retention/retention.go", Rule: "retention: promises of clients have a count",
		From: "\t\tif !x.o.Policy.counts.only(keepAll) {\n", To: "\t\tif kind == 0 && !x.o.Policy.counts.only(keepAll) {\n", Tests: "TestKeepPromises",
	},
	{
		File: "partition/retention/retention.go", Rule: "retention: nothing is proposed that a member may not know",
		From: "\t\tif may {\n", To: "\t\tif may || r.Serving() {\n", Tests: "TestIdle",
	},
	{
		File: "fsm/machine/purge.go", Rule: "purge: a part goes on with the key at which the last one ended",
		From: "\t\t\tnext = append([]byte(nil), key...)\n", To: "\t\t\tnext = append(append([]byte(nil), key...), 0)\n", Tests: "TestPurgeInFourPartitions",
	},
	{
		File: "fsm/machine/purge.go", Rule: "purge: a part goes on with the stage in which the last one ended",
		From: "string(append([]byte{byte(stage)}, from...)), t.now", To: "string(append([]byte{byte(stage + 1)}, from...)), t.now", Tests: "TestPurgeInFourPartitions",
	},
	{
		File: "fsm/machine/purge.go", Rule: "purge: the next part has its deadline",
		From: "\t\tt.put(keys.DeadlineOf(keys.DeadlinePurge, t.now, ex.ns, ex.h.ID), []byte{})\n\t\tt.fx.expiration(t.now)\n\t\treturn false, \"\"\n\t}\n\tns, h",
		To:   "\t\tt.fx.expiration(t.now)\n\t\treturn false, \"\"\n\t}\n\tns, h", Tests: "TestPurgeInFourPartitions",
	},
	{
		File: "partition/retention/retention.go", Rule: "retention: a round goes over every partition",
		From: "for i, r := range replicas {", To: "for i, r := range replicas[1:] {", Tests: "TestPartitions",
	},
	{
		File: "partition/retention/pace.go", Rule: "retention: purges are spread over the time between two rounds",
		From: "min(p.of(found), p.ends.Sub(now))", To: "0", Tests: "TestPace",
	},
	{
		File: "partition/retention/pace.go", Rule: "retention: purges of a round that has more than expected do not wait for long",
		From: "min(p.of(found), p.ends.Sub(now))", To: "p.of(found)", Tests: "TestPace",
	},
	{
		File: "partition/retention/pace.go", Rule: "retention: purges take no more than their share of the time",
		From: "return max(least, ", To: "return max(min(least, 0), ", Tests: "TestPaceOfMany",
	},
	{
		File: "partition/retention/retention.go", Rule: "retention: promises wait no longer once some are purged",
		From: "\t\tknown.waited = 0\n\t}\n\tknown.waited = min(", To: "\t}\n\tknown.waited = min(", Tests: "TestPromisesRarely",
	},
	{
		File: "partition/retention/retention.go", Rule: "retention: a new leader reads the promises",
		From: "known.promises, known.waited = 0, 0", To: "known.waited = 0", Tests: "TestPromisesRarely",
	},
	{
		File: "partition/retention/retention.go", Rule: "retention: a round expects what the one before has found",
		From: "\t\tknown.found[kind] = found\n", To: "\t\tknown.found[kind] = min(found, 1)\n", Tests: "TestPace",
	},
	{
		File: "partition/retention/retention.go", Rule: "retention: a piece goes on where the last one ended",
		From: "\t\tfrom = next\n", To: "\t\tif from = next; from != nil {\n\t\t\tfrom = append(from, 0)\n\t\t}\n",
		Tests: "TestPartitions",
	},
	{
		File: "rpc/executions.go", Rule: "purge: the listing has every partition",
		From: "\tfor p := range e.s.router.Partitions() {\n", To: "\tfor p := range e.s.router.Partitions() - 1 {\n", Tests: "TestPurgeFiltered", Pkg: "cmd/perdure",
	},
	{
		File: "partition/retention/policy.go", Rule: "retention: one rule of a sort for everything",
		From: "\t\tif s.set {\n", To: "\t\tif s.set && scope != \"\" {\n", Tests: "TestPolicy",
	},
	{
		File: "partition/quota/limits.go", Rule: "quota: a limit of a namespace is set once",
		From: "\tcase twice:\n", To: "\tcase twice && what == \"\":\n", Tests: "TestParse",
	},
	{
		File: "cmd/node/flags.go", Rule: "settings: a repeated flag continues its list",
		From: "if v.setting.List && v.given {", To: "if v.setting.List && !v.given && text == \"\" {", Tests: "TestRepeatedFlags",
	},
	{
		File: "partition/quota/quota.go", Rule: "quota: a repeated start gets its answer",
		From: "if opens && exists() {", To: "if !opens && exists() {", Tests: "TestAdmit",
	},
	{
		File: "partition/quota/quota.go", Rule: "quota: starts under way count",
		From: "s.counted, s.admitted = counted, s.inFlight", To: "s.counted, s.admitted = counted, 0", Tests: "TestParts",
	},
	{
		File: "partition/quota/quota.go", Rule: "quota: what other nodes may still use is theirs",
		From: "e.held += max(used, most)", To: "e.held += min(used, most)", Tests: "TestParts",
	},
	{
		File: "partition/quota/quota.go", Rule: "quota: a node that has said nothing of a namespace keeps its part",
		From: "if !said && h.use.Leads {", To: "if said && h.use.Leads {", Tests: "TestFirstUse",
	},
	{
		File: "partition/quota/quota.go", Rule: "quota: the first use is of no more than others keep for it",
		From: "\t\tq.first(s)\n", To: "\t\tq.divide(s)\n", Tests: "TestFirstUse",
	},
	{
		File: "partition/quota/quota.go", Rule: "quota: a node hears of the namespaces of others",
		From: "\tq.learn()\n", To: "", Tests: "TestFirstUse",
	},
	{
		File: "partition/quota/quota.go", Rule: "quota: bytes that were measured are counted once",
		From: "\ts.added -= before\n", To: "\t_ = before\n", Tests: "TestAdmit",
	},
	{
		File: "partition/quota/quota.go", Rule: "quota: a refusal says what is used now",
		From: ` && l.used == used`, To: ``, Tests: "TestRefusedAgain",
	},
	{
		File: "partition/quota/quota.go", Rule: "quota: a refusal names the quota",
		From: ` && l.kind == kind`, To: ``, Tests: "TestRefusedAgain",
	},
	{
		File: "partition/quota/quota.go", Rule: "quota: a start uses up a token",
		From: "\ts.tokens--\n", To: "\ts.tokens -= 0.001\n", Tests: "TestAdmit",
	},
	{
		File: "partition/quota/quota.go", Rule: "quota: few starts come at once",
		From: "min(rate, max(rate/10, 10))", To: "rate", Tests: "TestStartsAtOnce",
	},
	{
		File: "partition/group/pending.go", Rule: "quota: a command whose outcome is known is not under way",
		From: "\tp.charge.Release()\n", To: "", Tests: "TestQuota", Pkg: "partition", Hangs: 30_000_000_000,
	},
	{
		File: "fsm/query/ended_client.go", Rule: "retention: a promise with others below it stays", Pkg: "fsm/machine",
		From: "\t\tok = false\n\t\treturn false", To: "\t\treturn false", Tests: "TestPurgeClientPromises",
	},
	{
		File: "fsm/query/ended_client.go", Rule: "retention: a step of a pending execution stays", Pkg: "fsm/machine",
		From: "ok = p.At(now).State.Settled()", To: "_ = p.At(now).State.Settled()", Tests: "TestPurgeClientPromises",
	},
	{
		File: "fsm/query/ended_client.go", Rule: "retention: a step of a step is below it", Pkg: "fsm/machine",
		From: "\t\treturn \".\"\n", To: "\t\treturn \":\"\n", Tests: "TestPurgeClientPromises",
	},
	{
		File: "fsm/query/ended_client.go", Rule: "retention: an id's parent ends at its last joint", Pkg: "fsm/machine",
		From: "objectID[:max(origin, strings.LastIndexByte(objectID, '.'))]", To: "objectID[:origin]", Tests: "TestPurgeClientPromises",
	},
	{
		File: "fsm/query/ended.go", Rule: "retention: a promise whose deadline nobody waited for goes", Pkg: "fsm/machine",
		From: "p = p.At(int64(now))", To: "_ = p.At(int64(now))", Tests: "TestPurgeClientPromises",
	},
	{
		File: "fsm/query/ended.go", Rule: "retention: client tasks go with their promises", Pkg: "fsm/machine",
		From: "client := state.OfClient(p)", To: "client := state.OfClient(p) && p.Target == \"\"", Tests: "TestPurgeClientPromises",
	},
	{
		File: "fsm/query/ended_again.go", Rule: "retention: a pass reads up to what the last one left",
		From: "append(bytes.Clone(c.last), 0)", To: "bytes.Clone(c.last)", Tests: "TestAgain",
	},
	{
		File: "fsm/query/ended_again.go", Rule: "retention: a pass that did not end tells nothing",
		From: "a.known = err == nil && next == nil", To: "a.known = err == nil", Tests: "TestAgainLeavesOutWhatWasDeleted",
	},
	{
		File: "fsm/query/ended_again.go", Rule: "retention: a piece that failed is as if it had not been read",
		From: "a.classes = a.classes[:known]", To: "_ = known", Tests: "TestAgain",
	},
	{
		File: "fsm/query/ended_again.go", Rule: "retention: what was deleted is not read again",
		From: "c.last = append(c.last[:0], c.seen...)", To: "_ = c.seen", Tests: "TestAgainLeavesOutWhatWasDeleted",
	},
	{
		File: "partition/retention/retention.go", Rule: "retention: at times the whole listing is read",
		From: "known.again.Begin(n%wholeEvery == 0)", To: "known.again.Begin(false)", Tests: "TestWholeRounds",
	},
	{
		File: "fsm/machine/purge_many.go", Rule: "purge: the listing is read up to what is purged",
		From: "return read < most && len(asked) > 0", To: "return read < most", Tests: "TestPurgeManyReadsWhatItNames",
	},
}
