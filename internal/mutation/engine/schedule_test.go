package engine

import "perdure/internal/mutation"

// scheduleBugs break the schedule of backups.
var scheduleBugs = []mutation.Bug{
	{
		File: "backup/schedule/schedule.go", Rule: "schedule: a backup is made when the interval has passed",
		From: "st.LastName != \"\" && now.Before(due) {", To: "false && now.Before(due) {", Tests: "TestScheduleWaitsForACreate",
	},
	{
		File: "backup/schedule/schedule.go", Rule: "schedule: only the node that leads makes backups",
		From: "case !s.o.Leads():", To: "case s.o.Every == 0:", Tests: "TestScheduleMakesBackups",
	},
	{
		File: "backup/schedule/schedule.go", Rule: "schedule: backups do not overlap",
		From: "if p.Running(s.o.Clock.Now()) {", To: "if p.Ended && p.Running(s.o.Clock.Now()) {", Tests: "TestScheduleWaitsForACreate",
	},
	{
		File: "backup/schedule/schedule.go", Rule: "schedule: a create ends with its node's leadership",
		From: "if !s.o.Leads() {\n\t\t\t\tcancel()", To: "if s.o.Every == 0 {\n\t\t\t\tcancel()", Tests: "TestScheduleChangesTheLeader",
	},
	{
		File: "backup/schedule/schedule.go", Rule: "schedule: an ended leadership is no failure",
		From: "case leading.Err() != nil:", To: "case ctx.Err() != nil:", Tests: "TestScheduleChangesTheLeader",
	},
	{
		File: "backup/schedule/schedule.go", Rule: "schedule: failures are repeated later and later",
		From: "retryAfter<<min(failures-1, 10)", To: "retryAfter<<min(failures/100, 10)", Tests: "TestScheduleRepeatsFailures",
	},
	{
		File: "backup/schedule/schedule.go", Rule: "schedule: a success ends the failures",
		From: "s.status.Failures, s.status.Problem = 0, \"\"", To: "s.status.Problem = \"\"", Tests: "TestScheduleRepeatsFailures",
	},
	{
		File: "backup/schedule/schedule.go", Rule: "schedule: older backups are deleted with their files",
		From: "if err == nil && len(deleted) > 0 {", To: "if err != nil && len(deleted) > 0 {", Tests: "TestScheduleMakesBackups",
	},
}
