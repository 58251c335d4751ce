package rules

import "perdure/internal/mutation"

// auditBugs break checks of stored states, and of names and policies that the rules depend on.
var auditBugs = []mutation.Bug{
	{
		File: "recovery/invariants.go", Rule: "audit: listeners of a settled promise are being notified",
		From: "(len(listeners) > 0) != notifies", To: "len(listeners) > 0 && notifies", Tests: "TestAuditFindsNotifications", Pkg: "fsm/machine",
	},
	{
		File: "fsm/audit/entity.go", Rule: "audit: an entity's backlog is bounded",
		From: "entries > state.MaxEntityQueue", To: "entries > 2*state.MaxEntityQueue", Tests: "TestAuditFindsWhatIsPlantedInEntities", Pkg: "fsm/machine",
	},
	{
		File: "fsm/audit/values.go", Rule: "audit: a child has the attempts that its caller's journal allows",
		From: "int(retry.Attempts) != bound", To: "int(retry.Attempts) < bound", Tests: "TestVerifyFindsWhatIsPlanted", Long: true, Pkg: "cmd/perdure",
	},
	{
		File: "fsm/audit/values.go", Rule: "audit: a proxy promise has the retries of its child",
		From: "child.Retry != c.Retry || ", To: "", Tests: "TestVerifyFindsWhatIsPlanted", Long: true, Pkg: "cmd/perdure",
	},
	{
		File: "fsm/audit/values.go", Rule: "audit: a proxy promise has the tags of its child",
		From: " || child.Former == 0 && !slices.Equal(child.Tags, c.Tags)", To: "|| slices.Contains(c.Tags, recovery.Tag{})", Tests: "TestVerifyFindsWhatIsPlanted", Long: true, Pkg: "cmd/perdure",
	},
	{
		File: "fsm/audit/deadlines.go", Rule: "audit: a deadline of children is one of an execution",
		From: "!ok || h.ChildrenAt != at", To: "!ok || h.ChildrenAt > at", Tests: "TestVerifyFindsWhatIsPlanted", Long: true, Pkg: "cmd/perdure",
	},
	{
		File: "fsm/audit/deadlines.go", Rule: "audit: a deadline of a sweep is one of an execution",
		From: "!ok || h.SweepAt != at", To: "!ok || h.SweepAt > at", Tests: "TestVerifyFindsWhatIsPlanted", Long: true, Pkg: "cmd/perdure",
	},
	{
		File: "fsm/audit/channels.go", Rule: "audit: an inbox belongs to another partition",
		From: `a.otherPartition(source, "an inbox for messages")`, To: "_ = source", Tests: "TestVerifyFindsWhatIsPlanted", Long: true, Pkg: "cmd/perdure",
	},
	{
		File: "fsm/machine/commit_child.go", Rule: "section: only its end is named unlock without input",
		From: "unlocks != namedUnlock(e) {", To: "unlocks && !namedUnlock(e) {", Tests: "TestOnlyUnlockIsNamedUnlock",
	},
	{
		File: "durable/retry.go", Rule: "retry: a jitter above 1 is refused",
		From: "p.Jitter >= 0 && p.Jitter <= 1", To: "p.Jitter >= 0", Tests: "TestJitterIsRefused",
	},
	{
		File: "fsm/audit/client.go", Rule: "audit: a client's promise is delayed as its tags say",
		From: "case p.DelayUntil != at:", To: "case p.DelayUntil != at && at != 0:", Tests: "TestAuditFindsWhatIsPlantedInClients", Pkg: "fsm/machine",
	},
	{
		File: "fsm/audit/client.go", Rule: "audit: an unblock has its end in the index",
		From: "if !a.Has(keys.DeadlineOf(keys.DeadlineUnblock,", To: "if at == 0 && !a.Has(keys.DeadlineOf(keys.DeadlineUnblock,", Tests: "TestAuditFindsWhatIsPlantedInClients", Pkg: "fsm/machine",
	},
	{
		File: "fsm/audit/schedule.go", Rule: "audit: a schedule's next run is after its last one",
		From: "case s.NextRunAtMs <= s.LastRunAtMs:", To: "case s.NextRunAtMs < s.LastRunAtMs:", Tests: "TestAuditFindsWhatIsPlantedInClients", Pkg: "fsm/machine",
	},
	{
		File: "fsm/audit/schedule.go", Rule: "audit: an entry has created each schedule",
		From: "case s.Incarnation == 0 || ", To: "case ", Tests: "TestAuditFindsWhatIsPlantedInClients", Pkg: "fsm/machine",
	},
	{
		File: "fsm/machine/schedule_advance.go", Rule: "schedule: a run of a former schedule does not advance the one that has its id",
		From: "s.Incarnation != req.Incarnation || ", To: "", Tests: "TestClientSchedule", Pkg: "fsm/machine",
	},
	{
		File: "fsm/machine/schedule_create.go", Rule: "schedule: its creation is idempotent",
		From: "if s, ok := t.schedule(ns, req.Id); ok {", To: "if s, ok := t.schedule(ns, req.Id); ok && s.Id == \"\" {", Tests: "TestClientSchedule", Pkg: "fsm/machine",
	},
}
